"""Online softmax (FlashAttention): running row maximum and exp-sum, rescaled when the maximum grows.

The powers are the program's own expression, masks and roundings included: its operations are cloned with the running
maximum in the place of the row's.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import mlir.ir as ir
from mlir.dialects import math, vector

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.codegen.kernel import KernelArguments
from stablexla.targets.codegen.loop_nest import Map, Reduction, Ref, Scalar, reachable
from stablexla.targets.codegen.match.attention import Attention
from stablexla.targets.codegen.match.attention_rows import selects_zero
from stablexla.targets.codegen.reductions import IndependentReductions, VectorReduction
from stablexla.targets.codegen.scope import LoopScope
from stablexla.targets.codegen.vector_loops import Totals
from stablexla.targets.gpu.ptx.inline_ptx import inline_ptx
from stablexla.targets.gpu.threads import reduce_warp

LOG2_E = 1.4426950408889634
_CONVERSIONS = frozenset(["arith.truncf", "arith.extf"])


@dataclass(frozen=True)
class SoftmaxMatch:
    """A row function matched as a softmax.

    Attributes:
        largest, total: its max and exp-sum reductions.
        below: the subtrahend of a score before the exponential: the maximum, or a function of it per row.
        above: the minuend.
        power: the node of the exponential itself.
    """

    largest: IndependentReductions
    total: IndependentReductions
    below: Ref
    above: Ref
    power: Map


def match_softmax(attention: Attention) -> SoftmaxMatch | None:
    """Match the rows' function as a softmax; None where partial rows cannot be combined online."""
    rows = attention.rows
    passes = rows.chain.passes
    if rows.total is None or len(passes) != 2 or any(len(p.foldings) != 1 for p in passes) or passes[0].stores:
        return None
    (largest,), (total,) = passes[0].foldings, passes[1].foldings
    if not _is(largest, "arith.maximumf") or not _is(total, "arith.addf"):
        return None
    assert isinstance(largest, IndependentReductions)
    assert isinstance(total, IndependentReductions)
    inner = rows.chain.inner
    found = [
        (node, ref)
        for node in reachable([rows.weights.ref])
        if isinstance(node, Map) and inner in node.deps
        for ref in node.operands
        if inner not in ref[0].deps and largest.fold in reachable([ref])
    ]
    if len(found) != 1:
        return None
    ((node, below),) = found
    scaled = rows.weights.ref, *total.fold.operands
    above = _minuend(node, below)
    if above is None or not all(_is_power(ref, node) for ref in scaled):
        return None
    powers = [n for n in reachable([rows.weights.ref]) if isinstance(n, Map) and "math.exp" in _names(n)[-1:]]
    power = next(n for n in powers if n is node or (node, 0) in n.operands)
    return SoftmaxMatch(largest, total, below, above, power)


def _is(folding: VectorReduction, operation: str) -> bool:
    return isinstance(folding, IndependentReductions) and [p.operation for p in folding.parts] == [operation]


def _names(node: Map) -> list[str]:
    return [op.operation.name for op in node.block.operations if op.operation.name != "arith.constant"][:-1]


def _minuend(node: Map, below: Ref) -> Ref | None:
    """Return the minuend of a node that begins with a subtraction of `below`."""
    first = next(op.operation for op in node.block.operations if op.operation.name != "arith.constant")
    arguments = list(node.block.arguments)
    if first.name != "arith.subf" or any(v not in arguments for v in first.operands):
        return None
    above, other = (node.operands[arguments.index(v)] for v in first.operands)
    return above if other == below else None


def _is_power(ref: Ref, subtraction: Map) -> bool:
    """Return whether a value is the exponential of the difference, possibly rounded or masked to 0."""
    node = ref[0]
    if not isinstance(node, Map) or isinstance(node, Reduction):
        return False
    names = _names(node)
    if node is subtraction:
        return names == ["arith.subf", "math.exp"]
    before = [r for r in node.operands if subtraction in reachable([r])]
    if len(before) != 1:
        return False
    if names == ["math.exp"]:
        return before[0][0] is subtraction and _names(subtraction) == ["arith.subf"]
    if names == ["arith.select"]:
        return _is_power(before[0], subtraction) and selects_zero(node.block, lambda n: _constant_of(node.operands[n]))
    return bool(names) and set(names) <= _CONVERSIONS and _is_power(before[0], subtraction)


def _constant_of(ref: Ref) -> ir.Attribute | None:
    return ref[0].attribute if isinstance(ref[0], Scalar) else None


@dataclass(frozen=True)
class ScoreTile:
    """Scores of a row in one vector: the first one's key, the scores, and the mask of keys that exist."""

    key: Index
    scores: Value
    inside: Value | None


