"""Register-tile micro-kernel: accumulators in vector registers over a loop along k, and their epilogue and stores.

Also contractions whose k is short enough for a single block: operands are read in place, or rhs is packed once an item,
and remainder tiles have code of their exact size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction, ContractionAxis
from stablexla.targets.codegen.match.epilogue import COMPLETE_SUM, BatchFrame, ContractionScene, ResultSpan, SumState
from stablexla.targets.cpu.contraction.dot_instructions import broadcast_group
from stablexla.targets.cpu.contraction.packing import PackedPanels, PackingSource, pack_panels

# Loads of an operand at step k, given the offset that outer loops over k add: (k, offset) -> (row or vector) -> value.
OperandLoads = Callable[[Index, Index], Callable[[int], Value]]
# An epilogue of more operations than this is emitted once in a loop over the tile's rows, not unrolled for every
# register. Large products count an elementary function by its expansion (`epilogue_size`); products of short k count it
# once (`epilogue_length`), for there the loop's constants and each function's latency cost more than the sums: 64x64x64
# with tanh takes 2.5 times as long that way (loop-products-64 of benchmarks/).
INLINE_EPILOGUE = 6


@dataclass(frozen=True)
class RegisterTile:
    """Size of a register (accumulator) tile: rows, and vectors a row."""

    rows: int
    vectors: int


class OuterReduction:
    """Loop nest over the outer axes of k that carries accumulators: `with OuterSums(...) as nest: ...`."""

    def __init__(self, axes: Sequence[ContractionAxis], at_a: Index, at_b: Index, inits: Sequence[Value] = ()) -> None:
        self._axes, self.at_a, self.at_b = axes, cg.index(at_a), cg.index(at_b)
        self._loops: list[cg.loop] = []
        self.sums = list(inits)
        self.results: list[Value] = []

    def __enter__(self) -> OuterReduction:
        for axis in self._axes:
            nested = cg.loop(0, axis.extent, 1, self.sums)
            nested.__enter__()
            self._loops.append(nested)
            self.at_a, self.at_b = nested.iv * axis.a + self.at_a, nested.iv * axis.b + self.at_b
            self.sums = nested.args
        self.results = self.sums
        return self

    def yields(self, *sums: Value) -> None:
        """Set the accumulators after the innermost body."""
        self.results = list(sums)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for nested in reversed(self._loops):
            if kind is None:
                nested.yields(*self.results)
            nested.__exit__(kind, error, trace)
            self.results = nested.results if kind is None else []


def accumulate(
    zero: Value,
    tile: RegisterTile,
    extent: Index,
    unroll: int,
    a: OperandLoads,
    b: OperandLoads,
    outer: Sequence[ContractionAxis] = (),
) -> list[Value]:
    """Emit a tile's accumulation from `zero` over `extent` steps of k (a multiple of `unroll`) and the outer axes."""
    with OuterReduction(outer, 0, 0, [zero] * (tile.rows * tile.vectors)) as nest:
        with cg.loop(0, extent, unroll, nest.sums) as k:
            values = k.args
            for step in range(unroll):
                at = k.iv + step
                values = multiply_add(tile, a(at, nest.at_a), b(at, nest.at_b), values)
            k.yields(*values)
        nest.yields(*k.results)
    return nest.results


def multiply_add(
    tile: RegisterTile,
    a: Callable[[int], Value],
    b: Callable[[int], Value],
    sums: Sequence[Value],
    fma: Callable[[Value, Value, Value], Value] = cg.fma,
) -> list[Value]:
    """Accumulate one group of k, an outer product of groups a(0), a(1) ... of rows and vectors b(0), b(1) ..."""
    vectors = [b(v) for v in range(tile.vectors)]
    out = []
    for r in range(tile.rows):
        of_row = sums[r * tile.vectors : (r + 1) * tile.vectors]
        factor = broadcast_group(a(r), sums[0].lanes)
        out += [fma(factor, vector, s) for vector, s in zip(vectors, of_row, strict=True)]
    return out


def prefetch_tile(
    scene: ContractionScene, tile: RegisterTile, frame: BatchFrame, at: tuple[Index, Index], rows: Index | None = None
) -> None:
    """Prefetch the result's cache lines at a tile's row starts, or some of its rows, before the accumulation."""
    if not scene.vectors:
        return
    with cg.loop(0, tile.rows if rows is None else rows) as r:
        row = r.iv + at[0]
        cg.prefetch(scene.results[0], row * scene.contraction.m.c + frame.c + at[1], write=True)


