"""Sums of many numbers in each kind of kernel on GPUs, emulated: off by 8 u log2(n) of their magnitudes at most.

All terms are equal, so that every addition of a running sum rounds to the same side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.gpu.emulation import load_threads, program

Array = np.ndarray[Any, np.dtype[Any]]
UNIT = 2.0**-24
TERM = np.float32(0.1)


def check(make: Any, arrays: list[Array], exact: Any, length: Any) -> None:
    load_threads()
    (found,) = sx.compile(program(make, *arrays), target=sx.targets.gpu(emulated=True)).execute(arrays)
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


@pytest.mark.parametrize("dim", [0, 1])
def test_complex_numbers_on_the_general_path(dim: int) -> None:
    """A running sum in memory was off by 650 units."""
    shape = (1 << 12, 3) if dim == 0 else (3, 1 << 12)
    x = np.full(shape, TERM)

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        total = sx.reduce(sx.complex(x, x), b.constant(np.complex64(0)), sx.add, (dim,))
        return [sx.real(total)]

    check(make, [x], x.astype(np.float64).sum(dim), 1 << 12)


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


def test_convolutions() -> None:
    """Windows of 64 x 256 numbers."""
    x, w = np.full((1, 1, 70, 256), TERM), np.full((1, 64, 256, 16), TERM)
    numbers = sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC")

    def make(b: sx.XlaBuilder, x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        return sx.conv_general_dilated(x, w, (1, 1), [(0, 0), (0, 0)], (1, 1), (1, 1), numbers)

    check(make, [x, w], np.full((1, 1, 7, 16), float(TERM) ** 2 * 64 * 256), 64 * 256)
