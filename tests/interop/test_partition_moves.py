"""How parts of arrays move between devices, done with numpy on all parts and compared with the whole array."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.stablehlo.partition.axes import (
    Axis,
    Sharding,
    are_independent,
    blocks,
    coordinates_of,
    count,
    fitting,
    groups_along,
    local_shape,
    pairs_between,
    positions,
    primes,
    split_axis,
)
from stablexla.targets.stablehlo.partition.gspmd import sharding_of
from stablexla.targets.stablehlo.partition.local import reshaped
from stablexla.targets.stablehlo.partition.moves import Exchange, Gather, Move, Permute, Slice, moves

DEVICES = 12
ARRAY = np.arange(24 * 12).reshape(24, 12)


def mesh(sizes: tuple[int, ...], order: list[int] | None = None) -> list[Axis]:
    columns = coordinates_of(sizes, order or list(range(DEVICES)))
    return [part for i, (n, c) in enumerate(zip(sizes, columns, strict=True)) for part in split_axis(f"a{i}", n, c)]


AXES = mesh((2, 6))
OTHERS = mesh((3, 4), [5, 3, 1, 0, 2, 4, 11, 10, 9, 8, 7, 6])


def parts_of(array: np.ndarray, sharding: Sharding) -> list[np.ndarray]:
    ranges = blocks(array.shape, sharding, DEVICES)
    return [array[tuple(slice(low, high) for low, high in each)] for each in ranges]


def moved(parts: list[np.ndarray], move: Move) -> list[np.ndarray]:
    """What the devices have after a step."""
    result = list(parts)
    match move:
        case Slice(added):
            for d in range(DEVICES):
                sizes = local_shape(parts[d].shape, added)
                starts = [positions(axes, DEVICES)[d] * n for axes, n in zip(added, sizes, strict=True)]
                result[d] = parts[d][tuple(slice(s, s + n) for s, n in zip(starts, sizes, strict=True))]
        case Gather(dimension, groups):
            for group in groups:
                for d in group:
                    result[d] = np.concatenate([parts[member] for member in group], dimension)
        case Exchange(gathered, cut, groups):
            for group in groups:
                for i, d in enumerate(group):
                    pieces = [np.split(parts[member], len(group), cut)[i] for member in group]
                    result[d] = np.concatenate(pieces, gathered)
        case Permute(pairs):
            assert sorted(source for source, _ in pairs) == list(range(DEVICES))
            for source, target in pairs:
                result[target] = parts[source]
    return result


def shardings(axes: list[Axis]) -> list[Sharding]:
    """Every way to cut two dimensions along some of the axes."""
    found = set()
    for places in product((None, 0, 1), repeat=len(axes)):
        for order in (axes, axes[::-1]):
            cut = tuple(tuple(a for a in order if places[axes.index(a)] == d) for d in (0, 1))
            found.add(fitting(ARRAY.shape, cut))
    return sorted(found, key=str)


@pytest.mark.parametrize("targets", [AXES, OTHERS], ids=["same mesh", "another mesh"])
def test_every_move(targets: list[Axis]) -> None:
    kinds = set()
    held = {sharding: parts_of(ARRAY, sharding) for sharding in {*shardings(AXES), *shardings(targets)}}
    for before, after in product(shardings(AXES), shardings(targets)):
        parts = held[before]
        for move in moves(before, after, (), DEVICES):
            kinds.add(type(move))
            parts = moved(parts, move)
        equal = [np.array_equal(part, wanted) for part, wanted in zip(parts, held[after], strict=True)]
        assert all(equal), (before, after)
    assert kinds == ({Slice, Gather, Exchange, Permute} if targets is AXES else {Slice, Gather, Permute})


def test_nothing_crosses_what_differs_between_devices() -> None:
    """Values in a manual computation differ along its axes: no group or pair leaves them."""
    manual, *free = AXES
    for before, after in product(shardings(free), shardings(free)):
        for move in moves(before, after, (manual,), DEVICES):
            for row in getattr(move, "groups", ()) or getattr(move, "pairs", ()):
                assert len({manual.coordinates[d] for d in row}) == 1


def test_groups() -> None:
    one, two, three = AXES
    assert groups_along((one,), AXES, DEVICES) == [(d, d + 6) for d in range(6)]
    assert groups_along((three, two), AXES, DEVICES)[0] == (0, 3, 1, 4, 2, 5)
    assert sorted(d for group in groups_along((two,), (), DEVICES) for d in group) == list(range(DEVICES))
    assert are_independent(AXES, DEVICES)
    assert not are_independent([*AXES, OTHERS[0]], DEVICES)
    assert pairs_between(((one,),), ((one,),), (), DEVICES) == [(d, d) for d in range(DEVICES)]


def test_axes_of_equal_coordinates_are_one() -> None:
    assert primes(12) == [2, 2, 3]
    assert mesh((2, 6)) == mesh((2, 2, 3))
    assert mesh((12,)) == mesh((2, 2, 3))
    assert fitting((6, 5), ((AXES[0], AXES[1]), (AXES[2],))) == ((AXES[0],), ())
    assert fitting((4, 4), ((AXES[0],), (AXES[0],))) == ((AXES[0],), ())


@pytest.mark.parametrize("after", [(12, 24), (2, 12, 12), (288,), (24, 3, 4), (6, 4, 12), (1, 24, 12, 1), (4, 6, 2, 6)])
def test_reshapes_move_nothing(after: tuple[int, ...]) -> None:
    for sharding in shardings(AXES):
        found = reshaped(ARRAY.shape, after, sharding, None)
        assert found is not None
        source, target = found
        wanted = parts_of(ARRAY.reshape(after), target)
        for part, each in zip(parts_of(ARRAY, source), wanted, strict=True):
            np.testing.assert_array_equal(part.reshape(each.shape), each)


@pytest.mark.parametrize(
    ("text", "counts", "third"),
    [
        ("{devices=[3,4]<=[12]}", (3, 4), ((0, 8), (9, 12))),
        ("{devices=[4,3]<=[3,4]T(1,0)}", (4, 3), ((18, 24), (0, 4))),
        ("{devices=[2,1,6]<=[12] last_tile_dim_replicate}", (2, 1), ((0, 12), (0, 12))),
        ("{devices=[12,1]11,10,9,8,7,6,5,4,3,2,1,0}", (12, 1), ((16, 18), (0, 12))),
        ("{replicated}", (1, 1), ((0, 24), (0, 12))),
        ("{maximal device=0}", (1, 1), ((0, 24), (0, 12))),
    ],
)
def test_texts_of_gspmd(text: str, counts: tuple[int, ...], third: object) -> None:
    sharding = sharding_of(text, ARRAY.shape, DEVICES)
    assert tuple(map(count, sharding)) == counts
    assert blocks(ARRAY.shape, sharding, DEVICES)[3] == third


UNREDUCED = "{devices=[2,1,6]<=[12] last_tile_dims={unreduced}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{devices=[1,2]0,1}", "one over 2 devices, and the program is compiled for 12"),
        ("{devices=[12]<=[12]}", "a number for each dimension"),
        ("{devices=[3,4]<=[6]}", "a device for each of its 12 tiles"),
        ("{devices=[2,6]0,1,2,3,4,5,6,7,8,9,10,10}", "a device for each of its 12 tiles"),
        ("{devices=[4,3]<=[3,4]T(1,2)}", r"T\(1,2\)"),
        ("{something}", "sharding"),
        (UNREDUCED, "sharding"),
    ],
)
def test_other_texts_are_refused(text: str, message: str) -> None:
    with pytest.raises(sx.UnsupportedError, match=message):
        sharding_of(text, ARRAY.shape, DEVICES)