def store_tile(
    scene: ContractionScene,
    tile: RegisterTile,
    values: Sequence[Value],
    frame: BatchFrame,
    at: tuple[Index, Index],
    columns: int,
    buffer: Value,
    sums: SumState = COMPLETE_SUM,
) -> None:
    """Store a tile's sums to the result; the first `columns` elements of each row are valid."""
    if not scene.vectors or scene.contraction.epilogue_length > INLINE_EPILOGUE:
        spill_tile(scene.lanes, values, buffer)
        scene.write_block(buffer, tile.vectors * scene.lanes, frame, (tile.rows, columns), at, sums)
        return
    rows = [scene.row(frame, cg.index(at[0]) + r) for r in range(tile.rows)]
    places: list[ResultSpan] = [
        (row, cg.index(at[1]) + v * scene.lanes, min(scene.lanes, columns - v * scene.lanes))
        for row in rows
        for v in range(tile.vectors)
    ]
    if sums.first is not None:
        choice = cg.branch(sums.first, [v.type for v in values])
        with choice.then:
            choice.yields(*values)
        with choice.otherwise:
            before = [scene.load_partial(row, at, scene.lanes, count, sums.offset) for row, at, count in places]
            choice.yields(*(value + b for value, b in zip(values, before, strict=True)))
        values = choice.results
    scene.write_all(values, places, sums)


def spill_tile(lanes: int, values: Sequence[Value], buffer: Value) -> None:
    """Store a tile's accumulators row by row into a buffer of its size."""
    for number, value in enumerate(values):
        cg.store(value, buffer, number * lanes)


# --- contractions with short k -------------------------------------------------------------------------------


@dataclass(frozen=True)
class ShortPlan:
    """Blocking of a contraction of short k.

    Attributes:
        tile: the register tile.
        row_tiles, columns: row tiles and columns of an item.
        pack: whether rhs is packed.
        overlap: whether the last row tile overlaps the one before instead of being a remainder. Some rows are computed
            twice then, by the same additions; not allowed where the epilogue updates its input in place.
    """

    tile: RegisterTile
    row_tiles: int
    columns: int
    pack: bool
    overlap: bool = False

    def tiles(self, rows: int) -> int:
        """Return the number of whole row tiles."""
        return math.ceil(rows / self.tile.rows) if self.overlap else rows // self.tile.rows


def choose_register_tile(rows: int, columns: int, lanes: int, registers: int, overlap: bool = False) -> RegisterTile:
    """Choose the register tile of the fewest cycles for a product of this size; see `ShortPlan.overlap`."""

    def cycles(tile: RegisterTile) -> float:
        def one(r: int, v: int) -> float:
            # Two FMAs a cycle, at least eight in flight; each row needs a broadcast, each vector of rhs a load.
            return max(r * v / 2, 4.0, 0.7 * (r + v)) + 0.1 * r + 0.3 * v if r and v else 0.0

        down, rest = divmod(rows, tile.rows)
        if overlap and rest:
            down, rest = down + 1, 0
        across, side = divmod(math.ceil(columns / lanes), tile.vectors)
        inner = one(tile.rows, tile.vectors) * down * across
        edges = one(rest, tile.vectors) * across + one(tile.rows, side) * down + one(rest, side)
        # Code of every tile size costs compile time.
        return (inner + edges) * (1 + 0.02 * (bool(rest) + bool(side)))

    most = rows if overlap else 14
    candidates = [
        RegisterTile(r, v) for v in (1, 2, 3, 4) for r in range(1, min(14, most) + 1) if r * v + v < registers
    ]
    return min(candidates, key=lambda tile: (round(cycles(tile), 3), -tile.vectors, tile.rows))


def emit_short(kernel: Kernel, contraction: Contraction, target: CpuTarget, plan: ShortPlan) -> Emitted:
    """Emit a contraction whose accumulators stay in registers for all of k."""
    c = contraction
    row_blocks = max(1, math.ceil(plan.tiles(c.m.extent) / plan.row_tiles))
    column_blocks = math.ceil(c.n.extent / plan.columns)
    with kernel.phase(target, unroll=False) as arguments:
        scene = ContractionScene(c, arguments)
        short = _Short(scene, plan, row_blocks, column_blocks)
        with arguments.split_items([c.batches, column_blocks, row_blocks]) as place:
            short.item(*place)
    items = c.batches * row_blocks * column_blocks
    return Emitted(items, contraction_grain(c, items), in_place=c.in_place)


def contraction_grain(contraction: Contraction, items: int) -> int:
    """Return the grain: items that take about 20 microseconds."""
    c = contraction
    depth = c.k.extent * math.prod(axis.extent for axis in c.k_outer)
    work = c.batches * c.m.extent * c.n.extent * (depth + 8 + 4 * c.epilogue_size)
    return max(1, min(items, math.ceil(items * 5e5 / max(1, work))))


