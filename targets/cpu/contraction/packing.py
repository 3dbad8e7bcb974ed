"""Operand packing: panels of a contraction's operands, which the register tiles read sequentially.

A panel holds `width` adjacent columns of rhs or rows of lhs for each group of steps of k, one group after the other. A
group is one step for plain multiply-add; for dot-product instructions (VNNI, AMX) it is the steps that fill a 32-bit
lane, or 64 bits. Beyond the matrix the edge is repeated.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import vector

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.cpu.contraction.dot_instructions import LANE_BITS, Widen, interleave_lanes

# Prefetch distance in groups of rows, and bytes of a cache line.
PREFETCH_ROWS = 4
LINE = 64
# The largest in-register transpose whose side does not divide a panel's width.
SQUARE = 8


@dataclass(frozen=True)
class PackedPanels:
    """Shape of packed panels: `width` elements for each of `depth` steps of k.

    Attributes:
        lanes: columns of a vector.
        group: steps of k that are adjacent, for each column, in a panel; `depth` is a multiple of it.
    """

    width: int
    depth: Index
    lanes: int
    group: int = 1

    @property
    def stride(self) -> Index:
        """Stride between panels; stores of whole vectors may run over the end of a panel, but not of a line."""
        overrun = self.width > 1 and self.width % self.lanes
        return self.depth * self.width + (self.lanes if overrun else 0)

    @property
    def square(self) -> int:
        """The side of the in-register transposes for a matrix contiguous along k."""
        side = self.lanes
        while side >= 2 * self.width or (self.width % side and side > SQUARE):
            side //= 2
        return side

    def size(self, count: int) -> int:
        """Return the elements of a buffer for `count` panels, whose depth is a constant."""
        stride = cg.known(self.stride)
        assert stride is not None
        return count * stride

    def step(self, k: Value) -> Value:
        """Emit the offset of a step of k in a panel."""
        return k // self.group * (self.width * self.group) + k % self.group


@dataclass(frozen=True)
class PackingSource:
    """A matrix to pack.

    Attributes:
        buffer: its buffer.
        at: its offset there.
        along_width, along_depth: strides along the width and along k.
        width, depth: its size.
        convert: converts its elements to packed ones.
        ahead: whether lines along the width are prefetched.
        whole: whether the width, even if unknown, is a multiple of the panels'.
        deep: whether the depth, even if unknown, is at least the side of an in-register transpose.
    """

    buffer: Value
    at: Index
    along_width: Index
    along_depth: Index
    width: Index
    depth: Index
    convert: Widen = lambda value: value
    ahead: bool = False
    whole: bool = False
    deep: bool = False

    def load(self, at: Index, lanes: int = 0) -> Value:
        """Load contiguous elements, converted."""
        return self.interleaved([at], lanes)

    def interleaved(self, starts: Sequence[Index], lanes: int) -> Value:
        """Load `lanes` elements from each of these addresses, interleave and convert them."""
        return self.convert(interleave_lanes([cg.load(self.buffer, at, lanes) for at in starts]))


def pack_panels(
    panels: PackedPanels, source: PackingSource, buffer: Value, base: Index = 0, padded: Index | None = None
) -> None:
    """Pack `source` into panels from `base` of `buffer` on; with `padded`, zero-pad to so many steps of k."""
    count = (cg.index(source.width) + (panels.width - 1)) // panels.width
    first: Index = 0
    if source.along_depth == 1 and source.along_width != 1:
        first = _pack_transposed(panels, source, buffer, base, count)
    elif source.along_width == 1:
        first = _pack_rows(panels, source, buffer, base, count)
    _pack_elements(panels, source, buffer, base, (0, count), (first, source.depth), padded)


def pack_lines(panels: PackedPanels, source: PackingSource, buffer: Value, padded: Index, base: Index = 0) -> None:
    """Pack `source` into panels of width 1 from `base` on, lines along k, zero-padded to `padded` steps of k."""
    lanes, group, count = panels.lanes, panels.group, cg.index(source.width)
    first = cg.index(source.depth) // (lanes * group) * (lanes * group)
    if source.along_depth == 1:
        with cg.loop(0, count) as line, cg.loop(0, first, lanes * group) as k:
            value = source.load(line.iv * source.along_width + k.iv + source.at, lanes * group)
            cg.store(value, buffer, line.iv * panels.stride + k.iv + base)
    elif source.along_width == 1:
        whole = count // lanes * lanes
        with cg.loop(0, whole, lanes) as line, cg.loop(0, first, lanes * group) as k:
            _transpose_groups(panels, source, buffer, line.iv, k.iv, base)
        _pack_elements(panels, source, buffer, base, (whole, count), (0, first))
    else:
        first = cg.index(0)
    _pack_elements(panels, source, buffer, base, (0, count), (first, source.depth), padded)


def _pack_rows(panels: PackedPanels, source: PackingSource, buffer: Value, base: Index, count: Value) -> Index:
    """Pack a source contiguous along the panels' width: whole vectors of a group's rows, of all panels at a time.

    Returns the number of steps of k packed.
    """
    lanes, width, group = panels.lanes, panels.width, panels.group
    vectors = -(-width // lanes)
    size = cg.known(source.width)
    even = width % lanes == 0 and (source.whole or (size is not None and size % width == 0))
    # Panels of which whole vectors may be read.
    whole = count if even else cg.maximum(cg.index(source.width) - (vectors * lanes - width), 0) // width
    groups = cg.index(source.depth) // group
    with cg.loop(0, groups) as g:
        lines = [(g.iv * group + u) * source.along_depth + source.at for u in range(group)]
        row = g.iv * (width * group) + base
        with cg.loop(0, whole) as p:
            starts, to = [p.iv * width + line for line in lines], p.iv * panels.stride + row
            if source.ahead:
                for v in range(0, width, LINE * 8 // cg.bits_of(source.buffer.type)):
                    for start in starts:
                        cg.prefetch(source.buffer, start + (PREFETCH_ROWS * group * source.along_depth + v))
            for v in range(0, vectors * lanes, lanes):
                cg.store(source.interleaved([start + v for start in starts], lanes), buffer, to + v * group)
        if not even:
            edge, to = whole * width, whole * panels.stride + row
            if width % lanes == 0:
                # Of the last panel, the vectors inside of the matrix.
                inside = cg.index(source.width) // lanes * lanes
                with cg.loop(edge, inside, lanes) as w:
                    vector_ = source.interleaved([w.iv + line for line in lines], lanes)
                    cg.store(vector_, buffer, to + (w.iv - edge) * group)
                edge = inside
            # Columns beyond the edge repeat the last one: stale contents could be denormals, which are slow.
            with cg.loop(edge, count * width) as w:
                to = w.iv // width * panels.stride + w.iv % width * group
                for u, line in enumerate(lines):
                    cg.store(source.load(line + cg.minimum(w.iv, cg.index(source.width) - 1)), buffer, to + row + u)
    return source.depth if group == 1 else groups * group


def _pack_transposed(panels: PackedPanels, source: PackingSource, buffer: Value, base: Index, count: Value) -> Index:
    """Pack a source contiguous along k, by in-register transposes; return the number of steps of k packed."""
    width, group = panels.width, panels.group
    side = panels.square
    groups = cg.index(source.depth) // group
    size = cg.known(groups)
    deep = source.deep or (size is not None and size >= side)
    whole = groups if deep else groups // side * side
    last = cg.index(source.width) - 1

    def copy(panel: Value, first: Index, lines: int) -> None:
        """Transpose squares of some lines of a panel from line `first` on; the last square is padded by repetition."""
        to = panel * panels.stride + base + first * group
        # Lines beyond the edge are clamped to the last one: their sums are not used.
        starts = [cg.minimum(panel * width + first + r, last) * source.along_width + source.at for r in range(lines)]
        with cg.loop(0, whole, side) as square:
            # The last squares overlap where the depth is no multiple of the side.
            g = cg.minimum(square.iv, whole - side) if deep and (size is None or size % side) else square.iv
            rows = [_as_lanes(panels, source.load(start + g * group, side * group)) for start in starts]
            rows += rows[-1:] * (-lines % side)
            squares = [cg.transpose_registers(rows[r : r + side]) for r in range(0, len(rows), side)]
            # Where a store overruns its step, the next step's stores overwrite it.
            for step, parts in enumerate(zip(*squares, strict=True)):
                for n, value in enumerate(parts):
                    place = (g + step) * (width * group) + to + n * (side * group)
                    cg.store(_as_units(panels, value, buffer), buffer, place)

    with cg.loop(0, count) as p:
        if width % side:
            copy(p.iv, 0, width)
        else:
            with cg.loop(0, width, side) as square:
                copy(p.iv, square.iv, side)
    return source.depth if deep and group == 1 else whole * group


def _transpose_groups(
    panels: PackedPanels, source: PackingSource, buffer: Value, line: Value, k: Value, base: Index
) -> None:
    """Pack a square of groups into lines, from rows along the width, by an in-register transpose."""
    group, square = panels.group, []
    for step in range(0, panels.lanes * group, group):
        rows = [(k + (step + u)) * source.along_depth + line + source.at for u in range(group)]
        square.append(_as_lanes(panels, source.interleaved(rows, panels.lanes)))
    for number, value in enumerate(cg.transpose_registers(square)):
        cg.store(_as_units(panels, value, buffer), buffer, (line + number) * panels.stride + k + base)


def _as_lanes(panels: PackedPanels, units: Value) -> Value:
    """Bitcast groups to floats of their size, which are shuffled as well as integers."""
    if panels.group == 1:
        return units
    size = panels.group * cg.bits_of(units.element)
    lane = ir.F32Type.get() if size == LANE_BITS else ir.F64Type.get()
    return Value(vector.bitcast(cg.vector_of(units.lanes // panels.group, lane), units.ssa))


def _as_units(panels: PackedPanels, lanes: Value, buffer: Value) -> Value:
    if panels.group == 1:
        return lanes
    return Value(vector.bitcast(cg.vector_of(lanes.lanes * panels.group, buffer.element), lanes.ssa))


def _pack_elements(
    panels: PackedPanels,
    source: PackingSource,
    buffer: Value,
    base: Index,
    numbers: tuple[Index, Index],
    steps: tuple[Index, Index],
    padded: Index | None = None,
) -> None:
    """Pack element by element the panels and the steps of k in these ranges, then zeros up to step `padded`."""
    end = steps[1] if padded is None else padded
    if _same(steps[0], steps[1]) and _same(steps[1], end):
        return
    last = cg.index(source.width) - 1
    with cg.loop(*numbers) as p:
        to = p.iv * panels.stride + base
        with cg.loop(0, panels.width) as w:
            line = cg.minimum(p.iv * panels.width + w.iv, last) * source.along_width + source.at
            with cg.loop(*steps) as k:
                value = source.load(line + k.iv * source.along_depth)
                cg.store(value, buffer, panels.step(k.iv) + to + w.iv * panels.group)
            if padded is not None:
                with cg.loop(steps[1], padded) as k:
                    zero = cg.constant(0, buffer.element)
                    cg.store(zero, buffer, panels.step(k.iv) + to + w.iv * panels.group)


def _same(a: Index, b: Index) -> bool:
    return a is b or (cg.known(a) is not None and cg.known(a) == cg.known(b))
