"""Operand packing for instructions that take a group of adjacent elements along k (VNNI, AMX; see `products`).

A group fills one 32-bit lane. rhs becomes panels of `width` columns, group after group; lhs becomes lines of groups.
Beyond k is zero padding, beyond the matrix in the other direction garbage.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlir.ir as ir
from mlir.dialects import vector

from stablexla.targets.codegen.emission import (
    Index,
    Value,
    bits_of,
    constant,
    index,
    known,
    load,
    loop,
    minimum,
    prefetch,
    store,
    transpose_registers,
    vector_of,
)
from stablexla.targets.cpu.contraction.dot_instructions import LANE_BITS, Widen, interleave_lanes

# Groups of rows of the source read together, so that few pages (TLB entries) are in use; also the prefetch distance.
STEPS = 16
LINE = 64


@dataclass(frozen=True)
class UnitLayout:
    """Layout of packed units, from `base` on; `other` is the column of rhs or the row of lhs.

    Offset of a step's unit: `(step // group * along_group + other * along_other) * group + step % group`.
    """

    buffer: Value
    base: Index
    group: int
    along_group: int
    along_other: int

    def at(self, group: Index, other: Index) -> Value:
        """Emit the address of a group's first unit."""
        return (index(group) * self.along_group + index(other) * self.along_other) * self.group + self.base

    def unit(self, step: Value, other: Index) -> Value:
        """Emit the address of one unit."""
        return self.at(step // self.group, other) + step % self.group


@dataclass(frozen=True)
class UnitSource:
    """A matrix to pack: offset, steps of k, rows or columns, and the strides of both."""

    buffer: Value
    widen: Widen
    at: Index
    along_k: Index
    along_other: Index
    steps: Index
    count: Index


def pack_unit_panels(source: UnitSource, to: UnitLayout, width: int, stride: int, lanes: int, padded: Index) -> None:
    """Pack rhs into panels `stride` units apart, zero-padded to `padded` groups."""
    panels = (index(source.count) + (width - 1)) // width
    whole = index(source.steps) // to.group
    if source.along_other == 1:
        _weave_lines(source, to, width, stride, lanes, whole, panels)
        first = whole * to.group
    else:
        squares = index(0)
        if source.along_k == 1:
            squares = whole // lanes * lanes
            with loop(0, panels) as p:
                last = index(source.count) - 1
                with loop(0, width, lanes) as w:
                    lines = [minimum(p.iv * width + w.iv + r, last) * source.along_other for r in range(lanes)]
                    _transpose_lines(source, lines, to, p.iv * stride, w.iv, lanes, squares)
        first = squares * to.group
    with loop(0, panels) as p:
        _pack_elements(source, to, p.iv * stride, (p.iv * width, 0), width, (first, source.steps))
        _pad(source, to, p.iv * stride, width, padded)


def pack_unit_lines(source: UnitSource, to: UnitLayout, lanes: int, padded: Index) -> None:
    """Pack lhs into lines, zero-padded to `padded` groups."""
    whole = index(source.steps) // to.group
    count = index(source.count)
    first = whole // lanes * lanes
    if source.along_k == 1:
        with loop(0, count) as line, loop(0, first, lanes) as g:
            at = g.iv * to.group + line.iv * source.along_other + source.at
            store(source.widen(load(source.buffer, at, lanes * to.group)), to.buffer, to.at(g.iv, line.iv))
    elif source.along_other == 1:
        rows = count // lanes * lanes
        with loop(0, rows, lanes) as r, loop(0, first, lanes) as g:
            _transpose_groups(source, to, g.iv, r.iv, lanes)
        _pack_elements(source, to, 0, (rows, rows), count - rows, (0, first * to.group))
    else:
        first = index(0)
    _pack_elements(source, to, 0, (0, 0), count, (first * to.group, source.steps))
    _pad(source, to, 0, count, padded)


def _weave_lines(
    source: UnitSource, to: UnitLayout, width: int, stride: int, lanes: int, whole: Value, panels: Value
) -> None:
    """Pack a source contiguous along the panels' width: `group` lines are interleaved into one.

    Panels that share cache lines are packed together: rows a power of two apart would conflict in the cache.
    """
    chunk = max(1, LINE * 8 // bits_of(source.buffer.type) // width)

    def copy(panel: Value, count: int, groups: tuple[Index, Index]) -> None:
        start = panel * width + source.at
        with loop(*groups) as g:
            lines = [(g.iv * to.group + u) * source.along_k + start for u in range(to.group)]
            for line in lines:
                prefetch(source.buffer, line + STEPS * to.group * source.along_k)
            for v in range(0, count * width, lanes):
                units = source.widen(interleave_lanes([load(source.buffer, line + v, lanes) for line in lines]))
                store(units, to.buffer, to.at(g.iv, v % width) + (panel + v // width) * stride)

    def copy_some(panel: Value, groups: tuple[Index, Index]) -> None:
        rest = minimum(index(source.count) - panel * width, width)
        start = panel * width + source.at
        with loop(groups[0] * to.group, groups[1] * to.group) as k, loop(0, rest) as w:
            value = load(source.buffer, k.iv * source.along_k + start + w.iv)
            store(source.widen(value), to.buffer, to.unit(k.iv, w.iv) + panel * stride)

    size = known(source.count)
    full = index(source.count) // width
    chunks = full // chunk * chunk
    with loop(0, whole, STEPS) as block:
        groups = (block.iv, minimum(block.iv + STEPS, whole))
        with loop(0, chunks, chunk) as p:
            copy(p.iv, chunk, groups)
        if chunk > 1 and (known(chunks) is None or known(chunks) != known(full)):
            with loop(chunks, full) as p:
                copy(p.iv, 1, groups)
        if size is None or size % width:
            with loop(full, panels) as p:
                copy_some(p.iv, groups)


def _transpose_lines(
    source: UnitSource, lines: list[Value], to: UnitLayout, start: Value, other: Value, lanes: int, groups: Value
) -> None:
    """Pack squares of groups from lines along k, by in-register transposes."""
    with loop(0, groups, lanes) as g:
        at = g.iv * to.group + source.at
        square = [_lanes(source.widen(load(source.buffer, line + at, lanes * to.group)), lanes) for line in lines]
        for number, column in enumerate(transpose_registers(square)):
            store(_units(column, to.buffer), to.buffer, to.at(g.iv + number, other) + start)


def _transpose_groups(source: UnitSource, to: UnitLayout, group: Value, row: Value, lanes: int) -> None:
    """Pack a square of groups from lines along lhs's rows, by an in-register transpose."""
    square = []
    for number in range(lanes):
        step = (group + number) * to.group
        lines = [(step + u) * source.along_k + row + source.at for u in range(to.group)]
        square.append(
            _lanes(source.widen(interleave_lanes([load(source.buffer, line, lanes) for line in lines])), lanes)
        )
    for number, line in enumerate(transpose_registers(square)):
        store(_units(line, to.buffer), to.buffer, to.at(group, row + number))


def _lanes(units: Value, lanes: int) -> Value:
    """Bitcast units to 32-bit floats, which are shuffled as well as integers."""
    return Value(vector.bitcast(vector_of(lanes, ir.F32Type.get()), units.ssa))


def _units(lanes: Value, buffer: Value) -> Value:
    count = lanes.lanes * LANE_BITS // bits_of(buffer.type)
    return Value(vector.bitcast(vector_of(count, buffer.element), lanes.ssa))


def _pack_elements(
    source: UnitSource,
    to: UnitLayout,
    start: Index,
    first: tuple[Index, Index],
    count: Index,
    steps: tuple[Index, Index],
) -> None:
    """Pack element by element: `count` rows or columns; the first has one number in the source and one in `to`."""
    if all(known(step) is not None for step in steps) and known(steps[0]) == known(steps[1]):
        return
    last = index(source.count) - 1
    with loop(0, count) as w:
        line = minimum(w.iv + first[0], last) * source.along_other + source.at
        with loop(*steps) as k:
            value = source.widen(load(source.buffer, k.iv * source.along_k + line))
            store(value, to.buffer, to.unit(k.iv, w.iv + first[1]) + start)


def _pad(source: UnitSource, to: UnitLayout, start: Index, count: Index, padded: Index) -> None:
    steps, groups = known(source.steps), known(padded)
    if steps is not None and groups is not None and steps == groups * to.group:
        return
    zero = constant(0, to.buffer.element)
    with loop(0, count) as w, loop(source.steps, index(padded) * to.group) as k:
        store(zero, to.buffer, to.unit(k.iv, w.iv) + start)
