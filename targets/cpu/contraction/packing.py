"""Operand packing: panels of a contraction's operands, which the register tiles read sequentially.

A panel holds `width` adjacent columns of rhs or rows of lhs for each step of k, one step after the other. Beyond the
matrix the edge is repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value

# (address, lanes, count) -> the elements there; with a `count`, only so many lanes are loaded.
ElementLoad = Callable[..., Value]
# Prefetch distance in rows, and bytes of a cache line.
PREFETCH_ROWS = 4
LINE = 64
# The largest in-register transpose whose side does not divide a panel's width.
SQUARE = 8


@dataclass(frozen=True)
class PackedPanels:
    """Shape of packed panels: `width` elements for each of `depth` steps of k."""

    width: int
    depth: Index
    lanes: int

    @property
    def stride(self) -> Index:
        """Stride between panels; stores of whole vectors may run over the end of a panel."""
        return self.depth * self.width + (self.lanes if self.width % self.lanes else 0)

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


@dataclass(frozen=True)
class PackingSource:
    """A matrix to pack.

    Attributes:
        load: loads its elements as accumulator type.
        buffer: its buffer.
        at: its offset there.
        along_width, along_depth: strides along the width and along k.
        width, depth: its size.
        ahead: whether lines along the width are prefetched.
        whole: whether the width, even if unknown, is a multiple of the panels'.
        deep: whether the depth, even if unknown, is at least the side of an in-register transpose.
    """

    load: ElementLoad
    buffer: Value
    at: Index
    along_width: Index
    along_depth: Index
    width: Index
    depth: Index
    ahead: bool = False
    whole: bool = False
    deep: bool = False


def pack_panels(panels: PackedPanels, source: PackingSource, buffer: Value, base: Index = 0) -> None:
    """Pack `source` into panels from `base` of `buffer` on."""
    count = (cg.index(source.width) + (panels.width - 1)) // panels.width
    if source.along_depth == 1 and source.along_width != 1:
        _pack_transposed(panels, source, buffer, base, count)
    elif source.along_width == 1:
        _pack_lines(panels, source, buffer, base, count)
    else:
        _pack_elements(panels, source, buffer, base, count, 0)


def _pack_lines(panels: PackedPanels, source: PackingSource, buffer: Value, base: Index, count: Value) -> None:
    """Pack a source contiguous along the panels' width: copy whole vectors, a line of all panels at a time."""
    lanes, width = panels.lanes, panels.width
    vectors = -(-width // lanes)
    size = cg.known(source.width)
    even = width % lanes == 0 and (source.whole or (size is not None and size % width == 0))
    # Panels of which whole vectors may be read.
    whole = count if even else cg.maximum(cg.index(source.width) - (vectors * lanes - width), 0) // width
    with cg.loop(0, source.depth) as k:
        line, row = k.iv * source.along_depth + source.at, k.iv * width + base
        with cg.loop(0, whole) as p:
            start, to = p.iv * width + line, p.iv * panels.stride + row
            if source.ahead:
                for v in range(0, width, LINE * 8 // cg.bits_of(source.buffer.type)):
                    cg.prefetch(source.buffer, start + (PREFETCH_ROWS * source.along_depth + v))
            for v in range(0, vectors * lanes, lanes):
                cg.store(source.load(start + v, lanes), buffer, to + v)
        if not even:
            # Columns beyond the edge repeat the last one: stale contents could be denormals, which are slow.
            with cg.loop(whole * width, count * width) as w:
                to = w.iv // width * panels.stride + w.iv % width
                cg.store(source.load(line + cg.minimum(w.iv, cg.index(source.width) - 1)), buffer, to + row)


def _pack_transposed(panels: PackedPanels, source: PackingSource, buffer: Value, base: Index, count: Value) -> None:
    """Pack a source contiguous along k, by in-register transposes."""
    width = panels.width
    side = panels.square
    size = cg.known(source.depth)
    deep = source.deep or (size is not None and size >= side)
    whole = cg.index(source.depth) if deep else cg.index(source.depth) // side * side
    last = cg.index(source.width) - 1

    def copy(panel: Value, first: Index, lines: int) -> None:
        """Transpose squares of some lines of a panel from line `first` on; the last square is padded by repetition."""
        to = panel * panels.stride + base + first
        # Lines beyond the edge are clamped to the last one: their sums are not used.
        starts = [cg.minimum(panel * width + first + r, last) * source.along_width + source.at for r in range(lines)]
        with cg.loop(0, whole, side) as turn:
            # The last squares overlap where the depth is no multiple of the side.
            k = cg.minimum(turn.iv, whole - side) if deep and (size is None or size % side) else turn.iv
            rows = [source.load(start + k, side) for start in starts]
            rows += rows[-1:] * (-lines % side)
            squares = [cg.transpose_registers(rows[r : r + side]) for r in range(0, len(rows), side)]
            # Where a store overruns its step, the next step's stores overwrite it.
            for step, parts in enumerate(zip(*squares, strict=True)):
                for n, value in enumerate(parts):
                    cg.store(value, buffer, (k + step) * width + to + n * side)

    with cg.loop(0, count) as p:
        if width % side:
            copy(p.iv, 0, width)
        else:
            with cg.loop(0, width, side) as group:
                copy(p.iv, group.iv, side)
    if not deep:
        _pack_elements(panels, source, buffer, base, count, whole)


def _pack_elements(
    panels: PackedPanels, source: PackingSource, buffer: Value, base: Index, count: Value, first: Index
) -> None:
    """Pack element by element, from step `first` of k on."""
    last = cg.index(source.width) - 1
    with cg.loop(0, count) as p:
        to = p.iv * panels.stride + base
        with cg.loop(0, panels.width) as w:
            line = cg.minimum(p.iv * panels.width + w.iv, last) * source.along_width + source.at
            with cg.loop(first, source.depth) as k:
                value = source.load(line + k.iv * source.along_depth)
                cg.store(value, buffer, k.iv * panels.width + to + w.iv)
