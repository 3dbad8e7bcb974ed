"""Contractions by dot-product instructions over groups along k (VNNI, AMX): narrow integers, bf16 where supported.

The loop nest is that of `packed`; operands are packed as units, 32 bits of them for a step (a group).
"""

from __future__ import annotations

import math

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction
from stablexla.targets.codegen.match.epilogue import (
    COMPLETE_SUM,
    BatchFrame,
    ContractionScene,
    SumState,
    accumulator_type,
    partial_sum_result,
)
from stablexla.targets.cpu.contraction.amx import BLOCK, LANES, MatrixTiles, TileRows, accumulate_tiles, make_tiles
from stablexla.targets.cpu.contraction.dot_instructions import (
    LANE_BITS,
    MultiplyAdd,
    broadcast_group,
    choose_multiply_add,
    f32_multiply_add,
    load_group,
    vector_multiply_add,
)
from stablexla.targets.cpu.contraction.packing_units import UnitLayout, UnitSource, pack_unit_lines, pack_unit_panels
from stablexla.targets.cpu.contraction.register_tile import (
    INLINE_EPILOGUE,
    RegisterTile,
    contraction_grain,
    prefetch_tile,
    spill_tile,
)
from stablexla.targets.cpu.contraction.skinny_narrow import emit_skinny_narrow

# Bytes of a cache block of lhs and of packed columns of rhs on an item's stack.
LHS_BYTES = 176 << 10
GROUP_BYTES = 64 << 10
# With tile registers (AMX), on processors with an L2 of 2 MiB: bytes of lhs, groups of k in a block.
TILES_LHS_BYTES = 256 << 10
TILES_DEPTH = 1024
# Packed rhs larger than this would take too much memory: every item packs its own.
SHARED_BYTES = 256 << 20
# Multiply-adds that are worth a work item of their own, and those below which packing costs more than it saves.
ITEM_WORK = 500_000
LEAST_WORK = 20_000
UNROLL = 4  # steps of k in one iteration


def emit_dot_units(kernel: Kernel, contraction: Contraction, target: CpuTarget) -> Emitted | None:
    """Emit a contraction of narrow operands; None where no instruction takes them, or below LEAST_WORK."""
    work = contraction.batches * contraction.m.extent * contraction.n.extent * contraction.k.extent
    product = choose_multiply_add(contraction, target) or f32_multiply_add(contraction)
    if product is None or work < LEAST_WORK or contraction.k_outer or _is_one_line(contraction):
        return None
    few = emit_skinny_narrow(kernel, contraction, vector_multiply_add(product, contraction, target), target)
    if few is not None or contraction.n.c != 1:
        return few
    shape = _Shape(contraction, product, target)
    scratch = shape.scratch()
    if shape.shared:
        with kernel.phase(target, scratch, kernel.impl_name + "_pack") as arguments:
            _pack_all(shape, ContractionScene(contraction, arguments), arguments)
    with kernel.phase(target, scratch) as arguments:
        block = _Block(shape, shape.scene(arguments), arguments)
        order = [contraction.batches, shape.column_blocks, shape.row_blocks]
        with arguments.split_items(order) as place:
            block.item(*place)
    items = math.prod(order)
    phases = [(kernel.impl_name, items, max(1, contraction_grain(contraction, items)))]
    if shape.shared:
        phases.insert(0, (kernel.impl_name + "_pack", shape.pack_items, shape.pack_grain))
    # Partial sums in a result would overwrite inputs that the epilogue still loads.
    in_place = contraction.in_place if shape.k_blocks == 1 or shape.needs_partial else ()
    alone = shape.shared and not shape.corrections
    packs = contraction.packs(kernel.impl_name + "_pack") if alone else ()
    return Emitted(items, phases[-1][2], scratch, in_place, phases=tuple(phases), packs=packs)


def _is_one_line(c: Contraction) -> bool:
    """Whether a large operand is used at most twice: it is widened in place then, in half the time."""
    return any(view.m.extent <= 2 and view.k.b != 1 for view in (c, c.swapped()))


