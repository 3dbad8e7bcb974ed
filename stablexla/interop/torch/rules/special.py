"""Special functions of `torch.special`: the error function's, the gamma function's and the entropies'."""

from __future__ import annotations

import math
from collections.abc import Callable

import stablexla as sx
from stablexla.interop.torch import coefficients as table
from stablexla.interop.torch.call import Call, Value, as_float, convert, full_like, polynomial, wide, zeros_like
from stablexla.interop.torch.registry import aten

Unary = Callable[[sx.XlaOp], sx.XlaOp]
_SQRT_HALF = math.sqrt(0.5)


# ---- the error function and the normal distribution ----


def erfcx(x: sx.XlaOp) -> sx.XlaOp:
    """Return `exp(x**2) erfc(x)`, after Cody, Rational Chebyshev approximations for the error function, 1969."""
    y = sx.abs(x)
    square = sx.mul(y, y)
    growth = sx.exp(square)
    erf = sx.mul(y, sx.div(polynomial(square, table.ERFCX_A), polynomial(square, table.ERFCX_B)))
    near = sx.mul(growth, sx.sub(1, erf))
    far_y = sx.max(y, full_like(y, 4))
    z = sx.reciprocal(sx.mul(far_y, far_y))
    tail = sx.mul(z, sx.div(polynomial(z, table.ERFCX_P), polynomial(z, table.ERFCX_Q)))
    far = sx.div(sx.sub(1 / math.sqrt(math.pi), tail), far_y)
    middle_y = sx.min(y, full_like(y, 4))
    middle = sx.div(polynomial(middle_y, table.ERFCX_C), polynomial(middle_y, table.ERFCX_D))
    made = sx.select(sx.lt(y, 0.46875), near, sx.select(sx.le(y, 4), middle, far))
    made = sx.select(sx.lt(x, 0), sx.sub(sx.mul(growth, 2), made), made)
    return sx.select(sx.is_nan(x), x, made)


def _log_ndtr(x: sx.XlaOp) -> sx.XlaOp:
    t = sx.mul(x, _SQRT_HALF)
    is_low = sx.lt(x, -1)
    low = sx.sub(sx.log(sx.mul(erfcx(sx.neg(sx.select(is_low, t, full_like(t, -1)))), 0.5)), sx.mul(t, t))
    return sx.select(is_low, low, sx.log1p(sx.mul(sx.erfc(t), -0.5)))


def _ndtri(x: sx.XlaOp) -> sx.XlaOp:
    """Return the quantile of the normal distribution, after Moshier's Cephes."""
    edge = math.exp(-2)
    is_high = sx.gt(x, 1 - edge)
    y = sx.select(is_high, sx.sub(1, x), x)
    from_half = sx.sub(y, 0.5)
    square = sx.mul(from_half, from_half)
    ratio = sx.div(polynomial(square, table.NDTRI_P0), polynomial(square, table.NDTRI_Q0))
    middle = sx.mul(sx.add(from_half, sx.mul(sx.mul(from_half, square), ratio)), math.sqrt(2 * math.pi))
    r = sx.sqrt(sx.mul(sx.log(y), -2))
    z = sx.reciprocal(r)
    near = sx.div(polynomial(z, table.NDTRI_P1), polynomial(z, table.NDTRI_Q1))
    far = sx.div(polynomial(z, table.NDTRI_P2), polynomial(z, table.NDTRI_Q2))
    tail = sx.sub(sx.sub(r, sx.div(sx.log(r), r)), sx.mul(z, sx.select(sx.lt(r, 8), near, far)))
    made = sx.select(sx.gt(y, edge), middle, sx.select(is_high, tail, sx.neg(tail)))
    for value, at in ((-math.inf, 0), (math.inf, 1)):
        made = sx.select(sx.eq(x, at), full_like(x, value), made)
    return sx.select(sx.and_(sx.ge(x, 0), sx.le(x, 1)), made, full_like(x, math.nan))


