"""Arithmetic and elementary functions of complex numbers, on the real and imaginary parts.

Every function but sums and products is computed in f64 and rounded once, also for c64. Special values follow C99
(Annex G); where that has none, XLA:CPU. The functions of the parts are `math` operations, which others expand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log, nan
from typing import Any

import mlir.ir as ir
from mlir.dialects import complex

from stablexla.dialects.element_types import ElementType
from stablexla.lowering.math_expansion.values import (
    Integer,
    Mask,
    Real,
    Scope,
    power_of_two,
    select,
    select_integer,
    two_product,
    two_sum,
    when_any,
)

Unary = Callable[[ir.Value, ElementType], ir.Value]
Binary = Callable[[ir.Value, ir.Value, ElementType], ir.Value]

UNARY: dict[str, Unary] = {}
BINARY: dict[str, Binary] = {}

# Beyond these a square of f64 overflows, or loses bits; SCALE brings numbers beyond them back.
LARGE, SMALL, SCALE_EXPONENT = 2.0**500, 2.0**-480, 600
SCALE = 2.0**SCALE_EXPONENT
# Where the exponential of f64 nears an overflow or a denormal it is taken as the square of a root.
LARGE_EXPONENT = 700.0


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex number. Where `wide` is not set, squares of the parts neither overflow nor underflow."""

    re: Real
    im: Real
    wide: bool

    def of(self, re: Real, im: Real) -> Complex:
        """Another number of the same range."""
        return Complex(re, im, self.wide)

    def scaled(self, factor: Real | float) -> Complex:
        return self.of(self.re * factor, self.im * factor)

    def is_zero(self) -> Mask:
        return self.re.equals(0.0) & self.im.equals(0.0)

    def is_finite(self) -> Mask:
        return (abs(self.re) < inf) & (abs(self.im) < inf)

    def is_infinite(self) -> Mask:
        """One part at least is infinite; the other may be NaN."""
        return abs(self.re).equals(inf) | abs(self.im).equals(inf)

    def larger(self) -> Real:
        """The larger of the parts' absolute values; that of the real part where the imaginary part is NaN."""
        re, im = abs(self.re), abs(self.im)
        return select(im > re, im, re)


# ---- between MLIR's values and the parts -------------------------------------------------------------------


def _split(values: Sequence[ir.Value]) -> list[Complex]:
    scope = Scope()
    numbers = []
    for value in values:
        re, im = complex.re(value), complex.im(value)
        format = scope.format_of(re.type)
        numbers.append(Complex(Real(format, re), Real(format, im), format.width == 64))
    return numbers


def create(re: ir.Value, im: ir.Value) -> ir.Value:
    """The complex number of these parts."""
    return complex.create_(ir.ComplexType.get(re.type), re, im)


def _in_double(function: Callable[..., Complex | Real]) -> Callable[..., ir.Value]:
    """A function of complex numbers as one of MLIR values, computed in f64."""

    def emit(*values_and_element: Any) -> ir.Value:
        numbers = _split(values_and_element[:-1])
        own = numbers[0].re.format
        result = function(*(Complex(n.re.to_double(), n.im.to_double(), n.wide) for n in numbers))
        if isinstance(result, Real):
            return result.rounded_to(own).ssa
        return create(result.re.rounded_to(own).ssa, result.im.rounded_to(own).ssa)

    return emit


def _as_it_is(function: Callable[..., Complex]) -> Callable[..., ir.Value]:
    """A function of complex numbers as one of MLIR values, computed in the type of their parts."""

    def emit(*values_and_element: Any) -> ir.Value:
        result = function(*_split(values_and_element[:-1]))
        return create(result.re.ssa, result.im.ssa)

    return emit


def _unary(name: str) -> Callable[[Callable[[Complex], Any]], Callable[[Complex], Any]]:
    def register(function: Callable[[Complex], Any]) -> Callable[[Complex], Any]:
        UNARY[name] = _in_double(function)
        return function

    return register


def _binary(name: str) -> Callable[[Callable[[Complex, Complex], Any]], Callable[[Complex, Complex], Any]]:
    def register(function: Callable[[Complex, Complex], Any]) -> Callable[[Complex, Complex], Any]:
        BINARY[name] = _in_double(function)
        return function

    return register


def _call(name: str, *operands: Real) -> Real:
    """A function of reals from the `math` dialect."""
    format = operands[0].format
    values = [v.ssa for v in operands]
    return Real(format, ir.Operation.create(f"math.{name}", results=[format.real_type], operands=values).result)


# ---- arithmetic --------------------------------------------------------------------------------------------


