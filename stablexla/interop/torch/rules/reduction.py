"""Sums, means, extremes, variances and norms over dimensions, softmax, and others that end in a reduction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.interop.torch.call import (
    Call,
    as_float,
    broadcast,
    convert,
    full_like,
    highest,
    kept,
    lowest,
    place,
    places,
    reduced,
    total,
    wide,
    xla_type,
    zeros_like,
)
from stablexla.interop.torch.registry import aten

Dimensions = int | Sequence[int] | None


@aten("aten.sum.default", "aten.sum.dim_IntList", "prims.sum.default")
def sum(call: Call, x: XlaOp, dim: Dimensions = None, keepdim: bool = False) -> XlaOp:
    return total(wide(convert(x, call.type)), places(dim, x.shape.rank), keepdim)


@aten("aten.nansum.default")
def nansum(call: Call, x: XlaOp, dim: Dimensions, keepdim: bool) -> XlaOp:
    return sum(call, sx.select(sx.ne(x, x), zeros_like(x), x), dim, keepdim)


@aten("aten.mean.default", "aten.mean.dim")
def mean(call: Call, x: XlaOp, dim: Dimensions = None, keepdim: bool = False) -> XlaOp:
    return average(wide(convert(x, call.type)), places(dim, x.shape.rank), keepdim)


def average(x: XlaOp, dimensions: Sequence[int], keep: bool) -> XlaOp:
    """Return the mean over dimensions: NaN over no elements."""
    made = total(x, dimensions, keep)
    return sx.div(made, full_like(made, count(x, dimensions)))


def count(x: XlaOp, dimensions: Sequence[int]) -> int:
    """Return how many elements are reduced to one."""
    return prod(x.shape.dimensions[d] for d in dimensions)


@aten("aten.prod.default", "aten.prod.dim_int", "prims.prod.default")
def product(call: Call, x: XlaOp, dim: Dimensions = None, keepdim: bool = False) -> XlaOp:
    return reduced(wide(convert(x, call.type)), 1, sx.mul, places(dim, x.shape.rank), keepdim)


@aten("aten.amax.default", "aten.max.default", "prims.amax.default")
def amax(call: Call, x: XlaOp, dim: Dimensions = None, keepdim: bool = False) -> XlaOp:
    return reduced(x, lowest(x.element_type), sx.max, places(dim, x.shape.rank), keepdim)


@aten("aten.amin.default", "aten.min.default", "prims.amin.default")
def amin(call: Call, x: XlaOp, dim: Dimensions = None, keepdim: bool = False) -> XlaOp:
    return reduced(x, highest(x.element_type), sx.min, places(dim, x.shape.rank), keepdim)


@aten("aten.aminmax.default")
def aminmax(call: Call, x: XlaOp, *, dim: int | None, keepdim: bool) -> tuple[XlaOp, XlaOp]:
    return amin(call, x, dim, keepdim), amax(call, x, dim, keepdim)


@aten("aten.any.default", "aten.any.dim", "aten.any.dims")
def any(call: Call, x: XlaOp, dim: Dimensions = None, keepdim: bool = False) -> XlaOp:
    return reduced(convert(x, "pred"), False, sx.or_, places(dim, x.shape.rank, empty_is_all=False), keepdim)


@aten("aten.all.default", "aten.all.dim", "aten.all.dims")
def all(call: Call, x: XlaOp, dim: Dimensions = None, keepdim: bool = False) -> XlaOp:
    return reduced(convert(x, "pred"), True, sx.and_, places(dim, x.shape.rank, empty_is_all=False), keepdim)


@aten("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(call: Call, x: XlaOp, dim: Dimensions) -> XlaOp:
    return total(convert(convert(x, "pred"), "s64"), places(dim, x.shape.rank))


# ---- the place of an extreme ----


def extreme(x: XlaOp, dim: int, largest: bool, keep: bool) -> tuple[XlaOp, XlaOp]:
    """Return the largest or smallest elements along a dimension, and where they are: the first of equals, NaN before
    all others."""
    if not x.shape.rank:
        return x, x.builder.constant(0, "s64")
    if x.element_type.is_pred:
        x = convert(x, "u8")
    better = sx.gt if largest else sx.lt

    def best(value: XlaOp, at: XlaOp, other: XlaOp, other_at: XlaOp) -> XlaOp:
        takes = sx.or_(better(value, other), sx.ne(value, value))
        first = sx.or_(takes, sx.and_(sx.eq(value, other), sx.lt(at, other_at)))
        return sx.tuple([sx.select(takes, value, other), sx.select(first, at, other_at)])

    sizes, at = x.shape.dimensions, _counted(x, dim)
    worst = full_like(x, lowest(x.element_type) if largest else highest(x.element_type), ())
    made, indices = sx.reduce([x, at], [worst, full_like(at, 0, ())], best, (dim,))
    return (kept(made, sizes, (dim,)), kept(indices, sizes, (dim,))) if keep else (made, indices)


def _counted(x: XlaOp, dim: int) -> XlaOp:
    """Return each element's place along a dimension, in 32 bits where they hold it."""
    sizes = x.shape.dimensions
    return x.builder.iota(sx.Shape("s32" if sizes[dim] < 2**31 else "s64", sizes), dim)


