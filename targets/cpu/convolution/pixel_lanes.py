"""Work item of a convolution with few output features: the lanes are adjacent pixels of a row.

The micro-kernel is that of implicit GEMM with its operands in each other's place: it broadcasts weights, and loads
vectors of the packed image, in which a row has a line of elements for each input feature.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.cpu.contraction.register_tile import RegisterTile
from stablexla.targets.cpu.convolution.coordinates import ItemCoordinates, PackedLhs, Taps
from stablexla.targets.cpu.convolution.implicit_gemm import ImplicitGemmItem
from stablexla.targets.cpu.convolution.micro_kernel import call_pixel_micro_kernel, fill_pixel_offsets


class PixelLanesItem(ImplicitGemmItem):
    """Buffers and code of such an item."""

    def _allocate(self, packed: Value | None) -> None:
        self.step = self.plan.across * self.lanes
        self.padded = -(-self.plan.rounds // self.step) * self.step
        super()._allocate(packed)
        self.sums = cg.alloca(self.weights.outputs * self.padded, self.scene.compute)

    @property
    def staged_rows(self) -> int:
        """Rows whose sums are in the stage."""
        return 1

    def _lhs(self) -> PackedLhs:
        sizes, features = self.sizes, self.plan.features
        row, image = self.width.reach(self.padded), sizes.packed(features, self.plan.rows, self.padded)
        buffer = cg.alloca(image + 2 * self.lanes, sizes.units.type)
        return PackedLhs(buffer, 1, row, sizes.heights(self.plan.rows) * row * features, image, lines=features)

    def write(self, coordinates: Sequence[Value]) -> None:
        place = self.cut.place(coordinates)
        outputs = self.weights.outputs
        fill_pixel_offsets(self.shared, self.tables.pixels, [1, 1, outputs], [0, 0, 1], 0)
        self._pack(place, 0)
        if self.phases == 1:
            self._fill_taps(place, Taps.of(self.width, 0, 0))
        with cg.loop(0, place.rows) as row:
            with cg.loop(0, self.phases) as phase:
                taps = Taps.of(self.width, 0, phase.iv)
                if self.phases > 1:
                    self._fill_taps(place, taps)
                self._sum_row(place, row.iv, taps)
                with cg.loop(0, place.rounds) as pixel, cg.loop(0, outputs) as n:
                    value = cg.load(self.sums, n.iv * self.padded + pixel.iv)
                    cg.store(value, self.stage, (pixel.iv * self.phases + phase.iv) * self.plan.columns + n.iv)
            one = replace(place, row=place.row + row.iv, rows=cg.index(1))
            self.write_panel(one, cg.index(0), outputs)

    def lines(self, place: ItemCoordinates) -> Callable[[Value], Value]:
        return lambda row: cg.index(0)

    def _sum_row(self, place: ItemCoordinates, row: Value, taps: Taps) -> None:
        """Emit the sums of a row's pixels of one phase, as a line for each output feature."""
        sums = self._sums(place, cg.index(0), taps, self.weights.at(place.group, 0, 0))
        image = cg.index(sums.lhs_at) + row * self._strides()[0][1]
        kernel = replace(self._kernel(), tile=RegisterTile(self.weights.outputs, self.plan.across), across=True)
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

    def _in_runs(self) -> bool:
        return False
