"""Contractions whose k is short enough for a single block: accumulators stay in registers for all of it.

Operands are read in place, or rhs is packed once an item. The sums of some rows by a panel of columns are a function
of the library, which stores them to the result, or to a buffer for the epilogue; where there are many and each takes
hardly longer than its call, they have code in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.conversion import Conversion, load_converted
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction, ContractionAxis
from stablexla.targets.codegen.match.epilogue import (
    BatchFrame,
    ContractionScene,
    accumulator_type,
    stores_sums,
    stores_vectors,
)
from stablexla.targets.codegen.sums.compensated import LONGEST_RUNNING_SUM
from stablexla.targets.cpu.contraction.micro_kernel import PackedOperand, pack_operand
from stablexla.targets.cpu.contraction.packing import PackedPanels, PackingSource
from stablexla.targets.cpu.contraction.register_tile import (
    INLINE_EPILOGUE,
    OuterAxis,
    OuterReduction,
    RegisterTile,
    accumulate,
    contraction_grain,
    store_tile,
)
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions

# Multiply-adds of a product from which on sums are a function of the library, if k has this depth (a quarter of it
# where sums are stored as they are; others are stored and loaded once more for the epilogue); and those of all products
# of a batch up to which they are one anyway.
CALLED_WORK = Gate("contraction.called-work", 16 << 10, eager=1)
CALLED_DEPTH = Gate("contraction.called-depth", 128, eager=1)
LIBRARY_WORK = Gate("contraction.library-work", 64 << 10, eager=1)
# Bytes of the spill buffer between the micro-kernel and the epilogue, which stays in L1 beside the operands.
SUMS_BYTES = Gate("contraction.sums-bytes", 4 << 10, eager=64)
# The most rows of a tile in place, whose distances are part of its instructions; those of a function's tile, whose
# addresses stay in registers; and sums up to which an iteration has two steps of k.
MOST_ROWS = 14
MOST_CALLED_ROWS = 12
FEW_SUMS = 8


@dataclass(frozen=True)
class ShortPlan:
    """Blocking of a contraction of short k.

    Attributes:
        tile: the register tile, of at most the product's rows.
        row_tiles, columns: row tiles and columns of an item.
        pack: whether rhs is packed.
        called: whether sums are functions of the library.
    """

    tile: RegisterTile
    row_tiles: int
    columns: int
    pack: bool
    called: bool


def choose_register_tile(rows: int, columns: int, lanes: int, registers: int, *, called: bool = False) -> RegisterTile:
    """Choose the register tile of the fewest cycles for a product of this size; the last tile of rows overlaps.

    With `called` it is a function's.
    """

    def cycles(tile: RegisterTile) -> float:
        def one(r: int, v: int) -> float:
            # Two FMAs a cycle, at least eight in flight; each row needs a broadcast, each vector of rhs a load.
            return max(r * v / 2, 4.0, 0.7 * (r + v)) + 0.1 * r + 0.3 * v if r and v else 0.0

        across, side = divmod(math.ceil(columns / lanes), tile.vectors)
        tiles = math.ceil(rows / tile.rows)
        # Code of every tile size costs compile time.
        return tiles * (one(tile.rows, tile.vectors) * across + one(tile.rows, side)) * (1 + 0.02 * bool(side))

    of_rows: Sequence[int] = range(1, min(MOST_CALLED_ROWS if called else MOST_ROWS, rows) + 1)
    candidates = [RegisterTile(r, v) for v in (1, 2, 3, 4) for r in of_rows if r * v + v < registers]
    return min(candidates, key=lambda tile: (round(cycles(tile), 3), -tile.vectors, tile.rows))


def sums_by_calls(c: Contraction, lanes: int, registers: int) -> bool:
    """Return whether a product's sums are functions of the library.

    But for small products those of a vector of columns are not, nor those of tiles of 16 registers: such sums wait for
    loads and addresses, of which code in place has fewer.
    """
    depth = c.depth
    if depth > LONGEST_RUNNING_SUM():
        return False  # of known extents it takes fewer compensated blocks
    work = c.m.extent * c.n.extent * depth
    deep = depth * (4 if is_straight(c) else 1) >= CALLED_DEPTH()
    wide = c.n.extent > lanes and registers >= 32
    return c.batches * work <= LIBRARY_WORK() or (deep and work >= CALLED_WORK() and wide)


def is_straight(c: Contraction) -> bool:
    """Return whether sums are vectors of the result as they are."""
    return stores_vectors(c) and stores_sums(c, accumulator_type(c))


def emit_short(kernel: Kernel, contraction: Contraction, target: CpuTarget, plan: ShortPlan) -> Emitted:
    """Emit a contraction whose accumulators stay in registers for all of k."""
    c = contraction
    row_blocks = max(1, math.ceil(math.ceil(c.m.extent / plan.tile.rows) / plan.row_tiles))
    column_blocks = math.ceil(c.n.extent / plan.columns)
    with kernel.phase(target, unroll=False) as arguments:
        blocks = row_blocks, column_blocks
        short = _Short(ContractionScene(c, arguments), plan, SharedFunctions(kernel, target), blocks)
        with arguments.split_items([c.batches, column_blocks, row_blocks]) as place:
            short.item(*place)
    items = c.batches * row_blocks * column_blocks
    return Emitted(items, contraction_grain(c, items), in_place=c.in_place)


@dataclass(frozen=True)
class _Operands:
    """Where rows of lhs and a panel of rhs lie: buffers, offsets of the first elements, and strides."""

    a: Value
    b: Value
    a_at: Index
    a_m: Index
    a_k: Index
    b_at: Index
    b_k: Index


@dataclass(frozen=True)
class _SumRows(SharedFunction):
    """The sums of rows by a panel of columns, over all of k, stored row by row.

    Attributes:
        tile: the register tile; the last one overlaps the one before.
        last: lanes of the last vector that are columns of the panel; None for a number that is an argument.
        spills: whether sums go to a spill buffer, which has room for whole vectors: stale lanes there could be
            denormals, which are slow, and loads cannot be forwarded from masked stores.
        lhs: the stride of lhs that is 1, "k" or "m", or "" for none.
        conversions: of the operands' elements to the type of the sums.
        outer: outer axes of k.
        unroll: steps of k of an iteration.
    """

    rolled = True
    tile: RegisterTile
    last: int | None
    spills: bool
    lhs: str
    conversions: tuple[Conversion, Conversion]
    outer: int
    unroll: int

    @property
    def name(self) -> str:
        last = "" if self.last is None else f"_of_{self.last}"
        steps = "_".join(step.name for steps in self.conversions for step in steps).replace(".", "_")
        flags = "_spill" * self.spills + f"_{self.outer}_{self.unroll}"
        return f"stablexla_sum_rows_{self.tile.rows}x{self.tile.vectors}{last}_{self.lhs}{flags}_{steps}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        a, b, out = buffers
        rows, steps, last, at, stride, *of_operands = numbers
        operands, of_outer = _Operands(a, b, *of_operands[:5]), of_operands[5:]
        if self.lhs == "k":
            operands = replace(operands, a_k=1)
        elif self.lhs == "m":
            operands = replace(operands, a_m=1)
        outer = [OuterAxis(*of_outer[n : n + 3]) for n in range(0, 3 * self.outer, 3)]
        lanes, vectors = cg.lanes_of(out.element), self.tile.vectors
        count = last if self.last is None else cg.index(self.last)

        def store(row: Value, values: Sequence[Value]) -> None:
            for number, value in enumerate(values):
                r, v = divmod(number, vectors)
                place = (row + r) * stride + at + v * lanes
                cg.store_lanes(value, out, place, count if v == vectors - 1 and not self.spills else lanes)

        self.write(operands, (rows, steps, count), outer, out.element, store, most=0)

    def write(
        self,
        of: _Operands,
        size: tuple[Index, Index, Index],
        outer: Sequence[ContractionAxis | OuterAxis],
        compute: ir.Type,
        store: Callable[[Value, Sequence[Value]], None],
        most: int | None = None,
    ) -> None:
        """Emit the loop over tiles of (rows, steps of k, lanes of the last vector); `store` has a tile's row and sums.

        `most` is that of the loops along k, see `cg.loop`.
        """
        (rows, steps, last), tile, lanes = size, self.tile, cg.lanes_of(compute)
        of_a, of_b = self.conversions
        zero = cg.constant(0, cg.vector_of(lanes, compute))
        with cg.loop(0, rows, tile.rows) as i:
            row = cg.minimum(i.iv, cg.index(rows) - tile.rows)
            start, down = row * of.a_m + of.a_at, [cg.index(of.a_m) * r for r in range(tile.rows)]
            # Known distances of rows are part of the instructions, others stay in registers with the rows' offsets.
            starts = None if cg.known(down[-1]) is not None else [start + distance for distance in down]

            def left(
                k: Index, offset: Index, start: Value = start, starts: list[Value] | None = starts
            ) -> Callable[[int], Value]:
                at = cg.index(k) * of.a_k + offset
                if starts is None:
                    at, starts = at + start, down
                places = [at + place for place in starts]
                return lambda r: load_converted(of.a, of_a, compute, places[r])

            def right(k: Index, offset: Index) -> Callable[[int], Value]:
                at = cg.index(k) * of.b_k + (cg.index(of.b_at) + offset)

                def vector(v: int) -> Value:
                    return load_converted(
                        of.b, of_b, compute, at + v * lanes, lanes, last if v == tile.vectors - 1 else None
                    )

                return vector

            store(row, accumulate(zero, tile, steps, self.unroll, left, right, outer, most))


class _Short:
    """Code of one work item: a block of rows by a block of columns of one product."""

    def __init__(
        self, scene: ContractionScene, plan: ShortPlan, functions: SharedFunctions, blocks: tuple[int, int]
    ) -> None:
        self.scene, self.plan, self.functions = scene, plan, functions
        self.row_blocks, self.column_blocks = blocks
        self.c = c = scene.contraction
        tile = plan.tile
        self.width, self.rows = tile.vectors * scene.lanes, min(plan.row_tiles * tile.rows, c.m.extent)
        self.straight = is_straight(c)
        self.chunk = tile.rows
        if plan.called and not self.straight:
            most = SUMS_BYTES() // (self.width * cg.bits_of(scene.compute) // 8) // tile.rows * tile.rows
            self.chunk = min(max(tile.rows, most), self.rows)
        if not (plan.called and self.straight):
            self.sums = cg.alloca(self.chunk * self.width, scene.compute)
        self.panels = PackedPanels(self.width, c.depth, scene.lanes)
        if plan.pack:
            count = math.ceil(min(plan.columns, c.n.extent) / self.width)
            self.packed = cg.alloca(self.panels.size(count), scene.compute)

    def item(self, batch: Index, column_block: Index, row_block: Index) -> None:
        frame = self.scene.frame(batch)
        first = cg.index(column_block) * self.plan.columns
        columns = cg.minimum(self.plan.columns, cg.index(self.c.n.extent) - first)
        if self.plan.pack:
            self._pack(frame, first, columns)
        whole = columns // self.width
        if self.c.n.extent >= self.width:
            with cg.loop(0, whole) as j:
                self._column(frame, row_block, first, j.iv, self.width)
        rest = self.c.n.extent % self.width
        if rest:
            with _at_last(column_block, self.column_blocks):
                self._column(frame, row_block, first, whole, rest)

    def _pack(self, frame: BatchFrame, first: Index, columns: Index) -> None:
        c, scene = self.c, self.scene
        axes = [OuterAxis(x.extent, size, x.b) for x, size in self._outer]
        with OuterReduction(axes, 0, cg.index(first) * c.n.b + frame.b) as nest:
            b, deep = scene.inputs[c.b.number], c.k.extent >= self.panels.square
            source = PackingSource(b, nest.at_b, c.n.b, c.k.b, columns, c.k.extent, deep=deep)
            to = PackedOperand(self.packed, nest.at_a * self.width)
            pack_operand(self.functions, self.panels, source, c.b.conversion, to)

    @property
    def _outer(self) -> list[tuple[ContractionAxis, int]]:
        """The outer axes of k, with the steps of k of each in a packed panel."""
        outer = self.c.k_outer
        return [(x, self.c.k.extent * math.prod(y.extent for y in outer[n + 1 :])) for n, x in enumerate(outer)]

    def _column(self, frame: BatchFrame, row_block: Index, first: Index, panel: Index, columns: int) -> None:
        """Emit the rows of a block over one panel of columns."""
        scene, extent, rows = self.scene, self.c.m.extent, self.plan.tile.rows
        column = cg.index(panel) * self.width + first
        start = cg.index(row_block) * self.rows
        end = cg.minimum(start + self.rows, extent)
        if self.c.in_place and not self.plan.called:
            # No row may go twice through an epilogue that updates its input in place: the last have a tile of theirs.
            whole = extent - extent % rows
            self._sum(frame, start, cg.minimum(end, whole) - start, panel, column, columns)
            if whole < extent:
                with _at_last(row_block, self.row_blocks):
                    self._sum(frame, cg.index(whole), cg.index(extent % rows), panel, column, columns)
            return
        if not self.plan.called or self.straight:
            begin = cg.minimum(start, extent - rows)
            self._sum(frame, begin, end - begin, panel, column, columns)
            return
        with cg.loop(start, end, self.chunk) as piece:
            stop, begin = cg.minimum(piece.iv + self.chunk, end), cg.minimum(piece.iv, extent - rows)
            self._sum(frame, begin, stop - begin, panel, column, columns)
            size, base = (stop - piece.iv, columns), (piece.iv - begin) * self.width
            if scene.vectors and self.c.epilogue_length <= INLINE_EPILOGUE:
                scene.write_rows(self.sums, self.plan.tile.vectors, frame, size, (piece.iv, column), base=base)
            else:
                scene.write_block(self.sums, self.width, frame, size, (piece.iv, column), base=base)

    def _sum(self, frame: BatchFrame, row: Value, rows: Value, panel: Index, column: Value, columns: int) -> None:
        """Emit the sums of some rows by a panel of columns: a call, or code in place that stores them to the result."""
        c, scene, lanes = self.c, self.scene, self.scene.lanes
        known = cg.known(rows)
        of_tile = self.plan.tile.rows if known is None else min(int(known), self.plan.tile.rows)
        tile = RegisterTile(of_tile, math.ceil(columns / lanes))
        last = columns - (tile.vectors - 1) * lanes
        a, b = (scene.inputs[x.number] for x in (c.a, c.b))
        at = row * c.m.a + frame.a
        if self.plan.pack:
            of = _Operands(a, self.packed, at, c.m.a, c.k.a, cg.index(panel) * self.panels.stride, self.width)
            outer = [OuterAxis(x.extent, x.a, size * self.width) for x, size in self._outer]
        else:
            of = _Operands(a, b, at, c.m.a, c.k.a, column * c.n.b + frame.b, c.k.b)
            outer = [OuterAxis(x.extent, x.a, x.b) for x in c.k_outer]
        exact = last == lanes or not all(cg.has_masks(x) for x in (of.b.element, scene.compute))
        conversions = c.a.conversion, () if self.plan.pack else c.b.conversion
        lhs = "k" if c.k.a == 1 else "m" if c.m.a == 1 else ""
        unroll = 2 if c.k.extent % 2 == 0 and tile.rows * tile.vectors <= FEW_SUMS else 1
        spec = _SumRows(tile, last if exact else None, not self.straight, lhs, conversions, len(outer), unroll)
        if not self.plan.called:

            def store(first: Value, sums: Sequence[Value]) -> None:
                store_tile(scene, tile, sums, frame, (first + row, column), columns, self.sums)

            spec.write(of, (rows, c.k.extent, last), outer, scene.compute, store)
            return
        to, place, stride = (
            (scene.results[0], row * c.m.c + frame.c + column, c.m.c)
            if self.straight
            else (self.sums, cg.index(0), self.width)
        )
        numbers: list[Index] = [rows, c.k.extent, last, place, stride, of.a_at, of.a_m, of.a_k, of.b_at, of.b_k]
        numbers += [n for axis in outer for n in (axis.extent, axis.a, axis.b)]
        self.functions.call(spec, [of.a, of.b, to], numbers)


def _at_last(block: Index, blocks: int) -> AbstractContextManager[None]:
    """Return a guard whose body runs in the last block only."""
    return cg.when(cg.index(block).eq(blocks - 1)) if blocks > 1 else nullcontext()
