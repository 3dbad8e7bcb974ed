"""Modules of several functions: any of them is compiled and run by its name, everywhere where `main` is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import stablexla as sx
from stablexla.tools import compile as compile_tool
from stablexla.tools import opt, run

X = np.array([3, 4], np.float32)
TYPE = "tensor<2xf32>"
TEXT = f"""
func.func @main1(%x: {TYPE}) -> {TYPE} {{ %0 = stablehlo.add %x, %x : {TYPE}  return %0 : {TYPE} }}
func.func @main2(%x: {TYPE}) -> {TYPE} {{
  %0 = call @main1(%x) : ({TYPE}) -> {TYPE}
  %1 = stablehlo.multiply %0, %0 : {TYPE}
  return %1 : {TYPE}
}}
func.func @circle(%x: {TYPE}) -> {TYPE} {{ %0 = call @circle(%x) : ({TYPE}) -> {TYPE}  return %0 : {TYPE} }}
func.func @open(%x: tensor<?xf32>) -> tensor<?xf32> {{
  %0 = stablehlo.negate %x : tensor<?xf32>
  return %0 : tensor<?xf32>
}}
func.func private @absent({TYPE}) -> {TYPE}
"""
BOTH = {"main1": X + X, "main2": (X + X) ** 2}


@pytest.mark.parametrize("entry", BOTH)
@pytest.mark.parametrize("options", [sx.CompileOptions(), sx.CompileOptions(isolated=True)])
def test_compile(entry: str, options: sx.CompileOptions) -> None:
    """What other functions are does not matter: one calls itself, one has open extents, one no body."""
    np.testing.assert_array_equal(sx.compile(TEXT, entry=entry, options=options)(X), BOTH[entry])


def test_open_extents() -> None:
    np.testing.assert_array_equal(sx.compile(TEXT, entry="open")(X), -X)


def test_main_beside_others() -> None:
    text = TEXT.replace("@main1", "@main")
    np.testing.assert_array_equal(sx.compile(text)(X), X + X)
    np.testing.assert_array_equal(sx.compile(text, entry="main2")(X), (X + X) ** 2)


def test_entries_are_cached_apart(tmp_path: Path) -> None:
    options = sx.CompileOptions(cache=tmp_path)
    for _ in range(2):
        for entry, expected in BOTH.items():
            np.testing.assert_array_equal(sx.compile(TEXT, entry=entry, options=options)(X), expected)
    assert len(list(tmp_path.glob("*.sxe"))) == 2


def test_saved(tmp_path: Path) -> None:
    sx.compile(TEXT, entry="main2").save(tmp_path / "program.sxe")
    np.testing.assert_array_equal(sx.load_executable(tmp_path / "program.sxe")(X), BOTH["main2"])


def test_computation_of_a_builder() -> None:
    """Its other functions are entries, too."""
    b = sx.XlaBuilder("t")
    x = b.parameter(0, sx.f32[2], name="x")
    program = b.build(sx.add(x, x))
    with pytest.raises(sx.VerificationError, match="no function @other; it has @main"):
        sx.compile(program, entry="other")


def test_no_such_function() -> None:
    listed = "it has @main1, @main2, @circle, @open, @absent"
    with pytest.raises(sx.VerificationError, match=f"no function @main3; {listed}"):
        sx.compile(TEXT, entry="main3")
    with pytest.raises(sx.VerificationError, match=f'no function @main; {listed}\n.*entry="main1"'):
        sx.compile(TEXT)
    with pytest.raises(sx.VerificationError, match="@main has no body"):
        sx.compile(TEXT, entry="absent")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.mlir"
    path.write_text(TEXT)
    return path


def test_run(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main([str(file), "--entry=main2", "--input", "3,4", "--print"]) == 0
    assert "[36. 64.]" in capsys.readouterr().out
    assert run.main([str(file)]) == 1
    assert "it has @main1, @main2" in capsys.readouterr().err


def test_opt(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The first line of what is written holds the entry."""
    assert opt.main([str(file), "--entry=main2", "--stage=stablehlo"]) == 0
    out = capsys.readouterr().out
    assert "--entry=main2" in out.splitlines()[0]
    assert out.count("func.func") == 1
    assert "stablehlo.multiply" in out


def test_compile_tool(file: Path) -> None:
    output = file.with_suffix(".ll")
    assert compile_tool.main([str(file), "--entry=main1", "-o", str(output)]) == 0
    assert "fadd" in output.read_text()
