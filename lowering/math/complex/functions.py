"""Elementary functions of complex numbers: roots, exponentials, logarithms, trigonometric and hyperbolic functions.

They are computed in f64 on the parts. The functions of the parts are `math` operations, which `expand_math` expands.
"""

from __future__ import annotations

from math import inf, log

import mlir.ir as ir

from stablexla.lowering.math.complex.arithmetic import (
    COMPOSITES,
    LARGE,
    SCALE,
    SCALE_EXPONENT,
    SMALL,
    Complex,
    binary_function,
    divide,
    half_abs,
    multiply,
    scale_of_squares,
    unary_function,
)
from stablexla.lowering.math.values import Mask, Real, select, two_product, two_sum

# Beyond this exp in f64 is near overflow or denormals, and is computed as a square: exp(x / 2)^2.
LARGE_EXPONENT = 700.0


def call(name: str, *operands: Real) -> Real:
    """Emit a function of reals from the `math` dialect."""
    format = operands[0].format
    values = [v.ssa for v in operands]
    return Real(format, ir.Operation.create(f"math.{name}", results=[format.real_type], operands=values).result)


# ---- roots -------------------------------------------------------------------------------------------------


def _scaled_up(x: Complex) -> tuple[Complex, Mask | None]:
    """Scale x by SCALE where its parts are so small that halving them loses bits."""
    if not x.wide:
        return x, None
    small = x.larger() < SMALL
    return x.scaled(select(small, x.re.format.real(SCALE), 1.0)), small


def _root(x: Complex, half: Real) -> Complex:
    """Square root of x, given |x| / 2: the larger part first, the other by division, without cancellation."""
    larger = abs(x.re).fma(0.5, half).sqrt()
    smaller = select(larger.equals(0.0), larger, abs(x.im) / (larger * 2.0))
    right = x.re >= 0.0
    re = select(right, larger, smaller)
    im = select(right, smaller, larger)
    return x.of(re, im.with_sign_of(x.im))


