"""Work items of implicit GEMM whose loop is a function of the library, see `driver`, and their epilogue's function."""

from __future__ import annotations

import math
from dataclasses import replace

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene, stores_sums
from stablexla.targets.cpu.callbacks import Callback, buffer_at
from stablexla.targets.cpu.convolution.coordinates import ONE_ROW
from stablexla.targets.cpu.convolution.driver import ConvolutionDriver, DriverNumbers, RowOfSums, Sums
from stablexla.targets.cpu.convolution.implicit_gemm import ImplicitGemmItem
from stablexla.targets.cpu.convolution.item import StagedRow, write_row
from stablexla.targets.cpu.convolution.packing import LhsPacking
from stablexla.targets.cpu.convolution.plan import ConvolutionPlan, ConvolutionSizes
from stablexla.targets.cpu.convolution.weights import PanelPacking
from stablexla.targets.cpu.epilogues import emit_epilogue


def is_driven(sizes: ConvolutionSizes, plan: ConvolutionPlan) -> bool:
    """Whether the driver has loops for a plan: of two dimensions at most, of one phase, with sums of whole windows."""
    dims = [d for d in (sizes.height, sizes.width) if d is not None]
    of_features = not (plan.channels or plan.across or plan.depth or sizes.units.product.is_tiles)
    return of_features and not sizes.planes and all(len(d.phases) == 1 for d in dims)


class DrivenItem(ImplicitGemmItem):
    """The call of the driver, and the epilogue that it calls back."""

    def _allocate_stack(self, packed: Value | None) -> None:
        self.packed = self.scene.inputs[self.scene.contraction.b.number] if packed is None else packed

    def drive(self, items: tuple[Value, Value], packing: PanelPacking | None) -> None:
        """Emit the call for a range of items; `packing` is of weights that each item packs for itself."""
        c, w, plan, lhs, weights = self.convolved, self.width, self.plan, self.lhs, self.weights
        d = self.sizes.height or ONE_ROW
        down, across = d.phases[0], w.phases[0]
        distances = weights.memory if plan.own_weights else weights.distances
        (image_step, row_step, place_step), steps = self.strides()
        (step_down, step_across), (weights_down, weights_across) = [0, *steps][-2:], [0, *weights.steps][-2:]
        run, last = weights.slots, (across.count, step_across, w.tap_step * weights_across)
        if self.in_runs():
            run, last = across.count * run, (min(across.count, 1), 0, 0)
        extents = plan.items(self.sizes)
        rows, m = c.contraction.batch[-1], c.contraction.m
        numbers = DriverNumbers(
            batches=extents[1],
            groups=extents[2],
            row_blocks=extents[-3],
            place_blocks=extents[-2],
            column_blocks=extents[-1],
            images=plan.images,
            rows=plan.rows,
            places=plan.rounds,
            columns=plan.columns,
            all_rows=d.rounds,
            all_places=w.rounds,
            outputs=weights.outputs,
            image_step=image_step,
            row_step=row_step,
            place_step=place_step,
            taps_down=down.count,
            taps_across=last[0],
            lhs_down=step_down,
            weights_down=d.tap_step * weights_down,
            lhs_across=last[1],
            weights_across=last[2],
            run=run,
            batch=c.batch.a,
            group=c.group.a,
            part=plan.features * c.inputs.a,
            down_first=down.offset,
            down_stride=d.stride,
            down_reach=max(down.count - 1, 0) * d.tap_stride,
            down_step=d.step,
            down_size=d.size,
            down_memory=d.a,
            across_first=w.first,
            across_stride=w.stride,
            across_step=w.step,
            across_size=w.size,
            across_memory=w.a,
            packed_row=lhs.row,
            packed_image=lhs.image,
            features=plan.features,
            slots=lhs.element,
            along=c.inputs.a,
            parts=weights.parts,
            weights_group=distances[0],
            weights_panel=distances[1],
            weights_part=distances[2],
            window=down.first * weights_down + across.first * weights_across,
            ahead=(1 if plan.columns == weights.width else weights.parts) * weights.block,
            out_image=c.batch.c,
            out_row=rows.c if self.sizes.height else 0,
            out_place=m.c,
            chunk=self.chunk,
            **vars(self.on_stack),
        )
        where: Sums = "staged" if plan.staged else "in_place" if self.straight else "in_chunks"
        rows_of_lhs = "" if self.in_place else LhsPacking(self.sizes, self.factor, lhs, plan.features, c.inputs.a).kind
        kernel, more = self.micro_kernel(more=weights.parts > 1), list[int]()
        driver = ConvolutionDriver(kernel, self.factor.conversion, rows_of_lhs, where)
        if packing is not None:
            driver = replace(driver, packing=packing.function, packing_numbers=len(packing.numbers))
            more = list(packing.numbers)
        driver = replace(driver, calls_back=not (self.straight or self._stores_sums))
        buffers = [self.factor.buffer, self.packed, *([] if driver.calls_back else self.scene.results)]
        epilogue = self._epilogue() if driver.calls_back else None
        driver.drive(self.shared, buffers, [*numbers.values, *more], items, epilogue)

    @property
    def _stores_sums(self) -> bool:
        """Whether sums are the result as they are."""
        return self.scene.vectors and stores_sums(self.convolved.contraction, self.scene.compute)

    def _epilogue(self) -> Callback:
        """Emit the function that stores a row of sums."""
        lanes, outputs = self.lanes, self.weights.outputs
        ends = math.gcd(outputs, self.weights.width), outputs

        def write(scene: ContractionScene, call: list[Value]) -> None:
            row, axes = RowOfSums(*call), scene.contraction.batch
            coordinates = [row.image, row.row][: len(axes)]
            at = cg.total(x * axis.c for axis, x in zip(axes, coordinates, strict=True))
            frame = BatchFrame(cg.index(0), cg.index(0), at, tuple(coordinates))
            size, first = (row.count, row.columns), (row.place, row.column)
            part = StagedRow(buffer_at(row.stage, scene.compute), row.step, row.at, frame, size, first, ends)
            square = None if scene.vectors else cg.alloca(lanes * lanes, scene.compute)
            write_row((scene, scene.swapped()), part, square)

        # Squares of lanes are transposed by code that depends on the number of pixels, too.
        key = self.scene.is_deep and ends[0] % (2 * lanes) == 0, outputs % lanes
        count, shares = RowOfSums.length(), self.scene.vectors
        return emit_epilogue(self.shared, self.scene, key, count, write, shares=shares)