def _digamma(x: sx.XlaOp) -> sx.XlaOp:
    """Return the digamma function, whose pole at zero has the sign of the side that it is come from."""
    return sx.select(sx.eq(x, 0), sx.div(full_like(x, -1), x), sx.digamma(x))


# ---- entropies ----


def _entr(x: sx.XlaOp) -> sx.XlaOp:
    made = sx.neg(sx.mul(x, sx.log(x)))
    made = sx.select(sx.eq(x, 0), zeros_like(x), sx.select(sx.lt(x, 0), full_like(x, -math.inf), made))
    return sx.select(sx.is_nan(x), x, made)


def _sinc(x: sx.XlaOp) -> sx.XlaOp:
    is_zero = sx.eq(x, zeros_like(x))
    turn = sx.mul(x, math.pi)
    return sx.select(is_zero, full_like(x, 1), sx.div(sx.sin(turn), turn))


def _spherical_bessel_j0(x: sx.XlaOp) -> sx.XlaOp:
    """Return `sin(x) / x`, near zero by its series."""
    square = sx.mul(x, x)
    near = polynomial(square, [(-1) ** k / math.factorial(2 * k + 1) for k in range(6, -1, -1)])
    made = sx.select(sx.lt(sx.abs(x), 0.5), near, sx.div(sx.sin(x), x))
    return sx.select(sx.is_inf(x), zeros_like(x), made)


def _of_one(name: str, function: Unary) -> None:
    prim = {"erfinv": "erf_inv"}.get(name, name.removeprefix("special_"))

    @aten(f"aten.{name}.default", f"prims.{prim}.default")
    def rule(call: Call, x: sx.XlaOp) -> sx.XlaOp:
        return function(wide(as_float(x)))


_OF_ONE: dict[str, Unary] = {
    "digamma": _digamma,
    "erf": sx.erf,
    "erfc": sx.erfc,
    "erfinv": sx.erf_inv,
    "lgamma": sx.lgamma,
    "sinc": _sinc,
    "special_entr": _entr,
    "special_erfcx": erfcx,
    "special_log_ndtr": _log_ndtr,
    "special_ndtri": _ndtri,
    "special_spherical_bessel_j0": _spherical_bessel_j0,
}
for _name, _function in _OF_ONE.items():
    _of_one(_name, _function)


def _x_log(call: Call, lhs: Value, rhs: Value, log: Unary) -> sx.XlaOp:
    """Return x times a logarithm, zero where x is; NaN of the logarithm's argument stays."""
    x, y = map(wide, call.promoted(lhs, rhs, type=call.type))
    made = sx.select(sx.eq(x, zeros_like(x)), zeros_like(x), sx.mul(x, log(y)))
    return sx.select(sx.ne(y, y), y, made)


@aten("aten.xlogy.Tensor", "aten.xlogy.Scalar_Other", "aten.xlogy.Scalar_Self")
def xlogy(call: Call, lhs: Value, rhs: Value) -> sx.XlaOp:
    return _x_log(call, lhs, rhs, sx.log)


@aten("aten.special_xlog1py.default", "aten.special_xlog1py.other_scalar", "aten.special_xlog1py.self_scalar")
def xlog1py(call: Call, lhs: Value, rhs: Value) -> sx.XlaOp:
    return _x_log(call, lhs, rhs, sx.log1p)


@aten("aten.logit.default")
def logit(call: Call, x: sx.XlaOp, eps: float | None) -> sx.XlaOp:
    x = wide(as_float(x))
    if eps is not None:
        low = full_like(x, eps)  # it counts first, where eps is more than a half
        x = sx.select(sx.lt(x, low), low, sx.min(x, full_like(x, 1 - eps)))
    return sx.log(sx.div(x, sx.sub(1, x)))


# ---- the gamma function ----