def multiply(x: Complex, y: Complex) -> Complex:
    """The schoolbook product, as XLA has it: an infinity times a finite number may hold NaN."""
    return x.of(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re)


UNARY["negate"] = _as_it_is(lambda x: x.of(-x.re, -x.im))
BINARY["add"] = _as_it_is(lambda x, y: x.of(x.re + y.re, x.im + y.im))
BINARY["multiply"] = _as_it_is(multiply)
BINARY["subtract"] = _as_it_is(lambda x, y: x.of(x.re - y.re, x.im - y.im))


def compare(x: ir.Value, y: ir.Value, direction: str) -> ir.Value:
    """EQ holds when both parts are equal; NE is its opposite."""
    a, b = _split([x, y])
    equal = a.re.equals(b.re) & a.im.equals(b.im)
    return equal.ssa if direction == "EQ" else (~equal).ssa


def _greater(x: Complex, y: Complex) -> Mask:
    """x comes after y: by the real parts, and where they are equal by the imaginary ones."""
    return (x.re > y.re) | (x.re.equals(y.re) & (x.im > y.im))


def maximum(x: Complex, y: Complex) -> Complex:
    """The later of the two in lexicographic order; y where they are not ordered."""
    later = _greater(x, y)
    return x.of(select(later, x.re, y.re), select(later, x.im, y.im))


def minimum(x: Complex, y: Complex) -> Complex:
    """The earlier of the two in lexicographic order; y where they are not ordered."""
    earlier = _greater(y, x)
    return x.of(select(earlier, x.re, y.re), select(earlier, x.im, y.im))


BINARY["maximum"] = _as_it_is(maximum)
BINARY["minimum"] = _as_it_is(minimum)


@_binary("divide")
def divide(x: Complex, y: Complex) -> Complex:
    """x times the conjugate of y over |y|^2; a real y divides the parts as they are."""
    quotient = _divide_scaled(x, y) if x.wide else _divide_plain(x, y)
    by_real = y.im.equals(0.0) & x.is_finite()
    re = select(by_real, x.re / y.re, quotient.re)
    im = select(by_real, x.im / y.re, quotient.im)
    lost = re.is_nan() & im.is_nan()
    return x.of(*when_any(lost, lambda: _recover_quotient(x, y, lost, re, im), [re, im]))


def _divide_plain(x: Complex, y: Complex) -> Complex:
    norm = y.re.fma(y.re, y.im * y.im)
    re = _sum_of_products(x.re, y.re, x.im, y.im)
    im = _sum_of_products(x.im, y.re, -x.re, y.im)
    return x.of(re / norm, im / norm)


def _divide_scaled(x: Complex, y: Complex) -> Complex:
    """The quotient of both scaled to about 1; what it is scaled back by may lie outside of f64's range."""
    up, down = _exponent(x.larger()), _exponent(y.larger())
    zero = up.format.integer(0)
    quotient = _divide_plain(x.scaled(power_of_two(zero - up)), y.scaled(power_of_two(zero - down)))
    exponent = up - down
    half = ((exponent + 4096) >> 1) - 2048
    return quotient.scaled(power_of_two(half)).scaled(power_of_two(exponent - half))


def _exponent(x: Real) -> Integer:
    """The exponent of a positive f64; that of a neighbour where its reciprocal power of two were no normal number."""
    biased = x.bits() >> x.format.layout.fraction_bits
    low = select_integer(biased.compare("slt", 1), 1, biased)
    return select_integer(low.compare("sgt", 2045), 2045, low) - x.format.layout.bias


def _sum_of_products(a: Real, b: Real, c: Real, d: Real) -> Real:
    """a * b + c * d to within 2 ULP also where the products cancel (Kahan); with infinities as written."""
    product = two_product(c, d)
    total = a.fma(b, product.high)
    return select(product.low.is_nan(), total, total + product.low)


def _recover_quotient(x: Complex, y: Complex, lost: Mask, re: Real, im: Real) -> list[Real]:
    """Annex G: what was computed as NaN + NaN i may be an infinity or a zero."""
    infinity = x.re.format.real(inf)
    by_zero = y.is_zero() & ~(x.re.is_nan() & x.im.is_nan())
    infinite_x, infinite_y = x.is_infinite() & y.is_finite(), y.is_infinite() & x.is_finite()
    a, b = _direction(x, infinite_x)
    c, d = _direction(y, infinite_y)
    factor = select(infinite_y, 0.0, infinity)
    sign = infinity.with_sign_of(y.re)
    new_re = select(by_zero, sign * x.re, factor * (a * c + b * d))
    new_im = select(by_zero, sign * x.im, factor * (b * c - a * d))
    recovered = lost & (by_zero | infinite_x | infinite_y)
    return [select(recovered, new_re, re), select(recovered, new_im, im)]


