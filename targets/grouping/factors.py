"""Factors of contractions as expressions: reads an element, or lanes of them, of an array through what produces it.

A weight that is stored quantised is converted, shifted, scaled by group, interleaved and reshaped before it is
multiplied. `Factor` evaluates that at coordinates, for an emitter in registers or for the pass `stablexla-join-factors`
on numbers; arrays between are never stored.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Generic, Protocol, TypeVar

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import row_major
from stablexla.lowering.support.operations import body_of, defining, is_tensor
from stablexla.targets.grouping.loops import inputs_of, is_generic, loops_of, reads_outputs
from stablexla.targets.grouping.matchers import fill_of, private_producers

T = TypeVar("T")
# Parts (concatenated) and unit (interleaved) along k, tried in this order.
BUNDLES = ((1, 1), (1, 2), (2, 1), (1, 4), (4, 1), (1, 8), (8, 1), (2, 2))
# The most arrays interleaved along the lanes.
MOST_INTERLEAVED = 2
# The most lanes that are evaluated together, along other dimensions and along k, and the fewest: two of f64 in SSE.
LANES, LANES_OF_K, FEWEST_LANES = 64, 16, 2


class Unreadable(Exception):
    """No code reads these elements of an array in place."""


@dataclass(frozen=True)
class Coordinate:
    """A position along a dimension: base * multiple + start; along the lanes, `base` counts one up for each of them.

    Attributes:
        base: a number, or a value of the program being emitted; along the lanes, a multiple of `lanes`.
        size: base * multiple is less.
        lanes: how many, 0 where all lanes are at the same position.
        split: the position that this one is the quotient or the remainder of, and the divisor.
    """

    base: Any
    multiple: int = 1
    start: int = 0
    size: int = 1
    lanes: int = 0
    split: tuple[Coordinate, int] | None = field(default=None, compare=False)

    @property
    def is_constant(self) -> bool:
        """Whether the position is `start`, a number."""
        return self.size <= self.multiple and not self.lanes

    @property
    def end(self) -> int:
        """A bound of the position."""
        return self.start + 1 if self.is_constant else self.start + (self.size - 1) // self.multiple * self.multiple + 1

    def shifted(self, offset: int) -> Coordinate:
        """Return the position plus a number."""
        return self if offset == 0 else replace(self, start=self.start + offset, split=None)

    def divided(self, by: int) -> tuple[Coordinate, Coordinate]:
        """Return quotient and remainder.

        Raises:
            Unreadable: the lanes would not have one quotient, or their remainders not count up.
        """
        quotient, remainder = self._divided(by)
        return replace(quotient, split=(self, by)), replace(remainder, split=(self, by))

    def _divided(self, by: int) -> tuple[Coordinate, Coordinate]:
        whole, rest = divmod(self.start, by)
        if self.is_constant:
            return Coordinate(0, 1, whole), Coordinate(0, 1, rest)
        if self.multiple % by == 0:
            quotient = Coordinate(self.base, self.multiple // by, whole, math.ceil(self.size / by), self.lanes)
            return quotient, Coordinate(0, 1, rest)
        if by % self.multiple == 0 and rest < self.multiple:
            # The start does not carry: quotient and remainder are the base's.
            count = by // self.multiple
            if self.size <= by:
                return Coordinate(0, 1, whole), replace(self, start=rest)
            if self.lanes and count % self.lanes:
                raise Unreadable
            base, size = self.base // count, math.ceil(self.size / by)
            return Coordinate(base, 1, whole, size), Coordinate(self.base % count, self.multiple, rest, by, self.lanes)
        if self.lanes:
            raise Unreadable
        base = self.base * self.multiple + self.start
        size = self.start + self.size
        return Coordinate(base // by, 1, 0, math.ceil(size / by)), Coordinate(base % by, 1, 0, by)

    def joined(self, inner: Coordinate, extent: int) -> Coordinate:
        """Return self * extent + inner, the position in both dimensions collapsed.

        Raises:
            Unreadable: the lanes would not be adjacent multiples.
        """
        if self.split is not None and inner.split is not None and self.split[1] == extent:
            position, by = self.split
            if inner.split[0] is position and inner.split[1] == by:
                return position
        start = self.start * extent + inner.start
        if self.is_constant:
            return replace(inner, start=start, split=None)
        outer = self.multiple * extent
        if inner.is_constant:
            return Coordinate(self.base, outer, start, self.size * extent, self.lanes)
        steps, rest = divmod(outer, inner.multiple)
        if self.lanes or rest or (inner.lanes and steps % inner.lanes):
            raise Unreadable
        size = (self.size - 1) * extent + inner.size
        return Coordinate(self.base * steps + inner.base, inner.multiple, start, size, inner.lanes)


class Evaluator(Protocol[T]):
    """Evaluates the loads and the operations of a factor's expression tree; `lanes` is 0 for a scalar."""

    def load(self, value: ir.Value, at: Sequence[Coordinate], lanes: int) -> T:
        """Return elements of an array."""
        ...

    def scalar(self, value: ir.Value) -> T:
        """Return a scalar of the program."""
        ...

    def apply(self, op: ir.Operation, operands: Sequence[T], at: Mapping[int, Coordinate], lanes: int) -> Sequence[T]:
        """Return the results of an elementwise operation, whose loops are at these positions."""
        ...

    def interleave(self, parts: Sequence[T], lanes: int) -> T:
        """Return as many lanes, in turn of each of the parts."""
        ...