@aten("aten.polygamma.default")
def polygamma(call: Call, n: int, x: sx.XlaOp) -> sx.XlaOp:
    """Return the n-th derivative of the digamma function, beyond the first by Hurwitz's zeta."""
    x = wide(as_float(x))
    if n == 0:
        return _digamma(x)
    if n == 1:
        return _trigamma(x)
    return sx.mul(_hurwitz(full_like(x, n + 1), x), (-1) ** (n + 1) * math.gamma(n + 1))


def _trigamma(x: sx.XlaOp) -> sx.XlaOp:
    """Return the derivative of the digamma function: reflected at a half, shifted by 8, and there its series."""
    is_low = sx.lt(x, 0.5)
    sine = sx.sin(sx.mul(sx.sub(x, sx.round_nearest_even(x)), math.pi))
    y = sx.select(is_low, sx.sub(1, x), x)
    made = zeros_like(y)
    for _ in range(8):
        made = sx.add(made, sx.reciprocal(sx.mul(y, y)))
        y = sx.add(y, 1)
    inverse = sx.reciprocal(y)
    square = sx.mul(inverse, inverse)
    series = sx.mul(sx.mul(inverse, square), polynomial(square, [5 / 66, -1 / 30, 1 / 42, -1 / 30, 1 / 6]))
    made = sx.add(made, sx.add(sx.add(inverse, sx.mul(square, 0.5)), series))
    return sx.select(is_low, sx.sub(sx.div(math.pi**2, sx.mul(sine, sine)), made), made)


@aten("aten.mvlgamma.default")
def mvlgamma(call: Call, x: sx.XlaOp, p: int) -> sx.XlaOp:
    x = wide(as_float(x))
    made = full_like(x, p * (p - 1) / 4 * math.log(math.pi))
    for k in range(p):
        made = sx.add(made, sx.lgamma(sx.sub(x, k / 2)))
    return made


@aten(
    "aten.special_zeta.default", "aten.special_zeta.other_scalar", "aten.special_zeta.self_scalar", "prims.zeta.default"
)
def zeta(call: Call, lhs: Value, rhs: Value) -> sx.XlaOp:
    return _hurwitz(*call.promoted(lhs, rhs, type=call.type))


# Of Euler and Maclaurin's sum: (2 k)! / B(2 k).
_EULER_MACLAURIN = (
    12.0, -720.0, 30240.0, -1209600.0, 47900160.0, -1.307674368e12 / 691, 7.47242496e10, -1.067062284288e16 / 3617,
    5.109094217170944e18 / 43867, -8.028576626982912e20 / 174611, 1.5511210043330985984e23 / 854513,
    -1.6938241367317436694528e27 / 236364091,
)  # fmt: skip


def _hurwitz(x: sx.XlaOp, q: sx.XlaOp) -> sx.XlaOp:
    """Return the sum of `(q + k)**-x`: at least nine of them, up to q + k = 9, then Euler and Maclaurin's; in f64."""
    x, q = convert(x, "f64"), convert(q, "f64")

    def is_small(power: sx.XlaOp, sum: sx.XlaOp) -> sx.XlaOp:
        return sx.lt(sx.abs(power), sx.mul(sx.abs(sum), 2.0**-53))

    def step(k: sx.XlaOp, a: sx.XlaOp, power: sx.XlaOp, sum: sx.XlaOp) -> tuple[list[sx.XlaOp], sx.XlaOp]:
        a = sx.add(a, 1)
        power = sx.pow(a, sx.neg(x))
        sum = sx.add(sum, power)
        more = sx.or_(sx.lt(k, 9), sx.le(a, 9))
        return [a, power, sum], sx.and_(more, sx.not_(is_small(power, sum)))

    is_whole = sx.eq(q, sx.floor(q))
    is_pole = sx.and_(sx.le(q, 0), is_whole)
    outside = sx.or_(sx.not_(sx.ge(x, 1)), sx.and_(sx.le(q, 0), sx.ne(x, sx.floor(x))))
    valid = sx.and_(sx.gt(x, 1), sx.not_(sx.or_(is_pole, outside)))
    safe = sx.select(valid, q, full_like(q, 1))
    first = sx.pow(safe, sx.neg(x))
    a, power, sum = _until_done(step, [safe, first, first], valid)
    power = sx.select(is_small(power, sum), zeros_like(power), power)
    sum = sx.add(sum, sx.sub(sx.div(sx.mul(power, a), sx.sub(x, 1)), sx.mul(power, 0.5)))
    factor = full_like(x, 1)
    for k, divisor in enumerate(_EULER_MACLAURIN):
        factor = sx.mul(factor, sx.add(x, 2 * k))
        power = sx.div(power, a)
        term = sx.div(sx.mul(factor, power), divisor)
        # Where the powers are zero the factors may be infinite.
        sum = sx.add(sum, sx.select(sx.eq(power, 0), zeros_like(term), term))
        factor = sx.mul(factor, sx.add(x, 2 * k + 1))
        power = sx.div(power, a)
    sum = sx.select(outside, full_like(x, math.nan), sum)
    infinite = sx.or_(sx.eq(x, 1), sx.and_(is_pole, sx.ge(x, 1)))
    return sx.select(infinite, full_like(x, math.inf), sum)


