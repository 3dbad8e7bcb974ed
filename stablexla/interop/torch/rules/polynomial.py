"""Orthogonal polynomials of `torch.special`: three-term recurrences, one loop for all elements and their degrees."""

from __future__ import annotations

import math
from collections.abc import Callable

import stablexla as sx
from stablexla.interop.torch.call import Call, Value, full_like, zeros_like
from stablexla.interop.torch.registry import aten

# The next polynomial from k, x, the last one and the one before.
Step = Callable[[sx.XlaOp, sx.XlaOp, sx.XlaOp, sx.XlaOp], sx.XlaOp]


def _recurrence(x: sx.XlaOp, degree: sx.XlaOp, first: sx.XlaOp, step: Step) -> sx.XlaOp:
    """Return for each element the polynomial of its degree, a whole float; until all have theirs, or are NaN.

    Args:
        x: where.
        degree: of each element.
        first: the polynomial of degree 1; that of degree 0 is 1.
        step: makes degree `k + 1`.
    """

    def is_active(k: sx.XlaOp, last: sx.XlaOp) -> sx.XlaOp:
        return sx.and_(sx.lt(k, degree), sx.eq(last, last))

    def goes_on(state: sx.XlaOp) -> sx.XlaOp:
        return sx.reduce_all(is_active(state[0], state[1]), False, sx.or_)

    def body(state: sx.XlaOp) -> sx.XlaOp:
        k, last, before = state
        made = sx.select(is_active(k, last), step(k, x, last, before), last)
        return sx.tuple([sx.add(k, 1), made, last])

    one = full_like(x, 1)
    _, made, _ = sx.while_(goes_on, body, sx.tuple([full_like(x, 1, ()), first, one]))
    return sx.select(sx.lt(degree, 0), zeros_like(x), sx.select(sx.lt(degree, 1), one, made))


def _rule(name: str, function: Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp]) -> None:
    @aten(*(f"aten.special_{name}.{overload}" for overload in ("default", "n_scalar", "x_scalar")))
    def rule(call: Call, x: Value, n: Value) -> sx.XlaOp:
        # What is left over of large terms that cancel each other out is right in f64 alone.
        x, n = call.promoted(x, n, type="f64")
        # As a conversion to integers: towards zero, and below zero what is not finite.
        whole = sx.select(sx.is_finite(n), sx.select(sx.lt(n, 0), sx.ceil(n), sx.floor(n)), full_like(n, -1))
        return function(x, whole)


# ---- Chebyshev's ----


def _chebyshev(kind: str, least: int) -> Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp]:
    """Return the polynomials of a kind, of which those of high degree are the quotients of sines and cosines.

    Args:
        kind: t, u, v or w.
        least: the degree above which they are.
    """
    offset = {"t": None, "u": 0.0, "v": -1.0, "w": 1.0}[kind]

    def polynomial(x: sx.XlaOp, n: sx.XlaOp) -> sx.XlaOp:
        twice = sx.add(x, x)
        by_angle = sx.and_(sx.gt(n, least), sx.lt(sx.abs(x), 1))
        at_end = sx.eq(sx.abs(x), 1)
        apart = sx.or_(by_angle, at_end)
        steps = sx.select(sx.and_(apart, sx.ge(n, 0)), zeros_like(n), n)
        first = x if offset is None else sx.add(twice, offset)
        made = _recurrence(x, steps, first, lambda k, x, last, before: sx.sub(sx.mul(sx.add(x, x), last), before))
        made = sx.select(by_angle, _by_angle(kind, sx.acos(sx.clamp(-1.0, x, 1.0)), n), made)
        return sx.select(sx.and_(at_end, sx.ge(n, 0)), _at_end(kind, x, n), made)

    return polynomial


