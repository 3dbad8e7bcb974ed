"""Hyperbolic functions sinh, cosh, tanh and their inverses.

The inverses of an f32 are computed in f64, where log to 37 bits is enough; those of an f64 go through log1p.
"""

from __future__ import annotations

from stablexla.lowering.math.exponential import (
    LN2_DOUBLE,
    LN2_SINGLE,
    LOG2_E,
    exp_halved,
    expm1_from,
    power_of_shifted,
)
from stablexla.lowering.math.logarithm import log1p, log_short
from stablexla.lowering.math.registry import expands
from stablexla.lowering.math.values import Real, polynomial, select

# f(x) = x + x z p(z), z = x**2
_TANH_SINGLE = (
    -0.3333328068256378, 0.13331405818462372, -0.05373650789260864, 0.020628100261092186, -0.005692106205970049,
)  # fmt: skip
# exp(2 x) = 1 + 2 x + x**2 p(x)
_TWICE_SINGLE = (
    1.999999761581421, 1.3333213329315186, 0.6666896939277649, 0.26781243085861206, 0.08855470269918442,
)  # fmt: skip
_SINH_SINGLE = (0.1666666716337204, 0.00833331048488617, 0.00019842895562760532, 2.7823227810586104e-06)
_SINH_DOUBLE = (
    0.16666666666666666, 0.008333333333333573, 0.00019841269841061157, 2.7557319310098997e-06,
    2.5052089407226032e-08, 1.6061340613371955e-10, 7.503102268311002e-13, 6.481935985696064e-15,
)  # fmt: skip


def odd_polynomial(x: Real, coefficients: tuple[float, ...]) -> Real:
    """Return the odd polynomial x + x z p(z) with z = x**2."""
    z = x * x
    return (x * z).fma(polynomial(z, coefficients), x)


@expands("math.tanh")
def tanh(x: Real) -> Real:
    """1 - 2 / (exp(2 |x|) + 1), and for small x an odd polynomial, without cancellation."""
    a = abs(x)
    if x.format.width == 32:
        large = 1.0 - 2.0 / _exp_twice_plus_one(a.at_most(9.1))
        return select(a < 0.625, odd_polynomial(a, _TANH_SINGLE), large).or_sign_of(x)
    e = expm1_from((a + a).at_most(44.0))
    return select(a < 2.0**-28, a, e / (e + 2.0)).with_sign_of(x)


def _exp_twice_plus_one(x: Real) -> Real:
    """exp(2 x) + 1 of an f32 from 0.625 to 9.1, rounded once.

    ln 2 has no low part here: with an exponent of 26 at most it would change tanh by less than a tenth of an ulp.
    """
    shifted = x.fma(2 * LOG2_E, x.format.layout.magic)
    r = (shifted - x.format.layout.magic).fma(-LN2_SINGLE[0] / 2, x)
    fraction = (r * r).fma(polynomial(r, _TWICE_SINGLE), r + r)
    power = power_of_shifted(shifted.bits())
    return fraction.fma(power, power + 1.0)


@expands("math.sinh")
def sinh(x: Real) -> Real:
    """(exp(x) - exp(-x)) / 2."""
    a = abs(x)
    half = exp_halved(a, halvings=1)
    small = odd_polynomial(a, x.format.pick(_SINH_SINGLE, _SINH_DOUBLE))
    return select(a < 1.0, small, half - 0.25 / half).with_sign_of(x)


@expands("math.cosh")
def cosh(x: Real) -> Real:
    """(exp(x) + exp(-x)) / 2."""
    half = exp_halved(abs(x), halvings=1)
    return half + 0.25 / half


# above it, x**2 would overflow, and adding 1 to it has no effect
_HUGE = 2.0**500


@expands("math.asinh")
def asinh(x: Real) -> Real:
    """log(x + sqrt(x**2 + 1))."""
    a = abs(x).to_double()
    square = a * a
    if x.format.width == 32:
        far = log_short(a + (square + 1.0).sqrt())
        near = a.fma(square * (-1 / 6), a)
        value = select(a < 2.0**-10, near, far).rounded_to(x.format)
    else:
        huge = a > _HUGE
        inner = a + square / ((square + 1.0).sqrt() + 1.0)
        value = log1p(select(huge, a, inner)) + select(huge, LN2_DOUBLE[0], 0.0)
    return value.with_sign_of(x)


@expands("math.acosh")
def acosh(x: Real) -> Real:
    """log(x + sqrt(x**2 - 1)), NaN below 1."""
    wide = x.to_double()
    if x.format.width == 32:
        root = wide.fma(wide, -1.0).sqrt()
        value = log_short(wide + root)
    else:
        huge = wide > _HUGE
        over = wide - 1.0
        inner = over + over.fma(over, over + over).sqrt()
        value = log1p(select(huge, wide, inner)) + select(huge, LN2_DOUBLE[0], 0.0)
    return select(wide < 1.0, float("nan"), value).rounded_to(x.format)


@expands("math.atanh")
def atanh(x: Real) -> Real:
    """log((1 + x) / (1 - x)) / 2, NaN beyond 1."""
    a = abs(x).to_double()
    if x.format.width == 32:
        far = log_short((a + 1.0) / (1.0 - a)) * 0.5
        near = a.fma(a * a * (1 / 3), a)
        value = select(a < 2.0**-10, near, far).rounded_to(x.format)
    else:
        value = log1p((a + a) / (1.0 - a)) * 0.5
    return value.with_sign_of(x)
