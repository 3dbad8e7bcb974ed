"""Packing of a convolution's weights, by functions that all convolutions share.

A panel has some output features for each element of the window and each input feature, one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.match.convolution import MatchedConvolution
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.cpu.contraction.dot_instructions import AsStored
from stablexla.targets.cpu.contraction.packing import PackedPanels, PackingSource, pack_panels
from stablexla.targets.cpu.convolution.packing import ConvolutionOperand, UnitConversion
from stablexla.targets.cpu.convolution.units import ConvolutionUnits
from stablexla.targets.cpu.number_table import Numbers, number_table
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions


@dataclass(frozen=True)
class ConvolutionWeights:
    """Layout of the weights in memory, and packed.

    Attributes:
        groups, outputs: groups, and output features of one.
        width: output features of a panel.
        parts, features: parts that the input features are split into, and the size of one.
        slots: packed elements of a part's features.
        taps: extent and stride of each dimension of the window.
        merged: elements of the window's last dimension that are packed as one, with the features of all.
        in_place: whether they are read as they lie in memory.
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
    merged: int = 1
    in_place: bool = False

    @property
    def steps(self) -> list[int]:
        """Distances between the elements of the window, along each of its dimensions."""
        if self.in_place:
            return [stride for _, stride in self.taps]
        extents = [extent for extent, _ in self.taps]
        extents[-1] //= self.merged
        return [math.prod(extents[n:]) * self.slots * self.width for n in range(1, len(extents) + 1)]

    @property
    def window(self) -> int:
        """Elements of the window."""
        return math.prod(extent for extent, _ in self.taps) // self.merged

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

    @property
    def distances(self) -> tuple[int, int, int]:
        """Distances of the weights of groups, panels and parts, as they are read."""
        if self.in_place:
            return self.memory  # whose output features are contiguous
        return self.panels * self.parts * self.block, self.parts * self.block, self.block

    @property
    def memory(self) -> tuple[int, int, int]:
        """Those in memory."""
        return self.group_stride, self.width * self.output_stride, self.features * self.input_stride

    def panel(self, at: Index, columns: Index) -> WeightPanel:
        """Return a panel to pack, from its offset in memory."""
        sizes = self.width, self.features, self.slots, self.taps, self.output_stride, self.input_stride, self.merged
        return WeightPanel(at, columns, *sizes)

    def at(self, group: Index, panel: Index, part: Index) -> Value:
        """Emit the offset of an item's weights."""
        return cg.total(cg.index(x) * step for x, step in zip((group, panel, part), self.distances, strict=True))


def reads_weights_in_place(convolved: MatchedConvolution, units: ConvolutionUnits, weights: ConvolutionWeights) -> bool:
    """Whether weights lie as the micro-kernel reads them: in vectors of output features, lines a panel apart."""
    lines = weights.slots == 1 or weights.input_stride == weights.width
    whole = weights.output_stride == 1 and weights.outputs % weights.width == 0
    return lines and whole and units.group == 1 and units.stays(convolved.contraction.b)


def pack_weight_panel(
    shared: SharedFunctions,
    scene: ContractionScene,
    units: ConvolutionUnits,
    weights: ConvolutionWeights,
    place: tuple[Index, Index, Index],
    buffer: Value,
    to: Index,
) -> None:
    """Pack a panel of output features of a group, for one part of the input features."""
    w = weights
    panel = cg.index(place[1])
    columns = cg.minimum(cg.index(w.outputs) - panel * w.width, w.width) if w.outputs % w.width else cg.index(w.width)
    start = cg.total(cg.index(x) * step for x, step in zip(place, w.memory, strict=True))
    copy_weight_panel(shared, ConvolutionOperand.of(scene, units, lhs=False), w.panel(start, columns), buffer, to)


def pack_weights(
    shared: SharedFunctions, packing: PanelPacking, weights: ConvolutionWeights, buffers: Sequence[Value], *items: Value
) -> None:
    """Pack a range of items by a function of the library; the buffers are the weights in memory, and packed."""
    w = weights
    numbers = PackingNumbers(w.panels, w.parts, w.block, w.outputs, *w.memory)
    table = number_table([*numbers.values, *packing.numbers])
    shared.call(WeightPacking(packing.function, w.width, len(packing.numbers)), [*buffers, table], items)


