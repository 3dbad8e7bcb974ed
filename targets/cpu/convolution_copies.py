"""Packing of a convolution's operands by functions that all convolutions share: rows of lhs with borders, weights.

Stores of whole vectors may run on into what is packed next, or into slack at the end of a buffer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.targets.cpu.contraction_match import Operand
from stablexla.targets.cpu.contraction_output import Scene
from stablexla.targets.cpu.contraction_panels import Load, Panels, Source, pack_panels
from stablexla.targets.cpu.contraction_units import Matrix, Place
from stablexla.targets.cpu.contraction_units import pack_panels as pack_groups
from stablexla.targets.cpu.convolution_units import Units
from stablexla.targets.cpu.emission import (
    Index,
    Value,
    branch,
    constant,
    index,
    lanes_of,
    load,
    load_lanes,
    loop,
    maximum,
    minimum,
    replay,
    store,
    transpose_registers,
    vector_of,
)
from stablexla.targets.cpu.products import Widen
from stablexla.targets.cpu.shared import Shared


@dataclass(frozen=True)
class Factor:
    """A factor in memory, and what it is packed as.

    `widen` makes that of elements which are multiplied in groups.
    """

    operand: Operand
    units: Units
    buffer: Value
    widen: Widen | None

    @classmethod
    def of(cls, scene: Scene, units: Units, *, lhs: bool) -> Factor:
        """One of the two factors of a contraction."""
        operand = scene.contraction.a if lhs else scene.contraction.b
        return cls(operand, units, scene.inputs[operand.number], units.widen(lhs=lhs))

    @property
    def packed(self) -> ir.Type:
        """The type of packed elements."""
        return self.units.type

    @property
    def name(self) -> str:
        """What tells this conversion from others."""
        steps = [f"{op.name.split('.')[-1]}_{op.results[0].type}" for op in self.operand.conversion]
        return "_".join([*steps, self.units.name])

    def loads(self, buffer: Value) -> Load:
        """Reads elements from `buffer` in the type that they are packed in."""

        def read(at: Index, lanes: int = 0, count: Index | None = None) -> Value:
            value = load(buffer, at, lanes) if count is None else load_lanes(buffer, at, lanes, count)
            if self.widen is not None:
                return self.widen(value)
            for operation in self.operand.conversion:
                (value,) = replay(operation, [value], lanes)
            if value.element != self.packed:
                value = Value(arith.extsi(vector_of(lanes, self.packed), value.ssa))
            return value

        return read


@dataclass(frozen=True)
class Rows:
    """Rows of lhs to pack: where they lie, and which of them and of their elements there are.

    Attributes:
        at: where the first row that is packed has, or would have, its first element that is there.
        stride: from row to row in memory.
        count: rows that are packed.
        inside: the first of them that is there, and the one behind the last.
        before, elements, after: elements of a packed row before those that are there, these, and behind them.
        step: from element to element in memory.
        features: values of an element.
        width: values that a packed element takes; those beyond its features are zeros.
        along: from one to the next in memory.
    """

    at: Index
    stride: Index
    count: Index
    inside: tuple[Index, Index]
    before: Index
    elements: Index
    after: Index
    step: int
    features: int
    width: int
    along: int

    def kind(self, units: Units) -> str:
        """How they are read: runs of neighbours, squares of features and elements, or one by one, perhaps padded."""
        if self.width != self.features:
            return "padded"
        if self.along == 1 or self.features == 1:
            return "runs"
        return "squares" if self.step == 1 and units.group == 1 else "elements"


def inside(start: Index, count: Index, step: int, size: int) -> tuple[Value, Value]:
    """Of `count` places, `step` apart from `start` on, the first that is in [0, size), and the one behind the last."""
    first = minimum((maximum(index(0) - start, 0) + (step - 1)) // step, count)
    end = minimum((maximum(index(size) - start, 0) + (step - 1)) // step, count)
    return first, maximum(first, end)


def copy_rows(shared: Shared, factor: Factor, rows: Rows, buffer: Value, to: Index) -> None:
    """Packs rows to `to` of the buffer, elements beside each other, with zeros for those that are not there."""
    features: Index = rows.features
    elements, step, kind = rows.elements, rows.step, rows.kind(factor.units)
    if kind == "runs" and step == features:
        # Elements that lie side by side are one run.
        elements, step, features = 1, 0, index(elements) * features
    numbers: list[Index] = [rows.at, rows.stride, rows.count, *rows.inside]
    numbers += [index(n) * rows.width for n in (rows.before, rows.after)]
    numbers += [index(rows.elements) * rows.width, elements, step, features, rows.along, to]

    def write(buffers: list[Value], given: list[Value]) -> None:
        source, out = buffers
        at, stride, count, first, end, before, after, size, elements, step, features, along, to = given
        read, lanes = factor.loads(source), lanes_of(factor.packed)
        line = before + size + after

        def copy(at: Value, to: Value) -> None:
            if kind == "padded":
                width = features + 1
                with loop(0, elements) as i:
                    with loop(0, features) as f:
                        store(read(i.iv * step + f.iv * along + at), out, i.iv * width + to + f.iv)
                    store(constant(0, out.element), out, i.iv * width + to + features)
            elif kind == "runs":
                with loop(0, elements) as i:
                    _copy_run(read, i.iv * step + at, out, i.iv * features + to, features, lanes)
            else:
                whole = index(0)
                if kind == "squares":
                    whole = _copy_squares(read, (at, along), out, to, (elements, features), lanes)
                with loop(whole, features) as f, loop(0, elements) as i:
                    store(read(i.iv * step + f.iv * along + at), out, i.iv * features + to + f.iv)

        with loop(0, count) as r:
            start = r.iv * line + to
            there = branch(r.iv.ge(first) & r.iv.lt(end))
            with there.then:
                _fill(out, start, start + before, lanes)
                copy(r.iv * stride + at, start + before)
                _fill(out, start + before + size, start + line, lanes)
            with there.otherwise:
                _fill(out, start, start + line, lanes)

    shared.call(f"stablexla_copy_{kind}_{factor.name}", [factor.buffer, buffer], numbers, write)


def _fill(buffer: Value, start: Value, end: Value, lanes: int) -> None:
    with loop(start, end, lanes) as at:
        store(constant(0, vector_of(lanes, buffer.element)), buffer, at.iv)


def _copy_run(read: Load, at: Value, buffer: Value, to: Value, count: Value, lanes: int) -> None:
    """Neighbours that stay neighbours; the last vector begins earlier where it would not be full."""
    enough = branch(count.ge(lanes))
    with enough.then, loop(0, count, lanes) as i:
        place = minimum(i.iv, count - lanes)
        store(read(at + place, lanes), buffer, to + place)
    with enough.otherwise, loop(0, count) as i:
        store(read(at + i.iv), buffer, to + i.iv)


def _copy_squares(
    read: Load, source: tuple[Value, Value], buffer: Value, to: Value, size: tuple[Value, Value], lanes: int
) -> Value:
    """Features lie far apart, and elements side by side: squares are transposed in registers.

    The last square begins earlier where elements are left over. Answers how many features are done.
    """
    (at, along), (elements, features) = source, size
    done = branch(elements.ge(lanes), [index(0).ssa.type])
    with done.then:
        whole = features // lanes * lanes
        with loop(0, whole, lanes) as f, loop(0, elements, lanes) as i:
            first = minimum(i.iv, elements - lanes)
            lines = [read((f.iv + r) * along + at + first, lanes) for r in range(lanes)]
            for r, value in enumerate(transpose_registers(lines)):
                store(value, buffer, (first + r) * features + to + f.iv)
        done.yields(whole)
    with done.otherwise:
        done.yields(index(0))
    return done.results[0]


# --- weights ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Panel:
    """A panel of weights to pack, as [window][input features][width].

    Attributes:
        at: where it begins in memory.
        columns: its output features, at most `width`.
        features: input features.
        slots: elements that they take when they are packed.
        taps: extent and stride of each dimension of the window.
        along_outputs, along_inputs: strides.
    """

    at: Index
    columns: Index
    width: int
    features: int
    slots: int
    taps: tuple[tuple[int, int], ...]
    along_outputs: int
    along_inputs: int

    @property
    def nest(self) -> list[tuple[int, int]]:
        """The window's dimensions with those put together that follow one another in memory."""
        made: list[tuple[int, int]] = []
        for extent, stride in (t for t in self.taps if t[0] > 1):
            if made and made[-1][1] == extent * stride:
                made[-1] = (made[-1][0] * extent, stride)
            else:
                made.append((extent, stride))
        return made


