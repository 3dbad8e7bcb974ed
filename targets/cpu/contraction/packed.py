"""Packed GEMM of any size (GotoBLAS, BLIS): cache blocks of both operands are packed, register tiles summed over them.

An item is a block of rows by a block of columns of one product. For each block of k it packs its A panels; B panels are
packed before, once for all items, or by the item itself, some columns at a time, where no other item needs them.
Packing and micro-kernel are functions that products of all shapes share; emitted for each product are the loop nest
over blocks and, after the last block of k, the epilogue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

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
from stablexla.targets.cpu.contraction.micro_kernel import (
    PackedOperand,
    SumsDestination,
    call_macro_kernel,
    call_micro_kernel,
    macro_kernel_loops,
    pack_operand,
)
from stablexla.targets.cpu.contraction.packing import PackedPanels, PackingSource
from stablexla.targets.cpu.contraction.register_tile import (
    INLINE_EPILOGUE,
    RegisterTile,
    contraction_grain,
    prefetch_tile,
)
from stablexla.targets.cpu.contraction.split_k import emit_split_k_reduction
from stablexla.targets.cpu.shared import SharedFunctions


@dataclass(frozen=True)
class PackedPlan:
    """Blocking of a large contraction.

    Attributes:
        tile: the register tile.
        depth: steps of k in a block.
        rows, columns: the most of an item, multiples of the tile's.
        group: columns of rhs that an item packs at a time; 0 if rhs is packed before all items.
        panels: B panels that one item of the packing phase packs.
        parts: split-K: parts of k, each summed by other items; a last phase adds up their partial sums.
    """

    tile: RegisterTile
    depth: int
    rows: int
    columns: int
    group: int = 0
    panels: int = 8
    parts: int = 1


def emit_packed(kernel: Kernel, contraction: Contraction, target: CpuTarget, plan: PackedPlan) -> Emitted:
    """Emit a contraction as packed GEMM."""
    shape = _Shape(contraction, plan, target)
    shared = SharedFunctions(kernel, target)
    scratch = shape.scratch()
    if not plan.group:
        with kernel.phase(target, scratch, kernel.impl_name + "_pack", unroll=False) as arguments:
            _pack_all(shape, ContractionScene(contraction, arguments), arguments, shared)
    with kernel.phase(target, scratch, unroll=False) as arguments:
        block = _Block(shape, shape.scene(arguments), None if plan.group else arguments.scratch[0], shared)
        order = [plan.parts, contraction.batches, shape.column_blocks, shape.row_blocks]
        with arguments.split_items(order) as place:
            block.item(*place)
    items = math.prod(order)
    phases = [(kernel.impl_name, items, contraction_grain(contraction, items))]
    if not plan.group:
        phases.insert(0, (kernel.impl_name + "_pack", shape.pack_items, shape.pack_grain))
    if plan.parts > 1:
        phases.append(emit_split_k_reduction(kernel, contraction, target, scratch, plan.parts))
    # Partial sums in a result would overwrite inputs that the epilogue still loads.
    in_place = contraction.in_place if shape.all_k_blocks == 1 or shape.needs_partial else ()
    packs = () if plan.group else contraction.packs(kernel.impl_name + "_pack")
    return Emitted(items, contraction_grain(contraction, items), scratch, in_place, phases=tuple(phases), packs=packs)


class _Shape:
    """Numbers of blocks and sizes of buffers for a contraction and a plan."""

    def __init__(self, contraction: Contraction, plan: PackedPlan, target: CpuTarget) -> None:
        self.contraction = c = contraction
        self.plan = plan
        self.element = accumulator_type(c)
        self.lanes = max(1, target.vector_bits // cg.bits_of(self.element))
        self.width = plan.tile.vectors * self.lanes
        self.k_blocks = math.ceil(c.k.extent / plan.depth)
        self.all_k_blocks = self.k_blocks * math.prod(axis.extent for axis in c.k_outer)
        self.row_blocks = math.ceil(c.m.extent / plan.rows)
        self.column_blocks = math.ceil(c.n.extent / plan.columns)
        self.panel_count = math.ceil(c.n.extent / self.width)
        self.tile_count = math.ceil(c.m.extent / plan.tile.rows)
        # Batch axes with stride 0 in rhs share one packed copy.
        self.rhs_batch = tuple(axis for axis in c.batch if axis.b)
        self.needs_partial = plan.parts > 1 or (self.all_k_blocks > 1 and partial_sum_result(c) < 0)
        self.sums_size = math.prod(c.shape)
        # One block of k of all B panels of a packed rhs; a product's blocks are contiguous.
        self.panels = PackedPanels(self.width, plan.depth, self.lanes)
        self.lhs_panels = PackedPanels(plan.tile.rows, plan.depth, self.lanes)
        last = c.k.extent - (self.k_blocks - 1) * plan.depth
        self.is_deep = last >= max(self.panels.square, self.lhs_panels.square)
        self.block_size = self.panels.size(self.panel_count)
        self.rhs_size = self.block_size * self.all_k_blocks

    @property
    def pack_groups(self) -> int:
        """Groups of panels in one block of k."""
        return math.ceil(self.panel_count / self.plan.panels)

    @property
    def pack_items(self) -> int:
        """Items of the packing phase."""
        return math.prod(axis.extent for axis in self.rhs_batch) * self.all_k_blocks * self.pack_groups

    @property
    def pack_grain(self) -> int:
        """Grain of the packing phase: items of about 20 microseconds."""
        return max(1, round(4e4 / (self.plan.panels * self.width * self.plan.depth)))

    def scratch(self) -> tuple[tuple[str, int], ...]:
        """Return scratch: packed rhs, then partial sums where no result can hold them."""
        out = []
        if not self.plan.group:
            copies = math.prod(axis.extent for axis in self.rhs_batch)
            out.append((str(self.element), copies * self.rhs_size))
        if self.needs_partial:
            out.append((str(self.element), self.plan.parts * self.sums_size))
        return tuple(out)

    def scene(self, arguments: KernelArguments) -> ContractionScene:
        """Return the contraction inside one of its functions."""
        return ContractionScene(self.contraction, arguments, arguments.scratch[-1] if self.needs_partial else None)

    def k_block(self, number: Index) -> tuple[Value, Value, Value]:
        """Emit the offsets of block `number` of k in lhs and rhs, and its number of steps."""
        c = self.contraction
        *outer, block = cg.split_index(number, [*(axis.extent for axis in c.k_outer), self.k_blocks])
        first = block * self.plan.depth
        at_a, at_b = first * c.k.a, first * c.k.b
        for axis, o in zip(c.k_outer, outer, strict=True):
            at_a, at_b = o * axis.a + at_a, o * axis.b + at_b
        steps = cg.index(c.k.extent) - first if self.k_blocks > 1 else cg.index(c.k.extent)
        whole = c.k.extent % self.plan.depth == 0
        return at_a, at_b, cg.index(self.plan.depth) if whole else cg.minimum(steps, self.plan.depth)


def _pack_all(shape: _Shape, scene: ContractionScene, arguments: KernelArguments, shared: SharedFunctions) -> None:
    """Emit the packing phase: an item is a group of B panels of one block of k of one rhs."""
    c, plan = shape.contraction, shape.plan
    buffer = arguments.scratch[0]
    width = plan.panels * shape.width
    extents = [*(axis.extent for axis in shape.rhs_batch), shape.all_k_blocks, shape.pack_groups]
    with arguments.split_items(extents) as (*batch, number, group):
        _, at, steps = shape.k_block(number)
        copy = cg.index(0)
        for axis, x in zip(shape.rhs_batch, batch, strict=True):
            at, copy = x * axis.b + at, copy * axis.extent + x
        columns = (
            cg.minimum(cg.index(c.n.extent) - group * width, width) if shape.pack_groups > 1 else cg.index(c.n.extent)
        )
        base = copy * shape.rhs_size + number * shape.block_size + group * (plan.panels * shape.panels.stride)
        _pack_rhs(shape, scene, shared, (group * (width * c.n.b) + at, columns, steps), PackedOperand(buffer, base))


def _pack_rhs(
    shape: _Shape, scene: ContractionScene, shared: SharedFunctions, part: tuple[Index, Index, Index], to: PackedOperand
) -> None:
    """Pack a part of rhs, given as (offset, columns, steps of k)."""
    c = scene.contraction
    at, columns, steps = part
    strides = c.n.b, c.k.b
    source = PackingSource(
        *(scene.load_b, scene.inputs[c.b.number], at, *strides, columns, steps), ahead=True, deep=shape.is_deep
    )
    pack_operand(shared, shape.panels, source, c.b.conversion, to)


class _Block:
    """Code of one work item."""

    def __init__(self, shape: _Shape, scene: ContractionScene, packed: Value | None, shared: SharedFunctions) -> None:
        self.shape, self.scene, self.packed, self.shared = shape, scene, packed, shared
        self.c, self.plan = shape.contraction, shape.plan
        plan, tile = self.plan, self.plan.tile
        self.lhs_panels = shape.lhs_panels
        self.lhs = cg.alloca(self.lhs_panels.size(math.ceil(shape.tile_count / shape.row_blocks)), scene.compute)
        # Sums without an epilogue, or not yet ready for it, are stored in place, row by row.
        self.finished = plan.parts > 1 or scene.keeping_is_writing
        self.in_rows = self.c.n.c == 1
        if not (self.finished and self.in_rows):
            self.spill = cg.alloca(tile.rows * shape.width, scene.compute)
        if self.packed is None:
            self.rhs = cg.alloca(shape.panels.size(plan.group // shape.width), scene.compute)

    def item(self, part: Index, batch: Index, column_block: Index, row_block: Index) -> None:
        c, plan, shape = self.c, self.plan, self.shape
        frame = self.scene.frame(batch)
        row, rows = _part(row_block, shape.row_blocks, c.m.extent, plan.tile.rows)
        column, columns = _part(column_block, shape.column_blocks, c.n.extent, shape.width)
        start, end = cg.index(0), cg.index(shape.all_k_blocks)
        if plan.parts > 1:
            some = math.ceil(shape.all_k_blocks / plan.parts)
            start = cg.index(part) * some
            end = cg.minimum(start + some, shape.all_k_blocks)
        with cg.loop(start, end) as number:
            at_a, at_b, steps = shape.k_block(number.iv)
            self._pack_lhs(row * c.m.a + frame.a + at_a, rows, steps)
            sums = COMPLETE_SUM
            if plan.parts > 1:
                sums = SumState(number.iv.eq(start), kept=True, offset=cg.index(part) * shape.sums_size)
            elif shape.all_k_blocks > 1:
                sums = SumState(number.iv.eq(0), number.iv.eq(shape.all_k_blocks - 1))
            if self.packed is None:
                with cg.loop(0, columns, plan.group) as group:
                    width = cg.minimum(columns - group.iv, plan.group)
                    first = column + group.iv
                    source = (first * c.n.b + frame.b + at_b, width, steps)
                    _pack_rhs(shape, self.scene, self.shared, source, PackedOperand(self.rhs, 0))
                    rhs = PackedOperand(self.rhs, 0, shape.panels.stride)
                    self._sums(frame, (row, first), (rows, width, steps), sums, rhs)
            else:
                base = self._packed_copy(frame) + number.iv * shape.block_size
                base = base + column // shape.width * shape.panels.stride
                rhs = PackedOperand(self.packed, base, shape.panels.stride)
                self._sums(frame, (row, column), (rows, columns, steps), sums, rhs)

    def _packed_copy(self, frame: BatchFrame) -> Value:
        """Emit the offset of a product's packed rhs."""
        copy = cg.index(0)
        for axis, x in zip(self.c.batch, frame.coordinates, strict=True):
            if axis.b:
                copy = copy * axis.extent + x
        return copy * self.shape.rhs_size

    def _pack_lhs(self, at: Index, rows: Index, steps: Index) -> None:
        c = self.c
        a, deep = self.scene.inputs[c.a.number], self.shape.is_deep
        source = PackingSource(self.scene.load_a, a, at, c.m.a, c.k.a, rows, steps, deep=deep)
        pack_operand(self.shared, self.lhs_panels, source, c.a.conversion, PackedOperand(self.lhs, 0))

    def _sums(
        self,
        frame: BatchFrame,
        at: tuple[Value, Value],
        size: tuple[Value, Value, Value],
        sums: SumState,
        rhs: PackedOperand,
    ) -> None:
        """Emit the sums of a block of packed operands: stored as they are, or through the epilogue."""
        if not self.in_rows or (sums.first is None and not self.finished):
            self._through_epilogue(frame, at, size, sums, rhs)
        elif self.finished:
            self._left_alone(frame, at, size, sums, rhs)
        else:
            assert sums.last is not None
            last = cg.branch(sums.last)
            with last.then:
                more = SumState(cg.constant(0, sums.last.type), offset=sums.offset)
                self._through_epilogue(frame, at, size, more, rhs)
            with last.otherwise:
                self._left_alone(frame, at, size, sums, rhs)

    def _left_alone(
        self,
        frame: BatchFrame,
        at: tuple[Value, Value],
        size: tuple[Value, Value, Value],
        sums: SumState,
        rhs: PackedOperand,
    ) -> None:
        """Call the macro-kernel to store sums in the result, or in the buffer of partial sums."""
        scene, c = self.scene, self.c
        add = cg.index(0) if sums.first is None else cg.select(sums.first, cg.index(0), cg.index(1))
        begin = at[0] * c.m.c + frame.c + at[1] + sums.offset
        to = SumsDestination(scene.sums_buffer(), begin, c.m.c, add)
        call_macro_kernel(self.shared, self.plan.tile, scene.lanes, self._lhs, rhs, size, to)

    def _through_epilogue(
        self,
        frame: BatchFrame,
        at: tuple[Value, Value],
        size: tuple[Value, Value, Value],
        sums: SumState,
        rhs: PackedOperand,
    ) -> None:
        """Store sums tile by tile through a spill buffer and the epilogue."""
        tile, width, scene, c = self.plan.tile, self.shape.width, self.scene, self.c
        spill = SumsDestination(self.spill, 0, width)

        def one(left: PackedOperand, right: PackedOperand, row: Value, column: Value) -> None:
            place = (at[0] + row, at[1] + column)
            # Emitted even where tiles divide the rows: a loop of constant trip count would be unrolled.
            rows = cg.minimum(size[0] - row, tile.rows)
            prefetch_tile(scene, tile, frame, place, rows)
            call_micro_kernel(self.shared, tile, scene.lanes, left, right, size[2], spill)
            columns = cg.minimum(size[1] - column, width) if c.n.extent % width else cg.index(width)
            if scene.vectors and c.epilogue_size <= INLINE_EPILOGUE:
                scene.write_rows(self.spill, tile.vectors, frame, (rows, columns), place, sums)
            else:
                scene.write_block(self.spill, width, frame, (rows, columns), place, sums)

        macro_kernel_loops(tile, scene.lanes, self._lhs, rhs, size, one)

    @property
    def _lhs(self) -> PackedOperand:
        return PackedOperand(self.lhs, 0, self.lhs_panels.stride)


def _part(number: Index, parts: int, extent: int, unit: int) -> tuple[Value, Value]:
    """Emit the start of one of equal parts, a multiple of `unit`, and its size."""
    if parts == 1:
        return cg.index(0), cg.index(extent)
    units = math.ceil(extent / unit)
    first, end = (cg.index(number) + n for n in (0, 1))
    first, end = (x * units // parts * unit for x in (first, end))
    return first, cg.minimum(end, extent) - first
