"""Tiles of products that each thread adds up by itself: parts of both factors in shared memory, sums in registers.

In shared memory a factor's part lies k by k. A block's threads stand in a square; each has LANES neighbours down and
across of every SIDE * LANES rows and columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlir.ir as ir

from stablexla.targets.codegen.emission import Value, bits_of, constant, extract, fma, load, splat, vector_of
from stablexla.targets.gpu.threads.warps import shared_buffer

SIDE = 16
"""Threads along each side of a tile."""
THREADS = SIDE * SIDE
DEPTH = 16
"""How much of both factors is in shared memory at a time."""
LANES = 4
"""Neighbours that a thread takes together."""
TERMS, SEVERAL = 64, 128
"""Terms that are added to one sum after the other, and such sums: few, and yet each level's sums take up registers."""


def added(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
    """Two sets of sums as one."""
    return [x + y for x, y in zip(a, b, strict=True)]


@dataclass(frozen=True)
class Tile:
    """The tile of one block: `groups` times LANES rows, and as many columns, for each of its threads."""

    groups: int
    compute: ir.Type

    @property
    def side(self) -> int:
        """Rows, and columns."""
        return SIDE * LANES * self.groups

    @property
    def pitch(self) -> int:
        """Elements from one k to the next in shared memory."""
        return self.side + LANES

    @property
    def bytes(self) -> int:
        """Of one factor's part."""
        return DEPTH * self.pitch * (bits_of(self.compute) // 8)

    @property
    def shared(self) -> int:
        """Of both."""
        return 2 * self.bytes

    def buffers(self) -> tuple[Value, Value]:
        """Both factors' parts in shared memory."""
        left, right = (shared_buffer(self.compute, DEPTH * self.pitch, n * self.bytes) for n in range(2))
        return left, right

    def zeros(self) -> list[Value]:
        """A thread's sums of nothing: of each of its rows, LANES columns at a time."""
        return [constant(0, vector_of(LANES, self.compute))] * (self.groups * LANES * self.groups)

    def step(
        self, buffers: tuple[Value, Value], place: tuple[Value, Value], k: Value, sums: Sequence[Value]
    ) -> list[Value]:
        """The sums with one product more of a column by a row; `place`: the thread's, down and across."""
        row, groups = k * self.pitch, range(self.groups)
        left, right = (
            [load(buffer, row + (at + g * SIDE) * LANES, LANES) for g in groups]
            for buffer, at in zip(buffers, place, strict=True)
        )
        made: list[Value] = []
        for g in groups:
            for i in range(LANES):
                a = splat(extract(left[g], i), LANES)
                made += [fma(a, b, sums[len(made) + h]) for h, b in enumerate(right)]
        return made
