"""Work items of implicit GEMM whose loop is a function of the library, see `driver`, and their epilogue's function."""

from __future__ import annotations

import math
from dataclasses import fields, replace

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import KernelArguments
from stablexla.targets.codegen.match.alike import form_of_epilogue, with_numbers
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene, stores_sums
from stablexla.targets.cpu.callbacks import Callback, buffer_at, emit_callback
from stablexla.targets.cpu.convolution.coordinates import ONE_ROW
from stablexla.targets.cpu.convolution.driver import ConvolutionDriver, DriverNumbers, RowOfSums, Sums
from stablexla.targets.cpu.convolution.implicit_gemm import ImplicitGemmItem
from stablexla.targets.cpu.convolution.item import StagedRow, write_row
from stablexla.targets.cpu.convolution.packing import LhsPacking
from stablexla.targets.cpu.convolution.plan import ConvolutionPlan, ConvolutionSizes
from stablexla.targets.cpu.convolution.weights import PanelPacking


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
        given = [*(getattr(numbers, field.name) for field in fields(numbers)), *more]
        driver.drive(self.shared, buffers, given, items, epilogue)

    @property
    def _stores_sums(self) -> bool:
        """Whether sums are the result as they are."""
        return self.scene.vectors and stores_sums(self.convolved.contraction, self.scene.compute)

    def _epilogue(self) -> Callback:
        """Emit the function that stores a row of sums."""
        c, sums, lanes, outputs = self.convolved.contraction, self.scene.compute, self.lanes, self.weights.outputs
        inputs, results = self.scene.inputs, self.scene.results
        read = [inputs[number] for number in c.epilogue_inputs]
        ends = math.gcd(outputs, self.weights.width), outputs
        # Squares of lanes are transposed by code that depends on the number of pixels, too.
        form = form_of_epilogue(c) if self.scene.vectors else None

        def emit(buffers: list[Value], numbers: list[Value], call: list[Value]) -> None:
            row, given = RowOfSums(*call), list(inputs)
            for number, buffer in zip(c.epilogue_inputs, buffers, strict=False):
                given[number] = buffer
            arguments = KernelArguments(given, buffers[len(read) :], [], row.at, row.at)
            of = c if form is None else with_numbers(c, form, numbers)
            scenes = (
                ContractionScene(of, arguments, compute=sums),
                ContractionScene(c.swapped(), arguments, compute=sums),
            )
            at, coordinates = cg.index(0), [row.image, row.row][: len(of.batch)]
            for axis, x in zip(of.batch, coordinates, strict=True):
                at = at + x * axis.c
            frame = BatchFrame(cg.index(0), cg.index(0), at, tuple(coordinates))
            size, first = (row.count, row.columns), (row.place, row.column)
            part = StagedRow(buffer_at(row.stage, sums), row.step, row.at, frame, size, first, ends)
            write_row(scenes, part, None if scenes[0].vectors else cg.alloca(lanes * lanes, sums))

        key = None if form is None else (form.key, sums, ends[0] % (2 * lanes) == 0, ends[1] % lanes)
        given = [*read, *results], [] if form is None else form.numbers, len(fields(RowOfSums))
        return emit_callback(self.shared, f"stablexla_epilogue_of_{sums}", key, given, emit)
