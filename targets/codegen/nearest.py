"""Conversion of floats to the nearest integers by one instruction, where a program rounds, bounds and converts."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.lowering.support.operations import constant_attribute, defining
from stablexla.targets.codegen.emission import Value, vector_of

_UNORDERED = int(arith.CmpFPredicate.UNO)


def to_nearest(operation: ir.Operation, value: Value, lanes: int) -> Value | None:
    """Convert f32 that was rounded, and then held between integers, in one instruction: held first, then rounded.

    None for scalars, and for what comes about in another way.
    """
    if not lanes:
        return None
    held, x = [], value.ssa
    while (choice := defining(x)) is not None and choice.name == "arith.select":
        comparison = defining(choice.operands[0])
        if comparison is None or comparison.name != "arith.cmpf":
            return None
        is_bound = list(comparison.operands) == list(choice.operands)[1:]
        held.append((comparison, choice, is_bound))
        x = choice.operands[1 if is_bound else 2]
    is_word = str(operation.results[0].type) == "i32" and str(operation.operands[0].type) == "f32"
    if choice is None or choice.name != "math.roundeven" or not is_word or not all(_holds(*each, x) for each in held):
        return None
    before = choice.operands[0]
    made = before
    for comparison, choice, is_bound in reversed(held):
        compared = [made, comparison.operands[1]] if is_bound else [before, before]
        kept = [made, choice.operands[2]] if is_bound else [choice.operands[1], made]
        condition = arith.cmpf(comparison.attributes["predicate"], *compared)
        made = arith.select(condition, *kept)
    type_ = vector_of(lanes, operation.results[0].type)
    return Value(ir.Operation.create("llvm.intr.lrint", results=[type_], operands=[made]).result)


def _holds(comparison: ir.Operation, choice: ir.Operation, is_bound: bool, rounded: ir.Value) -> bool:
    """Whether a choice is one between a number and an integer that bounds it, or 0 in the place of NaN."""
    other = constant_attribute(choice.operands[2 if is_bound else 1])
    if not isinstance(other, ir.DenseFPElementsAttr) or not other.is_splat:
        return False
    number = ir.FloatAttr(other.get_splat_value()).value
    if is_bound:
        return bool(number % 1 == 0)
    is_nan = list(comparison.operands) == [rounded, rounded] and comparison.attributes["predicate"].value == _UNORDERED
    return bool(is_nan and number == 0)
