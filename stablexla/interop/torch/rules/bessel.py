"""Bessel functions, the modified ones and Airy's, after Moshier's Cephes: quotients of polynomials, Chebyshev sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import stablexla as sx
from stablexla.interop.torch import coefficients as table
from stablexla.interop.torch.call import Call, as_float, full_like, polynomial, wide
from stablexla.interop.torch.registry import aten

Unary = Callable[[sx.XlaOp], sx.XlaOp]


def _ratio(x: sx.XlaOp, above: Sequence[float], below: Sequence[float]) -> sx.XlaOp:
    return sx.div(polynomial(x, above), polynomial(x, below))


def _chebyshev(x: sx.XlaOp, coefficients: Sequence[float]) -> sx.XlaOp:
    """Return a sum of Chebyshev polynomials at `x / 2` by Clenshaw's recurrence, for f32 of fewer terms."""
    if x.element_type.bits == 32:
        first = next(n for n, c in enumerate(coefficients) if abs(c) > 1e-10)
        coefficients = coefficients[first:]
    last, before = full_like(x, coefficients[0]), full_like(x, 0)
    older = before
    for coefficient in coefficients[1:]:
        older, before = before, last
        last = sx.add(sx.sub(sx.mul(x, before), older), coefficient)
    return sx.mul(sx.sub(last, older), 0.5)


def _domain(x: sx.XlaOp, made: sx.XlaOp, at_zero: float) -> sx.XlaOp:
    """Return NaN below zero, a value at zero, elsewhere what was made."""
    made = sx.select(sx.eq(x, 0), full_like(x, at_zero), made)
    return sx.select(sx.lt(x, 0), full_like(x, math.nan), made)


# ---- of the first and second kind ----


def _far(x: sx.XlaOp, name: str, phase: float) -> tuple[sx.XlaOp, sx.XlaOp]:
    """Return both kinds above 5: `sqrt(2 / (pi x))` times cosine and sine of the turned argument, each weighed."""
    far = sx.max(x, full_like(x, 5))
    inverse = sx.div(5, far)
    square = sx.mul(inverse, inverse)
    p = _ratio(square, getattr(table, f"{name}_PP"), getattr(table, f"{name}_PQ"))
    q = sx.mul(inverse, _ratio(square, getattr(table, f"{name}_QP"), getattr(table, f"{name}_QQ")))
    turned = sx.sub(x, phase)
    cosine, sine = sx.cos(turned), sx.sin(turned)
    size = sx.div(math.sqrt(2 / math.pi), sx.sqrt(far))
    first = sx.mul(sx.sub(sx.mul(p, cosine), sx.mul(q, sine)), size)
    return first, sx.mul(sx.add(sx.mul(p, sine), sx.mul(q, cosine)), size)


def _near(x: sx.XlaOp, name: str, roots: tuple[float, float]) -> sx.XlaOp:
    """Return the first kind up to 5, which is zero at two roots, whose squares are given; by x for the odd one."""
    square = sx.mul(x, x)
    factors = sx.mul(sx.sub(square, roots[0]), sx.sub(square, roots[1]))
    return sx.mul(factors, _ratio(square, getattr(table, f"{name}_RP"), getattr(table, f"{name}_RQ")))


_J0_ROOTS, _J1_ROOTS = (
    (5.78318596294678452118, 30.4712623436620863991),
    (14.6819706421238932572, 49.2184563216946036703),
)


def _j0(x: sx.XlaOp) -> sx.XlaOp:
    x = sx.abs(x)
    return sx.select(sx.le(x, 5), _near(sx.min(x, full_like(x, 5)), "J0", _J0_ROOTS), _far(x, "J0", math.pi / 4)[0])


def _j1(x: sx.XlaOp) -> sx.XlaOp:
    y = sx.abs(x)
    small = sx.min(y, full_like(y, 5))
    near = sx.mul(x, _near(small, "J1", _J1_ROOTS))
    far = _far(y, "J1", 3 * math.pi / 4)[0]
    return sx.select(sx.le(y, 5), near, sx.select(sx.lt(x, 0), sx.neg(far), far))


