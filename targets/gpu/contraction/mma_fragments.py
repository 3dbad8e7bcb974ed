"""MMA fragments: a warp's operand registers, loaded from a factor's tile in shared memory.

`mma_loads` has the tiles' layout. Of every 16 rows and 32 bytes along k, a thread's words are those of rows lane / 4
and 8 after, at lane % 4 along k and, but for f64, 16 bytes after.
"""

from __future__ import annotations

from collections.abc import Iterator

import mlir.ir as ir
from mlir.dialects import vector

from stablexla.targets.codegen.emission import Value
from stablexla.targets.gpu.contraction.mma_formats import CHUNK_BYTES, INSTRUCTION_DEPTH_BYTES, ROW_BYTES, MmaFormat
from stablexla.targets.gpu.contraction.mma_loads import CHUNKS
from stablexla.targets.gpu.contraction.mma_plan import FRAGMENT_ROWS, MmaOperand
from stablexla.targets.gpu.ptx.inline_ptx import ldmatrix, load_shared, truncate_to_i32
from stablexla.targets.gpu.threads import WARP, thread_index

Registers = list[Value]


def accumulator_pairs(
    sums: list[Value], first: tuple[Value, Value], units: tuple[int, int], pitch: int
) -> Iterator[tuple[Value, Value]]:
    """Yield a thread's accumulators in pairs, with their offsets in rows of `pitch`.

    Of every 16 rows and 8 columns of the warp's tile, which begins at `first`, these are two neighbours at lane / 4 and
    twice lane % 4, and two 8 rows after.
    """
    lane, waiting = thread_index() % WARP, iter(sums)
    pair = ir.VectorType.get([2], sums[0].type)
    start = (first[0] + lane // 4) * pitch + first[1] + lane % 4 * 2
    for i in range(units[0]):
        for j in range(2 * units[1]):
            for half in range(2):
                value = vector.from_elements(pair, [next(waiting).ssa for _ in range(2)])
                yield start + ((FRAGMENT_ROWS * i + 8 * half) * pitch + 8 * j), Value(value)


class FragmentReader:
    """Loads of one factor's fragments: units of 16 rows, in steps of 32 bytes along k.

    Registers of a unit come in the order of lhs, which is rows first and then along k; of rhs, along k first.
    """

    def __init__(self, side: MmaOperand, format_: MmaFormat, first: Value, units: int, *, is_left: bool) -> None:
        """`first`: the warp's first row in the tile, a multiple of 16 times `units`."""
        self.side, self.format, self.units, self.is_left = side, format_, units, is_left
        self._panel = format_.depth * ROW_BYTES
        lane = thread_index() % WARP
        if not format_.has_matrices or (not side.along_k and not format_.is_turned):
            self._places = self._one_by_one(first, lane)
            return
        x, low, high = lane % CHUNKS, lane // 8 % 2, lane // 16
        half, deep = (low, high) if is_left else (high, low)
        if side.along_k:
            start = (first + x + half * 8) * ROW_BYTES + (deep ^ x) * CHUNK_BYTES
            self._places = [
                truncate_to_i32(start ^ (INSTRUCTION_DEPTH_BYTES * s))
                for s in range(ROW_BYTES // INSTRUCTION_DEPTH_BYTES)
            ]
        else:
            wide = CHUNKS * format_.chunk
            chunk = (first % wide) // format_.chunk
            start = first // wide * self._panel + (x + deep * 8) * ROW_BYTES + ((chunk + half) ^ x) * CHUNK_BYTES
            self._places = [
                truncate_to_i32(start ^ (INSTRUCTION_DEPTH_BYTES * u)) for u in range(min(units, wide // FRAGMENT_ROWS))
            ]

    def _one_by_one(self, first: Value, lane: Value) -> list[Value]:
        f = self.format
        group, four = lane // 4, lane % 4
        if f.bytes == 8 and self.side.along_k:
            start = (first + group) * ROW_BYTES + ((four // 2) ^ (group % 4 * 2)) * CHUNK_BYTES + four % 2 * 8
            return [
                truncate_to_i32(start ^ (INSTRUCTION_DEPTH_BYTES * s))
                for s in range(ROW_BYTES // INSTRUCTION_DEPTH_BYTES)
            ]
        wide = CHUNKS * f.chunk
        in_chunk = group // f.chunk
        start = four * ROW_BYTES + (in_chunk ^ (four * 2)) * CHUNK_BYTES + group % f.chunk * f.bytes
        start = first // wide * self._panel + start
        if f.bytes == 8:
            return [truncate_to_i32(start ^ (4 * CHUNK_BYTES * half)) for half in range(2)]
        return [
            truncate_to_i32(start ^ (2 * CHUNK_BYTES * half + 4 * CHUNK_BYTES * odd))
            for odd in range(2)
            for half in range(2)
        ]

    def read(self, base: Value, offset: int, step: int) -> list[Registers]:
        """Load the fragments of every unit at one step of the stage at `base`, the tile `offset` bytes after."""
        if not self.format.has_matrices or (not self.side.along_k and not self.format.is_turned):
            return [self._words(base, offset, step, unit) for unit in range(self.units)]
        if self.side.along_k:
            at = base + self._places[step]
            return [ldmatrix(at, offset + u * FRAGMENT_ROWS * ROW_BYTES, turned=False) for u in range(self.units)]
        count, places = len(self._places), [base + place for place in self._places]
        deep = offset + step * FRAGMENT_ROWS * ROW_BYTES
        return [ldmatrix(places[u % count], deep + u // count * self._panel, turned=True) for u in range(self.units)]

    def _words(self, base: Value, offset: int, step: int, unit: int) -> Registers:
        f, type_ = self.format, self.format.register_type()
        if f.bytes == 8 and self.side.along_k:
            at = base + self._places[step]
            return [
                load_shared(type_, at, offset + (unit * FRAGMENT_ROWS + 8 * half) * ROW_BYTES)[0] for half in range(2)
            ]
        if f.bytes == 8:
            deep = offset + step * 4 * ROW_BYTES + unit * self._panel
            return [load_shared(type_, base + self._places[half], deep)[0] for half in range(2)]
        deep = offset + step * 8 * ROW_BYTES + unit // 2 * self._panel
        order = (
            [(h, k) for k in range(2) for h in range(2)]
            if self.is_left
            else [(h, k) for h in range(2) for k in range(2)]
        )
        return [
            load_shared(type_, base + self._places[unit % 2 * 2 + h], deep + 4 * k * ROW_BYTES)[0] for h, k in order
        ]

    def columns(self, registers: Registers) -> list[Registers]:
        """Split a unit's rhs fragment into two of 8 columns each."""
        half = len(registers) // 2
        return [registers[:half], registers[half:]]
