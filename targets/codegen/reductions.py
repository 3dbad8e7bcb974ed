"""Vectorized reductions: accumulators in lanes, the step of one iteration, combining accumulators, the final result.

Recognized are bodies that apply one combiner to accumulator and value, and the bodies of argmax and argmin. Any other
body keeps its order: it runs as it stands, first index first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.identities import identity_of
from stablexla.lowering.support.operations import constant_attribute, defining, terminator_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.bodies import VectorBody
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.loop_nest import Map, Reduction
from stablexla.targets.codegen.match.arg_reduction import ArgSelection, match_arg_selection
from stablexla.targets.codegen.scope import LoopScope, counted_from

Accumulators = list[Value]


class VectorReduction(Protocol):
    """A reduction in the form that an emitter vectorizes."""

    @property
    def fold(self) -> Reduction:
        """The reduction as matched."""

    @property
    def types(self) -> list[ir.Type]:
        """Element types of the accumulators."""

    def start(self, scope: LoopScope, lanes: int, offset: int = 0) -> Accumulators:
        """Return accumulators that hold the identity; `offset` tells the vectors of an unrolled iteration apart."""

    def step(self, scope: LoopScope, totals: Accumulators) -> Accumulators:
        """Combine the values at `scope` into the accumulators."""

    def join(self, a: Accumulators, b: Accumulators) -> Accumulators:
        """Combine the accumulators of a and b, in this order."""

    def across(self, scope: LoopScope, totals: Accumulators) -> Accumulators:
        """Reduce the lanes horizontally to one scalar accumulator."""

    def finish(self, scope: LoopScope, totals: Accumulators) -> list[Value]:
        """Return the reduction's results: its initial values combined with the accumulators."""


def split_by_reduction(foldings: Sequence[VectorReduction], totals: list[Value]) -> list[list[Value]]:
    """Split the accumulators of several reductions, one after another, by reduction."""
    made, first = [], 0
    for folding in foldings:
        made.append(totals[first : first + len(folding.types)])
        first += len(folding.types)
    return made


def initial_values_of(fold: Reduction, scope: LoopScope) -> list[Value]:
    """Return the initial values of a reduction."""
    return [scope.value(ref) for ref in fold.starts]


def accumulators_of(fold: Reduction) -> list[ir.Value]:
    """Return the block arguments that stand for the accumulators."""
    return list(fold.block.arguments)[len(fold.operands) :]


# --- one combiner -------------------------------------------------------------------------------------------------

# Operations of arith that combine, by StableHLO's names; those on integers without sign.
_COMBINERS = {
    "arith.addf": "add",
    "arith.mulf": "multiply",
    "arith.maximumf": "maximum",
    "arith.minimumf": "minimum",
    "arith.addi": "add",
    "arith.muli": "multiply",
    "arith.andi": "and",
    "arith.ori": "or",
    "arith.xori": "xor",
    "arith.maxsi": "maximum",
    "arith.maxui": "maximum",
    "arith.minsi": "minimum",
    "arith.minui": "minimum",
}
_UNSIGNED = ("arith.maxui", "arith.minui")
# Operations that may stand between the accumulator in memory and the combiner.
_UNWRAPPING = ("arith.extf", "arith.cmpi", "arith.trunci", "arith.shli", "arith.shrsi", "arith.andi")
_WRAPPING = ("arith.truncf", "arith.extui", "arith.shli", "arith.shrsi", "arith.andi")


