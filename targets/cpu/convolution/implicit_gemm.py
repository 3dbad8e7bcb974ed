"""Work item of a convolution vectorized over output features (implicit GEMM): packing, tile calls, result stores.

An item's outputs are flattened to a sequence of pixels, across rows and images. Packing and sums are functions that
convolutions share; most convolutions have the whole loop over items as one (`driven_item`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Literal

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.match.epilogue import COMPLETE_SUM, SumState
from stablexla.targets.codegen.sizes import rounded_up
from stablexla.targets.codegen.sums.compensated import BLOCK, LONGEST_RUNNING_SUM
from stablexla.targets.cpu.contraction.strategy import MOST_BLOCKS
from stablexla.targets.cpu.convolution.coordinates import ItemCoordinates, PackedLhs, Taps
from stablexla.targets.cpu.convolution.item import StagedItem
from stablexla.targets.cpu.convolution.micro_kernel import (
    OffsetTables,
    PixelMicroKernel,
    PixelSums,
    call_pixel_micro_kernel,
    fill_pixel_offsets,
    fill_tap_offsets,
    table_type,
)
from stablexla.targets.cpu.convolution.packing import LhsPacking
from stablexla.targets.cpu.convolution.plan import reads_in_place
from stablexla.targets.cpu.convolution.tiles import TilesMicroKernel
from stablexla.targets.cpu.convolution.weights import pack_weight_panel

# Pixels whose sums are staged before the epilogue: some kilobytes, in L1. A multiple of the rows of all tiles.
CHUNK = Gate("convolution.chunk", 96, eager=1)
# Times as many for AMX tiles: each call of their micro-kernel configures them, and they are slower after a pause.
OF_TILES = 3
# Rows of so many pixels may have one more of padding.
FLAT_SHARE = 3


@dataclass(frozen=True)
class ItemStack:
    """Sizes of an item's buffers on the stack, see `DriverNumbers`."""

    packed_values: int
    panel_values: int
    staged: int
    pixel_entries: int
    tap_entries: int


