"""Warnings of what has no effect: unknown variables, edited stages that match nothing, options of another target."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stablexla as sx
from stablexla import __main__ as everything
from stablexla.targets.pipeline.dump import program_folder
from stablexla.targets.pipeline.knobs import knobs
from stablexla.tools import cache, compile, run, translate
from stablexla.tools.optimizing import options as opt

ROOT = Path(__file__).parents[1]
PROGRAM = """module @twice {
  func.func public @main(%x: tensor<3xf32>) -> tensor<3xf32> {
    %0 = stablehlo.add %x, %x : tensor<3xf32>
    return %0 : tensor<3xf32>
  }
}
"""


def tool(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "stablexla", *words]
    return subprocess.run(line, capture_output=True, text=True, env={**os.environ, **environment}, input=PROGRAM)


def test_an_unknown_variable() -> None:
    done = tool("run", "-", "--input=random", STABLEXLA_DUMPS="here", STABLEXLA_TEST_SOMETHING="1")
    assert done.returncode == 0
    assert done.stderr == "warning: the environment variable STABLEXLA_DUMPS is not read; STABLEXLA_DUMP?\n"


class TestOverride:
    @staticmethod
    def folder(tmp_path: Path) -> Path:
        made = tmp_path / program_folder("twice", sx.load(PROGRAM))
        made.mkdir()
        return made

    def compile(self, place: Path) -> None:
        with knobs.scoped(override=place, kernel_cache="off"):
            sx.compile(PROGRAM)

    def test_no_folder(self, tmp_path: Path) -> None:
        with pytest.warns(UserWarning, match=r"STABLEXLA_OVERRIDE=.*nowhere changes nothing of twice: it is no folder"):
            self.compile(tmp_path / "nowhere")

    def test_a_folder_of_another_program(self, tmp_path: Path) -> None:
        (tmp_path / "twice-00000000").mkdir()
        with pytest.warns(UserWarning, match=r"has no folder twice-\w+; twice-00000000 is that of another program"):
            self.compile(tmp_path)

    def test_a_file_that_is_no_stage(self, tmp_path: Path) -> None:
        (self.folder(tmp_path) / "tensor.mlir").write_text("")
        with pytest.warns(UserWarning, match=r"has tensor.mlir; stages are 00.stablehlo.mlir, 01.tensor.mlir"):
            self.compile(tmp_path)

    def test_a_stage_is_used(self, tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
        text = sx.compile(PROGRAM).ir("tensor")
        (self.folder(tmp_path) / "01.tensor.mlir").write_text(text)
        self.compile(tmp_path)
        assert not recwarn.list


@pytest.mark.parametrize(("name", "value"), [("vector_bits", 128), ("num_threads", 1)])
def test_options_without_effect_for_a_gpu(name: str, value: int) -> None:
    with pytest.warns(UserWarning, match=f"{name}={value} changes nothing for the target gpu:sm_80"):
        sx.compile(PROGRAM, target="gpu:sm_80", options=sx.CompileOptions(**{name: value}))


def test_a_rule_that_is_not_registered(tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(
        "import stablexla as sx\n\n@sx.lowering_rule('stablehlo.add')\ndef other(ctx, x, y):\n    return x\n"
    )
    done = tool("run", "-", "--input=random", f"--load={rules}")
    assert done.stderr == (
        f"warning: {rules}: the rule other of stablehlo.add is not registered, and has no effect\n"
        "  try: @sx.lowers('stablehlo.add'), or --rule=stablehlo.add=rules:other\n"
    )


# ---- what to try -----------------------------------------------------------------------------------------------------

OTHERS_OPTIONS = {"--force-reinstall", "--xla_dump_large_constants"}


def hints() -> Iterator[tuple[str, str]]:
    """Every text that is given as a hint, with its place; what is computed is left out of it."""
    for folder in ("stablexla", "targets", "lowering", "dialects"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.keyword) and node.arg in ("hint", "option"):
                    parts = [n.value for n in ast.walk(node.value) if isinstance(n, ast.Constant)]
                    text = " ".join(part for part in parts if isinstance(part, str))
                    if text:
                        yield f"{file.relative_to(ROOT)}:{node.value.lineno}", text


def options() -> set[str]:
    parsers = [module.parser() for module in (cache, compile, run, translate, opt)]
    return {option for made in parsers for action in made._actions for option in action.option_strings}


def test_what_hints_name_is_there() -> None:
    found = list(hints())
    assert len(found) > 100
    extras = set(re.findall(r"^(\w+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    variables = {knob.variable for knob in knobs.table().values()}
    wrong, known = [], options() | OTHERS_OPTIONS
    for place, text in found:
        for name in re.findall(r"\bsx\.([\w.]+)", text):
            value: object = sx
            for part in name.rstrip(".").split("."):
                try:
                    value = getattr(value, part)
                except AttributeError:
                    wrong.append(f"{place}: sx.{name}")
                    break
        wrong += [f"{place}: {o}" for o in re.findall(r"(?<![\w-])--[a-z][\w-]+", text) if o not in known]
        wrong += [f"{place}: {e}" for e in re.findall(r"stablexla\[(\w+)\]", text) if e not in extras]
        wrong += [f"{place}: {v}" for v in re.findall(r"STABLEXLA_\w+", text) if v not in variables]
        wrong += [f"{place}: {t}" for t in re.findall(r"\bstablexla-(\w+)", text) if not _is_tool_or_pass(t)]
    assert wrong == []


def _is_tool_or_pass(name: str) -> bool:
    return name in everything.TOOLS or name in ("legalize", "transform", "launch", "collectives")


def test_modules_that_hints_name_are_there() -> None:
    for _, text in hints():
        for name in re.findall(r"\bstablexla\.(interop\.\w+)", text):
            assert importlib.import_module(f"stablexla.{name}")
