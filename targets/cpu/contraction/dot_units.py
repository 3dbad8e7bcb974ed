"""Contractions by dot-product instructions over groups along k (VNNI, AMX): narrow integers, bf16 where supported.

Operands are packed as units, 32 bits of them for a step (a group). Packing and the micro-kernel on vectors are
functions that products of all shapes share.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene, SumState
from stablexla.targets.codegen.sizes import balanced, rounded_up
from stablexla.targets.codegen.sums.compensated import LONGEST_RUNNING_SUM
from stablexla.targets.cpu.contraction.amx import (
    BLOCK,
    LANES,
    ROWS,
    MatrixTiles,
    TileRows,
    accumulate_tiles,
    make_tiles,
)
from stablexla.targets.cpu.contraction.dot_instructions import (
    LANE_BITS,
    DotInstruction,
    MultiplyAdd,
    Widen,
    in_matrices,
    load_group,
)
from stablexla.targets.cpu.contraction.driver import Blocking, GemmItem, PanelPlace, RhsBlock, Size
from stablexla.targets.cpu.contraction.micro_kernel import PackedOperand, macro_kernel_loops
from stablexla.targets.cpu.contraction.packing import LINE, PackedPanels, PackingSource, pack_lines, pack_panels
from stablexla.targets.cpu.contraction.register_tile import RegisterTile, multiply_add, prefetch_tile, spill_tile
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions

# With tile registers (AMX), on processors with an L2 of 2 MiB: bytes of lhs, groups of k in a block.
TILES_LHS_BYTES = Gate("dot-units.tiles-lhs-bytes", 256 << 10, eager=1024)
TILES_DEPTH = Gate("dot-units.tiles-depth", 1024, eager=1)
# Groups of k in a block elsewhere, at least.
LEAST_DEPTH = Gate("dot-units.least-depth", 256, eager=1)
# Bytes between lines of few cache sets, and columns for which packing lhs takes longer than that.
SAME_SETS, FEW_COLUMNS = 2048, 128
UNROLL = 4  # steps of k in one iteration


def emit_dot_units(kernel: Kernel, contraction: Contraction, product: MultiplyAdd, target: CpuTarget) -> Emitted:
    """Emit a contraction of narrow operands as packed GEMM."""
    product = in_matrices(product, contraction, target)
    return _plan(contraction, product, target, SharedFunctions(kernel, target)).emit(kernel, target)


def _plan(c: Contraction, product: MultiplyAdd, target: CpuTarget, functions: SharedFunctions) -> _Blocking:
    """Plan cache blocks: of lhs in 3/8 of L2, of a B panel in 5/8 of L1."""
    lanes = max(1, target.vector_bits // LANE_BITS)
    tile = _tile(c.m.extent, c.n.extent, lanes, target.num_vector_registers, product.rows)
    step = max(1, UNROLL // product.group)  # groups in one iteration
    if product.is_tiles:
        tile, step = RegisterTile(BLOCK, max(1, BLOCK // lanes)), LANES
    width, size = tile.vectors * lanes, product.rows * LANE_BITS // 8
    groups, m, n = math.ceil(c.k.extent / product.group), c.m.extent, c.n.extent
    limit = target.lhs_block // size
    most = max(LEAST_DEPTH(), target.l1_bytes * 5 // 8 // (width * size))
    if product.is_tiles:
        # accumulator tiles are seldom spilled: cutting k at 512 costs a fifth of the speed
        limit, most = TILES_LHS_BYTES() // size, TILES_DEPTH()
    elif product.rounds_to_odd:
        most = LONGEST_RUNNING_SUM() // product.rows
    if m <= limit // 192:
        most = min(most, limit // m)
    depth = balanced(groups, most, max(lanes, step))
    rows = balanced(m, max(1, limit // depth // tile.rows) * tile.rows, tile.rows)
    row_blocks = math.ceil(m / rows)
    blocks = max(1, math.ceil(target.work_items(c.batches * m * n * c.k.extent) / (row_blocks * c.batches)))
    columns = balanced(n, min(2048, max(2 * width, math.ceil(n / blocks))), width)
    panels = math.prod(axis.extent for axis in c.batch if axis.b) * math.ceil(groups / depth) * math.ceil(n / width)
    few = panels * depth * width * size <= target.shared_bytes
    packed_once = c.b.number in c.kernel.lasting and not product.offset
    shared = few and (row_blocks > 1 or packed_once)
    own = min(max(1, target.group_bytes // (depth * size * width)), math.ceil(columns / width))
    sizes = (depth, rows, columns, 8 if shared else own)
    is_far = packed_once and n * c.k.extent * cg.bits_of(product.unit_type) // 8 > target.l2_bytes // 4
    return _Blocking(c, product, tile, lanes, step, sizes, functions, shared=shared, prefetches=shared and is_far)


def _tile(m: int, n: int, lanes: int, registers: int, multiple: int) -> RegisterTile:
    """Choose a register tile that leaves room for a broadcast, a product and a step's columns; rows are balanced."""
    most = 4 if registers >= 32 else 2
    rows = rounded_up(math.ceil(m / math.ceil(m / 6)), multiple)
    return RegisterTile(rows, max(1, min(4 if rows <= 2 else most, math.ceil(n / lanes))))


