"""Contractions of any size: blocks of both factors packed into caches, the order of loops after Goto and BLIS.

An item is a block of rows by a block of columns of one product. Over blocks of k it packs its part of lhs; rhs is
packed before, once for all items, or by the item itself, some columns at a time, where no other item needs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stablexla.targets.cpu.contraction_match import Contraction
from stablexla.targets.cpu.contraction_output import (
    WHOLE,
    Frame,
    Row,
    Scene,
    Sums,
    compute_type,
    partial_result,
)
from stablexla.targets.cpu.contraction_panels import Panels, Source, copy_lines, pack_panels
from stablexla.targets.cpu.contraction_tiles import (
    INLINE_EPILOGUE,
    Tile,
    grain_of,
    multiply_add,
    prefetch_tile,
    spill_tile,
)
from stablexla.targets.cpu.emission import (
    Index,
    Value,
    alloca,
    bits_of,
    emitting,
    index,
    load,
    loop,
    minimum,
    split_index,
)
from stablexla.targets.cpu.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.cpu.rolled import keep_rolled
from stablexla.targets.cpu.target import CpuTarget

UNROLL = 2
# Elements behind packed lhs that whole vectors may run into.
SLACK = 64


@dataclass(frozen=True)
class PackedPlan:
    """How a large contraction is cut.

    Attributes:
        tile: the register tile.
        depth: steps of k in a block, a multiple of the lanes of a vector.
        rows, columns: size of an item, multiples of the tile's.
        group: columns of rhs that an item packs at a time; 0 if rhs is packed before all items.
        panels: panels of rhs that one item of the packing phase makes.
        parts: pieces that k is cut in, each summed by other items; a last phase adds up their sums.
    """

    tile: Tile
    depth: int
    rows: int
    columns: int
    group: int = 0
    panels: int = 8
    parts: int = 1


def emit_packed(kernel: Kernel, contraction: Contraction, target: CpuTarget, plan: PackedPlan) -> Emitted:
    """Writes a contraction in blocks."""
    shape = _Shape(contraction, plan, target)
    scratch = shape.scratch()
    if not plan.group:
        function, arguments = kernel.declare(scratch, kernel.impl_name + "_pack")
        keep_rolled(function)
        with emitting(function, target):
            _pack_all(shape, Scene(contraction, arguments), arguments)
    function, arguments = kernel.declare(scratch)
    keep_rolled(function)
    with emitting(function, target):
        block = _Block(shape, shape.scene(arguments), None if plan.group else Value(arguments.scratch[0]))
        order = [plan.parts, contraction.batches, shape.column_blocks, shape.row_blocks]
        with loop(Value(arguments.lo), Value(arguments.hi)) as item:
            block.item(*split_index(item.iv, order))
    items = math.prod(order)
    phases = [(kernel.impl_name, items, grain_of(contraction, items))]
    if not plan.group:
        phases.insert(0, (kernel.impl_name + "_pack", shape.pack_items, shape.pack_grain))
    if plan.parts > 1:
        phases.append(_emit_last_sums(kernel, shape, target, scratch))
    # Unfinished sums in a result would overwrite what the epilogue still has to read.
    in_place = contraction.in_place if shape.all_k_blocks == 1 or shape.needs_partial else ()
    return Emitted(items, grain_of(contraction, items), scratch, in_place, phases=tuple(phases))


def _emit_last_sums(
    kernel: Kernel, shape: _Shape, target: CpuTarget, scratch: tuple[tuple[str, int], ...]
) -> tuple[str, int, int]:
    """The phase that adds up the sums of the parts of k, in their order; an item is a row."""
    c = shape.contraction
    name = kernel.impl_name + "_sum"
    function, arguments = kernel.declare(scratch, name)
    with emitting(function, target):
        scene = shape.scene(arguments)
        lanes = scene.lanes if scene.vectors else 0

        def add_up(row: Row, column: Value, count: int) -> None:
            with loop(1, shape.plan.parts, 1, [scene.load_partial(row, column, lanes, count)]) as part:
                offset = part.iv * shape.sums_size
                part.yields(part.args[0] + scene.load_partial(row, column, lanes, count, offset))
            scene.write(part.results[0], row, column, count)

        with loop(Value(arguments.lo), Value(arguments.hi)) as item:
            batch, number = split_index(item.iv, [c.batches, c.m.extent])
            row = scene.row(scene.frame(batch), number)
            step = max(1, lanes)
            whole = c.n.extent // step * step
            with loop(0, whole, step) as j:
                add_up(row, j.iv, step)
            if whole < c.n.extent:
                add_up(row, index(whole), c.n.extent - whole)
    grain = max(1, round(4e4 / (c.n.extent * shape.plan.parts)))
    return name, c.batches * c.m.extent, grain


class _Shape:
    """Numbers of blocks and sizes of buffers that follow from a contraction and a plan."""

    def __init__(self, contraction: Contraction, plan: PackedPlan, target: CpuTarget) -> None:
        self.contraction = c = contraction
        self.plan = plan
        self.element = compute_type(c)
        self.lanes = max(1, target.vector_bits // bits_of(self.element))
        self.width = plan.tile.vectors * self.lanes
        self.unroll = min(UNROLL, self.lanes)
        self.k_blocks = math.ceil(c.k.extent / plan.depth)
        self.all_k_blocks = self.k_blocks * math.prod(axis.extent for axis in c.k_outer)
        self.row_blocks = math.ceil(c.m.extent / plan.rows)
        self.column_blocks = math.ceil(c.n.extent / plan.columns)
        self.panel_count = math.ceil(c.n.extent / self.width)
        # Batch axes along which rhs does not move share one packed copy.
        self.rhs_batch = tuple(axis for axis in c.batch if axis.b)
        self.needs_partial = plan.parts > 1 or (self.all_k_blocks > 1 and partial_result(c) < 0)
        self.sums_size = math.prod(c.shape)
        # One k block of all panels of a packed rhs; a product's blocks follow one another.
        self.panels = Panels(self.width, plan.depth, self.lanes)
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
        """Items of the packing phase that make about 20 microseconds."""
        return max(1, round(4e4 / (self.plan.panels * self.width * self.plan.depth)))

    def scratch(self) -> tuple[tuple[str, int], ...]:
        """Packed rhs, then unfinished sums where no result can hold them."""
        out = []
        if not self.plan.group:
            copies = math.prod(axis.extent for axis in self.rhs_batch)
            out.append((str(self.element), copies * self.rhs_size))
        if self.needs_partial:
            out.append((str(self.element), self.plan.parts * self.sums_size))
        return tuple(out)

    def scene(self, arguments: KernelArguments) -> Scene:
        """The contraction in one of its functions."""
        return Scene(self.contraction, arguments, Value(arguments.scratch[-1]) if self.needs_partial else None)

    def k_block(self, number: Index) -> tuple[Value, Value, Value]:
        """Where block `number` of k begins in lhs and rhs, and its number of steps."""
        c = self.contraction
        *outer, block = split_index(number, [*(axis.extent for axis in c.k_outer), self.k_blocks])
        first = block * self.plan.depth
        at_a, at_b = first * c.k.a, first * c.k.b
        for axis, o in zip(c.k_outer, outer, strict=True):
            at_a, at_b = o * axis.a + at_a, o * axis.b + at_b
        steps = index(c.k.extent) - first if self.k_blocks > 1 else index(c.k.extent)
        whole = c.k.extent % self.plan.depth == 0
        return at_a, at_b, index(self.plan.depth) if whole else minimum(steps, self.plan.depth)


def _pack_all(shape: _Shape, scene: Scene, arguments: KernelArguments) -> None:
    """The packing phase: an item is a group of panels of one block of k of one rhs."""
    c, plan = shape.contraction, shape.plan
    buffer = Value(arguments.scratch[0])
    width = plan.panels * shape.width
    extents = [*(axis.extent for axis in shape.rhs_batch), shape.all_k_blocks, shape.pack_groups]
    with loop(Value(arguments.lo), Value(arguments.hi)) as item:
        *batch, number, group = split_index(item.iv, extents)
        _, at, steps = shape.k_block(number)
        copy = index(0)
        for axis, x in zip(shape.rhs_batch, batch, strict=True):
            at, copy = x * axis.b + at, copy * axis.extent + x
        columns = minimum(index(c.n.extent) - group * width, width) if shape.pack_groups > 1 else index(c.n.extent)
        base = copy * shape.rhs_size + number * shape.block_size + group * (plan.panels * shape.panels.stride)
        source = _rhs(shape, scene, group * (width * c.n.b) + at, columns, steps)
        pack_panels(shape.panels, source, buffer, base, shape.unroll)


def _rhs(shape: _Shape, scene: Scene, at: Index, columns: Index, steps: Index) -> Source:
    """A part of rhs, to be packed."""
    c, whole = scene.contraction, shape.contraction.n.extent % shape.width == 0
    return Source(scene.load_b, scene.inputs[c.b.number], at, c.n.b, c.k.b, columns, steps, ahead=True, whole=whole)


class _Block:
    """The code of one item."""

    def __init__(self, shape: _Shape, scene: Scene, packed: Value | None) -> None:
        self.shape, self.scene, self.packed = shape, scene, packed
        self.c, self.plan = shape.contraction, shape.plan
        plan, tile = self.plan, self.plan.tile
        self.lines = self.c.k.a == 1 or self.c.m.a != 1  # lhs is kept as lines along k
        self.lhs_panels = Panels(tile.rows, plan.depth, shape.lanes)
        tiles = math.ceil(min(plan.rows, self.c.m.extent) / tile.rows)
        size = tiles * tile.rows * plan.depth if self.lines else self.lhs_panels.size(tiles)
        self.lhs = alloca(size + SLACK, scene.compute)
        self.spill = alloca(tile.rows * shape.width, scene.compute)
        if self.packed is None:
            self.rhs = alloca(shape.panels.size(plan.group // shape.width), scene.compute)

    def item(self, part: Index, batch: Index, column_block: Index, row_block: Index) -> None:
        c, plan, shape = self.c, self.plan, self.shape
        frame = self.scene.frame(batch)
        row, column = index(row_block) * plan.rows, index(column_block) * plan.columns
        rows = minimum(index(c.m.extent) - row, plan.rows) if shape.row_blocks > 1 else index(c.m.extent)
        columns = minimum(index(c.n.extent) - column, plan.columns) if shape.column_blocks > 1 else index(c.n.extent)
        start, end = index(0), index(shape.all_k_blocks)
        if plan.parts > 1:
            some = math.ceil(shape.all_k_blocks / plan.parts)
            start = index(part) * some
            end = minimum(start + some, shape.all_k_blocks)
        with loop(start, end) as number:
            at_a, at_b, steps = shape.k_block(number.iv)
            self._pack_lhs(row * c.m.a + frame.a + at_a, rows, steps)
            sums = WHOLE
            if plan.parts > 1:
                sums = Sums(number.iv.eq(start), kept=True, offset=index(part) * shape.sums_size)
            elif shape.all_k_blocks > 1:
                sums = Sums(number.iv.eq(0), number.iv.eq(shape.all_k_blocks - 1))
            turns = (steps + (shape.unroll - 1)) // shape.unroll * shape.unroll
            if self.packed is None:
                with loop(0, columns, plan.group) as group:
                    width = minimum(columns - group.iv, plan.group)
                    first = column + group.iv
                    source = _rhs(shape, self.scene, first * c.n.b + frame.b + at_b, width, steps)
                    pack_panels(shape.panels, source, self.rhs, 0, shape.unroll)
                    self._tiles(frame, (row, first), (rows, width), turns, sums, self.rhs, index(0))
            else:
                base = self._packed_copy(frame) + number.iv * shape.block_size
                base = base + column // shape.width * shape.panels.stride
                self._tiles(frame, (row, column), (rows, columns), turns, sums, self.packed, base)

    def _packed_copy(self, frame: Frame) -> Value:
        """Where the packed rhs of a product begins."""
        copy = index(0)
        for axis, x in zip(self.c.batch, frame.coordinates, strict=True):
            if axis.b:
                copy = copy * axis.extent + x
        return copy * self.shape.rhs_size

    def _pack_lhs(self, at: Index, rows: Index, steps: Index) -> None:
        c = self.c
        source = Source(self.scene.load_a, self.scene.inputs[c.a.number], at, c.m.a, c.k.a, rows, steps)
        if not self.lines:
            pack_panels(self.lhs_panels, source, self.lhs, 0, self.shape.unroll)
        elif c.k.a == 1:
            copy_lines(source, self.lhs, self.plan.depth, self.shape.lanes)
        else:
            pack_panels(Panels(1, self.plan.depth, 1), source, self.lhs, 0, self.shape.unroll)

    def _tiles(
        self,
        frame: Frame,
        at: tuple[Value, Value],
        size: tuple[Value, Value],
        steps: Value,
        sums: Sums,
        packed: Value,
        base: Value,
    ) -> None:
        """All register tiles of a block whose factors are packed."""
        tile, width = self.plan.tile, self.shape.width
        down, across = (size[0] + (tile.rows - 1)) // tile.rows, (size[1] + (width - 1)) // width
        with loop(0, across) as j, loop(0, down) as i:
            row, column = at[0] + i.iv * tile.rows, at[1] + j.iv * width
            # Taken so where tiles divide the rows too: a loop of a known number of turns would be unrolled.
            rows = minimum(index(self.c.m.extent) - row, tile.rows)
            prefetch_tile(self.scene, tile, frame, (row, column), rows)
            lhs = i.iv * (tile.rows * self.plan.depth if self.lines else self.lhs_panels.stride)
            rhs = j.iv * self.shape.panels.stride + base
            self._write(self._sums(steps, lhs, packed, rhs), frame, rows, (row, column), sums)

    def _sums(self, steps: Value, at_lhs: Value, packed: Value, at_rhs: Value) -> list[Value]:
        """The sums of a tile whose factors begin at these places of their buffers."""
        tile, width, scene = self.plan.tile, self.shape.width, self.scene
        along_k, along_rows = (1, self.plan.depth) if self.lines else (tile.rows, 1)
        with loop(0, steps, self.shape.unroll, [scene.zero] * (tile.rows * tile.vectors)) as k:
            a, b, values = k.iv * along_k + at_lhs, k.iv * width + at_rhs, k.args
            for step in range(self.shape.unroll):
                rows = [load(self.lhs, a + (step * along_k + r * along_rows)) for r in range(tile.rows)]
                vectors = [load(packed, b + (step * width + v), scene.lanes) for v in range(0, width, scene.lanes)]
                values = multiply_add(scene, tile, rows.__getitem__, vectors.__getitem__, values)
            k.yields(*values)
        return k.results

    def _write(self, values: list[Value], frame: Frame, rows: Value, at: tuple[Value, Value], sums: Sums) -> None:
        """All tiles go out through a buffer: that is one piece of code for those inside and those at an edge."""
        tile, width, scene = self.plan.tile, self.shape.width, self.scene
        spill_tile(scene, tile, values, self.spill)
        columns = minimum(index(self.c.n.extent) - at[1], width) if self.c.n.extent % width else index(width)
        if scene.vectors and self.c.epilogue_size <= INLINE_EPILOGUE:
            scene.write_rows(self.spill, tile.vectors, frame, (rows, columns), at, sums)
        else:
            scene.write_block(self.spill, width, frame, (rows, columns), at, sums)
