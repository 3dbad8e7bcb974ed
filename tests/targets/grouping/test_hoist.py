"""Products of a loop's slices are computed before it: which loops and which products, and that values stay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx


def sliced(x: sx.XlaOp, number: sx.XlaOp) -> sx.XlaOp:
    """A round's matrix."""
    zero = x.builder.constant(0)
    _, rows, inner = x.shape.dimensions
    return sx.reshape(sx.dynamic_slice(x, (number, zero, zero), (1, rows, inner)), (rows, inner))


def scan(
    shape: tuple[int, int, int, int],
    element: str = "f32",
    first: int = 0,
    take: Callable[[sx.XlaOp], sx.XlaOp] = lambda number: number,
    go: Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp] | None = None,
    weights: Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp] = lambda w, sums: w,
) -> sx.XlaComputation:
    """The sum of all products of slices and weights, halved in each round."""
    rounds, rows, inner, columns = shape
    b = sx.XlaBuilder("scan")
    x = b.parameter(0, sx.Shape(element, (rounds, rows, inner)))
    w = b.parameter(1, sx.Shape(element, (inner, columns)))
    start = sx.broadcast(b.constant(np.zeros((), sx.Shape(element, ()).element_type.dtype)), (rows, columns))

    def step(state: sx.XlaOp) -> sx.XlaOp:
        number, sums, x, w = state
        product = sliced(x, take(number)) @ weights(w, sums)
        return sx.tuple((number + 1, sums * 2 + product, x, w))

    def more(state: sx.XlaOp) -> sx.XlaOp:
        goes = state[0] < rounds
        return goes if go is None else goes & go(state[0], state[1])

    return b.build(sx.while_(more, step, sx.tuple((b.constant(first), start, x, w)))[1])


def drawn(shape: tuple[int, int, int, int], dtype: Any) -> list[Any]:
    """Small whole numbers, so that every order of a sum gives the same."""
    rounds, rows, inner, columns = shape
    rng = np.random.default_rng(1)
    return [rng.integers(-2, 3, s).astype(dtype) for s in ((rounds, rows, inner), (inner, columns))]


def in_numpy(x: Any, w: Any, numbers: range) -> Any:
    sums = np.zeros((x.shape[1], w.shape[1]), x.dtype)
    for number in numbers:
        sums = sums * 2 + x[number] @ w
    return sums


def is_hoisted(executable: sx.Executable) -> bool:
    before, loop, _ = executable.ir("kernels").partition("scf.while")
    return bool(loop) and "call @contraction" in before


@pytest.mark.parametrize("element", ["f32", "f64", "s32"])
@pytest.mark.parametrize("shape", [(12, 16, 32, 40), (9, 3, 5, 7), (20, 1, 33, 17), (11, 63, 1, 9), (13, 5, 20, 1)])
def test_values_are_those_of_the_loop(shape: tuple[int, int, int, int], element: str):
    dtype = sx.Shape(element, ()).element_type.dtype
    x, w = drawn(shape, dtype)
    executable = sx.compile(scan(shape, element))
    np.testing.assert_array_equal(executable(x, w), in_numpy(x, w, range(shape[0])))


SHAPE = (12, 16, 32, 40)


def test_a_product_of_few_rows_leaves_the_loop():
    assert is_hoisted(sx.compile(scan(SHAPE)))


def test_numbers_that_are_none_stay_in_their_rows():
    x, w = drawn(SHAPE, np.float32)
    x[5, 3, 1], x[7, 4, 2] = np.nan, np.inf
    with np.errstate(invalid="ignore"):
        wanted = in_numpy(x, w, range(SHAPE[0]))
    np.testing.assert_array_equal(sx.compile(scan(SHAPE))(x, w), wanted)


def stays(program: sx.XlaComputation, shape: tuple[int, int, int, int], numbers: range) -> None:
    executable = sx.compile(program)
    assert not is_hoisted(executable)
    x, w = drawn(shape, np.float32)
    np.testing.assert_array_equal(executable(x, w), in_numpy(x, w, numbers))


def test_a_product_of_many_rows_stays():
    shape = (9, 64, 8, 8)
    stays(scan(shape), shape, range(9))


def test_a_loop_that_may_stop_earlier_stays():
    program = scan(SHAPE, go=lambda number, sums: sx.reduce_all(sums, sums.builder.constant(0.0), sx.add) < 1e30)
    stays(program, SHAPE, range(12))


def test_a_loop_that_begins_later_stays():
    stays(scan(SHAPE, first=2), SHAPE, range(2, 12))


def test_slices_in_another_order_stay():
    stays(scan(SHAPE, take=lambda number: 11 - number), SHAPE, range(11, -1, -1))


def test_weights_that_change_stay():
    shape = (9, 8, 8, 8)
    program = scan(shape, weights=lambda w, sums: w + sums * 0)
    executable = sx.compile(program)
    assert not is_hoisted(executable)
    x, w = drawn(shape, np.float32)
    np.testing.assert_array_equal(executable(x, w), in_numpy(x, w, range(9)))
