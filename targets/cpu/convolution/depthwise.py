"""Work item of a depthwise (channel-wise) convolution: pack lhs, accumulate register tiles, store results.

Vector lanes hold independent channels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.match.convolution import WindowDimension
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.cpu.contraction.register_tile import RegisterTile, store_tile
from stablexla.targets.cpu.convolution.coordinates import ItemCoordinates, PackedLhs, Taps
from stablexla.targets.cpu.convolution.item import ConvolutionItem
from stablexla.targets.cpu.convolution.packing import LhsPacking
from stablexla.targets.cpu.convolution.plan import ConvolutionPlan
from stablexla.targets.cpu.convolution.weights import ConvolutionWeights


class DepthwiseItem(ConvolutionItem):
    """Buffers and code of such an item."""

    def _allocate(self, packed: Value | None) -> None:
        sizes, plan, tile = self.sizes, self.plan, self.plan.tile
        assert packed is not None, "a phase packs all weights"
        # Remainder tiles are computed whole: there are elements to read and room for the unused sums.
        self.rounds = plan.rounds if self.phases == 1 else -(-plan.rounds // tile.rows) * tile.rows
        element, row = plan.columns, self.width.reach(self.rounds)
        image = sizes.packed(plan.elements, plan.rows, self.rounds)
        lhs = cg.alloca(plan.images * image + 2 * self.lanes, self.scene.compute)
        self.lhs = PackedLhs(lhs, element, row, sizes.heights(plan.rows) * row * element, image)
        self.sums = DepthwiseSums(self.scene, plan, self.width, self.lhs, self.weights, packed)
        if plan.staged:
            self.stage_row = self.rounds * self.phases * plan.columns
            self.stage_image = plan.rows * self.stage_row
            self.stage = cg.alloca(plan.images * self.stage_image + self.lanes * plan.columns, self.scene.compute)
        self.spill = cg.alloca(tile.rows * tile.vectors * self.lanes, self.scene.compute)

    def write(self, coordinates: Sequence[Value]) -> None:
        place = self.cut.place(coordinates)
        self.cut.images(place, self._pack)
        self.cut.panels(place, lambda panel, columns: self._sum_panel(place, panel, columns))
        self.write_stage(place)

    def _pack(self, place: ItemCoordinates) -> None:
        """Pack the part of lhs under the windows, for each feature of the channels."""
        c = self.convolved
        at = place.batch * c.batch.a + place.column * c.group.a
        under = LhsPacking(self.sizes, self.factor, self.lhs, self.plan.channels, c.group.a)
        with cg.loop(0, self.plan.features) as feature:
            under.pack(self.shared, place, feature.iv * c.inputs.a + at, feature.iv)

    # Sums.

    def _sum_panel(self, place: ItemCoordinates, panel: Value, columns: int) -> None:
        """Emit all tiles of the item over one panel of weights."""
        weights = self.weights.at(place.group, panel, 0)

        def of_image(one: ItemCoordinates) -> None:
            def tile(at: tuple[Value, Value, Value], taps: Taps, rows: int) -> None:
                self._tile(one, taps, at, weights, panel, rows, columns)

            with cg.loop(0, place.rows) as row, cg.loop(0, self.phases) as phase:
                self._tiles_of_row(one, (row.iv, phase.iv), Taps.of(self.width, 0, phase.iv), tile)

        self.cut.images(place, of_image)

    def _tiles_of_row(
        self,
        place: ItemCoordinates,
        at: tuple[Value, Value],
        taps: Taps,
        tile: Callable[[tuple[Value, Value, Value], Taps, int], None],
    ) -> None:
        rows, all_rounds = self.plan.tile.rows, self.width.rounds
        # Phases have different trip counts: their remainder tiles are computed whole.
        whole = place.rounds if self.phases > 1 else place.rounds // rows * rows
        with cg.loop(0, whole, rows) as t:
            tile((*at, t.iv), taps, rows)
        rest = all_rounds % rows if self.phases == 1 else 0
        if rest:
            in_blocks = all_rounds > self.plan.rounds
            with cg.when((place.round + place.rounds).eq(all_rounds)) if in_blocks else nullcontext():
                tile((*at, whole), taps, rest)

    def _tile(
        self,
        place: ItemCoordinates,
        taps: Taps,
        at: tuple[Value, Value, Value],
        weights: Value,
        panel: Value,
        rows: int,
        columns: int,
    ) -> None:
        """Emit one tile: from row, phase and round `at` of the item on, `rows` rounds by `columns` features."""
        row, phase, round_ = at
        tile = RegisterTile(rows, math.ceil(columns / self.lanes))
        stage = cg.index(0)
        if self.plan.staged:
            stage = (
                place.image * self.stage_image
                + row * self.stage_row
                + (round_ * self.phases + phase) * self.plan.columns
            )
            stage = stage + (panel * self.weights.width - place.column)
        inits = [self.scene.zero] * (tile.rows * tile.vectors)
        along = self.phases * self.plan.columns
        lane = panel * self.weights.width - place.column
        sums = self.sums.of_tile(place, taps, (row, round_, lane), weights, tile, inits)
        if self.plan.staged:
            for number, value in enumerate(sums):
                r, v = divmod(number, tile.vectors)
                cg.store(value, self.stage, stage + r * along + v * self.lanes)
            return
        frame = self.frame(place, row)
        at_result = (place.round + round_, self.column(place, panel))
        store_tile(self.scene, tile, sums, frame, at_result, columns, self.spill)

    def lines(self, place: ItemCoordinates) -> Callable[[Value], Value]:
        start = place.image * self.stage_image
        return lambda row: start + row * self.stage_row


# The longest window row that is unrolled.
UNROLLED = Gate("convolution.unrolled-taps", 8, eager=1)
# A loop over the window: trip count, strides in the packed lhs and in the packed weights, and bound of the trip count.
WindowLoop = tuple[Value, int, int, int]


@dataclass(frozen=True)
class DepthwiseSums:
    """Operands of the accumulation: lhs and weights, both packed."""

    scene: ContractionScene
    plan: ConvolutionPlan
    width: WindowDimension
    packed: PackedLhs
    weights: ConvolutionWeights
    weights_buffer: Value

    def of_tile(
        self,
        place: ItemCoordinates,
        taps: Taps,
        at: tuple[Value, Value, Value],
        weights: Value,
        tile: RegisterTile,
        inits: list[Value],
    ) -> list[Value]:
        """Emit the sums of a tile over the window and the packed features."""
        w, (row, round_, a) = self.width, at
        a = (
            a
            + place.image * self.packed.image
            + (round_ * (w.stride // w.step) + (taps.start - w.first) // w.step) * self.packed.element
        )
        # For each dimension of the window: taps, and their stride in the packed lhs.
        dims: list[tuple[Taps, int]] = []
        plane = self.packed.plane
        for _, met in reversed(place.planes):
            dims.insert(0, (met, plane))
            plane *= met.spatial.taps
        if place.height is not None:
            d, line = place.height.spatial, self.packed.line
            a = a + row * (d.stride // d.step * line)
            dims.append((place.height, d.tap_stride // d.step * line))
        dims.append((taps, w.tap_stride // w.step * self.packed.element))
        nest: list[WindowLoop] = []
        b, tap = weights, self.weights.features * self.weights.width
        for met, along in reversed(dims):
            b = b + met.first * tap
            nest.insert(0, (met.count, along, met.spatial.tap_step * tap, met.spatial.window))
            tap *= met.spatial.window
        nest.insert(0, (cg.index(self.plan.features), plane, self.weights.width, self.plan.features))
        return self._nest(nest, a, b, tile, inits)

    def _nest(
        self, loops: Sequence[WindowLoop], a: Value, b: Value, tile: RegisterTile, sums: list[Value]
    ) -> list[Value]:
        (count, along_a, along_b, most), *rest = loops
        number = cg.known(count)
        if not rest and number is not None and number <= UNROLLED():
            for tap in range(number):
                sums = self._of_channels(cg.index(tap * along_a) + a, cg.index(tap * along_b) + b, tile, sums)
            return sums
        with cg.loop(0, count, 1, sums, most=most) as iteration:
            at_a, at_b = iteration.iv * along_a + a, iteration.iv * along_b + b
            if rest:
                out = self._nest(rest, at_a, at_b, tile, iteration.args)
            else:
                out = self._of_channels(at_a, at_b, tile, iteration.args)
            iteration.yields(*out)
        return iteration.results

    def _of_channels(self, a: Value, b: Value, tile: RegisterTile, sums: list[Value]) -> list[Value]:
        """Accumulate the products with one element of the window for each channel."""
        lanes, along = self.scene.lanes, self.width.stride // self.width.step * self.packed.element
        out = []
        for v in range(tile.vectors):
            weight = cg.load(self.weights_buffer, b + v * lanes, lanes)
            of_vector = sums[v :: tile.vectors]
            values = [cg.load(self.packed.buffer, a + r * along + v * lanes, lanes) for r in range(tile.rows)]
            out.append([cg.fma(x, weight, total) for x, total in zip(values, of_vector, strict=True)])
        return [out[v][r] for r in range(tile.rows) for v in range(tile.vectors)]
