"""The common part of work items of convolutions: operands, coordinates, and stores of staged sums through the epilogue.

A kind of item allocates its buffers, packs lhs and emits the sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene
from stablexla.targets.cpu.convolution.coordinates import ItemCoordinates, ItemPartition
from stablexla.targets.cpu.convolution.packing import ConvolutionOperand
from stablexla.targets.cpu.convolution.plan import ConvolutionPlan, ConvolutionSizes
from stablexla.targets.cpu.convolution.weights import ConvolutionWeights
from stablexla.targets.cpu.shared import SharedFunctions


class ConvolutionItem(ABC):
    """Buffers and code of a work item.

    Args:
        scenes: vectorized along output features, and along the pixels of a row.
        packed: the packed weights, if a phase of their own packs them.
    """

    def __init__(
        self,
        sizes: ConvolutionSizes,
        plan: ConvolutionPlan,
        weights: ConvolutionWeights,
        scenes: tuple[ContractionScene, ContractionScene],
        packed: Value | None,
        shared: SharedFunctions,
    ) -> None:
        self.sizes, self.plan, self.weights, self.shared = sizes, plan, weights, shared
        self.scene, self._by_pixels = scenes
        self.convolved, self.width, self.lanes = sizes.convolved, sizes.width, sizes.lanes
        self.factor = ConvolutionOperand.of(self.scene, sizes.units, lhs=True)
        self.cut, self.phases = ItemPartition(sizes, plan, weights.outputs), len(sizes.width.phases)
        self._allocate(packed)

    @abstractmethod
    def _allocate(self, packed: Value | None) -> None:
        """Emit the item's buffers."""

    @abstractmethod
    def write(self, coordinates: Sequence[Value]) -> None:
        """Emit the item."""

    def frame(self, place: ItemCoordinates, row: Value) -> BatchFrame:
        """Emit the offset of a row of the result."""
        coordinates = [place.batch, *(o for o, _ in place.planes)]
        if place.height is not None:
            coordinates.append((place.row + row) * len(place.height.spatial.phases) + place.phase)
        at = cg.index(0)
        for axis, x in zip(self.convolved.contraction.batch, coordinates, strict=True):
            at = at + x * axis.c
        return BatchFrame(cg.index(0), cg.index(0), at, tuple(coordinates))

    def column(self, place: ItemCoordinates, panel: Value) -> Value:
        """Return the first output feature of a panel, among those of all groups."""
        return place.group * self.weights.outputs + panel * self.weights.width


class StagedItem(ConvolutionItem):
    """A work item that may collect its sums in a stage buffer: partial sums, or those of another order in memory."""

    stage: Value

    @cached_property
    def _square(self) -> Value:
        return cg.alloca(self.lanes * self.lanes, self.scene.compute)

    @abstractmethod
    def lines(self, place: ItemCoordinates) -> Callable[[Value], Value]:
        """Return the offset of a row's sums in the stage, as a function of the row."""

    def write_stage(self, place: ItemCoordinates) -> None:
        """Store all staged sums of the item to the results."""
        if self.plan.staged:
            self.cut.images(
                place, lambda one: self.cut.panels(one, lambda panel, columns: self.write_panel(one, panel, columns))
            )

    def write_panel(self, place: ItemCoordinates, panel: Value, columns: int) -> None:
        """Store the sums of a panel from the stage to the results."""
        plan, d, phases, line = self.plan, self.width, self.phases, self.lines(place)
        first, count = place.round * phases, cg.index(d.outputs)
        if d.rounds > plan.rounds:
            count = cg.minimum(cg.index(d.outputs) - first, plan.rounds * phases)
        column = self.column(place, panel)
        inner = panel * self.weights.width - place.column
        with cg.loop(0, place.rows) as row:
            frame, base = self.frame(place, row.iv), line(row.iv) + inner
            part = StagedRow(self.stage, plan.columns, base, frame, (count, columns), (first, column))
            write_row((self.scene, self._by_pixels), part, self._square)


@dataclass(frozen=True)
class StagedRow:
    """Sums of a part of a row of the result, in a stage buffer.

    Attributes:
        stage, along, base: the buffer, the distance of pixels in it, and the offset of the first sum.
        frame: of the row.
        size, at: pixels and output features, and the first of each.
        ends: what numbers of features unknown until run time may be, see `ContractionScene.write_block`.
    """

    stage: Value
    along: Index
    base: Value
    frame: BatchFrame
    size: tuple[Index, Index]
    at: tuple[Index, Index]
    ends: tuple[int, int] | None = None


def write_row(scenes: tuple[ContractionScene, ContractionScene], part: StagedRow, square: Value | None) -> None:
    """Store sums of a row through the epilogue.

    Args:
        scenes: vectorized along output features, and along the pixels of a row.
        square: a buffer for a square of lanes.
    """
    (scene, by_pixels), p = scenes, part
    if square is None or scene.vectors or not by_pixels.vectors:
        scene.write_block(p.stage, p.along, p.frame, p.size, p.at, base=p.base, ends=p.ends)
        return
    # Features are far apart in the result, and a row's pixels contiguous: squares are transposed in registers.
    lanes = scene.lanes
    with cg.loop(0, p.size[0], lanes) as i, cg.loop(0, p.size[1], lanes) as j:
        lines = [cg.load(p.stage, (i.iv + r) * p.along + j.iv + p.base, lanes) for r in range(lanes)]
        for r, value in enumerate(cg.transpose_registers(lines)):
            cg.store(value, square, r * lanes)
        rows, columns = cg.minimum(cg.index(p.size[1]) - j.iv, lanes), cg.minimum(cg.index(p.size[0]) - i.iv, lanes)
        by_pixels.write_block(square, lanes, p.frame, (rows, columns), (j.iv + p.at[1], i.iv + p.at[0]))
