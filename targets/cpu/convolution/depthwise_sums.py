"""Register-tile accumulation of a depthwise convolution, over the window and the features of a channel."""

from __future__ import annotations

from collections.abc import Sequence

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.match.convolution import WindowDimension
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.cpu.contraction.register_tile import RegisterTile
from stablexla.targets.cpu.convolution.coordinates import ItemCoordinates, PackedLhs, Taps
from stablexla.targets.cpu.convolution.plan import ConvolutionPlan
from stablexla.targets.cpu.convolution.weights import ConvolutionWeights

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
        with cg.loop(0, count, 1, sums, most=most) as turn:
            at_a, at_b = turn.iv * along_a + a, turn.iv * along_b + b
            if rest:
                out = self._nest(rest, at_a, at_b, tile, turn.args)
            else:
                out = self._of_channels(at_a, at_b, tile, turn.args)
            turn.yields(*out)
        return turn.results

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
