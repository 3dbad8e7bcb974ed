"""Inverse trigonometric functions asin, acos, atan and atan2.

Constants like pi/2 are pairs, so that subtracting from them loses no bits.
"""

from __future__ import annotations

from stablexla.lowering.math.registry import expands
from stablexla.lowering.math.values import Format, Pair, Real, fast_two_sum, polynomial, select

# atan(t) = t + t z p(z) and asin(t) = t + t z p(z) for |t| <= 1 / 2, z = t**2
_ATAN_SINGLE = (
    -0.333333283662796, 0.19999554753303528, -0.14273107051849365, 0.10948410630226135, -0.08009075373411179,
    0.03904210403561592,
)  # fmt: skip
_ATAN_DOUBLE = (
    -0.33333333333333315, 0.19999999999993776, -0.14285714284999695, 0.1111111107013436, -0.09090907708430206,
    0.0769227770149899, -0.06666225782233819, 0.05877822472569764, -0.052300865237826746,
    0.04589693717810255, -0.03712415427564506, 0.023662124970885885, -0.008369881813249585,
)  # fmt: skip
_ASIN_SINGLE = (
    0.16666752099990845, 0.074953094124794, 0.045469485223293304, 0.02417992241680622, 0.042173516005277634,
)  # fmt: skip
_ASIN_DOUBLE = (
    0.16666666666665408, 0.07500000000336932, 0.044642856828383426, 0.030381959134973248, 0.022371758095298115,
    0.017359704101671775, 0.01388524199936459, 0.012169168348689058, 0.0065281646210832035,
    0.019527741966211775, -0.016223426065345, 0.031911700950144985,
)  # fmt: skip


def half_pi(format: Format) -> tuple[float, float]:
    parts: tuple[float, float] = format.pick(
        (1.5707963705062866, -4.371138828673793e-08), (1.5707963267948966, 6.123233995736766e-17)
    )
    return parts


def _asin_parts(a: Real) -> tuple[Real, Real]:
    """Return the parts of asin: for 0 <= a <= 1/2, a and asin(a) - a; above, s and asin(s) - s.

    s = sqrt((1 - a) / 2), so that asin(a) = pi/2 - 2 asin(s); the root's rounding error is in the second part.
    """
    large = a > 0.5
    z = select(large, a.fma(-0.5, 0.5), a * a)
    root = z.sqrt()
    # the denominator stays above 0
    lost = (-root).fma(root, z) / root.fma(2.0, a.format.layout.smallest_normal)
    s = select(large, root, a)
    coefficients = a.format.pick(_ASIN_SINGLE, _ASIN_DOUBLE)
    return s, (s * z).fma(polynomial(z, coefficients), select(large, lost, 0.0))


@expands("math.asin")
def asin(x: Real) -> Real:
    """The arc sine, NaN beyond 1."""
    high, low = half_pi(x.format)
    a = abs(x)
    s, rest = _asin_parts(a)
    start = fast_two_sum(x.format.real(high), s * -2.0)
    far = start.high + (start.low + rest.fma(-2.0, low))
    return select(a > 0.5, far, s + rest).with_sign_of(x)


@expands("math.acos")
def acos(x: Real) -> Real:
    """The arc cosine, NaN beyond 1: pi/2 - asin(x), 2 asin(s) or pi - 2 asin(s)."""
    high, low = half_pi(x.format)
    a = abs(x)
    s, rest = _asin_parts(a)
    large, negative = a > 0.5, x < 0.0
    # the result is base - factor * (s + rest)
    base_high = select(large, select(negative, 2.0 * high, 0.0), high)
    base_low = select(large, select(negative, 2.0 * low, 0.0), low)
    factor = select(large, 2.0, -1.0)
    factor = select(negative, factor, -factor)
    start = fast_two_sum(base_high, -(s * factor))
    return start.high + (start.low + (-rest).fma(factor, base_low))


def _angle(top: Real, bottom: Real) -> Pair:
    """atan(top / bottom) for 0 <= top <= bottom, as a part known exactly (0 or pi/4) and the rest."""
    quarter_high, quarter_low = (part / 2 for part in half_pi(top.format))
    # from a half on their difference is exact
    far = top + top >= bottom
    t = select(far, top - bottom, top) / select(far, top + bottom, bottom)
    z = t * t
    coefficients = top.format.pick(_ATAN_SINGLE, _ATAN_DOUBLE)
    rest = (t * z).fma(polynomial(z, coefficients), select(far, quarter_low, 0.0))
    start = fast_two_sum(select(far, quarter_high, 0.0), t)
    return Pair(start.high, start.low + rest)


def _reflected(angle: Pair, mirror: Real, mirror_low: Real) -> Pair:
    """Return mirror - angle."""
    start = fast_two_sum(mirror, -angle.high)
    return Pair(start.high, start.low + (mirror_low - angle.low))


@expands("math.atan")
def atan(x: Real) -> Real:
    """The arc tangent."""
    high, low = half_pi(x.format)
    a = abs(x)
    inverted = a > 1.0
    one = x.format.real(1.0)
    angle = _angle(select(inverted, one, a), select(inverted, a, one))
    other = _reflected(angle, x.format.real(high), x.format.real(low))
    return select(inverted, other.value(), angle.value()).with_sign_of(x)


@expands("math.atan2")
def atan2(y: Real, x: Real) -> Real:
    """The angle of the point (x, y), with C's results for zeros and infinities."""
    high, low = half_pi(x.format)
    a, b = abs(y), abs(x)
    steep = a > b
    top, bottom = select(steep, b, a), select(steep, a, b)
    # keeps their sum finite; where this makes `top` denormal the quotient is 0 anyway
    shrink = select(bottom > 2.0 ** (x.format.layout.bias - 3), 0.25, 1.0)
    # equal sides have angle pi/4 without a quotient: infinities; and 0 / 0 is angle 0
    same = top.equals(bottom)
    zero = bottom.equals(0.0)
    top = select(same, select(zero, 0.0, 1.0), top * shrink)
    bottom = select(same, 1.0, bottom * shrink)
    angle = _angle(top, bottom)
    other = _reflected(angle, x.format.real(high), x.format.real(low))
    angle = Pair(select(steep, other.high, angle.high), select(steep, other.low, angle.low))
    other = _reflected(angle, x.format.real(2.0 * high), x.format.real(2.0 * low))
    left = x.bits().compare("slt", 0)  # -0 too
    value = select(left, other.value(), angle.value())
    return select(x.compare("uno", y), x + y, value.with_sign_of(y))
