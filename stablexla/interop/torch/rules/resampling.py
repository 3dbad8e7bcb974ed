"""Tensors in other sizes, by filters along each dimension; pads of a tensor's own elements, and blocks of images.

Along a dimension all of them are sums of a few weighed elements at places that are known, and so are their gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.dialects.element_types import ElementType
from stablexla.interop.torch.call import Call, convert, full_like, wide
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.sampling import Taps

Sizes = Sequence[int]
Filter = Callable[[Any], Any]


# ---- images ----


def _float(type_: ElementType) -> Any:
    """Return the type that places and weights are computed in."""
    return np.float64 if type_.name == "f64" else np.float32


def _scale(size: int, count: int, align_corners: bool, given: float | None, number: Any) -> Any:
    """Return the distance of two elements of the result in the tensor."""
    if align_corners:
        return number((size - 1) / (count - 1)) if count > 1 else number(0)
    return number(1 / given if given is not None and given > 0 else size / count)


def _nearest(offset: float) -> Callable[..., Taps]:
    def taps(size: int, count: int, given: float | None, number: Any) -> Taps:
        places = ((np.arange(count, dtype=number) + number(offset)) * _scale(size, count, False, given, number)).astype(
            int
        )
        return Taps(np.minimum(places, size - 1)[:, None])

    return taps


def _linear(size: int, count: int, align_corners: bool, given: float | None, number: Any) -> Taps:
    at = _sources(size, count, align_corners, given, number)
    at = np.maximum(at, number(0))
    first = np.minimum(at.astype(int), size - 1)
    share = np.clip(at - first, 0, 1).astype(number)
    return Taps(np.stack([first, np.minimum(first + 1, size - 1)], 1), np.stack([1 - share, share], 1))


def _cubic(size: int, count: int, align_corners: bool, given: float | None, number: Any) -> Taps:
    at = _sources(size, count, align_corners, given, number)
    first = np.floor(at)
    offsets = np.arange(-1, 3)
    weights = _cubic_filter(-0.75)(np.abs((at - first)[:, None] - offsets.astype(number)))
    return Taps(np.clip(first.astype(int)[:, None] + offsets, 0, size - 1), weights)


def _sources(size: int, count: int, align_corners: bool, given: float | None, number: Any) -> Any:
    """Return where the elements of the result lie in the tensor."""
    scale, index = _scale(size, count, align_corners, given, number), np.arange(count, dtype=number)
    return scale * index if align_corners else scale * (index + number(0.5)) - number(0.5)


def _cubic_filter(a: float) -> Filter:
    """Return Keys' filter of |x| below 2."""

    def weight(x: Any) -> Any:
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((x - 5) * x + 8) * a * x - 4 * a
        return np.where(x < 1, near, np.where(x < 2, far, 0))

    return weight


def _lanczos_filter(x: Any) -> Any:
    return np.where(x < 3, np.sinc(x) * np.sinc(x / 3), 0)


def _antialias(width: int, filter_: Filter) -> Callable[..., Taps]:
    """Return the taps by a filter of |x| below width / 2, and as wide in the result's distances if longer."""

    def taps(size: int, count: int, align_corners: bool, given: float | None, number: Any) -> Taps:
        scale = _scale(size, count, align_corners, given, number)
        stretch = max(scale, number(1))
        support = number(width * 0.5) * stretch
        centre = scale * (np.arange(count, dtype=number) + number(0.5))
        first = np.maximum((centre - support + number(0.5)).astype(int), 0)
        last = np.minimum((centre + support + number(0.5)).astype(int), size)
        places = first[:, None] + np.arange((last - first).max(initial=1))
        inside = places < last[:, None]
        weights = np.where(inside, filter_(np.abs((places - centre[:, None] + number(0.5)) / stretch)), 0)
        return Taps(np.where(inside, places, -1), weights / weights.sum(1, keepdims=True))

    return taps


