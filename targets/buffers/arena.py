"""Arena planning: offsets of temporaries by live ranges, first-fit, so that disjoint live ranges share memory."""

from __future__ import annotations

import mmap
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stablexla.targets.buffers.assignment import Buffer

ALIGNMENT = 64
_ALIGNED_FROM = 1 << 20
"""Arrays of so many bytes may be stored by instructions that need the alignment; `guard.cpp` has the same number."""


def plan_arena(buffers: Iterable[Buffer]) -> int:
    """Assign arena offsets first-fit: the largest buffer first, each at the lowest offset free in its live range.

    Returns:
        The arena's size.
    """
    waiting = arena_buffers(buffers)
    placed: list[tuple[int, int, int, int]] = []  # positions from and to, bytes from and to
    size = 0
    for buffer in sorted(waiting, key=lambda b: (-b.bytes, b.first)):
        offset, first, last = 0, buffer.first, buffer.last
        for start, end in sorted((a, b) for f, t, a, b in placed if f <= last and first <= t):
            if start >= offset + buffer.bytes:
                break
            offset = max(offset, _aligned(end))
        buffer.offset = offset
        placed.append((first, last, offset, offset + buffer.bytes))
        size = max(size, _aligned(offset + buffer.bytes))
    return size


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
        pages = _rounded(buffer.bytes, mmap.PAGESIZE)
        taken = buffer.bytes if buffer.bytes < _ALIGNED_FROM else _aligned(buffer.bytes)
        buffer.offset = size + (pages - taken if guard == "ends" else 0)
        size += pages + mmap.PAGESIZE
    return max(0, size - mmap.PAGESIZE)


def arena_buffers(buffers: Iterable[Buffer]) -> list[Buffer]:
    """Return the buffers that need a place in the arena, each once."""
    found = {id(b.find()): b.find() for b in buffers if b.find().role == "arena" and b.find().bytes}
    return list(found.values())


def _aligned(n: int) -> int:
    return _rounded(n, ALIGNMENT)


def _rounded(n: int, step: int) -> int:
    return (n + step - 1) // step * step
