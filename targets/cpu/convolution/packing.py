"""Packing of the part of lhs under an item's windows, by functions that all convolutions share.

The packed layout is [planes][rows][elements of a row][features], whatever the order in memory, with zero padding:
windows then need no border checks. Stores of whole vectors may overrun into what is packed next, or into slack at the
end of a buffer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.conversion import Conversion, convert
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.match.contraction import Contraction
from stablexla.targets.codegen.match.epilogue import ContractionScene
from stablexla.targets.cpu.contraction.dot_instructions import AsStored, ToPairs
from stablexla.targets.cpu.convolution.coordinates import ONE_ROW, ItemCoordinates, PackedLhs, Taps
from stablexla.targets.cpu.convolution.plan import ConvolutionSizes
from stablexla.targets.cpu.convolution.units import ConvolutionUnits
from stablexla.targets.cpu.shared import SharedFunction, SharedFunctions

# The largest side of an in-register transpose: of narrow elements not the registers' lanes.
SQUARE = 16
# (address, lanes) -> the elements there.
ElementLoad = Callable[..., Value]


@dataclass(frozen=True)
class UnitConversion:
    """Conversion of an operand's elements to packed ones: a value that shared functions are made from.

    Attributes:
        steps: to the accumulator type.
        units: the packed form.
        widen: converts elements that are multiplied in groups.
    """

    steps: Conversion
    units: ConvolutionUnits
    widen: ToPairs | AsStored | None

    @classmethod
    def of(cls, contraction: Contraction, units: ConvolutionUnits, *, lhs: bool) -> UnitConversion:
        """Return that of lhs or rhs of a contraction."""
        operand = contraction.a if lhs else contraction.b
        return cls(operand.conversion, units, units.widen(operand, contraction.sum_type))

    @property
    def packed(self) -> ir.Type:
        """The type of packed elements."""
        return self.units.type

    @property
    def name(self) -> str:
        """The part of shared functions' names that tells this conversion."""
        return "_".join([*(f"{step.name.split('.')[-1]}_{step.type}" for step in self.steps), self.units.name])

    def convert(self, value: Value) -> Value:
        """Convert elements to the packed type."""
        return convert(value, self.steps, self.packed) if self.widen is None else self.widen(value)

    def loads(self, buffer: Value) -> ElementLoad:
        """Return loads of elements from `buffer`, converted to the packed type."""
        return lambda at, lanes=0: self.convert(cg.load(buffer, at, lanes))


@dataclass(frozen=True)
class ConvolutionOperand:
    """An operand in memory, and its packed form."""

    buffer: Value
    conversion: UnitConversion

    @classmethod
    def of(cls, scene: ContractionScene, units: ConvolutionUnits, *, lhs: bool) -> ConvolutionOperand:
        """Return lhs or rhs of a contraction."""
        c = scene.contraction
        return cls(scene.inputs[(c.a if lhs else c.b).number], UnitConversion.of(c, units, lhs=lhs))


@dataclass(frozen=True)
class LhsRows:
    """Rows of lhs to pack: addresses, and which rows and elements lie inside of it; the others are zero padding.

    Attributes:
        at: address of the first inside element of the first packed row, even if that row is padding.
        stride: stride of rows in memory.
        count: rows that are packed.
        inside: range of rows inside of lhs, end exclusive.
        before, elements, after: elements of a packed row: low padding, inside, high padding.
        step: stride of elements in memory.
        features: values of an element.
        width: values of a packed element; those beyond its features are zero padding.
        along: stride of an element's values in memory.
        lines: whether a packed row is a line of elements for each feature, not features for each element.
    """

    at: Index
    stride: Index
    count: Index
    inside: tuple[Index, Index]
    before: Index
    elements: Index
    after: Index
    step: Index
    features: Index
    width: Index
    along: Index
    lines: bool = False


