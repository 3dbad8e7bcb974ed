"""Complex arithmetic on real and imaginary parts, and the tables of all complex functions.

Every function but sums and products is computed in f64 and rounded once, also for c64. Special values follow C99
(Annex G); where that has none, XLA:CPU. The elementary functions are in functions.py, inverse.py and power.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeVar

import mlir.ir as ir
from mlir.dialects import complex

from stablexla.dialects.element_types import ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.math.values import (
    Integer,
    Mask,
    Real,
    Scope,
    power_of_two,
    select,
    select_integer,
    two_product,
    when_any,
)

Function = TypeVar("Function", bound=Callable[..., "Complex | Real"])
Unary = Callable[[ir.Value, ElementType], ir.Value]
Binary = Callable[[ir.Value, ir.Value, ElementType], ir.Value]

UNARY: dict[str, Unary] = {}
BINARY: dict[str, Binary] = {}
# Functions without an operation of StableHLO, by the names of CHLO's composites.
COMPOSITES: dict[str, Unary] = {}

# Beyond these a square of f64 overflows, or loses bits; SCALE scales numbers beyond them back.
LARGE, SMALL, SCALE_EXPONENT = 2.0**500, 2.0**-480, 600
SCALE = 2.0**SCALE_EXPONENT


@dataclass(frozen=True, slots=True)
class Complex:
    """A complex number. Where `wide` is not set, squares of the parts neither overflow nor underflow."""

    re: Real
    im: Real
    wide: bool

    def of(self, re: Real, im: Real) -> Complex:
        """Return another number of the same range."""
        return Complex(re, im, self.wide)

    def scaled(self, factor: Real | float) -> Complex:
        return self.of(self.re * factor, self.im * factor)

    def is_zero(self) -> Mask:
        return self.re.equals(0.0) & self.im.equals(0.0)

    def is_finite(self) -> Mask:
        return (abs(self.re) < inf) & (abs(self.im) < inf)

    def is_infinite(self) -> Mask:
        """Whether at least one part is infinite; the other may be NaN."""
        return abs(self.re).equals(inf) | abs(self.im).equals(inf)

    def larger(self) -> Real:
        """Return the larger of the parts' absolute values; that of the real part where the imaginary part is NaN."""
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
    """Return the complex number of these parts."""
    return complex.create_(ir.ComplexType.get(re.type), re, im)


def _in_double(function: Callable[..., Complex | Real]) -> Callable[..., ir.Value]:
    """Wrap a function of complex numbers as one of MLIR values, computed in f64."""

    def emit(*values_and_element: Any) -> ir.Value:
        numbers = _split(values_and_element[:-1])
        own = numbers[0].re.format
        result = function(*(Complex(n.re.to_double(), n.im.to_double(), n.wide) for n in numbers))
        if isinstance(result, Real):
            return result.rounded_to(own).ssa
        return create(result.re.rounded_to(own).ssa, result.im.rounded_to(own).ssa)

    return emit


def _as_it_is(function: Callable[..., Complex]) -> Callable[..., ir.Value]:
    """Wrap a function of complex numbers as one of MLIR values, computed in the type of their parts."""

    def emit(*values_and_element: Any) -> ir.Value:
        result = function(*_split(values_and_element[:-1]))
        return create(result.re.ssa, result.im.ssa)

    return emit


def unary_function(name: str, table: dict[str, Unary] = UNARY) -> Callable[[Function], Function]:
    """Register a function of one complex number, computed in f64, in a table."""

    def register(function: Function) -> Function:
        table[name] = _in_double(function)
        return function

    return register


def binary_function(name: str) -> Callable[[Function], Function]:
    """Register a function of two complex numbers, computed in f64."""

    def register(function: Function) -> Function:
        BINARY[name] = _in_double(function)
        return function

    return register


# ---- arithmetic --------------------------------------------------------------------------------------------


def multiply(x: Complex, y: Complex) -> Complex:
    """The textbook product, as in XLA: an infinity times a finite number may hold NaN."""
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
    """Whether x > y in lexicographic order of real and imaginary parts."""
    return (x.re > y.re) | (x.re.equals(y.re) & (x.im > y.im))


def maximum(x: Complex, y: Complex) -> Complex:
    """The larger of the two in lexicographic order; y where they are not ordered."""
    later = _greater(x, y)
    return x.of(select(later, x.re, y.re), select(later, x.im, y.im))


def minimum(x: Complex, y: Complex) -> Complex:
    """The smaller of the two in lexicographic order; y where they are not ordered."""
    earlier = _greater(y, x)
    return x.of(select(earlier, x.re, y.re), select(earlier, x.im, y.im))


BINARY["maximum"] = _as_it_is(maximum)
BINARY["minimum"] = _as_it_is(minimum)