@aten("aten.igamma.default", "prims.igamma.default")
def igamma(call: Call, a: sx.XlaOp, x: sx.XlaOp) -> sx.XlaOp:
    """Return the lower incomplete gamma function, divided by the whole one."""
    a, x = map(wide, call.promoted(a, x, type=call.type))
    is_near = _is_near(a, x)
    by_fraction = sx.and_(sx.gt(x, 1), sx.gt(x, a))
    rest = sx.sub(1, _gamma_fraction(a, x, sx.and_(by_fraction, sx.not_(is_near))))
    made = sx.select(by_fraction, rest, _gamma_series(a, x, sx.not_(sx.or_(by_fraction, is_near))))
    return _gamma_edges(a, x, _gamma_temme(a, x, made, is_near, -1), 0)


@aten("aten.igammac.default", "prims.igammac.default")
def igammac(call: Call, a: sx.XlaOp, x: sx.XlaOp) -> sx.XlaOp:
    """Return the upper incomplete gamma function, divided by the whole one."""
    a, x = map(wide, call.promoted(a, x, type=call.type))
    is_large = sx.gt(x, 1.1)
    # 1 - P where that is no difference of nearly equal numbers: P is at most about a half.
    bound = sx.select(sx.le(x, 0.5), sx.div(-0.4, sx.log(sx.min(x, full_like(x, 0.5)))), sx.mul(x, 1.1))
    by_series = sx.lt(sx.select(is_large, x, bound), a)
    by_fraction = sx.and_(is_large, sx.not_(by_series))
    is_near = _is_near(a, x)
    fraction = _gamma_fraction(a, x, sx.and_(by_fraction, sx.not_(is_near)))
    made = sx.select(by_fraction, fraction, _gamma_power_series(a, x))
    made = sx.select(by_series, sx.sub(1, _gamma_series(a, x, sx.and_(by_series, sx.not_(is_near)))), made)
    return _gamma_edges(a, x, _gamma_temme(a, x, made, is_near, 1), 1)


def _gamma_edges(a: sx.XlaOp, x: sx.XlaOp, made: sx.XlaOp, upper: int) -> sx.XlaOp:
    """Return the values at zeros and infinities, NaN below zero, elsewhere what was made."""
    infinite_a, infinite_x = sx.is_inf(a), sx.is_inf(x)
    at_zero, at_infinity = full_like(x, upper), full_like(x, 1 - upper)
    made = sx.select(infinite_x, at_infinity, sx.select(infinite_a, at_zero, made))
    made = sx.select(sx.eq(a, 0), at_infinity, sx.select(sx.eq(x, 0), at_zero, made))
    neither = sx.or_(sx.and_(infinite_a, infinite_x), sx.and_(sx.eq(a, 0), sx.eq(x, 0)))
    outside = sx.or_(sx.not_(sx.ge(a, 0)), sx.not_(sx.ge(x, 0)))
    return sx.select(sx.or_(neither, outside), full_like(x, math.nan), made)


