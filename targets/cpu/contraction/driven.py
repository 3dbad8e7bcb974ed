"""Packed GEMM whose loops are functions of the library: one packs rhs, one does items, and calls back the epilogue.

All sizes, strides and places are numbers of a table. What LLVM sees of a product is straight-line code that fills it,
and the epilogue, if no other product has the same.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.match.contraction import ContractionAxis
from stablexla.targets.codegen.match.epilogue import COMPLETE_SUM, BatchFrame, ContractionScene, SumState
from stablexla.targets.cpu.callbacks import Callback, buffer_at
from stablexla.targets.cpu.contraction.driver import part_of
from stablexla.targets.cpu.contraction.micro_kernel import (
    PackedOperand,
    SumsDestination,
    call_macro_kernel,
    call_micro_kernel,
    macro_kernel_loops,
)
from stablexla.targets.cpu.contraction.register_tile import INLINE_EPILOGUE, RegisterTile
from stablexla.targets.cpu.epilogues import emit_epilogue
from stablexla.targets.cpu.number_table import Numbers, number_table
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions

if TYPE_CHECKING:
    from stablexla.targets.cpu.contraction.packed import PackedBlocking

Sums = Literal["stored", "complete", "last"]
"""Sums of a block of k are stored, or go through the epilogue: all of them, or those that the last block completes."""

BATCH_AXES = 2
"""The most axes of a batch of products."""


@dataclass(frozen=True)
class GemmNumbers(Numbers):
    """Numbers of a product; distances are in elements.

    Attributes:
        parts, row_blocks, column_blocks: extents of the array of items, with those of the batch in their middle.
        outer, inner: extents of the batch.
        outer_copies, inner_copies: those of the packed copies of rhs.
        lhs_outer, rhs_outer, out_outer, copy_outer: distances along its outer axis: of lhs, rhs and the result, and of
            packed copies of rhs, in copies.
        lhs_inner, rhs_inner, out_inner, copy_inner: along its inner axis.
        m, n, k: extents.
        lhs_row, lhs_step, rhs_column, rhs_step, out_row: distances of rows, columns and steps of k.
        depth, blocks, blocks_of_part: steps of a block of k, blocks, and those of a part.
        panels, panel, panels_at_once: of rhs: panels of a block of k, elements of one, and how many are packed at a
            time, by an item of the phase or for an item of the product.
        groups: items of the packing phase for each block of k.
        lhs_panel, lhs_values: distance of panels of lhs, of rows in place, and elements of an item's.
        part: distance of the sums of parts.
    """

    parts: Index
    row_blocks: Index
    column_blocks: Index
    outer: Index
    inner: Index
    outer_copies: Index
    inner_copies: Index
    lhs_outer: Index
    rhs_outer: Index
    out_outer: Index
    copy_outer: Index
    lhs_inner: Index
    rhs_inner: Index
    out_inner: Index
    copy_inner: Index
    m: Index
    n: Index
    k: Index
    lhs_row: Index
    lhs_step: Index
    rhs_column: Index
    rhs_step: Index
    out_row: Index
    depth: Index
    blocks: Index
    blocks_of_part: Index
    panels: Index
    panel: Index
    panels_at_once: Index
    groups: Index
    lhs_panel: Index
    lhs_values: Index
    part: Index

    def block(self, number: Value) -> tuple[Value, Value]:
        """Emit the first step of a block of k, and how many it has."""
        first = number * self.depth
        return first, cg.minimum(cg.index(self.k) - first, self.depth)


@dataclass(frozen=True)
class TileOfSums(Numbers):
    """A tile of sums as the epilogue's function is given it.

    Attributes:
        spill: address of the sums, a row of the tile after the other.
        outer, inner: coordinates of the product.
        row, column: of the first sum.
        rows, columns: how many there are.
    """

    spill: Value
    outer: Value
    inner: Value
    row: Value
    column: Value
    rows: Value
    columns: Value


@dataclass(frozen=True)
class RhsPacking(SharedFunction):
    """Packing of rhs into all its panels, by a range of items: some panels of a block of k of one copy.

    Attributes:
        panels: packs adjacent panels.
        width: columns of one.
    """

    panels: SharedFunction
    width: int

    @property
    def name(self) -> str:
        return f"{self.panels.name}_all"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        (rhs, packed, table), (first, end) = buffers, numbers
        n = GemmNumbers.loaded(table)
        with cg.loop(first, end) as item:
            outer, inner, block, group = cg.split_index(item.iv, [n.outer_copies, n.inner_copies, n.blocks, n.groups])
            step, steps = n.block(block)
            column = group * n.panels_at_once * self.width
            columns = cg.minimum(cg.index(n.n) - column, cg.index(n.panels_at_once) * self.width)
            at = outer * n.rhs_outer + inner * n.rhs_inner + step * n.rhs_step + column * n.rhs_column
            copy = outer * n.copy_outer + inner * n.copy_inner
            to = ((copy * n.blocks + block) * n.panels + group * n.panels_at_once) * n.panel
            given = [at, cg.index(n.rhs_column), cg.index(n.rhs_step), columns, steps, to, cg.index(n.depth)]
            functions.call(self.panels, [rhs, packed], given)


@dataclass(frozen=True)
class GemmDriver(SharedFunction):
    """Loop nest of packed GEMM over a range of work items, around the packing functions and the micro-kernel.

    Attributes:
        tile: the register tile.
        lhs: packs lhs; None where it is read as it lies.
        rhs: packs rhs for an item; None where a phase has packed it.
        sums: where they go.
        prefetches: whether lines of the result are prefetched that the epilogue writes.
        element: of the sums, and of what is packed.
    """

    rolled = True
    tile: RegisterTile
    lhs: SharedFunction | None
    rhs: SharedFunction | None
    sums: Sums
    prefetches: bool
    element: ir.Type

    @property
    def name(self) -> str:
        lhs = "in_place" if self.lhs is None else self.lhs.name.removeprefix("stablexla_")
        rhs = "" if self.rhs is None else f"_own_{self.rhs.name.removeprefix('stablexla_')}"
        return f"stablexla_gemm_{self.tile.rows}x{self.tile.vectors}_{self.sums}_{lhs}{rhs}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        *_, table = buffers
        *callback, first, end = numbers
        n = GemmNumbers.loaded(table)
        gemm = _Gemm(self, functions, buffers, n, Callback(*callback))
        with cg.loop(first, end) as item:
            gemm.item(item.iv)


class _Gemm:
    """Code of work items inside of the library's function."""

    def __init__(
        self,
        of: GemmDriver,
        functions: SharedFunctions,
        buffers: list[Value],
        numbers: GemmNumbers,
        epilogue: Callback,
    ) -> None:
        self.of, self.functions, self.n, self.epilogue, self.tile = of, functions, numbers, epilogue, of.tile
        self.lhs, self.rhs, self.out, self.result, _ = buffers
        sums = of.element
        self.lanes = cg.lanes_of(sums)
        self.width = of.tile.vectors * self.lanes
        self.packed_lhs = self.lhs if of.lhs is None else cg.alloca(numbers.lhs_values, sums)
        own = None if of.rhs is None else cg.alloca(cg.index(numbers.panels_at_once) * numbers.panel, sums)
        self.packed_rhs = self.rhs if own is None else own
        self.spill = None if of.sums == "stored" else cg.alloca(of.tile.rows * self.width, sums)

    def item(self, item: Value) -> None:
        """Emit an item."""
        n = self.n
        extents = [n.parts, n.outer, n.inner, n.row_blocks, n.column_blocks]
        part, self.outer, self.inner, row_block, column_block = cg.split_index(item, extents)
        row, rows = part_of(row_block, n.row_blocks, n.m, self.tile.rows)
        column, columns = part_of(column_block, n.column_blocks, n.n, self.width)
        start = part * n.blocks_of_part
        end = cg.minimum(start + n.blocks_of_part, n.blocks)
        with cg.loop(start, end) as block:
            step, steps = n.block(block.iv)
            at = self._of_product(n.lhs_outer, n.lhs_inner) + row * n.lhs_row + step * n.lhs_step
            left = self._left(at, rows, steps)
            is_first, is_last = block.iv.eq(start), block.iv.eq(cg.index(n.blocks) - 1)
            if self.of.rhs is None:
                copy = self._of_product(n.copy_outer, n.copy_inner)
                at = ((copy * n.blocks + block.iv) * n.panels + column // self.width) * n.panel
                right = PackedOperand(self.packed_rhs, at, n.panel)
                self._tiles(left, right, (row, column), (rows, columns, steps), (part, is_first, is_last))
            else:
                self._pack_and_sum(left, (row, column), (rows, columns, steps), step, (part, is_first, is_last))

    def _of_product(self, outer: Index, inner: Index) -> Value:
        return self.outer * outer + self.inner * inner

    def _left(self, at: Value, rows: Value, steps: Value) -> PackedOperand:
        """Pack the item's rows of lhs over a block of k, or return them in place."""
        n = self.n
        if self.of.lhs is None:
            # A single row has no distance to the next one; 0 would say that it is packed.
            return PackedOperand(self.lhs, at, n.lhs_panel, row=cg.maximum(n.lhs_row, 1))
        given = [at, cg.index(n.lhs_row), cg.index(n.lhs_step), rows, steps, cg.index(0), cg.index(n.depth)]
        self.functions.call(self.of.lhs, [self.lhs, self.packed_lhs], given)
        return PackedOperand(self.packed_lhs, 0, n.lhs_panel)

    def _pack_and_sum(
        self,
        left: PackedOperand,
        at: tuple[Value, Value],
        size: tuple[Value, Value, Value],
        step: Value,
        state: tuple[Value, Value, Value],
    ) -> None:
        """Pack some columns of rhs at a time."""
        n, (row, column), (rows, columns, steps) = self.n, at, size
        assert self.of.rhs is not None
        some = cg.index(n.panels_at_once) * self.width
        first = self._of_product(n.rhs_outer, n.rhs_inner) + step * n.rhs_step
        with cg.loop(0, columns, some) as group:
            width, place = cg.minimum(columns - group.iv, some), column + group.iv
            source = [place * n.rhs_column + first, cg.index(n.rhs_column), cg.index(n.rhs_step)]
            given = [*source, width, steps, cg.index(0), cg.index(n.depth)]
            self.functions.call(self.of.rhs, [self.rhs, self.packed_rhs], given)
            self._tiles(left, PackedOperand(self.packed_rhs, 0, n.panel), (row, place), (rows, width, steps), state)

    def _tiles(
        self,
        left: PackedOperand,
        right: PackedOperand,
        at: tuple[Value, Value],
        size: tuple[Value, Value, Value],
        state: tuple[Value, Value, Value],
    ) -> None:
        part, is_first, is_last = state
        if self.of.sums == "complete":
            self._through_epilogue(left, right, at, size)
            return
        n, add = self.n, cg.select(is_first, cg.index(0), cg.index(1))
        begin = self._of_product(n.out_outer, n.out_inner) + at[0] * n.out_row + at[1] + part * n.part

        def store() -> None:
            to = SumsDestination(self.out, begin, n.out_row, add)
            call_macro_kernel(self.functions, self.tile, left, right, size, to)

        if self.of.sums == "stored":
            store()
            return
        last = cg.branch(is_last)
        with last.then:
            self._through_epilogue(left, right, at, size)
        with last.otherwise:
            store()

    def _through_epilogue(
        self, left: PackedOperand, right: PackedOperand, at: tuple[Value, Value], size: tuple[Value, Value, Value]
    ) -> None:
        """Sum tile by tile into a spill buffer, from which the epilogue stores."""
        n, tile = self.n, self.tile
        assert self.spill is not None
        spill, address = SumsDestination(self.spill, 0, self.width), cg.address(self.spill)
        of_product = self._of_product(n.out_outer, n.out_inner)

        def one(left: PackedOperand, right: PackedOperand, down: Value, across: Value) -> None:
            row, column = at[0] + down, at[1] + across
            rows, columns = cg.minimum(size[0] - down, tile.rows), cg.minimum(size[1] - across, self.width)
            if self.of.prefetches:
                with cg.loop(0, rows) as r:
                    cg.prefetch(self.result, (r.iv + row) * n.out_row + of_product + column, write=True)
            call_micro_kernel(self.functions, tile, left, right, size[2], spill, (rows, columns), all_stored=True)
            sums = TileOfSums(address, self.outer, self.inner, row, column, rows, columns)
            self.epilogue.call(sums.values)

        macro_kernel_loops(tile, self.lanes, left, right, size, one)


# ---- calls -----------------------------------------------------------------------------------------------------------


class DrivenGemm:
    """Calls of these functions for a product.

    Args:
        blocking: of the product, one that `takes` returns True of.
        lhs, rhs: pack panels of them.
        shared: the functions of its kernel.
    """

    def __init__(
        self, blocking: PackedBlocking, lhs: SharedFunction, rhs: SharedFunction, shared: SharedFunctions
    ) -> None:
        self.blocking, self.c, self.lhs, self.rhs, self.shared = blocking, blocking.contraction, lhs, rhs, shared

    @staticmethod
    def takes(blocking: PackedBlocking) -> bool:
        """Whether the functions have loops for a product: of few axes, with one sum over k of arrays in memory."""
        c = blocking.contraction
        plain = c.b.factor is None and not c.k_outer and len(c.batch) <= BATCH_AXES
        return plain and (c.n.c == 1 or (blocking.parts == 1 and blocking.k_blocks == 1))

    def pack(self, scene: ContractionScene, packed: Value, items: tuple[Value, Value]) -> None:
        """Emit the packing of a range of items of the phase."""
        table = number_table(self._numbers().values)
        function = RhsPacking(self.rhs, self.blocking.width)
        self.shared.call(function, [scene.inputs[self.c.b.number], packed, table], items)

    def sum(self, scene: ContractionScene, packed: Value | None, items: tuple[Value, Value]) -> None:
        """Emit a range of items of the product."""
        b, c = self.blocking, self.c
        stored = c.n.c == 1 and (b.parts > 1 or scene.keeping_is_writing)
        sums: Sums = "stored" if stored else "complete" if b.k_blocks == 1 else "last"
        driver = GemmDriver(
            b.tile,
            None if b.in_place else self.lhs,
            self.rhs if packed is None else None,
            sums,
            scene.vectors and not stored,
            scene.compute,
        )
        lhs, rhs = scene.inputs[c.a.number], scene.inputs[c.b.number] if packed is None else packed
        # Those that are not read are others again: a type more would be a function more.
        result = scene.results[0] if driver.prefetches else lhs
        out = result if sums == "complete" else scene.sums_buffer()
        buffers = [lhs, rhs, out, result, number_table(self._numbers().values)]
        callback: tuple[Index, Index] = (0, 0)
        if not stored:
            epilogue = self._epilogue(scene, adds=sums == "last")
            callback = epilogue.function, epilogue.table
        self.shared.call(driver, buffers, [*callback, *items])

    def _epilogue(self, scene: ContractionScene, *, adds: bool) -> Callback:
        """Emit the function that stores a tile of sums; `adds` says that it completes those of other blocks of k."""
        tile, width, n = self.blocking.tile, self.blocking.width, self.c.n.extent

        def write(scene: ContractionScene, call: list[Value]) -> None:
            sums, axes = TileOfSums(*call), scene.contraction.batch
            coordinates = [sums.outer, sums.inner][BATCH_AXES - len(axes) :]
            at = cg.total(x * axis.c for axis, x in zip(axes, coordinates, strict=True))
            frame = BatchFrame(cg.index(0), cg.index(0), at, tuple(coordinates))
            size = sums.rows, sums.columns if n % width else cg.index(width)
            state = SumState(cg.truth(False)) if adds else COMPLETE_SUM
            spill, place = buffer_at(sums.spill, scene.compute), (sums.row, sums.column)
            if scene.vectors and scene.contraction.epilogue_size <= INLINE_EPILOGUE:
                scene.write_rows(spill, tile.vectors, frame, size, place, state)
            else:
                scene.write_block(spill, width, frame, size, place, state)

        key = adds, n % width, tile.vectors
        return emit_epilogue(self.shared, scene, key, TileOfSums.length(), write)

    def _numbers(self) -> GemmNumbers:
        b, c = self.blocking, self.c
        outer, inner = [*[ContractionAxis()] * (BATCH_AXES - len(c.batch)), *c.batch]
        tiles = math.ceil(math.ceil(c.m.extent / b.tile.rows) / b.row_blocks)
        panel = cg.known(b.lhs_panels.stride)
        assert panel is not None
        return GemmNumbers(
            parts=b.parts,
            row_blocks=b.row_blocks,
            column_blocks=b.column_blocks,
            outer=outer.extent,
            inner=inner.extent,
            outer_copies=outer.extent if outer.b else 1,
            inner_copies=inner.extent if inner.b else 1,
            lhs_outer=outer.a,
            rhs_outer=outer.b,
            out_outer=outer.c,
            copy_outer=(inner.extent if inner.b else 1) if outer.b else 0,
            lhs_inner=inner.a,
            rhs_inner=inner.b,
            out_inner=inner.c,
            copy_inner=1 if inner.b else 0,
            m=c.m.extent,
            n=c.n.extent,
            k=c.k.extent,
            lhs_row=c.m.a,
            lhs_step=c.k.a,
            rhs_column=c.n.b,
            rhs_step=c.k.b,
            out_row=c.m.c,
            depth=b.depth,
            blocks=b.k_blocks,
            blocks_of_part=math.ceil(b.k_blocks / b.parts),
            panels=b.panel_count,
            panel=b.panel_size,
            panels_at_once=b.panels,
            groups=math.ceil(b.panel_count / b.panels),
            lhs_panel=c.m.a * b.tile.rows if b.in_place else panel,
            lhs_values=b.lhs_panels.size(tiles),
            part=b.sums_size,
        )


__all__ = ["DrivenGemm"]
