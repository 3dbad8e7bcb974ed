"""The loop over work items of implicit GEMM, as one function of the library, which calls back the program's epilogue.

An item fills the offset tables, packs the image under its windows, sums by the micro-kernel, and has its rows of sums
stored. All sizes, strides and places are numbers of a table: convolutions of one element type and register tile share
the function, and what LLVM sees of each is its epilogue, if no other has the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.cpu.callbacks import Callback
from stablexla.targets.cpu.convolution.micro_kernel import (
    OffsetTables,
    PixelMicroKernel,
    PixelSums,
    call_pixel_micro_kernel,
    fill_pixel_offsets,
    fill_tap_offsets,
    table_type,
)
from stablexla.targets.cpu.convolution.packing import (
    ConvolutionOperand,
    Span,
    UnitConversion,
    elements_under,
    pack_rows,
    rows_of,
)
from stablexla.targets.cpu.number_table import Numbers, number_table
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions

Sums = Literal["staged", "in_chunks", "in_place"]
"""Where the sums of an item go: all of them to a stage, some of a panel's pixels at a time, or to the result itself."""


@dataclass(frozen=True)
class DriverNumbers(Numbers):
    """Numbers of a convolution. Down are the rows of an image, across the places of a row; distances are in elements.

    Attributes:
        batches, groups, row_blocks, place_blocks, column_blocks: extents of the array of items.
        images, rows, places, columns: of an item, of the result; the last blocks may have fewer.
        all_rows, all_places, outputs: of an image, and output features of a group.
        image_step, row_step, place_step: distances of pixels in lhs as the micro-kernel reads it.
        taps_down, taps_across: extents of the window's table.
        lhs_down, weights_down, lhs_across, weights_across: distances of its entries in that lhs and in a panel.
        run: contiguous elements for each entry.
        batch, group, part: distances in memory of images, groups, and of the parts of the input features.
        down_first, down_stride, down_reach: position of the first window, distance of windows, and that of the first
            and last element of one.
        down_step, down_size, down_memory: distance of the rows that are packed, rows of an image, and their distance.
        across_first, across_stride, across_step, across_size, across_memory: likewise of the elements of a row.
        packed_row, packed_image: elements of a packed row, and values of a packed image.
        features, slots, along: values of an element in memory, those of a packed one, and their distance in memory.
        parts: of the input features.
        weights_group, weights_panel, weights_part: distances of panels, packed or as an item packs them from memory.
        window: offset of the first element of the window in a panel.
        ahead: distance to the weights that are read next.
        out_image, out_row, out_place: distances in the result.
        chunk: pixels that are summed before they are stored.
        packed_values, panel_values, staged, pixel_entries, tap_entries: sizes of the buffers on the stack.
    """

    batches: Index
    groups: Index
    row_blocks: Index
    place_blocks: Index
    column_blocks: Index
    images: Index
    rows: Index
    places: Index
    columns: Index
    all_rows: Index
    all_places: Index
    outputs: Index
    image_step: Index
    row_step: Index
    place_step: Index
    taps_down: Index
    taps_across: Index
    lhs_down: Index
    weights_down: Index
    lhs_across: Index
    weights_across: Index
    run: Index
    batch: Index
    group: Index
    part: Index
    down_first: Index
    down_stride: Index
    down_reach: Index
    down_step: Index
    down_size: Index
    down_memory: Index
    across_first: Index
    across_stride: Index
    across_step: Index
    across_size: Index
    across_memory: Index
    packed_row: Index
    packed_image: Index
    features: Index
    slots: Index
    along: Index
    parts: Index
    weights_group: Index
    weights_panel: Index
    weights_part: Index
    window: Index
    ahead: Index
    out_image: Index
    out_row: Index
    out_place: Index
    chunk: Index
    packed_values: Index
    panel_values: Index
    staged: Index
    pixel_entries: Index
    tap_entries: Index


