"""exp, exp2, expm1 and logistic, and the parts of exp that other functions build on.

exp(x) = 2**n * exp(r) with n the nearest integer to x / ln 2, so that |r| <= ln(2) / 2. The polynomial computes
exp(r) - 1, which loses no bits near r = 0. Coefficients: benchmarks/fit_polynomials.py.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.math.logistic import LOGISTIC, argument_of, marked_logistic
from stablexla.lowering.math.registry import (
    expands,
    expands_operation,
    is_real,
    is_rounded_to_bf16,
)
from stablexla.lowering.math.values import (
    Format,
    Integer,
    Pair,
    Real,
    Scope,
    fast_two_sum,
    polynomial,
    select,
)
from stablexla.lowering.support.operations import constant_attribute

#: the mark of a math.exp whose results below 2**(2 - bias) may be 0
TINY_IS_ZERO = "stablexla.tiny_is_zero"

LOG2_E = 1.4426950408889634
#: ln 2 as the sum of two f32, and of two f64
LN2_SINGLE = (0.6931471824645996, -1.904654323148236e-09)
LN2_DOUBLE = (0.6931471805599453, 2.3190468138462996e-17)

# exp(r) = 1 + r + r**2 p(r)
_EXP_SINGLE = (
    0.4999999701976776, 0.16666539013385773, 0.041667744517326355, 0.008367063477635384, 0.0013839169405400753,
)  # fmt: skip
_EXP_DOUBLE = (
    0.5, 0.16666666666666677, 0.041666666666666685, 0.00833333333332179, 0.00138888888888937,
    0.00019841269885374614, 2.4801587279045512e-05, 2.755724509771516e-06, 2.755732925015196e-07,
    2.5108713660479408e-08, 2.0894110669725208e-09,
)  # fmt: skip
# 32 bits, for results that are rounded to f32
_EXP_SHORT = (
    0.5000000044386118, 0.16666666369563743, 0.04166635987868825, 0.008333389411959748, 0.0013940715674917719,
    0.0001984596852288876,
)  # fmt: skip
# 21 bits, for results that are rounded to bf16: of all bf16 arguments one is rounded to the wrong side, 6.84375
_EXP_SHORTEST = (0.4999922811985016, 0.16667115688323975, 0.04189055413007736, 0.008312550373375416)


def ln2(format: Format) -> tuple[float, float]:
    """Return ln 2 as high and low part."""
    parts: tuple[float, float] = format.pick(LN2_SINGLE, LN2_DOUBLE)
    return parts


def raised_magic(format: Format, halvings: int = 0) -> float:
    """Return magic for `factors`: n - halvings + bias + fraction_bits + 2 is in its low bits."""
    layout = format.layout
    return layout.magic + (layout.bias + layout.fraction_bits + 2 - halvings)


def reduce_exponent(x: Real, low: Real | None = None, magic: float | None = None) -> tuple[Integer, Pair]:
    """Argument reduction x (+ low) = n ln 2 + r: return n + magic's bits, and r as a pair. |x| is below about 2**20."""
    high_ln2, low_ln2 = ln2(x.format)
    magic = x.format.layout.magic if magic is None else magic
    shifted = x.fma(LOG2_E, magic)
    n = shifted - magic
    exact = n.fma(-high_ln2, x)
    start = exact if low is None else exact + low
    r = n.fma(-low_ln2, start)
    tail = n.fma(-low_ln2, start - r)
    if low is not None:
        tail = tail + (low - (start - exact))
    return shifted.bits(), Pair(r, tail)


def expm1_reduced(r: Pair) -> Real:
    """exp(r) - 1 for |r| <= ln(2) / 2."""
    coefficients = r.high.format.pick(_EXP_SINGLE, _EXP_DOUBLE)
    square = r.high * r.high
    return r.high + square.fma(polynomial(r.high, coefficients), r.low)


def factors(shifted: Integer) -> tuple[Real, Real]:
    """Return two numbers with the product 2**n, which may be denormal or infinite.

    `shifted` holds n plus the bits of `raised_magic`, with |n| <= bias + fraction_bits + 2. For the two least n the
    first number is 0: a product that underflowed to 0 would take processors a hundred cycles.
    """
    layout = shifted.format.layout
    half = shifted >> 1
    rest = shifted - half + (layout.bias - layout.fraction_bits - 2)
    return (half << layout.fraction_bits).as_real(), (rest << layout.fraction_bits).as_real()


def scale(fraction: Real, shifted: Integer) -> Real:
    """(1 + fraction) * 2**n, denormal and overflowing results included; for `shifted` see `factors`."""
    first, second = factors(shifted)
    return fraction.fma(first, first) * second


def power_of_shifted(shifted: Integer, halvings: int = 0) -> Real:
    """2**(n - halvings) for `shifted` = n + magic's bits, a normal number. The low bits of magic's bits are zero."""
    layout = shifted.format.layout
    return ((shifted << layout.fraction_bits) + ((layout.bias - halvings) << layout.fraction_bits)).as_real()


def exp_bounded(x: Real) -> Real:
    """exp(x) to about one ulp, where neither x nor the result is special."""
    return _exp_plain(x, x.format.pick(_EXP_SINGLE, _EXP_DOUBLE))


def exp_short(x: Real) -> Real:
    """exp(x) of an f64 to 32 bits, for |x| < 700."""
    return _exp_plain(x, _EXP_SHORT, whole_ln2=False)


