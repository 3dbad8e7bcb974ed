"""The elementary functions with their oracles: numpy and scipy in f64 for f32, mpmath for f64. How errors are counted.

An error is |result - exact value| in units of the last place of the rounded exact value. Where the exact value is not
an ordinary number, the result must be the one of the C library (through numpy), including the sign of zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath as mp
import numpy as np
import scipy.special

from stablexla.lowering.math import erf_inv, logistic
from tests.numerics.harness import Array, Emit, operation

Numbers = Callable[..., Array]


@dataclass(frozen=True)
class Function:
    """A function: what emits it, the oracle for f32 (and for special values), the oracle for f64."""

    name: str
    emit: Emit
    double: Numbers
    exact: Callable[..., mp.mpf]
    arity: int = 1


def _math(name: str, double: Numbers, exact: Callable[..., mp.mpf], arity: int = 1) -> Function:
    return Function(name, operation(f"math.{name}"), double, exact, arity)


def _logistic(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    result: Array = np.where(x < 0, e, 1) / (1 + e)
    return result


def _erf_inv(x: Array) -> Array:
    result: Array = np.copysign(scipy.special.erfinv(x), x)  # scipy gives +0 for -0
    return result


def _rsqrt(x: Array) -> Array:
    result: Array = 1 / np.sqrt(x)
    return result


def _round(x: Array) -> Array:
    whole = np.floor(np.abs(x))
    result: Array = np.copysign(whole + (np.abs(x) - whole >= 0.5), x)
    return result


def _odd(f: Callable[[mp.mpf], mp.mpf]) -> Callable[[mp.mpf], mp.mpf]:
    """mpmath loses digits of some functions for small negative arguments."""
    return lambda x: mp.sign(x) * f(abs(x))


UNARY = (
    _math("exp", np.exp, mp.exp),
    _math("exp2", np.exp2, lambda x: mp.power(2, x)),
    _math("expm1", np.expm1, mp.expm1),
    _math("log", np.log, mp.log),
    _math("log2", np.log2, lambda x: mp.log(x) / mp.log(2)),
    _math("log10", np.log10, mp.log10),
    _math("log1p", np.log1p, mp.log1p),
    Function("logistic", logistic, _logistic, lambda x: 1 / (1 + mp.exp(-x))),
    _math("sin", np.sin, mp.sin),
    _math("cos", np.cos, mp.cos),
    _math("tan", np.tan, mp.tan),
    _math("asin", np.arcsin, mp.asin),
    _math("acos", np.arccos, mp.acos),
    _math("atan", np.arctan, mp.atan),
    _math("sinh", np.sinh, mp.sinh),
    _math("cosh", np.cosh, mp.cosh),
    _math("tanh", np.tanh, mp.tanh),
    _math("asinh", np.arcsinh, _odd(lambda x: mp.asinh(x) if x > 1e-20 else x)),
    _math("acosh", np.arccosh, mp.acosh),
    _math("atanh", np.arctanh, mp.atanh),
    _math("sqrt", np.sqrt, mp.sqrt),
    _math("rsqrt", _rsqrt, lambda x: 1 / mp.sqrt(x)),
    _math("cbrt", np.cbrt, _odd(mp.cbrt)),
    _math("erf", scipy.special.erf, mp.erf),
    _math("erfc", scipy.special.erfc, mp.erfc),
    Function("erf_inv", erf_inv, _erf_inv, mp.erfinv),
    _math("round", _round, lambda x: mp.sign(x) * mp.floor(abs(x) + mp.mpf(1) / 2)),
)
BINARY = (
    _math("powf", np.power, mp.power, 2),
    _math("atan2", np.arctan2, mp.atan2, 2),
    Function("remf", operation("arith.remf"), np.fmod, lambda x, y: mp.sign(x) * mp.fmod(abs(x), abs(y)), 2),
)
FUNCTIONS = {function.name: function for function in (*UNARY, *BINARY)}

#: the bounds that the expansion keeps
LIMITS = {np.dtype(np.float32): 2.0, np.dtype(np.float64): 3.0}


# ---- errors ------------------------------------------------------------------------------------------------------


def errors_in_wide_numbers(function: Function, result: Array, *arguments: Array) -> Array:
    """As `errors`, with the oracle in the next longer format: f64, or the C compiler's long double."""
    wide = np.float64 if result.dtype == np.float32 else np.longdouble
    with np.errstate(all="ignore"):
        return _errors_against(result, function.double(*(a.astype(wide) for a in arguments)))


def errors(function: Function, result: Array, *arguments: Array) -> Array:
    """The error of each element of `result` in ULP; infinite where a special value is wrong."""
    if result.dtype == np.float32:
        return errors_in_wide_numbers(function, result, *arguments)
    with np.errstate(all="ignore"):
        double = function.double(*(a.astype(np.float64) for a in arguments))
    # zeros of double may be denormals that it lost, but far out mpmath would count their bits for long
    special = ~np.isfinite(double)
    for argument in arguments:
        special |= (double == 0) & (np.abs(argument) > 1e4)
        special |= ~np.isfinite(argument) | (argument == 0)  # mpmath has no -0
    found = np.empty(result.shape)
    found[special] = _errors_against(result[special], double[special])
    rest = np.flatnonzero(~special)
    found[rest] = [_error_of(float(result[k]), function.exact(*(_number(a[k]) for a in arguments))) for k in rest]
    return found


