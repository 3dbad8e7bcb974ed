"""The command line: what it prints, where it writes, its exit codes, and errors with file, line and column."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import ELEMENT_TYPES, element_type
from stablexla.dialects.errors import ExecutionError
from stablexla.lowering.support.types import TensorType
from stablexla.targets.runtime import container
from stablexla.tools import compile as compile_tool
from stablexla.tools import opt, run
from stablexla.tools.common import run_tool
from stablexla.tools.optimizing.input import split_input
from stablexla.tools.running.inputs import make_input, random_array

PROGRAM = """module @affine {
  func.func public @main(%x: tensor<2x3xf32>, %v: tensor<3xf32>) -> (tensor<2x3xf32>, tensor<2x3xi1>) {
    %0 = stablehlo.broadcast_in_dim %v, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %1 = stablehlo.add %x, %0 : tensor<2x3xf32>
    %2 = stablehlo.compare GT, %1, %x : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xi1>
    return %1, %2 : tensor<2x3xf32>, tensor<2x3xi1>
  }
}
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "affine.mlir"
    path.write_text(PROGRAM)
    return str(path)


class TestOpt:
    def test_prints_what_it_reads(self, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert opt.main([program]) == 0
        captured = capfd.readouterr()
        assert "module @affine" in captured.out
        assert "stablehlo.add" in captured.out
        assert captured.err == ""

    def test_prints_locations_when_asked(self, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert opt.main([program, "--mlir-print-debuginfo"]) == 0
        assert f'"{program}":4:10' in capfd.readouterr().out

    def test_writes_a_file(self, program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        out = tmp_path / "out.mlir"
        assert opt.main([program, "--stage=tensor", "-o", str(out)]) == 0
        assert out.read_text().startswith("// stage tensor: stablexla-opt ")
        assert "linalg.generic" in out.read_text()
        assert capfd.readouterr().out == ""

    def test_bytecode_is_read(self, program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        from jaxlib.mlir.dialects import stablehlo

        from stablexla.interop.loading import load

        path = tmp_path / "affine.mlirbc"
        path.write_bytes(stablehlo.serialize_portable_artifact(load(PROGRAM), stablehlo.get_current_version()))
        assert opt.main([str(path)]) == 0
        assert "stablehlo.add" in capfd.readouterr().out

    def test_prints_after_every_pass(self, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert opt.main([program, "--pass-pipeline=builtin.module(cse,symbol-dce)", "-mlir-print-ir-after-all"]) == 0
        printed = capfd.readouterr().err
        assert [printed.count(f"IR Dump After {name} (") for name in ("cse", "symbol-dce")] == [1, 1]

    def test_passes_of_both_sides_in_one_pipeline(self, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        passes = "builtin.module(cse,stablexla-lower-to-tensor,func.func(linalg-fuse-elementwise-ops),cse)"
        assert opt.main([program, f"--pass-pipeline={passes}"]) == 0
        out = capfd.readouterr().out
        assert "stablehlo" not in out
        assert "arith.addf" in out

    def test_lists(self, capfd: pytest.CaptureFixture[str]) -> None:
        assert opt.main(["--list-passes"]) == 0
        assert "stablexla-lower-to-tensor\n    lowers StableHLO" in capfd.readouterr().out
        assert opt.main(["--print-pipeline", "--vector-bits=128"]) == 0
        printed = capfd.readouterr().out
        assert printed.startswith("// cpu\nstablehlo: builtin.module(")
        assert "vector-bits=128" in printed

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("module { foo }\n", "1:10: custom op 'foo' is unknown"),
            ("func.func @main() {\n  %0 = arith.nonsense : f32\n}\n", "2:8: custom op 'arith.nonsense' is unknown"),
            (
                'func.func @main(%x: tensor<2xf32>) {\n  "stablehlo.add"(%x, %x) : '
                "(tensor<2xf32>, tensor<2xf32>) -> tensor<3xf32>\n  return\n}\n",
                "2:3: 'stablehlo.add' op",
            ),
        ],
    )
    def test_bad_input(self, text: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "bad.mlir"
        path.write_text(text)
        assert opt.main([str(path)]) == 1
        captured = capfd.readouterr()
        assert captured.err.startswith(f"error: {path}:{message}")
        assert captured.out == ""

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--pass-pipeline=builtin.module(cze)"], "'cze' does not refer to a registered pass"),
            (["--pass-pipeline=builtin.module(cse"], "the pipeline ends before its ')'"),
            (["--pass-pipeline=stablexla-nothing"], "there is no pass 'stablexla-nothing'"),
        ],
    )
    def test_bad_passes(
        self, arguments: list[str], message: str, program: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert opt.main([program, *arguments]) == 1
        assert message in capfd.readouterr().err

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--stage=tensr"],
            ["--stage=tensor", "--from-stage=llvm"],
            ["--run-reproducer"],
        ],
    )
    def test_wrong_usage(self, arguments: list[str], program: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert opt.main([program, *arguments]) == 2
        assert capfd.readouterr().err.startswith("stablexla-opt: ")

    def test_unknown_option(self, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            opt.main([program, "--nothing"])
        assert caught.value.code == 2
        assert "--nothing" in capfd.readouterr().err

    @pytest.mark.parametrize("tool", ["opt", "run"])
    def test_help_teaches(self, tool: str) -> None:
        done = subprocess.run(
            [sys.executable, "-m", f"stablexla.tools.{tool}", "--help"], capture_output=True, text=True
        )
        assert done.returncode == 0
        assert "examples:" in done.stdout
        assert "exit codes:" in done.stdout

    def test_standard_input_and_exit_code_of_the_process(self) -> None:
        command = [sys.executable, "-m", "stablexla.tools.opt", "-", "--stage=tensor"]
        done = subprocess.run(command, input=PROGRAM, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("// stage tensor: stablexla-opt '<stdin>'")
        done = subprocess.run(command, input="nonsense", capture_output=True, text=True)
        assert done.returncode == 1
        assert done.stderr.startswith("error: <stdin>:1:1:")

    def test_parts_keep_their_line_numbers(self) -> None:
        data = b"first\n// -----\nsecond\nthird\n// -----\n"
        assert split_input(data, "// -----") == [b"first\n", b"\n\nsecond\nthird\n", b"\n" * 5]


class TestRun:
    def test_shows_a_line_for_each_result(self, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert run.main([program, "--input=random", "--input=iota"]) == 0
        captured = capfd.readouterr()
        assert "f32[2,3]" in captured.out
        assert "pred[2,3]" in captured.out
        assert "random" not in captured.out
        assert captured.err == ""

    def test_says_which_inputs_are_random(self, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert run.main([program, "--seed=5"]) == 0
        captured = capfd.readouterr()
        assert captured.err == "parameter 0: f32[2,3] is random:5\nparameter 1: f32[3] is random:6\n"
        lines = [re.split("  +", line.strip()) for line in captured.out.splitlines()]
        assert ["parameter 1", "f32[3]", "random:6"] in lines

    @pytest.mark.parametrize(
        ("given", "missing"),
        [
            (["--strict-inputs"], "parameter 0, parameter 1"),
            (["--input=zeros"], "parameter 1"),
            (["--input=arg1=zeros"], "parameter 0"),
        ],
    )
    def test_inputs_that_are_missing(
        self, given: list[str], missing: str, program: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert run.main([program, *given]) == 1
        captured = capfd.readouterr()
        assert captured.err.startswith(f"error: affine: no input is given for {missing}: (f32[2,3], f32[3])")
        assert "try: --input random, where that is meant" in captured.err
        assert captured.out == ""
        assert run.main([program, "--strict-inputs", "--input=zeros", "--input=zeros"]) == 0

    def test_takes_inputs_of_every_kind(self, program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        np.save(tmp_path / "x.npy", np.full((2, 3), 0.5, np.float32))
        arguments = ["--input", str(tmp_path / "x.npy"), "--input", "[1, 2, 3]", "--output-dir", str(tmp_path / "out")]
        assert run.main([program, *arguments, "--print"]) == 0
        expected = np.array([[1.5, 2.5, 3.5]] * 2, np.float32)
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "result0.npy"), expected)
        np.testing.assert_array_equal(np.load(tmp_path / "out" / "result1.npy"), np.ones((2, 3), bool))
        printed = capfd.readouterr().out
        assert "result 0: f32[2,3]\n[[1.5 2.5 3.5]" in printed

    def test_random_inputs_depend_on_the_seed_alone(self, program: str, tmp_path: Path) -> None:
        for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
            assert run.main([program, "--seed", seed, "--output-dir", str(tmp_path / name)]) == 0
        a, b, c = (np.load(tmp_path / name / "result0.npy") for name in "abc")
        np.testing.assert_array_equal(a, b)
        assert (a != c).any()

    def test_times(self, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert run.main([program, "--time", "3"]) == 0
        out = capfd.readouterr().out
        assert [line.split()[0] for line in out.splitlines()[-6:]] == [
            *("compiling", "minimum", "median", "p90", "p99", "maximum")
        ]

    def test_times_as_json(self, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert run.main([program, "--time", "20", "--json"]) == 0
        found = json.loads(capfd.readouterr().out)
        assert (found["calls"], found["warm_up"]) == (20, 2)
        times = [found["seconds"][name] for name in ("minimum", "median", "p90", "p99", "maximum")]
        assert times == sorted(times)
        assert 0 < times[0] < found["seconds"]["compiling"]

    def test_expected_results(self, program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        right, over = np.full((2, 3), 2, np.float32), np.zeros((2, 3), bool) + True
        np.save(tmp_path / "sum.npy", right * np.float32(1 + 1e-6))
        np.save(tmp_path / "over.npy", over)
        given = [program, "--input=ones", "--input=ones"]
        expected = [f"--expect={tmp_path}/sum.npy", f"--expect={tmp_path}/over.npy"]
        assert run.main([*given, *expected]) == 0
        assert "all 2 results are as expected" in capfd.readouterr().out
        assert run.main([*given, *expected, "--rtol=0"]) == 1
        assert "6 of 6 elements are wrong, the first at [0, 0]: 2.0 instead of 2.000002" in capfd.readouterr().err
        assert run.main([*given, *expected, "--rtol=0", "--atol=1e-5"]) == 0
        right[1, 2], over[1, 0] = np.nan, False
        np.save(tmp_path / "sum.npy", right)
        np.save(tmp_path / "over.npy", over)
        capfd.readouterr()
        assert run.main([*given, *expected]) == 1
        said = capfd.readouterr().err.splitlines()
        assert said[0].startswith(f"error: result 0 is not that of {tmp_path}/sum.npy: 1 of 6 elements")
        assert said[0].endswith("the first at [1, 2]: 2.0 instead of nan")
        assert said[1].endswith("1 of 6 elements are wrong, the first at [1, 0]: True instead of False")
        assert run.main([*given, *expected, "--json"]) == 1
        first, second = json.loads(capfd.readouterr().out)
        numbers = {"wrong": 1, "elements": 6, "first": [1, 2], "value": "2.0", "expected": "nan"}
        assert first == {"device": 0, "result": 0, "file": f"{tmp_path}/sum.npy", **numbers}
        assert (second["result"], second["first"]) == (1, [1, 0])
        for wrong, message in (
            (expected[:1], "--expect: 1 given for 2 results"),
            (expected[::-1], "result 0 is float32[2, 3], and"),
            (["--expect=missing.npy"] * 2, "result 0: missing.npy cannot be read"),
        ):
            assert run.main([*given, *wrong]) == 1
            assert message in capfd.readouterr().err

    def test_a_check_says_which_inputs_have_nan(self, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert run.main([program, "--check", "--input=ones", "--input=[nan, inf, 1]"]) == 0
        out = capfd.readouterr().out.splitlines()
        assert out[:2] == [
            "parameter 1: 1 NaN and 1 infinite of 3 elements are given so",
            "affine: nothing found (nan)",
        ]

    def test_dumps(self, program: str, tmp_path: Path) -> None:
        assert run.main([program, "--dump", str(tmp_path / "dump")]) == 0
        assert len(list((tmp_path / "dump").glob("affine-*/*.mlir"))) == 6

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--input", "missing.npy", "--input=0"], "parameter 0: missing.npy cannot be read"),
            (["--input", "[1, 2]", "--input=0"], r"parameter 0 takes f32[2,3], but [1, 2] has the shape [2]"),
            (["--input", "banana", "--input=0"], "parameter 0: 'banana' is no input"),
            (["--input", "random:x", "--input=0"], "the seed is a number"),
            (["--input", "0"] * 3, "there are 3 inputs for 2 parameters"),
        ],
    )
    def test_bad_inputs(
        self, arguments: list[str], message: str, program: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert run.main([program, *arguments]) == 1
        captured = capfd.readouterr()
        assert captured.err.startswith("error: ")
        assert message in captured.err

    def test_bad_program(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "bad.mlir"
        path.write_text("module { foo }")
        assert run.main([str(path)]) == 1
        assert capfd.readouterr().err.startswith(f"error: {path}:1:10: custom op 'foo' is unknown")
        assert run.main([str(tmp_path / "missing.mlir")]) == 1
        assert "cannot be read" in capfd.readouterr().err

    def test_profiles_begin_with_a_summary(self, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert run.main([program, "--profile=2"]) == 0
        summary = capfd.readouterr().out
        assert "2 runs" in summary
        assert "bound: " in summary
        assert len(summary.splitlines()) <= 20
        assert run.main([program, "--profile=2", "--all"]) == 0
        assert "kernels of affine" in capfd.readouterr().out
        assert run.main([program, "--profile=2", "--kernels=loop_*"]) == 0
        assert "kernels of affine" in capfd.readouterr().out

    def test_explanations_begin_with_a_summary(self, program: str, capfd: pytest.CaptureFixture[str]) -> None:
        assert run.main([program, "--explain"]) == 0
        summary = capfd.readouterr().out
        assert "3 operations" in summary
        assert len(summary.splitlines()) <= 20
        assert run.main([program, "--explain", "--all"]) == 0
        assert "became" in capfd.readouterr().out
        assert run.main([program, "--explain", "--kernels=nothing*"]) == 0
        said = capfd.readouterr().out
        assert "became" not in said
        assert "no kernel fits 'nothing*'; there are loop_0" in said

    def test_checks(self, program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        assert run.main([program, "--check"]) == 0
        assert "affine: nothing found (nan)" in capfd.readouterr().out
        np.save(tmp_path / "x.npy", np.full((2, 3), np.inf, np.float32))
        inputs = [f"--input={tmp_path / 'x.npy'}", "--input=-inf"]
        folder = tmp_path / "alone"
        assert run.main([program, *inputs, "--check=all", f"--check-dir={folder}"]) == 1
        said = capfd.readouterr().out
        assert "affine: add made a NaN from operands that are none at /affine.mlir:" in said.replace(str(tmp_path), "")
        assert f"1 operation; {folder / 'program.mlir'}" in said
        assert "[0,0] of f32[2,3]: nan, 6 of 6 elements" in said
        alone = [str(folder / "program.mlir"), f"--inputs={folder / 'inputs.npz'}", "--check", "--json"]
        assert run.main(alone) == 1
        assert json.loads(capfd.readouterr().out)["kind"] == "nan"

    @pytest.mark.parametrize("options", [[], ["--check"], ["--compare=interpreter"]])
    def test_a_time_limit_ends_runs(
        self, options: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """The limit holds for compiling as well: it is far more than that takes once it has run, and little to wait."""
        command = [diverging(tmp_path), "--time-limit=1.5", *options]
        assert run.main([*command, "--input=2"]) == 0
        assert run.main([*command, "--input=-2"]) == 1
        assert "main: the run has taken longer than its time limit of 1.5 s" in capfd.readouterr().err

    def test_what_a_check_finds_is_told_of_a_program_that_never_ends(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        assert run.main([diverging(tmp_path), "--input=-2", "--check=inf"]) == 1
        assert "add made an infinity from finite operands" in capfd.readouterr().out

    @pytest.mark.parametrize(("text", "number"), [("2", 2), ("-0.5", -0.5), ("nan", np.nan)])
    def test_numbers_as_inputs(self, text: str, number: float, tmp_path: Path) -> None:
        path = tmp_path / "scalar.mlir"
        path.write_text("func.func @main(%x: tensor<f32>) -> tensor<f32> { return %x : tensor<f32> }")
        assert run.main([str(path), f"--input={text}", f"--output-dir={tmp_path}"]) == 0
        np.testing.assert_array_equal(np.load(tmp_path / "result0.npy"), np.float32(number))

    def test_a_memory_limit_that_is_none(self, program: str) -> None:
        command = [sys.executable, "-m", "stablexla.tools.run", program]
        variables = {**os.environ, "STABLEXLA_MEMORY_LIMIT": "much"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=variables, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("error: STABLEXLA_MEMORY_LIMIT=much: it is a number of bytes")


def diverging(folder: Path) -> str:
    """A program that runs for ever when its argument is negative; it becomes infinite on its way."""
    path = folder / "diverging.mlir"
    path.write_text("""func.func @main(%x: tensor<f32>) -> tensor<f32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.while(%i = %x) : tensor<f32>
      cond {
        %p = stablehlo.compare LT, %i, %zero : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %p : tensor<i1>
      } do {
        %n = stablehlo.add %i, %i : tensor<f32>
        stablehlo.return %n : tensor<f32>
      }
      return %0 : tensor<f32>
    }""")
    return str(path)


def test_an_interrupted_tool_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> int:
        raise KeyboardInterrupt

    assert run_tool(interrupted) == 130
    assert capsys.readouterr().err == "error: interrupted\n"

    @pytest.mark.parametrize("option", ["--all", "--kernels=loop_*"])
    def test_what_is_to_be_shown_needs_something_that_shows_it(
        self, program: str, option: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit, match="2"):
            run.main([program, option])
        assert f"{option.partition('=')[0]} is for --explain and --profile" in capfd.readouterr().err


class TestSavedExecutables:
    def test_compiled_and_run(self, program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        file, key = tmp_path / "affine.sxe", tmp_path / "key"
        key.write_bytes(b"secret bytes, sixteen of them")
        assert compile_tool.main([program, "-o", str(file), f"--key-file={key}"]) == 0
        given = [str(file), "--input=ones", "--input=[1, 2, 3]", f"--key-file={key}"]
        assert run.main([*given, "--print"]) == 0
        assert "[2. 3. 4.]" in capfd.readouterr().out
        assert run.main([*given, "--explain"]) == 0
        assert compile_tool.main([program, "-o", str(file), "--no-source"]) == 0
        assert run.main([*given[:-1], "--print"]) == 0
        assert "[2. 3. 4.]" in capfd.readouterr().out
        for option in ("--explain", "--check", "--profile", "--compare=interpreter"):
            assert run.main([*given[:-1], option]) == 1
            told = capfd.readouterr()
            assert "saved without its source" in told.err
            assert "try: stablexla-compile without --no-source" in told.err
            assert not told.out
        for option in ("--opt-level=2", "--num-threads=1", "--replicas=2", "--pipeline=nothere"):
            assert run.main([*given, option]) == 1
            name = option.partition("=")[0]
            assert f"{name} is for compiling, and {file} is compiled" in capfd.readouterr().err

    @pytest.mark.parametrize("stage", ["tensor", "llvm"])
    def test_from_the_text_of_a_stage(
        self, stage: str, program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """There is no source that the file could hold."""
        text, file = tmp_path / "stage.mlir", tmp_path / "affine.sxe"
        assert opt.main([program, f"--stage={stage}", "-o", str(text)]) == 0
        assert compile_tool.main([str(text), "-o", str(file)]) == 1
        said = capfd.readouterr().err
        assert "it was compiled from the text of a stage" in said
        assert "try: --no-source" in said
        assert compile_tool.main([str(text), "-o", str(file), "--no-source"]) == 0
        assert run.main([str(file), "--input=ones", "--input=[1, 2, 3]", "--print"]) == 0
        assert "[2. 3. 4.]" in capfd.readouterr().out

    def test_for_older_processors(self, program: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        file = tmp_path / "affine.sxe"
        assert compile_tool.main([program, "-o", str(file), "--target-cpu=x86-64"]) == 0
        assert set(container.read(file).description["function"]["features"]) == {"sse", "sse2"}
        assert run.main([str(file), "--input=ones", "--input=[1, 2, 3]", "--print"]) == 0
        assert "[2. 3. 4.]" in capfd.readouterr().out
        assert compile_tool.main([program, "-o", str(file), "--target-cpu=pentium"]) == 1
        assert "target_cpu must be one of x86-64, x86-64-v2" in capfd.readouterr().err

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (["-o", "m.sxe", "--target-triple=x"], "--target-triple is for libraries, not for saved executables"),
            (["-o", "m.sxe", "--header=m.h"], "--header is for libraries"),
            (["-o", "m.so", "--no-source"], "--no-source is for .sxe"),
            (["-o", "m.so", "--key-file=key"], "--key-file is for .sxe: nothing else is signed"),
        ],
    )
    def test_wrong_usage(
        self, options: list[str], message: str, program: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit, match="2"):
            compile_tool.main([program, *options])
        assert message in capfd.readouterr().err


class TestNames:
    """Inputs by the names of parameters."""

    TEXT = """func.func @main(%a: tensor<f32> loc("x"), %b: tensor<f32> loc("p['w']")) -> tensor<f32> {
      %0 = stablehlo.subtract %a, %b : tensor<f32>
      return %0 : tensor<f32>
    }"""

    def result(self, tmp_path: Path, *given: str) -> float:
        (tmp_path / "subtract.mlir").write_text(self.TEXT)
        assert run.main([str(tmp_path / "subtract.mlir"), *given, f"--output-dir={tmp_path}"]) == 0
        return float(np.load(tmp_path / "result0.npy"))

    def refused(self, tmp_path: Path, capfd: pytest.CaptureFixture[str], *given: str) -> str:
        (tmp_path / "subtract.mlir").write_text(self.TEXT)
        assert run.main([str(tmp_path / "subtract.mlir"), *given]) == 1
        return capfd.readouterr().err

    def test_a_file_of_arrays_by_name_in_any_order(self, tmp_path: Path) -> None:
        file = tmp_path / "weights.npz"
        np.savez(file, **{"p['w']": np.float32(2), "x": np.float32(7)})
        assert self.result(tmp_path, f"--inputs={file}") == 5
        np.savez(file, **{"x": np.float32(7), "p['w']": np.float32(2)})
        assert self.result(tmp_path, f"--inputs={file}") == 5

    def test_a_file_of_arrays_in_order(self, tmp_path: Path) -> None:
        file = tmp_path / "weights.npz"
        np.savez(file, np.float32(7), np.float32(2))
        assert self.result(tmp_path, f"--inputs={file}") == 5
        np.savez(file, arr_1=np.float32(2), arr_0=np.float32(7))
        assert self.result(tmp_path, f"--inputs={file}") == 5

    @pytest.mark.parametrize(
        ("names", "message"),
        [
            (["x"], "lacks p['w']"),
            (["x", "p['w']", "y"], "has y, which no parameter is called"),
            (["x", "y"], "lacks p['w'] and has y, which no parameter is called"),
            (["x", "arr_0"], "has arrays with names and without: x, arr_0"),
            (["arr_0"], "lacks arr_1"),
            (["arr_0", "arr_1", "arr_2"], "has arr_2, which"),
        ],
    )
    def test_files_of_other_arrays(
        self, names: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        file = tmp_path / "weights.npz"
        np.savez(file, **dict.fromkeys(names, np.float32(1)))
        said = self.refused(tmp_path, capfd, f"--inputs={file}")
        assert message in said
        assert "in the order of the parameters; or by name: x, p['w']" in said

    def test_names_where_the_program_has_none(self, program: str, tmp_path: Path, capfd: Any) -> None:
        file = tmp_path / "weights.npz"
        np.savez(file, v=np.zeros(3, np.float32), x=np.zeros((2, 3), np.float32))
        assert run.main([program, f"--inputs={file}"]) == 1
        assert "lacks arg0, arg1 and has v, x" in capfd.readouterr().err

    def test_values_by_name(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        np.save(tmp_path / "w=1.npy", np.float32(2))
        assert self.result(tmp_path, "--input=p['w']=2", "--input=x=7") == 5
        assert self.result(tmp_path, f"--input=p['w']={tmp_path}/w=1.npy", "--input=x=7") == 5
        assert self.result(tmp_path, "--input=7", f"--input={tmp_path}/w=1.npy") == 5
        assert "there is no parameter 'y'; there are x, p['w']" in self.refused(
            tmp_path, capfd, "--input=x=1", "--input=y=2"
        )
        mixed = "inputs are given all by name, each once, or all in order"
        assert mixed in self.refused(tmp_path, capfd, "--input=x=1", "--input=2")
        assert mixed in self.refused(tmp_path, capfd, "--input=x=1", "--input=x=2")
        assert "parameter 1 (p['w']): 1e+300 is out of the range of f32" in self.refused(
            tmp_path, capfd, "--input=x=1", "--input=p['w']=1e300"
        )

    def test_results_that_jax_names(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """By their place in the function's tree; what its place says no more than its number is no name."""
        names = ["result['loss']", "result['p'][0]", "result[2]", "\\1B[31mred", ""]
        results = ", ".join(f'tensor<f32> {{jax.result_info = "{name}"}}' for name in names)
        values, types = ", ".join(["%a"] * 5), ", ".join(["tensor<f32>"] * 5)
        path = tmp_path / "named.mlir"
        path.write_text(f"func.func @main(%a: tensor<f32>) -> ({results}) {{ return {values} : {types} }}")
        assert run.main([str(path), "--input=2", f"--output-dir={tmp_path}"]) == 0
        table = [line.split()[:3] for line in capfd.readouterr().out.splitlines()]
        assert table[0] == ["result", "name", "shape"]
        assert table[1:4] == [["0", "['loss']", "f32[]"], ["1", "['p'][0]", "f32[]"], ["2", "f32[]", "2"]]
        saved = ["result0-loss", "result1-p-0", "result2", "result3-x1b-31mred", "result4"]
        assert [np.load(tmp_path / f"{name}.npy") for name in saved] == [2] * 5
        assert run.main([str(path), "--input=2", "--print"]) == 0
        printed = capfd.readouterr().out
        assert "result 1, ['p'][0]: f32[]\n2.0\nresult 2: f32[]" in printed
        assert "\x1b" not in printed
        executable = sx.compile(path.read_text())
        signature = r"(f32[]) -> (['loss']: f32[], ['p'][0]: f32[], f32[], \x1b[31mred: f32[], f32[])"
        executable.save(tmp_path / "named.sxe")
        for each in (executable, sx.load_executable(tmp_path / "named.sxe")):
            assert signature in repr(each)
            assert [spec.name for spec in each.results][:3] == ["['loss']", "['p'][0]", ""]

    def test_shapes_come_by_name(self, tmp_path: Path) -> None:
        path = tmp_path / "add.mlir"
        path.write_text("""func.func @main(%a: tensor<?xf32> loc("a"), %b: tensor<2x?xf32> loc("b"))
            -> tensor<2x?xf32> {
          return %b : tensor<2x?xf32>
        }""")
        np.savez(tmp_path / "in.npz", b=np.ones((2, 3), np.float32), a=np.ones(4, np.float32))
        assert run.main([str(path), f"--inputs={tmp_path}/in.npz", f"--output-dir={tmp_path}"]) == 0
        assert np.load(tmp_path / "result0.npy").shape == (2, 3)
        assert run.main([str(path), "--input=b=[[1], [2]]", "--input=a=[1, 2]", f"--output-dir={tmp_path}"]) == 0
        assert np.load(tmp_path / "result0.npy").shape == (2, 1)


class TestInputs:
    @pytest.mark.parametrize("name", [t.name for t in ELEMENT_TYPES])
    @pytest.mark.parametrize("spec", ["random", "zeros", "ones", "iota", "1"])
    def test_every_element_type(self, name: str, spec: str) -> None:
        type_ = TensorType(element_type(name), (3, 5))
        array = make_input(spec, type_, 3, "parameter 0")
        assert (array.dtype, array.shape) == (type_.element.dtype, (3, 5))

    def test_random_numbers_fit_small_types(self) -> None:
        for name, low, high in (("s2", -2, 1), ("u2", 0, 3), ("s4", -8, 7), ("u4", 0, 10), ("s8", -10, 10)):
            array = random_array(TensorType(element_type(name), (400,)), 0).astype(int)
            assert (array.min(), array.max()) == (low, high)

    @pytest.mark.parametrize(
        ("spec", "name", "message"),
        [
            ("300", "s8", "300 is out of the range of s8, -128 to 127"),
            ("2147483648", "s32", "2147483648 is out of the range of s32, -2147483648 to 2147483647"),
            ("-1", "u64", "-1 is out of the range of u64, 0 to 18446744073709551615"),
            ("1" + 30 * "0", "s64", "1000000000000000000000000000000 is out of the range of s64"),
            ("2", "pred", "2 is out of the range of pred, 0 to 1"),
            ("70000", "f16", "70000 is out of the range of f16, -65504 to 65504"),
            ("1e300", "f32", "1e+300 is out of the range of f32"),
            ("1e400", "f64", "1e400 is out of the range of f64"),
            ("1" + 400 * "0", "f32", "is out of the range of f32"),
            ("inf", "f8e4m3fn", "inf is out of the range of f8e4m3fn, -448 to 448"),
            ("nan", "f4e2m1fn", "f4e2m1fn has no NaN"),
            ("1.5", "s32", "is not of integers"),
            ("true", "s32", "is not of integers"),
            ("0.5", "pred", "is not true or false"),
            ("1j", "f32", "is not of real numbers"),
        ],
    )
    def test_values_that_a_type_does_not_hold(self, spec: str, name: str, message: str) -> None:
        with pytest.raises(ExecutionError, match=re.escape(message)):
            make_input(spec, TensorType(element_type(name), ()), 0, "parameter 0")

    def test_the_range_holds_in_lists_and_ends_a_run(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "negate.mlir"
        path.write_text(
            "func.func @main(%x: tensor<2xi8>) -> tensor<2xi8> {\n"
            "  %0 = stablehlo.negate %x : tensor<2xi8>\n  return %0 : tensor<2xi8>\n}\n"
        )
        assert run.main([str(path), "--input", "[1, 300]"]) == 1
        assert "error: parameter 0: 300 is out of the range of s8, -128 to 127" in capfd.readouterr().err
        assert run.main([str(path), "--input", "[1, 127]", "--print"]) == 0
        assert "[  -1 -127]" in capfd.readouterr().out

    @pytest.mark.parametrize(
        ("spec", "name", "shape", "expected"),
        [
            ("[nan, -inf, Infinity]", "f32", (3,), [np.nan, -np.inf, np.inf]),
            ("[true, false]", "pred", (2,), [True, False]),
            ("[18446744073709551615, 1]", "u64", (2,), [2**64 - 1, 1]),
            ("[[1], [0]]", "pred", (2, 1), [[True], [False]]),
            ("[]", "s32", (0,), []),
        ],
    )
    def test_lists_in_python_and_json(self, spec: str, name: str, shape: tuple[int, ...], expected: list[Any]) -> None:
        array = make_input(spec, TensorType(element_type(name), shape), 0, "parameter 0")
        np.testing.assert_array_equal(array, np.array(expected, array.dtype))

    @pytest.mark.parametrize("spec", ["[1, [2]]", "'a'", "os", "1 +", 500 * "[", "9" * 5000, "\0"])
    def test_texts_that_are_no_input(self, spec: str) -> None:
        with pytest.raises(ExecutionError, match="is no input") as raised:
            make_input(spec, TensorType(element_type("f32"), ()), 0, "parameter 0")
        assert len(raised.value.summary) < 200

    @pytest.mark.parametrize(
        ("name", "is_taken"), [("f32", False), ("s16", False), ("pred", False), ("bf16", True), ("f8e5m2", True)]
    )
    def test_files_without_a_type(self, tmp_path: Path, name: str, is_taken: bool) -> None:
        type_ = TensorType(element_type(name), (2,))
        file = tmp_path / "x.npy"
        np.save(file, np.ones(2, type_.element.dtype).view(f"V{type_.element.bytes}"))
        if is_taken:
            assert make_input(str(file), type_, 0, "parameter 0").dtype == type_.element.dtype
            return
        with pytest.raises(ExecutionError, match=f"parameter 0 takes {name}.2., but the file has elements of"):
            make_input(str(file), type_, 0, "parameter 0")
