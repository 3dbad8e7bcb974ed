"""Trigonometric functions sin, cos, tan and sincos, with exact argument reduction at any size.

x = n pi/2 + r with |r| <= pi/4, r as a pair. Below a limit n pi/2 is subtracted in three parts (Cody-Waite); above it
(rare, so behind a branch) the significant bits of 2/pi are multiplied as integers, after Payne and Hanek.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.math.functions import shared
from stablexla.lowering.math.registry import expands, expands_operation, is_real
from stablexla.lowering.math.values import (
    Integer,
    Pair,
    Real,
    Scope,
    fast_two_sum,
    polynomial,
    select,
    select_integer,
    two_product,
    two_sum,
    when_any,
)

_TWO_OVER_PI = 0.6366197723675814
_HALF_PI_SINGLE = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
_HALF_PI_DOUBLE = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
_TWO_PI = (6.283185307179586, 2.4492935982947064e-16)
#: up to here n has few enough bits for the reduction in three parts
_HUGE_SINGLE, _HUGE_DOUBLE = 2.0**16, 2.0**30

# sin(x) = x + x z p(z), cos(x) = 1 - z / 2 + z**2 p(z), z = x**2
_SIN_SINGLE = (-0.16666655242443085, 0.008332189172506332, -0.00019518285989761353)
_SIN_DOUBLE = (
    -0.16666666666666666, 0.008333333333333042, -0.00019841269840962486, 2.755731907399845e-06,
    -2.505207092821938e-08, 1.6054312347223087e-10, -7.389503459799411e-13,
)  # fmt: skip
_COS_SINGLE = (0.04166664555668831, -0.00138873013202101, 2.443066841806285e-05)
_COS_DOUBLE = (
    0.0416666666666666, -0.001388888888887447, 2.4801587289667095e-05, -2.755731439939185e-07,
    2.087572902150558e-09, -1.135991924802852e-11,
)  # fmt: skip

# 2/pi in words of 64 bits, behind 53 zeros so that the exponent of x counts bits from the start
_TWO_OVER_PI_WORDS = (
    0x0000000000000517, 0xCC1B727220A94FE1, 0x3ABE8FA9A6EE06DB, 0x14ACC9E21C820FF2,
    0x8B1D5EF5DE2B0DB9, 0x2371D2126E970032, 0x4977504E8C90E7F0, 0xEF58E5894D39F744,
    0x11AFA975DA24274C, 0xE38135A2FBF209CC, 0x8EB1CC1A99CFA4E4, 0x22FC5DEFC941D8FF,
    0xC4BFFEF02CC07F79, 0x788C5AD05368FB69, 0xB3F6793E584DBA7A, 0x31FB34F2FF516BA9,
    0x3DD63F5F2F8BD9E8, 0x39CFBC529497535F, 0xDAFD88FC6AE842B0,
)  # fmt: skip
_LOW_WORD = 0xFFFFFFFF


def reduce_angle(x: Real) -> tuple[Pair, Integer]:
    """Argument reduction: return r, and n modulo 4 in its two lowest bits."""
    format = x.format
    first, second, third = format.pick(_HALF_PI_SINGLE, _HALF_PI_DOUBLE)
    shifted = x.fma(_TWO_OVER_PI, format.layout.magic)
    n = shifted - format.layout.magic
    start = n.fma(-first, x)  # exact
    # either of the two may be the larger one, and their difference may be small
    middle = two_product(n, -second)
    near = two_sum(start, middle.high)
    low = n.fma(-third, near.low + middle.low)
    high = near.high
    small = [high, low, shifted.bits()]
    huge = abs(x) >= format.pick(_HUGE_SINGLE, _HUGE_DOUBLE)

    def with_huge() -> list[Real | Integer]:
        r_high, r_low, quadrant = shared("huge_angle", _huge_angle, x)
        return [
            select(huge, r_high, high),
            select(huge, r_low, low),
            select_integer(huge, quadrant, shifted.bits()),
        ]

    high, low, quadrant = when_any(huge, with_huge, small)
    return Pair(high, low), quadrant


def _huge_angle(x: Real) -> tuple[Real, Real, Integer]:
    """Reduce by Payne and Hanek's way: return r's two parts, and n."""
    r, quadrant = _reduce_huge(x.to_double())
    rounded = r.high.rounded_to(x.format)
    # for f32, the low part is the rounding error of the high part
    rest = r.low if rounded is r.high else (r.high - rounded.to_double()).rounded_to(x.format)
    return rounded, rest, quadrant.narrowed_to(x.format)


def _reduce_huge(x: Real) -> tuple[Pair, Integer]:
    """Payne-Hanek argument reduction of an f64 of 2 and more; NaN for infinity.

    x = m 2**e. Only the bits of 2/pi from position e - 1 on matter: those before contribute multiples of the period.
    The product of m and the 192 bits from there, modulo 2**192, is the angle as a fraction of the period.
    """
    integer = x.format.integer
    bits = x.bits()
    significand = (bits & ((1 << 52) - 1)) | (1 << 52)
    place = ((bits >> 52) & 0x7FF) - 1024
    words = _window(place)
    upper_1, lower_1 = _wide_product(significand, words[1])
    upper_2, _ = _wide_product(significand, words[2])
    middle = lower_1 + upper_2
    carry = select_integer(middle.compare("ult", lower_1), integer(1), integer(0))
    top = significand * words[0] + upper_1 + carry
    # the nearest quarter of the period, and the remainder as a signed number of 128 bits
    quarter = (top + (1 << 61)) >> 62
    top = top - (quarter << 62)
    negative = top.compare("slt", 0)
    flip = select_integer(negative, integer(-1), integer(0))
    angle = _to_pair(top ^ flip, middle ^ flip) * Pair(x.format.real(_TWO_PI[0]), x.format.real(_TWO_PI[1]))
    sign = (flip ^ bits) & (1 << 63)
    invalid = x - x  # 0, or NaN for infinity
    high = (angle.high.bits() ^ sign).as_real() + invalid
    low = (angle.low.bits() ^ sign).as_real()
    return Pair(high, low), select_integer(bits.compare("slt", 0), integer(0) - quarter, quarter)


def _window(place: Integer) -> list[Integer]:
    """Load the 192 bits of 2/pi's table from bit `place` on, as three words."""
    words = [place.format.integer(word) for word in _TWO_OVER_PI_WORDS]
    index = place >> 6
    for step, count in ((8, 11), (4, 7), (2, 5), (1, 4)):
        chosen = (index & step).compare("ne", 0)
        words = [select_integer(chosen, words[k + step], words[k]) for k in range(count)]
    shift = place & 63
    back = shift ^ 63
    return [(words[k] << shift) | ((words[k + 1] >> 1) >> back) for k in range(3)]