@dataclass(frozen=True)
class DriverBuffers:
    """Buffers of an item.

    Attributes:
        lhs, packed: lhs in memory and packed, the same if it is read in place.
        weights, panels: the weights, and the panels that are read, the same unless an item packs its own.
        out: where the sums go.
        result: the result, unless an epilogue stores it.
        tables: the offset tables.
    """

    lhs: Value
    packed: Value
    weights: Value
    panels: Value
    out: Value
    result: Value | None
    tables: OffsetTables


@dataclass(frozen=True)
class RowOfSums(Numbers):
    """A row of an item's sums, or a part of it, as the epilogue's function is given it.

    Attributes:
        stage, at, step: address of the stage, offset of the first sum in it, and distance of pixels.
        image, row, place, count: coordinates of the first pixel in the result, and how many there are.
        column, columns: first output feature of all groups', and how many.
    """

    stage: Value
    at: Value
    step: Value
    image: Value
    row: Value
    place: Value
    count: Value
    column: Value
    columns: Value


@dataclass(frozen=True)
class ConvolutionDriver(SharedFunction):
    """Loop nest of implicit GEMM over a range of work items, around packing and the micro-kernel.

    Attributes:
        kernel: the micro-kernel.
        conversion: of lhs to packed elements.
        kind: how rows of lhs are packed, see `LhsPacking.kind`; "" where it is read in place.
        sums: where they go.
        calls_back: whether an epilogue stores them; else they are the result, whose features are contiguous.
        packing: packs a panel of weights, where items pack their own.
        packing_numbers: how many numbers it takes, besides offsets and columns.
    """

    kernel: PixelMicroKernel
    conversion: UnitConversion
    kind: str
    sums: Sums
    calls_back: bool = True
    packing: SharedFunction | None = None
    packing_numbers: int = 0

    @property
    def name(self) -> str:
        kind = f"{self.sums}{'' if self.calls_back else '_stored'}_of_{self.kind or 'images_in_place'}"
        packing = "" if self.packing is None else "_with_own_weights"
        return f"{self.kernel.name}_{kind}{packing}_{self.conversion.name}"

    def drive(
        self,
        shared: SharedFunctions,
        buffers: Sequence[Value],
        numbers: Sequence[int],
        items: tuple[Value, Value],
        epilogue: Callback | None,
    ) -> None:
        """Call it for a range of items.

        Args:
            buffers: lhs and the weights; behind them the result, unless an epilogue stores it.
            numbers: those of `DriverNumbers`, and those of the packing of weights.
            epilogue: stores a `RowOfSums`, if the driver calls it.
        """
        callback: tuple[Index, Index] = (0, 0) if epilogue is None else (epilogue.function, epilogue.table)
        shared.call(self, [*buffers, number_table(numbers)], [*callback, *items])

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        lhs, weights, *result, table = buffers
        *callback, first, end = numbers
        own, units, i32 = DriverNumbers.length(), self.kernel.units, table_type()
        n = DriverNumbers.loaded(table)
        packing = [cg.load(table, own + place) for place in range(self.packing_numbers)]
        of = DriverBuffers(
            lhs,
            cg.alloca(n.packed_values, units.type) if self.kind else lhs,
            weights,
            weights if self.packing is None else cg.alloca(n.panel_values, units.type),
            result[0] if self.sums == "in_place" else cg.alloca(n.staged, units.sums),
            None if self.calls_back else result[0],
            OffsetTables(cg.alloca(n.pixel_entries, i32), cg.alloca(n.tap_entries, i32)),
        )
        with cg.loop(first, end) as item:
            _Item(self, functions, of, n, Callback(*callback), item.iv).emit(packing)


