"""Register tiles of scalar-core GEMM: panels of both factors in shared memory, accumulators in each thread's registers.

In shared memory a factor's panel is k-major. A block's threads form a square; each has LANES neighbours down and across
of every SIDE * LANES rows and columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.gpu.threads import shared_buffer

SIDE = 16
"""Threads along each side of a block's tile."""
THREADS = SIDE * SIDE
DEPTH = 16
"""Depth of both factors' panels along k in shared memory."""
LANES = 4
"""Vector width of loads from shared memory."""
TERMS = Gate("gpu-sums.terms", 64, eager=1)
SEVERAL = Gate("gpu-sums.several", 128, eager=2)
"""Blocked summation: terms of a chain, and chains of the next level: few, as each level's sums take up registers."""


def add_accumulators(a: Sequence[Value], b: Sequence[Value]) -> list[Value]:
    """Add two sets of accumulators."""
    return [x + y for x, y in zip(a, b, strict=True)]


@dataclass(frozen=True)
class RegisterTile:
    """Tile of one block: `groups` times LANES rows, and as many columns, for each of its threads."""

    groups: int
    compute: ir.Type

    @property
    def side(self) -> int:
        """Rows, and columns, of the block's tile."""
        return SIDE * LANES * self.groups

    @property
    def pitch(self) -> int:
        """Leading dimension of a panel in shared memory."""
        return self.side + LANES

    @property
    def bytes(self) -> int:
        """Bytes of one factor's panel."""
        return DEPTH * self.pitch * (cg.bits_of(self.compute) // 8)

    @property
    def shared(self) -> int:
        """Bytes of both panels."""
        return 2 * self.bytes

    def buffers(self) -> tuple[Value, Value]:
        """Return both factors' panels in shared memory."""
        left, right = (shared_buffer(self.compute, DEPTH * self.pitch, n * self.bytes) for n in range(2))
        return left, right

    def zeros(self) -> list[Value]:
        """Return a thread's zeroed accumulators: of each of its rows, LANES columns at a time."""
        return [cg.constant(0, cg.vector_of(LANES, self.compute))] * (self.groups * LANES * self.groups)

    def step(
        self, buffers: tuple[Value, Value], place: tuple[Value, Value], k: Value, sums: Sequence[Value]
    ) -> list[Value]:
        """Emit a rank-1 update (outer product) of the accumulators; `place`: the thread's position, down and across."""
        row, groups = k * self.pitch, range(self.groups)
        left, right = (
            [cg.load(buffer, row + (at + g * SIDE) * LANES, LANES) for g in groups]
            for buffer, at in zip(buffers, place, strict=True)
        )
        made: list[Value] = []
        for g in groups:
            for i in range(LANES):
                a = cg.splat(cg.extract(left[g], i), LANES)
                made += [cg.fma(a, b, sums[len(made) + h]) for h, b in enumerate(right)]
        return made
