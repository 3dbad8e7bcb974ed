"""argmax and argmin by blocks. Oracle: numpy, whose NaN and ties are ours: first NaN, else first of the best."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.cpu.reduction.arg_search import BLOCK, BLOCKS_OF_PART, UNROLL

# Elements of a vector of f32 on a machine with 256 bits; the shapes lie around multiples of blocks and parts.
WIDTH = 8
SHAPES = [(3, 64), (5, 101), (2, BLOCK() * WIDTH + 1), (4, UNROLL * WIDTH)]
SHAPES += [(1, 2 * BLOCK() * WIDTH * BLOCKS_OF_PART() + 19)]


def best(x: np.ndarray, *, largest: bool) -> np.ndarray:
    """The index that stablexla finds in each row, by the comparator that JAX writes."""
    dtype = {"f": "f", "i": "s", "u": "u"}[x.dtype.kind] + str(8 * x.dtype.itemsize)
    order = "GT" if largest else "LT"
    kind = {"f": "FLOAT", "s": "SIGNED", "u": "UNSIGNED"}[dtype[0]]
    if dtype[0] == "f":
        start = "0xFF800000" if largest else "0x7F800000"
        start = start if dtype == "f32" else start.replace("800000", "F0000000000000")
    else:
        info = np.iinfo(x.dtype)
        start = str(info.min if largest else info.max)
    element = dtype if dtype[0] == "f" else dtype.replace("s", "i").replace("u", "ui")
    (rows, columns) = x.shape
    t, s = f"tensor<{rows}x{columns}x{element}>", f"tensor<{rows}x{columns}xi32>"
    scalar, flag = f"tensor<{element}>", "tensor<i1>"
    text = f"""
    func.func public @main(%x: {t}) -> tensor<{rows}xi32> {{
      %i = stablehlo.iota dim = 1 : {s}
      %worst = stablehlo.constant dense<{start}> : {scalar}
      %zero = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.reduce(%x init: %worst), (%i init: %zero) across dimensions = [1]
        : ({t}, {s}, {scalar}, tensor<i32>) -> (tensor<{rows}x{element}>, tensor<{rows}xi32>)
        reducer(%a: {scalar}, %b: {scalar}) (%m: tensor<i32>, %n: tensor<i32>) {{
          %0 = stablehlo.compare {order}, %a, %b, {kind} : ({scalar}, {scalar}) -> {flag}
          %1 = stablehlo.compare NE, %a, %a, {kind} : ({scalar}, {scalar}) -> {flag}
          %2 = stablehlo.or %0, %1 : {flag}
          %3 = stablehlo.compare EQ, %a, %b, {kind} : ({scalar}, {scalar}) -> {flag}
          %4 = stablehlo.compare LT, %m, %n, SIGNED : (tensor<i32>, tensor<i32>) -> {flag}
          %5 = stablehlo.and %3, %4 : {flag}
          %6 = stablehlo.or %2, %5 : {flag}
          %7 = stablehlo.select %2, %a, %b : {flag}, {scalar}
          %8 = stablehlo.select %6, %m, %n : {flag}, tensor<i32>
          stablehlo.return %7, %8 : {scalar}, tensor<i32>
        }}
      return %r#1 : tensor<{rows}xi32>
    }}"""
    found: np.ndarray = sx.compile(text)(x)
    return found


@pytest.mark.parametrize("largest", [True, False], ids=["max", "min"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_floats(shape: tuple[int, int], largest: bool) -> None:
    rng = np.random.default_rng(0)
    wanted = np.argmax if largest else np.argmin
    x = rng.standard_normal(shape, np.float32)
    np.testing.assert_array_equal(best(x, largest=largest), wanted(x, 1))
    ties = rng.integers(-2, 3, shape).astype(np.float32) * np.float32(0.0 if shape[0] == 3 else 1.0)
    np.testing.assert_array_equal(best(ties, largest=largest), wanted(ties, 1))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("shape", SHAPES[1:4], ids=str)
def test_special_values(shape: tuple[int, int], value: float) -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape, np.float32)
    x[:, rng.integers(0, shape[1], 5)] = value
    np.testing.assert_array_equal(best(x, largest=True), x.argmax(1))
    np.testing.assert_array_equal(best(x, largest=False), x.argmin(1))
    np.testing.assert_array_equal(best(np.full(shape, value, np.float32), largest=True), np.zeros(shape[0], np.int32))


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.int64, np.uint32])
def test_other_elements(dtype: type) -> None:
    x: np.ndarray = np.random.default_rng(0).integers(0, 50, (3, 2001)).astype(dtype)
    np.testing.assert_array_equal(best(x, largest=True), x.argmax(1))
    np.testing.assert_array_equal(best(x, largest=False), x.argmin(1))
