"""Logarithms log, log2, log10 and log1p, and the parts of log that other functions build on.

x = 2**k (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)), so that k is 0 around x = 1, without cancellation there.
"""

from __future__ import annotations

from typing import cast

from stablexla.lowering.math.exponential import LN2_DOUBLE
from stablexla.lowering.math.registry import expands
from stablexla.lowering.math.values import (
    Integer,
    Mask,
    Pair,
    Real,
    constant_pair,
    fast_two_sum,
    polynomial,
    select,
    two_product,
    two_sum,
    when_any,
)

# log(1 + f) = f - f**2 / 2 + f**3 p(f)
_LOG_SINGLE = (
    0.3333331346511841, -0.2500016987323761, 0.20002225041389465, -0.16659294068813324, 0.14209386706352234,
    -0.12549255788326263, 0.12109538912773132, -0.10926905274391174, 0.0535549558699131,
)  # fmt: skip
# log((1 + s) / (1 - s)) = 2 s + s z p(z) with z = s**2
_LOG_DOUBLE = (
    0.6666666666666735, 0.3999999999940933, 0.28571428743697014, 0.2222219842741898, 0.18183572457081823,
    0.1531382907844603, 0.14798293936127044,
)  # fmt: skip
_LOG_SHORT = (0.6666666564382845, 0.400003355924898, 0.2853728134694251, 0.2358269694608542)
# the same with 2/3 as a pair in front: 2 s + s z (2/3 + z p(z)), to 73 bits
_LOG_PAIR = (
    0.3999999999999998, 0.2857142857144385, 0.22222222217785373, 0.18181818844667058, 0.15384558375732338,
    0.1333626672899597, 0.11675732283883625, 0.11982178017472636,
)  # fmt: skip

# ln 2 with a high part so short that its product with an exponent is exact
_LN2_SINGLE = (0.69317626953125, -2.9088971132296138e-05)
_LN2_DOUBLE = (0.6931471805601177, -1.7239444525614835e-13)

_SQRT_HALF_BITS = {32: 0x3F3504F3, 64: 0x3FE6A09E667F3BCD}


def split(x: Real, normal: bool = False) -> tuple[Real, Real, Integer]:
    """Split a positive finite x: return k, f, and k in the exponent bits; `normal` says that no x is denormal."""
    layout = x.format.layout
    offset = 2.0**layout.fraction_bits + layout.bias + 1
    tiny = x < layout.smallest_normal
    scaled = x if normal else select(tiny, x * 2.0**layout.fraction_bits, x)
    distance = scaled.bits() - _SQRT_HALF_BITS[layout.width]
    exponent = distance & -(1 << layout.fraction_bits)
    f = (scaled.bits() - exponent).as_real() - 1.0
    biased = (distance + ((layout.bias + 1) << layout.fraction_bits)) >> layout.fraction_bits
    number = (biased | ((layout.bias + layout.fraction_bits) << layout.fraction_bits)).as_real()
    if normal:
        return number - offset, f, exponent
    return number - select(tiny, offset + layout.fraction_bits, offset), f, exponent


def log_minus(f: Real) -> Real:
    """log(1 + f) - f for 1 + f in [sqrt(1/2), sqrt(2)]."""
    if f.format.width == 32:
        square = f * f
        return square.fma(-0.5, square * f * polynomial(f, _LOG_SINGLE))
    return _log_minus_ratio(f, _LOG_DOUBLE)


def _log_minus_ratio(f: Real, coefficients: tuple[float, ...]) -> Real:
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    return s * z.fma(polynomial(z, coefficients), half_square) - half_square


def log_of_special(x: Real, value: Real) -> Real:
    """Return `value`, or the logarithm's special value where x is not positive and finite."""
    value = select(x < float("inf"), value, x)  # infinity and NaN
    value = select(x.equals(0.0), -float("inf"), value)
    return select(x < 0.0, float("nan"), value)


def log_short(x: Real) -> Real:
    """log(x) of an f64 to 37 bits; x is neither denormal nor 0."""
    k, f, _ = split(x, normal=True)
    value = k.fma(LN2_DOUBLE[0], f + _log_minus_ratio(f, _LOG_SHORT))
    value = select(x < float("inf"), value, x)
    return select(x < 0.0, float("nan"), value)


def log_of_normal(x: Real) -> Real:
    """log(x) of a positive normal number, with the rounding errors of f + k ln 2."""
    k, f, _ = split(x, normal=True)
    return k.fma(LN2_DOUBLE[0], f + log_minus(f))


def _combine(k: Real, f: Real, rest: Real) -> Real:
    """k ln 2 + f + rest, rounded once but for small parts."""
    high, low = k.format.pick(_LN2_SINGLE, _LN2_DOUBLE)
    total = fast_two_sum(k * high, f)
    return total.high + (total.low + k.fma(low, rest))


