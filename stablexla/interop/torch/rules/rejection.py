"""Random numbers that are drawn until one is accepted: Poisson, binomial, gamma and Dirichlet distributions, in f64.

All elements are drawn anew in each iteration of one loop; those that were accepted keep their numbers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import stablexla as sx
from stablexla.dialects.element_types import element_type
from stablexla.interop.torch.call import Call, broadcast, convert, full_like, reduced, total, zeros_like
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.rules.random import normal_01, uniform_open

_F64 = element_type("f64")
# From this mean on the transformed rejections of Hoermann (1993) hold; below it the search of the inverse is short.
_LARGE = 10.0
# Beyond it a distribution of a mean below _LARGE has no weight that f64 knows.
_MOST = 128.0


def _until_accepted(
    call: Call, done: sx.XlaOp, draw: Callable[[], tuple[sx.XlaOp, sx.XlaOp]], init: sx.XlaOp
) -> sx.XlaOp:
    """Return numbers that were accepted.

    Args:
        done: where none is to be drawn.
        draw: returns candidates and where they are accepted.
        init: the numbers where none is drawn.
    """

    def step(state: sx.XlaOp) -> sx.XlaOp:
        number, done, made = state
        with call.translator.iteration(number):
            candidate, accepted = draw()
        return sx.tuple([sx.add(number, 1), sx.or_(done, accepted), sx.select(done, made, candidate)])

    start = [call.constant(0, "s64"), done, init]
    return sx.while_(lambda state: sx.not_(_all(state[1])), step, start)[2]


def _all(x: sx.XlaOp) -> sx.XlaOp:
    return reduced(x, True, sx.and_, range(x.shape.rank))


def _searched(call: Call, first: sx.XlaOp, ratio: Callable[[sx.XlaOp], sx.XlaOp]) -> sx.XlaOp:
    """Return the inverse of a distribution function of few terms, searched from 0 on.

    Args:
        first: the probability of 0.
        ratio: from k to the probability of k divided by that of k - 1.
    """
    drawn = uniform_open(call, _F64, first.shape.dimensions)

    def is_above(count: sx.XlaOp, sum: sx.XlaOp) -> sx.XlaOp:
        return sx.and_(sx.gt(drawn, sum), sx.lt(count, _MOST))

    def step(state: sx.XlaOp) -> sx.XlaOp:
        count, weight, sum = state
        goes_on = is_above(count, sum)
        following = sx.add(count, 1.0)
        weight = sx.mul(weight, ratio(following))
        return sx.tuple([
            sx.select(goes_on, following, count), weight, sx.select(goes_on, sx.add(sum, weight), sum),
        ])  # fmt: skip

    def goes_on(state: sx.XlaOp) -> sx.XlaOp:
        return sx.not_(_all(sx.not_(is_above(state[0], state[2]))))

    return sx.while_(goes_on, step, [zeros_like(first), first, first])[0]


def _hat(call: Call, a: sx.XlaOp, b: sx.XlaOp, shift: sx.XlaOp) -> tuple[sx.XlaOp, sx.XlaOp, sx.XlaOp]:
    """Return candidates under the hat of a transformed rejection, its second uniform number, and 1/2 - |u|."""
    sizes = a.shape.dimensions
    u = sx.sub(uniform_open(call, _F64, sizes), 0.5)
    v = uniform_open(call, _F64, sizes)
    us = sx.sub(0.5, sx.abs(u))
    return sx.floor(sx.add(sx.mul(sx.add(sx.div(sx.mul(a, 2.0), us), b), u), shift)), v, us


@aten("aten.poisson.default")
def poisson(call: Call, rates: sx.XlaOp) -> sx.XlaOp:
    """PTRS of Hoermann, The transformed rejection method for generating Poisson random variables (1993)."""
    rates = convert(rates, "f64")
    is_large = sx.ge(rates, _LARGE)
    small = sx.select(is_large, full_like(rates, 1.0), rates)
    few = _searched(call, sx.exp(sx.neg(small)), lambda k: sx.div(small, k))

    large = sx.select(is_large, rates, full_like(rates, _LARGE))
    logarithm = sx.log(large)
    b = sx.add(sx.mul(sx.sqrt(large), 2.53), 0.931)
    a = sx.add(sx.mul(b, 0.02483), -0.059)
    inverse_alpha = sx.add(sx.div(1.1328, sx.sub(b, 3.4)), 1.1239)
    squeeze = sx.sub(0.9277, sx.div(3.6224, sx.sub(b, 2.0)))

    def draw() -> tuple[sx.XlaOp, sx.XlaOp]:
        k, v, us = _hat(call, a, b, sx.add(large, 0.43))
        weight = sx.log(sx.div(sx.mul(v, inverse_alpha), sx.add(sx.div(a, sx.mul(us, us)), b)))
        likelihood = sx.sub(sx.sub(sx.mul(k, logarithm), large), sx.lgamma(sx.add(k, 1.0)))
        accepted = sx.and_(sx.ge(k, 0.0), sx.le(weight, likelihood))
        return k, sx.or_(sx.and_(sx.ge(us, 0.07), sx.le(v, squeeze)), accepted)

    many = _until_accepted(call, sx.or_(sx.not_(is_large), sx.not_(sx.is_finite(rates))), draw, rates)
    return sx.select(is_large, many, sx.select(sx.is_nan(rates), rates, few))


@aten("aten.binomial.default")
def binomial(call: Call, counts: sx.XlaOp, chances: sx.XlaOp) -> sx.XlaOp:
    """BTRS of Hoermann, The generation of binomial random variates (1993), for a mean of 10 and more."""
    n, chance = (broadcast(convert(x, "f64"), call.dimensions) for x in (counts, chances))
    is_odd = sx.not_(sx.and_(sx.and_(sx.ge(chance, 0.0), sx.le(chance, 1.0)), sx.ge(n, 0.0)))
    is_flipped = sx.gt(chance, 0.5)
    p = sx.select(is_flipped, sx.sub(1.0, chance), chance)
    is_large = sx.ge(sx.mul(n, p), _LARGE)

    few_n, few_p = (sx.select(is_large, full_like(x, 0.0), x) for x in (n, p))
    odds = sx.div(few_p, sx.sub(1.0, few_p))
    first = sx.exp(sx.mul(few_n, sx.log1p(sx.neg(few_p))))
    few = _searched(call, first, lambda k: sx.mul(odds, sx.div(sx.add(sx.sub(few_n, k), 1.0), k)))

    m, p = sx.select(is_large, n, full_like(n, 40.0)), sx.select(is_large, p, full_like(p, 0.5))
    q = sx.sub(1.0, p)
    deviation = sx.sqrt(sx.mul(sx.mul(m, p), q))
    b = sx.add(sx.mul(deviation, 2.53), 1.15)
    a = sx.add(sx.add(sx.mul(b, 0.0248), sx.mul(p, 0.01)), -0.0873)
    alpha = sx.mul(sx.add(sx.div(5.1, b), 2.83), deviation)
    squeeze = sx.sub(0.92, sx.div(4.2, b))
    mode = sx.floor(sx.mul(sx.add(m, 1.0), p))
    log_odds = sx.log(sx.div(p, q))

    def paths(k: sx.XlaOp) -> sx.XlaOp:
        return sx.add(sx.lgamma(sx.add(k, 1.0)), sx.lgamma(sx.add(sx.sub(m, k), 1.0)))

    def draw() -> tuple[sx.XlaOp, sx.XlaOp]:
        k, v, us = _hat(call, a, b, sx.add(sx.mul(m, p), 0.5))
        weight = sx.log(sx.div(sx.mul(v, alpha), sx.add(sx.div(a, sx.mul(us, us)), b)))
        likelihood = sx.add(sx.sub(paths(mode), paths(k)), sx.mul(sx.sub(k, mode), log_odds))
        inside = sx.and_(sx.ge(k, 0.0), sx.le(k, m))
        accepted = sx.and_(inside, sx.le(weight, likelihood))
        return k, sx.or_(sx.and_(sx.ge(us, 0.07), sx.le(v, squeeze)), accepted)

    many = _until_accepted(call, sx.or_(sx.not_(is_large), is_odd), draw, n)
    made = sx.select(is_large, many, few)
    made = sx.select(is_flipped, sx.sub(n, made), made)
    return sx.select(is_odd, full_like(made, float("nan")), made)


@aten("aten._standard_gamma.default")
def standard_gamma(call: Call, concentration: sx.XlaOp) -> sx.XlaOp:
    made = _gamma(call, convert(concentration, "f64"))
    return sx.max(made, float(np.finfo(np.float64 if call.type.name == "f64" else np.float32).tiny))


def _gamma(call: Call, alpha: sx.XlaOp) -> sx.XlaOp:
    """Marsaglia and Tsang, A simple method for generating gamma variables (2000); for alpha < 1 from alpha + 1."""
    sizes = alpha.shape.dimensions
    is_small = sx.lt(alpha, 1.0)
    d = sx.sub(sx.select(is_small, sx.add(alpha, 1.0), alpha), 1 / 3)
    c = sx.rsqrt(sx.mul(d, 9.0))

    def draw() -> tuple[sx.XlaOp, sx.XlaOp]:
        x, u = normal_01(call, _F64, sizes), uniform_open(call, _F64, sizes)
        root = sx.add(sx.mul(c, x), 1.0)
        v = sx.mul(root, sx.mul(root, root))
        bound = sx.add(sx.mul(sx.mul(x, x), 0.5), sx.mul(d, sx.add(sx.sub(1.0, v), sx.log(v))))
        return v, sx.and_(sx.gt(v, 0.0), sx.lt(sx.log(u), bound))

    is_odd = sx.not_(sx.and_(sx.is_finite(alpha), sx.gt(alpha, 0.0)))
    made = sx.mul(d, _until_accepted(call, is_odd, draw, zeros_like(alpha)))
    power = sx.exp(sx.div(sx.log(uniform_open(call, _F64, sizes)), alpha))
    made = sx.select(is_small, sx.mul(made, power), made)
    return sx.select(is_odd, sx.select(sx.eq(alpha, 0.0), alpha, full_like(alpha, float("nan"))), made)


@aten("aten._sample_dirichlet.default")
def sample_dirichlet(call: Call, concentration: sx.XlaOp) -> sx.XlaOp:
    made = _gamma(call, convert(concentration, "f64"))
    last = (made.shape.rank - 1,)
    return sx.div(made, broadcast(total(made, last, keep=True), made.shape.dimensions))
