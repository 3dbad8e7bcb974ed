"""Blocked (cascade) reduction loops: reductions and scans without one long chain of additions.

Blocked summation on several levels: a sum over n iterations is rounded at most `BLOCK` times on each of
log(n) / log(BLOCK) levels, where one running sum is rounded n times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value

BLOCK = Gate("sums.level", 32, eager=2)
"""Iterations of a block, and blocks of a block."""

Values = list[Value]
Combiner = Callable[[Values, Values], Values]


def block_levels(trip_count: int, block: int | None = None, several: int | None = None) -> int:
    """Return the number of levels of blocks above a loop of `trip_count` iterations; see `blocked_reduction`."""
    (block, several), level = _blocks(block, several), 0
    while block < trip_count:
        level, block = level + 1, block * several
    return level


def _blocks(block: int | None = None, several: int | None = None) -> tuple[int, int]:
    return max(1, BLOCK() if block is None else block), max(2, BLOCK() if several is None else several)


def blocked_reduction(
    lo: Index,
    hi: Index,
    step: int,
    trip_count: int,
    starts: Values,
    join: Combiner,
    body: Callable[[Value, Values, Values], tuple[Sequence[Value], Sequence[Value]]],
    rest: Values | None = None,
    block: int | None = None,
    several: int | None = None,
) -> tuple[Values, Values]:
    """Emit a reduction loop in blocks of blocks; return the accumulators, and the other loop-carried values.

    Args:
        trip_count: upper bound of the trip count.
        starts: the identity of the combiner `join`, from which each block's accumulators start.
        body: (index, accumulators, rest) -> accumulators, rest.
        block: iterations of the smallest block, BLOCK without it: fewer where an iteration adds several times.
        several: blocks of the next one: more where registers for another level's accumulators are scarce.
    """
    count = len(starts)
    block, several = _blocks(block, several)

    def of_level(level: int, lo: Value, hi: Value, rest: Values) -> tuple[Values, Values]:
        span = step * block * several ** (level - 1) if level else step
        with cg.loop(lo, hi, span, [*starts, *rest]) as outer:
            totals, others = outer.args[:count], outer.args[count:]
            if level:
                own, others = of_level(level - 1, outer.iv, cg.minimum(outer.iv + span, hi), others)
                outer.yields(*join(totals, own), *others)
            else:
                made, more = body(outer.iv, totals, others)
                outer.yields(*made, *more)
        return outer.results[:count], outer.results[count:]

    return of_level(block_levels(trip_count, block, several), cg.index(lo), cg.index(hi), rest or [])


def blocked_scan(
    lo: Index,
    hi: Index,
    step: int,
    trip_count: int,
    before: Values,
    join: Combiner,
    body: Callable[[Value, Values], Values],
    exists: Value | None = None,
) -> Values:
    """Emit a prefix scan in blocks: combine `before` with all iterations, giving each its exclusive prefix.

    Args:
        trip_count: upper bound of the trip count.
        exists: whether `before` holds a value; without it, it does.
        body: (index, exclusive prefix) -> the iteration's own partial result.
    """

    def after(first: Value, alone: Values, exists: Value | None, a: Values, b: Values) -> Values:
        """Combine both; b where a does not exist, and `alone` in the first iteration, which has no prefix yet."""
        made = join(a, b)
        if exists is not None:
            made = [cg.select(exists, x, y) for x, y in zip(made, b, strict=True)]
        return [cg.select(first, x, y) for x, y in zip(alone, made, strict=True)]

    def of_level(level: int, lo: Value, hi: Value, before: Values, exists: Value | None) -> Values:
        span = step * several**level
        with cg.loop(lo, hi, span, before) as outer:
            first = outer.iv.eq(lo)
            here = after(first, before, exists, before, outer.args)
            if level:
                there = None if exists is None else exists | outer.iv.gt(lo)
                own = of_level(level - 1, outer.iv, cg.minimum(outer.iv + span, hi), here, there)
            else:
                own = body(outer.iv, here)
            outer.yields(*after(first, own, None, outer.args, own))
        return outer.results

    start, end, several = cg.index(lo), cg.index(hi), _blocks()[1]
    own = of_level(block_levels(trip_count), start, end, before, exists)
    return after(end.le(start), before, exists, before, own)