class _Item:
    """Code of a work item inside of the library's function."""

    def __init__(
        self,
        of: ConvolutionDriver,
        functions: SharedFunctions,
        buffers: DriverBuffers,
        numbers: DriverNumbers,
        epilogue: Callback,
        item: Value,
    ) -> None:
        self.of, self.functions, self.buffers, self.n, self.epilogue = of, functions, buffers, numbers, epilogue
        n, self.tile = numbers, of.kernel.tile
        self.width = self.tile.vectors * cg.lanes_of(buffers.out.element)
        extents = [n.batches, n.groups, n.row_blocks, n.place_blocks, n.column_blocks]
        batch, self.group, row, place, column = cg.split_index(item, extents)
        self.image, self.row, self.place, self.column = (
            block * size for block, size in ((batch, n.images), (row, n.rows), (place, n.places), (column, n.columns))
        )
        self.rows = cg.minimum(cg.index(n.all_rows) - self.row, n.rows)
        self.places = cg.minimum(cg.index(n.all_places) - self.place, n.places)
        self.columns = cg.minimum(cg.index(n.outputs) - self.column, n.columns)
        self.pixels = cg.index(n.images) * self.rows * self.places
        self.top = self.row * n.down_stride + n.down_first
        self.left = self.place * n.across_stride + n.across_first
        self.lhs_at = self.image * n.batch + self.group * n.group

    def emit(self, packing: Sequence[Value]) -> None:
        """Emit all of it; `packing` are the numbers of the packing of weights."""
        n, of = self.n, self.buffers
        extents, strides = [n.images, self.rows, self.places], [n.image_step, n.row_step, n.place_step]
        fill_pixel_offsets(self.functions, of.tables.pixels, extents, strides, self.tile.rows)
        sides = [(0, 0), (n.lhs_down, n.weights_down), (n.lhs_across, n.weights_across), (0, 0)]
        fill_tap_offsets(self.functions, of.tables.taps, 0, [1, n.taps_down, n.taps_across], sides)
        if self.of.kernel.more:
            self._clear_stage()
        with cg.loop(0, n.parts) as part:
            at = self.lhs_at + part.iv * n.part
            if self.of.kind:
                self._pack(at)
            with cg.loop(0, (self.columns + (self.width - 1)) // self.width) as panel:
                self._sum_panel(at, part.iv, panel.iv * self.width, packing)
        if self.of.sums == "staged":
            zero = cg.index(0)
            self._store_rows((zero, self.pixels), cg.index(n.columns), zero, self.columns)

    def _clear_stage(self) -> None:
        zero = cg.constant(0, cg.vector_of(cg.lanes_of(self.buffers.out.element), self.buffers.out.element))
        with cg.loop(0, self._whole_tiles(self.pixels) * self.n.columns, zero.lanes) as lane:
            cg.store(zero, self.buffers.out, lane.iv)

    def _whole_tiles(self, pixels: Value) -> Value:
        return (pixels + (self.tile.rows - 1)) // self.tile.rows * self.tile.rows

    def _pack(self, at: Value) -> None:
        """Pack the images under the item's windows, of one part of the input features."""
        n, of = self.n, self.buffers
        count = elements_under(self.rows, n.down_stride, n.down_reach, n.down_step)
        down = Span(self.top, count, n.down_step, n.down_size, n.down_memory)
        across = Span(self.left, n.packed_row, n.across_step, n.across_size, n.across_memory)
        with cg.loop(0, n.images) as image:
            rows = rows_of(image.iv * n.batch + at, down, across, (n.features, n.slots, n.along))
            operand, to = ConvolutionOperand(of.lhs, self.of.conversion), image.iv * n.packed_image
            pack_rows(self.functions, operand, rows, of.packed, to, kind=self.of.kind)

    def _sum_panel(self, at: Value, part: Value, column: Value, packing: Sequence[Value]) -> None:
        """Sum all pixels by the panel of weights that begins at a column of the item."""
        n, of, kernel = self.n, self.buffers, self.of.kernel
        panel = (self.column + column) // self.width
        columns = cg.minimum(self.columns - column, self.width)
        weights = self.group * n.weights_group + panel * n.weights_panel + part * n.weights_part
        if self.of.packing is not None:
            self.functions.call(self.of.packing, [of.weights, of.panels], [weights, columns, *packing, cg.index(0)])
            weights = cg.index(0)
        weights = weights + n.window
        in_place = self.top * n.down_memory + self.left * n.across_memory + at
        width = self.width * self.tile.rows
        ahead = (weights + n.ahead, (self.pixels + (width - 1)) // self.pixels) if kernel.prefetches else ()
        sums = PixelSums(
            lhs=of.packed,
            lhs_at=0 if self.of.kind else in_place,
            weights=of.panels,
            weights_at=weights,
            tables=of.tables,
            pixel=0,
            pixels=self._whole_tiles(self.pixels) if kernel.more else self.pixels,
            tap=0,
            taps=cg.index(n.taps_down) * n.taps_across,
            run=n.run,
            out=of.out,
            out_at=column,
            out_stride=n.columns,
            ahead=ahead,
        )
        if self.of.sums == "in_place":
            to = self.image * n.out_image + self.row * n.out_row + self.place * n.out_place
            sums = replace(sums, out_at=self._feature(column) + to, out_stride=n.out_place)
        if self.of.sums != "in_chunks":
            call_pixel_micro_kernel(self.functions, kernel, sums)
            return
        with cg.loop(0, self.pixels, n.chunk) as chunk:
            count = cg.minimum(self.pixels - chunk.iv, n.chunk)
            some = replace(sums, pixel=chunk.iv, pixels=count, out_at=0, out_stride=self.width)
            call_pixel_micro_kernel(self.functions, kernel, some)
            self._store_rows((chunk.iv, chunk.iv + count), cg.index(self.width), column, columns)

    def _feature(self, column: Value) -> Value:
        """Return the output feature, of all groups', of a column of the item."""
        return self.group * self.n.outputs + self.column + column

    def _store_rows(self, pixels: tuple[Value, Value], step: Value, column: Value, columns: Value) -> None:
        """Call the epilogue for each row of a range of pixels, of columns of the item, whose sums are in the stage."""
        (begin, end), of, n = pixels, self.buffers, self.n
        stage = cg.address(of.out)
        with cg.loop(begin // self.places, (end + (self.places - 1)) // self.places) as row:
            first = cg.maximum(row.iv * self.places, begin)
            last = cg.minimum((row.iv + 1) * self.places, end)
            sums = RowOfSums(
                stage=stage,
                at=(first - begin) * step,
                step=step,
                image=self.image + row.iv // self.rows,
                row=self.row + row.iv % self.rows,
                place=self.place + (first - row.iv * self.places),
                count=last - first,
                column=self._feature(column),
                columns=columns,
            )
            if of.result is None:
                self.epilogue.call(sums.values)
            else:
                at = sums.image * n.out_image + sums.row * n.out_row + sums.place * n.out_place + sums.column
                _copy_row(of.out, sums, of.result, at, cg.index(n.out_place))


def _copy_row(stage: Value, sums: RowOfSums, result: Value, at: Value, step: Value) -> None:
    """Copy a row of sums to the result; what is less than a vector is stored by itself."""
    lanes = cg.lanes_of(stage.element)
    whole = sums.columns - sums.columns % lanes
    with cg.loop(0, sums.count) as pixel:
        source, to = pixel.iv * sums.step + sums.at, pixel.iv * step + at
        with cg.loop(0, whole, lanes) as lane:
            cg.store(cg.load(stage, source + lane.iv, lanes), result, to + lane.iv)
        with cg.when(whole.lt(sums.columns)):
            cg.store_lanes(cg.load(stage, source + whole, lanes), result, to + whole, sums.columns - whole)


__all__ = ["ConvolutionDriver", "DriverNumbers", "RowOfSums"]
