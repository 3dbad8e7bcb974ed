"""Scalar arithmetic of StableHLO's element-wise operations, for floats, integers and pred.

Values are scalars in their computing type (floats below 32 bits already widened to f32). Complex numbers are in
lowering.math.complex.
"""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir
from mlir.dialects import arith, math, scf

from stablexla.dialects.element_types import ElementType
from stablexla.lowering.math import logistic
from stablexla.lowering.support.storage import constant

Unary = Callable[[ir.Value, ElementType], ir.Value]
Binary = Callable[[ir.Value, ir.Value, ElementType], ir.Value]


def minimum_of(element: ElementType) -> int:
    """Return the smallest integer of a type."""
    return -(1 << (element.bits - 1)) if element.is_signed else 0


def cmpi(predicate: str, x: ir.Value, y: ir.Value) -> ir.Value:
    """Emit an integer comparison; `predicate` is MLIR's name (`eq`, `slt`, `ult` ...)."""
    return arith.cmpi(getattr(arith.CmpIPredicate, predicate), x, y)


def cmpf(predicate: str, x: ir.Value, y: ir.Value) -> ir.Value:
    """Emit a float comparison; `predicate` is MLIR's name in capitals (`OEQ`, `UNE` ...)."""
    return arith.cmpf(getattr(arith.CmpFPredicate, predicate), x, y)


# ---- integers ------------------------------------------------------------------------------------------------------


def abs_integer(x: ir.Value, element: ElementType) -> ir.Value:
    """|x|; the smallest integer is its own absolute value."""
    if element.is_unsigned:
        return x
    zero = constant(x.type, 0)
    return arith.select(cmpi("slt", x, zero), arith.subi(zero, x), x)


def sign_integer(x: ir.Value, element: ElementType) -> ir.Value:
    """-1, 0 or 1."""
    zero, one = constant(x.type, 0), constant(x.type, 1)
    positive = arith.select(cmpi("ne", x, zero), one, zero)
    if element.is_unsigned:
        return positive
    return arith.select(cmpi("slt", x, zero), constant(x.type, -1), positive)


def count_leading_zeros(x: ir.Value, element: ElementType) -> ir.Value:
    """Count the zero bits above the highest one bit; the width for 0."""
    counted = math.ctlz(bits_of_width(x, element))
    gap = x.type.width - element.bits
    return arith.subi(counted, constant(x.type, gap)) if gap else counted


def population_count(x: ir.Value, element: ElementType) -> ir.Value:
    """Count the one bits."""
    return math.ctpop(bits_of_width(x, element))


def bits_of_width(x: ir.Value, element: ElementType) -> ir.Value:
    """Zero-extend the bits of a small integer."""
    if element.bits >= 8:
        return x
    return arith.andi(x, constant(x.type, (1 << element.bits) - 1))


def divide_integer(x: ir.Value, y: ir.Value, element: ElementType) -> ir.Value:
    """Divide, rounding toward zero. x / 0 has all bits set, and the smallest integer / -1 is itself, as in XLA:CPU."""
    zero, all_ones = constant(x.type, 0), constant(x.type, -1)
    by_zero = cmpi("eq", y, zero)
    if element.is_unsigned:
        quotient = arith.divui(x, arith.select(by_zero, constant(x.type, 1), y))
        return arith.select(by_zero, all_ones, quotient)
    overflow = _overflows(x, y, element)
    quotient = arith.divsi(x, arith.select(arith.ori(by_zero, overflow), constant(x.type, 1), y))
    return arith.select(by_zero, all_ones, quotient)  # on overflow x / 1 = x is the answer


def remainder_integer(x: ir.Value, y: ir.Value, element: ElementType) -> ir.Value:
    """Remainder with the dividend's sign. x rem 0 is x, and the smallest integer rem -1 is 0, as in XLA:CPU."""
    zero, one = constant(x.type, 0), constant(x.type, 1)
    by_zero = cmpi("eq", y, zero)
    if element.is_unsigned:
        return arith.select(by_zero, x, arith.remui(x, arith.select(by_zero, one, y)))
    safe = arith.select(arith.ori(by_zero, _overflows(x, y, element)), one, y)
    return arith.select(by_zero, x, arith.remsi(x, safe))


