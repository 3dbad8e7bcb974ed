"""What a loop carries on in another buffer: buffers change places at the end of a turn, and nothing is copied.

A body that makes the next array beside the old one has two buffers, which are swapped; arrays that move on from one
carried value to the next go round in a longer circle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stablexla.targets.buffers.assignment import Buffer

Circle = list["Buffer"]


def find_circles(wanted: Mapping[Buffer, Buffer], is_spare: Callable[[Buffer], bool]) -> list[Circle]:
    """Buffers of which each takes the place of the next one at the end of a turn, and the last that of the first.

    Args:
        wanted: for buffers of carried arrays where the array's next value lies at the end of a turn.
        is_spare: whether a turn does not look for anything in a buffer that the turn before left there.
    """
    chosen: dict[Buffer, Buffer] = {}
    for held, found in wanted.items():
        fits = found.bytes == held.bytes and (found in wanted or is_spare(found))
        if fits and found not in chosen.values():
            chosen[held] = found
    while stuck := [held for held, found in chosen.items() if found not in chosen and not is_spare(found)]:
        for held in stuck:  # a buffer that stays where it is gives its place to nobody
            del chosen[held]
    heads = [held for held in chosen if held not in chosen.values()]
    circles = []
    for head in [*heads, *chosen]:
        circle: Circle = []
        while head in chosen:
            circle.append(head)
            head = chosen.pop(head)
        if circle:
            circles.append(circle if head is circle[0] else [*circle, head])
    return circles


def settling(circle: Circle, turns: int) -> list[tuple[Buffer, Buffer]]:
    """From where to where each buffer's array has to be moved when the buffers have gone on by so many places."""
    return [(circle[(place + turns) % len(circle)], buffer) for place, buffer in enumerate(circle)]
