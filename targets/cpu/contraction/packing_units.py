"""Operand packing for instructions that take a group of adjacent elements along k (VNNI, AMX; see `products`).

A group fills one 32-bit lane. rhs becomes panels of `width` columns, group after group; lhs becomes lines of groups.
Beyond k is zero padding, beyond the matrix in the other direction garbage.
"""

from __future__ import annotations

from dataclasses import dataclass

import mlir.ir as ir
from mlir.dialects import vector

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
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
        return (cg.index(group) * self.along_group + cg.index(other) * self.along_other) * self.group + self.base

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
    panels = (cg.index(source.count) + (width - 1)) // width
    whole = cg.index(source.steps) // to.group
    if source.along_other == 1:
        _weave_lines(source, to, width, stride, lanes, whole, panels)
        first = whole * to.group
    else:
        squares = cg.index(0)
        if source.along_k == 1:
            squares = whole // lanes * lanes
            with cg.loop(0, panels) as p:
                last = cg.index(source.count) - 1
                with cg.loop(0, width, lanes) as w:
                    lines = [cg.minimum(p.iv * width + w.iv + r, last) * source.along_other for r in range(lanes)]
                    _transpose_lines(source, lines, to, p.iv * stride, w.iv, lanes, squares)
        first = squares * to.group
    with cg.loop(0, panels) as p:
        _pack_elements(source, to, p.iv * stride, (p.iv * width, 0), width, (first, source.steps))
        _pad(source, to, p.iv * stride, width, padded)


def pack_unit_lines(source: UnitSource, to: UnitLayout, lanes: int, padded: Index) -> None:
    """Pack lhs into lines, zero-padded to `padded` groups."""
    whole = cg.index(source.steps) // to.group
    count = cg.index(source.count)
    first = whole // lanes * lanes
    if source.along_k == 1:
        with cg.loop(0, count) as line, cg.loop(0, first, lanes) as g:
            at = g.iv * to.group + line.iv * source.along_other + source.at
            cg.store(source.widen(cg.load(source.buffer, at, lanes * to.group)), to.buffer, to.at(g.iv, line.iv))
    elif source.along_other == 1:
        rows = count // lanes * lanes
        with cg.loop(0, rows, lanes) as r, cg.loop(0, first, lanes) as g:
            _transpose_groups(source, to, g.iv, r.iv, lanes)
        _pack_elements(source, to, 0, (rows, rows), count - rows, (0, first * to.group))
    else:
        first = cg.index(0)
    _pack_elements(source, to, 0, (0, 0), count, (first * to.group, source.steps))
    _pad(source, to, 0, count, padded)


