"""Element-wise arithmetic: sums to powers, division in all its roundings, extremes, functions of one number."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence

import torch

import stablexla as sx
from stablexla.interop.torch.call import Call, Value, as_float, bits, convert, full_like, torch_type, wide, zeros_like
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.types import Number

Unary = Callable[[sx.XlaOp], sx.XlaOp]
Binary = Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp]

# ---- functions of one number ----


def _scaled(x: sx.XlaOp, factor: float) -> sx.XlaOp:
    """Return a number times a real one; of a complex number the parts, which may be infinite."""
    if x.element_type.is_complex:
        return sx.complex(sx.mul(sx.real(x), factor), sx.mul(sx.imag(x), factor))
    return sx.mul(x, factor)


def _exp2(x: sx.XlaOp) -> sx.XlaOp:
    return sx.exp(_scaled(x, math.log(2))) if x.element_type.is_complex else sx.pow(full_like(x, 2), x)


_OF_FLOATS: dict[str, Unary] = {
    "acos": sx.acos,
    "acosh": sx.acosh,
    "asin": sx.asin,
    "asinh": sx.asinh,
    "atan": sx.atan,
    "atanh": sx.atanh,
    "cos": sx.cos,
    "cosh": sx.cosh,
    "exp": sx.exp,
    "exp2": _exp2,
    "expm1": sx.expm1,
    "log": sx.log,
    "log10": lambda x: _scaled(sx.log(x), 1 / math.log(10)),
    "log1p": sx.log1p,
    "log2": lambda x: _scaled(sx.log(x), 1 / math.log(2)),
    "reciprocal": sx.reciprocal,
    "rsqrt": sx.rsqrt,
    "sin": sx.sin,
    "sinh": sx.sinh,
    "sqrt": sx.sqrt,
    "tan": sx.tan,
    "tanh": sx.tanh,
}


def _of_floats(names: Sequence[str], function: Unary) -> None:
    @aten(*names)
    def rule(call: Call, x: sx.XlaOp) -> sx.XlaOp:
        return function(wide(as_float(x)))


for _name, _function in _OF_FLOATS.items():
    _of_floats([f"aten.{_name}.default", f"prims.{_name}.default"], _function)
_of_floats(["aten.sigmoid.default"], sx.logistic)
_of_floats(["prims.cbrt.default"], sx.cbrt)


@aten("aten.abs.default", "prims.abs.default")
def abs(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return x if _is_unsigned(x) else sx.abs(x)


def _is_unsigned(x: sx.XlaOp) -> bool:
    return x.element_type.is_pred or (x.element_type.is_integer and not x.element_type.is_signed)


@aten("aten.neg.default", "aten._neg_view.default", "prims.neg.default")
def neg(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.neg(x)


@aten("aten.square.default")
def square(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.mul(x, x)


@aten("aten.sign.default", "aten.sgn.default", "prims.sign.default")
def sign(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    """Return -1, 0 or 1; 0 for NaN. Of a complex number the one of modulus 1 in its direction."""
    if x.element_type.is_complex:
        size = sx.abs(x)
        is_zero = sx.eq(size, zeros_like(size))
        return sx.select(
            is_zero, zeros_like(x), sx.div(x, convert(sx.select(is_zero, full_like(size, 1), size), x.element_type))
        )
    if _is_unsigned(x):
        return convert(x, "pred")
    above, below = (convert(test(x, zeros_like(x)), x.element_type) for test in (sx.gt, sx.lt))
    return sx.sub(above, below)


@aten("aten.signbit.default", "prims.signbit.default")
def signbit(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    if _is_unsigned(x):
        return full_like(convert(x, "pred"), False)
    signed = bits(x) if x.element_type.is_float else x
    return sx.lt(signed, zeros_like(signed))


# ---- rounding to integers ----


def _trunc(x: sx.XlaOp) -> sx.XlaOp:
    return sx.select(sx.lt(x, zeros_like(x)), sx.ceil(x), sx.floor(x))


def _rounding(name: str, function: Unary) -> None:
    @aten(f"aten.{name}.default", f"prims.{name}.default")
    def rule(call: Call, x: sx.XlaOp) -> sx.XlaOp:
        return function(x) if x.element_type.is_float else x


for _name, _function in {"ceil": sx.ceil, "floor": sx.floor, "round": sx.round_nearest_even, "trunc": _trunc}.items():
    _rounding(_name, _function)


@aten("aten.frac.default")
def frac(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.sub(x, _trunc(x))


@aten("aten.round.decimals")
def round_decimals(call: Call, x: sx.XlaOp, *, decimals: int) -> sx.XlaOp:
    if not x.element_type.is_float:
        return x
    x, scale = wide(x), 10.0 ** builtins.abs(decimals)
    if decimals < 0:
        return sx.mul(sx.round_nearest_even(sx.div(x, scale)), scale)
    return sx.div(sx.round_nearest_even(sx.mul(x, scale)), scale)


# ---- of two numbers ----


def _rem(x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
    return sx.rem(wide(x), wide(y))


def _atan2(x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
    return sx.atan2(wide(x), wide(y))


def _but_for_nan(function: Binary) -> Binary:
    """Return a function that gives the other number where one is NaN."""

    def made(x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
        if not x.element_type.is_float:
            return function(x, y)
        return sx.select(sx.is_nan(x), y, sx.select(sx.is_nan(y), x, function(x, y)))

    return made


def _of_two(names: Sequence[str], function: Binary) -> None:
    @aten(*names)
    def rule(call: Call, lhs: Value, rhs: Value) -> sx.XlaOp:
        x, y = call.promoted(lhs, rhs, type=call.type)
        return function(x, y)


_TENSOR_AND_SCALAR: dict[str, Binary] = {"div": sx.div, "fmod": _rem, "mul": sx.mul, "true_divide": sx.div}
for _name, _binary in _TENSOR_AND_SCALAR.items():
    _of_two([f"aten.{_name}.Tensor", f"aten.{_name}.Scalar", f"prims.{_name}.default"], _binary)
_TENSOR: dict[str, Binary] = {
    "atan2": _atan2,
    "fmax": _but_for_nan(sx.max),
    "fmin": _but_for_nan(sx.min),
    "maximum": sx.max,
    "minimum": sx.min,
    "nextafter": sx.next_after,
}
for _name, _binary in _TENSOR.items():
    _of_two([f"aten.{_name}.default", f"prims.{_name}.default"], _binary)


# ---- sums and products ----


@aten("aten.add.Tensor", "aten.add.Scalar", "prims.add.default")
def add(call: Call, lhs: Value, rhs: Value, *, alpha: Number = 1) -> sx.XlaOp:
    return _scaled_sum(call, lhs, rhs, alpha, sx.add)


@aten("aten.sub.Tensor", "aten.sub.Scalar", "prims.sub.default")
def sub(call: Call, lhs: Value, rhs: Value, *, alpha: Number = 1) -> sx.XlaOp:
    return _scaled_sum(call, lhs, rhs, alpha, sx.sub)


@aten("aten.rsub.Tensor")
def rsub(call: Call, lhs: Value, rhs: Value, *, alpha: Number) -> sx.XlaOp:
    return _scaled_sum(call, rhs, lhs, alpha, sx.sub)


@aten("aten.rsub.Scalar")
def rsub_scalar(call: Call, lhs: Value, rhs: Value, alpha: Number) -> sx.XlaOp:
    return _scaled_sum(call, rhs, lhs, alpha, sx.sub)


def _scaled_sum(call: Call, lhs: Value, rhs: Value, alpha: Number, function: Binary) -> sx.XlaOp:
    x, y = call.promoted(lhs, rhs, type=call.type)
    return function(x, y) if alpha == 1 else function(wide(x), _times(wide(y), alpha))


def _times(x: sx.XlaOp, factor: Number) -> sx.XlaOp:
    return x if factor == 1 else sx.mul(x, full_like(x, factor))


@aten("aten.addcmul.default")
def addcmul(call: Call, x: sx.XlaOp, first: sx.XlaOp, second: sx.XlaOp, *, value: Number) -> sx.XlaOp:
    x, y, z = map(wide, call.promoted(x, first, second, type=call.type))
    return sx.add(x, sx.mul(_times(y, value), z))


@aten("aten.addcdiv.default")
def addcdiv(call: Call, x: sx.XlaOp, first: sx.XlaOp, second: sx.XlaOp, *, value: Number) -> sx.XlaOp:
    x, y, z = map(wide, call.promoted(x, first, second, type=call.type))
    return sx.add(x, sx.div(_times(y, value), z))


@aten("aten.lerp.Tensor", "aten.lerp.Scalar")
def lerp(call: Call, start: sx.XlaOp, end: sx.XlaOp, weight: Value) -> sx.XlaOp:
    """Return `start + weight (end - start)`, from whichever end is nearer."""
    x, y, w = map(wide, call.promoted(start, end, weight, type=call.type))
    size = sx.abs(w)
    step = sx.sub(y, x)
    return sx.select(sx.lt(size, 0.5), sx.add(x, sx.mul(w, step)), sx.sub(y, sx.mul(step, sx.sub(1, w))))


# ---- division ----


@aten("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(call: Call, lhs: Value, rhs: Value, *, rounding_mode: str | None) -> sx.XlaOp:
    if rounding_mode == "floor":
        return floor_divide(call, lhs, rhs)
    x, y = call.promoted(lhs, rhs, type=call.type)
    quotient = sx.div(x, y)
    return _trunc(quotient) if rounding_mode == "trunc" and quotient.element_type.is_float else quotient


@aten("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(call: Call, lhs: Value, rhs: Value) -> sx.XlaOp:
    """Return Python's `//`: of floats what is left over is taken off first, so that it agrees with `remainder`."""
    x, y = call.promoted(lhs, rhs, type=call.type)
    if not x.element_type.is_float:
        quotient = sx.div(x, y)
        return quotient if _is_unsigned(x) else sx.sub(quotient, convert(_must_shift(sx.rem(x, y), y), x.element_type))
    x, y = wide(x), wide(y)
    left = sx.rem(x, y)
    ratio = sx.div(sx.sub(x, left), y)
    ratio = sx.select(_must_shift(left, y), sx.sub(ratio, 1), ratio)
    whole = sx.floor(ratio)
    whole = sx.select(sx.gt(sx.sub(ratio, whole), 0.5), sx.add(whole, 1), whole)
    plain = sx.div(x, y)
    whole = sx.select(sx.eq(ratio, 0), _with_sign(zeros_like(plain), plain), whole)
    return sx.select(sx.eq(y, 0), plain, whole)