def _number(value: Any) -> mp.mpf:
    return mp.mpf(float(value))


def _errors_against(result: Array, exact: Array) -> Array:
    """Against numbers of a longer format (or special values of the same)."""
    with np.errstate(all="ignore"):
        rounded = exact.astype(result.dtype)
        finite = np.isfinite(rounded)
        unit = np.spacing(np.abs(np.where(finite, rounded, 1))).astype(exact.dtype)
        distance = np.abs(result.astype(exact.dtype) - exact) / unit
    same = (result == rounded) | (np.isnan(result) & np.isnan(rounded))
    wrong_zero = (result == 0) & (rounded == 0) & (np.signbit(result) != np.signbit(rounded))
    found = np.where(finite & np.isfinite(result), distance, np.where(same, 0.0, np.inf))
    return np.where(wrong_zero, np.inf, found).astype(np.float64)


def _error_of(result: float, exact: mp.mpf) -> float:
    nearest = float(exact)
    if not math.isfinite(result) or not math.isfinite(nearest):
        return 0.0 if result == nearest else float("inf")
    return float(abs(mp.mpf(result) - exact) / mp.mpf(math.ulp(nearest)))


# ---- samples -----------------------------------------------------------------------------------------------------


def special_values(dtype: Any) -> Array:
    """Zeros, infinities, NaN, the ends of the denormal and the normal range, integers up to the precision, halves."""
    info = np.finfo(dtype)
    edges = [info.smallest_subnormal, info.tiny, np.nextafter(info.tiny, dtype(0)), info.max, info.eps]
    whole = [1, 2, 3, 10, 2**info.nmant - 1, 2 ** (info.nmant + 1) - 1, 2 ** (info.nmant + 1) + 2]
    parts = [0.5, 1.5, 2.5, 0.25, 1 - info.epsneg, 1 + info.eps, 0.49999997, 0.5 - info.epsneg / 2]
    positive = np.array([0.0, np.inf, *edges, *whole, *parts], dtype)
    return np.concatenate([positive, -positive, [dtype(np.nan)]])


def every_exponent(dtype: Any, count: int, seed: int) -> Array:
    """`count` numbers of all exponents and both signs, with random bits behind; denormals, infinity and NaN too."""
    unsigned = np.dtype(f"u{np.dtype(dtype).itemsize}")
    generator = np.random.default_rng(seed)
    bits = 8 * unsigned.itemsize
    step = (1 << bits) // count
    numbers = np.arange(count, dtype=unsigned) * unsigned.type(step)
    result: Array = (numbers + generator.integers(0, step, count, unsigned)).view(dtype)
    return result


def ordinary(dtype: Any, count: int, seed: int) -> Array:
    """Numbers where functions do something: around 0 and 1, the range of exp, multiples of pi/2, small magnitudes."""
    generator = np.random.default_rng(seed)
    sign = generator.choice([-1.0, 1.0], count)
    return np.concatenate(
        [
            generator.uniform(-2, 2, count),
            generator.uniform(-120, 120, count),
            generator.uniform(-760, 760, count // 2),
            1 + sign * np.exp(generator.uniform(-36, 0, count)),
            sign * np.exp(generator.uniform(-40, 10, count)),
            generator.integers(-20000, 20000, count // 2) * (np.pi / 2),
        ]
    ).astype(dtype)


def unary_sample(dtype: Any, count: int, seed: int = 0) -> Array:
    """About `count` numbers of all three kinds."""
    return np.concatenate(
        [special_values(dtype), every_exponent(dtype, count // 2, seed), ordinary(dtype, count // 10, seed)]
    )


def binary_sample(function: Function, dtype: Any, count: int, seed: int = 0) -> tuple[Array, Array]:
    """All pairs of special values, pairs of any numbers, and pairs that are near each other (or x**y in range)."""
    generator = np.random.default_rng(seed)
    special = special_values(dtype)
    part = count // 4
    first = [np.repeat(special, special.size), every_exponent(dtype, part, seed)]
    second = [np.tile(special, special.size), generator.permutation(every_exponent(dtype, part, seed + 1))]
    info = np.finfo(dtype)
    with np.errstate(all="ignore"):
        if function.name == "powf":
            base = np.exp(generator.normal(0, 1, part) * generator.choice([0.001, 1.0, 10.0], part)).astype(dtype)
            low, high = np.log(float(info.smallest_subnormal)), np.log(float(info.max))
            first += [base, generator.normal(0, 4, part)]
            second += [generator.uniform(low, high, part) / np.log(base.astype(np.float64)), np.arange(part) % 61 - 30]
        else:
            base = every_exponent(dtype, part, seed + 2)
            first += [base, base]
            second += [base * np.exp(generator.normal(0, 3, part)), base / generator.integers(1, 1000, part)]
        x, y = (np.concatenate([p.astype(dtype) for p in parts]) for parts in (first, second))
    return x, y


def sample(function: Function, dtype: Any, count: int, seed: int = 0) -> tuple[Array, ...]:
    """The arguments to try a function on."""
    if function.arity == 2:
        return binary_sample(function, dtype, count, seed)
    return (unary_sample(dtype, count, seed),)