@unary_function("sqrt")
def sqrt(x: Complex) -> Complex:
    """Principal square root, in the right half plane; on the branch cut its imaginary part has the sign of x's."""
    near, small = _scaled_up(x)
    root = _root(near, half_abs(near))
    if small is not None:
        root = root.scaled(select(small, x.re.format.real(2.0 ** (-SCALE_EXPONENT // 2)), 1.0))
    endless = abs(x.im).equals(inf)
    infinite_re = abs(x.re).equals(inf)
    # -inf + NaN i has the root NaN + inf i; every number with an infinite imaginary part inf + inf i (or its conjugate)
    re = select(endless, inf, select(infinite_re & (x.re < 0.0), select(x.im.is_nan(), x.im, 0.0), root.re))
    zero = x.re.format.real(0.0).with_sign_of(x.im)
    infinite = x.re.format.real(inf).with_sign_of(x.im)
    at_infinity = select(x.re > 0.0, select(x.im.is_nan(), x.im, zero), infinite)
    im = select(endless, infinite, select(infinite_re, at_infinity, root.im))
    return x.of(re, im)


@unary_function("rsqrt")
def rsqrt(x: Complex) -> Complex:
    """1 / sqrt(x): the root's conjugate over |x|. Of 0 it is inf + NaN i, of an infinity 0."""
    near, small = _scaled_up(x)
    half = half_abs(near)
    root = _root(near, half)
    result = x.of(root.re / half * 0.5, -root.im / half * 0.5)
    if small is not None:
        result = result.scaled(select(small, x.re.format.real(2.0 ** (SCALE_EXPONENT // 2)), 1.0))
    zero = x.re.format.real(0.0)
    endless = half.equals(inf)
    re = select(endless, zero, select(half.equals(0.0), inf, result.re))
    return x.of(re, select(endless, zero.with_sign_of(-x.im), result.im))


@unary_function("cbrt")
def cbrt(x: Complex) -> Complex:
    """Principal cube root: its angle is a third of x's."""
    near, small = _scaled_up(x)
    radius = call("cbrt", half_abs(near)) * 2.0 ** (1 / 3)
    if small is not None:
        radius = radius * select(small, x.re.format.real(2.0 ** (-SCALE_EXPONENT // 3)), 1.0)
    angle = call("atan2", x.im, x.re) / 3.0
    return x.of(*_rotate(angle, radius, None))


# ---- exponentials and logarithms ---------------------------------------------------------------------------


def _rotate(angle: Real, radius: Real, again: Real | None) -> tuple[Real, Real]:
    """Return radius times cos and sin of the angle; a zero angle keeps its sign. `again` is a second factor."""
    re, im = call("cos", angle) * radius, call("sin", angle) * radius
    if again is not None:
        re, im = re * again, im * again
    return re, select(angle.equals(0.0), angle, im)


@unary_function("exponential")
def exponential(x: Complex) -> Complex:
    """exp(re) (cos im + i sin im)."""
    exponent, again = x.re, None
    if x.wide:
        large = abs(x.re) > LARGE_EXPONENT
        exponent = select(large, x.re * 0.5, x.re)
    radius = call("exp", exponent)
    if x.wide:
        again = select(large, radius, 1.0)
    re, im = _rotate(x.im, radius, again)
    nowhere = ~(abs(x.im) < inf)  # no direction: infinite or NaN
    vanishing, growing = x.re.equals(-inf) & nowhere, x.re.equals(inf) & nowhere
    re = select(vanishing, 0.0, select(growing, inf, re))
    return x.of(re, select(vanishing, x.re.format.real(0.0).with_sign_of(x.im), im))


@unary_function("exponential_minus_one")
def exponential_minus_one(x: Complex) -> Complex:
    """exp(x) - 1, with the real part as expm1(re) cos im - 2 sin(im / 2)^2."""
    power = exponential(x)
    half = call("sin", x.im * 0.5)
    re = call("expm1", x.re).fma(call("cos", x.im), half * half * -2.0)
    re = select(x.re > 40.0, power.re, select(x.re < -800.0, -1.0, re))
    return x.of(re, power.im)


@unary_function("logistic")
def logistic(x: Complex) -> Complex:
    """1 / (1 + exp(-x)) = (exp(re) + cos im + i sin im) / (4 (sinh(re / 2)^2 + cos(im / 2)^2))."""
    sinh, cos = call("sinh", x.re * 0.5), call("cos", x.im * 0.5)
    norm = sinh.fma(sinh, cos * cos) * 4.0
    # exp(re) + cos im as (exp(re) - 1) + (1 + cos im), without cancellation near the poles
    re = cos.fma(cos * 2.0, call("expm1", x.re)) / norm
    im = call("sin", x.im) / norm
    # Far out only the first term of the series in exp(-|re|) counts, and the formula overflows.
    far = abs(x.re) > 40.0
    limit = x.of(-abs(x.re), x.im)
    tail = exponential(limit)
    re = select(far, select(x.re > 0.0, 1.0, tail.re), re)
    return x.of(re, select(far, tail.im, im))


def _log_abs(x: Real, y: Real, below: Real, wide: bool) -> Real:
    """log |x + i y|, given also the exact x - 1 where |x + i y| is near 1: there log1p(|x + i y|^2 - 1) / 2."""
    number = Complex(x, y, wide)
    offset = x.format.real(0.0)
    if wide:
        larger = number.larger()
        large, small = larger > LARGE, larger < SMALL
        scale, _ = scale_of_squares(number)
        number = number.scaled(scale)
        far = log(SCALE)
        offset = select(large, far, select(small, -far, 0.0))
    square = number.re.fma(number.re, number.im * number.im)
    near = (square > 0.5) & (square < 3.0)
    if wide:
        near = near & ~(large | small)  # not numbers that are near 1 by scaling
    by_log = call("log", square).fma(0.5, offset)
    by_log1p = call("log1p", _square_minus_one(below, y)) * 0.5
    return select(number.is_infinite(), inf, select(near, by_log1p, by_log))


def _square_minus_one(a: Real, b: Real) -> Real:
    """(1 + a)^2 + b^2 - 1 = 2 a + a^2 + b^2, summed in double-double precision because it may cancel."""
    square, other = two_product(a, a), two_product(b, b)
    first = two_sum(a * 2.0, square.high)
    second = two_sum(first.high, other.high)
    return second.high + ((first.low + second.low) + (square.low + other.low))


@unary_function("log")
def logarithm(x: Complex) -> Complex:
    """log |x| and the angle, from -pi to pi."""
    re, im = abs(x.re), abs(x.im)
    swap = im > re
    larger, smaller = select(swap, im, re), select(swap, re, im)
    return x.of(_log_abs(larger, smaller, larger - 1.0, x.wide), call("atan2", x.im, x.re))


@unary_function("log_plus_one")
def log_plus_one(x: Complex) -> Complex:
    """log(1 + x), where adding 1 loses no bits."""
    shifted = x.re + 1.0
    return x.of(_log_abs(shifted, x.im, x.re, x.wide), call("atan2", x.im, shifted))


@binary_function("atan2")
def atan2(y: Complex, x: Complex) -> Complex:
    """-i log((x + i y) / sqrt(x^2 + y^2))."""
    square = multiply(x, x), multiply(y, y)
    distance = sqrt(x.of(square[0].re + square[1].re, square[0].im + square[1].im))
    direction = logarithm(divide(x.of(x.re - y.im, x.im + y.re), distance))
    return x.of(direction.im, -direction.re)


# ---- trigonometric and hyperbolic --------------------------------------------------------------------------


def _cosh_sinh(x: Real, wide: bool) -> tuple[Real, Real, Real | None]:
    """Return cosh and sinh, and a final factor of both that prevents premature overflow."""
    if not wide:
        return call("cosh", x), call("sinh", x), None
    large = abs(x) > LARGE_EXPONENT
    root = select(large, x * 0.5, x)
    cosh = call("cosh", root)
    return cosh, call("sinh", root), select(large, cosh * 2.0, 1.0)


@unary_function("sine")
def sine(x: Complex) -> Complex:
    """sin re cosh im + i cos re sinh im."""
    cosh, sinh, again = _cosh_sinh(x.im, x.wide)
    re, im = call("sin", x.re) * cosh, call("cos", x.re) * sinh
    if again is not None:
        re, im = re * again, im * again
    lost = abs(x.im).equals(inf) & im.is_nan()
    im = select(lost, x.im, select(x.im.equals(0.0), x.im.with_sign_of(im), im))
    return x.of(select(x.re.equals(0.0), x.re, re), im)


@unary_function("cosine")
def cosine(x: Complex) -> Complex:
    """cos re cosh im - i sin re sinh im."""
    cosh, sinh, again = _cosh_sinh(x.im, x.wide)
    sin = call("sin", x.re)
    re, im = call("cos", x.re) * cosh, -(sin * sinh)
    if again is not None:
        re, im = re * again, im * again
    lost = abs(x.im).equals(inf) & re.is_nan()
    zero = x.re.equals(0.0) | x.im.equals(0.0)
    sign = -(sin * x.re.format.real(1.0).with_sign_of(x.im))
    return x.of(select(lost, inf, re), select(zero, x.re.format.real(0.0).with_sign_of(sign), im))


@unary_function("tanh")
def tanh(x: Complex) -> Complex:
    """(sinh re cosh re + i sin im cos im) / (sinh(re)^2 + cos(im)^2), without cancellation."""
    sinh = call("sinh", x.re)
    sin, cos = call("sin", x.im), call("cos", x.im)
    norm = sinh.fma(sinh, cos * cos)
    re = sinh * sinh.fma(sinh, 1.0).sqrt() / norm
    both = sin * cos
    far = abs(x.re) > 20.0
    limit = x.re.format.real(1.0).with_sign_of(x.re)
    tail = both * 4.0 * call("exp", abs(x.re) * -2.0)
    re = select(x.re.equals(0.0), x.re, select(far, limit, re))
    im = select(far, tail, both / norm)
    nowhere = abs(x.re).equals(inf) & ~(abs(x.im) < inf)
    im = select(nowhere, x.re.format.real(0.0).with_sign_of(x.im), im)
    return x.of(re, select(x.im.equals(0.0), x.im, im))


@unary_function("chlo.tan", COMPOSITES)
@unary_function("tan")
def tan(x: Complex) -> Complex:
    """-i tanh(i x)."""
    turned = tanh(x.of(x.im, x.re))
    return x.of(turned.im, turned.re)


@unary_function("chlo.sinh", COMPOSITES)
def sinh(x: Complex) -> Complex:
    """-i sin(i x)."""
    turned = sine(x.of(x.im, x.re))
    return x.of(turned.im, turned.re)


@unary_function("chlo.cosh", COMPOSITES)
def cosh(x: Complex) -> Complex:
    """cos(i x)."""
    return cosine(x.of(-x.im, x.re))
