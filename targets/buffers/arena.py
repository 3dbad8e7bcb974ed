"""Arena planning: offsets of temporaries by live ranges, first-fit, so that disjoint live ranges share memory."""

from __future__ import annotations

import mmap
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from operator import itemgetter

from stablexla.targets.buffers.buffer import Buffer
from stablexla.targets.codegen.sizes import rounded_up

ALIGNMENT = 64
_ALIGNED_FROM = 1 << 20
"""Arrays of so many bytes may be stored by instructions that need the alignment; `guard.cpp` has the same number."""


def plan_arena(buffers: Iterable[Buffer]) -> int:
    """Assign arena offsets first-fit: the largest buffer first, each at the lowest offset free in its live range.

    Returns:
        The arena's size.
    """
    waiting = [(b.first, b.last, b) for b in arena_buffers(buffers)]
    memory = _LiveMemory(position for first, last, _ in waiting for position in (first, last))
    size = 0
    for first, last, buffer in sorted(waiting, key=lambda row: (-row[2].bytes, row[0])):
        buffer.offset = memory.take(first, last, _aligned(buffer.bytes))
        size = max(size, buffer.offset + _aligned(buffer.bytes))
    return size


class _LiveMemory:
    """Bytes that are taken at each position: a segment tree over the positions where live ranges begin or end.

    Each node has the union of the bytes taken anywhere below it, and of those taken throughout, as sorted disjoint
    intervals. First-fit leaves few gaps, so that a union is a few intervals, however many buffers are live.
    """

    def __init__(self, positions: Iterable[int]) -> None:
        self._leaves = {position: leaf for leaf, position in enumerate(sorted(set(positions)))}
        self._anywhere: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        self._throughout: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    def take(self, first: int, last: int, size: int) -> int:
        """Take so many bytes at all positions from `first` to `last`, and return their lowest possible offset."""
        low, high = (self._leaves[position] + len(self._leaves) for position in (first, last))
        above = {leaf >> level for leaf in (low, high) for level in range(1, leaf.bit_length())}
        nodes = _covering(low, high + 1)
        taken = {interval for node in nodes for interval in self._anywhere.get(node, ())}
        taken.update(interval for node in above for interval in self._throughout.get(node, ()))
        offset = 0
        for start, end in sorted(taken):
            if start >= offset + size:
                break
            offset = max(offset, end)
        for node in nodes:
            _unite(self._throughout[node], offset, offset + size)
        for node in above.union(nodes):
            _unite(self._anywhere[node], offset, offset + size)
        return offset


def _covering(low: int, high: int) -> list[int]:
    """Return the nodes that make up the leaves from `low` up to `high`; node n has the children 2n and 2n + 1."""
    nodes = []
    while low < high:
        if low & 1:
            nodes.append(low)
            low += 1
        if high & 1:
            high -= 1
            nodes.append(high)
        low, high = low >> 1, high >> 1
    return nodes


def _unite(intervals: list[tuple[int, int]], start: int, end: int) -> None:
    """Add an interval to disjoint sorted ones that do not touch."""
    low = bisect_left(intervals, start, key=itemgetter(1))
    high = bisect_right(intervals, end, lo=low, key=itemgetter(0))
    if low < high:
        start, end = min(start, intervals[low][0]), max(end, intervals[high - 1][1])
    intervals[low:high] = [(start, end)]


def plan_guarded_arena(buffers: Iterable[Buffer], guard: str) -> int:
    """Assign arena offsets such that each buffer has pages of its own, with a page between that nobody may touch.

    Args:
        buffers: of main.
        guard: which end of a buffer meets that page: "ends" or "starts".

    Returns:
        The arena's size.
    """
    size = 0
    for buffer in arena_buffers(buffers):
        pages = rounded_up(buffer.bytes, mmap.PAGESIZE)
        taken = buffer.bytes if buffer.bytes < _ALIGNED_FROM else _aligned(buffer.bytes)
        buffer.offset = size + (pages - taken if guard == "ends" else 0)
        size += pages + mmap.PAGESIZE
    return max(0, size - mmap.PAGESIZE)


def arena_buffers(buffers: Iterable[Buffer]) -> list[Buffer]:
    """Return the buffers that need a place in the arena, each once."""
    found = {id(b.find()): b.find() for b in buffers if b.find().role == "arena" and b.find().bytes}
    return list(found.values())


def _aligned(n: int) -> int:
    return rounded_up(n, ALIGNMENT)
