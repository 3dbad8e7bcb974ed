"""Guards of integer divisions by a possible zero, so that StableHLO's constant folders never divide by it.

They use the processor's division, which traps.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.dialects.hlo import compare, constant, emit, select
from stablexla.targets.stablehlo.imports.shapes.values import constant_of
from stablexla.targets.stablehlo.inlining import operations_of

_DONE = "stablexla.total"


def make_divisions_total(module: ir.Module) -> None:
    """Guard integer divisions: x / 0 becomes -1, and x % 0 becomes x, as in XLA."""
    for name in ("stablehlo.divide", "stablehlo.remainder"):
        for op in operations_of(module, name):
            if _DONE not in op.attributes and _may_fold(op):
                _make_total(op)


def _may_fold(op: Any) -> bool:
    type_ = op.results[0].type
    if not isinstance(type_.element_type, ir.IntegerType) or not type_.has_static_shape:
        return False
    divisor = constant_of(op.operands[1])
    return divisor is None or not divisor.all()


def _make_total(op: Any) -> None:
    """Replace divisor 0 by 1, and select the defined result there."""
    lhs, rhs = op.operands
    type_ = rhs.type
    with op.location, ir.InsertionPoint(op):
        zero, one = constant(type_, "0"), constant(type_, "1")
        is_zero = compare(rhs, zero, "EQ", kind=None)
        divisor = select(is_zero, one, rhs)
        done = {_DONE: ir.UnitAttr.get()}
        quotient = emit(op.name, [lhs, divisor], [op.results[0].type], done)
        instead = lhs
        if op.name == "stablehlo.divide":
            ones = "-1" if not type_.element_type.is_unsigned else str(2**type_.element_type.width - 1)
            instead = constant(type_, ones)
        total = select(is_zero, instead, quotient)
    op.results[0].replace_all_uses_with(total)
    erase(op)
