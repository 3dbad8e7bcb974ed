"""Packed GEMM by multiply-adds, for elements that are multiplied in their own type.

Packing and micro-kernel are functions that products of all shapes share, and so are the loops over blocks of most
(`driven`); emitted for each of the others are its loop nest (`driver`) and, after the last block of k, the epilogue.
"""

from __future__ import annotations

import math

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import Emitted, Kernel, KernelArguments
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.match.contraction import Contraction
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene, SumState, accumulator_type
from stablexla.targets.cpu.contraction.driven import DrivenGemm
from stablexla.targets.cpu.contraction.driver import Blocking, GemmItem, PanelPlace, RhsBlock, Size
from stablexla.targets.cpu.contraction.factors import Bundle, ComputedRhs, Step
from stablexla.targets.cpu.contraction.micro_kernel import (
    PackedOperand,
    SumsDestination,
    call_macro_kernel,
    call_micro_kernel,
    macro_kernel_loops,
    pack_operand,
    packing_function,
)
from stablexla.targets.cpu.contraction.packing import PackedPanels, PackingSource
from stablexla.targets.cpu.contraction.register_tile import RegisterTile, prefetch_tile
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
        in_place: whether lhs is read as it lies, not packed.
    """

    tile: RegisterTile
    depth: int
    rows: int
    columns: int
    group: int = 0
    panels: int = 8
    parts: int = 1
    in_place: bool = False


def emit_packed(kernel: Kernel, contraction: Contraction, target: CpuTarget, plan: PackedPlan) -> Emitted:
    """Emit a contraction as packed GEMM."""
    return PackedBlocking(contraction, plan, target, SharedFunctions(kernel, target)).emit(kernel, target)


class PackedBlocking(Blocking):
    """Cache blocks of products of one element type."""

    def __init__(self, c: Contraction, plan: PackedPlan, target: CpuTarget, functions: SharedFunctions) -> None:
        self.element, self.functions, self.in_place = accumulator_type(c), functions, plan.in_place
        lanes = max(1, target.vector_bits // cg.bits_of(self.element))
        panels = plan.group // (plan.tile.vectors * lanes) if plan.group else plan.panels
        blocks = (plan.depth, plan.rows, plan.columns, panels)
        super().__init__(c, plan.tile, lanes, *blocks, shared=not plan.group, parts=plan.parts)
        self.rhs_panels = PackedPanels(self.width, plan.depth, lanes)
        self.lhs_panels = PackedPanels(plan.tile.rows, plan.depth, lanes)
        last = c.k.extent - (self.k_blocks - 1) * plan.depth
        self.is_deep = last // self.pieces >= max(self.rhs_panels.square, self.lhs_panels.square)
        self.driven: DrivenGemm | None = None
        if DrivenGemm.takes(self):
            lhs = packing_function(plan.tile.rows, (c.m.a, c.k.a), c.a.conversion, ahead=False, deep=self.is_deep)
            rhs = packing_function(self.width, (c.n.b, c.k.b), c.b.conversion, ahead=True, deep=self.is_deep)
            self.driven = DrivenGemm(self, lhs, rhs, functions)

    @property
    def packed_rhs(self) -> list[tuple[ir.Type, int]]:
        return [(self.element, self.panel_size)]

    def pack_all(self, scene: ContractionScene, arguments: KernelArguments) -> None:
        if self.driven is None:
            super().pack_all(scene, arguments)
        else:
            self.driven.pack(scene, arguments.scratch[0], (arguments.lo, arguments.hi))

    def sum_all(self, scene: ContractionScene, arguments: KernelArguments, packed: list[Value] | None) -> None:
        if self.driven is None:
            super().sum_all(scene, arguments, packed)
        else:
            self.driven.sum(scene, packed[0] if packed else None, (arguments.lo, arguments.hi))

    def pack_rhs(self, scene: ContractionScene, buffers: list[Value], place: PanelPlace, block: RhsBlock) -> None:
        c, to = self.contraction, PackedOperand(buffers[0], place.at(self.panel_size))
        if c.b.factor is not None:
            pack_factor(scene, block, self.rhs_panels, to)
            return
        matrix, deep = scene.inputs[c.b.number], self.is_deep
        source = PackingSource(matrix, block.at, c.n.b, c.k.b, block.columns, block.steps, ahead=True, deep=deep)
        pack_operand(self.functions, self.rhs_panels, source, c.b.conversion, to)

    def item(self, scene: ContractionScene, packed: list[Value] | None) -> GemmItem:
        return _Item(self, scene, packed)


class _Item(GemmItem):
    blocking: PackedBlocking

    def __init__(self, blocking: PackedBlocking, scene: ContractionScene, packed: list[Value] | None) -> None:
        super().__init__(blocking, scene, packed)
        self.functions = blocking.functions
        tiles = math.ceil(math.ceil(self.c.m.extent / blocking.tile.rows) / blocking.row_blocks)
        if not blocking.in_place:
            self._lhs = PackedOperand(
                cg.alloca(blocking.lhs_panels.size(tiles), scene.compute), 0, blocking.lhs_panels.stride
            )
        # Sums without an epilogue, or not yet ready for it, are stored in place, row by row.
        self.finished = blocking.parts > 1 or scene.keeping_is_writing
        self.in_rows = self.c.n.c == 1
        if not (self.finished and self.in_rows):
            self.spill = cg.alloca(blocking.tile.rows * blocking.width, scene.compute)
        self.allocate_rhs()

    def pack_lhs(self, at: Index, rows: Value, steps: Value) -> None:
        c, b = self.c, self.blocking
        a, steps = self.scene.inputs[c.a.number], steps // b.pieces
        if b.in_place:
            # A single row has no distance to the next one; 0 would say that it is packed.
            self._lhs = PackedOperand(a, at, c.m.a * b.tile.rows, row=c.m.a or 1)
            return
        for piece in range(b.pieces):
            start = at + piece * (c.k.extent // b.pieces * c.k.a)
            source = PackingSource(a, start, c.m.a, c.k.a, rows, steps, deep=b.is_deep)
            to = PackedOperand(self._lhs.buffer, steps * (piece * b.tile.rows))
            pack_operand(self.functions, b.lhs_panels, source, c.a.conversion, to)

    def tiles(self, frame: BatchFrame, at: tuple[Value, Value], size: Size, sums: SumState, place: PanelPlace) -> None:
        """Emit the sums of a block of packed operands: stored as they are, or through the epilogue."""
        panel = self.blocking.panel_size
        rhs = PackedOperand(self.buffers[0], place.at(panel), panel)
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
        self, frame: BatchFrame, at: tuple[Value, Value], size: Size, sums: SumState, rhs: PackedOperand
    ) -> None:
        """Call the macro-kernel to store sums in the result, or in the buffer of partial sums."""
        scene, c, b = self.scene, self.c, self.blocking
        add = cg.index(0) if sums.first is None else cg.select(sums.first, cg.index(0), cg.index(1))
        begin = at[0] * c.m.c + frame.c + at[1] + sums.offset
        to = SumsDestination(scene.sums_buffer(), begin, c.m.c, add)
        call_macro_kernel(self.functions, b.tile, self._lhs, rhs, size, to)

    def _through_epilogue(
        self, frame: BatchFrame, at: tuple[Value, Value], size: Size, sums: SumState, rhs: PackedOperand
    ) -> None:
        """Store sums tile by tile through a spill buffer and the epilogue."""
        tile, scene = self.blocking.tile, self.scene
        spill = SumsDestination(self.spill, 0, self.blocking.width)

        def one(left: PackedOperand, right: PackedOperand, row: Value, column: Value) -> None:
            place = (at[0] + row, at[1] + column)
            # Emitted even where tiles divide the rows: a loop of constant trip count would be unrolled.
            rows = cg.minimum(size[0] - row, tile.rows)
            prefetch_tile(scene, tile, frame, place, rows)
            columns = size[1] - column
            call_micro_kernel(self.functions, tile, left, right, size[2], spill, (rows, columns), all_stored=True)
            self.write_spilled(frame, place, rows, columns, sums)

        macro_kernel_loops(tile, scene.lanes, self._lhs, rhs, size, one)


# ---- factors ---------------------------------------------------------------------------------------------------------


# Vectors that are computed before any of them is stored: more would not stay in registers.
VECTORS = 8


def pack_factor(scene: ContractionScene, block: RhsBlock, panels: PackedPanels, to: PackedOperand) -> None:
    """Pack columns of a factor over a block of k; columns beyond the edge are zeros, or repeat the last one."""
    packing = _Packing(scene, block, panels, to)
    if scene.contraction.n.b == 1:
        packing.rows()
    else:
        packing.lines()


class _Packing:
    """Code that packs a block; the elements along k that are read together are `pieces` and neighbours."""

    def __init__(self, scene: ContractionScene, block: RhsBlock, panels: PackedPanels, to: PackedOperand) -> None:
        self.c, self.panels, self.to, self.columns = scene.contraction, panels, to, block.columns
        factor, self.bundle = self.c.b.factor, Bundle.of(self.c)
        assert factor is not None
        self.elements = range(len(self.bundle.offsets))
        first = block.number * (cg.index(panels.depth) // len(self.elements))
        self.rhs = ComputedRhs(scene, block.frame, block.column, first)
        self.steps = block.steps // len(self.elements)
        self.piece = block.steps // factor.parts
        self.count = (self.columns + (panels.width - 1)) // panels.width

    def rows(self) -> None:
        """Compute vectors of columns, row by row, of all panels at a time."""
        width, lanes = self.panels.width, self.panels.lanes
        vectors = width // lanes
        # Lanes of all reads are powers of two, by which extents are divisible that begin and end with whole ones.
        most = max(1, VECTORS // len(self.elements))
        together = next(t for t in (4, 2, 1) if t <= most and vectors % t == 0)
        whole, rest = self.columns // width, self.c.n.extent % lanes
        with cg.loop(0, self.steps) as s:
            with cg.loop(0, whole) as p:
                for first in range(0, vectors, together):
                    self._row(s.iv, p.iv, cg.index(first), together, lanes)
            if self.c.n.extent % width:
                full, end = self.columns // lanes, self.count * vectors
                with cg.loop(whole * vectors, full) as v:
                    self._row(s.iv, whole, v.iv - whole * vectors, 1, lanes)
                if rest:
                    with cg.when((full * lanes).lt(self.columns)):
                        self._row(s.iv, whole, full - whole * vectors, 1, rest)
                # Stale contents could be denormals, which are slow.
                zero = cg.constant(0, cg.vector_of(lanes, self.to.buffer.element))
                with cg.loop((self.columns + (lanes - 1)) // lanes, end) as v:
                    for element in self.elements:
                        at = self._place(whole, s.iv, element)
                        cg.store(zero, self.to.buffer, at + (v.iv - whole * vectors) * lanes)

    def _row(self, step: Value, panel: Value, first: Value, vectors: int, valid: int) -> None:
        """Compute and store the elements of a step in some vectors of a panel, from vector `first` on."""
        lanes = self.panels.lanes
        column = panel * self.panels.width + first * lanes
        rows = [self.rhs.row(Step(step, element=e), column, vectors, valid) for e in self.elements]
        for element, row in zip(self.elements, rows, strict=True):
            at = self._place(panel, step, element) + first * lanes
            for v, value in enumerate(row):
                cg.store(value, self.to.buffer, at + v * lanes)

    def lines(self) -> None:
        """Compute vectors along k of as many columns as lanes, and transpose them in registers."""
        width, lanes = self.panels.width, self.panels.lanes
        last, whole, rest = self.columns - 1, self.steps // lanes * lanes, self.bundle.steps % lanes
        with cg.loop(0, self.count) as p, cg.loop(0, width, lanes) as w:
            column = p.iv * width + w.iv
            lines = [cg.minimum(column + r, last) for r in range(lanes)]
            with cg.loop(0, whole, lanes) as s:
                self._square(s.iv, p.iv, w.iv, lines, lanes)
            if rest:
                with cg.when(whole.lt(self.steps)):
                    self._square(whole, p.iv, w.iv, lines, rest)

    def _square(self, step: Value, panel: Value, first: Value, lines: list[Value], valid: int) -> None:
        """Compute, transpose and store `valid` steps of these lines."""
        lanes = self.panels.lanes
        for element in self.elements:
            read = [self.rhs.line(Step(step, element=element), line, lanes, valid) for line in lines]
            for number, value in enumerate(cg.transpose_registers(read)[:valid]):
                cg.store(value, self.to.buffer, self._place(panel, step + number, element) + first)

    def _place(self, panel: Value, step: Value, element: int) -> Value:
        """Emit the offset of an element of a step's bundle in a panel."""
        piece, neighbour = divmod(element, self.bundle.unit)
        k = self.piece * piece + step * self.bundle.unit + neighbour
        return panel * self.panels.stride + k * self.panels.width + self.to.at
