"""The logistic function between lowering and its expansion: four operations, of which the quotient is marked.

1 / (1 + exp(-x)) as they stand is right where they are folded, and what vectorizers clone. Rounded one by one their
errors add up, so that the four are expanded as one function (`logistic_of` in `exponential.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir

from stablexla.lowering.math.values import Scope
from stablexla.lowering.support.operations import defining

LOGISTIC = "stablexla.logistic"
"""The mark."""
QUOTIENT = "arith.divf"
OPERATIONS = frozenset({QUOTIENT, "arith.addf", "math.exp", "arith.negf"})


def logistic(x: ir.Value) -> ir.Value:
    """Emit 1 / (1 + exp(-x)) of an f32 or f64, or a vector of them, with the mark."""
    one = Scope().format_of(x.type).real(1.0).ssa
    power = _operation("math.exp", [_operation("arith.negf", [x])])
    return _operation(QUOTIENT, [one, _operation("arith.addf", [one, power])], LOGISTIC)


def _operation(name: str, operands: Sequence[ir.Value], *marks: str) -> ir.Value:
    attributes = {mark: ir.UnitAttr.get() for mark in marks}
    return ir.Operation.create(name, results=[operands[0].type], operands=operands, attributes=attributes).result


def argument_of(quotient: ir.Operation) -> ir.Value | None:
    """Return x of a marked quotient, where its operands are what they were made as; None for others."""
    if LOGISTIC not in quotient.attributes:
        return None
    total = defining(quotient.operands[1])
    powers = [] if total is None or total.name != "arith.addf" else [defining(value) for value in total.operands]
    for power in powers:
        if power is not None and power.name == "math.exp":
            negated = defining(power.operands[0])
            return negated.operands[0] if negated is not None and negated.name == "arith.negf" else None
    return None
