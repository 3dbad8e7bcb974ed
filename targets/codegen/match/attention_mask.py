"""The mask of an attention: which scores it replaces, and whether any score of a block counts.

A mask is a select between a score and something else. Where its condition is computed from indices and constants alone,
as of causal masks and windows, its bounds over a block tell whether the block's scores are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import constant_attribute, defining, terminator_of
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.loop_nest import Load, LoopNest, Map, Reduction, Ref, Scalar


@dataclass(frozen=True)
class ScoreMask:
    """A select in the body of `node`: scores count where `condition` is `keeps`."""

    node: Map
    condition: ir.Value
    keeps: bool


def masks_of(nest: LoopNest, scores: Load) -> list[ScoreMask]:
    """Return the selects that every way from the scores to a sum or a result leads through; none if one has none."""
    masks: list[ScoreMask] = []
    read: set[Ref] = {(scores, 0)}
    for node in nest.maps:
        arguments = {v for v, ref in zip(node.block.arguments, node.operands, strict=False) if ref in read}
        if not arguments:
            continue
        if isinstance(node, Reduction):
            return []
        values = _unmasked(node, arguments, masks)
        read.update((node, n) for n, v in enumerate(terminator_of(node.block).operands) if v in values)
    return [] if any(place.ref in read for place in nest.stores) else masks


def _unmasked(node: Map, values: set[ir.Value], masks: list[ScoreMask]) -> set[ir.Value]:
    """Return the values of a body that are computed from `values` without a mask; add its masks to the list."""
    found = set(values)
    for view in node.block.operations:
        op = view.operation
        uses = [v in found for v in op.operands]
        if op.name == "arith.select" and not uses[0] and uses[1] != uses[2]:
            masks.append(ScoreMask(node, op.operands[0], keeps=uses[1]))
        elif any(uses) or len(op.regions):
            found.update(op.results)
    return found


@dataclass(frozen=True)
class Bounds:
    """The least and the largest number that an integer can be, 0 and 1 for truths, and a limit of its size."""

    low: Value
    high: Value
    size: int


class MaskBounds:
    """Emits whether masks may keep a score, where each loop's index is between two bounds."""

    def __init__(self, nest: LoopNest, ranges: Mapping[int, tuple[Value, Value]]) -> None:
        self._nest, self._ranges = nest, ranges
        self._known: dict[tuple[int, ir.Value], Bounds | None] = {}

    def may_keep(self, mask: ScoreMask) -> Value | None:
        """Emit whether the mask may keep a score; None if its condition is not computed from indices alone."""
        self._known = {}  # what was emitted for another mask may be in a branch
        found = self._value(mask.node, mask.condition)
        if found is None:
            return None
        return found.high.ne(0) if mask.keeps else found.low.eq(0)

    def _of(self, ref: Ref) -> Bounds | None:
        node, number = ref
        if isinstance(node, Scalar):
            return _constant(node.attribute)
        if isinstance(node, Map) and not isinstance(node, Reduction):
            return self._value(node, terminator_of(node.block).operands[number])
        return None

    def _value(self, node: Map, value: ir.Value) -> Bounds | None:
        """Return the bounds of a value in a node's body; they are emitted once."""
        key = (id(node), value)
        if key not in self._known:
            self._known[key] = self._computed(node, value)
        return self._known[key]

    def _computed(self, node: Map, value: ir.Value) -> Bounds | None:
        op = defining(value)
        if op is None:
            arguments = list(node.block.arguments)
            number = arguments.index(value) if value in arguments else len(node.operands)
            return self._of(node.operands[number]) if number < len(node.operands) else None
        if op.name == "arith.constant":
            return _constant(constant_attribute(value))
        if op.name == "linalg.index":
            return self._index(node.indices[ir.IntegerAttr(op.attributes["dim"]).value])
        if op.name not in _RULES:
            return None
        operands = [self._value(node, v) for v in op.operands]
        found = [bounds for bounds in operands if bounds is not None]
        made = _RULES[op.name](op, *found) if len(found) == len(operands) else None
        return made if made is not None and made.size < _largest(value.type) else None

    def _index(self, loop: int | None) -> Bounds:
        if loop is None:
            return Bounds(cg.index(0), cg.index(0), 0)
        return Bounds(*self._ranges[loop], self._nest.extents[loop] - 1)


