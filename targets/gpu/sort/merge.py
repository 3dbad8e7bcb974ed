"""Merging of two runs by many threads: each finds where its part of what comes out begins in both, and merges that.

Of elements that the comparison does not tell apart those of the left run come first. Where a comparison contradicts
itself, the parts of two threads may not begin where others end: that is found, and such runs are left as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlir.ir as ir

from stablexla.targets.codegen.emission import Index, Value, constant, index, loop, maximum, minimum, select
from stablexla.targets.gpu.sort.plan import EACH, Elements, Values


@dataclass(frozen=True)
class Runs:
    """Two sorted runs in one memory: where each begins, and how many elements it has."""

    left: Value
    left_count: Value
    right: Value
    right_count: Value


Read = Callable[[Value], Values]


def cut(elements: Elements, read: Read, runs: Runs, before: Value, turns: Index) -> Value:
    """How many of the left run are among the first `before` elements of the merged runs.

    Args:
        turns: as many bits as the number of the left run's elements has.
    """
    low = maximum(before - runs.right_count, 0)
    high = minimum(before, runs.left_count)
    with loop(0, turns, 1, [low, high]) as turn:
        low, high = turn.args
        going = low.lt(high)
        middle = (low + high) // 2
        left = read(select(going, runs.left + middle, runs.left))
        right = read(select(going, runs.right + (before - 1 - middle), runs.left))
        goes_right = going & elements.less(right, left)
        goes_left = going & _not(goes_right)
        turn.yields(select(goes_left, middle + 1, low), select(goes_right, middle, high))
    return turn.results[0]


def fit(low: Value, high: Value, count: Value) -> Value:
    """Whether two cuts can be those of a part of `count` elements."""
    return high.ge(low) & (high - low).le(count)


def merged(elements: Elements, read: Read, runs: Runs, left: Value, right: Value) -> list[Values]:
    """The next elements of the merged runs after so many of the left and of the right; behind the last one anything."""
    one, other = _next(read, runs, left, right, taken=None)
    made = []
    for _ in range(EACH):
        has_left, has_right = left.lt(runs.left_count), right.lt(runs.right_count)
        take = has_right & (_not(has_left) | elements.less(other, one))
        made.append([select(take, b, a) for a, b in zip(one, other, strict=True)])
        left, right = left + select(take, index(0), index(1)), right + select(take, index(1), index(0))
        if len(made) < EACH:
            found, _ = _next(read, runs, left, right, taken=take)
            one = [select(take, a, f) for a, f in zip(one, found, strict=True)]
            other = [select(take, f, b) for b, f in zip(other, found, strict=True)]
    return made


def _next(read: Read, runs: Runs, left: Value, right: Value, taken: Value | None) -> tuple[Values, Values]:
    """What comes next in each run, or twice what comes next in the one of which an element was taken."""
    none = runs.left
    in_left = select(left.lt(runs.left_count), runs.left + left, none)
    in_right = select(right.lt(runs.right_count), runs.right + right, none)
    if taken is None:
        return read(in_left), read(in_right)
    found = read(select(taken, in_right, in_left))
    return found, found


def _not(value: Value) -> Value:
    return value ^ constant(1, ir.IntegerType.get_signless(1))
