"""Micro-kernel of implicit GEMM by AMX tiles: 32 pixels by 32 output features, and 64 bytes of features a step."""

from __future__ import annotations

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.cpu.contraction.amx import BLOCK, LANES, ROWS, TileRows, make_tiles
from stablexla.targets.cpu.convolution.micro_kernel import offset_at
from stablexla.targets.cpu.convolution.units import ConvolutionUnits
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions


@dataclass(frozen=True)
class TilesMicroKernel(SharedFunction):
    """The micro-kernel; its arguments are `PixelMicroKernel`'s.

    A tile's rows are 16 pixels. Those of one row of the image are evenly spaced, and are loaded as they lie; others
    are put together first, step by step.

    Attributes:
        more: accumulates into `out`; the number of pixels is a multiple of `BLOCK`.
    """

    units: ConvolutionUnits
    more: bool = False

    @property
    def name(self) -> str:
        return f"stablexla_{'add' if self.more else 'sum'}_pixels_{self.units.name}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        lhs, weights, out, pixels, taps = buffers
        lhs_at, weights_at, pixel, count, tap, tap_count, run, out_at, out_stride = numbers
        group, tiles = self.units.group, make_tiles(self.units.product, self.units.sums)
        halves = [_Pixels(functions, lhs, pixels, group) for _ in range(BLOCK // ROWS)]
        with cg.loop(0, count, BLOCK) as block:
            first = block.iv if self.more else cg.maximum(cg.minimum(block.iv, count - BLOCK), 0)
            for number, half in enumerate(halves):
                half.begin(pixel + first + number * ROWS, lhs_at)
            place = first * out_stride + out_at
            inits = tiles.load(out, place, out_stride) if self.more else tiles.zeros()
            with cg.loop(tap, tap + tap_count, 1, inits, most=0) as window:
                a, b = (offset_at(taps, window.iv * 2 + side) for side in (0, 1))
                with cg.loop(0, run, LANES * group, window.args, most=0) as k:
                    line = b + weights_at + k.iv * BLOCK
                    columns = [(weights, line + n * LANES * group, BLOCK * group) for n in range(2)]
                    left = run - k.iv if self.units.whole_rows else None
                    k.yields(*tiles.step([half.rows(a + k.iv, left) for half in halves], columns, k.args))
                window.yields(*k.results)
            tiles.store(window.results, out, place, out_stride)


class _Pixels:
    """Sixteen pixels as the rows of a tile."""

    def __init__(self, functions: SharedFunctions, lhs: Value, table: Value, group: int) -> None:
        self._lhs, self._table, self._columns = lhs, table, LANES * group
        self._together = Value(functions.opened(cg.alloca(ROWS * self._columns, lhs.element)))

    def begin(self, pixel: Value, at: Index) -> None:
        """Emit whether the pixels from number `pixel` on are evenly spaced; offsets grow, so the last one tells."""
        self._pixel, self._at = pixel, at
        first, second, last = (offset_at(self._table, pixel + n) for n in (0, 1, ROWS - 1))
        self._start, self._stride = first + at, second - first
        self._even = (last - first).eq(self._stride * (ROWS - 1))

    def rows(self, at: Value, count: Value | None = None) -> TileRows:
        """Emit the rows at an offset from each pixel; of rows of `count` elements the others are zeros."""
        even, columns = self._even, self._columns
        if count is not None:
            with cg.loop(0, ROWS) as row:
                start = offset_at(self._table, self._pixel + row.iv) + self._at + at
                value = cg.load_lanes(self._lhs, start, columns, cg.minimum(count, columns))
                cg.store(value, self._together, row.iv * columns)
            return self._together, cg.index(0), cg.index(columns)
        with cg.when(even.eq(0)), cg.loop(0, ROWS) as row:
            start = offset_at(self._table, self._pixel + row.iv) + self._at + at
            cg.store(cg.load(self._lhs, start, columns), self._together, row.iv * columns)
        buffer = cg.select(even, self._lhs, self._together)
        return buffer, cg.select(even, self._start + at, cg.index(0)), cg.select(even, self._stride, cg.index(columns))
