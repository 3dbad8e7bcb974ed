"""Random trees of concatenations, slices and reversals. Oracle: numpy, exactly.

Catches slices of the wrong piece, and concatenations that are merged although something else reads them.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import stablexla as sx


class Tree:
    """The same operations on arrays of numpy and in a builder."""

    def __init__(self, seed: int) -> None:
        self.random, self.b = random.Random(seed), sx.XlaBuilder("tree")
        self.given = [np.random.default_rng([seed, n]).integers(0, 99, (4, 5)).astype(np.int32) for n in range(2)]
        self.made = [(self.b.parameter(n, sx.s32[4, 5]), array) for n, array in enumerate(self.given)]

    def grow(self) -> None:
        x, array = self.random.choice(self.made[-3:])
        dim = self.random.randrange(2)
        kind = self.random.choice(["slice", "slice", "join", "join", "join", "reverse"])
        if kind == "reverse":
            self.made.append((sx.rev(x, [dim]), np.flip(array, dim)))
        elif kind == "slice":
            bounds = [sorted(self.random.sample(range(n + 1), 2)) for n in array.shape]
            starts, limits, strides = [b[0] for b in bounds], [b[1] for b in bounds], [self.random.choice([1, 1, 2]), 1]
            part = array[starts[0] : limits[0] : strides[0], starts[1] : limits[1]]
            self.made.append((sx.slice(x, starts, limits, strides), part))
        else:
            other = 1 - dim
            fitting = [each for each in self.made if each[1].shape[other] == array.shape[other]]
            pieces = [self.random.choice(fitting) for _ in range(self.random.randint(0, 2))] + [(x, array)]
            self.random.shuffle(pieces)
            made = sx.concatenate([piece for piece, _ in pieces], dim)
            self.made.append((made, np.concatenate([piece for _, piece in pieces], dim)))


@pytest.mark.parametrize("seed", range(24))
def test_random_trees(seed: int) -> None:
    tree = Tree(seed)
    for _ in range(10):
        tree.grow()
    results = tree.made[-1:] if seed % 2 else tree.made[-3:]
    made = sx.compile(tree.b.build(sx.tuple([x for x, _ in results]))).execute(tree.given)
    for value, (_, wanted) in zip(made, results, strict=True):
        np.testing.assert_array_equal(value, wanted)


def test_reflection_is_one_concatenation_a_dimension() -> None:
    b = sx.XlaBuilder("reflect")
    made = b.parameter(0, sx.f32[6, 7])
    for dim in range(2):
        for at_end in (False, True):
            size = made.shape.dimensions[dim]
            starts, limits = [0, 0], list(made.shape.dimensions)
            starts[dim], limits[dim] = (size - 3, size - 1) if at_end else (1, 3)
            edge = sx.rev(sx.slice(made, starts, limits, [1, 1]), [dim])
            made = sx.concatenate([made, edge] if at_end else [edge, made], dim)
    executable = sx.compile(b.build(made))
    assert executable.ir("stablehlo").count("stablehlo.concatenate") == 2
    array = np.arange(42, dtype=np.float32).reshape(6, 7)
    np.testing.assert_array_equal(executable(array), np.pad(array, 2, mode="reflect"))
