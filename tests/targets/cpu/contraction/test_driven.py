"""Packed products whose loops are the library's: which share an epilogue, and that each takes its own numbers."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import stablexla as sx
from tests.comparison import assert_same

Make = Callable[[sx.XlaOp, list[sx.XlaOp]], sx.XlaOp]
# Batches, rows, columns and steps of k: one block of k and several, columns that are whole panels and not,
# rhs packed before all items and by each of them.
PRODUCTS = [
    ((), 70, 320, 600),
    ((), 130, 256, 1100),
    ((2,), 96, 192, 700),
    ((2, 3), 60, 128, 600),
    ((), 1200, 64, 600),
]


class Program:
    """Products beside one another, each with an array of its shape, one of a row and a scalar beside it."""

    def __init__(self, element: str, products: list[tuple[tuple[int, ...], int, int, int]], make: Make) -> None:
        self.builder, self.arrays, roots = sx.XlaBuilder("products"), list[np.ndarray](), list[sx.XlaOp]()
        rng = np.random.default_rng(0)
        self.dtype = sx.element_type(element).dtype

        def given(*shape: int) -> sx.XlaOp:
            self.arrays.append(rng.normal(size=shape).astype(self.dtype))
            return self.builder.parameter(len(self.arrays) - 1, sx.Shape(element, shape))

        for batch, m, n, k in products:
            axes = range(len(batch))  # of rhs the other way round: they do not collapse
            numbers = sx.DotDimensionNumbers([len(batch) + 1], [len(batch)], axes, axes[::-1])
            product = sx.dot_general(given(*batch, m, k), given(*batch[::-1], k, n), numbers)
            roots.append(make(product, [given(*batch, m, n), given(n), given()]))
        self.computation = self.builder.build(sx.tuple(roots))

    def check(self, expected: Callable[..., np.ndarray], scale: float = 1e-5) -> sx.Executable:
        executable = sx.compile(self.computation)
        for number, made in enumerate(executable.execute(self.arrays)):
            x, y, *more = (a.astype(np.float64) for a in self.arrays[5 * number : 5 * number + 5])
            aligned = y.transpose(*range(y.ndim - 2)[::-1], y.ndim - 2, y.ndim - 1)
            assert_same(np.asarray(made), expected(x @ aligned, *more).astype(self.dtype), scale=scale)
        return executable


def called(executable: sx.Executable) -> tuple[int, int]:
    """How many epilogues there are, and how many kinds of loops."""
    text = executable.ir("buffers")
    epilogues, loops = (
        len(re.findall(rf"func\.func private @stablexla_{name}_\w+\(", text)) for name in ("epilogue", "gemm")
    )
    return epilogues, loops


def with_all(y: sx.XlaOp, more: list[sx.XlaOp]) -> sx.XlaOp:
    beside, row, scalar = more
    added = sx.add(sx.add(y, row, broadcast_dimensions=(y.shape.rank - 1,)), beside)
    return sx.max(added, sx.mul(y, scalar))


@pytest.mark.parametrize("element", ["f32", "f64"])
def test_products_of_all_forms(element: str) -> None:
    program = Program(element, PRODUCTS, with_all)
    program.check(lambda y, beside, row, scalar: np.maximum(y + row + beside, y * scalar))


def test_sizes_share_an_epilogue() -> None:
    """Those of as many axes, and with as many columns beyond whole panels; sums of several blocks of k are added."""
    products = [((), m, n, 300) for m, n in ((70, 320), (130, 256), (260, 640))]
    executable = Program("f32", products, with_all).check(
        lambda y, beside, row, scalar: np.maximum(y + row + beside, y * scalar)
    )
    assert called(executable)[0] == 1


def test_sums_alone_call_nothing() -> None:
    executable = Program("f32", PRODUCTS, lambda y, more: y).check(lambda y, *more: y)
    assert called(executable)[0] == 0
    assert called(executable)[1] > 0


def test_batches_of_three_axes_have_their_own_loops() -> None:
    """More axes than the library's loops have."""
    executable = Program("f32", [((2, 2, 2), 64, 128, 600)], with_all).check(
        lambda y, beside, row, scalar: np.maximum(y + row + beside, y * scalar)
    )
    assert called(executable) == (0, 0)