@dataclass(frozen=True)
class _One:
    """One accumulator: its combiner, the value combined, the accumulator's argument, and the result."""

    operation: str
    added: ir.Value
    total_argument: ir.Value
    result: ir.Value

    @property
    def is_pred(self) -> bool:
        """Whether the combiner is on i1; accumulators are bytes then, as lanes of bits are slow to carry around."""
        return bool(cg.bits_of(self.added.type) == 1)

    @property
    def types(self) -> list[ir.Type]:
        """Element types of the accumulators' registers."""
        return [ir.IntegerType.get_signless(8) if self.is_pred else self.added.type]

    def identity(self) -> float:
        """Return the identity of the combiner."""
        if self.is_pred:
            return 1 if self.operation == "arith.andi" else 0
        type_, unsigned = self.added.type, self.operation in _UNSIGNED
        found = identity_of(
            _COMBINERS[self.operation], cg.bits_of(type_), floating=cg.is_float(type_), unsigned=unsigned
        )
        assert found is not None
        return found

    def starts(self, lanes: int) -> Accumulators:
        """Return accumulators that hold the identity."""
        return [cg.constant(self.identity(), cg.vector_of(lanes, self.types[0]))]

    @property
    def wanted(self) -> tuple[ir.Value, ...]:
        """The values of the body that an iteration combines."""
        return (self.added,)

    def add(self, totals: Accumulators, values: Sequence[Value]) -> Accumulators:
        """Combine the values of one iteration into the accumulators."""
        return [self._apply(total, value) for total, value in zip(totals, values, strict=True)]

    def join(self, a: Accumulators, b: Accumulators) -> Accumulators:
        """Combine two sets of accumulators."""
        return [self._apply(x, y) for x, y in zip(a, b, strict=True)]

    def total(self, totals: Accumulators) -> Sequence[Value]:
        """Return the reduction's values from the accumulators, in the places of `wanted`."""
        if not self.is_pred:
            return totals
        return [Value(arith.trunci(cg.vector_of(totals[0].lanes, self.added.type), totals[0].ssa))]

    def _apply(self, a: Value, b: Value) -> Value:
        if a.known is not None and a.known == self.identity():
            return b
        if self.operation == "arith.addf":
            return _add(a, b)
        made = ir.Operation.create(self.operation, results=[a.type], operands=[a.ssa, b.ssa])
        return Value(made.results[0])


@dataclass(frozen=True)
class _Extreme(_One):
    """maximumf or minimumf in three instructions a vector instead of five.

    Accumulated are the extreme of the numbers, whether a NaN was among them, and the common sign bits: the processor's
    instruction knows neither NaN nor the sign of zero.
    """

    @property
    def largest(self) -> bool:
        """Whether the reduction is a maximum."""
        return self.operation == "arith.maximumf"

    @property
    def types(self) -> list[ir.Type]:
        """See `_One.types`."""
        bits = ir.IntegerType.get_signless(cg.bits_of(self.added.type))
        return [self.added.type, bits, bits]

    def starts(self, lanes: int) -> Accumulators:
        """Implement `_One.starts`."""
        best, nans, signs = (cg.vector_of(lanes, t) for t in self.types)
        return [cg.constant(self.identity(), best), cg.constant(0, nans), cg.constant(-1 if self.largest else 0, signs)]

    def add(self, totals: Accumulators, values: Sequence[Value]) -> Accumulators:
        """Implement `_One.add`. All bits set is a NaN, so that a mask once set stays set."""
        (value,), (best, nans, signs) = values, totals
        unordered = arith.cmpf(arith.CmpFPredicate.UNO, value.ssa, cg.bitcast(nans, value.element).ssa)
        bits = cg.bitcast(value, signs.element)
        kept = signs & bits if self.largest else signs | bits
        return [self._better(value, best), Value(arith.extsi(nans.type, unordered)), kept]

    def join(self, a: Accumulators, b: Accumulators) -> Accumulators:
        """Implement `_One.join`."""
        signs = a[2] & b[2] if self.largest else a[2] | b[2]
        return [self._better(a[0], b[0]), a[1] | b[1], signs]

    def total(self, totals: Accumulators) -> Sequence[Value]:
        """Implement `_One.total`."""
        best, nans, signs = totals
        zero = cg.bitcast(signs & (-1 << (cg.bits_of(signs.type) - 1)), best.element)
        best = cg.select(best.eq(0.0), zero, best)
        return [cg.select(nans.ne(0), cg.constant(float("nan"), best.type), best)]

    def _better(self, a: Value, b: Value) -> Value:
        return cg.select(a.gt(b) if self.largest else a.lt(b), a, b)


