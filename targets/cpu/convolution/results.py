"""Stores of a convolution's staged sums to the results, through the epilogue, panel by panel of output features."""

from __future__ import annotations

from collections.abc import Callable

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene
from stablexla.targets.cpu.convolution.coordinates import ItemCoordinates
from stablexla.targets.cpu.convolution.plan import ConvolutionPlan, ConvolutionSizes


class ConvolutionResults:
    """Stores of a convolution's sums to the results.

    `scenes` are vectorized along output features, and along the pixels of a row.
    """

    def __init__(
        self,
        sizes: ConvolutionSizes,
        plan: ConvolutionPlan,
        scenes: tuple[ContractionScene, ContractionScene],
        outputs: int,
        width: int,
    ) -> None:
        self._sizes, self._plan, self._outputs, self._width = sizes, plan, outputs, width
        self._scene, self._across = scenes
        if plan.staged:
            self._square = cg.alloca(sizes.lanes * sizes.lanes, self._scene.compute)

    def frame(self, place: ItemCoordinates, row: Value) -> BatchFrame:
        """Emit the offset of a row of the result."""
        coordinates = [place.batch, *(o for o, _ in place.planes)]
        if place.height is not None:
            coordinates.append((place.row + row) * len(place.height.spatial.phases) + place.phase)
        at = cg.index(0)
        for axis, x in zip(self._sizes.convolved.contraction.batch, coordinates, strict=True):
            at = at + x * axis.c
        return BatchFrame(cg.index(0), cg.index(0), at, tuple(coordinates))

    def write_panel(
        self, place: ItemCoordinates, panel: Value, columns: int, stage: Value, line: Callable[[Value], Value]
    ) -> None:
        """Store the sums of a panel from the stage, where `line(row)` is a row's offset, to the results."""
        plan, d = self._plan, self._sizes.width
        phases = len(d.phases)
        first, count = place.round * phases, cg.index(d.outputs)
        if d.rounds > plan.rounds:
            count = cg.minimum(cg.index(d.outputs) - first, plan.rounds * phases)
        column = place.group * self._outputs + panel * self._width
        inner = panel * self._width - place.column
        with cg.loop(0, place.rows) as row:
            frame, base = self.frame(place, row.iv), line(row.iv) + inner
            if self._scene.vectors or not self._across.vectors:
                self._scene.write_block(stage, plan.columns, frame, (count, columns), (first, column), base=base)
            else:
                self._write_across(stage, frame, base, (count, columns), (first, column))

    def _write_across(
        self, stage: Value, frame: BatchFrame, base: Value, size: tuple[Value, int], at: tuple[Value, Value]
    ) -> None:
        """Transpose squares in registers: features are far apart in the result, a row's pixels contiguous."""
        lanes, along = self._sizes.lanes, self._plan.columns
        with cg.loop(0, size[0], lanes) as i, cg.loop(0, size[1], lanes) as j:
            lines = [cg.load(stage, (i.iv + r) * along + j.iv + base, lanes) for r in range(lanes)]
            for r, value in enumerate(cg.transpose_registers(lines)):
                cg.store(value, self._square, r * lanes)
            rows, columns = cg.minimum(cg.index(size[1]) - j.iv, lanes), cg.minimum(size[0] - i.iv, lanes)
            self._across.write_block(self._square, lanes, frame, (rows, columns), (at[1] + j.iv, at[0] + i.iv))
