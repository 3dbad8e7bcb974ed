"""Asynchronous copies (cp.async, 16 bytes) of a factor's tile into shared memory, XOR-swizzled against bank conflicts.

A tile is made of panels of rows of 128 bytes. Contiguous along k: one panel, a row for each row of the product, and k
in it. Else: panels of rows of the product, a row for each k. In row r, chunk c of 16 bytes is stored at c ^ (r % 8),
which is `wgmma`'s 128-byte swizzle; for registers that are loaded one by one, at c ^ (2 * r % 8).

Where rows are not aligned to 16 bytes, or are transposed, tiles are loaded element by element. These loads are
unpredicated, without branches, so that all are in flight together.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import vector

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.gpu.contraction.mma_formats import CHUNK_BYTES, ROW_BYTES, MmaFormat
from stablexla.targets.gpu.contraction.mma_plan import MmaOperand
from stablexla.targets.gpu.ptx.inline_ptx import copy_async, extend_to_i64, i32, store_shared, truncate_to_i32
from stablexla.targets.gpu.threads import thread_index

CHUNKS = ROW_BYTES // CHUNK_BYTES
_FARTHEST = 1 << 30


def swizzles_pairs(side: MmaOperand, format_: MmaFormat) -> bool:
    """Return whether chunks are swizzled in pairs, for registers that are loaded one by one."""
    return format_.bytes == 8 or (format_.bytes == 4 and not side.along_k)


def thread_chunk() -> tuple[Value, Value]:
    """Return the row of a tile, and the chunk in it, that are this thread's first."""
    me = thread_index()
    return me // CHUNKS, me % CHUNKS


def swizzled(row: Value, chunk: Value, key: Value) -> Value:
    """Return the 32-bit offset of a row's chunk in a panel, which is swizzled by `key`, a number of a chunk."""
    return truncate_to_i32(row * ROW_BYTES + (chunk ^ key) * CHUNK_BYTES)


def copy_chunk(
    to: Value, place: Value, offset: int, buffer: Value, at: Value, bytes_: int, inside: Value | None
) -> None:
    """Issue the copy of 16 bytes, from element `at` of the array at address `buffer`; zeros where not `inside`."""
    size = None
    if inside is not None:
        at = cg.select(inside, at, cg.index(0))
        size = cg.select(inside, cg.constant(CHUNK_BYTES, i32()), cg.constant(0, i32()))
    source = extend_to_i64(buffer + at * bytes_)
    copy_async(to + place, offset, source, 0, size)


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
        f, (place, chunk) = self.format, thread_chunk()
        self._to = swizzled(place, chunk, self._key(place))
        if self.side.along_k:
            row, self._k = first + place, chunk * f.chunk
            at = row * self.side.stride + self._k
        else:
            panel, self._k = place // f.depth, place % f.depth
            row = first + panel * (CHUNKS * f.chunk) + chunk * f.chunk
            at = row + self._k * self.side.stride_k
        insides = [row + step for step, _ in self._steps()]
        self.source = cg.address(self.buffer) + (at + cg.index(base) + cg.index(k) * self.side.stride_k) * f.bytes
        even = self.side.extent % self.size == 0
        full, none = cg.constant(CHUNK_BYTES, i32()), cg.constant(0, i32())
        self._sizes = [None if even else cg.select(r.lt(self.side.extent), full, none) for r in insides]

    def _key(self, place: Value) -> Value:
        """Return what a row's chunks are swizzled by."""
        return (place * 2 if swizzles_pairs(self.side, self.format) else place) % CHUNKS

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
            key, words = self._key(place), self._words(self._elements(place, chunk, source, k))
            store_shared(words, to + swizzled(place, chunk, key) + to_offset)

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