_NEAREST = {"upsample_nearest": _nearest(0), "_upsample_nearest_exact": _nearest(0.5)}
_FILTERS = {
    "upsample_linear1d": _linear, "upsample_bilinear2d": _linear, "upsample_trilinear3d": _linear,
    "upsample_bicubic2d": _cubic,
    "_upsample_bilinear2d_aa": _antialias(2, lambda x: np.maximum(1 - x, 0)),
    "_upsample_bicubic2d_aa": _antialias(4, _cubic_filter(-0.5)),
    "_upsample_lanczos2d_aa": _antialias(6, _lanczos_filter),
}  # fmt: skip
_EACH = [f"{name}{count}d" for name in _NEAREST for count in (1, 2, 3)]


def _name(call: Call) -> str:
    return str(call.operator._schema.name).removeprefix("aten::").removesuffix("_backward")


@aten(*(f"aten.{name}.default" for name in _EACH))
def upsample_nearest(call: Call, x: XlaOp, output_size: Sizes, *scales: float | None) -> XlaOp:
    made = x
    for taps, dimension in _nearest_taps(call, x.shape.dimensions, call.dimensions, scales):
        made = taps.applied(made, dimension)
    return made


@aten(*(f"aten.{name}_backward.default" for name in _EACH))
def upsample_nearest_backward(
    call: Call, grad: XlaOp, output_size: Sizes, input_size: Sizes, *scales: float | None
) -> XlaOp:
    made = wide(grad)
    for taps, dimension in _nearest_taps(call, call.dimensions, grad.shape.dimensions, scales):
        made = taps.transposed(call.dimensions[dimension]).applied(made, dimension)
    return made


def _nearest_taps(call: Call, sizes: Sizes, result: Sizes, scales: Sequence[float | None]) -> list[tuple[Taps, int]]:
    taps, number = _NEAREST[_name(call)[:-2]], _float(call.type)
    return [(taps(sizes[d], result[d], scales[d - 2], number), d) for d in range(2, len(sizes))]


@aten(*(f"aten.{name}.default" for name in _FILTERS))
def upsample(call: Call, x: XlaOp, output_size: Sizes, align_corners: bool, *scales: float | None) -> XlaOp:
    made = wide(x) if x.element_type.is_float else convert(x, "s32")
    for taps, dimension in _filter_taps(call, x.shape.dimensions, call.dimensions, align_corners, scales):
        made = taps.applied(made, dimension) if x.element_type.is_float else _applied_to_bytes(taps, made, dimension)
    return made


def _applied_to_bytes(taps: Taps, x: XlaOp, dimension: int) -> XlaOp:
    """Return sums of bytes, s32, by weights of 16 bits and rounded along each dimension, as PyTorch computes them."""
    assert taps.weights is not None
    places, weights = taps.places.copy(), taps.weights.copy()
    for column in range(1, places.shape[1]):  # weights of one place, at an edge, are rounded together
        same = (places[:, column] == places[:, column - 1]) & (places[:, column] >= 0)
        weights[same, column] += weights[same, column - 1]
        places[same, column - 1] = -1
        weights[same, column - 1] = 0
    bits = next((n for n in range(22) if int(0.5 + weights.max() * (2 << n)) >= 1 << 15), 22)
    scaled = weights * (1 << bits)
    rounded = Taps(places, np.trunc(scaled + np.where(scaled < 0, -0.5, 0.5)).astype(np.int32))
    sums = rounded.applied(x, dimension)
    sums = sx.add(sums, full_like(sums, 1 << (bits - 1)))
    return sx.clamp(0, sx.shift_right_arithmetic(sums, full_like(sums, bits)), 255)


@aten(*(f"aten.{name}_backward.default" for name in _FILTERS))
def upsample_backward(
    call: Call, grad: XlaOp, output_size: Sizes, input_size: Sizes, align_corners: bool, *scales: float | None
) -> XlaOp:
    made = wide(grad)
    for taps, dimension in _filter_taps(call, call.dimensions, grad.shape.dimensions, align_corners, scales):
        made = taps.transposed(call.dimensions[dimension]).applied(made, dimension)
    return made


