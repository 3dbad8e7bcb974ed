"""Programs that go on from the text of a stage: by `sx.compile`, `stablexla-run` and `stablexla-compile`."""

from __future__ import annotations

import io
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.compiling.ahead_of_time import compile_library
from stablexla.targets.pipeline.dump import Header
from stablexla.targets.pipeline.knobs import knobs
from stablexla.tools import compile as compile_tool
from stablexla.tools import opt, run, translate

PROGRAM = """module @affine {
  func.func public @main(%x: tensor<2x3xf32>, %v: tensor<3xui8>) -> (tensor<2x3xf32>, tensor<3xui8>) {
    %0 = stablehlo.convert %v : (tensor<3xui8>) -> tensor<3xf32>
    %1 = stablehlo.broadcast_in_dim %0, dims = [1] : (tensor<3xf32>) -> tensor<2x3xf32>
    %2 = stablehlo.add %x, %1 : tensor<2x3xf32>
    return %2, %v : tensor<2x3xf32>, tensor<3xui8>
  }
}
"""
X, V = np.ones((2, 3), np.float32), np.array([1, 2, 200], np.uint8)
STAGES = ("stablehlo", "tensor", "kernels", "buffers", "llvm")


@pytest.fixture
def written(tmp_path: Path) -> Any:
    """Write the text of a stage; return its path."""

    def write(stage: str, *options: str) -> Path:
        source, path = tmp_path / "affine.mlir", tmp_path / f"{stage}.mlir"
        source.write_text(PROGRAM)
        assert opt.main([str(source), f"--stage={stage}", "-o", str(path), *options]) == 0
        return path

    return write


@pytest.mark.parametrize("stage", STAGES)
def test_compile_goes_on(stage: str, written: Any) -> None:
    """Unsigned integers stay what they are: the second line says it."""
    path = written(stage)
    for program in (path, path.read_text(), path.read_bytes()):
        executable = sx.compile(program)
        wide, same = executable(X, V)
        np.testing.assert_array_equal(wide, X + V)
        assert same.dtype == np.uint8
    assert executable.stages[1:] == (STAGES if stage == "stablehlo" else STAGES[STAGES.index(stage) + 1 :])


def test_a_changed_stage_is_what_runs(written: Any) -> None:
    text = written("tensor").read_text()
    assert text.count("arith.addf") == 1
    np.testing.assert_array_equal(sx.compile(text.replace("arith.addf", "arith.mulf"))(2 * X, V)[0], 2 * X * V)


def test_a_dump_goes_on(tmp_path: Path) -> None:
    with knobs.scoped(dump=tmp_path, kernel_cache="off"):
        sx.compile(PROGRAM)
    for file in tmp_path.glob("*/*.mlir"):
        np.testing.assert_array_equal(sx.compile(file)(X, V)[0], X + V)
    (tensor,) = tmp_path.glob("*/*tensor.mlir")
    with knobs.scoped(dump=tmp_path / "again", kernel_cache="off"):
        sx.compile(tensor)
    for file in (tmp_path / "again").glob("*/0*.mlir"):
        np.testing.assert_array_equal(sx.compile(file)(X, V)[0], X + V)


def test_the_tools_go_on(
    written: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written("buffers")
    given = ["--input", "2.0", "--input", "[1,2,3]", "--print"]
    assert run.main([str(path), *given]) == 0
    assert "[[3. 4. 5.]\n [3. 4. 5.]]" in capsys.readouterr().out
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(path.read_bytes())))
    assert run.main(["-", *given]) == 0
    library, header = tmp_path / "libaffine.so", tmp_path / "affine.h"
    assert compile_tool.main([str(path), "-o", str(library), "--header", str(header)]) == 0
    assert "const float* x0 /* f32[2,3] */" in header.read_text()
    check = (
        f"import ctypes; f = ctypes.CDLL({str(library)!r}).affine; x = (ctypes.c_float * 6)(*[1] * 6); "
        "v = (ctypes.c_uint8 * 3)(1, 2, 200); y = (ctypes.c_float * 6)(); w = (ctypes.c_uint8 * 3)(); "
        "assert f(x, v, y, w) == 0; print(list(y)[2])"
    )
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout == "201.0\n"


