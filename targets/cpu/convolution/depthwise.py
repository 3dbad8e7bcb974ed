"""Work items of a depthwise (channel-wise) convolution, which pack lhs, or read it as it lies.

Vector lanes hold independent channels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.match.convolution import WindowDimension
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.cpu.contraction.register_tile import RegisterTile, store_tile
from stablexla.targets.cpu.convolution.coordinates import ItemCoordinates, PackedLhs, Taps
from stablexla.targets.cpu.convolution.item import ConvolutionItem, StagedItem
from stablexla.targets.cpu.convolution.packing import LhsPacking, inside_range
from stablexla.targets.cpu.convolution.plan import UNROLLED, ConvolutionPlan
from stablexla.targets.cpu.convolution.weights import ConvolutionWeights


class DepthwiseItem(StagedItem):
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


class DepthwiseInPlaceItem(ConvolutionItem):
    """Code of an item that reads whole rows of pixels, whose channels are contiguous.

    Windows across an edge have fewer taps: across the upper and lower edges by the trip count of the loop over the
    window's rows, across the others by code of their own for the first and the last tiles of a row.
    """

    def _allocate(self, packed: Value | None) -> None:
        assert packed is not None, "a phase packs all weights"
        self.packed = packed
        self.spill = cg.alloca(self.plan.tile.rows * self.plan.tile.vectors * self.lanes, self.scene.compute)

    def write(self, coordinates: Sequence[Value]) -> None:
        place = self.cut.place(coordinates)
        outputs, rows = self.width.rounds, self.plan.tile.rows
        starts = list(range(0, outputs, rows))
        whole = [start for start in starts if start + rows <= outputs and self._has_all_taps(start, rows)]
        with cg.loop(0, place.rows) as row:
            for start in starts:
                if start not in whole:
                    self._tile(place, row.iv, cg.index(start), min(rows, outputs - start), start)
                elif start == whole[0]:
                    with cg.loop(start, whole[-1] + 1, rows) as first:
                        self._tile(place, row.iv, first.iv, rows, None)

    def _has_all_taps(self, start: int, rows: int) -> bool:
        taps = range(self.width.taps)
        return all(self._position(start + r, tap) is not None for r in range(rows) for tap in taps)

    def _position(self, output: int, tap: int) -> int | None:
        """Return the element that an output meets with a tap, None outside of lhs."""
        w = self.width
        at = output * w.stride + w.phases[0].offset + tap * w.tap_stride
        return at if 0 <= at < w.size and tap < w.phases[0].count else None

    def _tile(self, place: ItemCoordinates, row: Value, first: Value, rows: int, start: int | None) -> None:
        """Emit `rows` outputs of a row, from `first` on, for all channels; `start`: the first, if it is known."""
        c, w = self.convolved, self.width
        met = [
            (r, tap)
            for tap in range(w.phases[0].count)
            for r in range(rows)
            if start is None or self._position(start + r, tap) is not None
        ]
        at = place.batch * c.batch.a + (first * w.stride + w.phases[0].offset) * w.a + place.column
        low, high, most, down, along, weights = cg.index(0), cg.index(1), 1, 0, 0, cg.index(0)
        size = self.weights.width
        if place.height is not None:
            d = place.height.spatial
            top = place.height.start + row * d.stride
            low, high = inside_range(top, place.height.count, d.tap_stride, d.size)
            at, down, most = at + top * d.a, d.tap_stride * d.a, d.taps
            along = d.tap_step * w.window * size
            weights = place.height.first * (w.window * size)
        weights = weights + w.phases[0].first * size
        frame = self.frame(place, row)

        def panel(number: Value, columns: int) -> None:
            source = at + (number * size - place.column)
            factors = self.weights.at(place.group, number, 0) + weights
            tile = RegisterTile(rows, math.ceil(columns / self.lanes))
            inits = [self.scene.zero] * (tile.rows * tile.vectors)
            with cg.loop(low, high, 1, inits, most=most) as tap_row:
                a, b = tap_row.iv * down + source, tap_row.iv * along + factors
                tap_row.yields(*self._of_row(a, b, met, columns, tap_row.args))
            at_result = (first, self.column(place, number))
            store_tile(self.scene, tile, tap_row.results, frame, at_result, columns, self.spill)

        self.cut.panels(place, panel)

    def _of_row(self, a: Value, b: Value, met: list[tuple[int, int]], columns: int, inits: list[Value]) -> list[Value]:
        """Accumulate the products with a row of the window."""
        w, sums, lanes = self.width, list(inits), self.lanes
        vectors = math.ceil(columns / lanes)
        loaded: dict[tuple[int, int], Value] = {}
        weights: dict[tuple[int, int], Value] = {}
        for (r, tap), v in itertools.product(met, range(vectors)):
            element = r * w.stride + tap * w.tap_stride
            if (element, v) not in loaded:
                start = a + (element * w.a + v * lanes)
                loaded[element, v] = self.scene.load_a(start, lanes, min(columns - v * lanes, lanes))
            if (tap, v) not in weights:
                weights[tap, v] = cg.load(self.packed, b + (tap * w.tap_step * self.weights.width + v * lanes), lanes)
            place = r * vectors + v
            sums[place] = cg.fma(loaded[element, v], weights[tap, v], sums[place])
        return sums


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