def _direction(x: Complex, where: Mask) -> tuple[Real, Real]:
    """The parts, and where the mask holds (in infinities) 1 for an infinite and 0 for a finite part."""

    def part(value: Real) -> Real:
        unit = select(abs(value).equals(inf), value.format.real(1.0), 0.0)
        return select(where, unit.with_sign_of(value), value)

    return part(x.re), part(x.im)


def _half_abs(x: Complex) -> Real:
    """|x| / 2, which does not overflow; infinite when a part is."""
    if not x.wide:
        half = x.re.fma(x.re, x.im * x.im).sqrt() * 0.5
    else:
        scale, unscale = _scale_of_squares(x)
        near = x.scaled(scale)
        half = near.re.fma(near.re, near.im * near.im).sqrt() * (unscale * 0.5)
    return select(x.is_infinite(), inf, half)


def _scale_of_squares(x: Complex) -> tuple[Real, Real]:
    """A power of two that makes the squares of both parts harmless, and its inverse."""
    larger = x.larger()
    large, small = larger > LARGE, larger < SMALL
    one = larger.format.real(1.0)
    scale = select(large, 1 / SCALE, select(small, SCALE, one))
    return scale, select(large, SCALE, select(small, 1 / SCALE, one))


@_unary("abs")
def abs_(x: Complex) -> Real:
    """The distance from 0; infinite when a part is, whatever the other part."""
    if not x.wide:
        return select(x.is_infinite(), inf, x.re.fma(x.re, x.im * x.im).sqrt())
    return _half_abs(x) * 2.0


@_unary("sign")
def sign(x: Complex) -> Complex:
    """x / |x|; a zero is itself, and any NaN makes both parts NaN."""
    if x.wide:
        scale, _ = _scale_of_squares(x)
        x = x.scaled(scale)
    distance = abs_(x)
    zero = distance.equals(0.0)
    unordered = x.re.compare("uno", x.im)
    unit = x.of(select(zero, x.re, x.re / distance), select(zero, x.im, x.im / distance))
    not_a_number = x.re + x.im
    return x.of(select(unordered, not_a_number, unit.re), select(unordered, not_a_number, unit.im))


# ---- roots -------------------------------------------------------------------------------------------------


def _scaled_up(x: Complex) -> tuple[Complex, Mask | None]:
    """x, and where its parts are so small that halving them loses bits, x times SCALE."""
    if not x.wide:
        return x, None
    small = x.larger() < SMALL
    return x.scaled(select(small, x.re.format.real(SCALE), 1.0)), small


def _root(x: Complex, half: Real) -> Complex:
    """The square root of x, given |x| / 2: the larger part first, the other by division, so that nothing cancels."""
    larger = abs(x.re).fma(0.5, half).sqrt()
    smaller = select(larger.equals(0.0), larger, abs(x.im) / (larger * 2.0))
    right = x.re >= 0.0
    re = select(right, larger, smaller)
    im = select(right, smaller, larger)
    return x.of(re, im.with_sign_of(x.im))


@_unary("sqrt")
def sqrt(x: Complex) -> Complex:
    """The root in the right half plane; on the cut its imaginary part has the sign of x's."""
    near, small = _scaled_up(x)
    root = _root(near, _half_abs(near))
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


