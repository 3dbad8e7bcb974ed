"""A loop of many short steps, where what lies between kernels counts."""

import numpy as np

import stablexla as sx
from benchmarks.programs.registry import Array, add

STEPS = 1000


def recurrence(x: sx.XlaOp, weights: sx.XlaOp) -> sx.XlaOp:
    """y = tanh(y @ weights + x), many times."""

    def step(state: sx.XlaOp) -> sx.XlaOp:
        number, y, start, w = state
        return sx.tuple((number + 1, sx.tanh(y @ w + start), start, w))

    first = sx.tuple((x.builder.constant(0), x, x, weights / 8.0))
    return sx.while_(lambda state: state[0] < STEPS, step, first)[1]


def recurrence_in_numpy(x: Array, weights: Array) -> Array:
    y, weights = x, weights / 8
    for _ in range(STEPS):
        y = np.tanh(y @ weights + x)
    return y


add(
    "loop-1000",
    "1000 times tanh of an (8,32) by (32,32) product and a sum",
    [sx.f32[8, 32], sx.f32[32, 32]],
    recurrence,
    numpy=recurrence_in_numpy,
)
