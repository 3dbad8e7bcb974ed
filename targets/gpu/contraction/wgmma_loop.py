"""Main loop of GEMM by `wgmma` of sm_90a: warpgroups multiply straight from shared memory.

An instruction takes 64 rows of lhs, all columns of the tile and 32 bytes along k. The next iteration's instructions are
issued while those of this one run: copies go into a stage two iterations after its last use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import mlir.ir as ir
from mlir.dialects import arith, gpu

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.sums.blocked_reduction import blocked_reduction
from stablexla.targets.gpu.contraction.mma_formats import INSTRUCTION_DEPTH_BYTES, ROW_BYTES, MmaFormat
from stablexla.targets.gpu.contraction.mma_fragments import accumulator_pairs
from stablexla.targets.gpu.contraction.mma_loop import MAX_CHAIN, STEPS, PipelineStages
from stablexla.targets.gpu.contraction.mma_plan import ALIGNED, FRAGMENT_ROWS, BlockTiling, MmaOperand
from stablexla.targets.gpu.contraction.register_tile import add_accumulators
from stablexla.targets.gpu.ptx.inline_ptx import inline_ptx, shared_base, wait_for_copies
from stablexla.targets.gpu.threads import WARP, thread_index

ROWS = 64
SWIZZLED = 1 << 62
"""Bits of a descriptor: 128-byte swizzle."""
EIGHT_ROWS = 8 * ROW_BYTES
FENCE = "fence.proxy.async.shared::cta;"
"""Fence that makes stores to shared memory before it visible to `wgmma` after it."""


class WgmmaLoop:
    """One thread's part of its warpgroup's accumulator tile."""

    def __init__(
        self, tiling: BlockTiling, format_: MmaFormat, sides: tuple[MmaOperand, MmaOperand], chip: int
    ) -> None:
        del chip
        self.tiling, self.format, self.sides = tiling, format_, sides
        self.first = thread_index() // WARP * FRAGMENT_ROWS, cg.constant(0, ir.IndexType.get())
        self.units = 1, tiling.columns // FRAGMENT_ROWS

    def run(self, stages: PipelineStages, first: Index) -> list[Value]:
        """Emit the loop; returns accumulators as `mma_loop.WarpLoop.run`, for 16 rows and all columns."""
        stages = replace(stages, count=self.tiling.stages)
        sums = [cg.constant(0, self.format.sum_type)] * (self.tiling.columns // 2)
        base = (shared_base() + (ALIGNED - 1)) & -ALIGNED
        ahead = stages.count - 2
        sources = stages.start(base, ahead, first)
        _share(ahead - 1)
        words = [base, base + ahead * stages.size]

        def body(number: Value, sums: list[Value], rest: list[Value]) -> tuple[list[Value], list[Value]]:
            sources, (at, to) = rest[:-2], rest[-2:]
            inline_ptx("wgmma.fence.sync.aligned;")
            starts = [self._start(at, stages.offsets[0], 0), self._start(at, stages.offsets[1], 1)]
            for step in range(STEPS):
                sums = self._multiply(starts, step, sums)
            inline_ptx("wgmma.commit_group.sync.aligned;")
            # The fence may wait for all copies, so it comes before new ones are issued, and while MMAs are in flight.
            wait_for_copies(ahead - 2)
            inline_ptx(FENCE)
            stages.go_on(to, sources, number + ahead, first)
            inline_ptx("wgmma.wait_group.sync.aligned 1;")
            gpu.barrier()
            return sums, [*stages.after(sources), stages.next(at, base), stages.next(to, base)]

        def join(totals: list[Value], block: list[Value]) -> list[Value]:
            return add_accumulators(totals, self._finish(block))

        trip_count, block = stages.trip_count, max(1, MAX_CHAIN() // STEPS)
        sums, _ = blocked_reduction(0, trip_count, 1, trip_count, sums, join, body, [*sources, *words], block)
        if trip_count <= block:
            sums = self._finish(sums)
        wait_for_copies(0)
        gpu.barrier()
        return sums

    def pieces(self, sums: list[Value]) -> Iterator[tuple[Value, Value]]:
        """Yield the accumulators with their positions in the block's tile."""
        return accumulator_pairs(sums, self.first, self.units, self.tiling.pitch)

    def _start(self, at: Value, offset: int, number: int) -> Value:
        """Return the descriptor of a factor's tile at the first step: of lhs, the warpgroup's 64 rows."""
        side, f = self.sides[number], self.format
        panel = f.depth * ROW_BYTES
        place = at + offset
        if number == 0:
            group = Value(arith.index_cast(at.type, (thread_index() // (4 * WARP)).ssa))
            each = ROWS * ROW_BYTES if side.along_k else panel * (ROWS * f.bytes // ROW_BYTES)
            place = place + group * each
        low = Value(arith.extui(ir.IntegerType.get_signless(64), (place & 0x3FFFF).ssa))
        low = Value(arith.shrui(low.ssa, cg.constant(4, low.type).ssa))
        leading = 1 if side.along_k else panel >> 4
        return low | (leading << 16 | (EIGHT_ROWS >> 4) << 32 | SWIZZLED)

    def _multiply(self, starts: list[Value], step: int, sums: list[Value]) -> list[Value]:
        """Emit one instruction; further along k is further in the row, or some rows on."""
        f, n = self.format, len(sums)
        far = [
            INSTRUCTION_DEPTH_BYTES if side.along_k else INSTRUCTION_DEPTH_BYTES // f.bytes * ROW_BYTES
            for side in self.sides
        ]
        a, b = (start + step * by // 16 for start, by in zip(starts, far, strict=True))
        turned = [int(not side.along_k) for side in self.sides]
        registers = ", ".join(f"${i}" for i in range(n))
        kinds = f"{'s32' if f.sums == 'i32' else f.sums}.{f.name}.{f.name}"
        shape = f"m{ROWS}n{2 * n}k{INSTRUCTION_DEPTH_BYTES // f.bytes}"
        options = (
            ", p" + ("" if f.sums == "i32" else ", 1, 1") + (f", {turned[0]}, {turned[1]}" if f.bytes == 2 else "")
        )
        text = (
            "{ .reg .pred p; setp.eq.b32 p, 0, 0; "
            f"wgmma.mma_async.sync.aligned.{shape}.{kinds} {{{registers}}}, ${2 * n}, ${2 * n + 1}{options}; }}"
        )
        return inline_ptx(text, [f.sum_type] * n, [*sums, a, b], tied=n)

    def _finish(self, sums: list[Value]) -> list[Value]:
        """Wait for all instructions, and return the accumulators."""
        text = "wgmma.wait_group.sync.aligned 0;"
        return inline_ptx(text, [self.format.sum_type] * len(sums), sums, tied=len(sums))


def _share(left: int) -> None:
    """Wait for the copies of all threads, but for the last `left` groups, and make them visible to all."""
    wait_for_copies(left)
    inline_ptx(FENCE)
    gpu.barrier()