def _y0(x: sx.XlaOp) -> sx.XlaOp:
    small = sx.min(x, full_like(x, 5))
    by_log = sx.mul(sx.mul(sx.log(small), 2 / math.pi), _near(small, "J0", _J0_ROOTS))
    near = sx.add(_ratio(sx.mul(small, small), table.Y0_YP, table.Y0_YQ), by_log)
    return _domain(x, sx.select(sx.le(x, 5), near, _far(x, "J0", math.pi / 4)[1]), -math.inf)


def _y1(x: sx.XlaOp) -> sx.XlaOp:
    small = sx.min(x, full_like(x, 5))
    first = sx.mul(small, _near(small, "J1", _J1_ROOTS))
    by_log = sx.mul(sx.sub(sx.mul(first, sx.log(small)), sx.reciprocal(small)), 2 / math.pi)
    near = sx.add(sx.mul(small, _ratio(sx.mul(small, small), table.Y1_YP, table.Y1_YQ)), by_log)
    return _domain(x, sx.select(sx.le(x, 5), near, _far(x, "J1", 3 * math.pi / 4)[1]), -math.inf)


# ---- the modified ones ----


def _i0e(x: sx.XlaOp) -> sx.XlaOp:
    """Return `exp(-|x|) i0(x)`."""
    y = sx.abs(x)
    near = _chebyshev(sx.sub(sx.mul(sx.min(y, full_like(y, 8)), 0.5), 2), table.I0_A)
    far = sx.max(y, full_like(y, 8))
    by_inverse = sx.div(_chebyshev(sx.sub(sx.div(32, far), 2), table.I0_B), sx.sqrt(far))
    return sx.select(sx.le(y, 8), near, by_inverse)


def _i1e(x: sx.XlaOp) -> sx.XlaOp:
    """Return `exp(-|x|) i1(x)`."""
    y = sx.abs(x)
    near = sx.mul(_chebyshev(sx.sub(sx.mul(sx.min(y, full_like(y, 8)), 0.5), 2), table.I1_A), y)
    far = sx.max(y, full_like(y, 8))
    by_inverse = sx.div(_chebyshev(sx.sub(sx.div(32, far), 2), table.I1_B), sx.sqrt(far))
    made = sx.select(sx.le(y, 8), near, by_inverse)
    return sx.select(sx.lt(x, 0), sx.neg(made), made)


def _i0(x: sx.XlaOp) -> sx.XlaOp:
    return sx.mul(sx.exp(sx.abs(x)), _i0e(x))


def _i1(x: sx.XlaOp) -> sx.XlaOp:
    return sx.mul(sx.exp(sx.abs(x)), _i1e(x))


def _k(x: sx.XlaOp, near: sx.XlaOp, coefficients: Sequence[float], scaled: bool) -> sx.XlaOp:
    far = sx.max(x, full_like(x, 2))
    by_inverse = sx.div(_chebyshev(sx.sub(sx.div(8, far), 2), coefficients), sx.sqrt(far))
    if scaled:
        near = sx.mul(near, sx.exp(sx.min(x, full_like(x, 2))))
    else:
        by_inverse = sx.mul(by_inverse, sx.exp(sx.neg(x)))
    return _domain(x, sx.select(sx.le(x, 2), near, by_inverse), math.inf)


def _k0(x: sx.XlaOp, scaled: bool = False) -> sx.XlaOp:
    small = sx.min(x, full_like(x, 2))
    by_square = _chebyshev(sx.sub(sx.mul(small, small), 2), table.K0_A)
    return _k(x, sx.sub(by_square, sx.mul(sx.log(sx.mul(small, 0.5)), _i0(small))), table.K0_B, scaled)


