"""Load tiles element by element, where rows are not aligned to 16 bytes, or are transposed on the way.

The tile in shared memory has the layout of `mma_loads`. Loads are unpredicated, without branches, so that all are in
flight together.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import vector

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.gpu.contraction.mma_formats import CHUNK_BYTES, ROW_BYTES
from stablexla.targets.gpu.contraction.mma_loads import CHUNKS, TileLoader, swizzles_pairs
from stablexla.targets.gpu.ptx.inline_ptx import i32, store_shared, truncate_to_i32
from stablexla.targets.gpu.threads import thread_index


class ElementTileLoader(TileLoader):
    """One thread's share of one factor's tiles; sources are element offsets, not addresses."""

    def start(self, base: Index, first: Value, k: Index) -> None:
        """Compute the thread's first source, as `TileLoader.start`."""
        self._first = first
        self.source = cg.index(base) + cg.index(k) * self.side.stride_k

    @property
    def unit(self) -> int:
        """Stride of an element in a source."""
        return 1

    @property
    def advance(self) -> int:
        """Return the elements from one stage's source to the next."""
        return self.format.depth * self.side.stride_k

    def issue(self, to: Value, to_offset: int, source: Value, k: Index) -> None:
        """Load and store the stage that begins at `k`."""
        for number in range(self.size * CHUNKS // self.threads):
            place, chunk = self._place(thread_index() + number * self.threads)
            swapped = (place * 2 if swizzles_pairs(self.side, self.format) else place) % CHUNKS
            words = self._words(self._elements(place, chunk, source, k))
            store_shared(words, to + truncate_to_i32(place * ROW_BYTES + (chunk ^ swapped) * CHUNK_BYTES) + to_offset)

    def _place(self, piece: Value) -> tuple[Value, Value]:
        """Return a chunk's row in shared memory and its number there, such that loads are coalesced."""
        if self.side.along_k and self.side.stride_k != 1:
            return piece % self.size, piece // self.size
        return piece // CHUNKS, piece % CHUNKS

    def _elements(self, place: Value, chunk: Value, source: Value, k: Index) -> list[Value]:
        side, f, zero = self.side, self.format, cg.constant(0, self.buffer.element)
        made = []
        for lane in range(f.chunk):
            within = chunk * f.chunk + lane
            if side.along_k:
                row, deep = self._first + place, within
            else:
                row, deep = self._first + place // f.depth * (CHUNKS * f.chunk) + within, place % f.depth
            inside = row.lt(side.extent) & (deep + k).lt(self.depth)
            at = cg.select(inside, source + row * side.stride + deep * side.stride_k, cg.index(0))
            made.append(cg.select(inside, cg.load(self.buffer, at), zero))
        return made

    def _words(self, elements: list[Value]) -> list[Value]:
        lanes = ir.VectorType.get([len(elements)], self.buffer.element)
        whole = vector.bitcast(cg.vector_of(4, i32()), vector.from_elements(lanes, [v.ssa for v in elements]))
        return [cg.extract(Value(whole), i) for i in range(4)]