def _exp_plain(x: Real, coefficients: tuple[float, ...], whole_ln2: bool = True, halvings: int = 0) -> Real:
    """exp(x) / 2**halvings without the low part of r; 0 for the greatest n whose result is no normal number."""
    high_ln2, low_ln2 = ln2(x.format)
    magic = x.format.layout.magic
    shifted = x.fma(LOG2_E, magic)
    n = shifted - magic
    r = n.fma(-high_ln2, x)
    if whole_ln2:
        r = n.fma(-low_ln2, r)
    fraction = (r * r).fma(polynomial(r, coefficients), r)
    factor = power_of_shifted(shifted.bits(), halvings)
    return fraction.fma(factor, factor)


def lowest_argument(format: Format) -> float:
    """Return an argument whose exp rounds to 0, and whose n is the least that `factors` takes, or the one above it."""
    lowest: float = format.pick(-105.0, -746.0)
    return lowest


def exp_halved(x: Real, halvings: int = 0) -> Real:
    """exp(x) / 2**halvings over the whole range."""
    high = x.format.pick(90.0, 712.0)
    bounded = x.at_least(lowest_argument(x.format)).at_most(high)
    shifted, r = reduce_exponent(bounded, magic=raised_magic(x.format, halvings))
    return scale(expm1_reduced(r), shifted)


@expands_operation("math.exp")
def exp_operation(scope: Scope, operation: ir.Operation) -> list[ir.Value] | None:
    """Expand exp to the precision that its result is rounded to."""
    if not is_real(operation.operands[0].type):
        return None
    x = Real(scope.format_of(operation.operands[0].type), operation.operands[0])
    short = is_rounded_to_bf16(operation)
    if TINY_IS_ZERO in operation.attributes:
        return [_exp_or_zero(x, short).ssa]
    return [(_exp_for_bf16(x) if short else exp(x)).ssa]


def exp(x: Real) -> Real:
    """e**x."""
    return exp_halved(x)


def _exp_or_zero(x: Real, short: bool) -> Real:
    """e**x to about one ulp, or to 21 bits, with 0 for results below 2**(1.5 - bias)."""
    low, high = x.format.pick((-87.4, 89.0), (-708.5, 710.0))
    coefficients = _EXP_SHORTEST if short else x.format.pick(_EXP_SINGLE, _EXP_DOUBLE)
    # computed at half its size because 2**n may overflow
    return _exp_plain(x.at_least(low).at_most(high), coefficients, not short, halvings=1) * 2.0


def _exp_for_bf16(x: Real) -> Real:
    """e**x of an f32 to 21 bits, over the whole range."""
    magic = raised_magic(x.format)
    bounded = x.at_least(lowest_argument(x.format)).at_most(90.0)
    shifted = bounded.fma(LOG2_E, magic)
    r = (shifted - magic).fma(-LN2_SINGLE[0], bounded)
    return scale((r * r).fma(polynomial(r, _EXP_SHORTEST), r), shifted.bits())


@expands("math.exp2")
def exp2(x: Real) -> Real:
    """2**x: the argument reduction is exact, the remainder as in exp."""
    low, high = x.format.pick((-152.0, 130.0), (-1077.0, 1026.0))
    high_ln2, low_ln2 = ln2(x.format)
    magic = raised_magic(x.format)
    bounded = x.at_least(low).at_most(high)
    shifted = bounded + magic
    part = bounded - (shifted - magic)
    product = part * high_ln2
    r = Pair(product, part.fma(low_ln2, part.fma(high_ln2, -product)))
    return scale(expm1_reduced(r), shifted.bits())


def expm1_from(x: Real) -> Real:
    """exp(x) - 1 where x is not special; the sign of zero and denormals are left to the caller."""
    shifted, r = reduce_exponent(x)
    fraction = expm1_reduced(r)
    # 2**n (fraction + 1) - 1, computed at half its size because 2**n may overflow
    half = power_of_shifted(shifted, halvings=1)
    return fraction.fma(half, half - 0.5) * 2.0


@expands("math.expm1")
def expm1(x: Real) -> Real:
    """e**x - 1 without cancellation near 0."""
    low, high, tiny = x.format.pick((-20.0, 89.0, 2.0**-26), (-45.0, 710.0, 2.0**-55))
    value = expm1_from(x.at_least(low).at_most(high))
    return select(abs(x) < tiny, x, value)


def logistic(x: ir.Value) -> ir.Value:
    """Emit 1 / (1 + exp(-x)): operations that are expanded later, or of a constant at once, as folding rounds each."""
    if constant_attribute(x) is None:
        return marked_logistic(x)
    return logistic_of(Real(Scope().format_of(x.type), x)).ssa


@expands_operation(LOGISTIC)
def logistic_operation(scope: Scope, operation: ir.Operation) -> list[ir.Value] | None:
    """Expand the quotient of a logistic function as a whole."""
    x = argument_of(operation)
    return None if x is None else [logistic_of(Real(scope.format_of(x.type), x)).ssa]


def logistic_of(x: Real) -> Real:
    """1 / (1 + exp(-x)) = exp(x) / (1 + exp(x)), with the exponential that is at most 1.

    Its factor exp(r), the sum and the quotient are kept as pairs: each rounded by itself, their errors would add up to
    more than 2 ULP. For a large negative x the result is denormal.
    """
    shifted, r = reduce_exponent((-abs(x)).at_least(lowest_argument(x.format)), magic=raised_magic(x.format))
    first, second = factors(shifted)
    one = x.format.real(1.0)
    power = fast_two_sum(one, expm1_reduced(r))
    total = fast_two_sum(one, power.high * first * second)
    negative = x < 0.0
    top = Pair(select(negative, power.high, one), select(negative, power.low, 0.0))
    inverse = 1.0 / total.high
    quotient = top.high * inverse
    rest = (-quotient).fma(total.low, (-quotient).fma(total.high, top.high) + top.low)
    value = rest.fma(inverse, quotient)
    return value * select(negative, first, one) * select(negative, second, one)
