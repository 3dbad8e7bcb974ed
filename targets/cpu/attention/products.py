"""The two GEMMs of attention for a block of queries: scores into the workspace, then weights times values.

Both use a single register tile: rows beyond the last query repeat it and are not stored, columns beyond the last key or
feature go to the workspace's padding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial, reduce
from operator import or_
from typing import Any

import mlir.ir as ir
import numpy as np
from mlir.dialects import arith, vector
from mlir.dialects import math as math_ops

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.bodies import VectorBody
from stablexla.targets.codegen.conversion import load_converted
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import KernelArguments
from stablexla.targets.codegen.match.attention import Attention, AttentionOperand
from stablexla.targets.codegen.match.attention_mask import MaskBounds, masks_of
from stablexla.targets.codegen.sums.compensated import BLOCK, LONGEST_RUNNING_SUM
from stablexla.targets.cpu.contraction.micro_kernel import (
    PackedOperand,
    SumsDestination,
    call_micro_kernel,
    pack_operand,
)
from stablexla.targets.cpu.contraction.packing import PackedPanels, PackingSource
from stablexla.targets.cpu.contraction.register_tile import RegisterTile, accumulate
from stablexla.targets.cpu.contraction.strategy import MOST_BLOCKS
from stablexla.targets.cpu.shared import SharedFunctions

# Sums of fewer terms are computed where they are needed: a call takes a tenth of their time.
SHORT_SUMS = Gate("attention.short-sums", 64, eager=1)


def _unrolled(extent: int) -> int:
    """Return the unroll factor of k, a divisor of the extent, so that there is no remainder."""
    return next(u for u in (4, 3, 2, 1) if extent % u == 0)


@dataclass(frozen=True)
class AttentionWorkspace:
    """Layout of an item's workspace: offsets of its parts, in elements.

    Attributes:
        lanes, width: elements of a vector, and of a row of a packed panel of keys or values.
        stride: leading dimension of the scores.
        packed: whether keys and values are packed.
        largest: the largest absolute value of the batch, or NaN, if values are packed.
    """

    lanes: int
    width: int
    stride: int
    packed: bool
    scores: int
    weights: int
    totals: int
    keys: int
    values: int
    largest: int
    size: int

    @staticmethod
    def of(attention: Attention, tile: RegisterTile, rows: int, lanes: int, few: bool) -> AttentionWorkspace:
        """Lay out the workspace for blocks of `rows` queries."""
        width = tile.vectors * lanes
        stride = math.ceil(attention.keys / max(width, lanes)) * max(width, lanes)
        block = (math.ceil(rows / tile.rows) * tile.rows) * stride
        weights = 0 if attention.rows.shared else block
        totals = weights + block
        keys = totals + math.ceil(rows / 16) * 16
        panels = 0 if few else PackedPanels(width, attention.depth, lanes).size(math.ceil(attention.keys / width))
        values = keys + panels
        panels = 0 if few else PackedPanels(width, attention.keys, lanes).size(math.ceil(attention.width / width))
        largest = values + panels
        # Workspaces are aligned to cache lines.
        size = math.ceil((largest + 1) / 16) * 16
        return AttentionWorkspace(lanes, width, stride, not few, 0, weights, totals, keys, values, largest, size)


@dataclass(frozen=True)
class QueryBlock:
    """A block of queries: workspace of its item, batch indices, first query, and number of queries."""

    buffer: Value
    base: Value
    batch: Mapping[int, Value]
    start: Value
    rows: Value

    def of_batch(self, strides: Sequence[int]) -> Value:
        """Emit the batch's offset in an array."""
        total = cg.index(0)
        for d, position in self.batch.items():
            total = total + position * strides[d]
        return total

    def query(self, attention: Attention, number: Value) -> dict[int, Value]:
        """Emit the indices of the query loops for query `number`."""
        loops = attention.queries
        places = cg.split_index(number, [attention.rows.chain.nest.extents[d] for d in loops])
        return dict(zip(loops, places, strict=True))

    def queries(self, attention: Attention, first: Value, count: int) -> dict[int, tuple[Value, Value]]:
        """Emit bounds of the indices of the query loops for `count` queries from `first` on, clamped to the last."""
        nest, last = attention.rows.chain.nest, cg.index(attention.extent(attention.queries) - 1)
        ends = [self.query(attention, cg.minimum(self.start + first + n, last)) for n in (0, count - 1)]
        out, together = {}, cg.truth(True)
        for d in attention.queries:
            low, high = (end[d] for end in ends)
            # Where an outer index differs, an inner one runs over all of its loop.
            out[d] = (cg.select(together, low, cg.index(0)), cg.select(together, high, cg.index(nest.extents[d] - 1)))
            together = together & low.eq(high)
        return out

    def of_query(self, attention: Attention, strides: Sequence[int], number: Value) -> Value:
        """Emit a query's offset in an array from its batch."""
        total = cg.index(0)
        for d, position in self.query(attention, number).items():
            total = total + position * strides[d]
        return total


