"""rhs of a skinny product, an array in memory or a factor that is computed in registers where it is read."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import row_major
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.bodies import VectorBody, outside_constant
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.match.contraction import Contraction, ContractionAxis
from stablexla.targets.codegen.match.epilogue import BatchFrame, ContractionScene
from stablexla.targets.cpu.contraction.dot_instructions import LANE_BITS, interleave_lanes
from stablexla.targets.cpu.contraction.nibbles import LOOKUP_OPERATIONS, Nibbles, Part, applied, interleaved
from stablexla.targets.grouping.factors import (
    Coordinate,
    Factor,
    FactorReader,
    LoadsAlone,
    bundle_offsets,
    split_position,
)

LINE = 64


@dataclass(frozen=True)
class Bundle:
    """The elements along k that are read together, in each of `steps` steps.

    Attributes:
        unit: elements from one step to the next.
        offsets: of the elements from a step's first.
    """

    steps: int
    unit: int = 1
    offsets: tuple[int, ...] = (0,)

    @classmethod
    def of(cls, c: Contraction) -> Bundle:
        """Return those of rhs."""
        found = c.b.factor
        if found is None:
            return cls(c.k.extent)
        offsets = tuple(bundle_offsets(c.k.extent, found.parts, found.unit))
        return cls(c.k.extent // len(offsets), found.unit, offsets)


@dataclass(frozen=True)
class Step:
    """A step along k: `first + number`, where `first` is a multiple of `count`; and an element of its bundle."""

    first: Value
    count: int = 1
    number: int = 0
    element: int = 0


class StoredRhs:
    """rhs in memory, from an address on."""

    def __init__(self, scene: ContractionScene, frame: BatchFrame, column: Value, step: Value) -> None:
        c = scene.contraction
        self._scene, self._c = scene, c
        self.at = cg.index(frame.b) + column * c.n.b + step * c.k.b

    def row(self, step: Step, column: Value, vectors: int, count: int, outer: Index = 0) -> list[Value]:
        """Load vectors of columns as accumulator type; of each the first `count` lanes are valid."""
        lanes = self._scene.lanes
        line = (step.first + step.number) * self._c.k.b + self.at + outer + column
        return [self._scene.load_b(line + v * lanes, lanes, count) for v in range(vectors)]

    def line(self, step: Step, column: Value, lanes: int, count: int, outer: Index = 0) -> Value:
        """Load `lanes` steps along k of a column, `count` of them valid, the others 0."""
        at = column * self._c.n.b + self.at + step.first + outer
        return cg.load_lanes(self._scene.inputs[self._c.b.number], at, lanes, count)

    def prefetch(self, first: Value, count: int, column: Value, vectors: int) -> None:
        """Leave it to the processor: rows are long."""

    def prefetch_line(self, step: Step, column: Value, lanes: int, outer: Index = 0) -> None:
        """Prefetch `lanes` steps along k of a column into L2."""
        buffer = self._scene.inputs[self._c.b.number]
        at = column * self._c.n.b + self.at + step.first + outer
        for lane in range(0, lanes, LINE * 8 // cg.bits_of(buffer.type)):
            cg.prefetch(buffer, at + lane, locality=2)


class ComputedRhs:
    """A factor, from a column and a step along k on."""

    def __init__(self, scene: ContractionScene, frame: BatchFrame, column: Value, step: Value) -> None:
        factor = scene.contraction.b.factor
        assert factor is not None
        self._scene, self._factor, self._bundle = scene, factor, Bundle.of(scene.contraction)
        self._frame, self._column, self._step = frame, column, step

    def row(self, step: Step, column: Value, vectors: int, count: int, outer: Index = 0) -> list[Value]:
        """Compute vectors of columns as accumulator type; of each the first `count` lanes are valid."""
        c, lanes = self._scene.contraction, self._scene.lanes
        k = self._along_k((step.first + self._step) // step.count, step, 0)
        n = Coordinate(column + self._column, 1, 0, c.n.extent, vectors * lanes)
        return self._split(self._scene.convert_b(self._read(k, n, (vectors - 1) * lanes + count)))

    def pairs(self, step: Step, column: Value, vectors: int) -> list[Value]:
        """Compute vectors of columns, in turn of even and of odd ones: of each 2 vectors of columns."""
        c, lanes = self._scene.contraction, self._scene.lanes
        k = self._along_k((step.first + self._step) // step.count, step, 0)
        half = vectors * lanes // 2
        base = (column + self._column) // 2
        halves = [self._read(k, Coordinate(base, 2, start, c.n.extent, half), half) for start in range(2)]
        parts = [self._split(self._scene.convert_b(value)) for value in halves]
        return [vector for both in zip(*parts, strict=True) for vector in both]

    def _split(self, value: Value) -> list[Value]:
        lanes = self._scene.lanes
        return [cg.cut(value, at, lanes) for at in range(0, value.lanes, lanes)]

    def line(self, step: Step, column: Value, lanes: int, count: int, outer: Index = 0) -> Value:
        """Compute `lanes` steps along k of a column, `count` of them valid, the others 0."""
        n = Coordinate(column + self._column, 1, 0, self._scene.contraction.n.extent)
        return self._read(self._along_k(step.first + self._step, step, lanes), n, count)

    def prefetch_line(self, step: Step, column: Value, lanes: int, outer: Index = 0) -> None:
        """Leave it to the processor: lines of narrow elements are short."""

    def prefetch(self, first: Value, count: int, column: Value, vectors: int) -> None:
        """Prefetch vectors of columns of `count` steps: their rows, of narrow elements, hardly fill a page."""
        reader = FactorReader(_Prefetches(self._scene), set(self._scene.contraction.kernel.inputs))
        n = Coordinate(column + self._column, 1, 0, self._scene.contraction.n.extent, vectors * self._scene.lanes)
        base = (first + self._step) // count
        for number, element in itertools.product(range(count), range(len(self._bundle.offsets))):
            k = self._along_k(base, Step(first, count, number, element), 0)
            reader.read(self._factor.value, self._positions(k, n))

    def _along_k(self, first: Value, step: Step, lanes: int) -> Coordinate:
        bundle = self._bundle
        start = step.number * bundle.unit + bundle.offsets[step.element]
        multiple, size = step.count * bundle.unit, self._scene.contraction.k.extent // self._factor.parts
        return Coordinate(first, multiple, start, max(multiple, size // multiple * multiple), lanes)

    def _read(self, k: Coordinate, n: Coordinate, count: int) -> Value:
        lanes = max(k.lanes, n.lanes)
        reader: FactorReader[Part] = FactorReader(
            _Emission(self._scene, lanes, count),
            set(self._scene.contraction.kernel.inputs),
            strided=n.multiple > 1,
        )
        value = cg.splat(_value(reader.read(self._factor.value, self._positions(k, n))), lanes)
        if count >= lanes:
            return value
        return cg.select(cg.mask(lanes, count), value, cg.constant(0, value.type))

    def _positions(self, k: Coordinate, n: Coordinate) -> list[Coordinate]:
        c = self._scene.contraction
        batch = zip(c.batch, self._frame.coordinates, strict=True)
        axes = [*((axis, Coordinate(x, 1, 0, axis.extent)) for axis, x in batch), (c.n, n), (c.k, k)]
        return _positions(self._factor, axes)


def rhs_of(scene: ContractionScene, frame: BatchFrame, column: Value, step: Value) -> StoredRhs | ComputedRhs:
    """Return rhs of a product, from a column and a step along k on."""
    return (StoredRhs if scene.contraction.b.factor is None else ComputedRhs)(scene, frame, column, step)


def _positions(factor: Factor, axes: Sequence[tuple[ContractionAxis, Coordinate]]) -> list[Coordinate]:
    """Return the position in each dimension of a factor, of which a loop runs over one or several adjacent ones."""
    shape, strides = factor.value.type.shape, factor.strides
    out = [Coordinate(0)] * len(shape)
    for axis, position in axes:
        dims = [d for d, s in enumerate(strides) if shape[d] > 1 and axis.b <= s < axis.b * axis.extent]
        dims.sort(key=lambda d: -strides[d])
        for d, place in zip(dims, split_position(position, [shape[d] for d in dims]), strict=True):
            out[d] = place
    return out


def _position(at: Coordinate) -> Value:
    return cg.index(at.base) * at.multiple + at.start


def _address(value: ir.Value, at: Sequence[Coordinate]) -> Value:
    strides = row_major(value.type.shape)
    return cg.total(_position(x) * stride for x, stride in zip(at, strides, strict=True))


class _Emission:
    """Emits what a factor consists of; of the lanes the first `count` are loaded."""

    def __init__(self, scene: ContractionScene, lanes: int, count: int) -> None:
        self._lanes, self._count = lanes, count
        feature, _ = LOOKUP_OPERATIONS.get(cg.lanes_of(ir.F32Type.get()), ("", 0))
        self._tables = cg.has_feature(feature)
        self._buffers = dict(zip(scene.contraction.kernel.inputs, scene.inputs, strict=True))

    def load(self, value: ir.Value, at: Sequence[Coordinate], lanes: int) -> Value:
        if not lanes:
            return cg.load(self._buffers[value], _address(value, at))
        along = next(x for x in at if x.lanes)
        if along.multiple > 1:
            aligned = [replace(x, start=x.start - x.start % x.multiple) if x is along else x for x in at]
            both = cg.load(self._buffers[value], _address(value, aligned), along.multiple * lanes)
            return cg.shuffle(both, both, list(range(along.start % along.multiple, both.lanes, along.multiple)))
        count = -(-self._count // (self._lanes // lanes))
        return cg.load_lanes(self._buffers[value], _address(value, at), lanes, count)

    def scalar(self, value: ir.Value) -> Value:
        return self._buffers[value] if value in self._buffers else outside_constant(value)

    def apply(
        self, op: ir.Operation, operands: Sequence[Part], at: Mapping[int, Coordinate], lanes: int
    ) -> Sequence[Part]:
        found = applied(op, operands) if self._tables else None
        if found is not None:
            return [found]
        given = [_value(o) for o in operands]
        return VectorBody(op.regions[0].blocks[0], lanes, lambda d: _position(at[d])).on(given)

    def interleave(self, parts: Sequence[Part], lanes: int) -> Part:
        found = interleaved(parts)
        if found is not None:
            return found
        vectors = [cg.splat(_value(part), lanes // len(parts)) for part in parts]
        element = vectors[0].element
        if not isinstance(element, ir.FloatType):
            return interleave_lanes(vectors)
        bits = ir.IntegerType.get_signless(element.width)
        return cg.bitcast(interleave_lanes([cg.bitcast(v, bits) for v in vectors]), element)


def _value(part: Part) -> Value:
    return part.value() if isinstance(part, Nibbles) else part


class _Prefetches(LoadsAlone):
    """Prefetches the elements of narrow arrays along the lanes, each line once."""

    def __init__(self, scene: ContractionScene) -> None:
        self._buffers = dict(zip(scene.contraction.kernel.inputs, scene.inputs, strict=True))

    def load(self, value: ir.Value, at: Sequence[Coordinate], lanes: int) -> None:
        bits = cg.bits_of(value.type)
        if lanes and bits < LANE_BITS:
            for lane in range(0, lanes, LINE * 8 // bits):
                cg.prefetch(self._buffers[value], _address(value, at) + lane, locality=2)