@dataclass(frozen=True)
class _ComplexSum(_One):
    """A sum of complex numbers: two accumulators, one for each part. `added` is the real part."""

    added_im: ir.Value

    @property
    def types(self) -> list[ir.Type]:
        """See `_One.types`."""
        return [self.added.type] * 2

    @property
    def wanted(self) -> tuple[ir.Value, ...]:
        """See `_One.wanted`."""
        return self.added, self.added_im

    def starts(self, lanes: int) -> Accumulators:
        """Implement `_One.starts`."""
        return super().starts(lanes) * 2


def _add(total: Value, added: Value) -> Value:
    """Return a sum, marked to be contracted to an FMA if `added` is a product."""
    maker = added.ssa.owner
    if isinstance(maker, ir.Block) or maker.name != "arith.mulf":
        return total + added
    flags = ir.Attribute.parse("#arith.fastmath<contract>")
    maker.attributes["fastmath"] = flags
    return Value(arith.addf(total.ssa, added.ssa, fastmath=flags))


@dataclass(frozen=True)
class IndependentReductions:
    """Independent accumulators, each of one associative and commutative combiner."""

    fold: Reduction
    parts: tuple[_One, ...]

    @property
    def types(self) -> list[ir.Type]:
        """See `VectorReduction.types`."""
        return [t for part in self.parts for t in part.types]

    def streaming(self) -> IndependentReductions:
        """Return the form for long rows, which keeps more in registers to need fewer instructions."""
        extremes = ("arith.maximumf", "arith.minimumf")
        parts = [
            _Extreme(part.operation, part.added, part.total_argument, part.result)
            if part.operation in extremes and cg.bits_of(part.added.type) >= 32
            else part
            for part in self.parts
        ]
        return IndependentReductions(self.fold, tuple(parts))

    def start(self, scope: LoopScope, lanes: int, offset: int = 0) -> Accumulators:
        """Implement `VectorReduction.start`."""
        return [v for part in self.parts for v in part.starts(lanes)]

    def _split(self, totals: Accumulators) -> list[Accumulators]:
        out, first = [], 0
        for part in self.parts:
            out.append(totals[first : first + len(part.types)])
            first += len(part.types)
        return out

    def values(self, scope: LoopScope, lanes: int) -> list[list[Value]]:
        """Return the values that one iteration combines, those of each part together."""
        body = scope.body(self.fold, lanes)
        wanted = [value for part in self.parts for value in part.wanted]
        found = iter(body.run(scope.given(self.fold, lanes), wanted))
        own = [[next(found) for _ in part.wanted] for part in self.parts]
        return [
            [Value(arith.extui(cg.vector_of(lanes, part.types[0]), v.ssa)) for v in values] if part.is_pred else values
            for part, values in zip(self.parts, own, strict=True)
        ]

    def step(self, scope: LoopScope, totals: Accumulators) -> Accumulators:
        """Implement `VectorReduction.step`."""
        values, kept = self.values(scope, scope.lanes), self._split(totals)
        made = [v for part, t, x in zip(self.parts, kept, values, strict=True) for v in part.add(t, x)]
        return select_active(scope, made, totals)

    def join(self, a: Accumulators, b: Accumulators) -> Accumulators:
        """Implement `VectorReduction.join`."""
        pairs = zip(self.parts, self._split(a), self._split(b), strict=True)
        return [v for part, x, y in pairs for v in part.join(x, y)]

    def across(self, scope: LoopScope, totals: Accumulators) -> Accumulators:
        """Implement `VectorReduction.across`."""
        while totals[0].lanes:
            half = totals[0].lanes // 2
            if not half:
                return [cg.extract(v, 0) for v in totals]
            low = [_lanes(v, 0, half) for v in totals]
            totals = self.join(low, [_lanes(v, half, half) for v in totals])
        return totals

    def finish(self, scope: LoopScope, totals: Accumulators) -> list[Value]:
        """Implement `VectorReduction.finish`."""
        lanes = totals[0].lanes
        starts = dict(zip(accumulators_of(self.fold), initial_values_of(self.fold, scope), strict=True))
        results = []
        for part, kept in zip(self.parts, self._split(totals), strict=True):
            given = starts | dict(zip(part.wanted, part.total(kept), strict=True))
            results += scope.body(self.fold, lanes).run(given, [part.result])
        return results