class _Product:
    """Common code of both GEMMs: converting operand loads, operand packing, and the micro-kernel."""

    def __init__(
        self,
        attention: Attention,
        tile: RegisterTile,
        space: AttentionWorkspace,
        arguments: KernelArguments,
        functions: SharedFunctions,
    ) -> None:
        self.attention, self.tile, self.space = attention, tile, space
        self.arguments, self.functions = arguments, functions
        self.lanes = space.lanes
        self.zero = cg.constant(0, cg.vector_of(space.lanes, attention.element))

    def reader(self, factor: AttentionOperand) -> Callable[..., Value]:
        """Return (address, lanes, count) -> loaded elements of an operand, converted."""
        buffer = self.arguments.inputs[factor.operand.number]

        def read(at: Index, lanes: int = 0, count: Index | None = None) -> Value:
            return load_converted(buffer, factor.operand.conversion, None, at, lanes, count)

        return read

    def pack_factor(
        self, place: QueryBlock, factor: AttentionOperand, to: int, across: tuple[int, int], along: tuple[int, int]
    ) -> None:
        """Pack an operand of one batch into panels; `across` and `along` the panels are (stride, extent)."""
        panels = PackedPanels(self.space.width, along[1], self.lanes)
        source = PackingSource(
            self.arguments.inputs[factor.operand.number],
            place.of_batch(factor.strides),
            across[0],
            along[0],
            cg.index(across[1]),
            cg.index(along[1]),
            deep=along[1] >= panels.square,
        )
        packed = PackedOperand(place.buffer, place.base + to)
        pack_operand(self.functions, panels, source, factor.operand.conversion, packed)

    def is_shared(self, depth: int, vectors: int) -> bool:
        """Return whether the micro-kernel of packed products computes a tile, if its rows are contiguous along k.

        It takes whole tiles, and long sums in blocks, whose errors are not kept.
        """
        return vectors == self.tile.vectors and SHORT_SUMS() <= depth <= MOST_BLOCKS() * BLOCK()

    def multiply_packed(
        self, left: PackedOperand, right: Value, steps: tuple[Index, int], rows: Index, to: SumsDestination
    ) -> None:
        """Call the micro-kernel of packed products, for a tile.

        Args:
            left: the rows, of which there are `rows`; the last stands for those that are not there.
            right: the offset of a packed panel in the workspace.
            steps: of k, and the most of them.
        """
        count, most = steps
        block = most if most <= LONGEST_RUNNING_SUM() else BLOCK()
        # Once at least: a tile may have no keys, and its sums are 0 then.
        with cg.loop(0, cg.maximum(cg.index(count), 1) if block < most else 1, block) as k:
            lhs = replace(left, at=k.iv + left.at)
            rhs = PackedOperand(self.arguments.scratch[0], k.iv * self.space.width + right)
            deep = cg.minimum(cg.index(count) - k.iv, block) if block < most else count
            out, size = replace(to, add=cg.minimum(k.iv, 1)), (rows, self.space.width)
            call_micro_kernel(self.functions, self.tile, lhs, rhs, deep, out, size, all_stored=True, is_near=True)

    def multiply(
        self,
        depth: int,
        rows: int,
        vectors: int,
        a: Callable[[Value, int], Value],
        b: Callable[[Value, int], Value],
        steps: Index | None = None,
    ) -> list[Value]:
        """Emit the micro-kernel: accumulate a(k, row) * b(k, vector) over `depth` steps, by outer products.

        `steps` is how many of them, a multiple of the unroll factor of `depth`; by default all.
        """
        tile = RegisterTile(rows, vectors)
        left, right = (lambda k, _, load=load: partial(load, k) for load in (a, b))
        return accumulate(self.zero, tile, depth if steps is None else steps, _unrolled(depth), left, right)