def copy_panel(shared: Shared, factor: Factor, panel: Panel, buffer: Value, to: Index) -> None:
    """Packs a panel to `to` of the buffer."""
    p, nest, features, slots = panel, panel.nest, panel.features, panel.slots
    lines = features * (nest[0][0] if nest else 1)
    dense = len(nest) <= 1 and (not nest or nest[0][1] == 1) and p.along_inputs == lines // features
    if dense and p.along_outputs != 1 and lines >= lanes_of(factor.packed) and factor.units.group == 1:
        _copy_window_lines(shared, factor, panel, buffer, to)
        return
    if len(nest) == 1 and nest[0][1] == features * p.along_inputs and slots == features:
        slots = features = features * nest[0][0]
        nest = []
    inner = nest.pop() if nest else (1, 0)
    kind = "lines" if p.along_outputs == 1 else "squares" if p.along_inputs == 1 else "elements"

    def write(buffers: list[Value], given: list[Value]) -> None:
        source, out = buffers
        at, columns, features, slots, taps, stride, along_outputs, along_inputs, to = given
        along = 1 if kind == "lines" else along_outputs, 1 if kind == "squares" else along_inputs
        with loop(0, taps) as tap:
            matrix = _Matrix(source, tap.iv * stride + at, along, (columns, features))
            _pack_matrix(factor, matrix, p.width, out, tap.iv * slots * p.width + to, slots)

    name = f"stablexla_pack_{kind}_{p.width}_{factor.name}"

    def each(dimensions: Sequence[tuple[int, int]], at: Index, to: Index, size: int) -> None:
        if not dimensions:
            numbers = [at, p.columns, features, slots, *inner, p.along_outputs, p.along_inputs, to]
            shared.call(name, [factor.buffer, buffer], numbers, write)
            return
        (extent, stride), *rest = dimensions
        size //= extent
        with loop(0, extent) as x:
            each(rest, x.iv * stride + at, x.iv * (size * slots * p.width) + to, size)

    size = inner[0]
    for extent, _ in nest:
        size *= extent
    each(nest, p.at, to, size)


