"""Packing of a convolution's operands: the part of lhs under an item's windows, with its padding, and the weights.

Lhs is packed as [planes][rows][elements of a row][features], whatever its order in memory: the window then runs over it
without asking for borders. Stores of whole vectors may run on into what is packed next, or into slack at the end.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from stablexla.targets.cpu.contraction_output import Scene
from stablexla.targets.cpu.contraction_panels import Panels, Source, pack_panels
from stablexla.targets.cpu.emission import (
    Index,
    Value,
    branch,
    constant,
    has_masks,
    index,
    known,
    loop,
    maximum,
    minimum,
    select,
    split_index,
    store,
    transpose_registers,
    vector_of,
)


def lookup(values: Sequence[int], at: Index) -> Value:
    """values[at]."""
    place = known(at)
    if place is not None:
        return index(values[place])
    found = index(values[0])
    for position, value in enumerate(values[1:], start=1):
        if value != values[0]:
            found = select(index(at).eq(position), index(value), found)
    return found


@dataclass(frozen=True)
class Row:
    """A row of lhs to pack, as seen by the window.

    Attributes:
        start: where along the row, in its own elements, the first one lies; it may lie before it.
        count: how many there are.
        step: how far apart they are.
        size: elements of the row.
        stride, along_features: strides in memory.
        features: how many features each has.
        width: elements that each has in the buffer.
        edges: whether some may lie outside of the row.
    """

    start: Index
    count: int
    step: int
    size: int
    stride: int
    along_features: int
    features: int
    width: int
    edges: bool

    def inside(self) -> tuple[Value, Value]:
        """The first element that lies in the row, and the one behind the last."""
        if not self.edges:
            return index(0), index(self.count)
        first = (maximum(index(0) - self.start, 0) + (self.step - 1)) // self.step
        first = minimum(first, self.count)
        end = (maximum(index(self.size) - self.start, 0) + (self.step - 1)) // self.step
        return first, maximum(first, minimum(end, self.count))


def pack_row(scene: Scene, row: Row, at: Index, buffer: Value, to: Index) -> None:
    """Packs a row that begins at `at` in lhs to `to` of the buffer."""
    first, end = row.inside()
    place = index(row.start) + first * row.step
    fill(buffer, to, index(to) + first * row.width, scene)
    _copy(scene, row, place * row.stride + at, buffer, first * row.width + to, end - first)
    fill(buffer, index(to) + end * row.width, index(to) + row.count * row.width, scene)


def fill(buffer: Value, start: Index, end: Index, scene: Scene) -> None:
    """Zeros from `start` to `end`, and some more."""
    if known(index(end) - start) == 0:
        return
    with loop(start, end, scene.lanes) as at:
        store(constant(0, vector_of(scene.lanes, scene.compute)), buffer, at.iv)


def _copy(scene: Scene, row: Row, at: Value, buffer: Value, to: Value, count: Value) -> None:
    along_row = row.step * row.stride
    if row.features == row.width == along_row and (row.along_features == 1 or row.features == 1):
        _copy_run(scene, at, buffer, to, count * row.features)
    elif row.along_features == 1 and row.features > 1:
        with loop(0, count) as i:
            _copy_run(scene, i.iv * along_row + at, buffer, i.iv * row.width + to, index(row.features))
    elif along_row == 1 and row.features >= scene.lanes:
        _copy_transposed(scene, row, at, buffer, to, count)
    else:
        _copy_elements(scene, row, at, buffer, to, count, 0)


def _copy_run(scene: Scene, at: Value, buffer: Value, to: Value, count: Value) -> None:
    """Neighbours that stay neighbours."""
    lanes = scene.lanes
    whole = count // lanes * lanes
    with loop(0, whole, lanes) as i:
        store(scene.load_a(at + i.iv, lanes), buffer, to + i.iv)
    number = known(count)
    if number is not None and number % lanes == 0:
        return
    if has_masks(scene.inputs[scene.contraction.a.number].element):
        store(scene.load_a(at + whole, lanes, count - whole), buffer, to + whole)
    else:
        with loop(whole, count) as i:
            store(scene.load_a(at + i.iv), buffer, to + i.iv)


def _copy_transposed(scene: Scene, row: Row, at: Value, buffer: Value, to: Value, count: Value) -> None:
    """Features lie far apart, and the row's elements side by side: squares are transposed in registers.

    Where the row ends within a square, the last square begins earlier and does some elements again.
    """
    lanes = scene.lanes
    whole = row.features // lanes * lanes

    def square(feature: Value, i: Value) -> None:
        lines = [scene.load_a((feature + r) * row.along_features + at + i, lanes) for r in range(lanes)]
        for r, value in enumerate(transpose_registers(lines)):
            store(value, buffer, (i + r) * row.width + to + feature)

    def all_squares() -> None:
        with loop(0, whole, lanes) as f, loop(0, (count + (lanes - 1)) // lanes * lanes, lanes) as i:
            square(f.iv, minimum(i.iv, count - lanes))

    # Whole vectors would run over into the next element's features: those that follow are written afterwards.
    number = known(count)
    if number is None:
        enough = branch(count.ge(lanes))
        with enough.then:
            all_squares()
        with enough.otherwise:
            _copy_elements(scene, row, at, buffer, to, count, 0, whole)
    elif number >= lanes:
        all_squares()
    else:
        _copy_elements(scene, row, at, buffer, to, count, 0, whole)
    if whole < row.features:
        _copy_elements(scene, row, at, buffer, to, count, whole)


def _copy_elements(
    scene: Scene, row: Row, at: Value, buffer: Value, to: Value, count: Value, first: int, end: int = 0
) -> None:
    """One element at a time: features from `first` on."""
    with loop(first, end or row.features) as f:
        line = f.iv * row.along_features + at
        with loop(0, count) as i:
            value = scene.load_a(i.iv * (row.step * row.stride) + line)
            store(value, buffer, i.iv * row.width + to + f.iv)


def pack_weights(scene: Scene, weights: Weights, place: tuple[Index, Index, Index], buffer: Value, to: Index) -> None:
    """Packs a panel of output features of a group, for one part of the input features, to `to` of the buffer.

    It is packed as [window][input features][width].
    """
    w = weights
    group, panel, part = (index(x) for x in place)
    columns = minimum(index(w.outputs) - panel * w.width, w.width) if w.outputs % w.width else index(w.width)
    start = group * w.group_stride + panel * (w.width * w.output_stride) + part * (w.features * w.input_stride)
    if w.lines >= scene.lanes:
        _pack_window_lines(scene, w, start, columns, buffer, to)
        return
    with loop(0, w.window) as tap:
        places = split_index(tap.iv, [extent for extent, _ in w.taps])
        at = start
        for x, (_, stride) in zip(places, w.taps, strict=True):
            at = x * stride + at
        source = Source(
            scene.load_b,
            scene.inputs[scene.contraction.b.number],
            at,
            w.output_stride,
            w.input_stride,
            columns,
            w.features,
        )
        at_tap = tap.iv * (w.features * w.width) + to
        pack_panels(Panels(w.width, w.features, scene.lanes), source, buffer, at_tap)


def _pack_window_lines(scene: Scene, w: Weights, start: Value, columns: Value, buffer: Value, to: Index) -> None:
    """The weights of an output feature lie side by side, features outside and the window inside, as PyTorch has them.

    Squares are transposed in registers; the last one begins earlier and does some elements again.
    """
    lanes = scene.lanes
    with loop(0, w.width, lanes) as first, loop(0, w.lines, lanes) as block:
        # Lines beyond the last output feature repeat it: their sums are not used.
        outputs = [minimum(first.iv + r, columns - 1) for r in range(lanes)]
        line = minimum(block.iv, w.lines - lanes)
        square = transpose_registers([scene.load_b(o * w.output_stride + start + line, lanes) for o in outputs])
        for r, value in enumerate(square):
            feature, tap = split_index(line + r, [w.features, w.window])
            store(value, buffer, (tap * w.features + feature) * w.width + to + first.iv)


@dataclass(frozen=True)
class Weights:
    """The weights as they lie in memory, and how they are packed.

    Attributes:
        groups, outputs: groups, and output features of one.
        width: output features of a panel.
        parts, features: parts that the input features are cut in, and the size of one.
        slots: elements that the features of a part take when they are packed.
        taps: extent and stride of each dimension of the window.
        group_stride, output_stride, input_stride: strides of the others.
    """

    groups: int
    outputs: int
    width: int
    parts: int
    features: int
    taps: tuple[tuple[int, int], ...]
    group_stride: int
    output_stride: int
    input_stride: int
    slots: int

    @property
    def window(self) -> int:
        """Elements of the window."""
        return math.prod(extent for extent, _ in self.taps)

    @property
    def lines(self) -> int:
        """How many weights of an output feature lie side by side, features outside and the window inside; else 0."""
        dense = [math.prod(extent for extent, _ in self.taps[n + 1 :]) for n in range(len(self.taps))]
        own = all(extent == 1 or stride == d for (extent, stride), d in zip(self.taps, dense, strict=True))
        apart = self.output_stride != 1 and (self.features == 1 or self.input_stride == self.window)
        return self.features * self.window if own and apart else 0

    @property
    def panels(self) -> int:
        """Panels of a group."""
        return -(-self.outputs // self.width)

    @property
    def block(self) -> int:
        """Elements of one item."""
        return self.window * self.slots * self.width

    @property
    def items(self) -> int:
        """Number of items."""
        return self.groups * self.panels * self.parts

    def at(self, group: Index, panel: Index, part: Index) -> Value:
        """Where an item begins in the packed weights."""
        return ((index(group) * self.panels + panel) * self.parts + part) * self.block
