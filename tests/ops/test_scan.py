"""scan, with any computation. Oracles: numpy, the reference interpreter and XLA:CPU."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from tests.programs import run

X = np.random.default_rng(0).integers(-4, 5, (3, 4, 2)).astype(np.float32)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dimension", [0, 1, 2])
def test_running_sums(dimension: int, reverse: bool) -> None:
    def along(x: np.ndarray) -> np.ndarray:
        return np.flip(x, dimension) if reverse else x

    zero = np.zeros(np.delete(X.shape, dimension), np.float32)
    run(
        lambda b, v, z: sx.scan(v, z, lambda a, c: (a + c, a + c), dimension, is_reverse=reverse, is_associative=True),
        X,
        zero,
        expected=[along(along(X).cumsum(dimension)), X.sum(dimension)],
    )


def test_several_inputs_outputs_and_values() -> None:
    """Outputs of other shapes and types than the inputs, and values of any shape."""
    y = np.arange(4, dtype=np.int32)

    def step(row: sx.XlaOp, i: sx.XlaOp, largest: sx.XlaOp, count: sx.XlaOp) -> list[sx.XlaOp]:
        top = sx.max(row, largest)
        return [sx.eq(top, row), i * 2, sx.broadcast(i, (2,)), top, count + 1]

    def program(b: sx.XlaBuilder, x: sx.XlaOp, i: sx.XlaOp) -> sx.XlaOp:
        lowest = sx.broadcast(b.constant(np.float32(-9)), (3, 2))
        return sx.scan((x, sx.broadcast_in_dim(i, (3, 4), (1,))), (lowest, b.constant(5)), step, 1)

    tops = np.maximum.accumulate(X, 1)
    numbers = np.broadcast_to(y, (3, 4))
    spread = np.broadcast_to(numbers, (2, 3, 4)).transpose(0, 2, 1)
    run(program, X, y, expected=[tops == X, numbers * 2, spread, tops[:, -1], np.int32(9)])


def test_nothing_along_the_dimension() -> None:
    start = np.ones(4, np.float32)
    run(
        lambda b, v, z: sx.scan(v, z, lambda a, c: (a + c, a * c), 0),
        np.zeros((0, 4), np.float32),
        start,
        expected=[np.zeros((0, 4), np.float32), start],
    )


def test_without_inputs() -> None:
    start = np.array([1, 3], np.int32)
    run(
        lambda b, z: sx.scan((), z, lambda c: (c, c * 2), 1, 5),
        start,
        expected=[start[:, None] * 2 ** np.arange(5, dtype=np.int32), start * 32],
    )
    run(lambda b, z: sx.scan((), z, lambda c: c + 1, 0, scan_dimension_size=7), start, expected=[start + 7])


def test_without_values_that_are_carried() -> None:
    run(lambda b, v: sx.scan(v, (), lambda a: sx.neg(a), 1), X, expected=[-X])


def test_inside_of_a_loop() -> None:
    def body(state: sx.XlaOp) -> sx.XlaOp:
        count, x = state
        return sx.tuple((count + 1, sx.scan(x, x[0] * 0, lambda a, c: (a + c, a + c), 0)[0]))

    x = X[:, :, 0]
    wanted = x.cumsum(0).cumsum(0)
    run(
        lambda b, v: sx.while_(lambda s: s[0] < 2, body, sx.tuple((b.constant(0), v)))[1],
        x,
        expected=[wanted],
    )