@dataclass(frozen=True)
class WeightPanel:
    """A panel of weights to pack, as [window][input features][width].

    Attributes:
        at: its offset in memory.
        columns: its output features, at most `width`.
        features: input features.
        slots: their packed elements.
        taps: extent and stride of each dimension of the window.
        along_outputs, along_inputs: strides.
        merged: as of the weights.
    """

    at: Index
    columns: Index
    width: int
    features: int
    slots: int
    taps: tuple[tuple[int, int], ...]
    along_outputs: int
    along_inputs: int
    merged: int = 1

    @property
    def as_one(self) -> WeightPanel:
        """The panel with the merged elements of the window as features, whose lines follow one another in memory."""
        *outer, (extent, stride) = self.taps
        taps = (*outer, (extent // self.merged, stride * self.merged))
        return replace(self, taps=taps, features=self.features * self.merged, merged=1)

    @property
    def nest(self) -> list[tuple[int, int]]:
        """The window's dimensions, collapsed where they are contiguous in memory."""
        made: list[tuple[int, int]] = []
        for extent, stride in (t for t in self.taps if t[0] > 1):
            if made and made[-1][1] == extent * stride:
                made[-1] = (made[-1][0] * extent, stride)
            else:
                made.append((extent, stride))
        return made


def copy_weight_panel(
    shared: SharedFunctions, factor: ConvolutionOperand, panel: WeightPanel, buffer: Value, to: Index
) -> None:
    """Pack a panel to `to` of the buffer."""
    p, units = panel, factor.conversion.units
    packing = panel_packing(factor.conversion, panel)
    if packing is not None:
        shared.call(packing.function, [factor.buffer, buffer], [p.at, p.columns, *packing.numbers, to])
        return
    if _is_dense(factor.conversion, panel):
        lines = p.features * (p.nest[0][0] if p.nest else 1)
        transposed = cg.alloca(lines * p.width, units.type)
        numbers = [p.at, p.columns, *_numbers_of_lines(panel), 0]
        shared.call(_PackWindows(p.width, factor.conversion), [factor.buffer, transposed], numbers)
        factor = ConvolutionOperand(transposed, UnitConversion((), units, AsStored()))
        taps = ((p.nest[0][0] if p.nest else 1, p.features * p.width),)
        panel = replace(p, at=0, columns=cg.index(p.width), taps=taps, along_outputs=1, along_inputs=p.width)
        copy_weight_panel(shared, factor, panel, buffer, to)
        return
    if p.merged > 1:
        copy_weight_panel(shared, factor, p.as_one, buffer, to)
        return
    inner, *nest = p.nest[::-1]
    spec = _PackTaps(_kind_of(p), p.width, factor.conversion)

    def each(dimensions: Sequence[tuple[int, int]], at: Index, to: Index, size: int) -> None:
        if not dimensions:
            numbers = [p.features, p.slots, *inner, p.along_outputs, p.along_inputs]
            shared.call(spec, [factor.buffer, buffer], [at, p.columns, *numbers, to])
            return
        (extent, stride), *rest = dimensions
        size //= extent
        with cg.loop(0, extent) as x:
            each(rest, x.iv * stride + at, x.iv * (size * p.slots * p.width) + to, size)

    size = inner[0]
    for extent, _ in nest:
        size *= extent
    each(nest[::-1], p.at, to, size)


@dataclass(frozen=True)
class PanelPacking:
    """A function that packs a panel, and its numbers between the panel's offset and columns, and the destination."""

    function: SharedFunction
    numbers: tuple[int, ...]


def panel_packing(conversion: UnitConversion, panel: WeightPanel) -> PanelPacking | None:
    """Return how a panel is packed by one call; None where it takes several."""
    p = panel
    if _is_dense(conversion, p):
        one = conversion.units.group == 1
        return PanelPacking(_PackWindows(p.width, conversion), _numbers_of_lines(p)) if one else None
    if p.merged > 1:
        p = p.as_one
        if _is_dense(conversion, p):
            return None
    nest, features, slots = p.nest, p.features, p.slots
    if len(nest) == 1 and nest[0][1] == features * p.along_inputs and slots == features:
        slots = features = features * nest[0][0]
        nest = []
    if len(nest) > 1:
        return None
    numbers = (features, slots, *(nest[0] if nest else (1, 0)), p.along_outputs, p.along_inputs)
    return PanelPacking(_PackTaps(_kind_of(p), p.width, conversion), numbers)


def _is_dense(conversion: UnitConversion, p: WeightPanel) -> bool:
    """Whether the weights of each output feature are contiguous lines of a vector at least."""
    nest, units = p.nest, conversion.units
    lines = p.features * (nest[0][0] if nest else 1)
    dense = len(nest) <= 1 and (not nest or nest[0][1] == 1) and p.along_inputs == lines // p.features
    return dense and p.along_outputs != 1 and lines >= cg.lanes_of(units.sums) and bool(units.group == 1 or nest)


def _numbers_of_lines(p: WeightPanel) -> tuple[int, ...]:
    return p.features, p.nest[0][0] if p.nest else 1, p.along_outputs


def _kind_of(p: WeightPanel) -> str:
    return "lines" if p.along_outputs == 1 else "squares" if p.along_inputs == 1 else "elements"


@dataclass(frozen=True)
class PackingNumbers(Numbers):
    """Numbers of the packing of all weights: of its items, and the distances of weights in memory.

    Attributes:
        panels, parts: extents of the array of items, of a group.
        block: elements of an item.
        outputs: of a group.
        group, panel, part: distances.
    """

    panels: Index
    parts: Index
    block: Index
    outputs: Index
    group: Index
    panel: Index
    part: Index


@dataclass(frozen=True)
class WeightPacking(SharedFunction):
    """Packing of a range of items, each a panel of one part of the input features.

    Attributes:
        panel: packs one.
        width: its output features.
        more: how many numbers it takes besides.
    """

    panel: SharedFunction
    width: int
    more: int

    @property
    def name(self) -> str:
        return f"{self.panel.name}_all"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        (source, out, table), (first, end) = buffers, numbers
        n, own = PackingNumbers.loaded(table), PackingNumbers.length()
        more = [cg.load(table, own + place) for place in range(self.more)]
        with cg.loop(first, end) as item:
            rest, part = item.iv // n.parts, item.iv % n.parts
            group, panel = rest // n.panels, rest % n.panels
            columns = cg.minimum(cg.index(n.outputs) - panel * self.width, self.width)
            at = group * n.group + panel * n.panel + part * n.part
            functions.call(self.panel, [source, out], [at, columns, *more, item.iv * n.block])


@dataclass(frozen=True)
class _PackTaps(SharedFunction):
    """Packing of a matrix of weights for each element of one dimension of the window."""

    of_library = False
    kind: str
    width: int
    conversion: UnitConversion

    @property
    def name(self) -> str:
        return f"stablexla_pack_{self.kind}_{self.width}_{self.conversion.name}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        source, out = buffers
        at, columns, features, slots, taps, stride, along_outputs, along_inputs, to = numbers
        along = 1 if self.kind == "lines" else along_outputs, 1 if self.kind == "squares" else along_inputs
        units = self.conversion.units
        panels = PackedPanels(self.width, 0, cg.lanes_of(units.sums), units.group)
        with cg.loop(0, taps) as tap:
            convert = self.conversion.convert
            matrix = PackingSource(source, tap.iv * stride + at, *along, columns, features, convert)
            pack_panels(panels, matrix, out, tap.iv * slots * self.width + to, slots if units.group > 1 else None)


@dataclass(frozen=True)
class _PackWindows(SharedFunction):
    """Packing by in-register transposes; the last square overlaps the one before.

    Lines beyond the last output feature repeat it: their sums are not used.
    """

    of_library = False
    width: int
    conversion: UnitConversion

    @property
    def name(self) -> str:
        return f"stablexla_pack_window_{self.width}_{self.conversion.name}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        source, out = buffers
        at, columns, features, window, along, to = numbers
        read, lanes, count = self.conversion.loads(source), cg.lanes_of(self.conversion.units.sums), features * window
        with cg.loop(0, self.width, lanes) as first, cg.loop(0, count, lanes) as block:
            starts = [cg.minimum(first.iv + r, columns - 1) * along + at for r in range(lanes)]
            line = cg.minimum(block.iv, count - lanes)
            for r, value in enumerate(cg.transpose_registers([read(start + line, lanes) for start in starts])):
                feature, tap = (line + r) // window, (line + r) % window
                cg.store(value, out, (tap * features + feature) * self.width + to + first.iv)
