"""Resharding plans: the steps from one sharding to another, each a collective or a slice."""

from __future__ import annotations

from collections.abc import Iterable

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.stablehlo.partition.axes import (
    Axes,
    Axis,
    Sharding,
    are_independent,
    axes_of,
    count,
    groups_along,
    pairs_between,
    whole,
)


@dataclass(frozen=True)
class Slice:
    """Slice locally: each device keeps its part, in several dimensions at once."""

    added: Sharding


@dataclass(frozen=True)
class Gather:
    """All-gather a dimension in groups of devices."""

    dimension: int
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Exchange:
    """All-to-all: gather one dimension and cut another one, in the same groups."""

    gathered: int
    cut: int
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Permute:
    """Collective permute: pairs of source and target devices."""

    pairs: tuple[tuple[int, int], ...]


Move = Slice | Gather | Exchange | Permute


def moves(before: Sharding, after: Sharding, context: Iterable[Axis], devices: int) -> list[Move]:
    """Plan the steps from one sharding to another, for values that also differ along the axes of `context`."""
    context = tuple(context)
    if before == after:
        return []
    if not are_independent({*axes_of(before), *axes_of(after), *context}, devices):
        return [*_gathers(before, whole(len(before)), context, devices), Slice(after)]
    if all(count(b) == count(a) for b, a in zip(before, after, strict=True)):
        return [Permute(tuple(pairs_between(before, after, context, devices)))]
    made: list[Move] = []
    exchange = _exchange(before, after)
    if exchange is not None:
        source, target, axes = exchange
        made.append(Exchange(source, target, _groups(axes, before, context, devices)))
        moved = list(before)
        moved[source] = before[source][: len(before[source]) - len(axes)]
        moved[target] = before[target] + axes
        return made + moves(tuple(moved), after, context, devices)
    first = _addable(before, after)
    if any(first):
        made.append(Slice(first))
        before = tuple(b + added for b, added in zip(before, first, strict=True))
    common = tuple(_common(b, a) for b, a in zip(before, after, strict=True))
    made += _gathers(before, common, context, devices)
    rest = tuple(a[len(c) :] for c, a in zip(common, after, strict=True))
    if any(rest):
        made.append(Slice(rest))
    return made


def _common(one: Axes, other: Axes) -> Axes:
    length = 0
    while length < min(len(one), len(other)) and one[length] == other[length]:
        length += 1
    return one[:length]


def _exchange(before: Sharding, after: Sharding) -> tuple[int, int, Axes] | None:
    """Find two dimensions of which one loses the axes that the other one gains."""
    for source, (b, a) in enumerate(zip(before, after, strict=True)):
        lost = b[len(_common(b, a)) :]
        if not lost or len(a) > len(_common(b, a)):
            continue
        for target, (b2, a2) in enumerate(zip(before, after, strict=True)):
            if target != source and a2[: len(b2)] == b2 and a2[len(b2) : len(b2) + len(lost)] == lost:
                return source, target, lost
    return None


def _addable(before: Sharding, after: Sharding) -> Sharding:
    """Return the cuts along unused axes, which are sliced first so that less data is moved."""
    used = axes_of(before)
    added: list[Axes] = []
    for b, a in zip(before, after, strict=True):
        more = a[len(b) :] if a[: len(b)] == b else ()
        while more and used & set(more):
            more = more[:-1]
        used |= set(more)
        added.append(more)
    return tuple(added)


def _gathers(before: Sharding, after: Sharding, context: Axes, devices: int) -> list[Move]:
    made: list[Move] = []
    for dimension, (b, a) in enumerate(zip(before, after, strict=True)):
        if len(b) > len(a):
            made.append(Gather(dimension, _groups(b[len(a) :], before, context, devices)))
            before = (*before[:dimension], a, *before[dimension + 1 :])
    return made


def _groups(axes: Axes, sharding: Sharding, context: Axes, devices: int) -> tuple[tuple[int, ...], ...]:
    return tuple(groups_along(axes, {*axes_of(sharding), *context}, devices))