@aten("aten.max.dim")
def max_along(call: Call, x: XlaOp, dim: int, keepdim: bool) -> tuple[XlaOp, XlaOp]:
    return extreme(x, place(dim, x.shape.rank), True, keepdim)


@aten("aten.min.dim")
def min_along(call: Call, x: XlaOp, dim: int, keepdim: bool) -> tuple[XlaOp, XlaOp]:
    return extreme(x, place(dim, x.shape.rank), False, keepdim)


@aten("aten.argmax.default")
def argmax(call: Call, x: XlaOp, dim: int | None, keepdim: bool) -> XlaOp:
    return _place_of_extreme(call, x, dim, keepdim, True)


@aten("aten.argmin.default")
def argmin(call: Call, x: XlaOp, dim: int | None, keepdim: bool) -> XlaOp:
    return _place_of_extreme(call, x, dim, keepdim, False)


def _place_of_extreme(call: Call, x: XlaOp, dim: int | None, keepdim: bool, largest: bool) -> XlaOp:
    if dim is None:
        return sx.reshape(extreme(sx.reshape(x, (x.shape.size,)), 0, largest, False)[1], call.dimensions)
    return extreme(x, place(dim, x.shape.rank), largest, keepdim)[1]


# ---- moments and norms ----


def squared(x: XlaOp) -> XlaOp:
    """Return the squares of real numbers, or of the absolute values of complex ones."""
    if not x.element_type.is_complex:
        return sx.mul(x, x)
    return sx.add(squared(sx.real(x)), squared(sx.imag(x)))


def moments(x: XlaOp, dim: Dimensions, correction: float | None, keep: bool) -> tuple[XlaOp, XlaOp]:
    """Return the variance over dimensions, by the differences from the mean, and the mean."""
    x, dimensions = wide(x), places(dim, x.shape.rank)
    middle = average(x, dimensions, True)
    squares = total(squared(sx.sub(x, broadcast(middle, x.shape.dimensions))), dimensions, keep)
    freedom = max(0, count(x, dimensions) - (1 if correction is None else correction))
    return sx.div(squares, full_like(squares, float(freedom))), sx.reshape(middle, squares.shape.dimensions)


@aten("aten.var.correction")
def variance(call: Call, x: XlaOp, dim: Dimensions, *, correction: float | None, keepdim: bool) -> XlaOp:
    return moments(x, dim, correction, keepdim)[0]


@aten("prims.var.default")
def variance_of_prims(call: Call, x: XlaOp, dims: Dimensions, correction: float | None) -> XlaOp:
    return moments(x, dims, correction, False)[0]


@aten("aten.std.correction")
def deviation(call: Call, x: XlaOp, dim: Dimensions, *, correction: float | None, keepdim: bool) -> XlaOp:
    return sx.sqrt(moments(x, dim, correction, keepdim)[0])


@aten("aten.var_mean.correction")
def variance_and_mean(
    call: Call, x: XlaOp, dim: Dimensions, *, correction: float | None, keepdim: bool
) -> tuple[XlaOp, XlaOp]:
    return moments(x, dim, correction, keepdim)


@aten("aten.std_mean.correction")
def deviation_and_mean(
    call: Call, x: XlaOp, dim: Dimensions, *, correction: float | None, keepdim: bool
) -> tuple[XlaOp, XlaOp]:
    made, middle = moments(x, dim, correction, keepdim)
    return sx.sqrt(made), middle


@aten("aten.linalg_vector_norm.default")
def vector_norm(call: Call, x: XlaOp, ord: float, dim: Dimensions, keepdim: bool, *, dtype: Any) -> XlaOp:
    x, dimensions = wide(x if dtype is None else convert(x, xla_type(dtype))), places(dim, x.shape.rank)
    return norm(x, float(ord), dimensions, keepdim)


