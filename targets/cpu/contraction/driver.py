"""Driver of packed GEMM (GotoBLAS, BLIS): packing phase, cache blocks, loop nest over blocks of k, split-K, epilogue.

An item is a block of rows by a block of columns of one product. For each block of k it packs its A panels; B panels are
packed before, once for all items, or by the item itself, some columns at a time, where no other item needs them. What a
panel holds and how a register tile is summed is the product's: multiply-adds (`packed`), or dot-product instructions
over groups along k (`dot_units`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.calls import Phase
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
from stablexla.targets.cpu.contraction.register_tile import INLINE_EPILOGUE, RegisterTile, contraction_grain
from stablexla.targets.cpu.contraction.split_k import emit_split_k_reduction

Size = tuple[Value, Value, Value]
"""Rows, columns and steps of k."""


class Blocking(ABC):
    """Cache blocks of a contraction, and sizes of its buffers.

    Attributes:
        depth: steps of k in a block.
        rows, columns: the most of an item, multiples of the tile's.
        panels: B panels that an item of the packing phase packs, or an item at a time.
        shared: rhs is packed in a phase before all items.
        parts: split-K: parts of k, each summed by other items; a last phase adds up their partial sums.
        panel_size: elements of a packed B panel of one block of k.
        pieces: equal pieces of k, of each of which a block has some steps, one piece after the other.
    """

    unroll: ClassVar[bool] = False
    """Whether LLVM may unroll the loops of the functions."""
    pack_work: ClassVar[float] = 4e4
    """Elements packed in about 20 microseconds."""

    def __init__(
        self,
        contraction: Contraction,
        tile: RegisterTile,
        lanes: int,
        depth: int,
        rows: int,
        columns: int,
        panels: int,
        *,
        shared: bool,
        parts: int = 1,
    ) -> None:
        self.contraction = c = contraction
        self.tile, self.lanes, self.width = tile, lanes, tile.vectors * lanes
        self.depth, self.rows, self.columns = depth, rows, columns
        self.panels, self.shared, self.parts = panels, shared, parts
        self.panel_size = depth * self.width
        self.pieces = 1 if c.b.factor is None else c.b.factor.parts
        self.k_blocks = math.ceil(c.k.extent / depth)
        self.all_k_blocks = self.k_blocks * math.prod(axis.extent for axis in c.k_outer)
        self.row_blocks = math.ceil(c.m.extent / rows)
        self.column_blocks = math.ceil(c.n.extent / columns)
        self.panel_count = math.ceil(c.n.extent / self.width)
        # Batch axes with stride 0 in rhs share one packed copy.
        self.rhs_batch = tuple(axis for axis in c.batch if axis.b)
        self.copies = math.prod(axis.extent for axis in self.rhs_batch)
        self.needs_partial = parts > 1 or (self.all_k_blocks > 1 and partial_sum_result(c) < 0)
        self.sums_size = math.prod(c.shape)

    @property
    @abstractmethod
    def packed_rhs(self) -> list[tuple[ir.Type, int]]:
        """Buffers of packed panels: element type, and elements for each panel."""

    @abstractmethod
    def pack_rhs(self, scene: ContractionScene, buffers: list[Value], place: PanelPlace, block: RhsBlock) -> None:
        """Pack some columns of rhs over a block of k."""

    @abstractmethod
    def item(self, scene: ContractionScene, packed: list[Value] | None) -> GemmItem:
        """Return the code of a work item; `packed`: rhs, where it is shared."""

    def emit(self, kernel: Kernel, target: CpuTarget) -> Emitted:
        """Emit the phases of the kernel."""
        c, scratch, phases = self.contraction, self._scratch(), []
        if self.shared:
            name = kernel.impl_name + "_pack"
            with kernel.phase(target, scratch, name, unroll=self.unroll) as arguments:
                self.pack_all(ContractionScene(c, arguments), arguments)
            extents = self._pack_extents
            grain = max(1, round(self.pack_work / (self.panels * self.panel_size)))
            phases.append(Phase(name, math.prod(extents), grain))
        with kernel.phase(target, scratch, unroll=self.unroll) as arguments:
            packed = arguments.scratch[: len(self.packed_rhs)] if self.shared else None
            scene = ContractionScene(c, arguments, arguments.scratch[-1] if self.needs_partial else None)
            self.sum_all(scene, arguments, packed)
        items = math.prod(self._order)
        grain = contraction_grain(c, items)
        phases.append(Phase(kernel.impl_name, items, grain))
        if self.parts > 1:
            phases.append(emit_split_k_reduction(kernel, c, target, scratch, self.parts))
        # Partial sums in a result would overwrite inputs that the epilogue still loads.
        in_place = c.in_place if self.all_k_blocks == 1 or self.needs_partial else ()
        packs = c.packs(phases[0].function) if self.shared and len(self.packed_rhs) == 1 else ()
        return Emitted(items, grain, scratch, in_place, phases=tuple(phases), packs=packs)

    def _scratch(self) -> tuple[tuple[str, int], ...]:
        """Return scratch: packed rhs, then partial sums where no result can hold them."""
        panels = self.copies * self.all_k_blocks * self.panel_count
        out = [(str(element), panels * size) for element, size in self.packed_rhs] if self.shared else []
        if self.needs_partial:
            out.append((str(accumulator_type(self.contraction)), self.parts * self.sums_size))
        return tuple(out)

    def k_block(self, number: Index) -> tuple[Value, Value, Value]:
        """Emit the offsets of block `number` of k in lhs and rhs, and its number of steps."""
        c = self.contraction
        *outer, block = cg.split_index(number, [*(axis.extent for axis in c.k_outer), self.k_blocks])
        first = block * (self.depth // self.pieces)
        at_a, at_b = first * c.k.a, first * c.k.b
        for axis, o in zip(c.k_outer, outer, strict=True):
            at_a, at_b = o * axis.a + at_a, o * axis.b + at_b
        steps = cg.index(c.k.extent) - block * self.depth if self.k_blocks > 1 else cg.index(c.k.extent)
        whole = c.k.extent % self.depth == 0
        return at_a, at_b, cg.index(self.depth) if whole else cg.minimum(steps, self.depth)

    @property
    def _pack_extents(self) -> list[int]:
        """Items of the packing phase: groups of panels of one block of k of one rhs."""
        groups = math.ceil(self.panel_count / self.panels)
        return [*(axis.extent for axis in self.rhs_batch), self.all_k_blocks, groups]

    @property
    def _order(self) -> list[int]:
        """The array of items."""
        return [self.parts, self.contraction.batches, self.row_blocks, self.column_blocks]

    def sum_all(self, scene: ContractionScene, arguments: KernelArguments, packed: list[Value] | None) -> None:
        """Emit the items of a call."""
        item = self.item(scene, packed)
        with arguments.split_items(self._order) as place:
            item.write(*place)

    def pack_all(self, scene: ContractionScene, arguments: KernelArguments) -> None:
        """Emit the items of a call of the packing phase."""
        c, width, extents = self.contraction, self.panels * self.width, self._pack_extents
        with arguments.split_items(extents) as (*batch, number, group):
            _, at, steps = self.k_block(number)
            copy = cg.index(0)
            for axis, x in zip(self.rhs_batch, batch, strict=True):
                at, copy = x * axis.b + at, copy * axis.extent + x
            columns = cg.index(c.n.extent)
            if extents[-1] > 1:
                columns = cg.minimum(columns - group * width, width)
            place = PanelPlace(self, copy, number, group, self.panels)
            positions = iter(batch)
            frame = BatchFrame(0, at, 0, tuple(next(positions) if axis.b else cg.index(0) for axis in c.batch))
            at = group * (width * c.n.b) + at
            self.pack_rhs(scene, arguments.scratch, place, RhsBlock(frame, at, group * width, number, columns, steps))


@dataclass(frozen=True)
class PanelPlace:
    """The first of some packed B panels: a copy of rhs, a block of k, and `number * count` panels into the block."""

    blocking: Blocking
    copy: Value
    block: Value
    number: Value
    count: int = 1

    def at(self, size: int) -> Value:
        """Emit the offset in a buffer of `size` elements for each panel."""
        block = size * self.blocking.panel_count
        first = self.copy * (block * self.blocking.all_k_blocks) + self.block * block
        return first + self.number * (self.count * size)


@dataclass(frozen=True)
class RhsBlock:
    """Columns of a block of k of one product's rhs.

    Attributes:
        at: its offset, where rhs is in memory.
        column, number: its first column, and the number of the block of k.
        columns, steps: its size.
    """

    frame: BatchFrame
    at: Index
    column: Value
    number: Value
    columns: Value
    steps: Value


class GemmItem(ABC):
    """Code of one work item: a block of rows by a block of columns of one product.

    Attributes:
        buffers: packed rhs, shared or the item's own.
        spill: buffer of one register tile.
    """

    spill: Value

    def __init__(self, blocking: Blocking, scene: ContractionScene, packed: list[Value] | None) -> None:
        self.blocking, self.scene, self.c = blocking, scene, blocking.contraction
        self._packed = packed

    @property
    def buffers(self) -> list[Value]:
        return self._own if self._packed is None else self._packed

    def allocate_rhs(self) -> None:
        """Allocate the item's own packed rhs, where it is not shared."""
        if self._packed is None:
            self._own = [cg.alloca(self.blocking.panels * size, t) for t, size in self.blocking.packed_rhs]

    @abstractmethod
    def pack_lhs(self, at: Index, rows: Value, steps: Value) -> None:
        """Pack the item's A panels of a block of k."""

    @abstractmethod
    def tiles(self, frame: BatchFrame, at: tuple[Value, Value], size: Size, sums: SumState, place: PanelPlace) -> None:
        """Emit the register tiles of a block of packed operands; `at`: its first row and column."""

    def write(self, part: Index, batch: Index, row_block: Index, column_block: Index) -> None:
        """Emit the loop over blocks of k."""
        c, b = self.c, self.blocking
        frame = self.scene.frame(batch)
        row, rows = part_of(row_block, b.row_blocks, c.m.extent, b.tile.rows)
        column, columns = part_of(column_block, b.column_blocks, c.n.extent, b.width)
        start, end = cg.index(0), cg.index(b.all_k_blocks)
        if b.parts > 1:
            some = math.ceil(b.all_k_blocks / b.parts)
            start = cg.index(part) * some
            end = cg.minimum(start + some, b.all_k_blocks)
        with cg.loop(start, end) as number:
            at_a, at_b, steps = b.k_block(number.iv)
            self.pack_lhs(row * c.m.a + frame.a + at_a, rows, steps)
            sums = COMPLETE_SUM
            if b.parts > 1:
                sums = SumState(number.iv.eq(start), kept=True, offset=cg.index(part) * b.sums_size)
            elif b.all_k_blocks > 1:
                sums = SumState(number.iv.eq(0), number.iv.eq(b.all_k_blocks - 1))
            if b.shared:
                place = PanelPlace(b, self._copy(frame), number.iv, column // b.width)
                self.tiles(frame, (row, column), (rows, columns, steps), sums, place)
            else:
                block = RhsBlock(frame, at_b + frame.b, column, number.iv, columns, steps)
                self._pack_and_sum(block, row, rows, sums)

    def _pack_and_sum(self, block: RhsBlock, row: Value, rows: Value, sums: SumState) -> None:
        """Pack some columns of rhs at a time; `block.at` is the offset of column 0."""
        b = self.blocking
        place = PanelPlace(b, cg.index(0), cg.index(0), cg.index(0))
        some = b.panels * b.width
        with cg.loop(0, block.columns, some) as group:
            width = cg.minimum(block.columns - group.iv, some)
            first = block.column + group.iv
            part = replace(block, at=first * self.c.n.b + block.at, column=first, columns=width)
            b.pack_rhs(self.scene, self.buffers, place, part)
            self.tiles(block.frame, (row, first), (rows, width, block.steps), sums, place)

    def _copy(self, frame: BatchFrame) -> Value:
        """Emit the number of the packed copy of rhs that a product reads."""
        copy = cg.index(0)
        for axis, x in zip(self.c.batch, frame.coordinates, strict=True):
            if axis.b:
                copy = copy * axis.extent + x
        return copy

    def write_spilled(
        self, frame: BatchFrame, place: tuple[Value, Value], rows: Value, columns: Value, sums: SumState
    ) -> None:
        """Emit the epilogue of a register tile in the spill buffer; `columns`: those that are left of the item's."""
        scene, width = self.scene, self.blocking.width
        size = rows, cg.minimum(columns, width) if self.c.n.extent % width else cg.index(width)
        if scene.vectors and self.c.epilogue_size <= INLINE_EPILOGUE:
            scene.write_rows(self.spill, self.blocking.tile.vectors, frame, size, place, sums)
        else:
            scene.write_block(self.spill, width, frame, size, place, sums)


def part_of(number: Index, parts: Index, extent: Index, unit: int) -> tuple[Value, Value]:
    """Emit the start of one of equal parts, a multiple of `unit`, and its size."""
    if cg.known(parts) == 1:
        return cg.index(0), cg.index(extent)
    units = (cg.index(extent) + (unit - 1)) // unit
    first, end = ((cg.index(number) + n) for n in (0, 1))
    first, end = ((x * units + parts - 1) // parts * unit for x in (first, end))
    return first, cg.minimum(end, extent) - first