def _largest(type_: ir.Type) -> int:
    """Return the size from which numbers of a type are not told apart: no result may wrap around."""
    width = 64 if isinstance(type_, ir.IndexType) else ir.IntegerType(type_).width
    # truths are 0 or 1 in one bit, and in a byte
    return 2 if width == 1 else 1 << (width - 1)


def _constant(attribute: ir.Attribute | None) -> Bounds | None:
    if not isinstance(attribute, ir.BoolAttr | ir.IntegerAttr):
        return None
    number = int(attribute.value)
    if attribute.type == ir.IntegerType.get_signless(1):
        number = abs(number)  # true may be -1
    return Bounds(cg.index(number), cg.index(number), abs(number))


def _is_truth(value: ir.Value) -> bool:
    """Whether a value is a truth: in one bit, which is no signed number here."""
    return bool(value.type == ir.IntegerType.get_signless(1))


def _same(op: ir.Operation, a: Bounds) -> Bounds | None:
    """Return the bounds of a signed conversion, which are those of its operand."""
    return None if _is_truth(op.operands[0]) or _is_truth(op.results[0]) else a


def _extended(op: ir.Operation, a: Bounds) -> Bounds | None:
    """Return the bounds of an unsigned extension: of a truth, for other numbers may be negative."""
    return a if _is_truth(op.operands[0]) else None


def _sum(op: ir.Operation, a: Bounds, b: Bounds) -> Bounds:
    return Bounds(a.low + b.low, a.high + b.high, a.size + b.size)


def _difference(op: ir.Operation, a: Bounds, b: Bounds) -> Bounds:
    return Bounds(a.low - b.high, a.high - b.low, a.size + b.size)


def _on_truths(join: Callable[[Value, Value], Value]) -> Callable[[ir.Operation, Bounds, Bounds], Bounds | None]:
    def rule(op: ir.Operation, a: Bounds, b: Bounds) -> Bounds | None:
        return Bounds(join(a.low, b.low), join(a.high, b.high), 1) if _is_truth(op.results[0]) else None

    return rule


def _selected(op: ir.Operation, a: Bounds, b: Bounds, c: Bounds) -> Bounds:
    """Return the bounds of one side where the condition is known, else of both."""

    def one(first: Value, second: Value, either: Value) -> Value:
        return cg.select(a.low.ne(0), first, cg.select(a.high.eq(0), second, either))

    low, high = cg.minimum(b.low, c.low), cg.maximum(b.high, c.high)
    return Bounds(one(b.low, c.low, low), one(b.high, c.high, high), max(b.size, c.size))


# For each predicate of arith.cmpi, in MLIR's order: whether it holds for all numbers within bounds, and whether it may.
_Test = Callable[[Bounds, Bounds], Value]
_COMPARISONS: tuple[tuple[_Test, _Test], ...] = (
    (lambda a, b: a.low.eq(b.high) & a.high.eq(b.low), lambda a, b: a.low.le(b.high) & b.low.le(a.high)),
    (lambda a, b: a.high.lt(b.low) | b.high.lt(a.low), lambda a, b: a.low.ne(b.high) | a.high.ne(b.low)),
    (lambda a, b: a.high.lt(b.low), lambda a, b: a.low.lt(b.high)),
    (lambda a, b: a.high.le(b.low), lambda a, b: a.low.le(b.high)),
    (lambda a, b: a.low.gt(b.high), lambda a, b: a.high.gt(b.low)),
    (lambda a, b: a.low.ge(b.high), lambda a, b: a.high.ge(b.low)),
)


def _compared(op: ir.Operation, a: Bounds, b: Bounds) -> Bounds | None:
    """Return whether a comparison always holds, and whether it may; None for unsigned ones, and an order of truths."""
    number = ir.IntegerAttr(op.attributes["predicate"]).value
    if number >= (2 if _is_truth(op.operands[0]) else len(_COMPARISONS)):
        return None
    zero, one = cg.index(0), cg.index(1)
    always, may = (cg.select(test(a, b), one, zero) for test in _COMPARISONS[number])
    return Bounds(always, may, 1)


_RULES: dict[str, Callable[..., Bounds | None]] = {
    "arith.addi": _sum,
    "arith.andi": _on_truths(cg.minimum),
    "arith.cmpi": _compared,
    "arith.extsi": _same,
    "arith.extui": _extended,
    "arith.index_cast": _same,
    "arith.ori": _on_truths(cg.maximum),
    "arith.select": _selected,
    "arith.subi": _difference,
    "arith.trunci": _same,
}