def norm(x: XlaOp, p: float, dimensions: Sequence[int], keep: bool) -> XlaOp:
    """Return the p-norm over dimensions; p may be infinite, and 0 counts what is not zero."""
    if p == 2 and dimensions:
        return sx.sqrt(total(squared(x), dimensions, keep))
    size = sx.abs(x)
    if p == inf:
        return reduced(size, 0, sx.max, dimensions, keep)
    if p == -inf:
        return reduced(size, inf, sx.min, dimensions, keep)
    if p == 0:
        return total(convert(sx.ne(x, zeros_like(x)), size.element_type), dimensions, keep)
    if p == 1 or not dimensions:
        return total(size, dimensions, keep)
    powers = total(sx.pow(size, full_like(size, p)), dimensions, keep)
    return sx.pow(powers, full_like(powers, 1 / p))


# ---- sums of exponentials ----


def _shifted(x: XlaOp, dimensions: Sequence[int]) -> tuple[XlaOp, XlaOp]:
    """Return numbers less the largest ones over dimensions, by real parts, and these, kept."""
    real = sx.real(x) if x.element_type.is_complex else x
    most = reduced(real, -inf, sx.max, dimensions, True)
    most = convert(most, x.element_type)
    return sx.sub(x, broadcast(most, x.shape.dimensions)), most


@aten("aten.logsumexp.default")
def logsumexp(call: Call, x: XlaOp, dim: Dimensions, keepdim: bool) -> XlaOp:
    x, dimensions = wide(as_float(x)), places(dim, x.shape.rank)
    real = sx.real(x) if x.element_type.is_complex else x
    most = reduced(real, -inf, sx.max, dimensions, True)
    most = convert(sx.select(sx.is_inf(most), zeros_like(most), most), x.element_type)
    made = total(sx.exp(sx.sub(x, broadcast(most, x.shape.dimensions))), dimensions, keepdim)
    return sx.add(sx.log(made), sx.reshape(most, made.shape.dimensions))


@aten("aten._softmax.default")
def softmax(call: Call, x: XlaOp, dim: int, half_to_float: bool = False) -> XlaOp:
    dimensions = places(dim, x.shape.rank)
    powers = sx.exp(_shifted(wide(as_float(x)), dimensions)[0])
    return sx.div(powers, broadcast(total(powers, dimensions, True), powers.shape.dimensions))


@aten("aten._safe_softmax.default")
def safe_softmax(call: Call, x: XlaOp, dim: int) -> XlaOp:
    """Rows of nothing but minus infinity are zero in the place of NaN."""
    x = convert(x, call.type)
    masked = all(call, sx.eq(x, full_like(x, -inf)), dim, True)
    made = softmax(call, x, dim)
    return sx.select(broadcast(masked, made.shape.dimensions), zeros_like(made), made)


@aten("aten._log_softmax.default")
def log_softmax(call: Call, x: XlaOp, dim: int, half_to_float: bool) -> XlaOp:
    dimensions = places(dim, x.shape.rank)
    x = _shifted(wide(as_float(x)), dimensions)[0]
    return sx.sub(x, broadcast(sx.log(total(sx.exp(x), dimensions, True)), x.shape.dimensions))


@aten("aten._softmax_backward_data.default")
def softmax_backward(call: Call, grad: XlaOp, output: XlaOp, dim: int, input_dtype: object) -> XlaOp:
    grad, output = wide(grad), wide(output)
    weighted = sx.mul(grad, output)
    whole = broadcast(total(weighted, places(dim, grad.shape.rank), True), grad.shape.dimensions)
    return sx.sub(weighted, sx.mul(output, whole))


@aten("aten._log_softmax_backward_data.default")
def log_softmax_backward(call: Call, grad: XlaOp, output: XlaOp, dim: int, input_dtype: object) -> XlaOp:
    grad, output = wide(grad), wide(output)
    whole = broadcast(total(grad, places(dim, grad.shape.rank), True), grad.shape.dimensions)
    return sx.sub(grad, sx.mul(sx.exp(output), whole))


# ---- others ----


@aten("aten.trace.default")
def trace(call: Call, x: XlaOp) -> XlaOp:
    rows, columns = x.shape.dimensions
    n = min(rows, columns)
    flat = sx.reshape(sx.slice(x, (0, 0), (n, columns)), (n * columns,))
    return total(convert(sx.slice(flat, (0,), (n * columns,), (columns + 1,)), call.type), (0,))


