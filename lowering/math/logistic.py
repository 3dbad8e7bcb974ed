"""The logistic function between lowering and its expansion: four operations, of which the quotient is marked.

1 / (1 + exp(-x)) as they stand is what passes that know nothing of the mark compute, and what vectorizers clone.
Rounded one by one their errors add up: the four are expanded as one function (`logistic_of` in `exponential.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import mlir.ir as ir

from stablexla.lowering.math.values import Scope
from stablexla.lowering.support.operations import constant_attribute, defining

LOGISTIC = "stablexla.logistic"
"""The mark, and the name by which the four are one function."""
QUOTIENT = "arith.divf"


def marked_logistic(x: ir.Value) -> ir.Value:
    """Emit 1 / (1 + exp(-x)) of an f32 or f64, or a vector of them, with the mark."""
    one = Scope().format_of(x.type).real(1.0).ssa
    power = _operation("math.exp", [_operation("arith.negf", [x])])
    return _operation(QUOTIENT, [one, _operation("arith.addf", [one, power])], LOGISTIC)


def _operation(name: str, operands: Sequence[ir.Value], *marks: str) -> ir.Value:
    attributes = {mark: ir.UnitAttr.get() for mark in marks}
    return ir.Operation.create(name, results=[operands[0].type], operands=operands, attributes=attributes).result


def argument_of(quotient: ir.Operation) -> ir.Value | None:
    """Return x of a marked quotient, where its operands are what they were made as; None for others."""
    chain = chain_of(quotient)
    return None if chain is None else chain[-1].operands[0]


def chain_of(quotient: ir.Operation) -> list[ir.Operation] | None:
    """Return the sum, the power and the negation before a marked quotient; None for other operations."""
    if LOGISTIC not in quotient.attributes or not _is_one(quotient.operands[0]):
        return None
    total = defining(quotient.operands[1])
    if total is None or total.name != "arith.addf":
        return None
    others = [value for value in total.operands if not _is_one(value)]
    power = defining(others[0]) if len(others) == 1 else None
    negated = defining(power.operands[0]) if power is not None and power.name == "math.exp" else None
    return [total, power, negated] if negated is not None and negated.name == "arith.negf" else None


def _is_one(value: ir.Value) -> bool:
    attribute = constant_attribute(value)
    if isinstance(attribute, ir.DenseElementsAttr) and attribute.is_splat:
        attribute = attribute.get_splat_value()
    return isinstance(attribute, ir.FloatAttr) and attribute.value == 1.0


def function_of(operation: ir.Operation) -> str:
    """Return the name of the function that an operation stands for: its own, but for a marked quotient."""
    is_whole = operation.name == QUOTIENT and chain_of(operation) is not None
    return LOGISTIC if is_whole else operation.name


def names_of(operations: Iterable[ir.Operation]) -> list[str]:
    """Return the names of operations of a body, those of a logistic function as one."""
    operations = list(operations)
    inside = {op for each in operations if each.name == QUOTIENT for op in chain_of(each) or ()}
    return [function_of(op) for op in operations if op not in inside]