def _deviance(u: sx.XlaOp) -> sx.XlaOp:
    """Return `u - log(1 + u)`, near zero by its series."""
    near = sx.mul(sx.mul(u, u), polynomial(u, [(-1) ** k / (k + 2) for k in range(16, -1, -1)]))
    return sx.select(sx.le(sx.abs(u), 0.1), near, sx.sub(u, sx.log1p(u)))


# Of Temme's uniform expansion: by powers of 1 / a, each by powers of eta.
_TEMME = (
    (-1 / 3, 1 / 12, -2 / 135, 1 / 864, 3.527336860670194e-4, -1.7875514403292181e-4, 3.9192631785224378e-5),
    (-1 / 540, -1 / 288, 1 / 378, -9.9022633744855967e-4, 2.0576131687242798e-4),
    (4.1335978835978836e-3, -2.6813271604938272e-3, 7.7160493827160494e-4),
)


def _gamma_temme(a: sx.XlaOp, x: sx.XlaOp, made: sx.XlaOp, is_near: sx.XlaOp, sign: int) -> sx.XlaOp:
    """Return the upper function (sign 1) or the lower one (-1) of large, nearly equal numbers; else what was made."""
    off = sx.select(is_near, sx.div(sx.sub(x, a), a), zeros_like(a))
    safe = sx.select(is_near, a, full_like(a, 1e6))
    deviance = _deviance(off)
    size = sx.sqrt(sx.mul(deviance, 2))
    eta = sx.select(sx.lt(off, 0), sx.neg(size), size)
    sum = zeros_like(a)
    for row in reversed(_TEMME):
        sum = sx.add(sx.div(sum, safe), polynomial(eta, row[::-1]))
    rest = sx.div(sx.mul(sx.exp(sx.neg(sx.mul(safe, deviance))), sum), sx.sqrt(sx.mul(safe, 2 * math.pi)))
    normal = sx.mul(sx.erfc(sx.mul(sx.mul(eta, sign), sx.sqrt(sx.mul(safe, 0.5)))), 0.5)
    return sx.select(is_near, sx.add(normal, sx.mul(rest, sign)), made)


def _is_near(a: sx.XlaOp, x: sx.XlaOp) -> sx.XlaOp:
    """Return where the series and the fraction would take long."""
    close = sx.le(sx.abs(sx.sub(x, a)), sx.mul(a, 0.1))
    return sx.and_(sx.and_(sx.ge(a, 1e4), sx.is_finite(a)), close)


def _gamma_factor(a: sx.XlaOp, x: sx.XlaOp) -> sx.XlaOp:
    """Return `x**a exp(-x) / gamma(a)`, for large a by Stirling's series, in which nothing large is subtracted."""
    safe = sx.max(a, full_like(a, 10))
    off = sx.div(sx.sub(x, safe), safe)
    inverse = sx.reciprocal(safe)
    series = sx.mul(inverse, polynomial(sx.mul(inverse, inverse), [-1 / 1680, 1 / 1260, -1 / 360, 1 / 12]))
    log = sx.add(sx.mul(safe, _deviance(off)), series)
    large = sx.mul(sx.exp(sx.neg(log)), sx.sqrt(sx.mul(safe, 1 / (2 * math.pi))))
    small = sx.exp(sx.sub(sx.sub(sx.mul(a, sx.log(x)), x), sx.lgamma(a)))
    return sx.select(sx.ge(a, 10), large, small)


# No number that PyTorch takes seconds for stops a program for ever.
_MOST_STEPS = 1 << 16


def _epsilon(x: sx.XlaOp) -> float:
    return 2.0**-53 if x.element_type.bits == 64 else 2.0**-24