@dataclass(frozen=True)
class Span:
    """What is packed along a dimension of lhs.

    Attributes:
        start: position of the first element, which may be padding.
        count: elements that are packed.
        step: their distance, in positions.
        size, stride: of the dimension in memory.
    """

    start: Index
    count: Index
    step: Index
    size: Index
    stride: Index

    @property
    def inside(self) -> tuple[Value, Value]:
        """The range of the elements that are no padding, end exclusive."""
        return inside_range(self.start, self.count, self.step, self.size)


def rows_of(
    at: Value, down: Span, across: Span, element: tuple[Index, Index, Index], *, lines: bool = False
) -> LhsRows:
    """Emit the rows to pack of an image that begins at an address.

    Args:
        element: the features of an element in memory, values of a packed one, and the features' stride.
    """
    first, end = across.inside
    features, width, along = element
    return LhsRows(
        at=cg.index(down.start) * down.stride + at + (first * across.step + across.start) * across.stride,
        stride=cg.index(down.step) * down.stride,
        count=down.count,
        inside=down.inside,
        before=first,
        elements=end - first,
        after=cg.index(across.count) - end,
        step=cg.index(across.step) * across.stride,
        features=features,
        width=width,
        along=along,
        lines=lines,
    )


def elements_under(windows: Index, stride: Index, reach: Index, step: Index) -> Value:
    """Emit how many elements, `step` apart, windows `stride` apart see, each from its first one to that at `reach`."""
    return (cg.maximum(cg.index(windows) - 1, 0) * stride + reach) // step + 1


def kind_of_rows(step: int, features: int, width: int, along: int) -> str:
    """Return how the elements of `LhsRows` are loaded.

    In contiguous runs, which make a row one run where there is nothing between them; by in-register transposes; or one
    by one. Perhaps they are padded.
    """
    kind = "runs" if along == 1 or features == 1 else "squares" if step == 1 else "elements"
    if width != features:
        return f"padded_{kind}"
    return "whole_rows" if kind == "runs" and step == features else kind


