"""Packing of a contraction's factors into panels that the register tiles read in order.

A panel holds `width` neighbours of a matrix (columns of rhs, rows of lhs) for each step of k, one step after the other.
What goes beyond the matrix repeats what is at its edge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stablexla.targets.codegen.emission import (
    Index,
    Value,
    bits_of,
    index,
    known,
    loop,
    maximum,
    minimum,
    prefetch,
    store,
    transpose_registers,
)

# (address, lanes, count) -> the elements there; the first `count` lanes are read when it is given.
Load = Callable[..., Value]
# Rows ahead that are prefetched, and bytes of a cache line.
AHEAD = 4
LINE = 64
# A square of registers that does not divide a panel's width is at most so wide.
SQUARE = 8


@dataclass(frozen=True)
class Panels:
    """Shape of packed panels: `width` elements for each of `depth` steps of k."""

    width: int
    depth: Index
    lanes: int

    @property
    def stride(self) -> Index:
        """From one panel to the next; stores of whole vectors may run over the end of a panel."""
        return self.depth * self.width + (self.lanes if self.width % self.lanes else 0)

    @property
    def square(self) -> int:
        """The side of the squares that a matrix whose lines lie along k is transposed by."""
        side = self.lanes
        while side >= 2 * self.width or (self.width % side and side > SQUARE):
            side //= 2
        return side

    def size(self, count: int) -> int:
        """Elements of a buffer for `count` panels, whose depth is a number."""
        stride = known(self.stride)
        assert stride is not None
        return count * stride


@dataclass(frozen=True)
class Source:
    """A matrix to pack.

    Attributes:
        load: gives its elements in the type of the sums.
        buffer: where it lies.
        at: where it begins there.
        along_width, along_depth: how far a step of width and of k moves.
        width, depth: its size.
        ahead: whether lines along the width are prefetched.
        whole: whether the width, whatever it is, is one of whole panels.
        deep: whether the depth, whatever it is, is at least that of a square of registers.
    """

    load: Load
    buffer: Value
    at: Index
    along_width: Index
    along_depth: Index
    width: Index
    depth: Index
    ahead: bool = False
    whole: bool = False
    deep: bool = False


def pack_panels(panels: Panels, source: Source, buffer: Value, base: Index = 0) -> None:
    """Packs `source` into panels from `base` of `buffer` on."""
    count = (index(source.width) + (panels.width - 1)) // panels.width
    if source.along_depth == 1 and source.along_width != 1:
        _pack_transposed(panels, source, buffer, base, count)
    elif source.along_width == 1:
        _pack_lines(panels, source, buffer, base, count)
    else:
        _pack_elements(panels, source, buffer, base, count, 0)


def _pack_lines(panels: Panels, source: Source, buffer: Value, base: Index, count: Value) -> None:
    """The source's lines lie along the panels' width: whole vectors are copied, a line of all panels at a time."""
    lanes, width = panels.lanes, panels.width
    vectors = -(-width // lanes)
    size = known(source.width)
    even = width % lanes == 0 and (source.whole or (size is not None and size % width == 0))
    # Panels of which whole vectors may be read.
    whole = count if even else maximum(index(source.width) - (vectors * lanes - width), 0) // width
    with loop(0, source.depth) as k:
        line, row = k.iv * source.along_depth + source.at, k.iv * width + base
        with loop(0, whole) as p:
            start, to = p.iv * width + line, p.iv * panels.stride + row
            if source.ahead:
                for v in range(0, width, LINE * 8 // bits_of(source.buffer.type)):
                    prefetch(source.buffer, start + (AHEAD * source.along_depth + v))
            for v in range(0, vectors * lanes, lanes):
                store(source.load(start + v, lanes), buffer, to + v)
        if not even:
            # Columns beyond the edge repeat the last one: what lay there before could be numbers that are slow.
            with loop(whole * width, count * width) as w:
                to = w.iv // width * panels.stride + w.iv % width
                store(source.load(line + minimum(w.iv, index(source.width) - 1)), buffer, to + row)


def _pack_transposed(panels: Panels, source: Source, buffer: Value, base: Index, count: Value) -> None:
    """The source's lines lie along k: squares are transposed in registers."""
    width = panels.width
    side = panels.square
    size = known(source.depth)
    deep = source.deep or (size is not None and size >= side)
    whole = index(source.depth) if deep else index(source.depth) // side * side
    last = index(source.width) - 1

    def copy(panel: Value, first: Index, lines: int) -> None:
        """Squares of some lines of a panel from line `first` on; those to fill up the last square repeat a line."""
        to = panel * panels.stride + base + first
        # Lines beyond the edge repeat the last one: their sums are not used.
        starts = [minimum(panel * width + first + r, last) * source.along_width + source.at for r in range(lines)]
        with loop(0, whole, side) as turn:
            # The last squares begin earlier where steps are left over.
            k = minimum(turn.iv, whole - side) if deep and (size is None or size % side) else turn.iv
            rows = [source.load(start + k, side) for start in starts]
            rows += rows[-1:] * (-lines % side)
            squares = [transpose_registers(rows[r : r + side]) for r in range(0, len(rows), side)]
            # What a store writes beyond a step, the stores of the next step repair.
            for step, parts in enumerate(zip(*squares, strict=True)):
                for n, value in enumerate(parts):
                    store(value, buffer, (k + step) * width + to + n * side)

    with loop(0, count) as p:
        if width % side:
            copy(p.iv, 0, width)
        else:
            with loop(0, width, side) as group:
                copy(p.iv, group.iv, side)
    if not deep:
        _pack_elements(panels, source, buffer, base, count, whole)


def _pack_elements(panels: Panels, source: Source, buffer: Value, base: Index, count: Value, first: Index) -> None:
    """One element at a time, from step `first` of k on."""
    last = index(source.width) - 1
    with loop(0, count) as p:
        to = p.iv * panels.stride + base
        with loop(0, panels.width) as w:
            line = minimum(p.iv * panels.width + w.iv, last) * source.along_width + source.at
            with loop(first, source.depth) as k:
                value = source.load(line + k.iv * source.along_depth)
                store(value, buffer, k.iv * panels.width + to + w.iv)