@binary_function("divide")
def divide(x: Complex, y: Complex) -> Complex:
    """x times the conjugate of y over |y|^2; a real y divides the parts as they are."""
    quotient = _divide_scaled(x, y) if x.wide else _divide_plain(x, y)
    by_real = y.im.equals(0.0) & x.is_finite()

    def parts_by_real() -> list[Real]:
        return [select(by_real, x.re / y.re, quotient.re), select(by_real, x.im / y.re, quotient.im)]

    # Divisions take most of the time, and a divisor that is real is rare.
    re, im = when_any(by_real, parts_by_real, [quotient.re, quotient.im])
    lost = re.is_nan() & im.is_nan()
    return x.of(*when_any(lost, lambda: _recover_quotient(x, y, lost, re, im), [re, im]))


def _divide_plain(x: Complex, y: Complex) -> Complex:
    norm = y.re.fma(y.re, y.im * y.im)
    re = _sum_of_products(x.re, y.re, x.im, y.im)
    im = _sum_of_products(x.im, y.re, -x.re, y.im)
    if x.wide:
        return x.of(re / norm, im / norm)
    # Rounded to f32 afterwards: one division for both parts, whose error of an f64 is not seen then.
    return x.of(re, im).scaled(1.0 / norm)


def _divide_scaled(x: Complex, y: Complex) -> Complex:
    """Divide with both scaled to about 1; the factor that scales the quotient back may overflow f64."""
    up, down = exponent_of(x.larger()), exponent_of(y.larger())
    zero = up.format.integer(0)
    quotient = _divide_plain(x.scaled(power_of_two(zero - up)), y.scaled(power_of_two(zero - down)))
    exponent = up - down
    half = ((exponent + 4096) >> 1) - 2048
    return quotient.scaled(power_of_two(half)).scaled(power_of_two(exponent - half))


def exponent_of(x: Real) -> Integer:
    """Return the exponent of a positive f64, clamped so that its reciprocal power of two is a normal number."""
    biased = x.bits() >> x.format.layout.fraction_bits
    low = select_integer(biased.compare("slt", 1), 1, biased)
    return select_integer(low.compare("sgt", 2045), 2045, low) - x.format.layout.bias


def _sum_of_products(a: Real, b: Real, c: Real, d: Real) -> Real:
    """a * b + c * d to within 2 ULP also where the products cancel (Kahan); with infinities as written."""
    product = two_product(c, d)
    total = a.fma(b, product.high)
    return select(product.low.is_nan(), total, total + product.low)


def _recover_quotient(x: Complex, y: Complex, lost: Mask, re: Real, im: Real) -> list[Real]:
    """Recover infinities and zeros from a quotient computed as NaN + NaN i, by Annex G."""
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
    """Return the parts; where the mask holds (in infinities) 1 for an infinite and 0 for a finite part."""

    def part(value: Real) -> Real:
        unit = select(abs(value).equals(inf), value.format.real(1.0), 0.0)
        return select(where, unit.with_sign_of(value), value)

    return part(x.re), part(x.im)


def half_abs(x: Complex) -> Real:
    """|x| / 2 (hypot), which does not overflow; infinite when a part is."""
    if not x.wide:
        half = x.re.fma(x.re, x.im * x.im).sqrt() * 0.5
    else:
        scale, unscale = scale_of_squares(x)
        near = x.scaled(scale)
        half = near.re.fma(near.re, near.im * near.im).sqrt() * (unscale * 0.5)
    return select(x.is_infinite(), inf, half)


def scale_of_squares(x: Complex) -> tuple[Real, Real]:
    """Return a power of two that keeps the squares of both parts from overflow and underflow, and its inverse."""
    larger = x.larger()
    large, small = larger > LARGE, larger < SMALL
    one = larger.format.real(1.0)
    scale = select(large, 1 / SCALE, select(small, SCALE, one))
    return scale, select(large, SCALE, select(small, 1 / SCALE, one))


@unary_function("abs")
def abs_(x: Complex) -> Real:
    """The absolute value (hypot); infinite when a part is, whatever the other part."""
    if not x.wide:
        return select(x.is_infinite(), inf, x.re.fma(x.re, x.im * x.im).sqrt())
    return half_abs(x) * 2.0


@unary_function("sign")
def sign(x: Complex) -> Complex:
    """x / |x|; a zero is itself, and any NaN makes both parts NaN."""
    if x.wide:
        scale, _ = scale_of_squares(x)
        x = x.scaled(scale)
    distance = abs_(x)
    zero = distance.equals(0.0)
    unordered = x.re.compare("uno", x.im)
    unit = x.of(select(zero, x.re, x.re / distance), select(zero, x.im, x.im / distance))
    not_a_number = x.re + x.im
    return x.of(select(unordered, not_a_number, unit.re), select(unordered, not_a_number, unit.im))
