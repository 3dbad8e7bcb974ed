"""Parameters as constants of a program. Oracle: the same program with its parameters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.tools.compile import main
from stablexla.tools.running.constants import read_constants

RNG = np.random.default_rng(3)
X, W, B = (RNG.standard_normal(shape, np.float32) for shape in ((5, 70), (70, 90), (90,)))


def layer() -> sx.XlaComputation:
    b = sx.XlaBuilder("layer")
    w, x, c = (
        b.parameter(0, sx.f32[W.shape], "w"),
        b.parameter(1, sx.f32[X.shape], "x"),
        b.parameter(2, sx.f32[90], "c"),
    )
    return b.build(sx.tanh(x @ w + sx.broadcast_in_dim(c, (5, 90), [1])))


@pytest.mark.parametrize("keys", [("w", "c"), (0, 2), (np.int64(0), "c")], ids=str)
def test_weights(keys: tuple[Any, Any]) -> None:
    program = layer()
    wanted = sx.compile(program)(W, X, B)
    frozen = sx.freeze(program, dict(zip(keys, (W, B))))
    run = sx.compile(frozen)
    assert str(run) == "Executable('layer', (f32[5,70]) -> (f32[5,90]), target='cpu')"
    np.testing.assert_allclose(run(X), wanted, rtol=1e-5)
    assert len(program.parameter_shapes) == 3, "the program stays as it is"


def test_one_after_another() -> None:
    once = sx.freeze(layer(), {"w": W})
    twice = sx.freeze(once, {"x": X})
    np.testing.assert_allclose(sx.compile(twice)(B), sx.compile(layer())(W, X, B), rtol=1e-5)


TYPES = """
func.func public @main(%a: tensor<2xbf16>, %t: !stablehlo.token, %b: tensor<i1>, %c: tensor<complex<f32>>,
                       %d: tensor<0x3xi4>, %e: tensor<f32>)
    -> (tensor<2xbf16>, tensor<i1>, tensor<complex<f32>>, tensor<0x3xi4>, tensor<f32>, !stablehlo.token) {
  return %a, %b, %c, %d, %e, %t
    : tensor<2xbf16>, tensor<i1>, tensor<complex<f32>>, tensor<0x3xi4>, tensor<f32>, !stablehlo.token
}
"""


def test_element_types_and_a_token() -> None:
    values = {
        "arg0": np.array([0.5, 3], ml_dtypes.bfloat16), "arg1": np.True_, 2: np.complex64(1 + 2j),
        3: np.zeros((0, 3), ml_dtypes.int4),
    }  # fmt: skip
    run = sx.compile(sx.freeze(TYPES, values))
    results = run(np.float32(7))
    for made, wanted in zip(results, [*values.values(), np.float32(7)], strict=True):
        assert made.dtype == wanted.dtype
        np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        ({"v": W}, "no parameter 'v': it has w, x, c"),
        ({3: W}, "no parameter 3"),
        ({-1: W}, "no parameter -1"),
        ({"w": W.T}, r"the parameter w is f32\[70,90\], and the constant an array float32\[90, 70\]"),
        ({"c": B.astype("f8")}, "float64"),
        ({"c": B, 2: B}, "frozen twice"),
    ],
)
def test_errors(constants: dict[str | int, Any], message: str) -> None:
    with pytest.raises(sx.ShapeError, match=message):
        sx.freeze(layer(), constants)


def test_donated_parameters_cannot_be_constant() -> None:
    b = sx.XlaBuilder("step")
    state = b.parameter(0, sx.f32[2], "state")
    b.set_up_alias((), 0)
    with pytest.raises(sx.ShapeError, match="state is donated"):
        sx.freeze(b.build(state + 1.0), {"state": np.zeros(2, np.float32)})


@pytest.mark.parametrize("form", ["npz", "safetensors"])
def test_constants_of_a_file(form: str, tmp_path: Any) -> None:
    text, arrays, made = tmp_path / "layer.mlir", tmp_path / f"weights.{form}", tmp_path / "layer.sxe"
    text.write_text(layer().text(locations=True))
    if form == "npz":
        np.savez(arrays, w=W, c=B)
    else:
        pytest.importorskip("safetensors")
        from safetensors.numpy import save_file

        save_file({"w": W, "c": B}, arrays)
    assert main([str(text), "-o", str(made), "--constants", str(arrays)]) == 0
    np.testing.assert_allclose(sx.load_executable(made)(X), sx.compile(layer())(W, X, B), rtol=1e-5)


@pytest.mark.parametrize(
    ("header", "body"),
    [
        ({"w": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 8]}}, 8),
        ({"w": {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]}}, 8),
        ({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, 8),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [8, 0]}}, 8),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, 4),
        ({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, 12),
        ({"w": {"dtype": "F32", "shape": [2]}}, 8),
        ({"w": {"dtype": "F4", "shape": [2], "data_offsets": [0, 8]}}, 8),
        ([], 0),
        (2**62, 0),
        (None, 0),
    ],
)
def test_damaged_files_of_constants(header: Any, body: int, tmp_path: Path) -> None:
    """The last two: a header that is longer than the file, and an empty file."""
    path = tmp_path / "weights.safetensors"
    text = b"{}" if isinstance(header, int) else json.dumps(header).encode()
    length = header if isinstance(header, int) else len(text)
    path.write_bytes(b"" if header is None else length.to_bytes(8, "little") + text + bytes(body))
    with pytest.raises(sx.ExecutionError, match=r"weights\.safetensors"):
        read_constants(path)


def test_a_file_of_constants_that_is_none(tmp_path: Any, capsys: Any) -> None:
    text, arrays = tmp_path / "layer.mlir", tmp_path / "weights.safetensors"
    text.write_text(layer().text())
    arrays.write_bytes(b"no tensors")
    assert main([str(text), "-o", str(tmp_path / "layer.sxe"), "--constants", str(arrays)]) == 1
    assert "cannot be read as a .safetensors file" in capsys.readouterr().err
