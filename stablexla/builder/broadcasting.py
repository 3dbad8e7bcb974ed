"""XLA's broadcasting of two operands, on shapes only; the families emit `broadcast_in_dim` from the result.

Its rules, which errors name: (B1) operands of different ranks, neither a scalar, need broadcast_dimensions;
(B2) these have one entry for each dimension of the operand of lower rank; (B3) each is a dimension of the other
operand, and they increase strictly; (B4) corresponding sizes are equal, or one of them is 1; (B5) operands of one
rank take only the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise
from typing import Protocol

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.shapes import Shape


class Rule(Protocol):
    """The callback that raises an error; see `stablexla.builder.checking.Rules`."""

    operation: str

    def __call__(self, rule: str, holds: bool, summary: str, hint: str = "") -> None: ...


@dataclass(frozen=True)
class Broadcast:
    """The dimensions of the result, and for each operand the result dimension of each of its dimensions."""

    dimensions: tuple[int, ...]
    lhs: tuple[int, ...]
    rhs: tuple[int, ...]


def broadcast(rule: Rule, lhs: Shape, rhs: Shape, broadcast_dimensions: Sequence[int] = ()) -> Broadcast:
    """Compute the broadcast of `lhs` and `rhs`.

    >>> from stablexla.builder.checking import checking
    >>> broadcast(checking("add"), sx.f32[4], sx.f32[1, 2], (0,))
    Broadcast(dimensions=(4, 2), lhs=(0,), rhs=(0, 1))

    Raises:
        ShapeError: by the rules above, through `rule`.
    """
    if lhs.dimensions == rhs.dimensions and not broadcast_dimensions:
        same = tuple(range(lhs.rank))
        return Broadcast(lhs.dimensions, same, same)
    lhs_is_lower = lhs.rank < rhs.rank
    lower, higher = (lhs, rhs) if lhs_is_lower else (rhs, lhs)
    names = ("lhs", "rhs") if lhs_is_lower else ("rhs", "lhs")
    given = tuple(broadcast_dimensions)
    if lower.rank == higher.rank:
        mapped = tuple(range(lower.rank))
        rule(
            "B5",
            given in ((), mapped),
            f"operands of the same rank take no broadcast_dimensions but the identity, not {given}",
            "leave broadcast_dimensions out",
        )
    elif lower.rank == 0 and not given:
        mapped = ()
    else:
        _check_mapping(rule, lower, higher, names, given)
        mapped = given
    dimensions = _matched(rule, lower, higher, names, mapped)
    identity = tuple(range(higher.rank))
    return Broadcast(dimensions, mapped, identity) if lhs_is_lower else Broadcast(dimensions, identity, mapped)


def _check_mapping(rule: Rule, lower: Shape, higher: Shape, names: tuple[str, str], given: tuple[int, ...]) -> None:
    """Check B1 to B3: `broadcast_dimensions` maps the operand of lower rank to the other."""
    fitting = fitting_dimensions(lower, higher)
    hint = f"sx.{rule.operation}(lhs, rhs, broadcast_dimensions={fitting})" if fitting else ""
    rule(
        "B1",
        bool(given),
        f"operands of different ranks, {lower.rank} and {higher.rank}, need broadcast_dimensions",
        hint,
    )
    rule(
        "B2",
        len(given) == lower.rank,
        f"broadcast_dimensions {given} must have one entry for each dimension of {names[0]}, which has {lower.rank}",
        hint,
    )
    for position, target in enumerate(given):
        rule(
            "B3",
            0 <= target < higher.rank,
            f"broadcast_dimensions[{position}] is {target}, and {names[1]} has the dimensions 0 to {higher.rank - 1}",
            hint,
        )
    rule(
        "B3",
        all(a < b for a, b in pairwise(given)),
        f"broadcast_dimensions {given} must increase strictly",
        hint,
    )


def _matched(
    rule: Rule, lower: Shape, higher: Shape, names: tuple[str, str], mapped: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the result's sizes; check B4."""
    result = list(higher.dimensions)
    for source, target in enumerate(mapped):
        small, large = lower.dimensions[source], higher.dimensions[target]
        if small != large and small != 1 and large != 1:
            fitting = fitting_dimensions(lower, higher) if lower.rank < higher.rank else ()
            rule(
                "B4",
                False,
                f"dimension {source} of {names[0]} has size {small}, but dimension {target} of {names[1]}, "
                f"with which it is matched, has size {large}: they must be equal, or one of them 1",
                f"broadcast_dimensions={fitting}" if fitting else "",
            )
        result[target] = large if small == 1 else small
    return tuple(result)


def fitting_dimensions(lower: Shape, higher: Shape) -> tuple[int, ...]:
    """Return the last broadcast_dimensions that need no broadcast of a size, or ()."""
    if higher.rank > 8 or lower.rank >= higher.rank:
        return ()
    for chosen in reversed(list(combinations(range(higher.rank), lower.rank))):
        if all(higher.dimensions[target] == size for target, size in zip(chosen, lower.dimensions)):
            return chosen
    return ()
