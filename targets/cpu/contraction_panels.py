"""Packing of a contraction's factors into panels that the register tiles read in order.

A panel holds `width` neighbours of a matrix (columns of rhs, rows of lhs) for each step of k, one step after the other.
What goes beyond the matrix is garbage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stablexla.targets.cpu.emission import (
    Index,
    Value,
    bits_of,
    branch,
    has_masks,
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
# Rows of the source read together, so that few pages are in use at a time.
STEPS = 32
# Rows ahead that are prefetched, and bytes of a cache line.
AHEAD = 16
LINE = 64


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
    """The source's lines lie along the panels' width: whole vectors are copied."""
    lanes = panels.lanes
    vectors = -(-panels.width // lanes)

    def copy(panel: Value, steps: tuple[Index, Index], rest: Value | None) -> None:
        start = panel * panels.width + source.at
        to = panel * panels.stride + base
        with loop(*steps) as k:
            line, row = k.iv * source.along_depth + start, k.iv * panels.width + to
            if source.ahead:
                for v in range(0, panels.width, LINE * 8 // bits_of(source.buffer.type)):
                    prefetch(source.buffer, line + (AHEAD * source.along_depth + v))
            if rest is not None and not has_masks(source.buffer.element):
                with loop(0, minimum(rest, panels.width)) as w:
                    store(source.load(line + w.iv), buffer, row + w.iv)
                return
            for v in range(0, vectors * lanes, lanes):
                value = source.load(line + v, lanes, None if rest is None else maximum(rest - v, 0))
                store(value, buffer, row + v)

    size = known(source.width)
    whole = (source.whole or (size is not None and size % panels.width == 0)) and panels.width % lanes == 0
    with loop(0, source.depth, STEPS) as block:
        steps = (block.iv, minimum(block.iv + STEPS, source.depth))
        with loop(0, count) as p:
            if whole:
                copy(p.iv, steps, None)
                return
            rest = index(source.width) - p.iv * panels.width
            choice = branch(rest.ge(vectors * lanes))
            with choice.then:
                copy(p.iv, steps, None)
            with choice.otherwise:
                copy(p.iv, steps, rest)


def _pack_transposed(panels: Panels, source: Source, buffer: Value, base: Index, count: Value) -> None:
    """The source's lines lie along k: squares are transposed in registers."""
    width = panels.width
    side = panels.lanes
    while side >= 2 * width or (width % side and side > 8):
        side //= 2
    whole = index(source.depth) // side * side
    last = index(source.width) - 1

    def copy(panel: Value, first: Index, lines: int) -> None:
        """Squares of some lines of a panel from line `first` on; those to fill up the last square repeat a line."""
        to = panel * panels.stride + base + first
        # Lines beyond the edge repeat the last one: their sums are not used.
        starts = [minimum(panel * width + first + r, last) * source.along_width + source.at for r in range(lines)]
        with loop(0, whole, side) as k:
            rows = [source.load(start + k.iv, side) for start in starts]
            rows += rows[-1:] * (-lines % side)
            squares = [transpose_registers(rows[r : r + side]) for r in range(0, len(rows), side)]
            # What a store writes beyond a step, the stores of the next step repair.
            for step, parts in enumerate(zip(*squares, strict=True)):
                for n, value in enumerate(parts):
                    store(value, buffer, (k.iv + step) * width + to + n * side)

    with loop(0, count) as p:
        if width % side:
            copy(p.iv, 0, width)
        else:
            with loop(0, width, side) as group:
                copy(p.iv, group.iv, side)
    size = known(source.depth)
    if size is None or size % side:
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