def _weave_lines(
    source: UnitSource, to: UnitLayout, width: int, stride: int, lanes: int, whole: Value, panels: Value
) -> None:
    """Pack a source contiguous along the panels' width: `group` lines are interleaved into one.

    Panels that share cache lines are packed together: rows a power of two apart would conflict in the cache.
    """
    chunk = max(1, LINE * 8 // cg.bits_of(source.buffer.type) // width)

    def copy(panel: Value, count: int, groups: tuple[Index, Index]) -> None:
        start = panel * width + source.at
        with cg.loop(*groups) as g:
            lines = [(g.iv * to.group + u) * source.along_k + start for u in range(to.group)]
            for line in lines:
                cg.prefetch(source.buffer, line + STEPS * to.group * source.along_k)
            for v in range(0, count * width, lanes):
                units = source.widen(interleave_lanes([cg.load(source.buffer, line + v, lanes) for line in lines]))
                cg.store(units, to.buffer, to.at(g.iv, v % width) + (panel + v // width) * stride)

    def copy_some(panel: Value, groups: tuple[Index, Index]) -> None:
        rest = cg.minimum(cg.index(source.count) - panel * width, width)
        start = panel * width + source.at
        with cg.loop(groups[0] * to.group, groups[1] * to.group) as k, cg.loop(0, rest) as w:
            value = cg.load(source.buffer, k.iv * source.along_k + start + w.iv)
            cg.store(source.widen(value), to.buffer, to.unit(k.iv, w.iv) + panel * stride)

    size = cg.known(source.count)
    full = cg.index(source.count) // width
    chunks = full // chunk * chunk
    with cg.loop(0, whole, STEPS) as block:
        groups = (block.iv, cg.minimum(block.iv + STEPS, whole))
        with cg.loop(0, chunks, chunk) as p:
            copy(p.iv, chunk, groups)
        if chunk > 1 and (cg.known(chunks) is None or cg.known(chunks) != cg.known(full)):
            with cg.loop(chunks, full) as p:
                copy(p.iv, 1, groups)
        if size is None or size % width:
            with cg.loop(full, panels) as p:
                copy_some(p.iv, groups)


def _transpose_lines(
    source: UnitSource, lines: list[Value], to: UnitLayout, start: Value, other: Value, lanes: int, groups: Value
) -> None:
    """Pack squares of groups from lines along k, by in-register transposes."""
    with cg.loop(0, groups, lanes) as g:
        at = g.iv * to.group + source.at
        square = [_lanes(source.widen(cg.load(source.buffer, line + at, lanes * to.group)), lanes) for line in lines]
        for number, column in enumerate(cg.transpose_registers(square)):
            cg.store(_units(column, to.buffer), to.buffer, to.at(g.iv + number, other) + start)


def _transpose_groups(source: UnitSource, to: UnitLayout, group: Value, row: Value, lanes: int) -> None:
    """Pack a square of groups from lines along lhs's rows, by an in-register transpose."""
    square = []
    for number in range(lanes):
        step = (group + number) * to.group
        lines = [(step + u) * source.along_k + row + source.at for u in range(to.group)]
        square.append(
            _lanes(source.widen(interleave_lanes([cg.load(source.buffer, line, lanes) for line in lines])), lanes)
        )
    for number, line in enumerate(cg.transpose_registers(square)):
        cg.store(_units(line, to.buffer), to.buffer, to.at(group, row + number))


def _lanes(units: Value, lanes: int) -> Value:
    """Bitcast units to 32-bit floats, which are shuffled as well as integers."""
    return Value(vector.bitcast(cg.vector_of(lanes, ir.F32Type.get()), units.ssa))


def _units(lanes: Value, buffer: Value) -> Value:
    count = lanes.lanes * LANE_BITS // cg.bits_of(buffer.type)
    return Value(vector.bitcast(cg.vector_of(count, buffer.element), lanes.ssa))


def _pack_elements(
    source: UnitSource,
    to: UnitLayout,
    start: Index,
    first: tuple[Index, Index],
    count: Index,
    steps: tuple[Index, Index],
) -> None:
    """Pack element by element: `count` rows or columns; the first has one number in the source and one in `to`."""
    if all(cg.known(step) is not None for step in steps) and cg.known(steps[0]) == cg.known(steps[1]):
        return
    last = cg.index(source.count) - 1
    with cg.loop(0, count) as w:
        line = cg.minimum(w.iv + first[0], last) * source.along_other + source.at
        with cg.loop(*steps) as k:
            value = source.widen(cg.load(source.buffer, k.iv * source.along_k + line))
            cg.store(value, to.buffer, to.unit(k.iv, w.iv + first[1]) + start)


def _pad(source: UnitSource, to: UnitLayout, start: Index, count: Index, padded: Index) -> None:
    steps, groups = cg.known(source.steps), cg.known(padded)
    if steps is not None and groups is not None and steps == groups * to.group:
        return
    zero = cg.constant(0, to.buffer.element)
    with cg.loop(0, count) as w, cg.loop(source.steps, cg.index(padded) * to.group) as k:
        cg.store(zero, to.buffer, to.unit(k.iv, w.iv) + start)