@dataclass(frozen=True)
class SoftmaxStep:
    """Effect of a tile on a row: new running maximum and sum, the factor that rescales accumulators, and the powers."""

    largest: Totals
    total: Totals
    factor: Value
    powers: list[Value]


class OnlineSoftmax:
    """Online softmax over the rows of which a thread has parts.

    Args:
        threads: neighbouring threads that share a row.
        lanes: vector width of a part's scores; 0 for scalars.
        quick: uses the hardware's `ex2`, right to 22 bits: for powers that are rounded to fewer.
    """

    def __init__(
        self,
        attention: Attention,
        softmax: SoftmaxMatch,
        arguments: KernelArguments,
        threads: int,
        lanes: int,
        *,
        quick: bool = False,
    ) -> None:
        self.attention, self.softmax, self.threads, self.lanes = attention, softmax, threads, lanes
        self._power = _quick_power if quick else _power
        self._is_quick = quick
        rows = attention.rows
        inputs = [arguments.inputs[0 if n is None else n] for n in rows.inputs]
        self.top = LoopScope(KernelArguments(inputs, list(arguments.results) * 2, [], arguments.lo, arguments.hi))

    def start(self) -> list[Value]:
        """Return the identities: running maximum and sum of no scores."""
        return [*self.softmax.largest.start(self.top, 0), *self.softmax.total.start(self.top, self.lanes)]

    def step(self, at: dict[int, Index], before: Sequence[Value], parts: Sequence[ScoreTile]) -> SoftmaxStep:
        """Update the row at `at` by a tile's scores."""
        largest, total, inner = self.softmax.largest, self.softmax.total, self.attention.rows.chain.inner
        row, old = self.top.inside(at), self.top.inside(at)
        places = [row.inside({inner: part.key}, lane=inner, lanes=self.lanes) for part in parts]
        found = largest.start(row, self.lanes)
        for here, part in zip(places, parts, strict=True):
            here.put(self.attention.rows.scores, [part.scores])
            found = _where(part.inside, largest.step(here, found), found)
        found = reduce_warp(largest.across(row, found), largest.join, self.threads)
        now = largest.join([before[0]], found)
        below, is_lowest = self._below(old, [before[0]]), self._is_lowest(old, [before[0]])
        most = self._below(row, now)
        factor = cg.select(is_lowest, cg.constant(0.0, below.type), self._power(below - most))
        sums, powers = [before[1] * cg.splat(factor, self.lanes)], []
        for here, part in zip(places, parts, strict=True):
            if self._is_quick:
                above = here.value(self.softmax.above)
                here.put(self.softmax.power, [self._power(above - cg.splat(most, above.lanes))])
            sums = _where(part.inside, total.step(here, sums), sums)
            power = here.value(self.attention.rows.weights.ref)
            powers.append(_where(part.inside, [power], [cg.constant(0.0, power.type)])[0])
        return SoftmaxStep(now, sums, factor, powers)

    def finish(self, at: dict[int, Index], before: Sequence[Value]) -> Value:
        """Return the softmax denominator of a row."""
        row, total, rows = self.top.inside(at), self.softmax.total, self.attention.rows
        assert rows.total is not None
        self._below(row, [before[0]])
        parts = reduce_warp(total.across(row, [before[1]]), total.join, self.threads)
        row.put(total.fold, total.finish(row, parts))
        return row.value(rows.total.ref)

    def _is_lowest(self, row: LoopScope, totals: Totals) -> Value:
        (value,) = self.softmax.largest.finish(row, totals)
        return value.eq(-inf)

    def _below(self, row: LoopScope, totals: Totals) -> Value:
        """Define the running maximum in a row's scope. While all scores are -inf it counts as 0, so powers are 0."""
        (value,) = self.softmax.largest.finish(row, totals)
        row.put(self.softmax.largest.fold, [cg.select(value.eq(-inf), cg.constant(0.0, value.type), value)])
        return row.value(self.softmax.below)


def _power(x: Value) -> Value:
    """Return the exponential to full precision."""
    return Value(math.exp(x.ssa))


def _quick_power(x: Value) -> Value:
    """Return the exponential of f32 values by the instruction for powers of two (`ex2.approx`)."""
    scaled = x * LOG2_E
    text, f32 = "ex2.approx.ftz.f32 $0, $1;", [ir.F32Type.get()]
    lanes = [cg.extract(scaled, i) for i in range(scaled.lanes)] or [scaled]
    made = [inline_ptx(text, f32, [v], pure=True)[0] for v in lanes]
    return Value(vector.from_elements(x.type, [v.ssa for v in made])) if x.lanes else made[0]


def _where(inside: Value | None, yes: Totals, no: Totals) -> Totals:
    return yes if inside is None else [cg.select(inside, a, b) for a, b in zip(yes, no, strict=True)]