class ImplicitGemmItem(StagedItem):
    """Buffers and code of such an item."""

    def _allocate(self, packed: Value | None) -> None:
        sizes, plan, weights = self.sizes, self.plan, self.weights
        tile, units = plan.tile, sizes.units
        self.in_place = not plan.across and reads_in_place(sizes, plan.features)
        self.lhs, packed_values = self._lhs()
        if weights.in_place:
            packed = self.scene.inputs[self.scene.contraction.b.number]
        self.flat = self._is_flat()
        pixels = plan.images * self.staged_rows * (self.lhs.row if self.flat else plan.rounds)
        dims = [*sizes.planes, *([sizes.height] if sizes.height else []), sizes.width]
        # Pixels in the stage, and of a chunk: whole tiles.
        chunk = CHUNK() * (OF_TILES if units.product.is_tiles else 1)
        self.pixels, self.chunk = (rounded_up(n, tile.rows) for n in (pixels, chunk))
        chunk = min(self.chunk, self.pixels) * weights.width
        stage = self.pixels * self.phases * plan.columns if plan.staged else chunk
        self.straight = not plan.staged and not plan.depth and not self.flat and self._writes_straight(pixels)
        entries = pixels + tile.rows, 2 * math.prod(d.taps for d in dims)
        self.on_stack = ItemStack(packed_values, weights.block, stage + self.lanes * plan.columns, *entries)
        self._allocate_stack(packed)

    def _allocate_stack(self, packed: Value | None) -> None:
        n, units, table = self.on_stack, self.sizes.units, table_type()
        if not self.in_place:
            self.lhs = replace(self.lhs, buffer=cg.alloca(n.packed_values, units.type))
        self.packed = packed if packed is not None else cg.alloca(n.panel_values, units.type)
        self.tables = OffsetTables(cg.alloca(n.pixel_entries, table), cg.alloca(n.tap_entries, table))
        if not self.straight:
            self.stage = cg.alloca(n.staged, self.scene.compute)

    @property
    def staged_rows(self) -> int:
        """Rows whose sums are in the stage."""
        return self.plan.rows

    def _lhs(self) -> tuple[PackedLhs, int]:
        """Return the layout of lhs as the micro-kernel reads it, and the values that an item packs."""
        sizes, plan, slots = self.sizes, self.plan, self.sizes.units.slots(self.plan.features)
        if self.in_place:
            return PackedLhs(self.factor.buffer, slots, 0, 0, 0), 0
        row, image = self.width.reach(plan.rounds), sizes.packed(plan.features, plan.rows, plan.rounds)
        behind = self.width.taps * slots if sizes.units.product.is_tiles else 0
        layout = PackedLhs(self.factor.buffer, slots, row, sizes.heights(plan.rows) * row * slots, image)
        return layout, plan.images * image + behind + 2 * sizes.units.lanes()

    def _is_flat(self) -> bool:
        """Whether the padding of packed rows counts as pixels, whose sums nobody reads: all are evenly spaced then.

        Tiles read such pixels as they lie.
        """
        d, w = self.sizes.height, self.width
        adjacent = all(one.stride == one.step and len(one.phases) == 1 for one in (d, w) if one is not None)
        few = FLAT_SHARE * self.lhs.row <= (FLAT_SHARE + 1) * self.plan.rounds
        return self.sizes.units.product.is_tiles and not self.in_place and d is not None and adjacent and few

    def _places(self, place: ItemCoordinates) -> Value:
        """Emit the pixels of a row."""
        return cg.index(self.lhs.row) if self.flat else place.rounds

    def _writes_straight(self, pixels: int) -> bool:
        """Whether sums are stored to the result directly: no epilogue, and an item's pixels evenly strided."""
        c, plan, d = self.convolved, self.plan, self.sizes.height
        m = c.contraction.m
        even = plan.rounds == self.width.rounds and self.width.phases[1:] == ()
        if d is not None and plan.rows * plan.images > 1:
            axis = c.contraction.batch[-1]
            even = even and len(d.phases) == 1 and (plan.rows == 1 or axis.c == m.c * m.extent)
        if plan.images > 1:
            even = even and c.batch.c == m.c * m.extent * plan.rows
        rows = self.sizes.all_rows % plan.rows or plan.rows
        enough = plan.images * min(rows, plan.rows) * plan.rounds >= plan.tile.rows
        same = self.scene.contraction.sum_type == self.scene.compute and not c.contraction.epilogue
        return even and enough and same and self.scene.vectors and self.weights.outputs % self.weights.width == 0

    def write(self, coordinates: Sequence[Value]) -> None:
        place = self.cut.place(coordinates)
        if self.weights.parts > 1:
            zero = cg.constant(0, cg.vector_of(self.lanes, self.scene.compute))
            with cg.loop(0, self.pixels * self.phases * self.plan.columns, self.lanes) as at:
                cg.store(zero, self.stage, at.iv)
        self._fill_pixels(place)
        if self.phases == 1:
            self._fill_taps(place, Taps.of(self.width, self._first_round(place), 0))
        with cg.loop(0, self.weights.parts) as part:
            if not self.in_place:
                self.cut.images(place, lambda one: self._pack(one, part.iv))
            self.cut.panels(place, lambda panel, columns: self._sum_panel(place, part.iv, panel, columns))
        self.write_stage(place)

    # Addresses.

    def _first_round(self, place: ItemCoordinates) -> Index:
        """Return the first round for taps of the last dimension: the item's where lhs is read in place."""
        return place.round if self.in_place else cg.index(0)

    def strides(self) -> tuple[list[int], list[int]]:
        """Return strides of pixels (images, rows, rounds), and of the window's elements in each dimension."""
        c, d, w, lhs = self.convolved, self.sizes.height, self.width, self.lhs
        if self.in_place:
            dims = [*self.sizes.planes, *([d] if d else []), w]
            return [c.batch.a, d.stride * d.a if d else 0, w.stride * w.a], [dim.tap_stride * dim.a for dim in dims]
        pixels = [lhs.image, d.stride // d.step * lhs.line if d else 0, w.stride // w.step * lhs.element]
        plane, taps = lhs.plane, [w.tap_stride // w.step * lhs.element]
        if d:
            taps.insert(0, d.tap_stride // d.step * lhs.line)
        planes: list[int] = []
        for dim in reversed(self.sizes.planes):
            planes.insert(0, plane)
            plane *= dim.taps
        return pixels, [*planes, *taps]

    def _fill_pixels(self, place: ItemCoordinates) -> None:
        extents = [cg.index(self.plan.images), place.rows, self._places(place)]
        fill_pixel_offsets(self.shared, self.tables.pixels, extents, self.strides()[0], self.plan.tile.rows)

    def _nest(self, place: ItemCoordinates, taps: Taps) -> list[tuple[Taps, int, int]]:
        """Return the window's dimensions: taps, and strides in lhs and in a panel."""
        met = [*(t for _, t in place.planes), *([place.height] if place.height else []), taps]
        steps = self.weights.steps[-len(met) :]
        return [
            (one, along, one.spatial.tap_step * step)
            for one, along, step in zip(met, self.strides()[1], steps, strict=True)
        ]

    def in_runs(self) -> bool:
        """Whether the window's elements of a row are contiguous, with their features, in lhs and in a panel."""
        lines = self.weights.steps[-1] == self.weights.slots * self.weights.width and self.width.tap_step == 1
        padded = self.weights.slots != self.lhs.element and self.weights.merged == 1
        return self.strides()[1][-1] == self.lhs.element and not padded and (lines or self.width.taps == 1)

    def _fill_taps(self, place: ItemCoordinates, taps: Taps) -> None:
        nest: list[tuple[Index, int, int]] = [(t.count, a, b) for t, a, b in self._nest(place, taps)]
        if self.in_runs():
            nest[-1] = (cg.minimum(nest[-1][0], 1), 0, 0)
        nest = [(1, 0, 0)] * (3 - len(nest)) + nest
        *outer, x, y, z = nest

        def each(dims: Sequence[tuple[Index, int, int]], first: Index, a: Index, b: Index) -> None:
            if not dims:
                sides = [(x[1], x[2]), (y[1], y[2]), (z[1], z[2]), (a, b)]
                fill_tap_offsets(self.shared, self.tables.taps, first, [x[0], y[0], z[0]], sides)
                return
            (count, along_a, along_b), *rest = dims
            inner = cg.index(1)
            for n in (*(d[0] for d in rest), x[0], y[0], z[0]):
                inner = inner * n
            with cg.loop(0, count) as iteration:
                each(rest, iteration.iv * inner + first, iteration.iv * along_a + a, iteration.iv * along_b + b)

        each(outer, 0, 0, 0)

    def _starts(self, place: ItemCoordinates, part: Index, taps: Taps) -> tuple[Value, Value]:
        """Emit the offsets of the first pixel's window in lhs and in a panel."""
        c, w = self.convolved, self.width
        nest = self._nest(place, taps)
        b = cg.index(0)
        for (one, _, _), step in zip(nest, self.weights.steps[-len(nest) :], strict=True):
            b = b + one.first * step
        if not self.in_place:
            return (taps.start - w.first) // w.step * self.lhs.element, b
        a = place.batch * c.batch.a + place.group * c.group.a + cg.index(part) * (self.plan.features * c.inputs.a)
        for one, _, _ in nest:
            a = a + one.start * one.spatial.a
        return a, b

    # Packing.

    def _pack(self, place: ItemCoordinates, part: Index) -> None:
        c = self.convolved
        at = place.batch * c.batch.a + place.group * c.group.a + cg.index(part) * (self.plan.features * c.inputs.a)
        LhsPacking(self.sizes, self.factor, self.lhs, self.plan.features, c.inputs.a).pack(self.shared, place, at)

    # Sums.

    def _sum_panel(self, place: ItemCoordinates, part: Value, panel: Value, columns: int) -> None:
        """Emit all pixels of the item by one panel of weights."""
        weights = self.weights.at(place.group, panel, part)
        if self.plan.own_weights:
            weights = cg.index(0)
            which = (place.group, panel, part)
            pack_weight_panel(self.shared, self.scene, self.sizes.units, self.weights, which, self.packed, weights)
        with cg.loop(0, self.phases) as phase:
            taps = Taps.of(self.width, self._first_round(place), phase.iv)
            if self.phases > 1:
                self._fill_taps(place, taps)
            sums = self._sums(place, part, taps, weights)
            if self.straight:
                frame = self.frame(place, cg.index(0))
                row = self.scene.row(frame, place.round)
                self._sum(replace(sums, out=self.scene.results[0], out_at=row.c + self.column(place, panel)))
            elif self.plan.staged:
                at = phase.iv * self.plan.columns + (panel * self.weights.width - place.column)
                self._sum(replace(sums, out_at=at, out_stride=self.phases * self.plan.columns))
            else:
                self._in_chunks(place, sums, panel, columns)

    def _sums(self, place: ItemCoordinates, part: Value, taps: Taps, weights: Value) -> PixelSums:
        counts = [t.count for t, _, _ in self._nest(place, taps)]
        run = cg.index(self.lhs.element if self.weights.merged > 1 else self.weights.slots)
        if self.in_runs():
            run = counts[-1] * run
            counts[-1] = cg.minimum(counts[-1], 1)
        entries = cg.index(1)
        for count in counts:
            entries = entries * count
        a, b = self._starts(place, part, taps)
        pixels = place.rows * self._places(place) * self.plan.images
        return PixelSums(
            lhs=self.lhs.buffer,
            lhs_at=a,
            weights=self.packed,
            weights_at=weights + b,
            tables=self.tables,
            pixel=0,
            pixels=pixels,
            tap=0,
            taps=entries,
            run=run,
            out=self.scene.results[0] if self.straight else self.stage,
            out_at=0,
            out_stride=self.convolved.contraction.m.c if self.straight else self.weights.width,
            ahead=self._ahead(weights, pixels) if self._prefetches() else (),
        )

    def _ahead(self, weights: Value, pixels: Value) -> tuple[Value, Value]:
        """Emit where the weights are that are read after these, and how many a step of the first tile."""
        w, tile = self.weights, self.plan.tile
        parts = 1 if self.plan.columns == w.width else w.parts
        return weights + parts * w.block, (w.width * tile.rows + pixels - 1) // pixels

    def _sum(self, sums: PixelSums) -> None:
        rows = self.plan.tile.rows
        more = self.weights.parts > 1
        pixels = (sums.pixels + (rows - 1)) // rows * rows if more else sums.pixels
        kernel = self.micro_kernel(more=more)
        tiles = TilesMicroKernel(kernel.units, more) if kernel.units.product.is_tiles else None
        call_pixel_micro_kernel(self.shared, tiles or kernel, replace(sums, pixels=pixels))

    def micro_kernel(self, *, more: bool = False) -> PixelMicroKernel:
        units, height = self.sizes.units, self.sizes.height
        products = self.sizes.plane_taps * (height.taps if height else 1) * self.width.taps * self.plan.features
        blocks: Literal["added", "compensated"] | None = None
        in_blocks = units.product.is_plain or units.product.rounds_to_odd
        if products > LONGEST_RUNNING_SUM() and cg.is_float(units.sums) and in_blocks:
            blocks = "added" if products * self.weights.parts <= MOST_BLOCKS() * BLOCK() else "compensated"
        return PixelMicroKernel(self.plan.tile, units, more, blocks, prefetches=self._prefetches())

    def _prefetches(self) -> bool:
        """Return whether packed weights come from beyond L2."""
        units, plan = self.sizes.units, self.plan
        stay = self.weights.in_place or plan.own_weights or plan.across
        return units.product.is_plain and not stay and self.sizes.weight_bytes > self.sizes.target.l2_bytes // 2

    # Results.

    def _in_chunks(self, place: ItemCoordinates, sums: PixelSums, panel: Value, columns: int) -> None:
        """Emit sums of a chunk of pixels at a time, followed by the epilogue and stores."""
        zero = cg.index(0)
        with cg.loop(0, sums.pixels, self.chunk, [zero, zero, zero]) as chunk:
            count = cg.minimum(sums.pixels - chunk.iv, self.chunk)
            self._sum(replace(sums, pixel=chunk.iv, pixels=count))
            with cg.loop(0, count, 1, chunk.args) as pixel:
                image, row, round_ = pixel.args
                one = replace(place, batch=place.batch + image)
                with cg.when(round_.lt(place.rounds)) if self.flat else nullcontext():
                    self._write_pixel(one, row, round_, pixel.iv * self.weights.width, panel, columns)
                last = (round_ + 1).eq(self._places(place))
                row = cg.select(last, row + 1, row)
                end = row.eq(place.rows)
                pixel.yields(
                    cg.select(end, image + 1, image), cg.select(end, zero, row), cg.select(last, zero, round_ + 1)
                )
            chunk.yields(*pixel.results)

    def _write_pixel(
        self, place: ItemCoordinates, row: Value, round_: Value, at: Value, panel: Value, columns: int
    ) -> None:
        lanes = self.lanes
        to = self.scene.row(self.frame(place, row), place.round + round_)
        column = self.column(place, panel)
        whole = columns // lanes * lanes
        state = COMPLETE_SUM
        if self.plan.depth:
            state = SumState(kept=True, offset=place.part * math.prod(self.convolved.contraction.shape))
        with cg.loop(0, whole, lanes) as j:
            value = cg.load(self.stage, at + j.iv, lanes)
            self.scene.write_all([value], [(to, column + j.iv, lanes)], state)
        if columns > whole:
            value = cg.load_lanes(self.stage, at + whole, lanes, columns - whole)
            self.scene.write_all([value], [(to, column + whole, columns - whole)], state)

    def lines(self, place: ItemCoordinates) -> Callable[[Value], Value]:
        length, first = self._places(place) * (self.phases * self.plan.columns), place.image * place.rows
        return lambda row: (first + row) * length
