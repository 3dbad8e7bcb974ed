"""Arithmetic on halves by instructions on halves (FEAT_FP16, `asimdhp`): twice the lanes of f32, the same numbers.

Lowering rules compute an operation on f16 in f32 and round it. Rounded to f16, the result of one operation in f32 is
that of the operation on f16: f32 has more than twice the digits, so that sums, products, quotients and square roots are
rounded as if once (Figueroa 1995), and the others are exact. Chains are rounded after each operation either way;
kernels that hand on unrounded values (`excess_precision`) stay in f32.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
import numpy as np

from stablexla.lowering.support.operations import constant_attribute, defining
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.excess_precision import is_allowed
from stablexla.targets.codegen.machine import CpuTarget

_FEATURE = "asimdhp"
_ROUNDED = frozenset(
    f"arith.{name}" for name in ("addf", "subf", "mulf", "divf", "maximumf", "minimumf", "negf")
) | frozenset(f"math.{name}" for name in ("absf", "sqrt", "ceil", "floor", "trunc", "roundeven", "copysign"))
_COMPARISON, _ROUNDING = "arith.cmpf", "arith.truncf"


def on_halves(operation: ir.Operation, operands: Sequence[Value], lanes: int) -> Value | None:
    """Emit an operation on f16 that was, or is to be, computed in f32 otherwise; None for others, or other processors.

    `operation` is the rounding of one, whose operand has been emitted in f32, or a comparison of widened halves.
    """
    if operation.name not in (_COMPARISON, _ROUNDING) or not cg.has_feature(_FEATURE) or is_allowed():
        return None
    done = _done_in_f32(operation, operands[0].ssa)
    if done is None:
        return None
    inputs = operands if done is operation else [Value(operand) for operand in done.operands]
    halves = [half for value in inputs if (half := _half(value.ssa)) is not None]
    if len(halves) < len(inputs):
        return None
    made = ir.Operation.create(
        done.name,
        results=[cg.vector_of(lanes, operation.results[0].type)],
        operands=halves,
        attributes=dict(done.attributes.items()),
    )
    return Value(made.result)


def are_on_halves(operations: Sequence[ir.Operation], target: CpuTarget) -> bool:
    """Whether all of a body is on halves: none of its values in f32 is left, and the others have 16 bits at most."""
    if _FEATURE not in target.features or is_allowed():
        return False
    narrowed: set[ir.Operation] = set()
    for operation in operations:
        done = _done_in_f32(operation, operation.operands[0]) if len(operation.operands) else None
        if done is not None and all(_is_half(operand) for operand in done.operands):
            narrowed.update((done, operation))
    for operation in operations:
        values = [v for v in operation.results if not isinstance(v.type, ir.IndexType)]
        wide = any(cg.lane_bits(value.type) > cg.bits_of(ir.F16Type.get()) for value in values)
        if not wide or operation.name == "arith.constant":
            continue
        users = {use.owner for value in values for use in value.uses}
        if operation.name == "arith.extf" and _is_half(operation.results[0]):
            if not users <= narrowed:
                return False
        elif operation not in narrowed or not all(user in narrowed and user.name == _ROUNDING for user in users):
            return False
    return True


def _done_in_f32(operation: ir.Operation, operand: ir.Value) -> ir.Operation | None:
    """Return the operation in f32 that an operation rounds to f16, or itself if it compares; None for others."""
    if operation.name == _COMPARISON:
        return operation
    if operation.name != _ROUNDING or not isinstance(cg.element_of(operation.results[0].type), ir.F16Type):
        return None
    done = defining(operand)
    return done if done is not None and done.name in _ROUNDED else None


def _is_half(value: ir.Value) -> bool:
    """Whether an f32 is a widened f16, or a constant that is one."""
    widening = defining(value)
    if widening is not None and widening.name == "arith.extf":
        return isinstance(cg.element_of(widening.operands[0].type), ir.F16Type)
    return _number(value) is not None


def _half(value: ir.Value) -> ir.Value | None:
    """Return the f16 of `_is_half`, emitted; None for other values."""
    if not _is_half(value):
        return None
    number, f16 = _number(value), ir.F16Type.get()
    if number is None:
        return value.owner.operands[0]
    return cg.constant(number, cg.vector_of(Value(value).lanes, f16)).ssa


def _number(value: ir.Value) -> float | None:
    """Return the number of a constant f32, scalar or splat, that f16 has too."""
    attribute = constant_attribute(value)
    if isinstance(attribute, ir.DenseFPElementsAttr) and attribute.is_splat:
        attribute = attribute.get_splat_value()
    if not isinstance(attribute, ir.FloatAttr) or not isinstance(attribute.type, ir.F32Type):
        return None
    with np.errstate(over="ignore"):
        return attribute.value if float(np.float16(attribute.value)) == attribute.value else None