class _Blocking(Blocking):
    """Blocks in groups along k.

    Attributes:
        step: groups in one iteration of the micro-kernel.
        line: groups from one packed row of lhs to the next.
        in_place: whether tiles read lhs where it lies: rows that are contiguous along k. A last tile of fewer rows is
            computed with those before them.
        prefetches: whether each panel of rhs is prefetched while the one before is read for all rows: what is packed
            once, for many calls, is no longer in L2 when it is called again.
    """

    unroll = True
    pack_work = 6e4

    def __init__(
        self,
        c: Contraction,
        product: MultiplyAdd,
        tile: RegisterTile,
        lanes: int,
        step: int,
        blocks: tuple[int, int, int, int],
        functions: SharedFunctions,
        *,
        shared: bool,
        prefetches: bool,
    ) -> None:
        self.functions, self.prefetches = functions, prefetches
        depth, *others = blocks
        super().__init__(c, tile, lanes, depth * product.group, *others, shared=shared)
        self.product, self.step = product, step
        # A leading dimension that is no power of two: one tile's 16 lines would share few cache sets.
        self.line = depth + (LANES if product.is_tiles else 0)
        as_stored = cg.bits_of(c.a.element) == cg.bits_of(product.unit_type) and c.k.a == 1
        one_row = product.name == "bytes" and not product.offset
        whole = c.m.extent >= tile.rows and c.k.extent % (product.group * (LANES if product.is_tiles else 1)) == 0
        # Rows a large power of two apart share few cache sets: they are packed where many columns read them.
        near = c.m.a * cg.bits_of(c.a.element) // 8 % SAME_SETS != 0 or self.columns <= FEW_COLUMNS
        self.in_place = (product.is_tiles or one_row) and as_stored and whole and near

    @property
    def packed_rhs(self) -> list[tuple[ir.Type, int]]:
        """Units; with an offset of lhs, also the correction of each column's sums."""
        units = (self.product.unit_type, self.panel_size)
        return [units, (ir.IntegerType.get_signless(32), self.width)] if self.product.offset else [units]

    def groups(self, steps: Value) -> Value:
        """Emit the groups of so many steps, padded to whole iterations."""
        per_iteration = self.product.group * self.step
        return (steps + (per_iteration - 1)) // per_iteration * self.step

    def pack_rhs(self, scene: ContractionScene, buffers: list[Value], place: PanelPlace, block: RhsBlock) -> None:
        c, product, steps = self.contraction, self.product, block.steps
        panels = PackedPanels(self.width, self.depth, self.lanes, product.group)
        last = c.k.extent - (self.k_blocks - 1) * self.depth
        source = PackingSource(
            *(scene.inputs[c.b.number], block.at, c.n.b, c.k.b, block.columns, steps, product.b),
            ahead=True,
            deep=last // product.group >= panels.square,
        )
        padded = self.groups(steps) * product.group
        corrections = (product, buffers[1], place.at(self.width)) if product.offset else None
        _pack(self.functions, panels, source, buffers[0], place.at(self.panel_size), padded, corrections)

    def item(self, scene: ContractionScene, packed: list[Value] | None) -> GemmItem:
        return _Item(self, scene, packed)