def _overflows(x: ir.Value, y: ir.Value, element: ElementType) -> ir.Value:
    smallest = cmpi("eq", x, constant(x.type, minimum_of(element)))
    return arith.andi(smallest, cmpi("eq", y, constant(y.type, -1)))


def power_integer(x: ir.Value, y: ir.Value, element: ElementType) -> ir.Value:
    """x to the y by squaring, modulo 2^bits. A negative y gives 1 / x^-y rounded toward zero."""
    one, zero = constant(x.type, 1), constant(x.type, 0)
    index = [arith.constant(ir.IndexType.get(), i) for i in (0, element.bits, 1)]
    loop = scf.ForOp(*index, iter_args=[one, x, y])
    with ir.InsertionPoint(loop.body):
        result, square, exponent = loop.inner_iter_args
        odd = cmpi("ne", arith.andi(exponent, one), zero)
        result = arith.select(odd, arith.muli(result, square), result)
        scf.YieldOp([result, arith.muli(square, square), arith.shrui(exponent, one)])
    power = loop.results[0]
    if element.is_unsigned:
        return power
    minus_one = constant(x.type, -1)
    odd = cmpi("ne", arith.andi(y, one), zero)
    of_minus_one = arith.select(odd, minus_one, one)
    inverse = arith.select(cmpi("eq", x, minus_one), of_minus_one, zero)
    inverse = arith.select(cmpi("eq", x, one), one, inverse)
    return arith.select(cmpi("slt", y, zero), inverse, power)


def shift_left(x: ir.Value, y: ir.Value, element: ElementType) -> ir.Value:
    """x * 2^y; 0 when y is no smaller than the width (a negative y is such a one)."""
    return _shift(x, y, element, arith.shli(x, _amount(y, element)), constant(x.type, 0))


def shift_right_logical(x: ir.Value, y: ir.Value, element: ElementType) -> ir.Value:
    """Shift right, zero-filled; 0 when y is no smaller than the width."""
    return _shift(x, y, element, arith.shrui(bits_of_width(x, element), _amount(y, element)), constant(x.type, 0))


def shift_right_arithmetic(x: ir.Value, y: ir.Value, element: ElementType) -> ir.Value:
    """Shift right with sign extension, also for unsigned types."""
    signed = x
    if element.bits < 8:
        gap = constant(x.type, 8 - element.bits)
        signed = arith.shrsi(arith.shli(x, gap), gap)
    all_sign = arith.shrsi(signed, constant(x.type, x.type.width - 1))
    return _shift(x, y, element, arith.shrsi(signed, _amount(y, element)), all_sign)


def _amount(y: ir.Value, element: ElementType) -> ir.Value:
    return arith.select(_too_far(y, element), constant(y.type, 0), y)


def _too_far(y: ir.Value, element: ElementType) -> ir.Value:
    return cmpi("uge", bits_of_width(y, element), constant(y.type, element.bits))


def _shift(x: ir.Value, y: ir.Value, element: ElementType, shifted: ir.Value, beyond: ir.Value) -> ir.Value:
    return arith.select(_too_far(y, element), beyond, shifted)


# Of whole bytes, by an amount that is known to be smaller than the width.
PLAIN_SHIFTS: dict[str, Callable[[ir.Value, ir.Value], ir.Value]] = {
    "shift_left": arith.shli,
    "shift_right_logical": arith.shrui,
    "shift_right_arithmetic": arith.shrsi,
}


def extreme_integer(signed: str, unsigned: str) -> Binary:
    """Return max or min, by the names of its signed and unsigned arith operations."""

    def extreme(x: ir.Value, y: ir.Value, element: ElementType) -> ir.Value:
        return getattr(arith, signed if element.is_signed else unsigned)(x, y)

    return extreme


def not_integer(x: ir.Value, element: ElementType) -> ir.Value:
    """All bits inverted."""
    return arith.xori(x, constant(x.type, -1))


# ---- floats --------------------------------------------------------------------------------------------------------