@dataclass(frozen=True)
class _Matrix:
    """Weights of one element of the window: where they begin, and strides and counts of columns and of features."""

    buffer: Value
    at: Index
    along: tuple[Index, Index]
    count: tuple[Index, Index]


def _pack_matrix(factor: Factor, m: _Matrix, width: int, buffer: Value, to: Index, slots: Value) -> None:
    lanes, group = lanes_of(factor.units.sums), factor.units.group
    if factor.widen is None:
        place = Source(factor.loads(m.buffer), m.buffer, m.at, *m.along, *m.count)
        pack_panels(Panels(width, 0, lanes), place, buffer, to)
        return
    matrix = Matrix(m.buffer, factor.widen, m.at, m.along[1], m.along[0], m.count[1], m.count[0])
    pack_groups(matrix, Place(buffer, to, group, width, 1), width, 0, lanes, slots // group)


def _copy_window_lines(shared: Shared, factor: Factor, panel: Panel, buffer: Value, to: Index) -> None:
    """The weights of an output feature lie side by side, features outside and the window inside, as PyTorch has them.

    Squares are transposed in registers; the last one begins earlier and does some elements again. Lines beyond the last
    output feature repeat it: their sums are not used.
    """
    width = panel.width

    def write(buffers: list[Value], given: list[Value]) -> None:
        source, out = buffers
        at, columns, features, window, along, to = given
        read, lanes, count = factor.loads(source), lanes_of(factor.packed), features * window
        with loop(0, width, lanes) as first, loop(0, count, lanes) as block:
            starts = [minimum(first.iv + r, columns - 1) * along + at for r in range(lanes)]
            line = minimum(block.iv, count - lanes)
            for r, value in enumerate(transpose_registers([read(start + line, lanes) for start in starts])):
                feature, tap = (line + r) // window, (line + r) % window
                store(value, out, (tap * features + feature) * width + to + first.iv)

    nest = panel.nest
    numbers = [panel.at, panel.columns, panel.features, nest[0][0] if nest else 1, panel.along_outputs, to]
    shared.call(f"stablexla_pack_window_{width}_{factor.name}", [factor.buffer, buffer], numbers, write)