def _k1(x: sx.XlaOp, scaled: bool = False) -> sx.XlaOp:
    small = sx.min(x, full_like(x, 2))
    by_square = sx.div(_chebyshev(sx.sub(sx.mul(small, small), 2), table.K1_A), small)
    return _k(x, sx.add(sx.mul(sx.log(sx.mul(small, 0.5)), _i1(small)), by_square), table.K1_B, scaled)


# ---- Airy's ----


def _airy_ai(x: sx.XlaOp) -> sx.XlaOp:
    """Return Ai: its power series up to 2.09 on both sides, further on what it tends to; 0 from where it underflows."""
    edge, most = 2.09, 103.892
    middle = sx.clamp(-edge, x, edge)
    cube = sx.mul(sx.mul(middle, middle), middle)
    even, odd = [1.0], [1.0]
    for k in range(1, 15):
        even.insert(0, even[0] / ((3 * k - 1) * (3 * k)))
        odd.insert(0, odd[0] / ((3 * k) * (3 * k + 1)))
    at_zero, slope = 0.355028053887817239260, 0.258819403792806798405
    near = sx.sub(sx.mul(polynomial(cube, even), at_zero), sx.mul(sx.mul(middle, polynomial(cube, odd)), slope))
    y = sx.clamp(edge, sx.abs(x), 1e10)
    root = sx.sqrt(y)
    zeta = sx.mul(sx.mul(y, root), 2 / 3)
    inverse = sx.reciprocal(zeta)
    size = sx.div(1 / math.sqrt(math.pi), sx.sqrt(root))
    above = sx.mul(sx.mul(size, _ratio(inverse, table.AIRY_AN, table.AIRY_AD)), sx.mul(sx.exp(sx.neg(zeta)), 0.5))
    square = sx.mul(inverse, inverse)
    turned = sx.add(zeta, math.pi / 4)
    f = sx.add(1, sx.mul(square, _ratio(square, table.AIRY_AFN, table.AIRY_AFD)))
    g = sx.mul(inverse, _ratio(square, table.AIRY_AGN, table.AIRY_AGD))
    below = sx.mul(size, sx.sub(sx.mul(f, sx.sin(turned)), sx.mul(g, sx.cos(turned))))
    made = sx.select(sx.lt(x, -edge), below, sx.select(sx.ge(x, edge), above, near))
    made = sx.select(sx.gt(x, most), full_like(x, 0), made)
    return sx.select(sx.is_finite(x), made, full_like(x, math.nan))


def _of_one(names: Sequence[str], function: Unary) -> None:
    @aten(*names)
    def rule(call: Call, x: sx.XlaOp) -> sx.XlaOp:
        return function(wide(as_float(x)))


_FUNCTIONS: dict[tuple[str, ...], Unary] = {
    ("aten.i0.default", "aten.special_modified_bessel_i0.default", "prims.bessel_i0.default"): _i0,
    ("aten.special_i0e.default", "prims.bessel_i0e.default"): _i0e,
    ("aten.special_i1.default", "aten.special_modified_bessel_i1.default", "prims.bessel_i1.default"): _i1,
    ("aten.special_i1e.default", "prims.bessel_i1e.default"): _i1e,
    ("aten.special_airy_ai.default",): _airy_ai,
    ("aten.special_bessel_j0.default", "prims.bessel_j0.default"): _j0,
    ("aten.special_bessel_j1.default", "prims.bessel_j1.default"): _j1,
    ("aten.special_bessel_y0.default",): _y0,
    ("aten.special_bessel_y1.default",): _y1,
    ("aten.special_modified_bessel_k0.default",): _k0,
    ("aten.special_modified_bessel_k1.default",): _k1,
    ("aten.special_scaled_modified_bessel_k0.default",): lambda x: _k0(x, scaled=True),
    ("aten.special_scaled_modified_bessel_k1.default",): lambda x: _k1(x, scaled=True),
}
for _names, _function in _FUNCTIONS.items():
    _of_one(_names, _function)