def _wide_product(a: Integer, b: Integer) -> tuple[Integer, Integer]:
    """Return the high and the low word of a widening product, from products of half words."""
    a_low, a_high, b_low, b_high = a & _LOW_WORD, a >> 32, b & _LOW_WORD, b >> 32
    low, first, second = a_low * b_low, a_low * b_high, a_high * b_low
    middle = (low >> 32) + (first & _LOW_WORD) + (second & _LOW_WORD)
    high = a_high * b_high + (first >> 32) + (second >> 32) + (middle >> 32)
    return high, (middle << 32) | (low & _LOW_WORD)


def _to_pair(top: Integer, bottom: Integer) -> Pair:
    """Return the fraction top / 2**64 + bottom / 2**128 as a pair."""
    parts = [top >> 32, top & _LOW_WORD, bottom >> 32, bottom & _LOW_WORD]
    numbers = [part.to_real() * 2.0 ** (-32 * (k + 1)) for k, part in enumerate(parts)]
    upper = fast_two_sum(numbers[0], numbers[1])
    return fast_two_sum(upper.high, upper.low + (numbers[2] + numbers[3]))


def sine_parts(r: Pair) -> Pair:
    """sin(r) as a number and a correction of it."""
    z = r.high * r.high
    coefficients = r.high.format.pick(_SIN_SINGLE, _SIN_DOUBLE)
    return Pair(r.high, (z * r.high).fma(polynomial(z, coefficients), r.low))


def cosine_parts(r: Pair) -> Pair:
    """cos(r) as a number and a correction of it."""
    square = two_product(r.high, r.high)
    z = square.high
    coefficients = r.high.format.pick(_COS_SINGLE, _COS_DOUBLE)
    start = z.fma(-0.5, 1.0)
    lost = z.fma(-0.5, 1.0 - start)
    slope = r.high.fma(-r.low, square.low * -0.5)
    return Pair(start, (z * z).fma(polynomial(z, coefficients), lost + slope))


def _turned(r: Pair, quadrant: Integer) -> Real:
    """sin(r + quadrant pi/2)."""
    width = quadrant.format.width
    value = select((quadrant & 1).compare("ne", 0), cosine_parts(r).value(), sine_parts(r).value())
    sign = (quadrant & 2) << (width - 2)
    return (value.bits() ^ sign).as_real()


def _unless_tiny(x: Real, value: Real) -> Real:
    """Return `value`, or x itself where x**3 is negligible, which keeps the sign of zero."""
    return select(abs(x) < 2.0 ** -(x.format.layout.precision // 2 + 1), x, value)


@expands("math.sin")
def sin(x: Real) -> Real:
    """The sine of an angle of any size."""
    r, quadrant = reduce_angle(x)
    return _unless_tiny(x, _turned(r, quadrant))


@expands("math.cos")
def cos(x: Real) -> Real:
    """The cosine of an angle of any size."""
    r, quadrant = reduce_angle(x)
    return _turned(r, quadrant + 1)


@expands("math.tan")
def tan(x: Real) -> Real:
    """The tangent of an angle of any size: sin / cos, or -cos / sin, each as a pair."""
    r, quadrant = reduce_angle(x)
    sine, cosine = sine_parts(r), cosine_parts(r)
    sine, cosine = fast_two_sum(sine.high, sine.low), fast_two_sum(cosine.high, cosine.low)
    odd = (quadrant & 1).compare("ne", 0)
    top = Pair(select(odd, -cosine.high, sine.high), select(odd, -cosine.low, sine.low))
    bottom = Pair(select(odd, sine.high, cosine.high), select(odd, sine.low, cosine.low))
    inverse = 1.0 / bottom.high
    quotient = top.high * inverse
    rest = (-quotient).fma(bottom.low, (-quotient).fma(bottom.high, top.high) + top.low)
    return _unless_tiny(x, rest.fma(inverse, quotient))


@expands_operation("math.sincos")
def sincos(scope: Scope, operation: ir.Operation) -> list[ir.Value] | None:
    """Expand sincos: both with one argument reduction."""
    operand = operation.operands[0]
    if not is_real(operand.type):
        return None
    x = Real(scope.format_of(operand.type), operand)
    r, quadrant = reduce_angle(x)
    return [_unless_tiny(x, _turned(r, quadrant)).ssa, _turned(r, quadrant + 1).ssa]
