"""Work item of a convolution with few output features: the lanes are adjacent pixels of a row.

The micro-kernel is that of implicit GEMM with its operands in each other's place: it broadcasts weights, and loads
vectors of the packed image, in which a row has a line of elements for each input feature. Small windows are written
out, for several rows of the result at once: what their windows share is loaded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.cpu.contraction.register_tile import RegisterTile
from stablexla.targets.cpu.convolution.coordinates import ItemCoordinates, PackedLhs, Taps
from stablexla.targets.cpu.convolution.implicit_gemm import ImplicitGemmItem
from stablexla.targets.cpu.convolution.micro_kernel import call_pixel_micro_kernel, fill_pixel_offsets

# The most multiply-adds that are written out, of each feature: windows of all rows and output features of a block.
WRITTEN_OUT = Gate("convolution.written-out", 128, eager=4)
# The most rows of such a block.
ROWS = 8


class PixelLanesItem(ImplicitGemmItem):
    """Buffers and code of such an item."""

    def _allocate(self, packed: Value | None) -> None:
        self.step = self.plan.across * self.lanes
        self.padded = -(-self.plan.rounds // self.step) * self.step
        self.rows = self._rows()
        super()._allocate(packed)
        self.sums = cg.alloca(max(1, self.rows) * self.weights.outputs * self.padded, self.scene.compute)

    def _rows(self) -> int:
        """Return the rows of the result that are computed at once; 0 where the window is not written out."""
        dims = [d for d in (*self.sizes.planes, self.sizes.height, self.width) if d is not None]
        if self.plan.staged or any(len(d.phases) > 1 for d in dims):
            return 0
        outputs = self.weights.outputs
        most = WRITTEN_OUT() // (outputs * math.prod(d.taps for d in dims))
        # The sums of one row and feature would be a chain whose latency shows.
        return 0 if most < 2 else min(max(1, ROWS // outputs), self.plan.rows, most)

    @property
    def staged_rows(self) -> int:
        """Rows whose sums are in the stage."""
        return 1

    def _lhs(self) -> tuple[PackedLhs, int]:
        sizes, features = self.sizes, self.plan.features
        rows = self.rows or self.plan.rows
        row, image = self.width.reach(self.padded), sizes.packed(features, rows, self.padded)
        packed = PackedLhs(self.factor.buffer, 1, row, sizes.heights(rows) * row * features, image, lines=features)
        return packed, image + 2 * self.lanes

    def write(self, coordinates: Sequence[Value]) -> None:
        place = self.cut.place(coordinates)
        if self.rows:
            self._write_rows(place)
            return
        self._pack(place, 0)
        fill_pixel_offsets(self.shared, self.tables.pixels, [1, 1, self.weights.outputs], [0, 0, 1], 0)
        if self.phases == 1:
            self._fill_taps(place, Taps.of(self.width, 0, 0))
        with cg.loop(0, place.rows) as row:
            if self.plan.staged:
                self._stage_row(place, row.iv)
                one = replace(place, row=place.row + row.iv, rows=cg.index(1))
                self.write_panel(one, cg.index(0), self.weights.outputs)
            else:
                self._sum_row(place, row.iv, Taps.of(self.width, 0, 0))
                self._write_row(place, row.iv, cg.index(0))

    def _write_row(self, place: ItemCoordinates, row: Value, at: Value) -> None:
        """Store a row's sums, which are lines of the features."""
        frame, column = self.frame(place, row), self.column(place, cg.index(0))
        size = self.weights.outputs, place.rounds
        self._by_pixels.write_block(self.sums, self.padded, frame, size, (column, place.round), base=at)

    # Windows that are written out.

    def _write_rows(self, place: ItemCoordinates) -> None:
        """Emit the rows of the item, some at a time."""
        whole = place.rows // self.rows * self.rows
        for first, last, rows in ((cg.index(0), whole, self.rows), (whole, place.rows, 1)):
            with cg.loop(first, last, rows) as row:
                at, d = place.row + row.iv, self.sizes.height
                height = None if d is None else Taps.of(d, at, 0)
                some = replace(place, row=at, rows=cg.index(rows), height=height)
                self._pack(some, 0)
                self._sum_rows(some, rows)
                with cg.loop(0, rows) as r:
                    self._write_row(some, r.iv, r.iv * (self.weights.outputs * self.padded))

    def _sum_rows(self, place: ItemCoordinates, rows: int) -> None:
        """Emit the sums of some rows, as lines for each of their output features."""
        nest = self._nest(place, Taps.of(self.width, 0, 0))
        strides, outputs = self.strides()[0], self.weights.outputs
        image, panel = self._starts(place, 0, Taps.of(self.width, 0, 0))
        panel = panel + self.weights.at(place.group, 0, 0)
        extents = [range(taps.spatial.phases[0].count) for taps, _, _ in nest]
        # Offsets of the window's elements in the panel, and in the image.
        in_panel, in_image = (
            [sum(n * step for n, step in zip(tap, steps, strict=True)) for tap in product(*extents)]
            for steps in ([b for _, b, _ in nest], [a for _, _, a in nest])
        )

        def weights(feature: Index) -> list[list[Value]]:
            at = panel + cg.index(feature) * self.lanes
            return [[cg.splat(cg.load(self.packed, at + b + o), self.lanes) for b in in_panel] for o in range(outputs)]

        one = weights(0) if self.plan.features == 1 else None
        zero = cg.constant(0, cg.vector_of(self.lanes, self.scene.compute))
        with cg.loop(0, place.rounds, self.lanes) as pixel:
            with cg.loop(0, self.plan.features, 1, [zero] * (rows * outputs)) as feature:
                factors, start = one or weights(feature.iv), feature.iv * self.lhs.row + image + pixel.iv
                loaded: dict[int, Value] = {}
                sums = list(feature.args)
                for r, (number, a) in product(range(rows), enumerate(in_image)):
                    at = r * strides[1] + a
                    if at not in loaded:
                        loaded[at] = cg.load(self.lhs.buffer, start + at, self.lanes)
                    for o in range(outputs):
                        sums[r * outputs + o] = cg.fma(factors[o][number], loaded[at], sums[r * outputs + o])
                feature.yields(*sums)
            for line, value in enumerate(feature.results):
                cg.store(value, self.sums, pixel.iv + line * self.padded)

    # Others.

    def _stage_row(self, place: ItemCoordinates, row: Value) -> None:
        """Emit the sums of a row, with the features of each pixel adjacent."""
        outputs = self.weights.outputs
        with cg.loop(0, self.phases) as phase:
            taps = Taps.of(self.width, 0, phase.iv)
            if self.phases > 1:
                self._fill_taps(place, taps)
            self._sum_row(place, row, taps)
            with cg.loop(0, place.rounds) as pixel, cg.loop(0, outputs) as n:
                value = cg.load(self.sums, n.iv * self.padded + pixel.iv)
                cg.store(value, self.stage, (pixel.iv * self.phases + phase.iv) * self.plan.columns + n.iv)

    def lines(self, place: ItemCoordinates) -> Callable[[Value], Value]:
        return lambda row: cg.index(0)

    def _sum_row(self, place: ItemCoordinates, row: Value, taps: Taps) -> None:
        """Emit the sums of a row's pixels of one phase, as a line for each output feature."""
        sums = self._sums(place, cg.index(0), taps, self.weights.at(place.group, 0, 0))
        image = cg.index(sums.lhs_at) + row * self.strides()[0][1]
        kernel = replace(self.micro_kernel(), tile=RegisterTile(self.weights.outputs, self.plan.across), across=True)
        with cg.loop(0, place.rounds, self.step) as pixel:
            swapped = replace(
                sums,
                lhs=self.packed,
                lhs_at=sums.weights_at,
                weights=self.lhs.buffer,
                weights_at=image + pixel.iv,
                pixels=self.weights.outputs,
                out=self.sums,
                out_at=pixel.iv,
                out_stride=self.padded,
                line=self.lhs.row,
            )
            call_pixel_micro_kernel(self.shared, kernel, swapped)

    def _nest(self, place: ItemCoordinates, taps: Taps) -> list[tuple[Taps, int, int]]:
        return [(t, b, a) for t, a, b in super()._nest(place, taps)]

    def in_runs(self) -> bool:
        return False