class FactorReader(Generic[T]):
    """Evaluates an array at coordinates, each producer once at each of them.

    With `strided` the evaluator loads every second element of an array too, for lanes at multiples of 2.
    """

    def __init__(self, evaluator: Evaluator[T], leaves: set[ir.Value], *, strided: bool = False) -> None:
        self._evaluator, self._leaves = evaluator, leaves
        self._multiples = (1, 2) if strided else (1,)
        self._made: dict[tuple[ir.Value, tuple[Coordinate, ...]], T] = {}
        self._generics: dict[ir.Value, _Generic] = {}

    def read(self, value: ir.Value, at: Sequence[Coordinate]) -> T:
        """Return the elements of `value`.

        Raises:
            Unreadable: they are not adjacent, or of several arrays.
        """
        if not is_tensor(value):
            return self._evaluator.scalar(value)
        key = (value, tuple(at))
        if key not in self._made:
            self._made[key] = self._read(value, at)
        return self._made[key]

    def _read(self, value: ir.Value, at: Sequence[Coordinate]) -> T:
        op = defining(value)
        if value in self._leaves or op is None:
            return self._load(value, at)
        if is_generic(op):
            return self._read_generic(op, value, at)
        if op.name == "tensor.collapse_shape":
            return self._read_collapsed(op, at)
        if op.name == "tensor.expand_shape":
            return self.read(op.operands[0], _joined(op, at))
        if op.name == "tensor.insert_slice":
            return self._read_inserted(op, at)
        assert op.name == "linalg.fill", op.name
        return self._evaluator.scalar(op.operands[0])

    def _load(self, value: ir.Value, at: Sequence[Coordinate]) -> T:
        strides = row_major(value.type.shape)
        along = [(x, stride) for x, stride in zip(at, strides, strict=True) if x.lanes]
        if len(along) > 1 or any(x.multiple * stride not in self._multiples for x, stride in along):
            raise Unreadable
        return self._evaluator.load(value, at, along[0][0].lanes if along else 0)

    def _read_generic(self, op: ir.Operation, value: ir.Value, at: Sequence[Coordinate]) -> T:
        form = self._generics.get(value)
        if form is None:
            form = self._generics[value] = _Generic.of(op, value)
        places = {loop: x for loop, x in zip(form.loops, at, strict=True) if loop is not None}
        operands = [
            self.read(operand, [x if loop is None else places[loop] for loop, x in dimensions])
            for operand, dimensions in form.operands
        ]
        if any(places[d].lanes for d in form.indexed):
            raise Unreadable
        lanes = max((x.lanes for x in at), default=0)
        return self._evaluator.apply(op, operands, places, lanes)[form.number]

    def _read_collapsed(self, op: ir.Operation, at: Sequence[Coordinate]) -> T:
        groups, shape = _reassociation(op), list(op.operands[0].type.shape)

        def split(number: int, made: list[Coordinate]) -> T:
            if number == len(groups):
                return self.read(op.operands[0], made or [Coordinate(0)] * len(shape))
            extents = [shape[d] for d in groups[number]]
            try:
                return split(number + 1, made + split_position(at[number], extents))
            except Unreadable:
                parts = extents[-1]
                x = at[number]
                if not (1 < parts <= MOST_INTERLEAVED) or x.multiple != 1 or x.start or x.lanes % parts or not x.lanes:
                    raise
            outer = Coordinate(x.base // parts, 1, 0, x.size // parts, x.lanes // parts)
            coarse = split_position(outer, extents[:-1])
            values = [split(number + 1, [*made, *coarse, Coordinate(0, 1, u)]) for u in range(parts)]
            return self._evaluator.interleave(values, x.lanes)

        return split(0, [])

    def _read_inserted(self, op: ir.Operation, at: Sequence[Coordinate]) -> T:
        offsets, sizes = (list(op.attributes[name]) for name in ("static_offsets", "static_sizes"))
        inside: list[Coordinate] = []
        for x, offset, size, whole in zip(at, offsets, sizes, op.results[0].type.shape, strict=True):
            if size != whole and (x.end <= offset or x.start >= offset + size):
                return self.read(op.operands[1], at)
            if size != whole and (x.start < offset or x.end > offset + size):
                raise Unreadable
            inside.append(x.shifted(-offset))
        return self.read(op.operands[0], inside)


@dataclass(frozen=True)
class _Generic:
    """A result of a linalg.generic, as often as it is read.

    Attributes:
        number: of the result.
        loops: the loop of each of its dimensions, None for one of extent 1.
        operands: the inputs, each with a loop, or None and a position, for each dimension.
        indexed: the loops whose positions the body computes with.
    """

    number: int
    loops: Sequence[int | None]
    operands: Sequence[tuple[ir.Value, Sequence[tuple[int | None, Coordinate]]]]
    indexed: Sequence[int]

    @staticmethod
    def of(op: ir.Operation, value: ir.Value) -> _Generic:
        loops, number, inputs = loops_of(op), list(op.results).index(value), inputs_of(op)
        dimensions = [[_dimension(e) for e in map_.results] for map_ in loops.maps[: loops.num_inputs]]
        indexed = [ir.IntegerAttr(o.attributes["dim"]).value for o in body_of(op) if o.name == "linalg.index"]
        own = [_dimension(e)[0] for e in loops.maps[loops.num_inputs + number].results]
        return _Generic(number, own, list(zip(inputs, dimensions, strict=True)), indexed)


def _dimension(expression: ir.AffineExpr) -> tuple[int | None, Coordinate]:
    if isinstance(expression, ir.AffineDimExpr):
        return expression.position, _START
    return None, Coordinate(0, 1, ir.AffineConstantExpr(expression).value)


_START = Coordinate(0)


def _reassociation(op: ir.Operation) -> list[list[int]]:
    return [[ir.IntegerAttr(d).value for d in group] for group in op.attributes["reassociation"]]


def split_position(position: Coordinate, extents: Sequence[int]) -> list[Coordinate]:
    """Delinearize a position: return those in adjacent dimensions of `extents`.

    Raises:
        Unreadable: lanes would be in several dimensions.
    """
    out = []
    for number in reversed(range(len(extents))):
        if extents[number] == 1:
            out.append(Coordinate(0))
        elif math.prod(extents[:number]) == 1:
            out.append(position)
            out += [Coordinate(0)] * number
            break
        else:
            position, rest = position.divided(extents[number])
            out.append(rest)
    return out[::-1]


def _joined(op: ir.Operation, at: Sequence[Coordinate]) -> list[Coordinate]:
    """Linearize the positions in the result of an expand_shape as those in its operand."""
    shape, out = op.results[0].type.shape, []
    for group in _reassociation(op):
        dims = [d for d in group if shape[d] != 1]
        position = at[dims[0]] if dims else Coordinate(0)
        for d in dims[1:]:
            position = position.joined(at[d], shape[d])
        out.append(position)
    return out


# --- what a product reads --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Factor:
    """An array that a contraction multiplies, and that is computed where it is read.

    Attributes:
        value: the array.
        members: the operations that compute it, in program order.
        lane: the dimension along which elements are adjacent in memory.
        parts, unit: the elements along k that come of the same bytes: k is split into `parts` equal ones, and in each
            of them `unit` neighbours are read together.
        pairs: whether neighbours along the lanes, not those along k, come of the same bytes: lanes of even and of odd
            positions are read without interleaving them.
    """

    value: ir.Value
    members: tuple[ir.Operation, ...]
    lane: int
    parts: int
    unit: int
    pairs: bool = False

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of its dimensions, were it stored with the lanes' dimension last."""
        shape = list(self.value.type.shape)
        order = [d for d in range(len(shape)) if d != self.lane] + [self.lane]
        strides = row_major([shape[d] for d in order])
        return tuple(strides[order.index(d)] for d in range(len(shape)))


def factor_of(dot: ir.Operation, number: int) -> Factor | None:
    """Return operand `number` of a contraction as a factor; None where it is an array that has to be in memory."""
    value, members = dot.operands[number], _members(dot, number)
    if not members or fill_of(dot) is None:
        return None
    arrays = _arrays(members)
    if not arrays or sum(map(_bytes, arrays)) >= _bytes(value):
        return None
    loops = loops_of(dot)
    dims, other = loops.dims[number], loops.dims[1 - number]
    summed = [d for d, loop in enumerate(dims) if loops.reduced[loop]]
    if len(dims) != value.type.rank or len(summed) != 1:
        return None
    largest = max(arrays, key=_bytes)
    lanes = [d for d in reversed(range(len(dims))) if d == summed[0] or dims[d] not in other]
    trials = [Factor(value, members, lane, *bundle) for lane in lanes for bundle in BUNDLES]
    cost, place = min((_loads(trial, summed[0], set(arrays), largest), place) for place, trial in enumerate(trials))
    if cost == math.inf:
        return None
    best = trials[place]
    return replace(best, pairs=best.lane != summed[0] and _is_paired(best, summed[0], set(arrays)))


def _members(dot: ir.Operation, number: int) -> tuple[ir.Operation, ...]:
    """Return the operations behind an array that nothing but operand `number` of a contraction uses.

    What the other operand reads as well, be it the array itself, has to be in memory.
    """
    others = [value for place, value in enumerate(dot.operands) if place != number]

    def evaluated(op: ir.Operation) -> bool:
        return op.block == dot.block and _is_evaluated(op) and not any(result in others for result in op.results)

    return tuple(private_producers(dot, [dot.operands[number]], evaluated, _read_by))


def _read_by(op: ir.Operation) -> list[ir.Value]:
    return inputs_of(op) if is_generic(op) else list(op.operands)[: 2 if op.name == "tensor.insert_slice" else 1]


def _is_evaluated(op: ir.Operation) -> bool:
    """Whether elements of an operation's result are computed from a few elements of its operands."""
    if op.name in ("tensor.collapse_shape", "tensor.expand_shape"):
        return all(extent > 0 for v in (op.operands[0], op.results[0]) for extent in v.type.shape)
    if op.name == "tensor.insert_slice":
        static = len(op.operands) == 2 and op.operands[0].type.rank == op.operands[1].type.rank
        return static and all(stride == 1 for stride in op.attributes["static_strides"])
    if not is_generic(op):
        return False
    loops = loops_of(op)
    if any(loops.reduced) or reads_outputs(op) or not all(loops.extents):
        return False
    simple = all(isinstance(e, ir.AffineDimExpr | ir.AffineConstantExpr) for m in loops.maps for e in m.results)
    outputs = all(set(dims) == set(range(len(loops.extents))) for dims in loops.dims[loops.num_inputs :])
    return simple and outputs and all(_is_arithmetic(inner, op) for inner in body_of(op))


# Division by the zeros of masked lanes traps.
TRAPPING = frozenset(f"arith.{name}" for name in ("divsi", "divui", "remsi", "remui", "ceildivsi", "floordivsi"))


def _is_arithmetic(inner: ir.Operation, op: ir.Operation) -> bool:
    block = op.regions[0].blocks[0]
    makers = [defining(v) for v in inner.operands]
    local = all(
        v.owner == block if maker is None else maker.block == block or maker.name == "arith.constant"
        for v, maker in zip(inner.operands, makers, strict=True)
    )
    known = inner.name.startswith("arith.") or inner.name in ("linalg.yield", "linalg.index")
    known = known and inner.name not in TRAPPING
    return known and local and not any(isinstance(r.type, ir.ComplexType) for r in inner.results)


def _arrays(members: Sequence[ir.Operation]) -> list[ir.Value]:
    """Return the arrays that the operations read from memory, each once."""
    found: dict[ir.Value, None] = {}
    for op in members:
        for value in _read_by(op):
            maker = defining(value)
            made = maker is not None and (maker in members or maker.name in ("tensor.empty", "linalg.fill"))
            if is_tensor(value) and not made:
                found[value] = None
    return list(found)


def _bytes(value: ir.Value) -> float:
    element = value.type.element_type
    bits = 2 * element.element_type.width if isinstance(element, ir.ComplexType) else getattr(element, "width", 64)
    elements: int = math.prod(value.type.shape)
    return elements * max(8, int(bits)) / 8


# --- on numbers ------------------------------------------------------------------------------------------------


class LoadsAlone:
    """The part of an evaluator that only visits the loads: nothing is computed of them."""

    def scalar(self, value: ir.Value) -> None:
        pass

    def apply(
        self, op: ir.Operation, operands: Sequence[None], at: Mapping[int, Coordinate], lanes: int
    ) -> Sequence[None]:
        return [None] * len(op.results)

    def interleave(self, parts: Sequence[None], lanes: int) -> None:
        pass


class _Trial(LoadsAlone):
    """Counts the loads of each array along the lanes, and what is interleaved."""

    def __init__(self) -> None:
        self.loads: Counter[ir.Value] = Counter()
        self.interleaved = 0

    def load(self, value: ir.Value, at: Sequence[Coordinate], lanes: int) -> None:
        self.loads[value] += lanes > 0

    def interleave(self, parts: Sequence[None], lanes: int) -> None:
        self.interleaved += 1


def _loads(factor: Factor, summed: int, arrays: set[ir.Value], largest: ir.Value) -> float:
    """Return the loads of the largest array for an element of a bundle; infinity if elements are not adjacent."""
    shape = list(factor.value.type.shape)
    count = factor.parts * factor.unit
    if shape[summed] % count or shape[factor.lane] < LANES_OF_K * count:
        return math.inf
    for lanes in (FEWEST_LANES, LANES_OF_K if summed == factor.lane else LANES):
        trial = _Trial()
        try:
            _try(trial, factor, summed, arrays, lanes)
        except Unreadable:
            return math.inf
    return trial.loads[largest] / count or math.inf


def _is_paired(factor: Factor, summed: int, arrays: set[ir.Value]) -> bool:
    """Whether lanes are interleaved, and those of even and of odd positions are not."""
    whole, halves = _Trial(), _Trial()
    _try(whole, factor, summed, arrays, LANES)
    if not whole.interleaved or factor.value.type.shape[factor.lane] % 2:
        return False
    try:
        for lanes in (FEWEST_LANES, LANES // 2):
            for start in range(2):
                _try(halves, factor, summed, arrays, lanes, (2, start))
    except Unreadable:
        return False
    return not halves.interleaved


def _try(
    trial: _Trial, factor: Factor, summed: int, arrays: set[ir.Value], lanes: int, every: tuple[int, int] = (1, 0)
) -> None:
    """Read a bundle at all lanes, or at those of a multiple and a start.

    Raises:
        Unreadable: elements are not adjacent.
    """
    shape = list(factor.value.type.shape)
    reader = FactorReader(trial, arrays, strided=every != (1, 0))
    for offset in bundle_offsets(shape[summed], factor.parts, factor.unit):
        at = [Coordinate(0, 1, 0, extent) for extent in shape]
        at[factor.lane] = Coordinate(0, *every, shape[factor.lane], lanes)
        at[summed] = replace(at[summed], multiple=factor.unit, start=offset, size=shape[summed] // factor.parts)
        if summed == factor.lane:
            at[summed] = replace(at[summed], lanes=lanes)
        reader.read(factor.value, at)


def bundle_offsets(extent: int, parts: int, unit: int) -> Iterator[int]:
    """Yield the starts of the elements along k that are read together."""
    for part in range(parts):
        yield from range(part * (extent // parts), part * (extent // parts) + unit)