def _lanes(value: Value, first: int, count: int) -> Value:
    """Extract a range of lanes; one lane as a scalar."""
    if count == 1:
        return cg.extract(value, first)
    return cg.shuffle(value, value, range(first, first + count))


def select_active(scope: LoopScope, made: Accumulators, before: Accumulators) -> Accumulators:
    """Select the new accumulators in active lanes, the old ones in the others."""
    if scope.count is None or not scope.lanes:
        return made
    guard = cg.mask(scope.lanes, scope.count)
    return [cg.select(guard, a, b) for a, b in zip(made, before, strict=True)]


def _match_one(fold: Reduction, number: int) -> _One | None:
    """Match the single combiner of accumulator `number`, or return None."""
    total, result = accumulators_of(fold)[number], terminator_of(fold.block).operands[number]
    touched = _touched(fold, [total])
    operation = defining(_unwrapped(result, _WRAPPING, touched))
    if operation is None or operation.name not in _COMBINERS or len(operation.operands) != 2:
        return None
    for added, rest in (operation.operands, reversed(list(operation.operands))):
        inner = _unwrapped(rest, _UNWRAPPING, touched)
        if inner == total and added not in _touched(fold, accumulators_of(fold)):
            return _One(operation.name, added, total, result)
    return None


def _match_complex(fold: Reduction, number: int) -> _ComplexSum | None:
    """Match a sum of complex numbers, which the body adds by parts, or return None."""
    total, result = accumulators_of(fold)[number], terminator_of(fold.block).operands[number]
    maker, touched, added = defining(result), _touched(fold, accumulators_of(fold)), []
    if maker is None or maker.name != "complex.create":
        return None
    for name, value in zip(("complex.re", "complex.im"), maker.operands, strict=True):
        addition = defining(value)
        if addition is None or addition.name != "arith.addf":
            return None
        own = [v for v in addition.operands if (op := defining(v)) and op.name == name and op.operands[0] == total]
        others = [v for v in addition.operands if v not in touched]
        if len(own) != 1 or len(others) != 1:
            return None
        added += others
    return _ComplexSum("arith.addf", added[0], total, result, added[1])


def _unwrapped(value: ir.Value, names: Sequence[str], touched: set[ir.Value]) -> ir.Value:
    """Look through operations with one varying operand to the value behind them."""
    maker = defining(value)
    while maker is not None and maker.name in names:
        varying = [v for v in maker.operands if v in touched]
        constants = [v for v in maker.operands if v not in touched]
        if len(varying) != 1 or any(constant_attribute(v) is None for v in constants):
            break
        value = varying[0]
        maker = defining(value)
    return value


def _touched(fold: Reduction, roots: Sequence[ir.Value]) -> set[ir.Value]:
    """Return the values of the body that depend on `roots`."""
    found = set(roots)
    for view in fold.block.operations:
        if any(v in found for v in view.operation.operands):
            found.update(view.operation.results)
    return found


