"""Pools: the largest and the mean element of each window, of windows of one size or as many as there are results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.interop.torch.call import Call, broadcast, convert, full_like, lowest, total, wide, zeros_like
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.sampling import Taps, picked, repeated, rows, scattered

Sizes = Sequence[int]
_NOWHERE = np.iinfo(np.int32).max


class _Windows:
    """The windows of a pool over the last dimensions of a tensor.

    Args:
        sizes: of the tensor.
        result: those of the pool.
        count: how many dimensions a window has.
        kernel, stride, padding, dilation: for each of these, or for all of them; a stride of None is the window's size.
    """

    def __init__(
        self, sizes: Sizes, result: Sizes, count: int, kernel: Sizes, stride: Sizes | None, padding: Sizes,
        dilation: Sizes = (1,),
    ) -> None:  # fmt: skip
        self.ones = (1,) * (len(sizes) - count)
        self.inputs, self.outputs = tuple(sizes[-count:]), tuple(result[-count:])
        self.kernel, self.padding, self.dilation = (_each(each, count) for each in (kernel, padding, dilation))
        self.stride = _each(stride or kernel, count)

    @property
    def padded(self) -> list[tuple[int, int]]:
        """Return what is missing before and after each dimension for just as many windows; negative where it is cut."""
        pads = [(0, 0)] * len(self.ones)
        for n, m, k, s, p, d in zip(self.inputs, self.outputs, self.kernel, self.stride, self.padding, self.dilation):
            pads.append((p, (m - 1) * s + (k - 1) * d + 1 - n - p))
        return pads

    def reduced(self, operands: XlaOp | list[XlaOp], start: Any, computation: Callable[..., Any]) -> XlaOp:
        window = (self.ones + self.kernel, self.ones + self.stride, None, self.ones + self.dilation)
        return sx.reduce_window(operands, start, computation, *window, self.padded)

    def counts(self, like: XlaOp, count_include_pad: bool, divisor_override: int | None) -> XlaOp:
        """Return what the sums of the windows are divided by, of a type like this tensor's."""
        made = full_like(like, 1 if divisor_override is None else divisor_override, self.outputs)
        if divisor_override is not None:
            return made
        for at, (n, m, k, s, p) in enumerate(zip(self.inputs, self.outputs, self.kernel, self.stride, self.padding)):
            first = np.arange(m) * s - p
            last = np.minimum(first + k, n + p)
            sizes = last - first if count_include_pad else np.minimum(last, n) - np.maximum(first, 0)
            if (sizes == k).all():
                each = full_like(like, k, self.outputs)
            else:
                each = like.builder.constant(sizes.astype(like.element_type.dtype))
                each = sx.broadcast_in_dim(each, self.outputs, (at,))
            made = sx.mul(made, each)
        return made


def _each(values: Sizes | int, count: int) -> tuple[int, ...]:
    values = (values,) if isinstance(values, int) else tuple(values)
    return values * count if len(values) == 1 else values


# ---- the largest element ----


