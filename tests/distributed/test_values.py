"""Collectives over all shapes, grids and forms of groups, against the model.

XLA:CPU and the reference interpreter are asked as well, where they take the operation.
"""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from tests.distributed import model
from tests.distributed.harness import BOTH, each, numbered, run
from tests.distributed.model import Grid

GRIDS = [Grid(2), Grid(3), Grid(8), Grid(1, 2), Grid(1, 5), Grid(2, 2), Grid(3, 2), Grid(2, 4), Grid(4, 2)]


# ---- shapes ----------------------------------------------------------------------------------------------------------

SHAPES = [(1,), (7,), (2, 3), (3, 1, 2), (2, 1, 3, 1, 2, 2), (257,), (31, 33)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, ...]) -> None:
    """Every dimension is gathered, scattered, split and joined along."""
    grid, ranks = Grid(3), range(len(shape))
    x = numbered(grid, shape)
    big = [np.concatenate([a] * 3, axis=0) for a in x]

    def program(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
        made = [sx.all_reduce(x, sx.add), sx.collective_permute(x, ((1, 0),))]
        made += [sx.all_gather(x, i, 3) for i in ranks]
        made += [sx.all_to_all(y, 0, i, 3) for i in ranks]
        return [*made, sx.reduce_scatter(y, sx.add, 0, 3)]

    expected = [model.all_reduce(grid, x, np.add), model.collective_permute(grid, x, ((1, 0),))]
    expected += [model.all_gather(grid, x, i) for i in ranks]
    expected += [model.all_to_all(grid, big, 0, i, 3) for i in ranks]
    expected += [model.reduce_scatter(grid, big, np.add, 0)]
    run(program, grid, x, big, expected=expected, against=["xla"])


def test_splitting_along_every_dimension() -> None:
    grid = Grid(2)
    x = numbered(grid, (4, 2, 6))
    pairs = [(i, j) for i in range(3) for j in range(3)]
    run(
        lambda b, x: (
            [sx.all_to_all(x, i, j, 2) for i, j in pairs] + [sx.reduce_scatter(x, sx.add, i, 2) for i in range(3)]
        ),
        grid,
        x,
        expected=[model.all_to_all(grid, x, i, j, 2) for i, j in pairs]
        + [model.reduce_scatter(grid, x, np.add, i) for i in range(3)],
        against=["xla"],
    )


@pytest.mark.parametrize("name", ["s8", "f16", "f32", "c128"])
def test_short_rows(name: str) -> None:
    """Parts along a last dimension are many short runs of memory."""
    grid = Grid(4)
    dtype = sx.element_type(name).dtype
    x = numbered(grid, (1031, 12), np.int64)
    x = [(a % 11).astype(dtype) for a in x]
    y = [a[:1020].reshape(17, 60, 12) for a in x]

    def program(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
        made = [sx.all_gather(x, 1, 4), sx.all_gather(y, 1, 4), sx.all_to_all(x, 1, 0, 4), sx.all_to_all(y, 1, 2, 4)]
        return [*made, sx.reduce_scatter(x, sx.add, 1, 4), sx.reduce_scatter(y, sx.add, 2, 4)]

    expected = [
        model.all_gather(grid, x, 1),
        model.all_gather(grid, y, 1),
        model.all_to_all(grid, x, 1, 0, 4),
        model.all_to_all(grid, y, 1, 2, 4),
        model.reduce_scatter(grid, x, np.add, 1),
        model.reduce_scatter(grid, y, np.add, 2),
    ]
    run(program, grid, x, y, expected=expected, against=[])


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2, 3)], ids=str)
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    grid = Grid(2)
    x = numbered(grid, shape)
    whole = shape.index(0)
    along = [i for i in range(len(shape)) if i != whole]
    run(
        lambda b, x: (
            [sx.all_reduce(x, sx.add), sx.collective_permute(x, ((0, 1),)), sx.all_to_all(x, whole, whole, 2)]
            + [sx.all_gather(x, i, 2) for i in along]
        ),
        grid,
        x,
        expected=[x, x, x] + [model.all_gather(grid, x, i) for i in along],
        against=[],
    )


