"""Register-tile micro-kernel of convolutions (implicit GEMM), one function for all of an element type.

Operands are addressed by two offset tables: one has for each pixel (an output position) an offset into lhs, one for
each element of the window offsets into lhs and into the weights. Borders, strides, dilation, several rows and images
are all in the tables, so that the micro-kernel knows nothing of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.codegen.sums.compensated import BLOCK
from stablexla.targets.codegen.sums.stored import CompensatedSums
from stablexla.targets.cpu.contraction.dot_instructions import as_bits, load_group
from stablexla.targets.cpu.contraction.register_tile import RegisterTile, multiply_add
from stablexla.targets.cpu.convolution.units import ConvolutionUnits
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions

# Cost model of register tiles by their vectors: (rows that then fit, relative time), by loads and FMAs a step, with
# 0.5 cycles for an FMA that hides its latency, and measured on 256-bit vectors for tiles of one vector.
COSTS_OF_16 = {1: (8, 0.58), 2: (6, 0.5), 3: (4, 0.52)}
COSTS_OF_32 = {1: (8, 0.7), 2: (6, 0.55), 3: (6, 0.52), 4: (6, 0.5)}


def choose_pixel_tile(outputs: int, lanes: int, registers: int) -> RegisterTile:
    """Choose the register tile for a number of output features; rows take address registers, so they are few."""
    vectors = -(-outputs // lanes)
    costs = COSTS_OF_32 if registers >= 32 else COSTS_OF_16
    best = min(costs, key=lambda v: (-(-vectors // v) * v * costs[v][1], -v))
    return RegisterTile(costs[best][0], best)


@dataclass(frozen=True)
class OffsetTables:
    """The two offset tables of an item, in 32-bit integers.

    Attributes:
        pixels: offsets into lhs.
        taps: pairs of offsets, into lhs and into a panel of weights.
    """

    pixels: Value
    taps: Value


def fill_pixel_offsets(
    shared: SharedFunctions, table: Value, extents: Sequence[Index], strides: Sequence[Index], more: Index
) -> None:
    """Fill the table of pixels from three loops (images, rows, places in a row), and append `more` zeros."""

    shared.call(_FillPixels(), [table], [*extents, *strides, more])


@dataclass(frozen=True)
class _FillPixels(SharedFunction):
    of_library = False

    @property
    def name(self) -> str:
        return "stablexla_fill_pixels"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        (to,) = buffers
        (images, rows, places), (a, b, c), (tail,) = numbers[:3], numbers[3:6], numbers[6:]
        i32 = to.element
        with cg.loop(0, images) as i, cg.loop(0, rows) as r:
            start, at = (i.iv * rows + r.iv) * places, i.iv * a + r.iv * b
            with cg.loop(0, places) as p:
                cg.store(cg.cast_index(p.iv * c + at, i32), to, start + p.iv)
        count = images * rows * places
        with cg.loop(count, count + tail) as p:
            cg.store(cg.constant(0, i32), to, p.iv)


def fill_tap_offsets(
    shared: SharedFunctions, table: Value, first: Index, extents: Sequence[Index], steps: Sequence[tuple[Index, Index]]
) -> None:
    """Fill the table of taps from three loops, from entry `first` on; steps are pairs, the last one the origin."""

    shared.call(_FillTaps(), [table], [first, *extents, *(n for step in steps for n in step)])


@dataclass(frozen=True)
class _FillTaps(SharedFunction):
    of_library = False

    @property
    def name(self) -> str:
        return "stablexla_fill_taps"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        (to,) = buffers
        first, (x, y, z), flat = numbers[0], numbers[1:4], numbers[4:]
        i32 = to.element
        with cg.loop(0, x) as i, cg.loop(0, y) as j, cg.loop(0, z) as k:
            at = (((i.iv * y + j.iv) * z + k.iv) + first) * 2
            for side in (0, 1):
                offset = i.iv * flat[side] + j.iv * flat[2 + side] + k.iv * flat[4 + side] + flat[6 + side]
                cg.store(cg.cast_index(offset, i32), to, at + side)


@dataclass(frozen=True)
class PixelSums:
    """Arguments of a call of the micro-kernel.

    Attributes:
        lhs, lhs_at: a buffer, and the origin of the offsets in it.
        weights, weights_at: likewise; a panel is as wide as the tile.
        tables: the tables.
        pixel, pixels: the first pixel, and how many.
        tap, taps: the first entry of the window, and how many.
        run: contiguous elements of lhs for each entry; in the panel they are a line apart.
        out, out_at, out_stride: destination of the sums; the stride is that of a pixel.
        line: with `across`, the distance of features in the image.
        ahead: the offset of weights that are read next, and how many of them for each step of the first tile; none if
            weights stay near.
    """

    lhs: Value
    lhs_at: Index
    weights: Value
    weights_at: Index
    tables: OffsetTables
    pixel: Index
    pixels: Index
    tap: Index
    taps: Index
    run: Index
    out: Value
    out_at: Index
    out_stride: Index
    line: Index | None = None
    ahead: tuple[Index, ...] = ()


def call_pixel_micro_kernel(shared: SharedFunctions, kernel: SharedFunction, sums: PixelSums) -> None:
    """Call the micro-kernel: sums of pixels over the window, by one panel of output features.

    The last tile overlaps the one before; with fewer pixels than one tile, sums of pixels behind the last are stored
    too.
    """
    s = sums
    buffers = [s.lhs, s.weights, s.out, s.tables.pixels, s.tables.taps]
    numbers = [
        *(s.lhs_at, s.weights_at, s.pixel, s.pixels, s.tap, s.taps, s.run),
        *(s.out_at, s.out_stride),
        *(() if s.line is None else (s.line,)),
        *s.ahead,
    ]
    shared.call(kernel, buffers, numbers)


@dataclass(frozen=True)
class PixelMicroKernel(SharedFunction):
    """The micro-kernel of a register tile.

    Attributes:
        more: accumulates into `out`; the number of pixels is a multiple of the tile's rows.
        blocks: how sums too long for one running sum are added up; None for others.
        across: whether operands change places: vectors are adjacent pixels of an image, and the `lhs` that is broadcast
            is a panel of weights, one vector wide. Rows of the tile are then output features.
        prefetches: whether weights come from beyond L2, each tile of pixels prefetching a part of those that follow.
    """

    tile: RegisterTile
    units: ConvolutionUnits
    more: bool = False
    blocks: Literal["added", "compensated"] | None = None
    across: bool = False
    prefetches: bool = False

    @property
    def name(self) -> str:
        tile = f"{self.tile.rows}x{self.tile.vectors}{f'_in_{self.blocks}_blocks' if self.blocks else ''}"
        units = "" if self.units.product.is_plain else f"_{self.units.name}"
        what = f"{'add' if self.more else 'sum'}_pixels_{'across_' * self.across}"
        return f"stablexla_{what}{tile}{units}{'_ahead' * self.prefetches}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        lhs, weights, out, pixels, taps = buffers
        lhs_at, weights_at, pixel, count, tap, tap_count, run, out_at, out_stride, *more_numbers = numbers
        tile, units, more = self.tile, self.units, self.more
        lanes = cg.lanes_of(units.sums)
        zero = cg.constant(0, cg.vector_of(lanes, units.sums))
        width = more_numbers[0] if self.across else cg.index(tile.vectors * lanes)
        vector = units.lanes()
        step = lanes if self.across else 1
        places = [(r, v) for r in range(tile.rows) for v in range(tile.vectors)]
        kinds: dict[str, type[_Blocks]] = {"added": _AddedBlocks, "compensated": _CompensatedBlocks}
        blocks = kinds[self.blocks](len(places), zero) if self.blocks else None
        with cg.loop(0, count, tile.rows) as iteration:
            at = iteration.iv if more else cg.maximum(cg.minimum(iteration.iv, count - tile.rows), 0)
            starts = [offset_at(pixels, pixel + at + r) + lhs_at for r in range(tile.rows)]
            if self.prefetches:
                next_at, ahead = more_numbers
                next_at = iteration.iv // tile.rows * (tap_count * run * ahead) + next_at

            def place(r: int, v: int, at: Value = at) -> Value:
                return (at + r) * out_stride + out_at + v * lanes

            inits = [cg.load(out, place(r, v), lanes) if more else zero for r, v in places]
            if blocks is not None:
                inits = blocks.begin(inits)
            with cg.loop(tap, tap + tap_count, 1, inits, most=0) as window:
                a, b = (offset_at(taps, window.iv * 2 + side) for side in (0, 1))
                rows, line = [start + a for start in starts], b + weights_at
                next_line = (window.iv - tap) * (run * ahead) + next_at if self.prefetches else None

                def add(
                    first: Index,
                    last: Value,
                    inits: Sequence[Value],
                    rows: list[Value] = rows,
                    line: Value = line,
                    next_line: Value | None = next_line,
                ) -> list[Value]:
                    with cg.loop(first, last, units.group, inits, most=0) as k:
                        if next_line is not None:
                            cg.prefetch(weights, k.iv * ahead + next_line, locality=2)
                        sums = multiply_add(
                            tile,
                            lambda r: as_bits(load_group(units.product, lhs, rows[r] + k.iv * step)),
                            lambda v: cg.load(weights, k.iv * width + line + v * vector, vector),
                            k.args,
                            units.product.multiply_add,
                        )
                        k.yields(*sums)
                    return k.results

                window.yields(
                    *(add(0, run, window.args) if blocks is None else blocks.over(run, window.args, add, units.group))
                )
            results = window.results if blocks is None else blocks.results(window.results)
            for (r, v), value in zip(places, results, strict=True):
                cg.store(value, out, place(r, v))


class _Blocks(ABC):
    """Sums of a tile in blocks of BLOCK to LONGEST products, added up in memory.

    Carried are the vectors of a block's sums, and the number of products in them.
    """

    def __init__(self, count: int, zero: Value) -> None:
        self.zero, self.size, self.lanes = zero, count * zero.lanes, zero.lanes
        self.block = cg.alloca(self.size, zero.element)

    @abstractmethod
    def begin(self, sums: list[Value]) -> list[Value]:
        """Start a tile from sums, and return what is carried."""

    @abstractmethod
    def take(self, values: Sequence[Value]) -> None:
        """Add the sums of a block."""

    @abstractmethod
    def results(self, carried: Sequence[Value]) -> list[Value]:
        """Return the tile's sums."""

    def over(
        self,
        run: Value,
        carried: Sequence[Value],
        add: Callable[[Index, Value, Sequence[Value]], list[Value]],
        group: int,
    ) -> list[Value]:
        """Accumulate a run of products, whole groups."""
        step = rounded_up(BLOCK(), group)
        with cg.loop(0, run, step, carried, most=0) as piece:
            *sums, count = piece.args
            end = cg.minimum(piece.iv + step, run)
            made, number = add(piece.iv, end, sums), count + (end - piece.iv)
            choice = cg.branch(number.ge(BLOCK()), [v.type for v in (*made, number)])
            with choice.then:
                self.take(made)
                choice.yields(*[self.zero] * len(made), cg.index(0))
            with choice.otherwise:
                choice.yields(*made, number)
            piece.yields(*choice.results)
        return piece.results


