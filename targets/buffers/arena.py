"""Arena planning: offsets of temporaries by live ranges, first-fit, so that disjoint live ranges share memory."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stablexla.targets.buffers.assignment import Buffer

ALIGNMENT = 64


def plan_arena(buffers: Iterable[Buffer]) -> int:
    """Assign arena offsets first-fit: the largest buffer first, each at the lowest offset free in its live range.

    Returns:
        The arena's size.
    """
    waiting = {id(b.find()): b.find() for b in buffers if b.find().role == "arena" and b.find().bytes}
    placed: list[tuple[int, int, int, int]] = []  # positions from and to, bytes from and to
    size = 0
    for buffer in sorted(waiting.values(), key=lambda b: (-b.bytes, b.first)):
        offset, first, last = 0, buffer.first, buffer.last
        for start, end in sorted((a, b) for f, t, a, b in placed if f <= last and first <= t):
            if start >= offset + buffer.bytes:
                break
            offset = max(offset, _aligned(end))
        buffer.offset = offset
        placed.append((first, last, offset, offset + buffer.bytes))
        size = max(size, _aligned(offset + buffer.bytes))
    return size


def _aligned(n: int) -> int:
    return (n + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