def sign_float(x: ir.Value, element: ElementType) -> ir.Value:
    """-1 or 1; zeros and NaN are themselves."""
    zero = constant(x.type, 0.0)
    ordinary = cmpf("ONE", x, zero)
    return arith.select(ordinary, math.copysign(constant(x.type, 1.0), x), x)


def is_finite(x: ir.Value, element: ElementType) -> ir.Value:
    """Whether x is neither infinite nor NaN."""
    return cmpf("OLT", math.absf(x), constant(x.type, float("inf")))


def total_order_key(x: ir.Value, element: ElementType) -> ir.Value:
    """Return a signed integer key in the total order -NaN < -inf < ... < -0 < +0 < ... < inf < NaN."""
    bits = element.bits
    integer = ir.IntegerType.get_signless(bits)
    raw = arith.bitcast(integer, x)
    sign = arith.shrsi(raw, constant(integer, bits - 1))
    key = arith.xori(raw, arith.shrui(sign, constant(integer, 1)))
    if not element.name.endswith("fnuz"):
        return key
    # The only NaN of these types has the bit pattern of -0 in others; as a negative NaN it is the lowest, and the
    # negative numbers move up by one to its position.
    lowest = constant(integer, 1 << (bits - 1))
    negative = arith.subi(key, sign)
    return arith.select(arith.cmpi(arith.CmpIPredicate.eq, raw, lowest), lowest, negative)


def ignoring_type(function: Callable[..., ir.Value]) -> Callable[..., ir.Value]:
    """Wrap a function to accept the element type as a last argument, and ignore it."""
    return lambda *values: function(*values[:-1])


plain = ignoring_type

FLOAT_UNARY: dict[str, Unary] = {
    "abs": plain(math.absf),
    "cbrt": plain(math.cbrt),
    "ceil": plain(math.ceil),
    "cosine": plain(math.cos),
    "exponential": plain(math.exp),
    "exponential_minus_one": plain(math.expm1),
    "floor": plain(math.floor),
    "log": plain(math.log),
    "log_plus_one": plain(math.log1p),
    "logistic": plain(logistic),
    "negate": plain(arith.negf),
    "round_nearest_afz": plain(math.round),
    "round_nearest_even": plain(math.roundeven),
    "rsqrt": plain(math.rsqrt),
    "sign": sign_float,
    "sine": plain(math.sin),
    "sqrt": plain(math.sqrt),
    "tan": plain(math.tan),
    "tanh": plain(math.tanh),
}
INTEGER_UNARY: dict[str, Unary] = {
    "abs": abs_integer,
    "count_leading_zeros": count_leading_zeros,
    "negate": lambda x, element: arith.subi(constant(x.type, 0), x),
    "not": not_integer,
    "popcnt": population_count,
    "sign": sign_integer,
}
PRED_UNARY: dict[str, Unary] = {"not": not_integer}

FLOAT_BINARY: dict[str, Binary] = {
    "add": plain(arith.addf),
    "atan2": plain(math.atan2),
    "divide": plain(arith.divf),
    "maximum": plain(arith.maximumf),
    "minimum": plain(arith.minimumf),
    "multiply": plain(arith.mulf),
    "power": plain(math.powf),
    "remainder": plain(arith.remf),
    "subtract": plain(arith.subf),
}
INTEGER_BINARY: dict[str, Binary] = {
    "add": plain(arith.addi),
    "and": plain(arith.andi),
    "divide": divide_integer,
    "maximum": extreme_integer("maxsi", "maxui"),
    "minimum": extreme_integer("minsi", "minui"),
    "multiply": plain(arith.muli),
    "or": plain(arith.ori),
    "power": power_integer,
    "remainder": remainder_integer,
    "shift_left": shift_left,
    "shift_right_arithmetic": shift_right_arithmetic,
    "shift_right_logical": shift_right_logical,
    "subtract": plain(arith.subi),
    "xor": plain(arith.xori),
}
PRED_BINARY: dict[str, Binary] = {
    "add": plain(arith.ori),
    "and": plain(arith.andi),
    "maximum": plain(arith.ori),
    "minimum": plain(arith.andi),
    "multiply": plain(arith.andi),
    "or": plain(arith.ori),
    "xor": plain(arith.xori),
}