def inside_range(start: Index, count: Index, step: Index, size: Index) -> tuple[Value, Value]:
    """Emit the range of `count` positions, `step` apart from `start` on, that lie in [0, size), end exclusive."""
    less = cg.index(step) - 1
    first = cg.minimum((cg.maximum(cg.index(0) - start, 0) + less) // step, count)
    end = cg.minimum((cg.maximum(cg.index(size) - start, 0) + less) // step, count)
    return first, cg.maximum(first, end)


def pack_rows(
    functions: SharedFunctions, factor: ConvolutionOperand, rows: LhsRows, buffer: Value, to: Index, *, kind: str
) -> None:
    """Pack rows contiguously to `to` of the buffer, with zero padding for those outside of lhs."""
    features: Index = rows.features
    if rows.lines:
        given = [rows.at, rows.stride, rows.count, *rows.inside, rows.before, rows.elements, rows.after]
        spec = _CopyLines(kind, factor.conversion)
        functions.call(spec, [factor.buffer, buffer], [*given, rows.step, features, rows.along, to])
        return
    elements, step = rows.elements, rows.step
    if kind == "whole_rows":
        kind, elements, step, features = "runs", 1, 0, cg.index(elements) * features
    numbers: list[Index] = [rows.at, rows.stride, rows.count, *rows.inside]
    numbers += [cg.index(n) * rows.width for n in (rows.before, rows.after)]
    numbers += [cg.index(rows.elements) * rows.width, elements, step, features, rows.width, rows.along, to]
    functions.call(_CopyRows(kind, factor.conversion), [factor.buffer, buffer], numbers)


@dataclass(frozen=True)
class _CopyRows(SharedFunction):
    of_library = False
    kind: str
    conversion: UnitConversion

    @property
    def name(self) -> str:
        return f"stablexla_copy_{self.kind}_{self.conversion.name}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        source, out = buffers
        at, stride, count, first, end, before, after, size, elements, step, features, width, along, to = numbers
        read, lanes = self.conversion.loads(source), cg.lanes_of(self.conversion.packed)
        line = before + size + after

        def copy(at: Value, to: Value) -> None:
            if self.kind.endswith("runs"):
                with cg.loop(0, elements) as i:
                    _copy_run(read, i.iv * step + at, out, i.iv * width + to, features, lanes)
            else:
                whole = cg.index(0)
                if self.kind.endswith("squares"):
                    side = min(lanes, SQUARE)
                    whole = _copy_squares(read, (at, along), out, (to, width), (elements, features), side)
                with cg.loop(whole, features) as f, cg.loop(0, elements) as i:
                    cg.store(read(i.iv * step + f.iv * along + at), out, i.iv * width + to + f.iv)
            if self.kind.startswith("padded"):
                with cg.loop(0, elements) as i, cg.loop(features, width) as f:
                    cg.store(cg.constant(0, out.element), out, i.iv * width + to + f.iv)

        with cg.loop(0, count) as r:
            start = r.iv * line + to
            there = cg.branch(r.iv.ge(first) & r.iv.lt(end))
            with there.then:
                _fill(out, start, start + before, lanes)
                copy(r.iv * stride + at, start + before)
                _fill(out, start + before + size, start + line, lanes)
            with there.otherwise:
                _fill(out, start, start + line, lanes)


@dataclass(frozen=True)
class _CopyLines(SharedFunction):
    """Packing of rows as lines of elements, one for each feature."""

    of_library = False
    kind: str
    conversion: UnitConversion

    @property
    def name(self) -> str:
        return f"stablexla_copy_lines_of_{self.kind}_{self.conversion.name}"

    def emit(self, functions: SharedFunctions, buffers: list[Value], numbers: list[Value]) -> None:
        source, out = buffers
        at, stride, count, first, end, before, elements, after, step, features, along, to = numbers
        read, lanes = self.conversion.loads(source), cg.lanes_of(self.conversion.packed)
        line = before + elements + after

        def one_by_one(at: Value, to: Value) -> None:
            with cg.loop(0, features) as f, cg.loop(0, elements) as i:
                cg.store(read(i.iv * step + f.iv * along + at), out, f.iv * line + to + i.iv)

        def copy(at: Value, to: Value) -> None:
            if self.kind == "runs":
                with cg.loop(0, features) as f:
                    start = f.iv * line + to
                    _fill(out, start - before, start, lanes)
                    _copy_run(read, f.iv * along + at, out, start, elements, lanes)
                    _fill(out, start + elements, start + elements + after, lanes)
                return
            if self.kind == "elements":
                one_by_one(at, to)
                return
            enough = cg.branch(elements.ge(lanes) & features.ge(lanes))
            with enough.then, cg.loop(0, elements, lanes) as i, cg.loop(0, features, lanes) as f:
                # The last squares overlap those before.
                element, feature = cg.minimum(i.iv, elements - lanes), cg.minimum(f.iv, features - lanes)
                rows = [read((element + r) * step + at + feature, lanes) for r in range(lanes)]
                for r, value in enumerate(cg.transpose_registers(rows)):
                    cg.store(value, out, (feature + r) * line + to + element)
            with enough.otherwise:
                one_by_one(at, to)

        with cg.loop(0, count) as r:
            start = r.iv * (features * line) + to
            there = cg.branch(r.iv.ge(first) & r.iv.lt(end))
            with there.then:
                if self.kind != "runs":
                    _fill(out, start, start + features * line, lanes)
                copy(r.iv * stride + at, start + before)
            with there.otherwise:
                _fill(out, start, start + features * line, lanes)


def _fill(buffer: Value, start: Value, end: Value, lanes: int) -> None:
    with cg.loop(start, end, lanes) as at:
        cg.store(cg.constant(0, cg.vector_of(lanes, buffer.element)), buffer, at.iv)


def _copy_run(read: ElementLoad, at: Value, buffer: Value, to: Value, count: Value, lanes: int) -> None:
    """Copy a contiguous run; the last vector overlaps the one before."""
    enough = cg.branch(count.ge(lanes))
    with enough.then, cg.loop(0, count, lanes) as i:
        place = cg.minimum(i.iv, count - lanes)
        cg.store(read(at + place, lanes), buffer, to + place)
    with enough.otherwise, cg.loop(0, count) as i:
        cg.store(read(at + i.iv), buffer, to + i.iv)


def _copy_squares(
    read: ElementLoad,
    source: tuple[Value, Value],
    buffer: Value,
    target: tuple[Value, Value],
    size: tuple[Value, Value],
    lanes: int,
) -> Value:
    """Transpose squares in registers, of features far apart and contiguous elements.

    The last square overlaps the one before. Returns the number of features done.
    """
    (at, along), (to, width), (elements, features) = source, target, size
    done = cg.branch(elements.ge(lanes), [cg.index(0).ssa.type])
    with done.then:
        whole = features // lanes * lanes
        with cg.loop(0, whole, lanes) as f, cg.loop(0, elements, lanes) as i:
            first = cg.minimum(i.iv, elements - lanes)
            lines = [read((f.iv + r) * along + at + first, lanes) for r in range(lanes)]
            for r, value in enumerate(cg.transpose_registers(lines)):
                cg.store(value, buffer, (first + r) * width + to + f.iv)
        done.yields(whole)
    with done.otherwise:
        done.yields(cg.index(0))
    return done.results[0]


# --- the part of lhs under an item's windows ------------------------------------------------------------------------


@dataclass(frozen=True)
class LhsPacking:
    """Packing of the part of lhs under an item's windows.

    Attributes:
        packed: the destination.
        features: values packed contiguously for each element, features or channels.
        along: their stride in memory.
    """

    sizes: ConvolutionSizes
    factor: ConvolutionOperand
    packed: PackedLhs
    features: int
    along: int

    @property
    def kind(self) -> str:
        """How rows are loaded, as `kind_of_rows` says; the kind of `_CopyLines` where they are lines of elements."""
        step = self.sizes.width.step * self.sizes.width.a
        if self.packed.lines:
            return "squares" if self.along == 1 else "runs" if step == 1 else "elements"
        return kind_of_rows(step, self.features, self.packed.element, self.along)

    def pack(self, shared: SharedFunctions, place: ItemCoordinates, at: Value, plane: Index = 0) -> None:
        """Pack the receptive field of `place`, from address `at` in lhs on, as the plane of that number."""

        def planes(number: int, at: Value, to: Value, there: Value | None) -> None:
            if number == len(place.planes):
                rows, to = self._rows(place, at, there), to * self.packed.plane + place.image * self.packed.image
                pack_rows(shared, self.factor, rows, self.packed.buffer, to, kind=self.kind)
                return
            taps = place.planes[number][1]
            d = taps.spatial
            with cg.loop(0, taps.count) as tap:
                position = taps.start + tap.iv * d.tap_stride
                ok = position.ge(0) & position.lt(d.size)
                planes(number + 1, at + position * d.a, to * d.taps + tap.iv, ok if there is None else there & ok)

        planes(0, at, cg.index(plane), None)

    def _rows(self, place: ItemCoordinates, at: Value, there: Value | None) -> LhsRows:
        taps, w = place.height or Taps.of(ONE_ROW, 0, 0), self.sizes.width
        d, reach = taps.spatial, cg.maximum(taps.count - 1, 0) * taps.spatial.tap_stride
        down = Span(taps.start, elements_under(place.rows, d.stride, reach, d.step), d.step, d.size, d.a)
        across = Span(place.round * w.stride + w.first, self.packed.row, w.step, w.size, w.a)
        element = self.features, self.packed.element, self.along
        rows = rows_of(at, down, across, element, lines=self.packed.lines > 0)
        if there is None:
            return rows
        low, high = rows.inside
        return replace(rows, inside=(low, cg.select(there, cg.index(high), cg.index(low))))