def _until_done(
    step: Callable[..., tuple[list[sx.XlaOp], sx.XlaOp]], state: list[sx.XlaOp], active: sx.XlaOp
) -> list[sx.XlaOp]:
    """Return the state after steps on all elements at once, each element's until it is done.

    Args:
        step: takes the number of the step, from 1, and the state; it returns the new one and which elements go on.
        state: arrays.
        active: which elements begin.
    """

    def goes_on(packed: sx.XlaOp) -> sx.XlaOp:
        any_active = sx.reduce_all(packed[1], False, sx.or_)
        return sx.and_(any_active, sx.le(packed[0], _MOST_STEPS))

    def body(packed: sx.XlaOp) -> sx.XlaOp:
        number, active, *old = packed
        new, more = step(sx.convert_element_type(number, state[0].element_type), *old)
        kept = [sx.select(active, n, o) for n, o in zip(new, old, strict=True)]
        return sx.tuple([sx.add(number, 1), sx.and_(active, more), *kept])

    first = full_like(sx.convert_element_type(active, "s32"), 1, ())
    _, _, *made = sx.while_(goes_on, body, sx.tuple([first, active, *state]))
    return made


def _gamma_series(a: sx.XlaOp, x: sx.XlaOp, active: sx.XlaOp) -> sx.XlaOp:
    """Return the lower function by the sum of `x**n / ((a + 1) ... (a + n))`."""
    epsilon = _epsilon(x)

    def step(n: sx.XlaOp, term: sx.XlaOp, sum: sx.XlaOp) -> tuple[list[sx.XlaOp], sx.XlaOp]:
        term = sx.mul(term, sx.div(x, sx.add(a, n)))
        sum = sx.add(sum, term)
        return [term, sum], sx.gt(term, sx.mul(sum, epsilon))

    one = full_like(x, 1)
    _, sum = _until_done(step, [one, one], active)
    return sx.div(sx.mul(_gamma_factor(a, x), sum), a)


def _gamma_fraction(a: sx.XlaOp, x: sx.XlaOp, active: sx.XlaOp) -> sx.XlaOp:
    """Return the upper function by Legendre's continued fraction, evaluated after Lentz."""
    epsilon, least = _epsilon(x), 1e-30

    def nonzero(x: sx.XlaOp) -> sx.XlaOp:
        return sx.select(sx.lt(sx.abs(x), least), full_like(x, least), x)

    def step(n: sx.XlaOp, c: sx.XlaOp, d: sx.XlaOp, h: sx.XlaOp) -> tuple[list[sx.XlaOp], sx.XlaOp]:
        top = sx.mul(sx.sub(a, n), n)
        bottom = sx.add(sx.sub(x, a), sx.add(sx.mul(n, 2), 1))
        d = sx.reciprocal(nonzero(sx.add(bottom, sx.mul(top, d))))
        c = nonzero(sx.add(bottom, sx.div(top, c)))
        change = sx.mul(c, d)
        return [c, d, sx.mul(h, change)], sx.gt(sx.abs(sx.sub(change, 1)), 2 * epsilon)

    first = sx.reciprocal(nonzero(sx.add(sx.sub(x, a), 1)))
    _, _, h = _until_done(step, [full_like(x, 1 / least), first, first], active)
    return sx.mul(_gamma_factor(a, x), h)


def _gamma_power_series(a: sx.XlaOp, x: sx.XlaOp) -> sx.XlaOp:
    """Return the upper function for x up to 1.1 by the sum of `(-x)**n / (n! (a + n))`."""
    sum, term = zeros_like(x), full_like(x, 1)
    for n in range(1, 20):
        term = sx.mul(term, sx.div(x, -n))
        sum = sx.add(sum, sx.div(term, sx.add(a, n)))
    power = sx.mul(a, sx.log(x))
    rest = sx.neg(sx.expm1(sx.sub(power, sx.lgamma(sx.add(a, 1)))))
    return sx.sub(rest, sx.mul(sx.exp(sx.sub(power, sx.lgamma(a))), sum))
