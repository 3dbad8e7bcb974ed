"""Ping-pong buffers for loop-carried arrays: pointers rotate each iteration, nothing is copied.

A body that computes the next array beside the old one has two buffers, which are swapped; arrays that move on from one
carried value to the next rotate in a longer cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stablexla.targets.buffers.buffer import Buffer

BufferCycle = list[Buffer]


def find_buffer_cycles(wanted: Mapping[Buffer, Buffer], is_spare: Callable[[Buffer], bool]) -> list[BufferCycle]:
    """Find cycles of buffers, each of which takes the next one's place after an iteration, and the last the first's.

    Args:
        wanted: for buffers of carried arrays where the array's next value lies at the end of an iteration.
        is_spare: whether a buffer's contents are dead at the start of an iteration.
    """
    chosen: dict[Buffer, Buffer] = {}
    taken: set[Buffer] = set()
    for held, found in wanted.items():
        fits = found.bytes == held.bytes and (found in wanted or is_spare(found))
        if fits and found not in taken:
            chosen[held] = found
            taken.add(found)
    while stuck := [held for held, found in chosen.items() if found not in chosen and not is_spare(found)]:
        for held in stuck:  # a buffer that stays where it is passes its place to no other
            del chosen[held]
    taken = set(chosen.values())
    heads = [held for held in chosen if held not in taken]
    circles = []
    for head in [*heads, *chosen]:
        circle: BufferCycle = []
        while head in chosen:
            circle.append(head)
            head = chosen.pop(head)
        if circle:
            circles.append(circle if head is circle[0] else [*circle, head])
    return circles


def copies_after_rotation(circle: BufferCycle, turns: int) -> list[tuple[Buffer, Buffer]]:
    """Return the copies (from, to) that restore each buffer's array after a rotation by `turns` places."""
    return [(circle[(place + turns) % len(circle)], buffer) for place, buffer in enumerate(circle)]
