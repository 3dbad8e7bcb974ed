"""Sums of many numbers in each kind of kernel on GPUs, simulated: off by 8 u log2(n) of their magnitudes at most.

All terms are equal, so that every addition of a running sum rounds to the same side.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from tests.targets.gpu.programs import program
from tests.targets.gpu.simulation import run_simulated

Array = np.ndarray[Any, np.dtype[Any]]
UNIT = 2.0**-24
TERM = np.float32(0.1)


def check(make: Any, arrays: list[Array], exact: Any, length: Any) -> None:
    _, (found,) = run_simulated(program(make, *arrays), *arrays)
    off = np.abs(found.astype(np.float64) - exact)
    assert (off <= 8 * np.log2(length) * UNIT * exact).all(), float((off / exact).max() / UNIT)


@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((1 << 16,), (0,)),
        ((300, 1 << 10), (1,)),
        ((1 << 16, 4), (0,)),
        ((1 << 10, 256), (0,)),
        ((8, 4, 1 << 12), (0, 2)),
    ],
    ids=str,
)
def test_reductions(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    x = np.full(shape, TERM)
    exact = x.astype(np.float64).sum(dims)
    check(lambda b, x: sx.reduce(x, b.constant(0.0), sx.add, dims), [x], exact, x.size // exact.size)


@pytest.mark.parametrize(
    ("shape", "dims"),
    [((1 << 12, 3), (0,)), ((3, 1 << 12), (1,)), ((1 << 8, 3, 32), (0, 2)), ((1 << 7, 3, 100), (0, 2))],
    ids=str,
)
def test_complex_numbers_on_the_general_path(shape: tuple[int, ...], dims: tuple[int, ...]) -> None:
    """A running sum in memory was off by 650 units; one through two loops by 6,500."""
    x = np.full(shape, TERM)

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        total = sx.reduce(sx.complex(x, x), b.constant(np.complex64(0)), sx.add, dims)
        return [sx.real(total)]

    exact = x.astype(np.float64).sum(dims)
    check(make, [x], exact, x.size // exact.size)


@pytest.mark.parametrize(
    ("rows", "terms", "columns"),
    [(1, 1 << 14, 1), (4, 1 << 14, 4), (1, 1 << 13, 64), (20, 1 << 14, 20), (64, 1 << 12, 64)],
)
def test_products(rows: int, terms: int, columns: int) -> None:
    """One sum of 1,024 and more products was off by 230 units for 16,384 of them."""
    x, y = np.full((rows, terms), TERM), np.full((terms, columns), TERM)
    check(lambda b, x, y: sx.dot(x, y), [x, y], x.astype(np.float64) @ y, terms)


@pytest.mark.parametrize(("shape", "axis"), [((70, 1 << 10), 1), ((1 << 15, 4), 0)], ids=str)
def test_scans(shape: tuple[int, ...], axis: int) -> None:
    x = np.full(shape, TERM)
    window = [n if d == axis else 1 for d, n in enumerate(shape)]
    padding = [(n - 1, 0) for n in window]

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        return sx.reduce_window(x, b.constant(0.0), sx.add, window, [1] * len(shape), padding)

    check(make, [x], np.cumsum(x.astype(np.float64), axis), shape[axis])


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=["bf16", "f16"])
@pytest.mark.parametrize(("shape", "axis"), [((3, 1 << 10), 1), ((1 << 15,), 0), ((1 << 12, 3), 0)], ids=str)
def test_scans_of_narrow_numbers(shape: tuple[int, ...], axis: int, dtype: Any) -> None:
    """They add in f32: the last rounding is the only one of their own type, forwards and backwards."""
    x = np.full(shape, 2.0**-9, dtype)
    x.flat[:: shape[-1]] = 0.7
    for backwards in (False, True):
        window = [n if d == axis else 1 for d, n in enumerate(shape)]
        padding = [(0, n - 1) if backwards else (n - 1, 0) for n in window]

        def make(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            zero = b.constant(np.zeros((), dtype))
            return sx.reduce_window(x, zero, sx.add, window, [1] * len(shape), padding)  # noqa: B023

        _, (found,) = run_simulated(program(make, x), x)
        ordered = np.flip(x, axis) if backwards else x
        exact = np.cumsum(ordered.astype(np.float64), axis)
        exact = np.flip(exact, axis) if backwards else exact
        half = float(ml_dtypes.finfo(dtype).eps) / 2
        assert (np.abs(found.astype(np.float64) - exact) <= (half + 8 * 15 * UNIT) * exact).all()


def test_convolutions() -> None:
    """Windows of 64 x 256 numbers."""
    x, w = np.full((1, 1, 70, 256), TERM), np.full((1, 64, 256, 16), TERM)
    numbers = sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC")

    def make(b: sx.XlaBuilder, x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        return sx.conv_general_dilated(x, w, (1, 1), [(0, 0), (0, 0)], (1, 1), (1, 1), numbers)

    check(make, [x, w], np.full((1, 1, 7, 16), float(TERM) ** 2 * 64 * 256), 64 * 256)