class ScoreProduct(_Product):
    """The first GEMM: scores of a block of queries. Tiles are left out where a mask of indices replaces all scores."""

    def __init__(self, attention: Attention, *given: Any) -> None:
        super().__init__(attention, *given)
        self.masks = masks_of(attention.rows.chain.nest, attention.rows.scores)

    def pack(self, place: QueryBlock) -> None:
        """Pack the keys of a batch into panels."""
        a = self.attention
        across, along = (a.k.strides[-1], a.keys), (a.k.inner, a.depth)
        self.pack_factor(place, a.k, self.space.keys, across, along)

    def write(self, place: QueryBlock) -> None:
        """Emit the block's scores into the workspace."""
        if self.space.packed:
            self._write_tiles(place)
        elif self.attention.k.inner == 1:
            self._write_dots(place)
        else:
            self._write_columns(place)

    def _rows(self, place: QueryBlock, first: Value) -> list[Value]:
        """Emit addresses of a tile's queries, clamped to the last query."""
        a = self.attention
        base, last = place.of_batch(a.q.strides), cg.index(a.extent(a.queries) - 1)
        numbers = [cg.minimum(place.start + first + r, last) for r in range(self.tile.rows)]
        return [base + place.of_query(a, a.q.strides, number) for number in numbers]

    def _write_tiles(self, place: QueryBlock) -> None:
        """Emit register tiles over packed keys; a panel stays in L1 for all queries of the block."""
        a, space, tile = self.attention, self.space, self.tile
        panels = PackedPanels(space.width, a.depth, self.lanes)
        tiles = (place.rows + (tile.rows - 1)) // tile.rows
        with cg.loop(0, math.ceil(a.keys / space.width)) as panel:
            packed = place.base + panel.iv * panels.stride + space.keys
            with cg.loop(0, tiles) as i, self._if_needed(place, i.iv, panel.iv):
                to = place.base + i.iv * (tile.rows * space.stride) + panel.iv * space.width + space.scores
                if self._is_even():
                    first = place.start + i.iv * tile.rows
                    line = place.of_batch(a.q.strides) + place.of_query(a, a.q.strides, first)
                    left = PackedOperand(self.arguments.inputs[a.q.operand.number], line, row=a.q.strides[a.queries[0]])
                    rows = cg.index(a.extent(a.queries)) - first
                    out = SumsDestination(place.buffer, to, space.stride)
                    self.multiply_packed(left, packed, (a.depth, a.depth), rows, out)
                else:
                    self._write_uneven(place, i.iv, packed, to)

    def _write_uneven(self, place: QueryBlock, number: Value, packed: Value, to: Value) -> None:
        """Emit a tile of scores, of queries wherever they lie."""
        a, space, tile = self.attention, self.space, self.tile
        lines, read = self._rows(place, number * tile.rows), self.reader(a.q)
        sums = self.multiply(
            a.depth,
            tile.rows,
            tile.vectors,
            lambda k, r: read(lines[r] + k * a.q.inner),
            lambda k, v: cg.load(place.buffer, packed + k * space.width + v * self.lanes, self.lanes),
        )
        for r in range(tile.rows):
            for v in range(tile.vectors):
                cg.store(sums[r * tile.vectors + v], place.buffer, to + (r * space.stride + v * self.lanes))

    def _is_even(self) -> bool:
        """Return whether queries are evenly spaced, and contiguous along features as they lie."""
        a = self.attention
        as_they_lie = a.q.inner == 1 and not a.q.operand.conversion
        return as_they_lie and len(a.queries) == 1 and self.is_shared(a.depth, self.tile.vectors)

    def _if_needed(self, place: QueryBlock, number: Value, panel: Value) -> AbstractContextManager[None]:
        """Emit the condition that a mask may keep a score of this tile."""
        nest, width = self.attention.rows.chain.nest, self.space.width
        if self.attention.keys <= width:
            return nullcontext()
        ranges = {d: (at, at) for d, at in place.batch.items()}
        ranges |= place.queries(self.attention, number * self.tile.rows, self.tile.rows)
        key = panel * width
        ranges[len(nest.extents) - 1] = (key, cg.minimum(key + (width - 1), self.attention.keys - 1))
        bounds = MaskBounds(nest, ranges)
        needed = [bounds.may_keep(mask) for mask in self.masks]
        known = [condition for condition in needed if condition is not None]
        return cg.when(reduce(or_, known)) if known and len(known) == len(needed) else nullcontext()

    def _write_dots(self, place: QueryBlock) -> None:
        """Emit dot products with unpacked keys along features: a key for each lane, then horizontal reductions."""
        a, lanes = self.attention, self.lanes
        queries, keys = self._rows(place, cg.index(0)), place.of_batch(a.k.strides)
        read_q, read_k = self.reader(a.q), self.reader(a.k)
        whole = a.depth // lanes * lanes

        def dots(first: Value, count: int) -> None:
            lines = [keys + (first + min(i, count - 1)) * a.k.strides[-1] for i in range(lanes)]
            for r in range(self.tile.rows):
                sums = [self.zero] * lanes
                if whole:
                    with cg.loop(0, whole, lanes, sums) as k:
                        left = self._along(read_q, queries[r], k.iv, None)
                        right = [read_k(line + k.iv, lanes) for line in lines]
                        k.yields(*(cg.fma(left, x, s) for x, s in zip(right, k.args, strict=True)))
                    sums = k.results
                if rest := a.depth - whole:
                    left = self._along(read_q, queries[r], cg.index(whole), rest)
                    sums = [
                        cg.fma(left, read_k(line + whole, lanes, rest), s) for line, s in zip(lines, sums, strict=True)
                    ]
                columns = cg.transpose_registers(sums)
                while len(columns) > 1:
                    columns = [x + y for x, y in zip(columns[::2], columns[1::2], strict=True)]
                cg.store(columns[0], place.buffer, place.base + first + (self.space.scores + r * self.space.stride))

        with cg.loop(0, a.keys // lanes * lanes, lanes) as j:
            dots(j.iv, lanes)
        if a.keys % lanes:
            dots(cg.index(a.keys // lanes * lanes), a.keys % lanes)

    def _along(self, read: Callable[..., Value], line: Value, k: Value, count: int | None) -> Value:
        """Load a vector of a query's features, from k on."""
        stride = self.attention.q.inner
        if stride == 1:
            return read(line + k, self.lanes, count)
        value = self.zero
        buffer = [read(line + (k + i) * stride) for i in range(count or self.lanes)]
        for i, element in enumerate(buffer):
            value = cg.insert(element, value, i)
        return value

    def _write_columns(self, place: QueryBlock) -> None:
        """Emit scores of unpacked keys that are not contiguous along features, vectorized over keys."""
        a, lanes, rows = self.attention, self.lanes, self.tile.rows
        queries, keys = self._rows(place, cg.index(0)), place.of_batch(a.k.strides)
        read_q, read_k = self.reader(a.q), self.reader(a.k)
        step = a.k.strides[-1]

        def right(k: Value, j: Value, count: int | None) -> Value:
            at = keys + k * a.k.inner + j * step
            if step == 1:
                return read_k(at, lanes, count)
            value = self.zero
            for i in range(count or lanes):
                value = cg.insert(read_k(at + i * step), value, i)
            return value

        def column(j: Value, count: int | None) -> None:
            sums = self.multiply(
                a.depth, rows, 1, lambda k, r: read_q(queries[r] + k * a.q.inner), lambda k, v: right(k, j, count)
            )
            for r, value in enumerate(sums):
                cg.store(value, place.buffer, place.base + j + (self.space.scores + r * self.space.stride))

        with cg.loop(0, a.keys // lanes * lanes, lanes) as j:
            column(j.iv, None)
        if a.keys % lanes:
            column(cg.index(a.keys // lanes * lanes), a.keys % lanes)


@dataclass(frozen=True)
class KeyRange:
    """The keys that a tile of rows multiplies: the first, and how many; None for all."""

    first: Index = 0
    count: Index | None = None


class ValueProduct(_Product):
    """The second GEMM: weights times values, into the result.

    Keys whose weights are 0 for all rows of a tile, at both ends of the rows, are left out where all values are finite.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.result = self.arguments.results[0]
        if self.space.packed:
            self._spill = cg.alloca(self.tile.rows * self.space.width, self.attention.element)

    def pack(self, place: QueryBlock) -> None:
        """Pack the values of a batch into panels."""
        a = self.attention
        self.pack_factor(place, a.v, self.space.values, (a.v.inner, a.width), (a.v.strides[-1], a.keys))
        if a.may_be_masked or a.rows.total is not None:
            self._note_largest(place)

    def _note_largest(self, place: QueryBlock) -> None:
        """Emit the largest absolute value of the packed values, NaN if one is."""
        a, space, lanes = self.attention, self.space, self.lanes
        size = PackedPanels(space.width, a.keys, lanes).size(math.ceil(a.width / space.width))
        start, vectors = place.base + space.values, space.width // lanes

        def larger(x: Value, y: Value) -> Value:
            return Value(arith.maximumf(x.ssa, y.ssa))

        with cg.loop(0, size, space.width, [self.zero] * vectors) as at:
            values = [cg.load(place.buffer, start + at.iv + v * lanes, lanes) for v in range(vectors)]
            at.yields(*(larger(most, Value(math_ops.absf(x.ssa))) for most, x in zip(at.args, values, strict=True)))
        most = cg.reduce(reduce(larger, at.results), vector.CombiningKind.MAXIMUMF)
        cg.store(most, place.buffer, place.base + space.largest)

    def divide_weights(self, place: QueryBlock) -> None:
        """Divide weights by their sums before they are multiplied, where the sum of the products could overflow."""
        a, space = self.attention, self.space
        if a.rows.total is None:
            return
        if not space.packed:
            self._divide_rows(place)
            return
        limit = float(np.finfo(f"f{cg.bits_of(a.element) // 8}").max) / (2 * a.keys)
        safe = cg.load(place.buffer, place.base + space.largest).lt(limit)
        with cg.when(safe ^ 1):
            self._divide_rows(place)

    def _divide_rows(self, place: QueryBlock) -> None:
        """Divide each row of the block by its sum, which is 1 then."""
        a, space, lanes = self.attention, self.space, self.lanes
        with cg.loop(0, place.rows) as row:
            at = place.base + space.totals + row.iv
            total = cg.splat(cg.load(place.buffer, at), lanes)
            first = place.base + space.weights + row.iv * space.stride
            with cg.loop(first, first + math.ceil(a.keys / lanes) * lanes, lanes) as key:
                cg.store(cg.load(place.buffer, key.iv, lanes) / total, place.buffer, key.iv)
            cg.store(cg.constant(1.0, a.element), place.buffer, at)

    def write(self, place: QueryBlock) -> None:
        """Emit the block's rows of the result."""
        a, width = self.attention, self.space.width
        whole = a.width // width
        if self.space.packed:
            with cg.loop(0, (place.rows + (self.tile.rows - 1)) // self.tile.rows) as i:
                keys = self._weighted(place, i.iv) if a.may_be_masked else KeyRange()
                if whole:
                    with cg.loop(0, whole) as panel:
                        self._tile(place, i.iv, panel.iv, width, keys)
                if a.width % width:
                    self._tile(place, i.iv, cg.index(whole), a.width % width, keys)
            return
        if whole:
            with cg.loop(0, whole) as panel:
                self._tile(place, cg.index(0), panel.iv, width, KeyRange())
        if a.width % width:
            self._tile(place, cg.index(0), cg.index(whole), a.width % width, KeyRange())

    def _weights(self, place: QueryBlock, number: Value) -> Value:
        """Return the address of the first weight of a tile of rows."""
        return place.base + number * (self.tile.rows * self.space.stride) + self.space.weights

    def _weighted(self, place: QueryBlock, number: Value) -> KeyRange:
        """Emit the range of the keys with weights other than 0 in a tile of rows; all keys if a value is not finite."""
        a, lanes = self.attention, self.lanes
        step = math.lcm(lanes, _unrolled(a.keys))
        line, none, every = self._weights(place, number), cg.index(0), cg.index(a.keys)

        def widened(at: Value, count: int, first: Value, end: Value) -> tuple[Value, Value]:
            """Widen the range by the block of `count` keys from `at` on, if it has any weight."""
            found = self._bits(place, line + at, count)
            has_weight = cg.reduce(found, vector.CombiningKind.OR).ne(0)
            return cg.select(has_weight & end.eq(0), at, first), cg.select(has_weight, at + count, end)

        largest = cg.load(place.buffer, place.base + self.space.largest)
        finite = cg.branch(largest.lt(math.inf), [none.type] * 2)
        with finite.then:
            found = [none, none]
            if whole := a.keys // step * step:
                with cg.loop(0, whole, step, found) as k:
                    k.yields(*widened(k.iv, step, *k.args))
                found = k.results
            if a.keys % step:
                found = list(widened(cg.index(whole), a.keys % step, *found))
            finite.yields(*found)
        with finite.otherwise:
            finite.yields(none, every)
        first, end = finite.results
        return KeyRange(first, end - first)

    def _bits(self, place: QueryBlock, start: Value, count: int) -> Value:
        """Emit the bits that any of `count` weights of a tile's rows has, in a vector; only 0.0 has none."""
        integer = ir.IntegerType.get_signless(cg.bits_of(self.attention.element))
        words = [
            cg.bitcast(
                cg.load_lanes(place.buffer, start + (r * self.space.stride + at), self.lanes, count - at), integer
            )
            for r in range(self.tile.rows)
            for at in range(0, count, self.lanes)
        ]
        return reduce(or_, words)

    def _tile(self, place: QueryBlock, number: Value, panel: Value, columns: int, keys: KeyRange) -> None:
        a, space, rows = self.attention, self.space, self.tile.rows
        vectors = math.ceil(columns / self.lanes)
        weights = self._weights(place, number) + keys.first
        if space.packed and self.is_shared(a.keys, vectors):
            left = PackedOperand(place.buffer, weights, row=space.stride)
            right = self._packed_values(place, panel, keys.first)
            steps = a.keys if keys.count is None else keys.count
            self.multiply_packed(left, right, (steps, a.keys), rows, SumsDestination(self._spill, 0, space.width))
            self._write_rows(place, number, panel, columns)
            return
        sums = self.multiply(
            a.keys,
            rows,
            vectors,
            lambda k, r: cg.load(place.buffer, weights + k + r * space.stride),
            self._values(place, panel, columns, keys.first),
            keys.count,
        )
        lines = [sums[r * vectors : (r + 1) * vectors] for r in range(rows)]
        if not space.packed:
            for r, line in enumerate(lines):
                self._write_row(place, number * rows + r, panel, columns, line)
            return
        for r, line in enumerate(lines):
            for v, value in enumerate(line):
                cg.store(value, self._spill, r * space.width + v * self.lanes)
        self._write_rows(place, number, panel, columns)

    def _write_rows(self, place: QueryBlock, number: Value, panel: Value, columns: int) -> None:
        """Emit the rows of a tile that there are, from its spilled sums."""
        lanes, first = self.lanes, number * self.tile.rows
        with cg.loop(0, cg.minimum(place.rows - first, self.tile.rows)) as r:
            at = r.iv * self.space.width
            line = [cg.load(self._spill, at + v, lanes) for v in range(0, columns, lanes)]
            self._write_row(place, first + r.iv, panel, columns, line)

    def _packed_values(self, place: QueryBlock, panel: Value, first: Index) -> Value:
        """Return the offset of a key's packed values, `first`, in the workspace."""
        panels = PackedPanels(self.space.width, self.attention.keys, self.lanes)
        return place.base + panel * panels.stride + self.space.values + cg.index(first) * self.space.width

    def _values(self, place: QueryBlock, panel: Value, columns: int, first: Index) -> Callable[[Value, int], Value]:
        """Return the loads of a key's values, `first` and following: from packed panels, or in place."""
        a, space, lanes = self.attention, self.space, self.lanes
        if space.packed:
            packed = self._packed_values(place, panel, first)
            return lambda k, v: cg.load(place.buffer, packed + k * space.width + v * lanes, lanes)
        read = self.reader(a.v)
        start = place.of_batch(a.v.strides) + panel * (space.width * a.v.inner)

        def value(k: Value, v: int) -> Value:
            at, count = start + k * a.v.strides[-1], min(lanes, columns - v * lanes)
            if a.v.inner == 1:
                return read(at + v * lanes, lanes, count)
            made = self.zero
            for i in range(count):
                made = cg.insert(read(at + (v * lanes + i) * a.v.inner), made, i)
            return made

        return value

    def _write_row(self, place: QueryBlock, row: Value, panel: Value, columns: int, sums: Sequence[Value]) -> None:
        a, lanes, space = self.attention, self.lanes, self.space
        to = place.of_batch(a.out) + place.of_query(a, a.out, place.start + row)
        to = to + panel * (space.width * a.out_inner)
        factor = None
        if a.rows.total is not None:
            total = cg.load(place.buffer, place.base + row + space.totals)
            factor = cg.splat(cg.constant(1.0, a.element) / total, lanes)
        for v, value in enumerate(sums):
            made = value if factor is None else value * factor
            for body in a.after:
                (made,) = VectorBody(body, lanes).on([made])
            count = min(lanes, columns - v * lanes)
            if a.out_inner == 1:
                cg.store_lanes(made, self.result, to + v * lanes, count)
                continue
            for i in range(count):
                cg.store(cg.extract(made, i), self.result, to + (v * lanes + i) * a.out_inner)
