"""What somebody ran into who tried stablexla for the first time: each test is a mistake that was once answered badly.

No oracle is needed: the kind of the error and what it says are looked at, and that nothing but an error comes of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.contexts import diagnostics, stablehlo_context
from stablexla.targets.pipeline.knobs import knobs
from stablexla.tools import opt, run

TEXT = """func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %x, %x : tensor<4xf32>
  return %0 : tensor<4xf32> }"""


def doubled(shape: sx.Shape) -> sx.Executable:
    b = sx.XlaBuilder("doubled")
    x = b.parameter(0, shape)
    return sx.compile(b.build(x + x))


class TestSizes:
    def test_an_array_that_no_address_reaches(self) -> None:
        with pytest.raises(sx.UnsupportedError, match=r"2\^63 bytes"):
            doubled(sx.f32[2**32, 2**31])

    def test_a_dimension_that_no_integer_holds(self) -> None:
        with pytest.raises(sx.ShapeError, match="more than 64 bits"):
            sx.f32[2**63]

    def test_more_memory_than_there_is(self) -> None:
        b = sx.XlaBuilder("huge")
        with pytest.raises(sx.ExecutionError, match=r"huge: a call needs 128\.0 TiB"):
            sx.compile(b.build(b.iota(sx.f32[2**45], 0)))()


class TestNames:
    def test_of_a_builder(self) -> None:
        with pytest.raises(sx.ShapeError, match="must be a text, not None"):
            sx.XlaBuilder(None)  # type: ignore[arg-type]

    def test_of_a_parameter(self) -> None:
        with pytest.raises(sx.ShapeError, match="name must be a text, not 3"):
            sx.XlaBuilder("p").parameter(0, sx.f32[2], name=3)  # type: ignore[arg-type]

    def test_longer_than_a_file_name(self, tmp_path: Path) -> None:
        b = sx.XlaBuilder("x" * 300)
        with knobs.scoped(dump=tmp_path):
            sx.compile(b.build(b.constant(1)))
        assert len([p for p in tmp_path.iterdir() if (p / "source.mlir").exists()]) == 1


def test_index_that_is_an_array() -> None:
    x = sx.XlaBuilder("p").parameter(0, sx.f32[4])
    with pytest.raises(sx.ShapeError, match="no index that is known now"):
        x[np.array([0, 1])]


class TestNumbers:
    def test_large_integer_for_a_small_float(self) -> None:
        result = doubled(sx.bf16[()])(10**30)
        assert result == ml_dtypes.bfloat16(1e30) * 2
        with pytest.raises(sx.ExecutionError, match="0 is out of the range of f8e4m3fn, -448 to 448"):
            doubled(sx.f8e4m3fn[()])(10**30)

    def test_integer_beyond_every_float(self) -> None:
        with pytest.raises(sx.ExecutionError, match="out of the range of bf16"):
            doubled(sx.bf16[()])(10**400)


def test_tuple_of_the_wrong_length() -> None:
    b = sx.XlaBuilder("p")
    pair = b.parameter(0, sx.Shape.tuple((sx.f32[2], sx.s32[()])))
    executable = sx.compile(b.build(pair[0]))
    with pytest.raises(sx.ExecutionError, match="but a tuple of length 1 came"):
        executable((np.ones(2, np.float32),))
    with pytest.raises(sx.ExecutionError, match="takes 1 argument, but 0 came"):
        executable()


class TestPrograms:
    def test_text_with_half_a_surrogate_pair(self) -> None:
        with pytest.raises(sx.ParseError, match="character 14 is half of a surrogate"):
            sx.compile("func.func @mai\udc80() { return }")

    def test_quantised_types(self) -> None:
        q = "tensor<2x!quant.uniform<i8:f32,1.0:3>>"
        executable = sx.compile(f"func.func @main(%x: {q}) -> {q} {{ return %x : {q} }}")
        assert executable(np.array([3, -4], np.int8)).tolist() == [3, -4]

    def test_bytecode_that_was_cut_off(self) -> None:
        b = sx.XlaBuilder("p")
        data = b.build(b.parameter(0, sx.f32[4]) + 1.0).bytecode()
        assert sx.load(data) is not None
        for end in range(4, len(data)):
            with pytest.raises(sx.ParseError):
                sx.compile(data[:end])

    def test_diagnostic_that_is_no_text(self) -> None:
        # The name of a dialect, made one byte that UTF-8 does not have: MLIR names it in its message.
        b = sx.XlaBuilder("p")
        data = b.build(b.parameter(0, sx.f32[4]) + 1.0).bytecode().replace(b"stablehlo", b"stable\xfflo")
        code = """
import sys, stablexla as sx
try:
    sx.compile(sys.stdin.buffer.read())
except sx.ParseError:
    print("told")
"""
        done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, timeout=120)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"told\n", b"")

    def test_function_whose_name_is_no_text(self) -> None:
        b = sx.XlaBuilder("p")
        data = b.build(b.parameter(0, sx.f32[4]) + 1.0).bytecode()
        with pytest.raises(sx.ParseError):
            sx.compile(data.replace(b"\0main\0", b"\0m\xff\xffn\0"))

    def test_handlers_still_hear_what_exceptions_do_not(self) -> None:
        with diagnostics(stablehlo_context()), pytest.raises(sx.ParseError):
            sx.compile(b"ML\xefRnonsense")
        with pytest.raises(sx.ParseError, match="1:10"):
            sx.compile("module { foo }")


class TestDumping:
    def test_below_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with knobs.scoped(dump=tmp_path / "file"), pytest.raises(sx.StablexlaError, match="Not a directory"):
            sx.compile(TEXT)


class TestTools:
    @pytest.fixture
    def program(self, tmp_path: Path) -> str:
        path = tmp_path / "double.mlir"
        path.write_text(TEXT)
        return str(path)

    def test_output_that_cannot_be_written(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert opt.main([program, "-o", "/nowhere/out.mlir"]) == 1
        assert capsys.readouterr().err == (
            "error: /nowhere/out.mlir: there is no folder /nowhere\n  try: mkdir -p /nowhere\n"
        )

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="the system has no /dev/full")
    def test_disk_that_is_full(self, program: str) -> None:
        command = [sys.executable, "-m", "stablexla.tools.opt", program]
        with open("/dev/full", "w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120)
        assert done.returncode == 1
        assert done.stderr.startswith("error: output: No space left")
        assert "Traceback" not in done.stderr

    def test_standard_output_that_is_closed(self, program: str) -> None:
        command = f'exec "{sys.executable}" -m stablexla.tools.opt "{program}" >&-'
        done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")

    def test_number_of_calls_below_one(self, program: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            run.main([program, "--time=-5"])
        assert caught.value.code == 2
        assert "a number from 1 on, not -5" in capsys.readouterr().err
