"""Main loop of f32 GEMM by FMA, as tensor cores lack full f32: a thread has an accumulator tile of 8 x 8.

A multi-stage pipeline of copies as for tensor cores. The 32 threads of a warp form 4 x 8, so that their loads are free
of bank conflicts. A thread loads vectors of four: along k if the factor is contiguous so, and then its rows are every
fourth (columns: every eighth) of the warp's; else along rows, and then these are fours.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlir.ir as ir
from mlir.dialects import gpu, vector

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.sums.blocked_reduction import blocked_reduction
from stablexla.targets.gpu.contraction.mma_formats import CHUNK_BYTES, ROW_BYTES, MmaFormat
from stablexla.targets.gpu.contraction.mma_loads import CHUNKS
from stablexla.targets.gpu.contraction.mma_loop import PipelineStages
from stablexla.targets.gpu.contraction.mma_plan import BlockTiling, MmaOperand
from stablexla.targets.gpu.contraction.register_tile import SEVERAL, TERMS, add_accumulators
from stablexla.targets.gpu.ptx.inline_ptx import load_shared, shared_base, truncate_to_i32, wait_for_copies
from stablexla.targets.gpu.threads import WARP, thread_index

FOUR = 4
OWN = 8
"""Rows, and columns, of a thread."""


class _Own:
    """One thread's loads of one factor: 8 of its rows, four terms at a time.

    Args:
        first: the warp's first row.
        place, places: the thread's position among those of the warp along this factor.
    """

    def __init__(self, side: MmaOperand, format_: MmaFormat, first: Value, place: Value, places: int) -> None:
        self.along_k, self.places = side.along_k, places
        self._panel = format_.depth * ROW_BYTES
        if side.along_k:
            self.start = first + place
            self._at = [truncate_to_i32(self.start * ROW_BYTES + place * CHUNK_BYTES)]
            return
        self.start = first + place * FOUR
        across, chunk = first // (CHUNKS * FOUR) * self._panel, first % (CHUNKS * FOUR) // FOUR + place
        self._at = [truncate_to_i32(across + (chunk ^ (2 * k)) * CHUNK_BYTES) for k in range(FOUR)]

    def offset(self, number: int) -> int:
        """Return a row's distance from the first."""
        if self.along_k:
            return number * self.places
        return number // FOUR * self.places * FOUR + number % FOUR

    def read(self, base: Value, offset: int, step: Value) -> list[list[Value]]:
        """Load for each row four terms, those of chunk `step` along k."""
        f32 = ir.F32Type.get()
        if self.along_k:
            even = base + (self._at[0] ^ (step * CHUNK_BYTES))
            odd = base + (self._at[0] ^ (step * CHUNK_BYTES) ^ (FOUR * CHUNK_BYTES))
            swaps = self.places % CHUNKS != 0
            return [
                load_shared(f32, odd if swaps and i % 2 else even, offset + i * self.places * ROW_BYTES, FOUR)
                for i in range(OWN)
            ]
        found, here = [], base + step * (FOUR * ROW_BYTES)
        for k in range(FOUR):
            row: list[Value] = []
            for i in range(OWN // FOUR):
                across, rest = divmod(i * self.places, CHUNKS)
                at = here + (self._at[k] ^ (rest * CHUNK_BYTES) if rest else self._at[k])
                row += load_shared(f32, at, offset + k * ROW_BYTES + across * self._panel, FOUR)
            found.append(row)
        return [[found[k][i] for k in range(FOUR)] for i in range(OWN)]


class FmaLoop:
    """One thread's part of its warp's accumulator tile."""

    def __init__(
        self, tiling: BlockTiling, format_: MmaFormat, sides: tuple[MmaOperand, MmaOperand], chip: int
    ) -> None:
        del chip
        self.tiling, self.format = tiling, format_
        warp, lane = thread_index() // WARP, thread_index() % WARP
        y, x = warp // tiling.warps[1], warp % tiling.warps[1]
        self._left = _Own(sides[0], format_, y * tiling.warp_rows, lane // OWN, WARP // OWN)
        self._right = _Own(sides[1], format_, x * tiling.warp_columns, lane % OWN, OWN)

    def run(self, stages: PipelineStages, first: Index) -> list[Value]:
        """Emit the loop; returns accumulators: of every row, fours of columns."""
        four = ir.VectorType.get([FOUR], self.format.sum_type)
        zeros = [cg.constant(0, four)] * (OWN * OWN // FOUR)
        base, ahead = shared_base(), stages.count - 1
        sources = stages.start(base, ahead, first)

        def body(number: Value, sums: list[Value], rest: list[Value]) -> tuple[list[Value], list[Value]]:
            sources, (at, to) = rest[:-2], rest[-2:]
            wait_for_copies(ahead - 1)
            gpu.barrier()
            stages.go_on(to, sources, number + ahead, first)
            with cg.loop(0, CHUNKS, 1, sums) as steps:
                step = truncate_to_i32(steps.iv)
                left = self._left.read(at, stages.offsets[0], step)
                right = self._right.read(at, stages.offsets[1], step)
                steps.yields(*_multiply(left, right, steps.args))
            return steps.results, [*stages.after(sources), stages.next(at, base), stages.next(to, base)]

        rest = [*sources, base, base + ahead * stages.size]
        trip_count, block = stages.trip_count, max(1, TERMS() // (CHUNKS * FOUR))
        sums, _ = blocked_reduction(0, trip_count, 1, trip_count, zeros, add_accumulators, body, rest, block, SEVERAL())
        wait_for_copies(0)
        gpu.barrier()
        return sums

    def pieces(self, sums: list[Value]) -> Iterator[tuple[Value, Value]]:
        """Yield the accumulators with their positions in the block's tile."""
        pitch, waiting = self.tiling.pitch, iter(sums)
        start = self._left.start * pitch + self._right.start
        for i in range(OWN):
            for j in range(0, OWN, FOUR):
                value, row = next(waiting), self._left.offset(i) * pitch
                if not self._right.along_k:
                    yield start + (row + self._right.offset(j)), value
                    continue
                for lane in range(FOUR):
                    yield start + (row + self._right.offset(j + lane)), cg.extract(value, lane)


def _multiply(left: list[list[Value]], right: list[list[Value]], sums: list[Value]) -> list[Value]:
    """Accumulate four terms of each sum."""
    four = ir.VectorType.get([FOUR], left[0][0].type)
    for k in range(FOUR):
        columns = [
            Value(vector.from_elements(four, [right[j + lane][k].ssa for lane in range(FOUR)]))
            for j in range(0, OWN, FOUR)
        ]
        sums = [
            cg.fma(cg.splat(left[i][k], FOUR), column, sums[i * len(columns) + j])
            for i in range(OWN)
            for j, column in enumerate(columns)
        ]
    return sums
