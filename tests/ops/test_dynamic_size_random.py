"""Random programs on arrays of sizes at run time, in integers, so that results are exact.

Oracle: the reference interpreter on the same program for plain arrays of the true sizes.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

import stablexla as sx
from tests.ops.bounded import check

Step = Callable[[list[sx.XlaOp]], sx.XlaOp]


def pick(rng: random.Random, values: list[sx.XlaOp]) -> tuple[int, int, int]:
    """A value that has a dimension, its place, and one of its dimensions."""
    at = rng.choice([i for i, v in enumerate(values) if v.shape.rank])
    rank = values[at].shape.rank
    return at, rank, rng.randrange(rank)


def random_step(rng: random.Random, values: list[sx.XlaOp]) -> Step:
    """An operation on some of the values, that can be written down again for other sizes."""
    at, rank, place = pick(rng, values)
    order = rng.sample(range(rank), rank)
    amounts = rng.randrange(3), rng.randrange(3), rng.randrange(2)
    number = rng.randrange(1, 4)

    def zero(x: sx.XlaOp) -> sx.XlaOp:
        return x.builder.constant(0)

    def config(x: sx.XlaOp) -> list[tuple[int, int, int]]:
        return [amounts if d == place else (0, 0, 0) for d in range(rank)]

    def cumulative(x: sx.XlaOp) -> sx.XlaOp:
        window = [2 if d == place else 1 for d in range(rank)]
        padding = [(1, 0) if d == place else (0, 0) for d in range(rank)]
        ones = [1] * rank
        return sx.reduce_window_with_general_padding(x, zero(x), sx.add, window, ones, ones, ones, padding)

    def every_other(x: sx.XlaOp) -> sx.XlaOp:
        return sx.slice_in_dim(x, 0, x.shape.dimensions[place], 2, place)

    def contracted(x: sx.XlaOp) -> sx.XlaOp:
        return sx.dot_general(x, x, sx.DotDimensionNumbers((place,), (place,)))

    def loop(x: sx.XlaOp) -> sx.XlaOp:
        start = sx.tuple((x.builder.constant(0), x))
        return sx.while_(lambda s: s[0] < number, lambda s: (s[0] + 1, sx.rev(s[1], (place,)) + s[1]), start)[1]

    def largest(x: sx.XlaOp) -> sx.XlaOp:
        return sx.reduce(x, x.builder.constant(-(2**31), "s32"), sx.max, (place,))

    def merged(x: sx.XlaOp) -> sx.XlaOp:
        return sx.collapse(x, (place, place + 1)) if place + 1 < rank else sx.reshape(x, (*x.shape.dimensions, 1))

    def selected(x: sx.XlaOp) -> sx.XlaOp:
        return sx.select(x > number, x, -x)

    one: list[Callable[[sx.XlaOp], sx.XlaOp]] = [
        lambda x: x * number - 1,
        lambda x: sx.transpose(x, order),
        lambda x: sx.rev(x, (place,)),
        lambda x: sx.reduce(x, x.builder.constant(number), sx.add, (place,)),
        lambda x: sx.concatenate((x, x * 2, -x), place),
        lambda x: sx.pad(x, x.builder.constant(number), config(x)),
        lambda x: sx.sort(x, lambda a, c: a < c, place, True),
        lambda x: sx.broadcast(x, (2,)) if rank < 4 else -x,
        cumulative,
        every_other,
        contracted if rank < 3 else selected,
        loop,
        largest,
        merged,
        selected,
    ]
    chosen = rng.choice(one)
    return lambda all_values: chosen(all_values[at])


def program(seed: int) -> tuple[list[Step], list[sx.Shape]]:
    """Steps that all can be built for these shapes."""
    rng = random.Random(seed)
    shapes = [sx.s32["<=6", 3], sx.s32["<=6", "<=4"]]
    b = sx.XlaBuilder("random")
    values = [b.parameter(i, s) for i, s in enumerate(shapes)]
    steps: list[Step] = []
    while len(steps) < 7:
        step = random_step(rng, values)
        try:
            made = step(values)
        except sx.UnsupportedError:
            continue
        if made.shape.size < 2000:
            values.append(made)
            steps.append(step)
    return steps, shapes


@pytest.mark.parametrize("seed", range(8))
def test_random_program(seed: int) -> None:
    steps, shapes = program(seed)

    def make(*parameters: sx.XlaOp) -> list[sx.XlaOp]:
        values = list(parameters)
        for step in steps:
            values.append(step(values))
        return values[len(parameters) :]

    rng = np.random.default_rng(seed)
    rows, columns = rng.integers(1, 7), rng.integers(1, 5)
    arrays = [rng.integers(-5, 6, (rows, 3)), rng.integers(-5, 6, (rows, columns))]
    check(make, shapes, *(a.astype(np.int32) for a in arrays), xla=False)