# --- argmax and argmin -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ArgReduction:
    """argmax or argmin: the best value of a loop and the first index that has it; a NaN is better than any number.

    The accumulators are a value and the index of the place in the loop, without the number of the lane.
    """

    fold: Reduction
    selection: ArgSelection
    counter: Map
    loop: int

    @property
    def types(self) -> list[ir.Type]:
        """See `VectorReduction.types`."""
        return [self.selection.type, ir.IntegerType.get_signless(32)]

    def start(self, scope: LoopScope, lanes: int, offset: int = 0) -> Accumulators:
        """Implement `VectorReduction.start`."""
        values, places = self.types
        worst = cg.constant(self.selection.worst(), cg.vector_of(lanes, values))
        return [worst, cg.constant(offset, cg.vector_of(lanes, places))]

    def step(self, scope: LoopScope, totals: Accumulators) -> Accumulators:
        """Implement `VectorReduction.step`."""
        found = self.selection.widened(cg.splat(scope.value(self.fold.operands[self.selection.value]), scope.lanes))
        place = cg.splat(cg.cast_index(cg.index(scope.at(self.loop)), self.types[1]), scope.lanes)
        take = self.selection.better(found, totals[0])
        made = [cg.select(take, found, totals[0]), cg.select(take, place, totals[1])]
        return select_active(scope, made, totals)

    def join(self, a: Accumulators, b: Accumulators) -> Accumulators:
        """Implement `VectorReduction.join`."""
        earlier = b[1].lt(a[1])
        take = self.selection.better(b[0], a[0]) | (self.selection.equal(b[0], a[0]) & earlier)
        return [cg.select(take, b[0], a[0]), cg.select(take, b[1], a[1])]

    def across(self, scope: LoopScope, totals: Accumulators) -> Accumulators:
        """Implement `VectorReduction.across`."""
        lanes = totals[0].lanes
        if not lanes:
            return totals
        totals = [totals[0], totals[1] + counted_from(cg.constant(0, self.types[1]), lanes)]
        while lanes > 1:
            lanes //= 2
            totals = self.join([_lanes(v, 0, lanes) for v in totals], [_lanes(v, lanes, lanes) for v in totals])
        return totals

    def finish(self, scope: LoopScope, totals: Accumulators) -> list[Value]:
        """Implement `VectorReduction.finish`. The body itself combines the accumulator with the initial value."""
        lanes, place = totals[0].lanes, totals[1]
        (number,) = VectorBody(self.counter.block, lanes, lambda _: place, scope.argument).run({})
        given = dict(zip(accumulators_of(self.fold), initial_values_of(self.fold, scope), strict=True))
        arguments = list(self.fold.block.arguments)
        given[arguments[self.selection.value]] = self.selection.narrowed(totals[0])
        given[arguments[1 - self.selection.value]] = number
        return scope.body(self.fold, lanes).run(given)


def _match_arg(fold: Reduction) -> ArgReduction | None:
    selection = match_arg_selection(fold)
    if selection is None or len(fold.reduced) != 1:
        return None
    (dim,) = fold.reduced
    counter, _ = fold.operands[1 - selection.value]
    if not isinstance(counter, Map) or isinstance(counter, Reduction) or list(counter.indices.values()) != [dim]:
        return None
    names = [op.operation.name for op in counter.block.operations]
    if names != ["linalg.index", "arith.index_cast", "linalg.yield"]:
        return None
    return ArgReduction(fold, selection, counter, dim)


# --- any other body ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SequentialReduction:
    """The body as it stands, sequentially, one index after the other."""

    fold: Reduction

    @property
    def types(self) -> list[ir.Type]:
        """See `VectorReduction.types`."""
        return self.fold.types

    def start(self, scope: LoopScope, lanes: int, offset: int = 0) -> Accumulators:
        """Implement `VectorReduction.start`."""
        return [cg.splat(v, lanes) for v in initial_values_of(self.fold, scope)]

    def step(self, scope: LoopScope, totals: Accumulators) -> Accumulators:
        """Implement `VectorReduction.step`."""
        given = scope.given(self.fold, scope.lanes)
        given.update(zip(accumulators_of(self.fold), totals, strict=True))
        return select_active(scope, scope.body(self.fold, scope.lanes).run(given), totals)

    def join(self, a: Accumulators, b: Accumulators) -> Accumulators:
        """Implement `VectorReduction.join`."""
        raise NotImplementedError("totals of a body that is not understood cannot be joined")

    def across(self, scope: LoopScope, totals: Accumulators) -> Accumulators:
        """Implement `VectorReduction.across`."""
        assert not totals[0].lanes
        return totals

    def finish(self, scope: LoopScope, totals: Accumulators) -> list[Value]:
        """Implement `VectorReduction.finish`."""
        return totals


def match_reduction(fold: Reduction) -> IndependentReductions | ArgReduction | SequentialReduction:
    """Match the best form of a reduction."""
    parts = [_match_one(fold, number) or _match_complex(fold, number) for number in range(len(fold.starts))]
    known = tuple(part for part in parts if part is not None)
    if len(known) == len(parts):
        return IndependentReductions(fold, known)
    return _match_arg(fold) or SequentialReduction(fold)