@expands("math.log")
def log(x: Real) -> Real:
    """The natural logarithm; a branch handles denormal, negative and infinite numbers where there are any."""
    special = _is_special(x)
    scaled, places = when_any(special, lambda: _scaled(x), [x, x.format.real(0.0)])
    k, f, _ = split(scaled, normal=True)
    value = _combine(k - places, f, log_minus(f))
    (result,) = when_any(special, lambda: [log_of_special(x, value)], [value])
    return cast(Real, result)


def _is_special(x: Real) -> Mask:
    """Whether x is no positive normal number, by one signed comparison of its shifted bit pattern."""
    layout = x.format.layout
    least, infinite = 1 << layout.fraction_bits, (2 * layout.bias + 1) << layout.fraction_bits
    lowest = 1 << (layout.width - 1)
    return (x.bits() + (lowest - least)).compare("sge", lowest + infinite - least)


def _scaled(x: Real) -> list[Real]:
    """Scale x to a normal number if it is denormal; return it and the shift of its exponent."""
    layout = x.format.layout
    tiny = x < layout.smallest_normal
    return [select(tiny, x * 2.0**layout.fraction_bits, x), select(tiny, float(layout.fraction_bits), 0.0)]


def _log_to_base(x: Real, of_two: tuple[float, float], of_e: tuple[float, float]) -> Real:
    """log(x) / log(base): `of_two` and `of_e` are 1 / log2(base) and 1 / ln(base) in two parts, k * of_two[0] exact."""
    k, f, _ = split(x)
    high, low = of_e
    product = two_product(f, high)
    small = log_minus(f).fma(high, f.fma(low, product.low))
    total = fast_two_sum(k * of_two[0], product.high)
    value = total.high + (total.low + k.fma(of_two[1], small))
    return log_of_special(x, value)


@expands("math.log2")
def log2(x: Real) -> Real:
    """The logarithm to base 2."""
    of_e = x.format.pick((1.4426950216293335, 1.925963033500011e-08), (1.4426950408889634, 2.0355273740931033e-17))
    return _log_to_base(x, (1.0, 0.0), of_e)


@expands("math.log10")
def log10(x: Real) -> Real:
    """The logarithm to base 10."""
    of_two = x.format.pick((0.301025390625, 4.605039066518657e-06), (0.3010299956640665, -8.532344317057107e-14))
    of_e = x.format.pick((0.4342944920063019, -1.0103049952192578e-08), (0.4342944819032518, 1.098319650216765e-17))
    return _log_to_base(x, of_two, of_e)


@expands("math.log1p")
def log1p(x: Real) -> Real:
    """log(1 + x): the rounding error of 1 + x is added back after scaling (compensated)."""
    layout = x.format.layout
    rounded = x + 1.0
    big = x > 1.0
    # 1 + x - rounded without error: Dekker's sum, the larger part first
    lost = select(big, 1.0 - (rounded - x), x - (rounded - 1.0))
    k, f, exponent = split(rounded, normal=True)
    # 2**-k; it is 0 only where no bits are lost
    inverse = (exponent.format.integer(layout.bias << layout.fraction_bits) - exponent).at_least(0).as_real()
    whole = fast_two_sum(f, lost * inverse)
    value = _combine(k, whole.high, log_minus(whole.high) + whole.low)
    value = select(x < float("inf"), value, x)
    value = select(x.equals(-1.0), -float("inf"), value)
    value = select(x < -1.0, float("nan"), value)
    return select(abs(x) < 2.0 ** -(layout.precision + 1), x, value)


def log_pair(x: Real) -> Pair:
    """log(x) of a positive finite f64 to some 65 bits."""
    k, f, _ = split(x)
    bottom = fast_two_sum(x.format.real(2.0), f)
    inverse = 1.0 / bottom.high
    ratio = f * inverse
    rest = (-ratio).fma(bottom.low, (-ratio).fma(bottom.high, f))
    s = fast_two_sum(ratio, rest * inverse)
    z = s * s
    inner = two_sum(x.format.real(0.6666666666666666), z.high * polynomial(z.high, _LOG_PAIR))
    inner = Pair(inner.high, inner.low + 3.700743415417188e-17)
    series = s * z * inner
    twice = Pair(s.high * 2.0, s.low * 2.0)
    mantissa = fast_two_sum(twice.high, series.high)
    mantissa = fast_two_sum(mantissa.high, mantissa.low + (twice.low + series.low))
    scaled = constant_pair(x.format, *LN2_DOUBLE).times(k)
    return scaled + mantissa
