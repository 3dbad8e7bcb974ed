"""Shardings: the mesh axes along which an array's dimensions are cut, and so the part that each device holds.

An axis is represented by each device's coordinate along it, so that axes of different meshes can be compared.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import product
from math import prod
from typing import TypeAlias

from stablexla.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Axis:
    """A mesh axis, or a sub-axis of one.

    Attributes:
        size: how many coordinates there are.
        coordinates: of each device, by its number.
        name: how it is called in messages.
    """

    size: int
    coordinates: tuple[int, ...] = field(repr=False)
    name: str = field(default="", compare=False)


Axes: TypeAlias = tuple[Axis, ...]
Sharding: TypeAlias = tuple[Axes, ...]
"""For each dimension of an array the axes that it is cut along, major first; `()` where it is replicated."""

Partial: TypeAlias = frozenset[Axis]
"""Axes along which the array is the sum of what the devices hold."""
NOT_PARTIAL: Partial = frozenset()


def primes(number: int) -> list[int]:
    """Return the prime factors of a number in ascending order."""
    found, candidate = [], 2
    while number > 1:
        while number % candidate == 0:
            found.append(candidate)
            number //= candidate
        candidate += 1
    return found


def split_axis(name: str, size: int, coordinates: Sequence[int]) -> list[Axis]:
    """Split an axis into sub-axes of prime sizes, major first, so that its sub-axes are subsets of those."""
    made, rest = [], size
    for part in primes(size):
        rest //= part
        made.append(Axis(part, tuple(c // rest % part for c in coordinates), name))
    return made


def count(axes: Iterable[Axis]) -> int:
    """Return the number of parts into which these axes cut a dimension."""
    return prod(axis.size for axis in axes)


def positions(axes: Axes, devices: int) -> tuple[int, ...]:
    """Return for each device the number of its part of a dimension that is cut along these axes."""
    numbers = [0] * devices
    for axis in axes:
        numbers = [number * axis.size + axis.coordinates[device] for device, number in enumerate(numbers)]
    return tuple(numbers)


def axes_of(sharding: Sharding) -> set[Axis]:
    """Return all axes that an array is cut along."""
    return {axis for axes in sharding for axis in axes}


def in_order(axes: Iterable[Axis]) -> Axes:
    """Return axes in an order that is the same in every process."""
    return tuple(sorted(axes, key=lambda axis: (axis.name, axis.coordinates)))


def whole(rank: int) -> Sharding:
    """Return the fully replicated sharding."""
    return ((),) * rank


def local_shape(shape: Sequence[int], sharding: Sharding) -> list[int]:
    """Return the shape of one device's part."""
    return [size // count(axes) for size, axes in zip(shape, sharding, strict=True)]


def fitting(shape: Sequence[int], sharding: Sharding) -> Sharding:
    """Drop axes that do not divide their dimension evenly, or are used twice."""
    used: set[Axis] = set()
    dimensions = []
    for size, axes in zip(shape, sharding, strict=True):
        kept: list[Axis] = []
        for axis in axes:
            if axis in used or size % (count(kept) * axis.size):
                break
            used.add(axis)
            kept.append(axis)
        dimensions.append(tuple(kept))
    return tuple(dimensions)


def are_independent(axes: Iterable[Axis], devices: int) -> bool:
    """Whether each combination of coordinates occurs, and equally often."""
    axes = list(axes)
    found = Counter(tuple(axis.coordinates[d] for axis in axes) for d in range(devices))
    return len(found) == count(axes) and len(set(found.values())) == 1


def groups_along(axes: Axes, others: Iterable[Axis], devices: int) -> list[tuple[int, ...]]:
    """Return groups of devices that differ along these axes, not along the others, in the order of their positions."""
    fixed = [axis for axis in others if axis not in axes]
    classes: dict[tuple[int, ...], dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for device, position in enumerate(positions(axes, devices)):
        classes[tuple(axis.coordinates[device] for axis in fixed)][position].append(device)
    groups: list[tuple[int, ...]] = []
    for members in classes.values():
        groups += zip(*(members[i] for i in range(count(axes))), strict=True)
    return groups


def pairs_between(before: Sharding, after: Sharding, others: Iterable[Axis], devices: int) -> list[tuple[int, int]]:
    """Match each target device with a source that holds before what the target holds after; each is a source once."""
    fixed = tuple(others)
    held = list(zip(*(positions(axes, devices) for axes in (fixed, *before)), strict=True))
    wanted = list(zip(*(positions(axes, devices) for axes in (fixed, *after)), strict=True))
    free: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for device in range(devices):
        if held[device] != wanted[device]:
            free[held[device]].append(device)
    pairs = []
    for device in range(devices):
        pairs.append((device if held[device] == wanted[device] else free[wanted[device]].pop(0), device))
    return sorted(pairs)


def blocks(shape: Sequence[int], sharding: Sharding, devices: int) -> list[tuple[tuple[int, int], ...]]:
    """Return for each device the range of each dimension that it holds."""
    sizes = local_shape(shape, sharding)
    places = [positions(axes, devices) for axes in sharding]
    return [tuple((p[d] * n, p[d] * n + n) for p, n in zip(places, sizes, strict=True)) for d in range(devices)]


def coordinates_of(sizes: Sequence[int], device_ids: Sequence[int]) -> list[tuple[int, ...]]:
    """Return for each axis of a mesh the devices' coordinates; `device_ids` are the devices in row-major order."""
    columns = [[0] * len(device_ids) for _ in sizes]
    for place, device in zip(product(*map(range, sizes)), device_ids, strict=True):
        for column, coordinate in zip(columns, place, strict=True):
            column[device] = coordinate
    return [tuple(column) for column in columns]