class _Item(GemmItem):
    blocking: _Blocking

    def __init__(self, blocking: _Blocking, scene: ContractionScene, packed: list[Value] | None) -> None:
        super().__init__(blocking, scene, packed)
        tile, self.product = blocking.tile, blocking.product
        tiles = math.ceil(min(blocking.rows, self.c.m.extent) / tile.rows)
        self.row = self.c.m.a if blocking.in_place else blocking.line * self.product.group
        self.lhs_at = cg.index(0)
        if blocking.in_place:
            self.lhs = scene.inputs[self.c.a.number]
        else:
            self.lhs = cg.alloca(tiles * tile.rows * self.row, self.product.unit_type)
        self.stored = self.spill = cg.alloca(tile.rows * blocking.width, scene.compute)
        self.matrix_tiles = make_tiles(self.product, scene.compute) if self.product.is_tiles else None
        self.allocate_rhs()

    def pack_lhs(self, at: Index, rows: Value, steps: Value) -> None:
        c, b, group = self.c, self.blocking, self.product.group
        if b.in_place:
            self.lhs_at = cg.index(at)
            return
        source = PackingSource(self.scene.inputs[c.a.number], at, c.m.a, c.k.a, rows, steps, self.product.a)
        count = self.product.rows
        panels = PackedPanels(count, b.line * group, count if count > 1 else b.lanes, group)
        _pack(b.functions, panels, source, self.lhs, 0, b.groups(steps) * group)

    def tiles(self, frame: BatchFrame, at: tuple[Value, Value], size: Size, sums: SumState, place: PanelPlace) -> None:
        """Emit the register tiles; through the spill buffer, one piece of code for whole and remainder tiles."""
        b, tile, groups = self.blocking, self.blocking.tile, self.blocking.groups(size[2])
        lhs = PackedOperand(self.lhs, self.lhs_at, tile.rows * self.row)
        rhs = PackedOperand(self.buffers[0], place.at(b.panel_size), b.panel_size)
        corrections = place.at(b.width)

        def one(left: PackedOperand, right: PackedOperand, row: Value, column: Value) -> None:
            to = (at[0] + row, at[1] + column)
            if b.in_place and self.c.m.extent % tile.rows:
                more = cg.maximum(tile.rows - (size[0] - row), 0)
                left = PackedOperand(left.buffer, cg.index(left.at) - more * self.row)
                self.spill = cg.part_from(self.stored, more * b.width, tile.rows * b.width)
            if self.matrix_tiles is not None:
                self._matrix_tiles(self.matrix_tiles, left, right, groups)
            else:
                prefetch_tile(self.scene, tile, frame, to)
                self._sums(left, right, groups, corrections + column)
            self.write_spilled(frame, to, cg.minimum(size[0] - row, tile.rows), size[1] - column, sums)

        macro_kernel_loops(tile, b.lanes, lhs, rhs, size, one)

    def _matrix_tiles(self, tiles: MatrixTiles, left: PackedOperand, right: PackedOperand, groups: Value) -> None:
        """Accumulate a block of AMX tiles and store it to the spill buffer."""
        b, group = self.blocking, self.product.group

        def rows(number: int, g: Index) -> TileRows:
            return left.buffer, cg.index(g) * group + number * ROWS * self.row + left.at, self.row

        def columns(number: int, g: Index) -> TileRows:
            return right.buffer, (cg.index(g) * b.width + number * LANES) * group + right.at, b.width * group

        start, lines = right.ahead
        line = LINE * 8 // cg.bits_of(right.buffer.element)

        def ahead(g: Index) -> None:
            first = cg.index(g) // LANES * lines
            with cg.loop(0, lines) as n:
                cg.prefetch(right.buffer, (first + n.iv) * line + start, locality=2)

        tiles.store(accumulate_tiles(tiles, groups, rows, columns, ahead), self.stored)

    def _sums(self, left: PackedOperand, right: PackedOperand, groups: Value, corrections: Value) -> None:
        """Call the micro-kernel: the sums of a tile, stored to the spill buffer row by row."""
        b, product = self.blocking, self.product
        is_short = b.depth // product.group <= LONGEST_RUNNING_SUM()
        kernel = _MicroKernel(b.tile, product.instruction, b.step, is_short, bool(product.offset), b.prefetches)
        numbers = [left.at, self.row, right.at, groups]
        buffers = [left.buffer, right.buffer, self.stored]
        if product.offset:
            buffers, numbers = [*buffers, self.buffers[1]], [*numbers, corrections]
        if b.prefetches:
            soon, ahead = right.ahead
            numbers += [soon, cg.index(ahead) * product.group]
        b.functions.call(kernel, buffers, numbers)