@aten("aten.linalg_cross.default")
def cross(call: Call, x: XlaOp, y: XlaOp, *, dim: int) -> XlaOp:
    x, y = call.promoted(x, y)
    along = place(dim, x.shape.rank)

    def rotated(value: XlaOp, by: int) -> XlaOp:
        parts = [sx.slice_in_dim(value, by, 3, 1, along), sx.slice_in_dim(value, 0, by, 1, along)]
        return sx.concat_in_dim(parts, along)

    return sx.sub(sx.mul(rotated(x, 1), rotated(y, 2)), sx.mul(rotated(x, 2), rotated(y, 1)))


@aten("aten.hash_tensor.default", "prims.xor_sum.default")
def hash_tensor(call: Call, x: XlaOp, dim: Dimensions, *, keepdim: bool = False) -> XlaOp:
    """The bits of all elements, floats as f64 and integers as 64 bits, by exclusive or."""
    bits = sx.bitcast_convert_type(convert(x, "f64"), "u64") if x.element_type.is_float else convert(x, "u64")
    return reduced(bits, 0, sx.xor, places(dim, x.shape.rank), keepdim)


# ---- running reductions ----


def running(xs: Sequence[XlaOp], inits: Sequence[XlaOp], computation: Callable[..., XlaOp], dim: int) -> list[XlaOp]:
    """Return what arrays are reduced to up to each place of a dimension; the computation is associative."""
    sizes = xs[0].shape.dimensions
    if not xs[0].shape.size or not sizes:
        return list(xs)
    window = tuple(size if d == dim else 1 for d, size in enumerate(sizes))
    before = [(size - 1, 0) if d == dim else (0, 0) for d, size in enumerate(sizes)]
    made = sx.reduce_window(list(xs), list(inits), computation, window, None, padding=before)
    return list(made) if made.shape.is_tuple else [made]


@aten("aten.cumsum.default")
def cumsum(call: Call, x: XlaOp, dim: int) -> XlaOp:
    x = wide(convert(x, call.type))
    return running([x], [full_like(x, 0, ())], sx.add, place(dim, x.shape.rank))[0]


@aten("aten.cumprod.default")
def cumprod(call: Call, x: XlaOp, dim: int) -> XlaOp:
    x = wide(convert(x, call.type))
    return running([x], [full_like(x, 1, ())], sx.mul, place(dim, x.shape.rank))[0]


@aten("aten.cummax.default")
def cummax(call: Call, x: XlaOp, dim: int) -> list[XlaOp]:
    return _running_extreme(x, place(dim, x.shape.rank), True)


@aten("aten.cummin.default")
def cummin(call: Call, x: XlaOp, dim: int) -> list[XlaOp]:
    return _running_extreme(x, place(dim, x.shape.rank), False)


def _running_extreme(x: XlaOp, dim: int, largest: bool) -> list[XlaOp]:
    """Return the extremes so far and where they are, the last of equals, NaN before all others: two plain scans, as a
    place counts where the element is the extreme so far."""
    if not x.shape.rank:
        return [x, x.builder.constant(0, "s64")]
    if x.element_type.is_pred:
        x = convert(x, "u8")
    worst = lowest(x.element_type) if largest else highest(x.element_type)
    (made,) = running([x], [full_like(x, worst, ())], sx.max if largest else sx.min, dim)
    at = _counted(x, dim)
    reached = sx.select(sx.or_(sx.eq(x, made), sx.ne(x, x)), at, full_like(at, 0))
    return [made, *running([reached], [full_like(at, 0, ())], sx.max, dim)]


@aten("aten.logcumsumexp.default")
def logcumsumexp(call: Call, x: XlaOp, dim: int) -> XlaOp:
    x = wide(as_float(x))
    start = full_like(x, -inf, ())
    return running([x], [start], _log_of_sum, place(dim, x.shape.rank))[0]


def _log_of_sum(x: XlaOp, y: XlaOp) -> XlaOp:
    """Return log(exp(x) + exp(y)); of complex numbers the one with the larger real part is taken out."""
    is_complex = x.element_type.is_complex
    real, other = (sx.real(x), sx.real(y)) if is_complex else (x, y)
    swaps = sx.or_(sx.lt(real, other), sx.ne(other, other))
    most, least = sx.select(swaps, y, x), sx.select(swaps, x, y)
    made = sx.add(most, sx.log1p(sx.exp(sx.sub(least, most))))
    fine = sx.is_finite(sx.real(most) if is_complex else most)
    return sx.select(fine, made, most)
