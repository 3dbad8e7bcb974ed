"""Complex power exp(y log x). For c128 the logarithm is double-double: its absolute error is the power's relative one.

For c64 the power is computed in f64 like the functions of functions.py, and needs no pairs.
"""

from __future__ import annotations

from math import inf, nan

from stablexla.lowering.math.complex.arithmetic import Complex, binary_function, exponent_of
from stablexla.lowering.math.complex.functions import exponential, logarithm
from stablexla.lowering.math.exponential import LN2_DOUBLE
from stablexla.lowering.math.logarithm import log_pair
from stablexla.lowering.math.values import (
    Mask,
    Pair,
    Real,
    constant_pair,
    fast_two_sum,
    polynomial,
    power_of_two,
    select,
    two_product,
    two_sum,
)

HALF_PI, PI = (1.5707963267948966, 6.123233995736766e-17), (3.141592653589793, 1.2246467991473532e-16)
# atan(k / 8) as pairs, for k from 0 to 8
_STEPS = 8
_ANGLES = (
    (0.0, 0.0),
    (0.12435499454676144, -3.1253241424539383e-18),
    (0.24497866312686414, 1.0698755618734451e-17),
    (0.35877067027057225, -2.4623815582638635e-17),
    (0.4636476090008061, 2.2698777452961687e-17),
    (0.5585993153435624, -5.4556305485916264e-18),
    (0.6435011087932844, 1.5834785051444286e-17),
    (0.7188299996216245, -2.1478388444456983e-17),
    (0.7853981633974483, 3.061616997868383e-17),
)
# atan(u) = u + u z p(z), z = u * u; 1 / 16 is the largest u
_ATAN = tuple((-1.0) ** (k + 1) / (2 * k + 3) for k in range(8))


@binary_function("power")
def power(x: Complex, y: Complex) -> Complex:
    """exp(y log x). x^0 and 1^y are 1, also with NaN; 0^y is 0 where y's real part is positive, else NaN."""
    result = _power_pair(x, y) if x.wide else _power_plain(x, y)
    of_zero = select((y.re > 0.0) & (abs(y.im) < inf), 0.0, y.re.format.real(nan))
    zero = x.is_zero()
    one = y.is_zero() | (x.re.equals(1.0) & x.im.equals(0.0))
    re = select(one, 1.0, select(zero, of_zero, result.re))
    return x.of(re, select(one, 0.0, select(zero, of_zero, result.im)))


def _power_plain(x: Complex, y: Complex) -> Complex:
    root = logarithm(x)
    real = y.im.equals(0.0)
    radial = y.re * root.re - select(real, 0.0, y.im * root.im)
    angular = y.re * root.im + select(real, 0.0, y.im * root.re)
    return exponential(x.of(radial, angular))


def _power_pair(x: Complex, y: Complex) -> Complex:
    root = logarithm(x)
    ordinary = x.is_finite() & ~x.is_zero()
    size, angle = (_where(ordinary, pair, part) for pair, part in zip(_log_pair(x), (root.re, root.im), strict=True))
    real = y.im.equals(0.0)
    radial = _difference(y.re, size, y.im, angle, real)
    angular = _difference(y.re, angle, -y.im, size, real)
    whole = exponential(x.of(radial.high, angular.high))
    # The low parts: exp(a + b) = exp(a) (1 + b), for small b.
    re = whole.re + (whole.re * radial.low - whole.im * angular.low)
    im = whole.im + (whole.im * radial.low + whole.re * angular.low)
    settled = (abs(re) < inf) & (abs(im) < inf)
    return x.of(select(settled, re, whole.re), select(settled, im, whole.im))


def _where(ordinary: Mask, pair: Pair, plain: Real) -> Pair:
    return Pair(select(ordinary, pair.high, plain), select(ordinary, pair.low, 0.0))


def _difference(a: Real, x: Pair, b: Real, y: Pair, alone: Mask) -> Pair:
    """a x - b y, or a x alone; the low part is 0 where the high part is not finite."""
    first, second = x.times(a), y.times(-b)
    first = Pair(select(abs(first.low) < inf, first.high, x.high * a), first.low)
    second = Pair(select(alone, 0.0, second.high), select(alone, 0.0, second.low))
    total = two_sum(first.high, second.high)
    high = first.high + second.high
    low = total.low + (first.low + second.low)
    result = fast_two_sum(high, low)
    usable = (abs(high) < inf) & (abs(low) < inf)
    return Pair(select(usable, result.high, high), select(usable, result.low, 0.0))


def _log_pair(x: Complex) -> tuple[Pair, Pair]:
    """Return log |x| and the angle of a finite x other than 0."""
    exponent = exponent_of(x.larger())
    near = x.scaled(power_of_two(exponent.format.integer(0) - exponent))
    re, im = two_product(near.re, near.re), two_product(near.im, near.im)
    square = two_sum(re.high, im.high)
    square = fast_two_sum(square.high, square.low + (re.low + im.low))
    logarithm_of_square = log_pair(square.high)
    low = logarithm_of_square.low + square.low / square.high
    half = fast_two_sum(logarithm_of_square.high * 0.5, low * 0.5)
    number = (exponent + 2048).to_real() - 2048.0
    return constant_pair(x.re.format, *LN2_DOUBLE).times(number) + half, _angle(near)


def _angle(x: Complex) -> Pair:
    """Return the angle of a number without overflow or underflow of its parts."""
    a, b = abs(x.re), abs(x.im)
    steep = b > a
    angle = _first_octant(select(steep, b, a), select(steep, a, b))
    zero = x.re.format.real(0.0)
    mirrored = constant_pair(x.re.format, *HALF_PI) + Pair(-angle.high, -angle.low)
    angle = Pair(select(steep, mirrored.high, angle.high), select(steep, mirrored.low, angle.low))
    mirrored = constant_pair(x.re.format, *PI) + Pair(-angle.high, -angle.low)
    left = x.re.bits().compare("slt", 0)
    high, low = select(left, mirrored.high, angle.high), select(left, mirrored.low, angle.low)
    down = x.im.bits().compare("slt", 0)
    return Pair(high.with_sign_of(x.im), select(down, zero - low, low))


def _first_octant(bottom: Real, top: Real) -> Pair:
    """atan(top / bottom) for 0 <= top <= bottom: a table value atan(k / 8), and a series for the remainder."""
    places = (top / bottom).fma(_STEPS, 0.5).floor()
    step = places * (1 / _STEPS)
    across, along = two_product(bottom, step), two_product(top, step)
    above, below = two_sum(top, -across.high), two_sum(bottom, along.high)
    above, below = Pair(above.high, above.low - across.low), Pair(below.high, below.low + along.low)
    u = above.high / below.high
    lost = ((-u).fma(below.high, above.high) + (above.low - u * below.low)) / below.high
    z = u * u
    rest = (u * z).fma(polynomial(z, _ATAN), lost)
    high, low = _ANGLES[0]
    base = constant_pair(bottom.format, high, low)
    for k, (high, low) in enumerate(_ANGLES[1:], 1):
        from_here = places >= float(k)
        base = Pair(select(from_here, high, base.high), select(from_here, low, base.low))
    total = two_sum(base.high, u)
    return fast_two_sum(total.high, total.low + (base.low + rest))
