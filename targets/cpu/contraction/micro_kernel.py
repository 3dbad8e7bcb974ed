"""Packed GEMM: micro-kernel, macro-kernel and packing as functions that all contractions of an element type share.

Sizes and addresses are arguments: a module with products of many shapes holds the micro-kernel's code once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.conversion import Conversion, convert
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.sums.compensated import LONGEST_RUNNING_SUM
from stablexla.targets.cpu.contraction.packing import PackedPanels, PackingSource, pack_panels
from stablexla.targets.cpu.contraction.register_tile import RegisterTile, multiply_add, spill_tile
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions


@dataclass(frozen=True)
class PackedOperand:
    """Packed panels of an operand: a buffer, the first panel's offset, and the stride between panels.

    `ahead` tells the prefetch: from which offset on, and how many elements for each step of k. A lhs that is read in
    place has a distance of `row` elements between rows, in which steps of k are contiguous; 0 is a packed one.
    """

    buffer: Value
    at: Index
    stride: Index = 0
    ahead: tuple[Index, Index] = (0, 0)
    row: Index = 0

    @property
    def is_packed(self) -> bool:
        """Whether these are panels."""
        return cg.known(self.row) == 0


@dataclass(frozen=True)
class SumsDestination:
    """Destination of a tile's or block's sums.

    Attributes:
        buffer, at: the buffer, and the offset of the first sum.
        stride: leading dimension.
        add: 1 to accumulate into the present contents, 0 to overwrite them.
    """

    buffer: Value
    at: Index
    stride: Index
    add: Index = 0


def call_micro_kernel(
    functions: SharedFunctions,
    tile: RegisterTile,
    lhs: PackedOperand,
    rhs: PackedOperand,
    steps: Index,
    to: SumsDestination,
    size: tuple[Index, Index],
    *,
    all_stored: bool = False,
    is_near: bool = False,
) -> None:
    """Call the micro-kernel: the sums of one register tile over `steps` of k, stored row by row.

    Args:
        size: rows and columns that there are, at least one of each; more than the tile has means the whole tile.
        all_stored: whether there is room for the others, too.
        is_near: whether the next panel is in cache, so that it is not prefetched.
    """
    stored = (tile.rows, tile.vectors * cg.lanes_of(to.buffer.element)) if all_stored else size
    numbers = [lhs.at, rhs.at, *rhs.ahead, steps, *stored, to.at, to.stride, to.add]
    if not lhs.is_packed:
        numbers += [lhs.row, size[0]]
    kernel = _MicroKernel(tile, in_place=not lhs.is_packed, is_near=is_near)
    functions.call(kernel, [lhs.buffer, rhs.buffer, to.buffer], numbers)


@dataclass(frozen=True)
class _MicroKernel(SharedFunction):
    rolled = True
    tile: RegisterTile
    in_place: bool
    is_near: bool

    @property
    def name(self) -> str:
        flags = "_in_place" * self.in_place + "_near" * self.is_near
        return f"stablexla_sum_tile_{self.tile.rows}x{self.tile.vectors}{flags}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        a, b, out = buffers
        a_at, b_at, ahead_at, ahead, count, rows, columns, at, stride, add, *of_rows = numbers
        tile, lanes = self.tile, cg.lanes_of(a.element)
        places = [(r, v) for r in range(tile.rows) for v in range(tile.vectors)]
        starts = [at + stride * r for r in range(tile.rows)]
        for start in starts:  # in flight while the sums accumulate
            cg.prefetch(out, start, write=True)
        width, lines = tile.vectors * lanes, [a_at + r for r in range(tile.rows)]
        if self.in_place:
            row, there = of_rows  # rows beyond the last repeat it
            lines = [a_at + cg.minimum(there - 1, r) * row for r in range(tile.rows)]
        # Blocks of k are at most so deep, see `contraction`.
        with cg.loop(
            0, count, 1, [cg.constant(0, cg.vector_of(lanes, a.element))] * len(places), most=LONGEST_RUNNING_SUM()
        ) as k:
            left, right = k.iv * (1 if self.in_place else tile.rows), k.iv * width + b_at
            if not self.is_near:
                cg.prefetch(b, k.iv * ahead + ahead_at, locality=2)
            factors = [cg.load(a, left + line) for line in lines]
            vectors = [cg.load(b, right + v * lanes, lanes) for v in range(tile.vectors)]
            k.yields(*multiply_add(tile, factors.__getitem__, vectors.__getitem__, k.args))
        more = add.ne(0)
        whole = cg.branch(rows.ge(tile.rows) & columns.ge(width))
        with whole.then:
            for (r, v), value in zip(places, k.results, strict=True):
                place = starts[r] + v * lanes
                cg.store(cg.select(more, value + cg.load(out, place, lanes), value), out, place)
        with whole.otherwise:
            # Remainder tiles are few: they are stored element by element.
            spill = cg.alloca(tile.rows * width, a.element)
            spill_tile(lanes, k.results, spill)
            with cg.loop(0, cg.minimum(rows, tile.rows)) as i, cg.loop(0, cg.minimum(columns, width)) as j:
                value, place = cg.load(spill, i.iv * width + j.iv), i.iv * stride + at + j.iv
                cg.store(cg.select(more, value + cg.load(out, place), value), out, place)


def call_macro_kernel(
    functions: SharedFunctions,
    tile: RegisterTile,
    lhs: PackedOperand,
    rhs: PackedOperand,
    size: tuple[Index, Index, Index],
    to: SumsDestination,
) -> None:
    """Call the macro-kernel: the sums of a block of (rows, columns, steps of k), stored row by row."""
    numbers = [lhs.at, lhs.stride, rhs.at, rhs.stride, *size, to.at, to.stride, to.add]
    if not lhs.is_packed:
        numbers.append(lhs.row)
    functions.call(_MacroKernel(tile, in_place=not lhs.is_packed), [lhs.buffer, rhs.buffer, to.buffer], numbers)


@dataclass(frozen=True)
class _MacroKernel(SharedFunction):
    rolled = True
    tile: RegisterTile
    in_place: bool

    @property
    def name(self) -> str:
        return f"stablexla_sum_block_{self.tile.rows}x{self.tile.vectors}{'_in_place' * self.in_place}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        a, b, out = buffers
        a_at, a_stride, b_at, b_stride, rows, columns, steps, at, stride, add, *more = numbers
        left = PackedOperand(a, a_at, a_stride, row=more[0] if self.in_place else 0)
        right = PackedOperand(b, b_at, b_stride)

        def one(left: PackedOperand, right: PackedOperand, row: Value, column: Value) -> None:
            target = SumsDestination(out, at + row * stride + column, stride, add)
            call_micro_kernel(functions, self.tile, left, right, steps, target, (rows - row, columns - column))

        macro_kernel_loops(self.tile, cg.lanes_of(a.element), left, right, (rows, columns, steps), one)


def macro_kernel_loops(
    tile: RegisterTile,
    lanes: int,
    lhs: PackedOperand,
    rhs: PackedOperand,
    size: tuple[Index, Index, Index],
    one: Callable[[PackedOperand, PackedOperand, Value, Value], None],
) -> None:
    """Emit the macro-kernel's loop nest over the register tiles of a block of `size` (rows, columns, steps of k).

    Args:
        one: emits a tile, given its panels, its first row and its first column in the block.
    """
    width = tile.vectors * lanes
    down, across = (cg.index(size[0]) + (tile.rows - 1)) // tile.rows, (cg.index(size[1]) + (width - 1)) // width
    ahead = (down + (width - 1)) // down
    with cg.loop(0, across) as j:
        panel = j.iv * rhs.stride + rhs.at
        with cg.loop(0, down) as i:
            # While a B panel is reused for all rows, the next one is prefetched.
            soon = panel + rhs.stride + i.iv * ahead * size[2]
            left, right = (
                PackedOperand(lhs.buffer, i.iv * lhs.stride + lhs.at, row=lhs.row),
                PackedOperand(rhs.buffer, panel, 0, (soon, ahead)),
            )
            one(left, right, i.iv * tile.rows, j.iv * width)


def pack_operand(
    functions: SharedFunctions,
    panels: PackedPanels,
    source: PackingSource,
    conversion: Conversion,
    to: PackedOperand,
) -> None:
    """Call the packing of a matrix into panels, converted by `conversion`; see `pack_panels`."""
    along = source.along_width, source.along_depth
    spec = packing_function(panels.width, along, conversion, ahead=source.ahead, deep=source.deep)
    numbers = [source.at, *along, source.width, source.depth, to.at, panels.depth]
    functions.call(spec, [source.buffer, to.buffer], numbers)


def packing_function(
    width: int, along: tuple[Index, Index], conversion: Conversion, *, ahead: bool, deep: bool
) -> SharedFunction:
    """Return the function that packs a matrix into panels of a width, as `pack_operand` calls it.

    Args:
        along: strides along the width and along k.
        ahead, deep: as of `PackingSource`.
    """
    contiguous = cg.known(along[0]) == 1, cg.known(along[1]) == 1
    return _PackPanels(width, contiguous, conversion, ahead, deep)


@dataclass(frozen=True)
class _PackPanels(SharedFunction):
    """Packing of a matrix, perhaps contiguous along the width or along k; the other fields are `PackingSource`'s."""

    rolled = True
    width: int
    contiguous: tuple[bool, bool]
    conversion: Conversion
    ahead: bool
    deep: bool

    @property
    def name(self) -> str:
        steps = "_".join(f"{step.name}_{step.type}" for step in self.conversion).replace(".", "_")
        flags = "_ahead" * self.ahead + "_deep" * self.deep
        return f"stablexla_pack_{self.width}{flags}_{''.join('n1'[one] for one in self.contiguous)}_{steps}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        matrix, packed = buffers
        at, *along, width, depth, base, depth_of_panels = numbers
        element = partial(convert, conversion=self.conversion, compute=packed.element)
        across, down = (1 if one else stride for one, stride in zip(self.contiguous, along, strict=True))
        source = PackingSource(matrix, at, across, down, width, depth, element, ahead=self.ahead, deep=self.deep)
        pack_panels(PackedPanels(self.width, depth_of_panels, cg.lanes_of(packed.element)), source, packed, base)
