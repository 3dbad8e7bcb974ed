"""A hundred programs of one to five operations on small arrays, as those make them who work operation by operation.

They are drawn by a generator with a seed: every run has the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any

import numpy as np

import stablexla as sx
from benchmarks.programs.convolution import LAST
from benchmarks.programs.indexing import ROWS
from benchmarks.programs.registry import Build, add
from benchmarks.programs.rows import softmax
from benchmarks.programs.window import cumulative

SEED, OF_EACH, MOST_OPERATIONS = 19, 10, 5
MOST_ELEMENTS = {1: 64, 2: 32, 3: 12, 4: 6}
"""Along a dimension, by rank."""
UNARY = (sx.abs, sx.exp, sx.floor, sx.logistic, sx.neg, sx.rsqrt, sx.sin, sx.tanh)
BINARY = (sx.add, sx.div, sx.max, sx.mul, sx.sub)

Drawn = tuple[Sequence[sx.Shape], Build, int]
"""Shapes of the parameters, the first operations, and their number."""


def one_of(rng: np.random.Generator, choices: Sequence[Any]) -> Any:
    return choices[int(rng.integers(len(choices)))]


def extents(rng: np.random.Generator, count: int, rank: int) -> list[int]:
    """Draw sizes of dimensions of arrays of a rank."""
    return [int(n) for n in rng.integers(2, MOST_ELEMENTS[rank], count, endpoint=True)]


def array(rng: np.random.Generator, *ranks: int) -> sx.Shape:
    """Draw a shape of one of the ranks."""
    rank = one_of(rng, ranks)
    return sx.f32[tuple(extents(rng, rank, rank))]


def elementwise(rng: np.random.Generator) -> Drawn:
    shape = array(rng, 1, 2, 3)
    return [shape, shape], one_of(rng, BINARY), 1


def broadcast(rng: np.random.Generator) -> Drawn:
    shape = array(rng, 2, 3)
    dimension, function = int(rng.integers(shape.rank)), one_of(rng, BINARY)
    row = sx.f32[shape.dimensions[dimension]]
    return [shape, row], partial(function, broadcast_dimensions=(dimension,)), 2


def dot(rng: np.random.Generator) -> Drawn:
    m, k, n = extents(rng, 3, 2)
    return [sx.f32[m, k], sx.f32[k, n]], sx.dot, 1


def reduction(rng: np.random.Generator) -> Drawn:
    shape = array(rng, 1, 2, 3)
    axis, (function, start) = int(rng.integers(shape.rank)), one_of(rng, ((sx.add, 0.0), (sx.max, -np.inf)))
    return [shape], lambda x: sx.reduce(x, x.builder.constant(start, "f32"), function, (axis,)), 1


def transpose(rng: np.random.Generator) -> Drawn:
    shape = array(rng, 2, 3, 4)
    order = [int(n) for n in rng.permutation(shape.rank)]
    return [shape], lambda x: sx.transpose(x, order), 1


def gather(rng: np.random.Generator) -> Drawn:
    rows, columns, count = extents(rng, 3, 2)
    shapes = [sx.f32[rows, columns], sx.s32[count]]
    return shapes, lambda x, i: sx.gather(x, i, dimension_numbers=ROWS, slice_sizes=(1, columns)), 1


def convolution(rng: np.random.Generator) -> Drawn:
    height, width, inputs, outputs = extents(rng, 4, 3)
    window, stride = one_of(rng, (1, 3, 5)), one_of(rng, (1, 2))
    shapes = [sx.f32[1, height, width, inputs], sx.f32[window, window, inputs, outputs]]
    return shapes, lambda x, w: sx.conv_with_general_dimensions(x, w, (stride, stride), "SAME", LAST), 1


def sort(rng: np.random.Generator) -> Drawn:
    shape = array(rng, 1, 2)
    axis = int(rng.integers(shape.rank))
    return [shape], lambda x: sx.sort(x, sx.lt, axis), 1


def softmax_of_rows(rng: np.random.Generator) -> Drawn:
    return [array(rng, 2)], softmax, 5


def cumsum(rng: np.random.Generator) -> Drawn:
    shape = array(rng, 1, 2)
    axis = int(rng.integers(shape.rank))
    return [shape], lambda x: cumulative(x, axis), 1


FAMILIES: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "elementwise": elementwise,
    "broadcast": broadcast,
    "dot": dot,
    "reduce": reduction,
    "transpose": transpose,
    "gather": gather,
    "convolution": convolution,
    "sort": sort,
    "softmax": softmax_of_rows,
    "cumsum": cumsum,
}


def enter(family: str, number: int, rng: np.random.Generator) -> None:
    """Draw a program of a family: its operations, and elementwise functions of their result."""
    shapes, first, count = FAMILIES[family](rng)
    after = int(rng.integers(MOST_OPERATIONS - count, endpoint=True))
    functions = [UNARY[n] for n in rng.choice(len(UNARY), after, replace=False)]

    def build(*operands: sx.XlaOp) -> sx.XlaOp:
        return reduce(lambda x, function: function(x), functions, first(*operands))

    names = ", ".join([f"{family} of {' and '.join(map(str, shapes))}", *(f.__name__ for f in functions)])
    add(f"small-{family}-{number}", names, shapes, build, family=f"small {family}", group="compile")


rng = np.random.default_rng(SEED)
for number in range(OF_EACH):
    for family in FAMILIES:
        enter(family, number, rng)
