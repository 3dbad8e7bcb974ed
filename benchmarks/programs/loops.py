"""A loop of many short steps, where what lies between kernels counts."""

import numpy as np

import stablexla as sx
from benchmarks.programs.registry import Array, add

STEPS = 1000


def recurrence(x: sx.XlaOp, weights: sx.XlaOp) -> sx.XlaOp:
    """x = tanh(x @ weights), many times."""

    def step(state: sx.XlaOp) -> sx.XlaOp:
        number, value, w = state
        return sx.tuple((number + 1, sx.tanh(value @ w), w))

    return sx.while_(lambda s: s[0] < STEPS, step, sx.tuple((x.builder.constant(0), x, weights / 8.0)))[1]


def recurrence_in_numpy(x: Array, weights: Array) -> Array:
    weights = weights / 8
    for _ in range(STEPS):
        x = np.tanh(x @ weights)
    return x


add(
    "loop-1000",
    "1000 times tanh of an 8x32 by 32x32 product",
    [sx.f32[8, 32], sx.f32[32, 32]],
    recurrence,
    numpy=recurrence_in_numpy,
    tolerance=1e-4,
)
