"""Distances between the rows of matrices, and their gradients."""

from __future__ import annotations

from math import inf

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.interop.torch.call import Call, broadcast, broadcast_sizes, convert, full_like, total, zeros_like
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.rules.contraction import dot
from stablexla.interop.torch.rules.reduction import norm, squared

# More rows than this are multiplied, where the caller leaves it open: faster, but less exact for rows close together.
_FEW = 25
_BY_PRODUCT = 1


@aten("aten._cdist_forward.default")
def cdist(call: Call, x: XlaOp, y: XlaOp, p: float, compute_mode: int | None) -> XlaOp:
    many = max(x.shape.dimensions[-2], y.shape.dimensions[-2]) > _FEW
    if p == 2 and (compute_mode == _BY_PRODUCT or (not compute_mode and many)):
        return _by_product(x, y)
    return norm(_differences(x, y), p, (len(call.dimensions),), False)


def _differences(x: XlaOp, y: XlaOp) -> XlaOp:
    """Return the differences of all pairs of rows, [..., p, r, m] of [..., p, m] and [..., r, m]."""
    batch = broadcast_sizes(x.shape.dimensions[:-2], y.shape.dimensions[:-2])
    p, m = x.shape.dimensions[-2:]
    sizes = (*batch, p, y.shape.dimensions[-2], m)
    first, second = (broadcast(each, (*batch, *each.shape.dimensions[-2:])) for each in (x, y))
    leading, rank = tuple(range(len(batch))), len(sizes)
    return sx.sub(
        sx.broadcast_in_dim(first, sizes, (*leading, rank - 3, rank - 1)),
        sx.broadcast_in_dim(second, sizes, (*leading, rank - 2, rank - 1)),
    )


def _by_product(x: XlaOp, y: XlaOp) -> XlaOp:
    """Return Euclidean distances by x**2 - 2 x y + y**2."""
    batch = broadcast_sizes(x.shape.dimensions[:-2], y.shape.dimensions[:-2])
    x, y = (broadcast(each, (*batch, *each.shape.dimensions[-2:])) for each in (x, y))
    leading, last = tuple(range(len(batch))), len(batch) + 1
    products = dot(x, y, ((last,), (last,)), (leading, leading))
    sizes = products.shape.dimensions
    rows = sx.broadcast_in_dim(total(squared(x), (last,)), sizes, (*leading, last - 1))
    columns = sx.broadcast_in_dim(total(squared(y), (last,)), sizes, (*leading, last))
    squares = sx.sub(sx.add(rows, columns), sx.mul(products, full_like(products, 2)))
    return sx.sqrt(sx.max(squares, zeros_like(squares)))


def _slopes(difference: XlaOp, grad: XlaOp, distance: XlaOp, p: float) -> XlaOp:
    """Return the gradient of each difference, [..., m], of the gradients and distances of pairs of rows."""
    sizes = difference.shape.dimensions
    grad, distance = (sx.broadcast_in_dim(each, sizes, tuple(range(len(sizes) - 1))) for each in (grad, distance))
    zero = zeros_like(difference)
    if p == 0:
        return zero
    signed = sx.mul(grad, sx.sign(difference))
    if p == 1:
        return signed
    size = sx.abs(difference)
    if p == inf:
        return sx.select(sx.eq(size, distance), signed, zero)
    if p == 2:
        made = sx.div(sx.mul(grad, difference), distance)
    else:
        power = full_like(size, p - 1)
        made = sx.div(sx.mul(signed, sx.pow(size, power)), sx.pow(distance, power))
    flat = sx.eq(distance, zero)
    return sx.select(sx.or_(flat, sx.eq(difference, zero)) if p < 1 else flat, zero, made)


@aten("aten._cdist_backward.default")
def cdist_backward(call: Call, grad: XlaOp, x: XlaOp, y: XlaOp, p: float, distance: XlaOp) -> XlaOp:
    slopes = _slopes(_differences(x, y), grad, distance, p)
    return sx.reshape(total(slopes, (slopes.shape.rank - 2,)), call.dimensions)


@aten("aten._pdist_forward.default")
def pdist(call: Call, x: XlaOp, p: float) -> XlaOp:
    """Of the pairs of rows i < j, in the order of i and then j: the k-th pair follows from k by a square root."""
    n, (pairs,) = x.shape.dimensions[0], call.dimensions
    k = x.builder.iota(sx.Shape("f64", (pairs,)), 0)
    root = sx.sqrt(sx.sub(full_like(k, (n - 0.5) ** 2 - 1), sx.mul(k, full_like(k, 2.0))))
    i = convert(sx.floor(sx.sub(full_like(k, n - 0.5), root)), "s64")
    j = convert(k, "s64") - _pairs_before(i, n) + i + 1
    square = norm(_differences(x, x), p, (2,), False)  # in one loop, faster than rows gathered for each pair
    return sx.torch_index_select(sx.reshape(square, (n * n,)), i * n + j, 0)


def _pairs_before(i: XlaOp, n: int) -> XlaOp:
    """Return how many pairs have a smaller first row."""
    return i * (n - 1) - sx.div(i * (i - 1), full_like(i, 2))


@aten("aten._pdist_backward.default")
def pdist_backward(call: Call, grad: XlaOp, x: XlaOp, p: float, distance: XlaOp) -> XlaOp:
    n = x.shape.dimensions[0]
    if n < 2:
        return zeros_like(x)
    rows, columns = (x.builder.iota(sx.Shape("s64", (n, n)), d) for d in (0, 1))
    first = sx.min(rows, columns)
    pair = _pairs_before(first, n) + sx.max(rows, columns) - first - 1
    zero = zeros_like(full_like(grad, 0, (n, n)))

    def of_pairs(each: XlaOp) -> XlaOp:
        return sx.select(sx.eq(rows, columns), zero, sx.torch_index_select(each, pair, 0))

    return total(_slopes(_differences(x, x), of_pairs(grad), of_pairs(distance), p), (1,))