class _Short:
    """Code of one work item: a block of rows by a block of columns of one product."""

    def __init__(self, scene: ContractionScene, plan: ShortPlan, row_blocks: int, column_blocks: int) -> None:
        self.scene, self.plan = scene, plan
        self.c = c = scene.contraction
        self.row_blocks, self.column_blocks = row_blocks, column_blocks
        self.width = plan.tile.vectors * scene.lanes
        self.depth = c.k.extent * math.prod(axis.extent for axis in c.k_outer)
        self.unroll = 1 if c.k.extent % 2 else 2
        spilled = not scene.vectors or c.epilogue_length > INLINE_EPILOGUE
        self.spill = cg.alloca(plan.tile.rows * self.width if spilled else 1, scene.compute)
        self.panels = PackedPanels(self.width, self.depth, scene.lanes)
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
        with OuterReduction(self._packed_axes("b"), 0, cg.index(first) * c.n.b + frame.b) as nest:
            b, whole = scene.inputs[c.b.number], c.n.extent % self.width == 0
            source = PackingSource(b, nest.at_b, c.n.b, c.k.b, columns, c.k.extent, scene.convert_b, whole=whole)
            pack_panels(self.panels, source, self.packed, nest.at_a * self.width)

    def _packed_axes(self, side: str) -> tuple[ContractionAxis, ...]:
        """Return the outer axes of k, with the packed panels' stride, where they are contiguous, on one side.

        For "a" that replaces the stride in rhs, for "b" (the source of packing) the one in lhs.
        """
        c = self.c
        sizes = [c.k.extent * math.prod(x.extent for x in c.k_outer[n + 1 :]) for n in range(len(c.k_outer))]
        pairs = zip(c.k_outer, sizes, strict=True)
        if side == "b":
            return tuple(ContractionAxis(x.extent, size, x.b) for x, size in pairs)
        return tuple(ContractionAxis(x.extent, x.a, size) for x, size in pairs)

    def _column(self, frame: BatchFrame, row_block: Index, first: Index, panel: Index, columns: int) -> None:
        """Emit all row tiles of a block over one panel of columns."""
        rows, tiles, extent = self.plan.tile.rows, self.plan.row_tiles, self.c.m.extent
        whole = self.plan.tiles(extent)
        start = cg.index(row_block) * tiles
        if whole:
            with cg.loop(start, cg.minimum(start + tiles, whole)) as i:
                row = cg.minimum(i.iv * rows, extent - rows) if self.plan.overlap and extent % rows else i.iv * rows
                self._tile(frame, row, first, panel, rows, columns)
        if whole * rows < extent:
            with _at_last(row_block, self.row_blocks):
                self._tile(frame, cg.index(whole * rows), first, panel, extent % rows, columns)

    def _tile(self, frame: BatchFrame, row: Index, first: Index, panel: Index, rows: int, columns: int) -> None:
        scene, c = self.scene, self.c
        lanes = scene.lanes
        tile = RegisterTile(rows, math.ceil(columns / lanes))
        column = cg.index(panel) * self.width + first
        start_a = cg.index(row) * c.m.a + frame.a
        start_b = column * c.n.b + frame.b
        start_packed = cg.index(panel) * self.panels.stride

        def a(k: Index, offset: Index) -> Callable[[int], Value]:
            at = cg.index(k) * c.k.a + (start_a + offset)
            return lambda r: scene.load_a(at + r * c.m.a)

        def b_in_place(k: Index, offset: Index) -> Callable[[int], Value]:
            at = cg.index(k) * c.k.b + (start_b + offset)
            return lambda v: scene.load_b(at + v * lanes, lanes, min(lanes, columns - v * lanes))

        def b_packed(k: Index, offset: Index) -> Callable[[int], Value]:
            at = (cg.index(k) + offset) * self.width + start_packed
            return lambda v: cg.load(self.packed, at + v * lanes, lanes)

        outer = self._packed_axes("a") if self.plan.pack else c.k_outer
        b = b_packed if self.plan.pack else b_in_place
        values = accumulate(scene.zero, tile, c.k.extent, self.unroll, a, b, outer)
        store_tile(scene, tile, values, frame, (row, column), columns, self.spill)


def _at_last(block: Index, blocks: int) -> AbstractContextManager[None]:
    """Return a guard whose body runs in the last block only."""
    return cg.when(cg.index(block).eq(blocks - 1)) if blocks > 1 else nullcontext()
