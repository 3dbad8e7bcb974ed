"""Merge path: merges two runs by many threads, each of which finds its part of both by binary search.

The merge is stable: of equal elements those of the left run come first. Where a comparator is inconsistent, the parts
of two threads may not begin where others end: that is detected, and such runs are left unmerged.
"""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.gpu.sort.plan import EACH, SortElements, Values


@dataclass(frozen=True)
class MergeRuns:
    """Two sorted runs in one memory: where each begins, and how many elements it has."""

    left: Value
    left_count: Value
    right: Value
    right_count: Value


Read = Callable[[Value], Values]


def merge_path(elements: SortElements, read: Read, runs: MergeRuns, before: Value, trip_count: Index) -> Value:
    """Return how many of the left run are among the first `before` merged elements, by binary search.

    Args:
        trip_count: trip count of the search: the bits of the left run's length.
    """
    low = cg.maximum(before - runs.right_count, 0)
    high = cg.minimum(before, runs.left_count)
    with cg.loop(0, trip_count, 1, [low, high]) as iteration:
        low, high = iteration.args
        going = low.lt(high)
        middle = (low + high) // 2
        left = read(cg.select(going, runs.left + middle, runs.left))
        right = read(cg.select(going, runs.right + (before - 1 - middle), runs.left))
        goes_right = going & elements.less(right, left)
        goes_left = going & _not(goes_right)
        iteration.yields(cg.select(goes_left, middle + 1, low), cg.select(goes_right, middle, high))
    return iteration.results[0]


def cuts_fit(low: Value, high: Value, count: Value) -> Value:
    """Return whether two cuts can delimit a part of `count` elements."""
    return high.ge(low) & (high - low).le(count)


def merge_elements(elements: SortElements, read: Read, runs: MergeRuns, left: Value, right: Value) -> list[Values]:
    """Return the next merged elements after so many of the left and of the right; unspecified beyond the end."""
    one, other = _next(read, runs, left, right, taken=None)
    made = []
    for _ in range(EACH):
        has_left, has_right = left.lt(runs.left_count), right.lt(runs.right_count)
        take = has_right & (_not(has_left) | elements.less(other, one))
        made.append([cg.select(take, b, a) for a, b in zip(one, other, strict=True)])
        left, right = (
            left + cg.select(take, cg.index(0), cg.index(1)),
            right + cg.select(take, cg.index(1), cg.index(0)),
        )
        if len(made) < EACH:
            found, _ = _next(read, runs, left, right, taken=take)
            one = [cg.select(take, a, f) for a, f in zip(one, found, strict=True)]
            other = [cg.select(take, f, b) for b, f in zip(other, found, strict=True)]
    return made


def _next(read: Read, runs: MergeRuns, left: Value, right: Value, taken: Value | None) -> tuple[Values, Values]:
    """Return the next element of each run, or of the run just consumed, twice."""
    none = runs.left
    in_left = cg.select(left.lt(runs.left_count), runs.left + left, none)
    in_right = cg.select(right.lt(runs.right_count), runs.right + right, none)
    if taken is None:
        return read(in_left), read(in_right)
    found = read(cg.select(taken, in_right, in_left))
    return found, found


def _not(value: Value) -> Value:
    return value ^ cg.constant(1, ir.IntegerType.get_signless(1))