@aten("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
def max_pool(
    call: Call, x: XlaOp, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool
) -> list[XlaOp]:
    """The numbers are by themselves, as nobody asks for the places in inference."""
    count = _dimensions(call)
    windows = _Windows(x.shape.dimensions, call.dimensions, count, kernel, stride, padding, dilation)
    start = full_like(x, lowest(x.element_type), ())
    places = _places(x, count)
    _, where = windows.reduced([x, places], [start, full_like(places, _NOWHERE, ())], _larger)
    return [windows.reduced(x, start, sx.max), where]


def _dimensions(call: Call) -> int:
    """Return how many dimensions the windows of an operator have, as its name says."""
    name = call.operator._schema.name
    return next(n for n in (1, 2, 3) if f"{n}d" in name)


def _places(x: XlaOp, count: int) -> XlaOp:
    """Return the number of each element within its last dimensions, s32[x's sizes]."""
    sizes = x.shape.dimensions[-count:]
    places = x.builder.iota(sx.s32[(prod(sizes),)], 0)
    return broadcast(sx.reshape(places, sizes), x.shape.dimensions)


def _larger(x: XlaOp, place: XlaOp, y: XlaOp, other: XlaOp) -> tuple[XlaOp, XlaOp]:
    """Return the larger of two elements and its place: the first of equal ones, the last NaN of all."""
    later = sx.lt(place, other)
    takes = sx.or_(sx.gt(y, x), sx.and_(sx.eq(x, y), sx.not_(later)))
    if x.element_type.is_float:
        is_nan, other_is_nan = sx.ne(x, x), sx.ne(y, y)
        takes = sx.select(other_is_nan, sx.or_(sx.not_(is_nan), later), takes)
    return sx.select(takes, y, x), sx.select(takes, other, place)


@aten("aten.max_pool2d_with_indices_backward.default", "aten.max_pool3d_with_indices_backward.default")
def max_pool_backward(
    call: Call, grad: XlaOp, x: XlaOp, kernel: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, ceil_mode: bool,
    indices: XlaOp,
) -> XlaOp:  # fmt: skip
    return _unpooled(grad, indices, x.shape.dimensions, _dimensions(call))


@aten(
    "aten.adaptive_max_pool2d_backward.default", "aten.adaptive_max_pool3d_backward.default",
)  # fmt: skip
def adaptive_max_pool_backward(call: Call, grad: XlaOp, x: XlaOp, indices: XlaOp) -> XlaOp:
    return _unpooled(grad, indices, x.shape.dimensions, _dimensions(call))


@aten("aten.fractional_max_pool2d_backward.default", "aten.fractional_max_pool3d_backward.default")
def fractional_max_pool_backward(
    call: Call, grad: XlaOp, x: XlaOp, kernel: Sizes, output_size: Sizes, indices: XlaOp
) -> XlaOp:
    return _unpooled(grad, indices, x.shape.dimensions, _dimensions(call))


@aten("aten.max_unpool2d.default", "aten.max_unpool3d.default")
def max_unpool(call: Call, x: XlaOp, indices: XlaOp, *_: object) -> XlaOp:
    return _unpooled(x, indices, call.dimensions, _dimensions(call), add=False)


def _unpooled(values: XlaOp, indices: XlaOp, sizes: Sizes, count: int, add: bool = True) -> XlaOp:
    """Return a tensor of these sizes with values at their places within its last dimensions."""
    batch = prod(sizes[:-count])
    if not values.shape.size or not prod(sizes):
        return full_like(values, 0, sizes)
    flat = (batch, prod(values.shape.dimensions[-count:]))
    places, parts = sx.reshape(indices, flat), sx.reshape(wide(values), flat)
    return sx.reshape(scattered(batch, prod(sizes[-count:]), places, parts, add), sizes)


@aten("aten.adaptive_max_pool2d.default", "aten.adaptive_max_pool3d.default")
def adaptive_max_pool(call: Call, x: XlaOp, output_size: Sizes) -> list[XlaOp]:
    """Windows of several sizes are filled up with their last element, which does not change what is the largest."""
    count, sizes = _dimensions(call), x.shape.dimensions
    inputs, outputs = sizes[-count:], call.dimensions[-count:]
    if not prod(call.dimensions):
        return [full_like(x, 0, call.dimensions), call.constant(0, "s64", call.dimensions)]
    if all(n % m == 0 for n, m in zip(inputs, outputs)):
        kernel = [n // m for n, m in zip(inputs, outputs)]
        return max_pool(call, x, kernel, kernel, (0,), (1,), False)
    places, rank = _places(x, count), x.shape.rank
    windows = []
    for at, (n, m) in enumerate(zip(inputs, outputs)):
        first, last = _adaptive(n, m)
        inside = np.minimum(first[:, None] + np.arange((last - first).max()), last[:, None] - 1)
        dimension = rank - count + 2 * at  # each one before has become two
        x, places = rows(x, inside, dimension), rows(places, inside, dimension)
        windows.append(dimension + 1)
    starts = [full_like(x, lowest(x.element_type), ()), full_like(places, _NOWHERE, ())]
    return list(sx.reduce([x, places], starts, _larger, windows))


def _adaptive(size: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where the windows of an adaptive pool begin and end."""
    number = np.arange(count)
    return number * size // count, -(-(number + 1) * size // count)


@aten("aten.fractional_max_pool2d.default", "aten.fractional_max_pool3d.default")
def fractional_max_pool(call: Call, x: XlaOp, kernel: Sizes, output_size: Sizes, samples: XlaOp) -> list[XlaOp]:
    """Window i of m begins at int((i + u) a) - int(u a) with a = (n - k) / (m - 1), the last one at n - k; the samples
    u[N,C,count] are of the last dimension first in two dimensions, and of the first one in three."""
    count, sizes = _dimensions(call), x.shape.dimensions
    inputs, outputs, kernel = sizes[-count:], call.dimensions[-count:], _each(kernel, count)
    batch = prod(sizes[:-count])
    if not prod(call.dimensions):
        return [full_like(x, 0, call.dimensions), call.constant(0, "s64", call.dimensions)]
    samples = sx.reshape(wide(samples), (batch, count))
    whole = (batch, *(size for pair in zip(outputs, kernel) for size in pair))
    places = call.constant(0, "s32", whole)
    for at, (n, m, k) in enumerate(zip(inputs, outputs, kernel)):
        column = count - 1 - at if count == 2 else at
        u = sx.slice_in_dim(samples, column, column + 1, 1, 1)
        step = full_like(u, (n - k) / max(m - 1, 1))
        number = sx.broadcast_in_dim(call.iota(u.element_type, (m,)), (batch, m), (1,))
        u, step = broadcast(u, (batch, m)), broadcast(step, (batch, m))
        first = sx.sub(convert(sx.mul(sx.add(number, u), step), "s32"), convert(sx.mul(u, step), "s32"))
        is_last = sx.eq(number, full_like(number, m - 1))
        first = sx.select(is_last, full_like(first, n - k), first)
        along = sx.add(
            sx.broadcast_in_dim(first, whole, (0, 1 + 2 * at)),
            sx.broadcast_in_dim(call.iota("s32", (k,)), whole, (2 + 2 * at,)),
        )
        places = sx.add(sx.mul(places, full_like(places, n)), along)
    flat = sx.reshape(places, (batch, prod(whole[1:])))
    values = sx.reshape(picked(sx.reshape(x, (batch, prod(inputs))), flat), whole)
    starts = [full_like(x, lowest(x.element_type), ()), full_like(places, _NOWHERE, ())]
    made = sx.reduce([values, places], starts, _larger, [2 + 2 * at for at in range(count)])
    return [sx.reshape(each, call.dimensions) for each in made]


# ---- the mean ----


@aten("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    call: Call, x: XlaOp, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool, count_include_pad: bool,
    divisor_override: int | None,
) -> XlaOp:  # fmt: skip
    windows = _Windows(x.shape.dimensions, call.dimensions, _dimensions(call), kernel, stride, padding)
    sums = windows.reduced(wide(x), 0, sx.add)
    counts = windows.counts(sums, count_include_pad, divisor_override)
    return sx.div(sums, broadcast(counts, sums.shape.dimensions))


@aten("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def avg_pool_backward(
    call: Call, grad: XlaOp, x: XlaOp, kernel: Sizes, stride: Sizes, padding: Sizes, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> XlaOp:  # fmt: skip
    """Each element gets the sum over the windows that it is in: a pool of the gradient with zeros in between."""
    windows = _Windows(x.shape.dimensions, grad.shape.dimensions, _dimensions(call), kernel, stride, padding)
    counts = windows.counts(wide(zeros_like(grad)), count_include_pad, divisor_override)
    each = sx.div(wide(grad), broadcast(counts, grad.shape.dimensions))
    if windows.kernel == windows.stride and not any(windows.padding):
        for at, k in enumerate(windows.kernel, len(windows.ones)):
            each = repeated(each, at, k)
            each = sx.pad_in_dim(each, 0, at, 0, x.shape.dimensions[at] - each.shape.dimensions[at])
        return each
    pads = [(0, 0)] * len(windows.ones)
    for n, m, k, s, p in zip(windows.inputs, windows.outputs, windows.kernel, windows.stride, windows.padding):
        low = k - 1 - p
        pads.append((low, n + k - 1 - low - ((m - 1) * s + 1)))
    ones = (1,) * grad.shape.rank
    return sx.reduce_window(
        each, 0, sx.add, windows.ones + windows.kernel, ones, windows.ones + windows.stride, ones, pads
    )


@aten("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_avg_pool(call: Call, x: XlaOp, output_size: Sizes) -> XlaOp:
    count, sizes = _dimensions(call), x.shape.dimensions
    inputs, outputs = sizes[-count:], call.dimensions[-count:]
    if not prod(call.dimensions):
        return full_like(x, 0, call.dimensions)
    if all(m == 1 for m in outputs):
        sums = total(wide(x), range(len(sizes) - count, len(sizes)), keep=True)
        return sx.div(sums, full_like(sums, prod(inputs)))
    if all(n % m == 0 for n, m in zip(inputs, outputs)):
        kernel = [n // m for n, m in zip(inputs, outputs)]
        return avg_pool(call, x, kernel, kernel, (0,), False, True, None)
    made = wide(x)
    for at, (n, m) in enumerate(zip(inputs, outputs), len(sizes) - count):
        made = _adaptive_taps(n, m).applied(made, at)
    return made


@aten("aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default")
def adaptive_avg_pool_backward(call: Call, grad: XlaOp, x: XlaOp) -> XlaOp:
    if not grad.shape.size:
        return full_like(grad, 0, call.dimensions)
    count, made = _dimensions(call), wide(grad)
    for at in range(x.shape.rank - count, x.shape.rank):
        n, m = x.shape.dimensions[at], grad.shape.dimensions[at]
        made = _adaptive_taps(n, m).transposed(n).applied(made, at)
    return made


def _adaptive_taps(size: int, count: int) -> Taps:
    first, last = _adaptive(size, count)
    places = first[:, None] + np.arange((last - first).max())
    weights = np.broadcast_to(1 / (last - first)[:, None], places.shape)
    return Taps(np.where(places < last[:, None], places, -1), weights)
