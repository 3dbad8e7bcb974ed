"""AllReduce and ReduceScatter whose computations hold arrays: gathered, folded, and given out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.distributed.harness import build, check, numbered
from tests.distributed.model import Grid


def total(a: sx.XlaOp, c: sx.XlaOp) -> sx.XlaOp:
    return sx.reduce(sx.concatenate([sx.broadcast(a, (1,)), sx.broadcast(c, (1,))], 0), a * 0, sx.add, (0,))


@pytest.mark.parametrize(
    ("grid", "groups", "members"),
    [
        (Grid(2, 1), ((0, 1),), (0, 1)),
        (Grid(4, 1), ((0, 2), (1, 3)), (0, 2)),
        (Grid(2, 2), ((0, 1),), (0, 2)),
        (Grid(4, 1), ((2, 0, 3), (1,)), (0, 2, 3)),
    ],
    ids=["all", "pairs", "replicas of each partition", "groups of several sizes"],
)
def test_all_reduce(grid: Grid, groups: Any, members: tuple[int, ...]) -> None:
    x = numbered(grid, (2, 3))
    program = build(lambda b, x: sx.all_reduce(x, total, groups), [x[0]])
    results = check(program, grid, [[v] for v in x], against=[])
    np.testing.assert_array_equal(results[0][0], sum(x[d] for d in members))
    assert [r[0].tolist() for r in results] == [r[0].tolist() for r in plain(grid, groups, x)]


def plain(grid: Grid, groups: Any, x: list[np.ndarray]) -> list[list[np.ndarray]]:
    """The same sums by a computation on scalars, held against the oracles."""
    return check(build(lambda b, x: sx.all_reduce(x, sx.add, groups), [x[0]]), grid, [[v] for v in x])


def test_reduce_scatter() -> None:
    grid = Grid(2, 1)
    x = numbered(grid, (2, 4), np.complex64)
    results = check(build(lambda b, x: sx.reduce_scatter(x, total, 1, 2), [x[0]]), grid, [[v] for v in x], against=[])
    for device, (found,) in enumerate(results):
        np.testing.assert_array_equal(found, (x[0] + x[1])[:, 2 * device : 2 * device + 2])


def test_one_device_applies_nothing() -> None:
    x = np.arange(3, dtype=np.float32)
    program = build(lambda b, x: sx.all_reduce(x, total), [x])
    np.testing.assert_array_equal(sx.compile(program)(x), x)
