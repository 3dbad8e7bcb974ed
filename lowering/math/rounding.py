"""Rounding half away from zero, and the classification of numbers (isnan, isinf ...)."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.math.registry import expands, expands_operation, is_real
from stablexla.lowering.math.values import Real, Scope, select


@expands("math.round")
def round_half_away(x: Real) -> Real:
    """The nearest integer, halves away from zero (LLVM has an instruction for halves to even only)."""
    whole = x.trunc()
    step = x.format.real(1.0).with_sign_of(x)
    return select(abs(x - whole) >= 0.5, whole + step, whole)


@expands_operation("math.isnan", "math.isinf", "math.isfinite", "math.isnormal")
def classify(scope: Scope, operation: ir.Operation) -> list[ir.Value] | None:
    """Expand a classification to comparisons of the absolute value."""
    operand = operation.operands[0]
    if not is_real(operand.type):
        return None
    x = Real(scope.format_of(operand.type), operand)
    return [_CLASSES[operation.name](x).ssa]


_CLASSES = {
    "math.isnan": lambda x: x.is_nan(),
    "math.isinf": lambda x: abs(x).equals(float("inf")),
    "math.isfinite": lambda x: abs(x) < float("inf"),
    "math.isnormal": lambda x: (abs(x) < float("inf")) & (abs(x) >= x.format.layout.smallest_normal),
}