def _filter_taps(
    call: Call, sizes: Sizes, result: Sizes, align_corners: bool, scales: Sequence[float | None]
) -> list[tuple[Taps, int]]:
    """Return the taps of the dimensions that change, the last one first."""
    taps, number = _FILTERS[_name(call)], _float(call.type) if call.type.is_float else np.float64
    dimensions = [d for d in range(len(sizes) - 1, 1, -1) if sizes[d] != result[d] or scales[d - 2] is not None]
    return [(taps(sizes[d], result[d], align_corners, scales[d - 2], number), d) for d in dimensions]


# ---- pads ----


def _reflected(size: int, before: int, after: int) -> Taps:
    return Taps((size - 1 - np.abs(size - 1 - np.abs(np.arange(-before, size + after))))[:, None])


def _replicated(size: int, before: int, after: int) -> Taps:
    return Taps(np.clip(np.arange(-before, size + after), 0, size - 1)[:, None])


_PADS = {
    f"{name}_pad{n}d": taps
    for name, taps in (("reflection", _reflected), ("replication", _replicated))
    for n in (1, 2, 3)
}


@aten(*(f"aten.{name}.default" for name in _PADS))
def pad(call: Call, x: XlaOp, padding: Sizes) -> XlaOp:
    for taps, dimension in _pad_taps(call, x, padding):
        x = taps.applied(x, dimension)
    return x


@aten(*(f"aten.{name}_backward.default" for name in _PADS))
def pad_backward(call: Call, grad: XlaOp, x: XlaOp, padding: Sizes) -> XlaOp:
    grad = wide(grad)
    for taps, dimension in _pad_taps(call, x, padding):
        grad = taps.transposed(x.shape.dimensions[dimension]).applied(grad, dimension)
    return grad


def _pad_taps(call: Call, x: XlaOp, padding: Sizes) -> list[tuple[Taps, int]]:
    """Return the taps of padded dimensions; the padding is that of the last dimension first."""
    taps, rank = _PADS[_name(call)], x.shape.rank
    pairs = [(rank - 1 - i // 2, padding[i], padding[i + 1]) for i in range(0, len(padding), 2)]
    return [(taps(x.shape.dimensions[d], low, high), d) for d, low, high in pairs if low or high]


# ---- blocks of images ----


@aten("aten.im2col.default")
def im2col(call: Call, x: XlaOp, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes) -> XlaOp:
    (*batch, features, height, width) = x.shape.dimensions
    taps = [_blocks(*each) for each in zip((height, width), kernel, dilation, padding, stride)]
    for each, dimension in zip(taps, (x.shape.rank - 2, x.shape.rank - 1)):
        x = each.applied(x, dimension)
    counts = [each.size // k for each, k in zip(taps, kernel)]
    parts = sx.reshape(x, (prod(batch), features, kernel[0], counts[0], kernel[1], counts[1]))
    return sx.reshape(sx.transpose(parts, (0, 1, 2, 4, 3, 5)), call.dimensions)


@aten("aten.col2im.default")
def col2im(
    call: Call, x: XlaOp, output_size: Sizes, kernel: Sizes, dilation: Sizes, padding: Sizes, stride: Sizes
) -> XlaOp:
    (*batch, features, height, width) = call.dimensions
    taps = [_blocks(*each) for each in zip((height, width), kernel, dilation, padding, stride)]
    counts = [each.size // k for each, k in zip(taps, kernel)]
    parts = sx.reshape(wide(x), (prod(batch), features, *kernel, *counts))
    made = sx.reshape(sx.transpose(parts, (0, 1, 2, 4, 3, 5)), (prod(batch), features, *(each.size for each in taps)))
    for each, dimension, size in zip(taps, (2, 3), (height, width)):
        made = each.transposed(size).applied(made, dimension)
    return sx.reshape(made, call.dimensions)


def _blocks(size: int, kernel: int, dilation: int, padding: int, stride: int) -> Taps:
    """Return the taps that set the k-th elements of all blocks behind each other, for each k."""
    count = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    places = np.arange(kernel)[:, None] * dilation + np.arange(count) * stride - padding
    return Taps(np.where((places >= 0) & (places < size), places, -1).reshape(-1, 1))
