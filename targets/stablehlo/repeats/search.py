"""Search of a block's dataflow for stretches that follow one another and are equal: layers, blocks, unrolled steps.

A stretch is a period of the sequence of keys (`dataflow.py`). Where a period begins is free at first: it is chosen so
that no two operations are parted that one kernel would compute (`seams.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.stablehlo.repeats.dataflow import Dataflow, Slot
from stablexla.targets.stablehlo.repeats.seams import Seams

LEAST_LENGTH = Gate("repeats.least-length", 6, eager=2)
LEAST_SAVED = Gate("repeats.least-saved", 24, eager=1)
"""Operations of a stretch, and operations that need not be compiled, from which on stretches are worth a function."""
LEAST_CHAIN = Gate("repeats.least-chain", 384, eager=8)
"""Element-wise operations from which on a stretch ends in the middle of a chain of them.

No kernel has more (`MOST_OPERATIONS` and `PLAIN_IN_ONE` of grouping), so that a chain is several kernels in any case:
as many, when its stretches are multiples of what a kernel has.
"""
LONGEST = 4096
MOST_WORK = 1_000_000
"""Operations looked at after which a block's search ends: long chains have thousands of periods, all of no use."""
QUICK = 1000
"""Keys that are compared in the time in which one operation is looked at."""
MOST_STARTS = 8
"""Places at which a period is tried to begin, those over which the fewest values are alive first."""


@dataclass(frozen=True)
class Repeat:
    """Equal stretches of a block: nodes `start + k * length` up to `start + (k + 1) * length`, for k below `count`.

    Attributes:
        results: what of a stretch is read outside of it: the number of the node in the stretch, and of its result.
    """

    start: int
    length: int
    count: int
    results: tuple[Slot, ...]

    @property
    def end(self) -> int:
        return self.start + self.count * self.length


def find_repeats(flow: Dataflow) -> list[Repeat]:
    """Return the stretches of a block, in order and apart from each other."""
    keys = np.array([node.key for node in flow.nodes], np.int64)
    seams = Seams(flow)
    found: list[Repeat] = []
    waiting = [(0, len(keys))]
    work = 0
    while waiting and work < MOST_WORK:
        low, high = waiting.pop()
        work += (high - low) * min(high - low, LONGEST) // QUICK
        for period in _periods(keys[low:high]):
            if work >= MOST_WORK:
                break
            work += MOST_STARTS * (period.end - period.start)
            period = period.moved(low)
            repeat = _cut(flow, seams, period.lengthened(keys) if seams.is_chain(period) else period)
            if repeat is not None:
                found.append(repeat)
                waiting += [(low, repeat.start), (repeat.end, high)]
                break
    return sorted(found, key=lambda repeat: repeat.start)


@dataclass(frozen=True)
class Period:
    """Nodes from `start` to `end`; the key of each comes again `length` nodes later, as far as that is before `end`.

    Attributes:
        fuses: whether stretches end where a kernel could go on.
    """

    start: int
    end: int
    length: int
    fuses: bool = False

    @property
    def saved(self) -> int:
        return ((self.end - self.start) // self.length - 1) * self.length

    def moved(self, by: int) -> Period:
        return Period(self.start + by, self.end + by, self.length)

    def lengthened(self, keys: np.ndarray) -> Period:
        """Return the same for a chain of element-wise operations, in stretches that are several kernels each."""
        run = keys[self.start : self.end]
        shorter = (n for n in range(1, self.length + 1) if self.length % n == 0)
        least = next(n for n in shorter if np.array_equal(run[n:], run[:-n]))
        return Period(self.start, self.end, least * -(-LEAST_CHAIN() // least), fuses=True)


def _periods(keys: np.ndarray) -> Iterator[Period]:
    """Yield the longest run of each period, those that save most operations first."""
    found = []
    for length in range(LEAST_LENGTH(), min(len(keys) // 2, LONGEST) + 1):
        equal = keys[:-length] == keys[length:]
        if np.count_nonzero(equal) < length:  # of most lengths
            continue
        differs = np.flatnonzero(~equal)
        edges = np.concatenate([[-1], differs, [len(keys) - length]])
        runs = np.diff(edges) - 1
        longest = int(np.argmax(runs))
        if runs[longest] >= length:
            start = int(edges[longest]) + 1
            found.append(Period(start, start + int(runs[longest]) + length, length))
    yield from sorted((p for p in found if p.saved >= LEAST_SAVED()), key=lambda period: (-period.saved, period.length))


def _cut(flow: Dataflow, seams: Seams, period: Period) -> Repeat | None:
    """Choose where the stretches of a period begin; None where no place will do."""
    best: Repeat | None = None
    most = (period.end - period.start) // period.length
    for start in _starts(seams, period):
        repeat = _repeat_at(flow, seams, period, start)
        if repeat is not None and (best is None or repeat.count > best.count):
            best = repeat
        if best is not None and best.count == most:
            break
    return best


def _starts(seams: Seams, period: Period) -> Sequence[int]:
    """Return the places of one period over which the fewest values are alive."""
    alive = seams.alive[period.start : period.start + period.length]
    return [period.start + int(offset) for offset in np.argsort(alive, kind="stable")[:MOST_STARTS]]


def _repeat_at(flow: Dataflow, seams: Seams, period: Period, start: int) -> Repeat | None:
    """Return the longest run of equal stretches that begins there, or a period or more later."""
    count = (period.end - start) // period.length
    if count < 2:
        return None
    first, last = _longest_run(_alike(flow, start, period.length, count))
    start, count = start + first * period.length, last - first + 1
    if count < 2 or (count - 1) * period.length < LEAST_SAVED():
        return None
    results = _results(flow, start, period.length, count)
    repeat = Repeat(start, period.length, count, results)
    return None if not period.fuses and seams.parts_what_fuses(repeat) else repeat


def _longest_run(same: Sequence[bool]) -> tuple[int, int]:
    """Return the first and last number of the longest run of stretches that are each equal to the next."""
    best, first = (0, 0), 0
    for number, equal in enumerate(same):
        if not equal:
            first = number + 1
        elif number + 1 - first > best[1] - best[0]:
            best = first, number + 1
    return best


def _alike(flow: Dataflow, start: int, length: int, count: int) -> list[bool]:
    """Return for each stretch but the last whether it and the one after it read their own values at the same places."""
    slots = flow.slots[flow.first_slots[start] : flow.first_slots[start + count * length]].reshape(count, -1, 2)
    starts = start + length * np.arange(count)
    inside = slots[:, :, 0] >= starts[:, None]
    moved = (slots[:-1] + np.array([length, 0]) == slots[1:]).all(axis=2)
    equal: np.ndarray = np.where(inside[:-1], inside[1:] & moved, ~inside[1:])
    return [bool(row.all()) for row in equal]


def _results(flow: Dataflow, start: int, length: int, count: int) -> tuple[Slot, ...]:
    """Return what of any of the stretches is read outside of it."""
    last = flow.last_reads[start : start + count * length].reshape(count, length, flow.last_reads.shape[1])
    ends = start + length * np.arange(1, count + 1)
    outside = (last >= ends[:, None, None]).any(axis=0)
    return tuple((offset, position) for offset, position in np.argwhere(outside).tolist())


__all__ = ["Repeat", "find_repeats"]
