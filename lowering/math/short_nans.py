"""Analysis of NaN payloads: f32 values whose NaNs have 16 low zero bits round to bf16 without a NaN check.

Arithmetic returns the processor's own NaN, which is such a one, or an operand's. So values computed from bf16 alone
have no others, and a chain of operations that are each rounded to bf16 is a third shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
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


def has_short_nans(value: ir.Value) -> bool:
    """Whether an f32, or every lane of a vector, is a number, or a NaN whose lower 16 bits are zero."""
    return _Analysis().has_short_nans(value, 0)


class _Analysis:
    """The answers for the values that one depends on, each of which is asked once on however many paths it lies."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ir.Value], bool] = {}

    def _all(self, ask: Callable[[ir.Value, int], bool], values: Iterable[ir.Value], depth: int) -> bool:
        return all(self._ask(ask, value, depth) for value in values)

    def _ask(self, ask: Callable[[ir.Value, int], bool], value: ir.Value, depth: int) -> bool:
        """Answer a question on a value; no where that takes a deep recursion."""
        key = (ask.__name__, value)
        if key not in self._known:
            self._known[key] = depth < DEEPEST and ask(value, depth + 1)
        return self._known[key]

    def has_short_nans(self, value: ir.Value, depth: int) -> bool:
        op = defining(value)
        if op is None:
            return False
        if op.name in _ARITHMETIC:
            return self._all(self.has_short_nans, op.operands, depth)
        if op.name == "arith.select":
            return self._all(self.has_short_nans, list(op.operands)[1:], depth)
        if op.name == "arith.constant":
            number = _number(op)
            return isinstance(number, float) and not isnan(number)
        if op.name == "arith.extf":
            return "bf16" in str(op.operands[0].type)
        if op.name == "arith.bitcast":
            return self._ask(self.bits_have_short_nans, op.operands[0], depth)
        return op.name in ("arith.sitofp", "arith.uitofp")

    def bits_have_short_nans(self, value: ir.Value, depth: int) -> bool:
        """Whether the bit pattern of an f32 is that of a number, or of a NaN whose lower 16 bits are zero."""
        op = defining(value)
        if op is None:
            return False
        if op.name == "arith.bitcast":
            return self._ask(self.has_short_nans, op.operands[0], depth)
        if self._ask(self.is_low_zero, value, depth):
            return True
        if op.name == "arith.andi":
            return _constant(op.operands[1]) == MAGNITUDE and self._ask(
                self.bits_have_short_nans, op.operands[0], depth
            )
        if op.name == "arith.ori":
            pairs = (tuple(op.operands), tuple(op.operands)[::-1])
            return any(_is_sign(sign) and self._ask(self.bits_have_short_nans, bits, depth) for bits, sign in pairs)
        return False

    def is_low_zero(self, value: ir.Value, depth: int) -> bool:
        """Whether the lower 16 bits are zero."""
        op = defining(value)
        if op is None:
            return False
        if op.name == "arith.constant":
            number = _number(op)
            return isinstance(number, int) and not number & LOW
        if op.name == "arith.shli":
            by = _constant(op.operands[1])
            return by is not None and 16 <= by < 32
        if op.name in ("arith.addi", "arith.subi", "arith.ori"):
            return self._all(self.is_low_zero, op.operands, depth)
        return op.name == "arith.andi" and any(self._ask(self.is_low_zero, v, depth) for v in op.operands)


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
