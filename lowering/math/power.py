"""Powers: pow, rsqrt, cbrt and powers with integer exponents."""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir

from stablexla.lowering.math.exponential import (
    exp_short,
    expm1_reduced,
    lowest_argument,
    raised_magic,
    reduce_exponent,
    scale,
)
from stablexla.lowering.math.logarithm import log_pair, log_short
from stablexla.lowering.math.registry import expands, expands_operation, is_real
from stablexla.lowering.math.values import (
    Integer,
    Real,
    Scope,
    emit,
    polynomial,
    repeat_while,
    select,
    select_integer,
    two_product,
)


@expands("math.rsqrt")
def rsqrt(x: Real) -> Real:
    """1 / sqrt(x)."""
    return 1.0 / x.sqrt()


@expands("math.powf")
def power(x: Real, y: Real) -> Real:
    """x**y with the special cases of C's pow. f32 is computed in f64, without pairs."""
    if x.format.width == 32:
        magnitude = _power_short(abs(x).to_double(), y.to_double()).rounded_to(x.format)
    else:
        magnitude = _power_pair(abs(x), y)
    return _with_special_cases(x, y, magnitude)


def _power_short(a: Real, y: Real) -> Real:
    """a**y of f64 to some 30 bits, for results in f32's range: beyond it they become 0 or infinity when rounded."""
    logarithm = select(a.equals(0.0), -float("inf"), log_short(a))
    return exp_short((y * logarithm).at_least(-200.0).at_most(200.0))


def _power_pair(a: Real, y: Real) -> Real:
    """a**y of f64, with the logarithm in double-double precision."""
    limit = -lowest_argument(a.format)  # beyond it exp gives 0 or infinity
    logarithm = log_pair(a)
    high = select(a.equals(0.0), -float("inf"), select(a < float("inf"), logarithm.high, a))
    product = two_product(high, y)
    low = logarithm.low.fma(y, product.low)
    low = select(abs(product.high) < limit, low, 0.0)
    shifted, r = reduce_exponent(product.high.at_least(-limit).at_most(limit), low, raised_magic(a.format))
    return scale(expm1_reduced(r), shifted)


def _with_special_cases(x: Real, y: Real, magnitude: Real) -> Real:
    """x**y from |x|**y: the sign, and where C's pow is not what the formula gives."""
    a = abs(x)
    whole = y.trunc().equals(y)
    half = y * 0.5
    odd = whole & half.trunc().compare("one", half)
    value = magnitude.with_sign_of(select(odd, x, 1.0))
    value = select((x < 0.0) & (a < float("inf")) & ~whole, float("nan"), value)
    value = select(a.equals(1.0) & abs(y).equals(float("inf")), 1.0, value)
    return select(y.equals(0.0) | x.equals(1.0), 1.0, value)


# the cube root of x is t p(t**3 / x) to 33 bits, if t is within 3.3% of it
_CBRT = (
    2.1083499137899806, -3.16154888006517, 4.511717920033545, -4.203326528892401, 2.4188010126535624,
    -0.7835158599942681, 0.10952242250421398,
)  # fmt: skip
# two thirds of the exponent's bias, less a term that balances the error of the initial guess
_CBRT_OFFSET = 715094177


@expands("math.cbrt")
def cbrt(x: Real) -> Real:
    """The cube root: a third of the exponent, a polynomial, and for f64 one step of Newton's method."""
    a = abs(x).to_double()
    small = a < 2.0**-900
    scaled = a if x.format.width == 32 else select(small, a * 2.0**180, a)
    # exponent and upper fraction bits as one number, divided by three: 0xAAAAAAAB / 2**33 is 1/3
    third = ((scaled.bits() >> 32) * 0xAAAAAAAB) >> 33
    guess = ((third + _CBRT_OFFSET) << 32).as_real()
    inverse = 1.0 / scaled
    root = guess * polynomial(guess * inverse * guess * guess, _CBRT)
    if x.format.width == 64:
        square = two_product(root, root)
        rest = (-root).fma(square.low, (-root).fma(square.high, scaled))
        root = (rest * (root * inverse)).fma(1 / 3, root)
        root = select(small, root * 2.0**-60, root)
    ordinary = (a > 0.0) & (a < float("inf"))
    return select(ordinary, root.rounded_to(x.format).with_sign_of(x), x)


@expands_operation("math.fpowi")
def power_with_integer_exponent(scope: Scope, operation: ir.Operation) -> list[ir.Value] | None:
    """Expand x**n as x**y, where n of up to 32 bits is exact in f64; wider exponents are left alone."""
    base, exponent = operation.operands
    element = exponent.type.element_type if isinstance(exponent.type, ir.VectorType) else exponent.type
    if not is_real(base.type) or element.width > 32:
        return None
    x = Real(scope.format_of(base.type), base)
    wide = x.to_double()
    y = Real(wide.format, emit("arith.sitofp", wide.format.real_type, [exponent]))
    magnitude = _power_short(abs(wide), y) if x.format.width == 32 else _power_pair(abs(x), y)
    return [_with_special_cases(wide, y, magnitude).rounded_to(x.format).ssa]


@expands_operation("math.ipowi")
def power_of_integers(scope: Scope, operation: ir.Operation) -> list[ir.Value] | None:
    """Expand a power of integers with signed exponents."""
    format = scope.format_of(operation.operands[0].type)
    base, exponent = (Integer(format, operand) for operand in operation.operands)
    return [_power_by_squaring(base, exponent, signed=True).ssa]


def integer_power(base: ir.Value, exponent: ir.Value, signed: bool = True) -> ir.Value:
    """base**exponent of integers (scalars or vectors) modulo 2**width, emitted at the insertion point.

    Negative exponents (if `signed`) give 0, but 1 or -1 for the bases 1 and -1.
    """
    format = Scope().format_of(base.type)
    return _power_by_squaring(Integer(format, base), Integer(format, exponent), signed).ssa


def _power_by_squaring(base: Integer, exponent: Integer, signed: bool) -> Integer:
    one = base.format.integer(1)
    left = exponent
    if signed:
        # of a negative exponent only its parity matters, for the base -1
        negative = exponent.compare("slt", 0)
        left = select_integer(negative, exponent & 1, exponent)

    def step(state: Sequence[Integer]) -> Sequence[Integer]:
        result, factor, left = state
        result = select_integer((left & 1).compare("ne", 0), result * factor, result)
        return result, factor * factor, left >> 1

    result: Integer = repeat_while(lambda state: state[2].compare("ne", 0), step, [one, base, left])[0]
    if signed:
        unit = base.compare("eq", 1) | base.compare("eq", -1)
        result = select_integer(negative & ~unit, 0, result)
    return result
