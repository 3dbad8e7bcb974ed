"""Usage of the tools: versions, errors of two lines with the nearest option, lists, completion, one name for all."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import stablexla as sx
from stablexla import __main__ as everything
from stablexla.targets.gpu.chips import CHIPS
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.registry import find_target, pipeline_of
from stablexla.tools import cache, compile, opt, run, translate
from stablexla.tools.common import target
from stablexla.tools.optimizing import options as opt_options

TOOLS = {"run": run, "opt": opt, "compile": compile, "translate": translate, "cache": cache}
PARSERS = {"run": run, "opt": opt_options, "compile": compile, "translate": translate, "cache": cache}


def exit_code(words: list[str]) -> int:
    try:
        return everything.main(words)
    except SystemExit as ended:
        return int(ended.code or 0)


@pytest.mark.parametrize("name", TOOLS)
class TestEveryTool:
    def test_version(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert exit_code([name, "--version"]) == 0
        said = capsys.readouterr().out
        assert said.startswith(f"stablexla {sx.__version__} (jaxlib ")
        assert said.count("\n") == 1

    def test_an_unknown_option(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert exit_code([name, "--versoin"]) == 2
        first, second, *rest = capsys.readouterr().err.splitlines()
        assert first.endswith(("there is no option --versoin", "the following arguments are required: file"))
        assert second.strip() in ("try: --version", "try: stablexla-run --help")
        assert rest == []

    def test_help_names_every_exit_code_and_option(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert exit_code([name, "--help"]) == 0
        said = capsys.readouterr().out
        assert "examples" in said
        described = [action for action in PARSERS[name].parser()._actions if action.help is not None]
        assert len(described) == len(PARSERS[name].parser()._actions)


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (["run", "model.mlir", "--shape", "3"], "there is no option --shape", "--shapes"),
        (["run", "model.mlir", "more.mlir"], "one argument too many: more.mlir", "stablexla-run --help"),
        (["run", "model.mlir", "--target", "gpp"], "'gpp' is none of cpu, gpu; --list-targets", "stablexla-run --help"),
        (["compile", "model.mlir"], "a program and -o OUTPUT are needed", "stablexla-compile --help"),
        (["translate", "--json", "model.mlir"], "--json is for --info", "stablexla-translate --help"),
        (["translte"], "there is no tool 'translte'", "python -m stablexla translate"),
        (["completion"], "completion of which shell?", "bash or zsh or tcsh"),
    ],
)
def test_wrong_usage(words: list[str], what: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(words) == 2
    said = capsys.readouterr().err.splitlines()
    assert what in said[0]
    assert said[1:] == [f"  try: {hint}"]


def test_one_name_for_all_tools(capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "stablexla"], capture_output=True, text=True, check=True)
    assert [line.split()[0] for line in done.stdout.splitlines()[2:7]] == list(TOOLS)
    assert exit_code(["--version"]) == 0
    assert sx.__version__ in capsys.readouterr().out


def test_lists_of_targets_and_chips(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["run", "--list-targets"]) == 0
    for name in re.findall(r"^\w+", capsys.readouterr().out, re.MULTILINE):
        assert target(name) == name
    assert exit_code(["compile", "--list-chips"]) == 0
    assert re.findall(r"gpu:(\w+)", capsys.readouterr().out) == list(CHIPS)


def test_the_help_names_the_stages() -> None:
    said = re.findall(r"\w+", opt_options.STAGES.partition(":")[2].replace("for GPUs after buffers", "/"))
    cpu, gpu = (pipeline_of(find_target(name), CompileOptions()).names for name in ("cpu", "gpu:sm_80"))
    assert said == [*cpu, *gpu[gpu.index("buffers") + 1 :]]


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion(shell: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("shtab")
    assert exit_code(["completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    assert "--refine-arguments" in script.read_text()
    if shutil.which(shell):
        subprocess.run([shell, "-n", script], check=True)


def test_hints_are_the_tools_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What to try is an option in a shell, and an argument in Python."""
    text = "func.func public @predict(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }"
    model = tmp_path / "model.mlir"
    model.write_text(text)
    with pytest.raises(sx.VerificationError, match=r'try: sx.compile\(program, entry="predict"\)'):
        sx.compile(text)
    output = str(tmp_path / "model.o")
    tries = [
        (["run", str(model)], "--entry=predict"),
        (["compile", str(model), "-o", output], "--entry=predict"),
        (["compile", str(model), "-o", output, "--entry=predict"], "--shapes 2"),
    ]
    for words, hint in tries:
        assert exit_code(words) == 1
        assert capsys.readouterr().err.endswith(f"  try: {hint}\n")
    assert exit_code([*tries[-1][0], "--shapes", "2", "--target-triple=aarch64-linux-gnu"]) == 0
    assert (tmp_path / "model.o").read_bytes()[18] == 183  # ELF's number of AArch64