# --- shared functions ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _MicroKernel(SharedFunction):
    """The micro-kernel of a register tile of the sums, on vectors.

    Attributes:
        step: groups in one iteration.
        is_short: whether there are never more groups than a running sum may have.
        corrects: whether sums begin with the correction of their column.
        prefetches: as of `_Blocking`.
    """

    tile: RegisterTile
    product: DotInstruction
    step: int
    is_short: bool
    corrects: bool
    prefetches: bool

    @property
    def name(self) -> str:
        flags = "_long" * (not self.is_short) + "_corrected" * self.corrects + "_ahead" * self.prefetches
        return f"stablexla_sum_tile_{self.tile.rows}x{self.tile.vectors}_{self.product.label}{flags}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        left, right, out, *corrections = buffers
        left_at, row_stride, right_at, groups, *more = numbers
        product, group, lanes = self.product, self.product.group, cg.lanes_of(out.element)
        rows, columns = product.rows, lanes // product.rows  # of an operand's vector
        tile = RegisterTile(self.tile.rows // rows, self.tile.vectors * rows)
        inits = [cg.constant(0, cg.vector_of(lanes, out.element))] * tile.vectors
        if self.corrects:
            inits = [cg.load(corrections[0], more[0] + v * lanes, lanes) for v in range(tile.vectors)]
        most = max(1, LONGEST_RUNNING_SUM() // self.step) if self.is_short else None
        with cg.loop(0, groups, self.step, inits * tile.rows, most=most) as k:
            values = list(k.args)
            if self.prefetches:
                soon, ahead = more[-2:]
                cg.prefetch(right, k.iv * ahead + soon, locality=2)
            for u in range(self.step):
                g = k.iv + u

                def row(r: int, g: Value = g) -> Value:
                    return load_group(product, left, (g * group + row_stride * r) * rows + left_at)

                def column(v: int, g: Value = g) -> Value:
                    return cg.load(
                        right, (g * (tile.vectors * columns) + v * columns) * group + right_at, columns * group
                    )

                values = _step(product, tile, row, column, values)
            k.yields(*values)
        spill_tile(lanes, product.by_rows(k.results, self.tile.vectors), out)


def _pack(
    functions: SharedFunctions,
    panels: PackedPanels,
    source: PackingSource,
    buffer: Value,
    base: Index,
    padded: Value,
    corrections: tuple[MultiplyAdd, Value, Value] | None = None,
) -> None:
    """Call the packing of a matrix into panels, or into lines of width 1, zero-padded to `padded` steps of k.

    Args:
        corrections: for an offset of lhs, the product, and the buffer and place of the corrections of columns' sums.
    """
    along = [source.along_width, source.along_depth]
    contiguous = (along[0] == 1, along[1] == 1)
    shape = (panels.width, panels.lanes, panels.group)
    buffers, offset = [source.buffer, buffer], None
    numbers = [source.at, *along, source.width, source.depth, base, panels.depth, padded]
    if corrections is not None:
        product, sums, first = corrections
        offset = (product.instruction, product.offset)
        buffers, numbers = [*buffers, sums], [*numbers, first]
    functions.call(_Pack(shape, contiguous, source.convert, source.ahead, source.deep, offset), buffers, numbers)


@dataclass(frozen=True)
class _Pack(SharedFunction):
    """Packing of units: `PackedPanels` of this width, lanes and group; the other fields are `PackingSource`'s.

    Attributes:
        contiguous: whether the matrix is contiguous along the width, and along k.
        offset: an instruction and the offset of lhs, for which it stores the corrections of columns' sums.
    """

    shape: tuple[int, int, int]
    contiguous: tuple[bool, bool]
    convert: Widen
    ahead: bool
    deep: bool
    offset: tuple[DotInstruction, int] | None

    @property
    def name(self) -> str:
        flags = "_ahead" * self.ahead + "_deep" * self.deep + "_corrected" * (self.offset is not None)
        along = "".join("n1"[one] for one in self.contiguous)
        return f"stablexla_pack_units_{'x'.join(map(str, self.shape))}{flags}_{along}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        matrix, packed, *corrections = buffers
        at, along_width, along_depth, columns, steps, base, depth, padded, *more = numbers
        along = along_width, along_depth
        across, down = (1 if one else stride for one, stride in zip(self.contiguous, along, strict=True))
        source = PackingSource(
            *(matrix, at, across, down, columns, steps, self.convert), ahead=self.ahead, deep=self.deep
        )
        width, lanes, group = self.shape
        panels = PackedPanels(width, depth, lanes, group)
        if width == 1:
            pack_lines(panels, source, packed, padded, base)
        else:
            pack_panels(panels, source, packed, base, padded)
        if self.offset is not None:
            with cg.loop(0, (columns + (width - 1)) // width) as p:
                panel, to = p.iv * panels.stride + base, p.iv * width + more[0]
                self._correct(*self.offset, (packed, panel), (corrections[0], to), padded // group)

    def _correct(
        self, product: DotInstruction, offset: int, panel: tuple[Value, Value], to: tuple[Value, Value], groups: Value
    ) -> None:
        """Emit the corrections of a panel's columns: the negated sums of each, times the offset."""
        width, lanes, group = self.shape
        one = cg.constant(offset, cg.vector_of(lanes * group, panel[0].element))
        with cg.loop(0, width, lanes) as v:
            zero = cg.constant(0, cg.vector_of(lanes, to[0].element))
            with cg.loop(0, groups, 1, [zero]) as g:
                units = cg.load(panel[0], (g.iv * width + v.iv) * group + panel[1], lanes * group)
                g.yields(product.multiply_add(one, units, g.args[0]))
            cg.store(zero - g.results[0], to[0], to[1] + v.iv)


def _step(
    product: DotInstruction,
    tile: RegisterTile,
    row: Callable[[int], Value],
    column: Callable[[int], Value],
    sums: Sequence[Value],
) -> list[Value]:
    """Accumulate one group of k; of instructions on several rows, column by column: the fewest registers are loaded."""
    if product.rows == 1:
        return multiply_add(tile, row, column, sums, product.multiply_add)

    def exchanged(b: Value, a: Value, total: Value) -> Value:
        return product.multiply_add(a, b, total)

    return multiply_add(RegisterTile(tile.vectors, tile.rows), column, row, sums, exchanged)
