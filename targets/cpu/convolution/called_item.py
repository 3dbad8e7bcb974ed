"""A work item of implicit GEMM up to its epilogue, as one function of the library.

It fills the offset tables, packs the image under the item's windows and, where sums go to a stage buffer, calls the
micro-kernel for all panels of weights. Sizes, strides and places are arguments: convolutions of one element type and
register tile share it, and what LLVM sees of each is a call and its epilogue.
"""

from __future__ import annotations

from dataclasses import fields

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.cpu.convolution.micro_kernel import (
    OffsetTables,
    PixelMicroKernel,
    PixelSums,
    call_pixel_micro_kernel,
    fill_pixel_offsets,
    fill_tap_offsets,
)
from stablexla.targets.cpu.convolution.packing import (
    ConvolutionOperand,
    Span,
    UnitConversion,
    elements_under,
    pack_rows,
    rows_of,
)
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions


@dataclass(frozen=True)
class ItemNumbers:
    """Numbers of a work item. Down are the rows of an image, across the places of a row; distances are in elements.

    Attributes:
        images, rows, places: extents of the item's pixels.
        tail: zeros behind the last pixel in their table.
        image_step, row_step, place_step: distances of pixels in lhs as the micro-kernel reads it.
        taps_down, taps_across: extents of the window's table.
        lhs_down, weights_down, lhs_across, weights_across: distances of its entries in that lhs and in a panel.
        run: contiguous elements for each entry.
        at: offset of the item's first image and features in memory.
        image, part: distances there of images, and of the parts of the input features.
        top, left: position of the first window.
        down_stride, down_reach: distances of windows, and of the first and last element of one, down.
        down_step, down_size, down_memory: distance of the rows that are packed, rows of an image, and their distance.
        across_step, across_size, across_memory: likewise of the elements of a row.
        packed_row, packed_image: elements of a packed row, and values of a packed image.
        features, slots, along: values of an element in memory, those of a packed one, and their distance in memory.
        parts: of the input features.
        panels: of output features.
        weights, weights_panel, weights_part: offset of the first panel, and distances of panels and of their parts.
        stage_row: distance of a pixel's sums in the stage.
        ahead: distance to the weights that are read next.
    """

    images: Index
    rows: Index
    places: Index
    tail: Index
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
    at: Index
    image: Index
    part: Index
    top: Index
    left: Index
    down_stride: Index
    down_reach: Index
    down_step: Index
    down_size: Index
    down_memory: Index
    across_step: Index
    across_size: Index
    across_memory: Index
    packed_row: Index
    packed_image: Index
    features: Index
    slots: Index
    along: Index
    parts: Index
    panels: Index
    weights: Index
    weights_panel: Index
    weights_part: Index
    stage_row: Index
    ahead: Index


@dataclass(frozen=True)
class ItemBuffers:
    """Buffers of a work item: lhs in memory, packed (the same, if it is read in place), weights, stage and tables."""

    lhs: Value
    packed: Value
    weights: Value
    stage: Value
    tables: OffsetTables


def call_item(
    shared: SharedFunctions,
    kernel: PixelMicroKernel | None,
    conversion: UnitConversion,
    kind: str,
    buffers: ItemBuffers,
    numbers: ItemNumbers,
) -> None:
    """Call the function of an item.

    Args:
        kernel: the micro-kernel of its sums; None leaves them to the caller.
        conversion: of lhs to packed elements.
        kind: how rows of lhs are packed, see `LhsRows.kind`; "" where it is read in place.
    """
    b = buffers
    given = [b.lhs, b.packed, b.weights, b.stage, b.tables.pixels, b.tables.taps]
    values = [getattr(numbers, field.name) for field in fields(numbers)]
    shared.call(_Item(kernel, conversion, kind), given, values)


@dataclass(frozen=True)
class _Item(SharedFunction):
    kernel: PixelMicroKernel | None
    conversion: UnitConversion
    kind: str

    @property
    def name(self) -> str:
        what = "stablexla_begin_item" if self.kernel is None else self.kernel.name
        return f"{what}_of_{self.kind or 'images_in_place'}_{self.conversion.name}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        lhs, packed, weights, stage, *tables = buffers
        of, n = ItemBuffers(lhs, packed, weights, stage, OffsetTables(*tables)), ItemNumbers(*numbers)
        extents, strides = [n.images, n.rows, n.places], [n.image_step, n.row_step, n.place_step]
        fill_pixel_offsets(functions, of.tables.pixels, extents, strides, n.tail)
        sides: list[tuple[Index, Index]] = [
            (0, 0),
            (n.lhs_down, n.weights_down),
            (n.lhs_across, n.weights_across),
            (0, 0),
        ]
        fill_tap_offsets(functions, of.tables.taps, 0, [1, n.taps_down, n.taps_across], sides)
        pixels = cg.index(n.images) * n.rows * n.places
        if self.kernel is not None and self.kernel.more:
            pixels = (pixels + (self.kernel.tile.rows - 1)) // self.kernel.tile.rows * self.kernel.tile.rows
            zero = cg.constant(0, cg.vector_of(cg.lanes_of(stage.element), stage.element))
            with cg.loop(0, pixels * n.stage_row, zero.lanes) as lane:
                cg.store(zero, stage, lane.iv)
        with cg.loop(0, n.parts) as part:
            at = part.iv * n.part + n.at
            if self.kind:
                with cg.loop(0, n.images) as image:
                    self._pack(functions, of, n, image.iv * n.image + at, image.iv * n.packed_image)
            if self.kernel is not None:
                with cg.loop(0, n.panels) as panel:
                    self._sum(functions, self.kernel, of, n, pixels, (at, part.iv, panel.iv))

    def _pack(self, functions: SharedFunctions, of: ItemBuffers, n: ItemNumbers, at: Value, to: Value) -> None:
        """Pack an image from its offset in memory on."""
        count = elements_under(n.rows, n.down_stride, n.down_reach, n.down_step)
        down = Span(n.top, count, n.down_step, n.down_size, n.down_memory)
        across = Span(n.left, n.packed_row, n.across_step, n.across_size, n.across_memory)
        rows = rows_of(at, down, across, (n.features, n.slots, n.along))
        pack_rows(functions, ConvolutionOperand(of.lhs, self.conversion), rows, of.packed, to, kind=self.kind)

    def _sum(
        self,
        functions: SharedFunctions,
        kernel: PixelMicroKernel,
        of: ItemBuffers,
        n: ItemNumbers,
        pixels: Value,
        place: tuple[Value, Value, Value],
    ) -> None:
        """Sum all pixels by a panel of weights, of one part of the input features, into the stage."""
        (at, part, panel), tile = place, kernel.tile
        width = tile.vectors * cg.lanes_of(of.stage.element)
        weights = panel * n.weights_panel + part * n.weights_part + n.weights
        in_place = cg.index(n.top) * n.down_memory + cg.index(n.left) * n.across_memory + at
        ahead = (weights + n.ahead, (pixels + (width * tile.rows - 1)) // pixels) if kernel.prefetches else ()
        sums = PixelSums(
            lhs=of.packed,
            lhs_at=0 if self.kind else in_place,
            weights=of.weights,
            weights_at=weights,
            tables=of.tables,
            pixel=0,
            pixels=pixels,
            tap=0,
            taps=cg.index(n.taps_down) * n.taps_across,
            run=n.run,
            out=of.stage,
            out_at=panel * width,
            out_stride=n.stage_row,
            ahead=ahead,
        )
        call_pixel_micro_kernel(functions, kernel, sums)


__all__ = ["ItemBuffers", "ItemNumbers", "call_item"]