class _Shape:
    """Blocking of a contraction, and sizes of buffers."""

    def __init__(self, c: Contraction, product: MultiplyAdd, target: CpuTarget) -> None:
        self.contraction, self.product, self.target = c, product, target
        self.lanes = max(1, target.vector_bits // LANE_BITS)
        self.tile = _tile(c.m.extent, c.n.extent, self.lanes, target.num_vector_registers)
        self.step = max(1, UNROLL // product.group)  # groups in one iteration
        if product.is_tiles:
            self.tile, self.step = RegisterTile(BLOCK, max(1, BLOCK // self.lanes)), LANES
        self.width = self.tile.vectors * self.lanes
        self.bytes = LANE_BITS // 8
        groups = math.ceil(c.k.extent / product.group)
        m, n = c.m.extent, c.n.extent
        limit = min(LHS_BYTES, target.l2_bytes * 3 // 8) // self.bytes
        most = max(256, target.l1_bytes * 5 // 8 // (self.width * self.bytes))
        if product.is_tiles:
            # accumulator tiles are seldom spilled: cutting k at 512 costs a fifth of the speed
            limit, most = TILES_LHS_BYTES // self.bytes, TILES_DEPTH
        if m <= limit // 192:
            most = min(most, limit // m)
        self.depth = _balanced(groups, most, max(self.lanes, self.step))
        tiles = limit // self.depth // self.tile.rows
        self.rows = _balanced(m, max(1, tiles) * self.tile.rows, self.tile.rows)
        # A leading dimension that is no power of two: one tile's 16 lines would share few cache sets.
        self.line = self.depth + (LANES if product.is_tiles else 0)
        self.k_blocks = math.ceil(groups / self.depth)
        self.row_blocks = math.ceil(m / self.rows)
        work = c.batches * m * n * c.k.extent
        wanted = max(1, min(4 * target.num_threads if target.num_threads > 1 else 1, work // ITEM_WORK))
        blocks = max(1, math.ceil(wanted / (self.row_blocks * c.batches)))
        self.columns = _balanced(n, min(2048, max(2 * self.width, math.ceil(n / blocks))), self.width)
        self.column_blocks = math.ceil(n / self.columns)
        # Batch axes with stride 0 in rhs share one packed copy.
        self.rhs_batch = tuple(axis for axis in c.batch if axis.b)
        self.panel_size = self.depth * self.width * product.group
        self.panel_count = math.ceil(n / self.width)
        copies = math.prod(axis.extent for axis in self.rhs_batch)
        self.rhs_size = self.k_blocks * self.panel_count * self.panel_size
        shared_bytes = copies * self.rhs_size * 4 // product.group
        self.shared = (self.row_blocks > 1 or c.b.number in c.kernel.constants) and shared_bytes <= SHARED_BYTES
        self.copies = copies
        most_panels = max(1, GROUP_BYTES // (self.depth * self.bytes * self.width))
        self.panels = 8 if self.shared else min(most_panels, math.ceil(self.columns / self.width))
        self.needs_partial = self.k_blocks > 1 and partial_sum_result(c) < 0

    @property
    def pack_groups(self) -> int:
        """Groups of panels in one block of k."""
        return math.ceil(self.panel_count / self.panels)

    @property
    def pack_items(self) -> int:
        """Items of the packing phase."""
        return self.copies * self.k_blocks * self.pack_groups

    @property
    def pack_grain(self) -> int:
        """Grain of the packing phase: items of about 20 microseconds."""
        return max(1, round(6e4 / (self.panels * self.panel_size)))

    @property
    def corrections(self) -> int:
        """Column sums for the offset of lhs in all packed panels, in elements; 0 without an offset."""
        return self.k_blocks * self.panel_count * self.width if self.product.offset else 0

    def scratch(self) -> tuple[tuple[str, int], ...]:
        """Return scratch: packed rhs and its column sums, then partial sums where no result can hold them."""
        out = []
        if self.shared:
            out.append((self.product.unit, self.copies * self.rhs_size))
            if self.corrections:
                out.append(("i32", self.copies * self.corrections))
        if self.needs_partial:
            out.append((str(accumulator_type(self.contraction)), math.prod(self.contraction.shape)))
        return tuple(out)

    def scene(self, arguments: KernelArguments) -> ContractionScene:
        """Return the contraction inside one of its functions."""
        return ContractionScene(self.contraction, arguments, arguments.scratch[-1] if self.needs_partial else None)

    def k_block(self, number: Index) -> tuple[Value, Value]:
        """Emit the first step of block `number` of k, and its number of steps."""
        c, block = self.contraction, self.depth * self.product.group
        first = cg.index(number) * block
        if c.k.extent % block == 0:
            return first, cg.index(block)
        return first, cg.minimum(cg.index(c.k.extent) - first, block) if self.k_blocks > 1 else cg.index(c.k.extent)

    def groups(self, steps: Value) -> Value:
        """Emit the groups of so many steps, padded to whole iterations."""
        turn = self.product.group * self.step
        return (steps + (turn - 1)) // turn * self.step


def _tile(m: int, n: int, lanes: int, registers: int) -> RegisterTile:
    """Choose a register tile that leaves room for a broadcast, a product and a step's columns; rows are balanced."""
    most = 4 if registers >= 32 else 2
    rows = math.ceil(m / math.ceil(m / 6))
    return RegisterTile(rows, max(1, min(4 if rows <= 2 else most, math.ceil(n / lanes))))


def _balanced(extent: int, block: int, multiple: int) -> int:
    """Return the size of equal blocks of at most about `block`, a multiple of `multiple`."""
    blocks = max(1, math.ceil(extent / block))
    return max(1, math.ceil(extent / blocks / multiple)) * multiple


# --- packing ------------------------------------------------------------------------------------------------


def _pack_all(shape: _Shape, scene: ContractionScene, arguments: KernelArguments) -> None:
    """Emit the packing phase: an item is some B panels of one block of k of one rhs."""
    c = shape.contraction
    extents = [*(axis.extent for axis in shape.rhs_batch), shape.k_blocks, shape.pack_groups]
    sums = arguments.scratch[1] if shape.corrections else None
    with arguments.split_items(extents) as (*batch, number, group):
        first, steps = shape.k_block(number)
        at, copy = first * c.k.b, cg.index(0)
        for axis, x in zip(shape.rhs_batch, batch, strict=True):
            at, copy = x * axis.b + at, copy * axis.extent + x
        panel = (copy * shape.k_blocks + number) * shape.panel_count + group * shape.panels
        _pack_rhs(shape, scene, (arguments.scratch[0], sums), panel, at, group * (shape.panels * shape.width), steps)


def _pack_rhs(
    shape: _Shape,
    scene: ContractionScene,
    to: tuple[Value, Value | None],
    panel: Index,
    at: Index,
    column: Value,
    steps: Value,
) -> None:
    """Pack B panels from column `column` on to panel number `panel`; `at` is the block of k's offset in rhs."""
    c, product = shape.contraction, shape.product
    buffer, sums = to
    columns = cg.minimum(cg.index(c.n.extent) - column, shape.panels * shape.width)
    source = UnitSource(scene.inputs[c.b.number], product.b, column * c.n.b + at, c.k.b, c.n.b, steps, columns)
    place = UnitLayout(buffer, cg.index(panel) * shape.panel_size, product.group, shape.width, 1)
    groups = shape.groups(steps)
    pack_unit_panels(source, place, shape.width, shape.panel_size, shape.lanes, groups)
    if sums is not None:
        with cg.loop(0, (columns + (shape.width - 1)) // shape.width) as p:
            start = cg.index(panel) * shape.panel_size + p.iv * shape.panel_size
            _column_sums(shape, buffer, start, sums, (cg.index(panel) + p.iv) * shape.width, groups)


def _column_sums(shape: _Shape, buffer: Value, start: Value, sums: Value, to: Value, groups: Value) -> None:
    """Emit the correction of a panel's sums for the offset of lhs: the negated column sums times the offset."""
    product, lanes = shape.product, shape.lanes
    one = cg.constant(product.offset, cg.vector_of(lanes * product.group, product.unit_type))
    with cg.loop(0, shape.width, lanes) as v:
        zero = cg.constant(0, cg.vector_of(lanes, sums.element))
        with cg.loop(0, groups, 1, [zero]) as g:
            units = cg.load(buffer, (g.iv * shape.width + v.iv) * product.group + start, lanes * product.group)
            g.yields(product.multiply_add(one, units, g.args[0]))
        cg.store(zero - g.results[0], sums, to + v.iv)


# --- items --------------------------------------------------------------------------------------------------


class _Block:
    """Code of one work item: a block of rows by a block of columns of one product."""

    def __init__(self, shape: _Shape, scene: ContractionScene, arguments: KernelArguments) -> None:
        self.shape, self.scene, self.c = shape, scene, shape.contraction
        unit = shape.product.unit_type
        tiles = math.ceil(min(shape.rows, self.c.m.extent) / shape.tile.rows)
        self.lhs = cg.alloca(tiles * shape.tile.rows * shape.line * shape.product.group, unit)
        self.spill = cg.alloca(shape.tile.rows * shape.width, scene.compute)
        self.tiles = make_tiles(shape.product, scene.compute) if shape.product.is_tiles else None
        self.corrections: Value | None = None
        if shape.shared:
            self.rhs = arguments.scratch[0]
            if shape.corrections:
                self.corrections = arguments.scratch[1]
        else:
            self.rhs = cg.alloca(shape.panels * shape.panel_size, unit)
            if shape.corrections:
                self.corrections = cg.alloca(shape.panels * shape.width, scene.compute)

    def item(self, batch: Index, column_block: Index, row_block: Index) -> None:
        c, shape = self.c, self.shape
        frame = self.scene.frame(batch)
        row, column = cg.index(row_block) * shape.rows, cg.index(column_block) * shape.columns
        rows = cg.minimum(cg.index(c.m.extent) - row, shape.rows) if shape.row_blocks > 1 else cg.index(c.m.extent)
        columns = (
            cg.minimum(cg.index(c.n.extent) - column, shape.columns)
            if shape.column_blocks > 1
            else cg.index(c.n.extent)
        )
        with cg.loop(0, shape.k_blocks) as number:
            first, steps = shape.k_block(number.iv)
            groups = shape.groups(steps)
            self._pack_lhs(row * c.m.a + frame.a + first * c.k.a, rows, steps, groups)
            sums = COMPLETE_SUM
            if shape.k_blocks > 1:
                sums = SumState(number.iv.eq(0), number.iv.eq(shape.k_blocks - 1))
            if shape.shared:
                panel = (self._copy(frame) * shape.k_blocks + number.iv) * shape.panel_count + column // shape.width
                self._tiles(frame, (row, column), (rows, columns), groups, sums, panel)
            else:
                some = shape.panels * shape.width
                with cg.loop(0, columns, some) as group:
                    start = column + group.iv
                    at = frame.b + first * c.k.b
                    _pack_rhs(shape, self.scene, (self.rhs, self.corrections), 0, at, start, steps)
                    width = cg.minimum(columns - group.iv, some)
                    self._tiles(frame, (row, start), (rows, width), groups, sums, cg.index(0))

    def _copy(self, frame: BatchFrame) -> Value:
        """Emit the number of the packed copy of rhs that a product reads."""
        copy = cg.index(0)
        for axis, x in zip(self.c.batch, frame.coordinates, strict=True):
            if axis.b:
                copy = copy * axis.extent + x
        return copy

    def _pack_lhs(self, at: Index, rows: Index, steps: Value, groups: Value) -> None:
        c, shape = self.c, self.shape
        source = UnitSource(self.scene.inputs[c.a.number], shape.product.a, at, c.k.a, c.m.a, steps, rows)
        place = UnitLayout(self.lhs, 0, shape.product.group, 1, shape.line)
        pack_unit_lines(source, place, shape.lanes, groups)

    def _tiles(
        self,
        frame: BatchFrame,
        at: tuple[Value, Value],
        size: tuple[Value, Value],
        groups: Value,
        sums: SumState,
        panel: Value,
    ) -> None:
        """Emit the register tiles of a block of packed operands; its columns begin with panel number `panel`."""
        shape, tile = self.shape, self.shape.tile
        down = (size[0] + (tile.rows - 1)) // tile.rows
        across = (size[1] + (shape.width - 1)) // shape.width
        with cg.loop(0, across) as j, cg.loop(0, down) as i:
            row, column = at[0] + i.iv * tile.rows, at[1] + j.iv * shape.width
            if self.tiles is not None:
                self._tile_block(self.tiles, groups, i.iv * tile.rows, panel + j.iv)
                self._write_spilled(frame, row, column, sums)
                return
            prefetch_tile(self.scene, tile, frame, (row, column))
            values = self._sums(groups, i.iv * tile.rows, panel + j.iv)
            self._write(values, frame, row, column, sums)

    def _tile_block(self, tiles: MatrixTiles, groups: Value, row: Value, panel: Value) -> None:
        """Accumulate a block of AMX tiles and store it to the spill buffer."""
        shape, group = self.shape, self.shape.product.group

        def a(number: int, g: Index) -> TileRows:
            return self.lhs, ((row + number * LANES) * shape.line + g) * group, shape.line * group

        def b(number: int, g: Index) -> TileRows:
            at = panel * shape.panel_size + (cg.index(g) * shape.width + number * LANES) * group
            return self.rhs, at, shape.width * group

        tiles.store(accumulate_tiles(tiles, groups, a, b), self.spill)

    def _sums(self, groups: Value, row: Value, panel: Value) -> list[Value]:
        """Emit the micro-kernel: the accumulators of a tile, row by row."""
        shape, tile, product = self.shape, self.shape.tile, self.shape.product
        lanes, group = shape.lanes, product.group
        start = panel * shape.panel_size
        inits = [self.scene.zero] * tile.vectors
        if self.corrections is not None:
            inits = [cg.load(self.corrections, panel * shape.width + v * lanes, lanes) for v in range(tile.vectors)]
        with cg.loop(0, groups, shape.step, inits * tile.rows) as k:
            values = list(k.args)
            for u in range(shape.step):
                g = k.iv + u
                columns = [
                    cg.load(self.rhs, (g * shape.width + v * lanes) * group + start, lanes * group)
                    for v in range(tile.vectors)
                ]
                for r in range(tile.rows):
                    at = ((row + r) * shape.line + g) * group
                    factor = broadcast_group(load_group(product, self.lhs, at), lanes)
                    for v in range(tile.vectors):
                        place = r * tile.vectors + v
                        values[place] = product.multiply_add(factor, columns[v], values[place])
            k.yields(*values)
        return k.results

    def _write(self, values: list[Value], frame: BatchFrame, row: Value, column: Value, sums: SumState) -> None:
        """Store through the spill buffer: one piece of code for whole and remainder tiles."""
        spill_tile(self.scene.lanes, values, self.spill)
        self._write_spilled(frame, row, column, sums)

    def _write_spilled(self, frame: BatchFrame, row: Value, column: Value, sums: SumState) -> None:
        scene, tile, width = self.scene, self.shape.tile, self.shape.width
        rows = cg.minimum(cg.index(self.c.m.extent) - row, tile.rows)
        columns = cg.minimum(cg.index(self.c.n.extent) - column, width) if self.c.n.extent % width else cg.index(width)
        if scene.vectors and self.c.epilogue_size <= INLINE_EPILOGUE:
            scene.write_rows(self.spill, tile.vectors, frame, (rows, columns), (row, column), sums)
        else:
            scene.write_block(self.spill, width, frame, (rows, columns), (row, column), sums)
