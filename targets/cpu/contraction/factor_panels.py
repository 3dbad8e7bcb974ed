"""Packing of a factor: an array that is computed where it is read, straight into the panels of a packed rhs."""

from __future__ import annotations

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.cpu.contraction.driver import RhsBlock
from stablexla.targets.cpu.contraction.factors import Bundle, ComputedRhs, Step
from stablexla.targets.cpu.contraction.micro_kernel import PackedOperand
from stablexla.targets.cpu.contraction.packing import PackedPanels

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
