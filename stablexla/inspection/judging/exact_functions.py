"""Exact values of functions by mpmath, where stablexla and an oracle disagree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from stablexla.dialects.element_types import BY_DTYPE
from stablexla.dialects.op_traits import TRAITS, bare
from stablexla.inspection.judging.tolerances import OURS, Array, Case, limits_of


def _cbrt(x: Any) -> Any:
    if isinstance(x, mpmath.mpc):
        return mpmath.cbrt(abs(x)) * mpmath.expj(mpmath.arg(x) / 3)
    return mpmath.sign(x) * mpmath.cbrt(abs(x))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "acos": mpmath.acos,
    "acosh": mpmath.acosh,
    "asin": mpmath.asin,
    "asinh": mpmath.asinh,
    "atan": mpmath.atan,
    "atanh": mpmath.atanh,
    "cosh": mpmath.cosh,
    "erfc": mpmath.erfc,
    "sinh": mpmath.sinh,
    "atan2": mpmath.atan2,
    "cbrt": _cbrt,
    "cosine": mpmath.cos,
    "divide": lambda x, y: x / y,
    "exponential": mpmath.exp,
    "exponential_minus_one": lambda x: mpmath.exp(x) - 1,
    "log": mpmath.log,
    "log_plus_one": lambda x: mpmath.log(1 + x),
    "logistic": lambda x: 1 / (1 + mpmath.exp(-x)),
    "multiply": lambda x, y: x * y,
    "power": lambda x, y: mpmath.exp(y * mpmath.log(x)) if isinstance(x, mpmath.mpc) else mpmath.power(x, y),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "sign": lambda x: x / abs(x),
    "sine": mpmath.sin,
    "sqrt": mpmath.sqrt,
    "tan": mpmath.tan,
    "tanh": mpmath.tanh,
}
# Bits that are enough for sums that cancel and for angles of any size.
PRECISION = 2500
# Units in the last place of the exact value that stablexla may be off: of the larger part.
COMPLEX_LIMITS = {bare(name): traits.complex_ulp for name, traits in TRAITS.items() if traits.complex_ulp}
# Beyond it mpmath would count the digits of results that overflow for hours.
LARGEST_EXPONENT = 1e7
_ENDLESS = ("exponential", "exponential_minus_one", "logistic", "sine", "cosine", "tan", "tanh", "power")


def right_by_mpmath(case: Case, wrong: Array) -> Array:
    """Return which elements are right by mpmath; those that it cannot evaluate are not."""
    found = np.zeros(wrong.shape, bool)
    name = case.statement.operation
    if name not in FUNCTIONS or not case.is_inexact or not case.operands or wrong.sum() > 2000:
        return found
    arity = 2 if name in ("atan2", "divide", "multiply", "power") else 1
    operands = [o.reshape(-1) for o in (case.operands * 2)[:arity]]
    if any(o.size != wrong.size for o in operands):
        return found
    with mpmath.workprec(PRECISION):
        for i in np.flatnonzero(wrong):
            found[i] = _is_right(case, [o[i] for o in operands], case.actual.reshape(-1)[i])
    return found


def _is_right(case: Case, operands: list[Any], actual: Any) -> bool:
    name, element = case.statement.operation, BY_DTYPE[case.actual.dtype]
    numbers = [_number(o) for o in operands]
    if any(n is None for n in numbers):
        return False
    too_far = max(abs(n) for n in numbers) > LARGEST_EXPONENT
    if too_far and name == "power" and isinstance(numbers[0], mpmath.mpc) and numbers[0] != 0:
        with mpmath.workprec(100):
            growth = mpmath.re(numbers[1] * mpmath.log(numbers[0]))
        vanishes, overflows = growth < -LARGEST_EXPONENT, growth > LARGEST_EXPONENT
        return bool((vanishes and actual == 0) or (overflows and not np.isfinite(actual)))
    if too_far and name in _ENDLESS:
        return False
    try:
        exact = mpmath.mpmathify(FUNCTIONS[name](*numbers))
    except (ZeroDivisionError, ValueError, OverflowError):
        return False
    limit = float(OURS[element.part.name == "f64"]) if element.bits >= 32 else 0.51
    if element.is_complex or case.operands[0].dtype.kind == "c":
        limit = COMPLEX_LIMITS.get(name, 4.0)
    return _near(exact, actual, limit)


def _number(value: Any) -> Any:
    """Return the number for mpmath; None for infinities and NaN."""
    if np.iscomplexobj(value):
        parts = _number(value.real), _number(value.imag)
        return None if None in parts else mpmath.mpc(*parts)
    number = float(value)
    return mpmath.mpf(number) if np.isfinite(number) else None


def _near(exact: Any, actual: Any, limit: float) -> bool:
    """Return whether a value is within so many ulps; beyond the type's range infinite, or NaN without infinities."""
    dtype = actual.real.dtype if np.iscomplexobj(actual) else actual.dtype
    info = limits_of(dtype)
    size = max(abs(mpmath.re(exact)), abs(mpmath.im(exact)))
    if not mpmath.isfinite(size):
        return False
    least = float(info.smallest_subnormal)
    _, exponent = mpmath.frexp(size)
    unit = max(mpmath.ldexp(1, int(exponent) - info.nmant - 1), mpmath.mpf(least))
    if np.iscomplexobj(actual):
        pairs = [(actual.real, mpmath.re(exact)), (actual.imag, mpmath.im(exact))]
    elif isinstance(exact, mpmath.mpc) and exact.imag:
        return bool(np.isnan(actual))  # a real function that has no real value there
    else:
        pairs = [(actual, mpmath.re(exact))]
    largest = mpmath.mpf(float(info.max))
    return all(_part_is_near(float(got), part, limit * unit, largest) for got, part in pairs)


def _part_is_near(got: float, exact: Any, bound: Any, largest: Any) -> bool:
    if abs(exact) > largest:
        return not np.isfinite(got) or abs(got) >= largest * 0.99
    if not np.isfinite(got):
        return bool(abs(exact) >= largest * 0.9999)
    return bool(abs(mpmath.mpf(got) - exact) <= bound)