class _AddedBlocks(_Blocks):
    """Blocks that are added one after the other, as products of matrices do it.

    They accumulate in a buffer that stays in L1: cache lines of a large result may still be on the way from memory.
    """

    def begin(self, sums: list[Value]) -> list[Value]:
        for number, value in enumerate(sums):
            cg.store(value, self.block, number * self.lanes)
        return [*[self.zero] * len(sums), cg.index(0)]

    def take(self, values: Sequence[Value]) -> None:
        for number, value in enumerate(self._added(values)):
            cg.store(value, self.block, number * self.lanes)

    def results(self, carried: Sequence[Value]) -> list[Value]:
        return self._added(carried[:-1])

    def _added(self, values: Sequence[Value]) -> list[Value]:
        return [cg.load(self.block, number * self.lanes, self.lanes) + value for number, value in enumerate(values)]


class _CompensatedBlocks(_Blocks):
    """Very many blocks, added up with their rounding errors.

    They go through a buffer, in a loop over the tile's vectors: written out they would be most of the micro-kernel.
    """

    def __init__(self, count: int, zero: Value) -> None:
        super().__init__(count, zero)
        self.sums = CompensatedSums.make(self.size, zero.element)

    def begin(self, sums: list[Value]) -> list[Value]:
        self.sums.clear_all(self.size, self.lanes)
        return [*sums, cg.index(0)]

    def take(self, values: Sequence[Value]) -> None:
        for number, value in enumerate(values):
            cg.store(value, self.block, number * self.lanes)
        self.sums.take(self.block, self.size, self.lanes)

    def results(self, carried: Sequence[Value]) -> list[Value]:
        self.take(carried[:-1])
        self.sums.give(self.block, self.size, self.lanes)
        return [cg.load(self.block, place, self.lanes) for place in range(0, self.size, self.lanes)]


def offset_at(table: Value, at: Index) -> Value:
    """Emit an entry of a table."""
    return cg.cast_index(cg.load(table, at), ir.IndexType.get())


def table_type() -> ir.Type:
    """Return the element type of tables."""
    return ir.IntegerType.get_signless(32)