@_unary("rsqrt")
def rsqrt(x: Complex) -> Complex:
    """1 / sqrt(x): the root's conjugate over |x|. Of 0 it is inf + NaN i, of an infinity 0."""
    near, small = _scaled_up(x)
    half = _half_abs(near)
    root = _root(near, half)
    result = x.of(root.re / half * 0.5, -root.im / half * 0.5)
    if small is not None:
        result = result.scaled(select(small, x.re.format.real(2.0 ** (SCALE_EXPONENT // 2)), 1.0))
    zero = x.re.format.real(0.0)
    endless = half.equals(inf)
    re = select(endless, zero, select(half.equals(0.0), inf, result.re))
    return x.of(re, select(endless, zero.with_sign_of(-x.im), result.im))


@_unary("cbrt")
def cbrt(x: Complex) -> Complex:
    """The third root of the principal branch: its angle is a third of x's."""
    near, small = _scaled_up(x)
    radius = _call("cbrt", _half_abs(near)) * 2.0 ** (1 / 3)
    if small is not None:
        radius = radius * select(small, x.re.format.real(2.0 ** (-SCALE_EXPONENT // 3)), 1.0)
    angle = _call("atan2", x.im, x.re) / 3.0
    return x.of(*_rotate(angle, radius, None))


# ---- exponentials and logarithms ---------------------------------------------------------------------------


def _rotate(angle: Real, radius: Real, again: Real | None) -> tuple[Real, Real]:
    """Radius times cos and sin of the angle; a zero angle stays what it is. `again` is a second factor."""
    re, im = _call("cos", angle) * radius, _call("sin", angle) * radius
    if again is not None:
        re, im = re * again, im * again
    return re, select(angle.equals(0.0), angle, im)


@_unary("exponential")
def exponential(x: Complex) -> Complex:
    """exp(re) (cos im + i sin im)."""
    exponent, again = x.re, None
    if x.wide:
        large = abs(x.re) > LARGE_EXPONENT
        exponent = select(large, x.re * 0.5, x.re)
    radius = _call("exp", exponent)
    if x.wide:
        again = select(large, radius, 1.0)
    re, im = _rotate(x.im, radius, again)
    nowhere = ~(abs(x.im) < inf)  # no direction: infinite or NaN
    vanishing, growing = x.re.equals(-inf) & nowhere, x.re.equals(inf) & nowhere
    re = select(vanishing, 0.0, select(growing, inf, re))
    return x.of(re, select(vanishing, x.re.format.real(0.0).with_sign_of(x.im), im))


@_unary("exponential_minus_one")
def exponential_minus_one(x: Complex) -> Complex:
    """exp(x) - 1, with the real part as expm1(re) cos im - 2 sin(im / 2)^2."""
    power = exponential(x)
    half = _call("sin", x.im * 0.5)
    re = _call("expm1", x.re).fma(_call("cos", x.im), half * half * -2.0)
    return x.of(select(x.re > 40.0, power.re, re), power.im)


@_unary("logistic")
def logistic(x: Complex) -> Complex:
    """1 / (1 + exp(-x)) = (exp(re) + cos im + i sin im) / (4 (sinh(re / 2)^2 + cos(im / 2)^2))."""
    sinh, cos = _call("sinh", x.re * 0.5), _call("cos", x.im * 0.5)
    norm = sinh.fma(sinh, cos * cos) * 4.0
    cosine, sine = _call("cos", x.im), _call("sin", x.im)
    re = (_call("exp", x.re) + cosine) / norm
    im = sine / norm
    # Far out only the first term of the series in exp(-|re|) counts, and the formula overflows.
    far = abs(x.re) > 40.0
    limit = x.of(-abs(x.re), x.im)
    tail = exponential(limit)
    re = select(far, select(x.re > 0.0, 1.0, tail.re), re)
    return x.of(re, select(far, tail.im, im))


def _log_abs(x: Real, y: Real, below: Real, wide: bool) -> Real:
    """log |x + i y|, given also x - 1 without error where |x + i y| is near 1: there log1p(|x + i y|^2 - 1) / 2."""
    near_one = Complex(x, y, wide)
    offset = x.format.real(0.0)
    if wide:
        larger = near_one.larger()
        large, small = larger > LARGE, larger < SMALL
        scale, _ = _scale_of_squares(near_one)
        near_one = near_one.scaled(scale)
        far = log(SCALE)
        offset = select(large, far, select(small, -far, 0.0))
    square = near_one.re.fma(near_one.re, near_one.im * near_one.im)
    near = (square > 0.5) & (square < 3.0)
    by_log = _call("log", square).fma(0.5, offset)
    by_log1p = _call("log1p", _square_minus_one(below, y)) * 0.5
    return select(near_one.is_infinite(), inf, select(near, by_log1p, by_log))


def _square_minus_one(a: Real, b: Real) -> Real:
    """(1 + a)^2 + b^2 - 1 = 2 a + a^2 + b^2, summed in twice the precision because it may cancel."""
    square, other = two_product(a, a), two_product(b, b)
    first = two_sum(a * 2.0, square.high)
    second = two_sum(first.high, other.high)
    return second.high + ((first.low + second.low) + (square.low + other.low))


@_unary("log")
def logarithm(x: Complex) -> Complex:
    """log |x| and the angle, from -pi to pi."""
    re, im = abs(x.re), abs(x.im)
    swap = im > re
    larger, smaller = select(swap, im, re), select(swap, re, im)
    return x.of(_log_abs(larger, smaller, larger - 1.0, x.wide), _call("atan2", x.im, x.re))


@_unary("log_plus_one")
def log_plus_one(x: Complex) -> Complex:
    """log(1 + x), where adding 1 loses nothing."""
    shifted = x.re + 1.0
    return x.of(_log_abs(shifted, x.im, x.re, x.wide), _call("atan2", x.im, shifted))


@_binary("power")
def power(x: Complex, y: Complex) -> Complex:
    """exp(y log x). x^0 and 1^y are 1, also with NaN; 0^y is 0 where y's real part is positive, else NaN."""
    root = logarithm(x)
    real = y.im.equals(0.0)
    radial = select(real, y.re * root.re, _sum_of_products(y.re, root.re, -y.im, root.im))
    angular = select(real, y.re * root.im, _sum_of_products(y.re, root.im, y.im, root.re))
    result = exponential(x.of(radial, angular))
    of_zero = select((y.re > 0.0) & (abs(y.im) < inf), 0.0, y.re.format.real(nan))
    zero = x.is_zero()
    one = y.is_zero() | (x.re.equals(1.0) & x.im.equals(0.0))
    re = select(one, 1.0, select(zero, of_zero, result.re))
    return x.of(re, select(one, 0.0, select(zero, of_zero, result.im)))


@_binary("atan2")
def atan2(y: Complex, x: Complex) -> Complex:
    """-i log((x + i y) / sqrt(x^2 + y^2))."""
    square = multiply(x, x), multiply(y, y)
    distance = sqrt(x.of(square[0].re + square[1].re, square[0].im + square[1].im))
    direction = logarithm(divide(x.of(x.re - y.im, x.im + y.re), distance))
    return x.of(direction.im, -direction.re)


# ---- trigonometric and hyperbolic --------------------------------------------------------------------------


def _cosh_sinh(x: Real, wide: bool) -> tuple[Real, Real, Real | None]:
    """cosh and sinh, and what both have to be multiplied with at the very end so that nothing overflows early."""
    if not wide:
        return _call("cosh", x), _call("sinh", x), None
    large = abs(x) > LARGE_EXPONENT
    root = select(large, x * 0.5, x)
    cosh = _call("cosh", root)
    return cosh, _call("sinh", root), select(large, cosh * 2.0, 1.0)


@_unary("sine")
def sine(x: Complex) -> Complex:
    """sin re cosh im + i cos re sinh im."""
    cosh, sinh, again = _cosh_sinh(x.im, x.wide)
    re, im = _call("sin", x.re) * cosh, _call("cos", x.re) * sinh
    if again is not None:
        re, im = re * again, im * again
    lost = abs(x.im).equals(inf) & im.is_nan()
    im = select(lost, x.im, select(x.im.equals(0.0), x.im.with_sign_of(im), im))
    return x.of(select(x.re.equals(0.0), x.re, re), im)


@_unary("cosine")
def cosine(x: Complex) -> Complex:
    """cos re cosh im - i sin re sinh im."""
    cosh, sinh, again = _cosh_sinh(x.im, x.wide)
    sin = _call("sin", x.re)
    re, im = _call("cos", x.re) * cosh, -(sin * sinh)
    if again is not None:
        re, im = re * again, im * again
    lost = abs(x.im).equals(inf) & re.is_nan()
    zero = x.re.equals(0.0) | x.im.equals(0.0)
    sign = -(sin * x.re.format.real(1.0).with_sign_of(x.im))
    return x.of(select(lost, inf, re), select(zero, x.re.format.real(0.0).with_sign_of(sign), im))


@_unary("tanh")
def tanh(x: Complex) -> Complex:
    """(sinh re cosh re + i sin im cos im) / (sinh(re)^2 + cos(im)^2), where no sum cancels."""
    sinh = _call("sinh", x.re)
    sin, cos = _call("sin", x.im), _call("cos", x.im)
    norm = sinh.fma(sinh, cos * cos)
    re = sinh * sinh.fma(sinh, 1.0).sqrt() / norm
    both = sin * cos
    far = abs(x.re) > 20.0
    limit = x.re.format.real(1.0).with_sign_of(x.re)
    tail = both * 4.0 * _call("exp", abs(x.re) * -2.0)
    re = select(x.re.equals(0.0), x.re, select(far, limit, re))
    im = select(far, tail, both / norm)
    nowhere = abs(x.re).equals(inf) & ~(abs(x.im) < inf)
    im = select(nowhere, x.re.format.real(0.0).with_sign_of(x.im), im)
    return x.of(re, select(x.im.equals(0.0), x.im, im))


@_unary("tan")
def tan(x: Complex) -> Complex:
    """-i tanh(i x)."""
    turned = tanh(x.of(x.im, x.re))
    return x.of(turned.im, turned.re)
