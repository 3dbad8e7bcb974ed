"""Inverse trigonometric and hyperbolic functions of complex numbers, after Kahan, without cancellation.

The sign of a zero selects the side of a branch cut.

They are CHLO's composites, whose decompositions take -0 for +0.
"""

from __future__ import annotations

from math import log, pi

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.math.complex.arithmetic import COMPOSITES, LARGE, Complex, divide, unary_function
from stablexla.lowering.math.complex.functions import call, logarithm, sqrt
from stablexla.lowering.math.values import Mask, Real, select

# This near to 1 only the distance from 1 matters.
NEAR = 2.0**-40


@dataclass(frozen=True)
class _Roots:
    """Intermediate values of asin and acos: the roots of 1 - x and 1 + x, and the values for large x."""

    less: Complex
    more: Complex
    far: Mask
    log_twice: Real


def _roots(x: Complex) -> _Roots:
    """Return the intermediate values; where x^2 would overflow, log(2 |x|) and the angle of x replace the roots."""
    one = x.re.format.real(1.0)
    less, more = sqrt(x.of(one - x.re, -x.im)), sqrt(x.of(x.re + 1.0, x.im))
    far = (x.larger() > LARGE) | x.is_infinite()
    return _Roots(less, more, far, logarithm(x.of(abs(x.re), abs(x.im))).re + log(2.0))


@unary_function("chlo.asin", COMPOSITES)
def asin(x: Complex) -> Complex:
    """atan2(re, Re(r s)) + i asinh(Im(conj(r) s)), where r and s are the roots of 1 - x and 1 + x."""
    roots = _roots(x)
    r, s = roots.less, roots.more
    re = call("atan2", x.re, select(roots.far, abs(x.im), r.re * s.re - r.im * s.im))
    im = call("asinh", r.re * s.im - r.im * s.re)
    return x.of(re, select(roots.far, roots.log_twice.with_sign_of(x.im), im))


@unary_function("chlo.acos", COMPOSITES)
def acos(x: Complex) -> Complex:
    """2 atan2(Re r, Re s) + i asinh(Im(conj(s) r))."""
    roots = _roots(x)
    r, s = roots.less, roots.more
    re = call("atan2", select(roots.far, abs(x.im), r.re), select(roots.far, x.re, s.re))
    im = call("asinh", s.re * r.im - s.im * r.re)
    return x.of(select(roots.far, re, re * 2.0), select(roots.far, roots.log_twice.with_sign_of(-x.im), im))


@unary_function("chlo.asinh", COMPOSITES)
def asinh(x: Complex) -> Complex:
    """-i asin(i x)."""
    turned = asin(x.of(-x.im, x.re))
    return x.of(turned.im, -turned.re)


@unary_function("chlo.acosh", COMPOSITES)
def acosh(x: Complex) -> Complex:
    """acos, rotated into the right half plane."""
    angle = acos(x)
    return x.of(abs(angle.im), angle.re.with_sign_of(x.im))


@unary_function("chlo.atanh", COMPOSITES)
def atanh(x: Complex) -> Complex:
    """log1p(4 re / |1 - x|^2) / 4 + i atan2(2 im, (1 - re) (1 + re) - im^2) / 2, of the first quadrant."""
    re, im = abs(x.re), abs(x.im)
    less = re.format.real(1.0) - re
    distance = less.fma(less, im * im)
    near = distance < NEAR * NEAR
    size = call("log1p", re * 4.0 / select(near, 1.0, distance)) * 0.25
    beside_one = less.fma(0.5, logarithm(x.of(abs(less), im)).re) - log(2.0)  # log |1 - x| - log |1 + x|
    size = select(near, beside_one * -0.5, size)
    angle = call("atan2", im * 2.0, less.fma(re + 1.0, -(im * im))) * 0.5
    far = (x.larger() > LARGE) | x.is_infinite()
    one = x.of(re.format.real(1.0), re.format.real(0.0))
    inverse = divide(one, x.of(re, im)).re
    inverse = select(x.is_infinite(), 0.0, inverse)
    size = select(far, inverse, size)
    angle = select(far & ~(x.im.is_nan()), pi / 2, angle)
    return x.of(size.with_sign_of(x.re), angle.with_sign_of(x.im))


@unary_function("chlo.atan", COMPOSITES)
def atan(x: Complex) -> Complex:
    """-i atanh(i x)."""
    turned = atanh(x.of(-x.im, x.re))
    return x.of(turned.im, -turned.re)