def test_scalars() -> None:
    grid = Grid(4)
    x = each(grid, lambda d: np.float32(d + 1))
    groups = ((0, 3), (2, 1))
    run(
        lambda b, x: [sx.all_reduce(x, sx.add), sx.all_reduce(x, sx.mul, groups), sx.collective_permute(x, ((2, 0),))],
        grid,
        x,
        expected=[
            model.all_reduce(grid, x, np.add),
            model.all_reduce(grid, x, np.multiply, groups),
            model.collective_permute(grid, x, ((2, 0),)),
        ],
        against=["xla"],
    )


@pytest.mark.parametrize("size", [1 << 14, (1 << 18) + 3], ids=str)
def test_big_arrays(size: int) -> None:
    """In many pieces, which the members share among them; the last piece is not whole."""
    grid = Grid(4)
    x = [np.random.default_rng(d).standard_normal(size).astype(np.float32) for d in range(4)]
    y = [a[: size // 4 * 4].reshape(4, -1) for a in x]

    def program(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
        made = [sx.all_reduce(x, sx.add), sx.all_gather(x, 0, 4), sx.collective_permute(x, ((0, 1), (1, 2), (2, 0)))]
        return [*made, sx.all_to_all(y, 0, 1, 4), sx.reduce_scatter(y, sx.add, 0, 4), sx.all_gather(y, 1, 4)]

    expected = [
        model.all_reduce(grid, x, np.add),
        model.all_gather(grid, x, 0),
        model.collective_permute(grid, x, ((0, 1), (1, 2), (2, 0))),
        model.all_to_all(grid, y, 0, 1, 4),
        model.reduce_scatter(grid, y, np.add, 0),
        model.all_gather(grid, y, 1),
    ]
    run(program, grid, x, y, expected=expected, against=[])


def test_arrays_that_no_cache_holds() -> None:
    """They are written past the caches; parts begin and end anywhere."""
    grid = Grid(3)
    x = [np.random.default_rng(d).standard_normal((3, (1 << 18) + 5)).astype(np.float32) for d in range(3)]
    y = [a.view(np.int8)[:, : (1 << 20) - 3].copy() for a in x]

    def program(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
        made = [sx.all_reduce(x, sx.add), sx.reduce_scatter(x, sx.add, 0, 3), sx.all_gather(y, 1, 3)]
        return [*made, sx.all_to_all(y, 0, 1, 3), sx.collective_permute(y, ((0, 1), (1, 2), (2, 0)))]

    expected = [
        model.all_reduce(grid, x, np.add),
        model.reduce_scatter(grid, x, np.add, 0),
        model.all_gather(grid, y, 1),
        model.all_to_all(grid, y, 0, 1, 3),
        model.collective_permute(grid, y, ((0, 1), (1, 2), (2, 0))),
    ]
    run(program, grid, x, y, expected=expected, against=[])


def test_several_operands() -> None:
    """Of several shapes, and of several types where nothing is computed."""
    grid = Grid(2)
    x, y = numbered(grid, (2, 3)), numbered(grid, (4, 2), np.float32)
    z = numbered(grid, (2, 2), np.int16)

    def program(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp, z: sx.XlaOp) -> list[sx.XlaOp]:
        made = [sx.all_reduce(sx.tuple((x, y)), sx.add), sx.all_gather(sx.tuple((x, z)), 0, 2)]
        made += [sx.reduce_scatter(sx.tuple((x, y)), sx.add, 0, 2), sx.multi_collective_permute((x, z), ((1, 0),))]
        return [part for parts in made for part in parts]

    expected = [model.all_reduce(grid, a, np.add) for a in (x, y)]
    expected += [model.all_gather(grid, a, 0) for a in (x, z)]
    expected += [model.reduce_scatter(grid, a, np.add, 0) for a in (x, y)]
    expected += [model.collective_permute(grid, a, ((1, 0),)) for a in (x, z)]
    run(program, grid, x, y, z, expected=expected, against=[])


# ---- grids and groups ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_grids(grid: Grid) -> None:
    """Across replicas, across partitions, across both and by flattened numbers, in order and in reverse."""
    r, p, n = grid.replicas, grid.partitions, grid.size
    x = numbered(grid, (n * r * p, 2))
    replicas, partitions, numbers = ([tuple(range(k))[::-1]] for k in (r, p, n))
    ring = [(i, (i + 1) % r) for i in range(r)]
    other = [(i, (i + 1) % p) for i in range(p)]

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        made = [b.replica_id(), b.partition_id()]
        made += [sx.all_gather(x, 0, r, replicas), sx.all_gather(x, 1, n, numbers, 1, True)]
        made += [sx.all_reduce(x, sx.add, replicas), sx.all_reduce(x, sx.add, numbers, 1, True)]
        made += [sx.all_reduce(x, sx.add, replicas, 1)]
        made += [sx.reduce_scatter(x, sx.add, 0, r, replicas), sx.reduce_scatter(x, sx.add, 0, n, numbers, 1, True)]
        made += [sx.all_to_all(x, 0, 1, r, replicas), sx.all_to_all(x, 0, 1, p, partitions, 1)]
        return [*made, sx.collective_permute(x, ring), sx.collective_permute(x, other, 1)]

    expected = [
        model.replica_id(grid),
        model.partition_id(grid),
        model.all_gather(grid, x, 0, replicas),
        model.all_gather(grid, x, 1, numbers, 1, True),
        model.all_reduce(grid, x, np.add, replicas),
        model.all_reduce(grid, x, np.add, numbers, 1, True),
        model.all_reduce(grid, x, np.add, replicas, 1),
        model.reduce_scatter(grid, x, np.add, 0, replicas),
        model.reduce_scatter(grid, x, np.add, 0, numbers, 1, True),
        model.all_to_all(grid, x, 0, 1, r, replicas),
        model.all_to_all(grid, x, 0, 1, p, partitions, 1),
        model.collective_permute(grid, x, ring),
        model.collective_permute(grid, x, other, 1),
    ]
    run(program, grid, x, expected=expected, against=["xla"])


@pytest.mark.parametrize("grid", [Grid(2, 2), Grid(2, 3), Grid(4, 2)], ids=str)
def test_across_replicas_and_partitions(grid: Grid) -> None:
    """A group of replicas with all partitions of each; the replicas of partition 0 come first."""
    groups = [(1, 0)] if grid.replicas == 2 else [(2, 0), (1, 3)]
    count = 2 * grid.partitions
    x = numbered(grid, (count, 2))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        made = [sx.all_gather(x, 1, count, groups, 1), sx.all_reduce(x, sx.add, groups, 1)]
        return [*made, sx.reduce_scatter(x, sx.add, 0, count, groups, 1)]

    expected = [
        model.all_gather(grid, x, 1, groups, 1),
        model.all_reduce(grid, x, np.add, groups, 1),
        model.reduce_scatter(grid, x, np.add, 0, groups, 1),
    ]
    run(program, grid, x, expected=expected, against=["interpreter"])
    difference = model.all_reduce(grid, x, np.subtract, groups, 1)
    run(lambda b, x: sx.all_reduce(x, lambda a, c: a - c, groups, 1), grid, x, expected=[difference], against=[])


@pytest.mark.parametrize("grid", [Grid(4), Grid(2, 2), Grid(1, 4)], ids=str)
def test_no_groups_are_one_of_all(grid: Grid) -> None:
    x = numbered(grid, (grid.size * grid.replicas, 2))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        made = [sx.all_gather(x, 0, grid.replicas), sx.all_reduce(x, sx.add), sx.all_reduce(x, sx.add, (), 1)]
        made += [sx.reduce_scatter(x, sx.add, 0, grid.replicas), sx.reduce_scatter(x, sx.add, 0, grid.size, (), 1)]
        return made

    expected = [
        model.all_gather(grid, x, 0),
        model.all_reduce(grid, x, np.add),
        model.all_reduce(grid, x, np.add, (), 1),
        model.reduce_scatter(grid, x, np.add, 0),
        model.reduce_scatter(grid, x, np.add, 0, (), 1),
    ]
    mixed = grid.replicas > 1 and grid.partitions > 1  # XLA:CPU has another order
    run(program, grid, x, expected=expected, against=[] if mixed else ["xla"])


@pytest.mark.parametrize(
    "groups",
    [((0, 1, 2), (3,)), ((3,), (1, 0, 2)), ((0,), (1,), (2,), (3,)), ((2, 1), (0,), (3,))],
    ids=str,
)
def test_groups_of_different_sizes(groups: tuple[tuple[int, ...], ...]) -> None:
    """all_reduce alone may have such: its shapes do not depend on the number of members."""
    grid = Grid(4)
    x = numbered(grid, (5,))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        return [sx.all_reduce(x, sx.add, groups), sx.all_reduce(x, lambda a, b: a - b, groups)]

    expected = [model.all_reduce(grid, x, np.add, groups), model.all_reduce(grid, x, np.subtract, groups)]
    run(program, grid, x, expected=expected, against=[])
    run(lambda b, x: sx.all_reduce(x, sx.add, groups), grid, x, expected=expected[:1], against=["xla"])


def test_groups_in_many_orders() -> None:
    grid = Grid(4)
    x = numbered(grid, (4, 3))
    forms = [
        ((0, 1, 2, 3),),
        ((3, 2, 1, 0),),
        ((1, 3, 0, 2),),
        ((0, 2), (3, 1)),
        ((1, 0), (2, 3)),
        ((2,), (0,), (3,), (1,)),
    ]

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        made = [sx.all_gather(x, 0, len(g[0]), g) for g in forms]
        made += [sx.all_to_all(x, 0, 1, len(g[0]), g) for g in forms]
        return made + [sx.reduce_scatter(x, sx.add, 0, len(g[0]), g) for g in forms]

    expected = [model.all_gather(grid, x, 0, g) for g in forms]
    expected += [model.all_to_all(grid, x, 0, 1, len(g[0]), g) for g in forms]
    expected += [model.reduce_scatter(grid, x, np.add, 0, g) for g in forms]
    run(program, grid, x, expected=expected, against=BOTH)


def test_pairs() -> None:
    """None, one, a ring, to itself, an exchange, and some that take no part."""
    grid = Grid(4)
    x = numbered(grid, (3,))
    forms = [(), ((2, 0),), ((0, 1), (1, 2), (2, 3), (3, 0)), ((1, 1), (0, 2)), ((0, 3), (3, 0)), ((3, 2), (2, 1))]
    run(
        lambda b, x: [sx.collective_permute(x, f) for f in forms],
        grid,
        x,
        expected=[model.collective_permute(grid, x, f) for f in forms],
        against=["xla"],
    )


@pytest.mark.parametrize(("grid", "channel"), [(Grid(4), None), (Grid(1, 4), 1), (Grid(4, 2), None)], ids=str)
def test_broadcasts(grid: Grid, channel: int | None) -> None:
    x = numbered(grid, (2, 3))
    forms = [((0, 1, 2, 3),), ((3, 1), (0, 2)), ((2, 0, 1),), ((1, 3),), ((2,),)]
    run(
        lambda b, x: [sx.collective_broadcast(x, f, channel) for f in forms],
        grid,
        x,
        expected=[model.collective_broadcast(grid, x, f, channel or 0) for f in forms],
        against=[],
    )