def test_the_target_is_the_stages_own(written: Any) -> None:
    path = written("nvvm", "--target=gpu:sm_80")
    header = Header.read(path.read_text())
    assert header is not None
    assert header.target == "gpu:sm_80"
    with pytest.raises(sx.CompileError, match=r"lowered for gpu:sm_80,ptx78, and a C library is for the CPU alone"):
        compile_library(path, path.with_suffix(".so"))
    ptx, kernels = path.with_suffix(".ptx"), path.with_name("kernels.ptx")
    assert opt.main([str(path), "--stage=ptx", "-o", str(ptx)]) == 0
    assert ".target sm_80" in ptx.read_text()
    assert compile_tool.main([str(path), "--target=gpu:sm_80", "-o", str(kernels)]) == 0
    assert ".target sm_80" in kernels.read_text()
    with pytest.raises(sx.CompileError, match="lowered for gpu:sm_80, and cannot become a program for gpu:sm_90"):
        sx.compile(path, target="gpu:sm_90")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--entry=predict"], "--entry: the program is at the stage 'tensor' already"),
        (["--shapes", "3"], "--shapes: the program is at the stage 'tensor' already"),
        (
            ["--compare=xla"],
            "--compare needs the program in StableHLO; this one is at 'tensor'",
        ),
        (["--explain"], "--explain needs the program in StableHLO"),
        (["--target", "gpu"], "it was lowered for cpu"),
    ],
)
def test_what_comes_too_late(options: list[str], said: str, written: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([str(written("tensor")), *options]) == 1
    assert said in capsys.readouterr().err


def test_texts_that_do_not_go_on(written: Any) -> None:
    text = written("tensor").read_text()
    first, _, rest = text.split("\n", 2)
    with pytest.raises(sx.CompileError, match=r"its second line, // program: .*, does not say what"):
        sx.compile(f"{first}\n{rest}")
    with pytest.raises(sx.CompileError, match="cpu has no stage 'tensr'\n  try: stablehlo or tensor"):
        sx.compile(text.replace("// stage tensor", "// stage tensr", 1))
    path = written("kernels").with_name("edited.mlir")
    path.write_text(text.replace("arith.addf", "arith.plusf"))
    line = 1 + text[: text.index("arith.addf")].count("\n")
    with pytest.raises(sx.CompileError, match=rf"edited.mlir does not parse(?s:.*)from .*edited.mlir:{line}"):
        sx.compile(path)
    with pytest.raises(sx.ParseError, match=r"(?s)Dialect `linalg' not found.*try: the text of a stage"):
        sx.compile(rest)


@pytest.mark.parametrize("stage", STAGES)
def test_passes_leave_a_program_at_its_stage(stage: str, written: Any) -> None:
    path = written(stage)
    again = path.with_name("again.mlir")
    assert opt.main([str(path), "--canonicalize", "-o", str(again)]) == 0
    before, after = Header.read(path.read_text()), Header.read(again.read_text())
    assert (after.stage, after.signature) == (stage, before.signature)
    assert after.command == f"stablexla-opt {path} --pass-pipeline='builtin.module(canonicalize)'"
    wide, same = sx.compile(again)(X, V)
    np.testing.assert_array_equal(wide, X + V)
    assert same.dtype == np.uint8


def test_a_schedule_leaves_a_program_at_its_stage(written: Any) -> None:
    script = Path(__file__).parent / "filecheck" / "inputs" / "tile.transform"
    for path, options in ((written("kernels"), ()), (written("tensor"), ("--stage=kernels",))):
        tiled = path.with_name("tiled.mlir")
        assert opt.main([str(path), f"--transform-script={script}", *options, "-o", str(tiled)]) == 0
        header = Header.read(tiled.read_text())
        assert header.stage == "kernels"
        assert f"--transform-script={script}" in header.command
        assert "scf.for" in tiled.read_text()
        np.testing.assert_array_equal(sx.compile(tiled)(X, V)[0], X + V)


def test_the_next_steps_passes_make_the_next_stage(tmp_path: Path, written: Any) -> None:
    """As the first lines of a dump have them."""
    with knobs.scoped(dump=tmp_path / "dump"):
        sx.compile(written("tensor").with_name("affine.mlir"))
    for file in sorted((tmp_path / "dump").glob("*/0*.mlir")):
        header = Header.read(file.read_text())
        words = shlex.split(header.command)
        words[1] = str(file.with_name(words[1]))
        again = tmp_path / "again.mlir"
        assert opt.main([*words[1:], "-o", str(again)]) == 0
        assert Header.read(again.read_text()).stage == header.stage


def test_what_passes_take_to_the_other_mlir_is_at_no_stage(written: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert opt.main([str(written("stablehlo")), "-stablexla-lower-to-tensor"]) == 0
    assert opt.main([str(written("stablehlo").with_name("affine.mlir")), "-cse"]) == 0
    assert "// stage" not in capsys.readouterr().out


@pytest.mark.parametrize("stage", ["tensor", "kernels"])
def test_a_file_by_hand_has_the_signature_of_its_main(stage: str, written: Any) -> None:
    path = written(stage)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[2:]))
    assert opt.main([str(path), f"--from-stage={stage}", "-cse", "-o", str(path)]) == 0
    header = Header.read(path.read_text())
    assert [str(t) for t in header.signature.parameters] == ["f32[2,3]", "s8[3]"]  # signed, as it is written
    np.testing.assert_array_equal(sx.compile(path)(X, np.int8([1, 2, 3]))[0], X + np.float32([1, 2, 3]))


def test_a_main_on_buffers_has_no_signature(written: Any) -> None:
    path = written("buffers")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[2:]))
    assert opt.main([str(path), "--from-stage=buffers", "-o", str(path)]) == 0
    assert Header.read(path.read_text()).signature is None
    with pytest.raises(sx.CompileError, match=r"its second line(?s:.*)a main that takes arrays"):
        sx.compile(path)


@pytest.mark.parametrize("stage", STAGES[1:])
def test_translate_names_the_tools_for_a_stage(stage: str, written: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(written(stage))
    for options in ([], ["--info"]):
        assert translate.main([path, *options]) == 1
        said = capsys.readouterr().err
        assert f"error: {path}: this is the stage '{stage}' of a program, and no StableHLO" in said
        assert "try: stablexla-opt or stablexla-run" in said
    assert translate.main([str(written("stablehlo"))]) == 0


def test_ptx_is_text(written: Any) -> None:
    path = written("ptx", "--target=gpu:sm_80")
    text = path.read_text()
    assert text.startswith("// stage ptx: stablexla-opt ")
    assert ".visible .entry" in text
    assert "\\0A" not in text
    with pytest.raises(sx.CompileError, match=r"the text of the stage 'ptx' is for reading.*\n  try: --stage=nvvm"):
        sx.compile(path)
