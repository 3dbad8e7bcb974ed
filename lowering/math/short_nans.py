"""Analysis of NaN payloads: f32 values whose NaNs have 16 low zero bits round to bf16 without a NaN check.

Arithmetic returns the processor's own NaN, which is such a one, or an operand's. So values computed from bf16 alone
have no others, and a chain of operations that are each rounded to bf16 is a third shorter.
"""

from __future__ import annotations

from math import isnan

import mlir.ir as ir

from stablexla.lowering.support.operations import defining

DEEPEST = 48
SIGN, MAGNITUDE, LOW = 1 << 31, (1 << 31) - 1, (1 << 16) - 1
_ARITHMETIC = frozenset(
    [
        *("arith.addf", "arith.divf", "arith.maximumf", "arith.maxnumf", "arith.minimumf", "arith.minnumf"),
        *("arith.mulf", "arith.negf", "arith.subf", "math.absf", "math.copysign", "math.fma", "math.roundeven"),
        *("math.sqrt", "vector.broadcast", "vector.fma"),
    ]
)


def has_short_nans(value: ir.Value, depth: int = 0) -> bool:
    """Whether an f32, or every lane of a vector, is a number, or a NaN whose lower 16 bits are zero."""
    op = defining(value)
    if op is None or depth > DEEPEST:
        return False
    if op.name in _ARITHMETIC:
        return all(has_short_nans(operand, depth + 1) for operand in op.operands)
    if op.name == "arith.select":
        return all(has_short_nans(operand, depth + 1) for operand in list(op.operands)[1:])
    if op.name == "arith.constant":
        number = _number(op)
        return isinstance(number, float) and not isnan(number)
    if op.name == "arith.extf":
        return "bf16" in str(op.operands[0].type)
    if op.name == "arith.bitcast":
        return _bits_have_short_nans(op.operands[0], depth + 1)
    return op.name in ("arith.sitofp", "arith.uitofp")


def _bits_have_short_nans(value: ir.Value, depth: int) -> bool:
    """Whether the bit pattern of an f32 is that of a number, or of a NaN whose lower 16 bits are zero."""
    op = defining(value)
    if op is None or depth > DEEPEST:
        return False
    if op.name == "arith.bitcast":
        return has_short_nans(op.operands[0], depth + 1)
    if _is_low_zero(value, depth):
        return True
    if op.name == "arith.andi":
        return _constant(op.operands[1]) == MAGNITUDE and _bits_have_short_nans(op.operands[0], depth + 1)
    if op.name == "arith.ori":
        pairs = (tuple(op.operands), tuple(op.operands)[::-1])
        return any(_is_sign(sign) and _bits_have_short_nans(bits, depth + 1) for bits, sign in pairs)
    return False


def _is_low_zero(value: ir.Value, depth: int) -> bool:
    """Whether the lower 16 bits are zero."""
    op = defining(value)
    if op is None or depth > DEEPEST:
        return False
    if op.name == "arith.constant":
        number = _number(op)
        return isinstance(number, int) and not number & LOW
    if op.name == "arith.shli":
        by = _constant(op.operands[1])
        return by is not None and 16 <= by < 32
    if op.name in ("arith.addi", "arith.subi", "arith.ori"):
        return all(_is_low_zero(operand, depth + 1) for operand in op.operands)
    return op.name == "arith.andi" and any(_is_low_zero(operand, depth + 1) for operand in op.operands)


def _is_sign(value: ir.Value) -> bool:
    """Whether no bit but the sign bit is set."""
    op = defining(value)
    return op is not None and op.name == "arith.andi" and _constant(op.operands[1]) == SIGN


def _constant(value: ir.Value) -> int | None:
    op = defining(value)
    number = _number(op) if op is not None and op.name == "arith.constant" else None
    return number & (SIGN | MAGNITUDE) if isinstance(number, int) else None


def _number(op: ir.Operation) -> int | float | None:
    """Return the value of a constant or splat, else None."""
    attribute = op.attributes["value"]
    if isinstance(attribute, ir.DenseElementsAttr):
        if not attribute.is_splat:
            return None
        attribute = attribute.get_splat_value()
    if isinstance(attribute, ir.FloatAttr):
        return float(attribute.value)
    return int(attribute.value) if isinstance(attribute, ir.IntegerAttr) else None
