"""arith.remf: C's fmod, exact for all operands.

Each step subtracts a multiple of y scaled by a power of two, with a quotient of at most 52 bits, so that the product is
exact; the loop ends when all lanes are below |y|. Usually that is after one step. f32 is computed in f64.
"""

from __future__ import annotations

from collections.abc import Sequence

from stablexla.lowering.math.registry import expands
from stablexla.lowering.math.values import Integer, Real, repeat_while, select, select_integer

_QUOTIENT_BITS = 51


@expands("arith.remf")
def remainder(x: Real, y: Real) -> Real:
    """x - trunc(x / y) * y with the sign of x; NaN for infinite x and for y = 0."""
    infinite = float("inf")
    a, b = abs(x), abs(y)
    valid = (a < infinite) & (b > 0.0)  # false for NaN in either
    # lanes without a result are masked out of the loop
    wide_a, wide_b = select(valid, a, 0.0).to_double(), select(valid, b, 1.0).to_double()
    exponent = _exponent(wide_b)

    def step(state: Sequence[Real]) -> Sequence[Real]:
        rest = state[0]
        divisor = _scaled(wide_b, (_field(rest) - exponent - _QUOTIENT_BITS).at_least(0))
        quotient = (rest / divisor).trunc()
        left = (-quotient).fma(divisor, rest)
        # the quotient may have been rounded up; lanes that are done stay as they are
        left = select(left < 0.0, left + divisor, left)
        return [select(rest >= wide_b, left, rest)]

    rest: Real = repeat_while(lambda state: state[0] >= wide_b, step, [wide_a])[0]
    result = rest.rounded_to(x.format).with_sign_of(x)
    return select(valid, result, select(x.compare("uno", y), x + y, float("nan")))


def _field(x: Real) -> Integer:
    """Return the exponent field of a non-negative number."""
    return x.bits() >> x.format.layout.fraction_bits


def _exponent(x: Real) -> Integer:
    """Return the exponent field, extended below its range for denormals."""
    tiny = x < x.format.layout.smallest_normal
    scaled = x * 2.0**54
    return select_integer(tiny, _field(scaled) - 54, _field(x))


def _scaled(x: Real, exponent: Integer) -> Real:
    """Scale x by 2**exponent, from 0 to 2100, in three factors; the result is finite."""
    layout = x.format.layout

    def factor(part: Integer) -> Real:
        return ((part + layout.bias) << layout.fraction_bits).as_real()

    first = exponent >> 1
    second = (exponent - first) >> 1
    return x * factor(first) * factor(second) * factor(exponent - first - second)