@aten("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor", "prims.remainder.default")
def remainder(call: Call, lhs: Value, rhs: Value) -> sx.XlaOp:
    """Return Python's `%`, which has the sign of what is divided by."""
    x, y = map(wide, call.promoted(lhs, rhs, type=call.type))
    left = sx.rem(x, y)
    return left if _is_unsigned(x) else sx.select(_must_shift(left, y), sx.add(left, y), left)


def _must_shift(left: sx.XlaOp, divisor: sx.XlaOp) -> sx.XlaOp:
    """Return whether what is left over by a division towards zero has not the sign of the divisor."""
    differ = sx.xor(sx.lt(left, zeros_like(left)), sx.lt(divisor, zeros_like(divisor)))
    return sx.and_(sx.ne(left, zeros_like(left)), differ)


def _greatest_divisor(x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
    """Return Euclid's gcd of integers of one type, all at once until none has anything left over.

    It is taken of unsigned numbers: the least signed one has no absolute value of its own type.
    """
    signed = x.element_type
    if not _is_unsigned(x):
        x, y = (sx.select(sx.lt(v, zeros_like(v)), sx.sub(zeros_like(v), v), v) for v in (x, y))
        x, y = (sx.bitcast_convert_type(v, f"u{signed.bits}") for v in (x, y))

    def goes_on(state: sx.XlaOp) -> sx.XlaOp:
        return sx.reduce_all(sx.ne(state[1], zeros_like(y)), False, sx.or_)

    def step(state: sx.XlaOp) -> sx.XlaOp:
        x, y = state
        is_done = sx.eq(y, zeros_like(y))
        left = sx.rem(x, sx.select(is_done, full_like(y, 1), y))
        return sx.tuple([sx.select(is_done, x, y), sx.select(is_done, y, left)])

    return sx.bitcast_convert_type(sx.while_(goes_on, step, sx.tuple([x, y]))[0], signed)


@aten("aten.gcd.default", "prims.gcd.default")
def gcd(call: Call, lhs: sx.XlaOp, rhs: sx.XlaOp) -> sx.XlaOp:
    return _greatest_divisor(*call.promoted(lhs, rhs, type=call.type))


@aten("aten.lcm.default")
def lcm(call: Call, lhs: sx.XlaOp, rhs: sx.XlaOp) -> sx.XlaOp:
    x, y = call.promoted(lhs, rhs, type=call.type)
    divisor = _greatest_divisor(x, y)
    if x.element_type.bits < 32:  # products of C's integers, cut off at the end
        x, y, divisor = (convert(v, "s32") for v in (x, y, divisor))
    made = sx.mul(sx.div(x, sx.select(sx.eq(divisor, 0), full_like(x, 1), divisor)), y)
    return made if _is_unsigned(made) else sx.abs(made)


# ---- powers ----


@aten("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.pow.Scalar", "prims.pow.default")
def pow(call: Call, base: Value, exponent: Value) -> sx.XlaOp:
    """Return powers; small whole ones are products, halves are roots, as in PyTorch."""
    x, y = map(wide, call.promoted(base, exponent, type=call.type))
    if not isinstance(exponent, sx.XlaOp) and not isinstance(exponent, complex):
        made = _small_power(x, exponent)
        if made is not None:
            return made
    return sx.pow(x, y)


def _small_power(x: sx.XlaOp, exponent: float) -> sx.XlaOp | None:
    if exponent == 0:
        return full_like(x, 1)
    if exponent in (1, 2, 3):
        made = x
        for _ in range(int(exponent) - 1):
            made = sx.mul(made, x)
        return made
    if x.element_type.is_integer or x.element_type.is_pred:
        return None
    if exponent in (-1, -2):
        return sx.reciprocal(x if exponent == -1 else sx.mul(x, x))
    if builtins.abs(exponent) == 0.5 and x.element_type.is_float:
        return sx.sqrt(x) if exponent > 0 else sx.rsqrt(x)
    return None


@aten("aten.hypot.default", "prims.hypot.default")
def hypot(call: Call, lhs: sx.XlaOp, rhs: sx.XlaOp) -> sx.XlaOp:
    x, y = (sx.abs(wide(v)) for v in call.promoted(lhs, rhs, type=call.type))
    large, small = sx.max(x, y), sx.min(x, y)
    ratio = sx.div(small, sx.select(sx.eq(large, 0), full_like(large, 1), large))
    made = sx.mul(large, sx.sqrt(sx.add(1, sx.mul(ratio, ratio))))
    return sx.select(sx.or_(sx.is_inf(x), sx.is_inf(y)), full_like(x, math.inf), made)


# ---- extremes ----


@aten("aten.clamp.default", "aten.clamp.Tensor", "aten.clip.default", "aten.clip.Tensor")
def clamp(call: Call, x: sx.XlaOp, low: Value | None, high: Value | None) -> sx.XlaOp:
    """Return numbers held between bounds, of which the upper one wins; NaN of any of them stays."""
    x = convert(x, call.type)
    if low is not None:
        x, bound = call.promoted(x, low, type=call.type)
        x = sx.max(x, bound)
    if high is not None:
        x, bound = call.promoted(x, high, type=call.type)
        x = sx.min(x, bound)
    return x


@aten("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(call: Call, x: sx.XlaOp, low: Value) -> sx.XlaOp:
    return clamp(call, x, low, None)


@aten("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(call: Call, x: sx.XlaOp, high: Value) -> sx.XlaOp:
    return clamp(call, x, None, high)


# ---- parts of floats ----


def _with_sign(x: sx.XlaOp, sign: sx.XlaOp) -> sx.XlaOp:
    """Return the size of one float with the sign of another, of the same type."""
    low, high = bits(sx.abs(x)), bits(sign)
    minimum = full_like(high, -(1 << (high.element_type.bits - 1)))
    return sx.bitcast_convert_type(sx.or_(low, sx.and_(high, minimum)), x.element_type)


@aten("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(call: Call, lhs: Value, rhs: Value) -> sx.XlaOp:
    x, y = call.promoted(lhs, rhs, type=call.type)
    return _with_sign(x, y)


@aten("aten.heaviside.default")
def heaviside(call: Call, x: sx.XlaOp, at_zero: sx.XlaOp) -> sx.XlaOp:
    x, y = call.promoted(x, at_zero, type=call.type)
    return sx.select(sx.eq(x, zeros_like(x)), y, convert(sx.gt(x, zeros_like(x)), x.element_type))


@aten("aten.frexp.Tensor", "prims.frexp.default")
def frexp(call: Call, x: sx.XlaOp) -> tuple[sx.XlaOp, sx.XlaOp]:
    """Return `m` and `e` of `x = m 2**e`, m from 0.5 to below 1; zeros, infinities and NaN are m themselves."""
    x = wide(x)
    mantissa_bits, bias, least = (52, 1023, 2.0**-1022) if x.element_type.bits == 64 else (23, 127, 2.0**-126)
    # What has too small an exponent for its own bits is multiplied by a power of two.
    is_tiny = sx.lt(sx.abs(x), least)
    scaled = sx.select(is_tiny, sx.mul(x, 2.0 ** (mantissa_bits + 1)), x)
    whole = bits(scaled)
    width = whole.element_type.bits
    field = ((1 << (width - 1 - mantissa_bits)) - 1) << mantissa_bits
    exponent = sx.shift_right_logical(sx.and_(whole, field), full_like(whole, mantissa_bits))
    exponent = sx.sub(convert(exponent, "s32"), bias - 1)
    exponent = sx.sub(exponent, sx.select(is_tiny, full_like(exponent, mantissa_bits + 1), zeros_like(exponent)))
    mantissa = sx.bitcast_convert_type(
        sx.or_(sx.and_(whole, ~field), full_like(whole, (bias - 1) << mantissa_bits)), x.element_type
    )
    stays = sx.or_(sx.eq(x, 0), sx.not_(sx.is_finite(x)))
    return sx.select(stays, x, mantissa), sx.select(stays, zeros_like(exponent), exponent)


@aten("aten.nan_to_num.default")
def nan_to_num(call: Call, x: sx.XlaOp, nan: float | None, posinf: float | None, neginf: float | None) -> sx.XlaOp:
    if not x.element_type.is_float and not x.element_type.is_complex:
        return x
    if x.element_type.is_complex:
        return sx.complex(
            nan_to_num(call, sx.real(x), nan, posinf, neginf), nan_to_num(call, sx.imag(x), nan, posinf, neginf)
        )
    largest = torch.finfo(torch_type(x.element_type)).max
    x = sx.select(sx.is_nan(x), full_like(x, nan or 0.0), x)
    high, low = (
        full_like(x, bound) for bound in (largest if posinf is None else posinf, -largest if neginf is None else neginf)
    )
    x = sx.select(sx.eq(x, full_like(x, math.inf)), high, x)
    return sx.select(sx.eq(x, full_like(x, -math.inf)), low, x)
