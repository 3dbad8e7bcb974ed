"""Asynchronous copies (cp.async, 16 bytes) of a factor's tile into shared memory, XOR-swizzled against bank conflicts.

A tile is made of panels of rows of 128 bytes. Contiguous along k: one panel, a row for each row of the product, and k
in it. Else: panels of rows of the product, a row for each k. In row r, chunk c of 16 bytes is stored at c ^ (r % 8),
which is `wgmma`'s 128-byte swizzle; for registers that are loaded one by one, at c ^ (2 * r % 8).
"""

from __future__ import annotations

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.gpu.contraction.mma_formats import CHUNK_BYTES, ROW_BYTES, MmaFormat
from stablexla.targets.gpu.contraction.mma_plan import MmaOperand
from stablexla.targets.gpu.ptx.inline_ptx import copy_async, extend_to_i64, i32, truncate_to_i32
from stablexla.targets.gpu.threads import thread_index

CHUNKS = ROW_BYTES // CHUNK_BYTES
_FARTHEST = 1 << 30


def swizzles_pairs(side: MmaOperand, format_: MmaFormat) -> bool:
    """Return whether chunks are swizzled in pairs, for registers that are loaded one by one."""
    return format_.bytes == 8 or (format_.bytes == 4 and not side.along_k)


@dataclass
class TileLoader:
    """One thread's share of the copies of one factor's tiles.

    Attributes:
        buffer: the factor.
        size: rows, or columns, of the tile.
        threads: of the block.
        depth: elements along k of the whole product.
        whole: no tile has a remainder along k.
    """

    side: MmaOperand
    format: MmaFormat
    buffer: Value
    size: int
    threads: int
    depth: int
    whole: bool

    def start(self, base: Index, first: Value, k: Index) -> None:
        """Compute the source of the thread's first chunk, for the tile that begins at row `first` and at `k`.

        `base`: where the product's factor begins in the buffer.
        """
        f, me = self.format, thread_index()
        place, chunk = me // CHUNKS, me % CHUNKS
        swapped = (place * 2 if swizzles_pairs(self.side, f) else place) % CHUNKS
        self._to = truncate_to_i32(place * ROW_BYTES + (chunk ^ swapped) * CHUNK_BYTES)
        if self.side.along_k:
            row, self._k = first + place, chunk * f.chunk
            at = row * self.side.stride + self._k
            insides = [row + step for step, _ in self._steps()]
        else:
            panel, self._k = place // f.depth, place % f.depth
            row = first + panel * (CHUNKS * f.chunk) + chunk * f.chunk
            at = row + self._k * self.side.stride_k
            insides = [row + step for step, _ in self._steps()]
        self.source = cg.address(self.buffer) + (at + cg.index(base) + cg.index(k) * self.side.stride_k) * f.bytes
        even = self.side.extent % self.size == 0
        full, none = cg.constant(CHUNK_BYTES, i32()), cg.constant(0, i32())
        self._sizes = [None if even else cg.select(r.lt(self.side.extent), full, none) for r in insides]

    def _steps(self) -> list[tuple[int, int]]:
        """Return each chunk's distance from the thread's first one along the product's rows, and along k."""
        rows = self.threads // CHUNKS
        numbers = [i * rows for i in range(self.size * CHUNKS // self.threads)]
        if self.side.along_k:
            return [(n, 0) for n in numbers]
        depth = self.format.depth
        return [(n // depth * CHUNKS * self.format.chunk, n % depth) for n in numbers]

    @property
    def unit(self) -> int:
        """Stride of an element in a source."""
        return self.format.bytes

    @property
    def advance(self) -> int:
        """Return the bytes from one stage's source to the next."""
        return self.format.depth * self.side.stride_k * self.format.bytes

    def issue(self, to: Value, to_offset: int, source: Value, k: Index) -> None:
        """Issue the copies of the stage that begins at `k` to address `to`; `source`: of the first chunk."""
        side, f = self.side, self.format
        place = to + self._to
        from_ = extend_to_i64(source)
        rows = self.threads // CHUNKS
        for i, (row, deep) in enumerate(self._steps()):
            offset = (row * side.stride + deep * side.stride_k) * f.bytes
            size = self._sizes[i]
            if not self.whole:
                inside = (cg.index(k) + self._k + deep).lt(self.depth)
                full = cg.constant(CHUNK_BYTES, i32()) if size is None else size
                size = cg.select(inside, full, cg.constant(0, i32()))
            here, rest = (extend_to_i64(source + offset), 0) if offset >= _FARTHEST else (from_, offset)
            copy_async(place, to_offset + i * rows * ROW_BYTES, here, rest, size)