def _by_angle(kind: str, angle: sx.XlaOp, n: sx.XlaOp) -> sx.XlaOp:
    if kind == "t":
        return sx.cos(sx.mul(n, angle))
    if kind == "u":
        return sx.div(sx.sin(sx.mul(sx.add(n, 1), angle)), sx.sin(angle))
    function = sx.cos if kind == "v" else sx.sin
    return sx.div(function(sx.mul(sx.add(n, 0.5), angle)), function(sx.mul(angle, 0.5)))


def _at_end(kind: str, x: sx.XlaOp, n: sx.XlaOp) -> sx.XlaOp:
    """Return the value at 1 and at -1, where it has the sign of `(-1)**n`."""
    one, many = full_like(n, 1), sx.add(sx.add(n, n), 1)
    at_one, at_minus_one = {"t": (one, one), "u": (sx.add(n, 1),) * 2, "v": (one, many), "w": (many, one)}[kind]
    odd = sx.ne(sx.rem(n, full_like(n, 2)), 0)
    return sx.select(sx.gt(x, 0), at_one, sx.select(odd, sx.neg(at_minus_one), at_minus_one))


def _shifted(kind: str, least: int) -> Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp]:
    polynomial = _chebyshev(kind, least)
    return lambda x, n: polynomial(sx.sub(sx.add(x, x), 1), n)


for _kind, _least, _least_shifted in (("t", 6, 6), ("u", 8, 6), ("v", 8, 6), ("w", 8, 4)):
    _rule(f"chebyshev_polynomial_{_kind}", _chebyshev(_kind, _least))
    _rule(f"shifted_chebyshev_polynomial_{_kind}", _shifted(_kind, _least_shifted))


# ---- Hermite's, Laguerre's and Legendre's ----


def _hermite(x: sx.XlaOp, n: sx.XlaOp, factor: int) -> sx.XlaOp:
    """Return `H` (factor 2) or `He` (1); NaN of degrees above the highest that PyTorch's f64 takes."""

    def step(k: sx.XlaOp, x: sx.XlaOp, last: sx.XlaOp, before: sx.XlaOp) -> sx.XlaOp:
        return sx.sub(sx.mul(sx.mul(x, factor), last), sx.mul(sx.mul(k, factor), before))

    is_high = sx.gt(n, 512)
    made = _recurrence(x, sx.select(is_high, zeros_like(n), n), sx.mul(x, factor), step)
    return sx.select(is_high, full_like(x, math.nan), made)


def _laguerre(x: sx.XlaOp, n: sx.XlaOp) -> sx.XlaOp:
    def step(k: sx.XlaOp, x: sx.XlaOp, last: sx.XlaOp, before: sx.XlaOp) -> sx.XlaOp:
        weight = sx.add(sx.add(k, k), sx.sub(1, x))
        return sx.div(sx.sub(sx.mul(weight, last), sx.mul(k, before)), sx.add(k, 1))

    at_zero = sx.and_(sx.eq(x, 0), sx.ge(n, 0))
    return _recurrence(x, sx.select(at_zero, zeros_like(n), n), sx.sub(1, x), step)


def _legendre(x: sx.XlaOp, n: sx.XlaOp) -> sx.XlaOp:
    def step(k: sx.XlaOp, x: sx.XlaOp, last: sx.XlaOp, before: sx.XlaOp) -> sx.XlaOp:
        weight = sx.mul(sx.add(sx.add(k, k), 1), x)
        return sx.div(sx.sub(sx.mul(weight, last), sx.mul(k, before)), sx.add(k, 1))

    at_end = sx.and_(sx.eq(sx.abs(x), 1), sx.ge(n, 0))
    made = _recurrence(x, sx.select(at_end, zeros_like(n), n), x, step)
    return sx.select(at_end, _at_end("t", x, n), made)


_rule("hermite_polynomial_h", lambda x, n: _hermite(x, n, 2))
_rule("hermite_polynomial_he", lambda x, n: _hermite(x, n, 1))
_rule("laguerre_polynomial_l", _laguerre)
_rule("legendre_polynomial_p", _legendre)
