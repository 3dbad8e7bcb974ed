"""Replica groups of collectives, resolved to numbers of devices.

A program runs on `replicas` x `partitions` devices; device `replica * partitions + partition` is one of them. StableHLO
has four interpretations of the numbers in a table of groups ("Process groups" of its specification).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from stablexla.dialects.lazy_dataclass import dataclass

REPLICAS, PARTITIONS = "mhlo.num_replicas", "mhlo.num_partitions"
"""Attributes of a module: numbers of replicas and of partitions; 1 where absent."""

Groups = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Grid:
    """The devices of a program: replicas x partitions."""

    replicas: int = 1
    partitions: int = 1

    @property
    def size(self) -> int:
        """Number of devices."""
        return self.replicas * self.partitions

    def device(self, replica: int, partition: int) -> int:
        """Return the number of a device."""
        return replica * self.partitions + partition


def grid_of(module: Any) -> Grid:
    """Read the grid of devices from a module of either MLIR."""
    attributes = module.operation.attributes
    replicas, partitions = (int(attributes[n].value) if n in attributes else 1 for n in (REPLICAS, PARTITIONS))
    return Grid(replicas, partitions)


class Mode(Enum):
    """Interpretation of the numbers in a table of groups."""

    CROSS_REPLICA = "cross_replica"
    CROSS_PARTITION = "cross_partition"
    CROSS_REPLICA_AND_PARTITION = "cross_replica_and_partition"
    FLATTENED_IDS = "flattened_ids"

    def grid_for(self, count: int, grid: Grid) -> Grid | None:
        """Return the grid like the given one for which so many numbers are all; None where there is none."""
        if self is Mode.CROSS_PARTITION:
            return Grid(grid.replicas, count)
        if self is Mode.FLATTENED_IDS:
            return Grid(count // grid.partitions, grid.partitions) if count % grid.partitions == 0 else None
        return Grid(count, grid.partitions)

    def limit(self, grid: Grid) -> int:
        """Return the exclusive upper bound of the numbers."""
        if self is Mode.FLATTENED_IDS:
            return grid.size
        return grid.partitions if self is Mode.CROSS_PARTITION else grid.replicas

    @property
    def counts(self) -> str:
        """The counted things, in words."""
        return {"FLATTENED_IDS": "devices", "CROSS_PARTITION": "partitions"}.get(self.name, "replicas")


def mode_of(channel: int, use_global_device_ids: bool | None) -> Mode:
    """Return an operation's interpretation of its groups.

    Args:
        channel: its channel's number, 0 without one.
        use_global_device_ids: as it is written there; None for operations without such a flag, which are those that
            move arrays only: all_to_all, collective_permute, collective_broadcast, and sends and receives.
    """
    if use_global_device_ids is None:
        return Mode.CROSS_PARTITION if channel > 0 else Mode.CROSS_REPLICA
    if channel <= 0:
        return Mode.CROSS_REPLICA
    return Mode.FLATTENED_IDS if use_global_device_ids else Mode.CROSS_REPLICA_AND_PARTITION


class BrokenRule(Exception):
    """A table that breaks a rule; `rule` is its number in the specification, `fits` the devices that it is for."""

    def __init__(self, rule: str, message: str, fits: Grid | None = None) -> None:
        super().__init__(message)
        self.rule, self.message, self.fits = rule, message, fits


@dataclass(frozen=True)
class GroupRules:
    """Numbers of the specification's rules on an operation's groups; "" for a rule that it does not have.

    Attributes:
        unique: no number occurs twice.
        complete: all numbers occur.
        in_range: no others occur.
        even: all groups have the same size.
    """

    unique: str
    complete: str
    in_range: str
    even: str = ""


def resolve_groups(table: Iterable[Sequence[int]], mode: Mode, grid: Grid, rules: GroupRules) -> Groups:
    """Resolve a table to groups of device numbers, each in its order.

    Args:
        table: a row for each group, filled up with -1; no rows stand for one group of all.

    Raises:
        BrokenRule: what is missing, too many or too much.

    >>> resolve_groups([[0, 1]], Mode.CROSS_REPLICA_AND_PARTITION, Grid(2, 2), GroupRules("C1", "C2", "C3"))
    ((0, 2, 1, 3),)
    """
    rows = [tuple(n for n in row if n != -1) for row in table]
    rows = [row for row in rows if row] or [tuple(range(mode.limit(grid)))]
    _check(rows, mode, grid, rules)
    return tuple(_devices(rows, mode, grid))


@dataclass(frozen=True)
class PairRules:
    """Numbers of the specification's rules on pairs (source, target).

    Attributes:
        two: each row has two numbers.
        sources, targets: no number occurs twice on that side.
        in_range: all numbers are within the bound of the mode.
    """

    two: str
    sources: str
    targets: str
    in_range: str


def resolve_pairs(table: Iterable[Sequence[int]], mode: Mode, grid: Grid, rules: PairRules) -> Groups:
    """Resolve pairs (source, target) to device numbers.

    Raises:
        BrokenRule: one that stands there twice, or is none.
    """
    rows = [tuple(row) for row in table]
    if any(len(row) != 2 for row in rows):
        raise BrokenRule(rules.two, "source_target_pairs must be pairs (source, target)")
    for side, name, rule in ((0, "source", rules.sources), (1, "target", rules.targets)):
        _check_once([row[side] for row in rows], rule, f"as a {name} in source_target_pairs")
    _check_range([n for row in rows for n in row], mode, grid, rules.in_range, "source_target_pairs")
    return tuple(_devices(rows, mode, grid))


def _check(rows: Sequence[Sequence[int]], mode: Mode, grid: Grid, rules: GroupRules) -> None:
    numbers = [n for row in rows for n in row]
    _check_once(numbers, rules.unique, "in replica_groups")
    fits = mode.grid_for(len(numbers), grid) if sorted(numbers) == [*range(len(numbers))] else None
    _check_range(numbers, mode, grid, rules.in_range, "replica_groups", fits)
    missing = sorted(set(range(mode.limit(grid))) - set(numbers))
    if rules.complete and missing:
        which = f"{', '.join(map(str, missing))} {'are' if len(missing) > 1 else 'is'} not there"
        every = f"all {mode.limit(grid)} {mode.counts}" if mode.limit(grid) > 1 else f"the one {mode.counts[:-1]}"
        raise BrokenRule(rules.complete, f"replica_groups must name {every} ({mode.value}), and {which}", fits)
    sizes = sorted({len(row) for row in rows})
    if rules.even and len(sizes) > 1:
        raise BrokenRule(
            rules.even, f"the groups must have one size, and there are groups of {sizes[0]} and {sizes[-1]}"
        )


def _check_once(numbers: Sequence[int], rule: str, where: str) -> None:
    twice = sorted({n for n in numbers if numbers.count(n) > 1})
    if twice:
        raise BrokenRule(rule, f"{twice[0]} stands twice {where}")


def _check_range(
    numbers: Sequence[int], mode: Mode, grid: Grid, rule: str, where: str, fits: Grid | None = None
) -> None:
    limit = mode.limit(grid)
    others = [n for n in numbers if not 0 <= n < limit]
    if others:
        there = f"there {'are' if limit > 1 else 'is'} {limit} ({mode.value})"
        raise BrokenRule(rule, f"{where} names {mode.counts[:-1]} {others[0]}, where {there}", fits)


def _devices(rows: Iterable[Sequence[int]], mode: Mode, grid: Grid) -> list[tuple[int, ...]]:
    every_replica, every_partition = range(grid.replicas), range(grid.partitions)
    match mode:
        case Mode.CROSS_REPLICA:
            return [tuple(grid.device(r, p) for r in row) for row in rows for p in every_partition]
        case Mode.CROSS_PARTITION:
            return [tuple(grid.device(r, p) for p in row) for row in rows for r in every_replica]
        case Mode.CROSS_REPLICA_AND_PARTITION:
            return [tuple(grid.device(r, p) for p in every_partition for r in row) for row in rows]
    return [tuple(row) for row in rows]


# ---- axes of a mesh --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Axis:
    """A mesh axis, or its sub-axis of `size`; the sub-axes major to it have `before` elements in all."""

    name: str
    before: int = 1
    size: int | None = None


def axis_groups(mesh: Mapping[str, int], axes: Sequence[Axis], devices: Sequence[int] = ()) -> Groups:
    """Return the groups of devices that differ only along the given axes of a mesh, in the order of the axes.

    Args:
        mesh: the sizes of its axes.
        devices: the mesh's devices in order, if it is not that of their numbers.

    Raises:
        BrokenRule: an axis, or a part of one, that the mesh does not have.

    >>> axis_groups({"x": 2, "y": 2}, [Axis("x")])
    ((0, 2), (1, 3))
    """
    parts: dict[str, list[int]] = {name: [size] for name, size in mesh.items()}
    for axis in axes:
        if axis.name not in mesh:
            raise BrokenRule("", f"the mesh has no axis {axis.name!r}: it has {', '.join(map(repr, mesh))}")
        for cut in (axis.before, axis.before * axis.size if axis.size is not None else mesh[axis.name]):
            _cut(parts[axis.name], cut, axis.name)
    extents = [size for sizes in parts.values() for size in sizes]
    places = {(name, prod(sizes[:i])): (i, size) for name, sizes in parts.items() for i, size in enumerate(sizes)}
    first = dict(zip(parts, np.cumsum([0, *map(len, parts.values())]).tolist(), strict=False))
    taken = [d for axis in axes for d in _places_of(axis, mesh, places, first)]
    others = [d for d in range(len(extents)) if d not in taken]
    numbers = np.array(devices if len(devices) else range(prod(extents))).reshape(extents)
    made = numbers.transpose([*others, *taken]).reshape(-1, prod(extents[d] for d in taken))
    return tuple(tuple(row) for row in made.tolist())


def _cut(sizes: list[int], at: int, name: str) -> None:
    """Split an axis's sub-axes so that one begins at product `at`."""
    before = 1
    for i, size in enumerate(sizes):
        if before == at or before * size == at:
            return
        if before * size > at:
            if at % before or size % (at // before):
                break
            sizes[i : i + 1] = [at // before, before * size // at]
            return
        before *= size
    raise BrokenRule("", f"axis {name!r} of {prod(sizes)} has no part that begins after {at}")


def _places_of(
    axis: Axis, mesh: Mapping[str, int], places: Mapping[tuple[str, int], tuple[int, int]], first: Mapping[str, int]
) -> list[int]:
    """Return the dimensions that make up an axis after all splits."""
    found, at = [], axis.before
    end = axis.before * (axis.size if axis.size is not None else mesh[axis.name])
    while at < end:
        place, size = places[axis.name, at]
        found.append(first[axis.name] + place)
        at *= size
    return found
