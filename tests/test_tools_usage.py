"""Usage of the tools: versions, errors of two lines with the nearest option, lists, completion, one name for all."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import stablexla as sx
from stablexla import __main__ as everything
from stablexla.targets.gpu.chips import CHIPS
from stablexla.targets.kinds import target_names
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.pipeline.passes import PASSES
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

    @pytest.mark.parametrize("columns", [80, 132, 0])
    def test_help_fits_the_terminal(
        self, name: str, columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        """80 columns where there is neither a terminal nor COLUMNS."""
        monkeypatch.setenv("COLUMNS", str(columns))
        assert exit_code([name, "--help"]) == 0
        lines = capsys.readouterr().out.splitlines()
        examples = lines[next(i for i, line in enumerate(lines) if line.startswith("examples")) :]
        words = re.findall(r"[^\s\\]+", str(PARSERS[name].parser().epilog).partition("examples")[2])
        assert re.findall(r"[^\s\\]+", " ".join(examples))[1:] == words[1:]  # nothing is lost
        assert [line for line in lines if len(line) > (columns or 80)] == []
        if columns > 80:
            assert max(map(len, lines)) > 80


@pytest.mark.parametrize(
    ("words", "what", "hint"),
    [
        (["run", "model.mlir", "--shape", "3"], "there is no option --shape", "--shapes"),
        (["run", "model.mlir", "more.mlir"], "one argument too many: more.mlir", "stablexla-run --help"),
        (
            ["run", "model.mlir", "--target", "gpp"],
            "'gpp' is none of cpu, gpu, upstream; --list",
            "stablexla-run --help",
        ),
        (["run", "model.mlir", "--check=nans"], "argument --check: check takes nan, inf,", "stablexla-run --help"),
        (["run", "model.mlir", "--check-dir", "here"], "--check-dir is for --check", "stablexla-run --help"),
        (["run", "model.mlir", "--rtol", "1e-3"], "--rtol is for --expect", "stablexla-run --help"),
        (["run", "model.mlir", "--atol=-1"], "a tolerance is 0 or more, not -1", "stablexla-run --help"),
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
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert exit_code(["--version"]) == 0
    assert sx.__version__ in capsys.readouterr().out


def test_lists_of_targets_and_chips(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(["run", "--list-targets"]) == 0
    listed = re.findall(r"^\w+", capsys.readouterr().out, re.MULTILINE)
    assert [target(name) for name in listed] == list(target_names())
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


RULE = """import stablexla as sx
from mlir.dialects import arith

sx.register_custom_call("my.call", lambda x: x)
sx.module_pass("my-pass", "does nothing")(lambda module: None)


def doubled(ctx, x):
    return ctx.elementwise(lambda v: arith.addf(v, v), x)
"""


class TestCodeOfTheUser:
    """`--load`, `--rule` and `--pipeline` are the same in all tools that compile."""

    @pytest.fixture
    def words(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
        model, rule, pipeline = tmp_path / "model.mlir", tmp_path / "my_rule.py", tmp_path / "mine.pipeline"
        model.write_text(
            "func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {\n"
            "  %0 = stablehlo.tanh %x : tensor<2xf32>\n  return %0 : tensor<2xf32>\n}"
        )
        rule.write_text(RULE)
        pipeline.write_text(str(sx.pipeline()).replace("canonicalize,cse)", "canonicalize,cse,my-pass)", 1))
        monkeypatch.setattr("stablexla.compiling.custom_calls.TARGETS", targets := {})
        monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)
        known = dict(PASSES)
        yield [str(model), f"--load={rule}", "--rule=stablehlo.tanh=my_rule:doubled", f"--pipeline={pipeline}"]
        for name in PASSES.keys() - known:
            del PASSES[name]

    def test_run(self, words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
        assert exit_code(["run", *words, "--input=[1,3]", "--print"]) == 0
        assert "[2. 6.]" in capfd.readouterr().out

    def test_without_its_file(self, words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
        assert exit_code(["run", words[0], words[-1]]) == 1
        said = capfd.readouterr().err
        assert "'my-pass' does not refer to a registered pass" in said
        assert "\n  try: --load=FILE.py" in said

    def test_opt(self, words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
        assert exit_code(["opt", *words, "--stage=tensor", "--mlir-print-ir-after=my-pass"]) == 0
        told = capfd.readouterr()
        assert "arith.addf" in told.out
        assert "math.tanh" not in told.out
        assert "IR Dump After my-pass (tensor)" in told.err

    def test_compile(self, words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
        assert exit_code(["compile", *words, "-o", "-", "--emit=llvm-ir"]) == 0
        told = capfd.readouterr()
        assert "define i32 @program(" in told.out
        assert "fadd" in told.out
        assert "fdiv" not in told.out  # as tanh has
        assert told.err == ""

    def test_a_rule_that_is_not_there(self, words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
        for tool in ("run", "opt", "compile"):
            output = ["-o", "x.o"] if tool == "compile" else []
            assert exit_code([tool, *words, "--rule=stablehlo.tanh=my_rule:nothing", *output]) == 1
            assert "there is no function 'my_rule:nothing'" in (said := capfd.readouterr().err)
            assert "  try: --load=my_rule.py" in said


def test_custom_calls_that_are_not_there(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.mlir"
    call = "stablehlo.custom_call @my_sum(%x) {api_version = 4 : i32} : (tensor<2xf32>) -> tensor<2xf32>"
    model.write_text(
        f"func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> {{\n  %0 = {call}\n  return %0 : tensor<2xf32>\n}}"
    )
    for words in (["run"], ["compile", "-o", "x.o"]):
        assert exit_code([*words, str(model)]) == 1
        assert re.search(
            r"try: --load=FILE\.py, which .*; stablexla-compile takes --c-function=my_sum\n", capfd.readouterr().err
        )
    assert exit_code(["compile", "-o", "x.o", str(model), "--c-function=my_sum"]) == 1
    assert "try: api_version = 1 : i32 in the call\n" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "ending"),
    [
        (["run", "--trace=no/folder/t.json"], "try: mkdir -p no/folder"),
        (["run", "--explain=no/folder/page.html", "--print"], "try: mkdir -p no/folder"),
        (["run", "--output-dir=model.mlir/x"], "model.mlir is no folder"),
        (["opt", "-o", "no/folder/out.mlir"], "try: mkdir -p no/folder"),
        (["opt", "-o", "."], "it is a folder, and a file is to be written"),
    ],
)
def test_what_cannot_be_written_is_told_before(
    words: list[str],
    ending: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.mlir").write_text("func.func @main(%x: tensor<2xf32>) -> tensor<2xf32> { return %x : tensor<2xf32> }")
    assert exit_code([*words, "model.mlir"]) == 1
    told = capfd.readouterr()
    assert told.out == ""
    assert told.err.endswith(f"{ending}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["model.mlir"]
