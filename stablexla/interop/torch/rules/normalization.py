"""Normalization by the moments of a batch, a layer or a group of features, and its gradients.

Moments are of two passes: the mean of the squares of what differs from the mean. Halves are computed in f32.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.interop.torch.call import Call, broadcast, constant_elements, convert, full_like, total, wide
from stablexla.interop.torch.registry import aten

Sizes = Sequence[int]
Results = list[XlaOp | None]


def _mean(x: XlaOp, dimensions: Sequence[int]) -> XlaOp:
    """Return the mean over dimensions, which stay with size 1."""
    sums = total(x, dimensions, keep=True)
    count = prod(x.shape.dimensions[d] for d in dimensions)
    return sx.mul(sums, full_like(sums, 1 / count)) if count else sx.div(sums, full_like(sums, 0))


def _moments(x: XlaOp, dimensions: Sequence[int], eps: float) -> tuple[XlaOp, XlaOp, XlaOp]:
    """Return mean, variance and 1 / sqrt(variance + eps), with the dimensions of size 1."""
    mean = _mean(x, dimensions)
    off = sx.sub(x, broadcast(mean, x.shape.dimensions))
    variance = _mean(sx.mul(off, off), dimensions)
    return mean, variance, _inverse(variance, eps)


def _inverse(variance: XlaOp, eps: float) -> XlaOp:
    return sx.rsqrt(sx.add(variance, full_like(variance, eps)))


def _scaled(x: XlaOp, mean: XlaOp, inverse: XlaOp, weight: XlaOp | None, bias: XlaOp | None) -> XlaOp:
    """Return (x - mean) inverse weight + bias; all of x's rank."""
    sizes = x.shape.dimensions
    made = sx.mul(sx.sub(x, broadcast(mean, sizes)), broadcast(inverse, sizes))
    if weight is not None:
        made = sx.mul(made, broadcast(weight, sizes))
    return made if bias is None else sx.add(made, broadcast(bias, sizes))


def _sized(x: XlaOp | None, sizes: Sizes, like: XlaOp) -> XlaOp | None:
    """Return a tensor in sizes of as many elements, and in another one's element type."""
    return None if x is None else convert(sx.reshape(x, sizes), like.element_type)


# ---- over the batch ----


def _features(x: XlaOp) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sizes of what each feature has one of, and the dimensions that it is computed over."""
    rank = x.shape.rank
    return (x.shape.dimensions[1], *(1,) * (rank - 2)), (0, *range(2, rank))


def _known(
    call: Call, given: Sequence[XlaOp | None], eps: float, sizes: Sizes, like: XlaOp
) -> tuple[XlaOp, XlaOp] | None:
    """Return the factor and the summand of features whose moments are frozen; None where they are arguments."""
    arrays = [None if op is None else constant_elements(op) for op in given]
    if any(array is None and op is not None for array, op in zip(arrays, given, strict=True)):
        return None
    mean, var, weight, bias = (None if array is None else array.astype(np.float64) for array in arrays)
    assert mean is not None
    assert var is not None
    with np.errstate(all="ignore"):
        factor = (1 if weight is None else weight) / np.sqrt(var + eps)
        summand = (0 if bias is None else bias) - mean * factor
        made = [each.reshape(sizes).astype(like.element_type.dtype) for each in (factor, summand)]
    return call.constant(made[0], like.element_type), call.constant(made[1], like.element_type)


def _of_batch(
    call: Call, x: XlaOp, weight: XlaOp | None, bias: XlaOp | None, mean: XlaOp | None, var: XlaOp | None,
    training: bool, momentum: float, eps: float,
) -> Results:  # fmt: skip
    """Return the result, the mean and the inverse deviation that a gradient needs, and the new running statistics."""
    x = wide(x)
    sizes, over = _features(x)
    running = _sized(mean, sizes, x), _sized(var, sizes, x)
    if training:
        own_mean, own_var, inverse = _moments(x, over, eps)
    else:
        assert running[0] is not None
        assert running[1] is not None
        own_mean, inverse = running[0], _inverse(running[1], eps)
    # As in PyTorch: one factor and one summand for each feature.
    own_mean, inverse = sx.reshape(own_mean, sizes), sx.reshape(inverse, sizes)
    known = None if training else _known(call, (mean, var, weight, bias), eps, sizes, x)
    if known is not None:
        factor, summand = known
    else:
        wide_weight, wide_bias = _sized(weight, sizes, x), _sized(bias, sizes, x)
        factor = inverse if wide_weight is None else sx.mul(inverse, wide_weight)
        summand = sx.neg(sx.mul(own_mean, factor))
        summand = summand if wide_bias is None else sx.add(summand, wide_bias)
    result = sx.add(sx.mul(x, broadcast(factor, x.shape.dimensions)), broadcast(summand, x.shape.dimensions))
    if not training:
        nothing = full_like(x, 0, (0,))
        return [result, nothing, nothing, mean, var]
    count = x.shape.size // max(x.shape.dimensions[1], 1)
    unbiased = sx.mul(own_var, full_like(own_var, count / (count - 1) if count > 1 else np.nan))
    statistics = [sx.reshape(each, sizes[:1]) for each in (own_mean, unbiased, inverse)]
    new: Results = []
    for old, now in zip((mean, var), statistics):
        if old is None:
            new.append(None)
            continue
        kept = sx.mul(wide(old), full_like(wide(old), 1 - momentum))
        new.append(sx.add(kept, convert(sx.mul(now, full_like(now, momentum)), kept.element_type)))
    return [result, statistics[0], statistics[2], *new]


@aten("aten._native_batch_norm_legit_functional.default")
def batch_norm_functional(
    call: Call, x: XlaOp, weight: XlaOp | None, bias: XlaOp | None, mean: XlaOp | None, var: XlaOp | None,
    training: bool, momentum: float, eps: float,
) -> Results:  # fmt: skip
    return _of_batch(call, x, weight, bias, mean, var, training, momentum, eps)


@aten("aten._native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    call: Call, x: XlaOp, weight: XlaOp | None, bias: XlaOp | None, training: bool, momentum: float, eps: float
) -> Results:
    return _of_batch(call, x, weight, bias, None, None, True, momentum, eps)[:3]


@aten("aten._native_batch_norm_legit_no_training.default")
def batch_norm_of_inference(
    call: Call, x: XlaOp, weight: XlaOp | None, bias: XlaOp | None, mean: XlaOp, var: XlaOp, momentum: float, eps: float
) -> Results:
    return _of_batch(call, x, weight, bias, mean, var, False, momentum, eps)[:3]


@aten("aten._batch_norm_with_update_functional.default")
def batch_norm_with_update(
    call: Call, x: XlaOp, weight: XlaOp | None, bias: XlaOp | None, mean: XlaOp | None, var: XlaOp | None,
    momentum: float, eps: float,
) -> Results:  # fmt: skip
    made = _of_batch(call, x, weight, bias, mean, var, True, momentum, eps)
    return [*made[:3], call.constant(0, "u8", (0,)), *made[3:]]


@aten("aten._batch_norm_no_update.default")
def batch_norm_no_update(
    call: Call, x: XlaOp, weight: XlaOp | None, bias: XlaOp | None, mean: XlaOp, var: XlaOp, momentum: float, eps: float
) -> Results:
    made = _of_batch(call, x, weight, bias, mean, var, False, momentum, eps)
    return [*made[:3], call.constant(0, "u8", (0,))]


@aten("aten.native_batch_norm_backward.default")
def batch_norm_backward(
    call: Call, grad: XlaOp, x: XlaOp, weight: XlaOp | None, mean: XlaOp | None, var: XlaOp | None,
    save_mean: XlaOp | None, save_inverse: XlaOp | None, train: bool, eps: float, output_mask: Sequence[bool],
) -> Results:  # fmt: skip
    """With c = x - mean, s = inverse deviation, n elements of a feature: in training x's is
    s w (g - sum(g) / n - c s^2 sum(g c) / n), else s w g; the weight's is s sum(g c), the bias's sum(g)."""
    grad, x = wide(grad), wide(x)
    sizes, over = _features(x)
    if train:
        centre, inverse = _sized(save_mean, sizes, x), _sized(save_inverse, sizes, x)
    else:
        centre, deviation = _sized(mean, sizes, x), _sized(var, sizes, x)
        assert deviation is not None
        inverse = _inverse(deviation, eps)
    assert centre is not None
    assert inverse is not None
    off = sx.sub(x, broadcast(centre, x.shape.dimensions))
    sums = sx.reshape(total(grad, over), sizes)
    products = sx.reshape(total(sx.mul(grad, off), over), sizes)
    scale = _sized(weight, sizes, x)
    factor = inverse if scale is None else sx.mul(inverse, scale)
    made = grad
    if train:
        share = full_like(sums, sizes[0] / max(x.shape.size, 1))
        slope = sx.mul(sx.mul(products, share), sx.mul(inverse, inverse))
        made = sx.sub(made, broadcast(sx.mul(sums, share), x.shape.dimensions))
        made = sx.sub(made, sx.mul(off, broadcast(slope, x.shape.dimensions)))
    made = sx.mul(made, broadcast(factor, x.shape.dimensions))
    results = [made, sx.reshape(sx.mul(products, inverse), sizes[:1]), sx.reshape(sums, sizes[:1])]
    return [each if wanted else None for each, wanted in zip(results, output_mask)]


@aten("aten.batch_norm_backward.default")
def batch_norm_backward_with_reserve(
    call: Call, grad: XlaOp, x: XlaOp, weight: XlaOp, mean: XlaOp | None, var: XlaOp | None,
    save_mean: XlaOp | None, save_inverse: XlaOp | None, update: bool, eps: float, output_mask: Sequence[bool],
    reserve: XlaOp,
) -> Results:  # fmt: skip
    return batch_norm_backward(call, grad, x, weight, mean, var, save_mean, save_inverse, update, eps, output_mask)


# ---- over the last dimensions ----


@aten("aten.native_layer_norm.default")
def layer_norm(
    call: Call, x: XlaOp, normalized_shape: Sizes, weight: XlaOp | None, bias: XlaOp | None, eps: float
) -> list[XlaOp]:
    x = wide(x)
    mean, _, inverse = _moments(x, _last(x, normalized_shape), eps)
    weight, bias = (each if each is None else convert(each, x.element_type) for each in (weight, bias))
    return [_scaled(x, mean, inverse, weight, bias), mean, inverse]


def _last(x: XlaOp, normalized_shape: Sizes) -> range:
    return range(x.shape.rank - len(normalized_shape), x.shape.rank)


@aten("aten.native_layer_norm_backward.default")
def layer_norm_backward(
    call: Call, grad: XlaOp, x: XlaOp, normalized_shape: Sizes, mean: XlaOp, inverse: XlaOp, weight: XlaOp | None,
    bias: XlaOp | None, output_mask: Sequence[bool],
) -> Results:  # fmt: skip
    grad, x = wide(grad), wide(x)
    mean, inverse = (broadcast(convert(each, x.element_type), x.shape.dimensions) for each in (mean, inverse))
    normal = sx.mul(sx.sub(x, mean), inverse)
    return [
        _by_normalized(grad, normal, inverse, weight, _last(x, normalized_shape)) if output_mask[0] else None,
        _over_first(sx.mul(grad, normal), normalized_shape) if output_mask[1] and weight is not None else None,
        _over_first(grad, normalized_shape) if output_mask[2] else None,
    ]


def _by_normalized(
    grad: XlaOp, normal: XlaOp, inverse: XlaOp, weight: XlaOp | None, over: Sequence[int], centred: bool = True
) -> XlaOp:
    """Return the gradient by what was normalized, y: s (g w - mean(g w) - y mean(g w y)); the first mean if it was
    centred."""
    sizes = normal.shape.dimensions
    if weight is not None:
        grad = sx.mul(grad, broadcast(convert(weight, grad.element_type), sizes))
    made = grad
    if centred:
        made = sx.sub(made, broadcast(_mean(grad, over), sizes))
    slope = _mean(sx.mul(grad, normal), over)
    return sx.mul(sx.sub(made, sx.mul(normal, broadcast(slope, sizes))), inverse)


def _over_first(x: XlaOp, sizes: Sizes) -> XlaOp:
    return total(x, range(x.shape.rank - len(sizes)))


@aten("aten._fused_rms_norm.default")
def rms_norm(call: Call, x: XlaOp, normalized_shape: Sizes, weight: XlaOp | None, eps: float | None) -> list[XlaOp]:
    x = wide(x)
    if eps is None:
        eps = float(np.finfo(x.element_type.dtype).eps)
    inverse = _inverse(_mean(sx.mul(x, x), _last(x, normalized_shape)), eps)
    made = sx.mul(x, broadcast(inverse, x.shape.dimensions))
    if weight is not None:
        made = sx.mul(made, broadcast(convert(weight, x.element_type), x.shape.dimensions))
    return [made, inverse]


@aten("aten._fused_rms_norm_backward.default")
def rms_norm_backward(
    call: Call, grad: XlaOp, x: XlaOp, normalized_shape: Sizes, inverse: XlaOp, weight: XlaOp | None,
    output_mask: Sequence[bool],
) -> Results:  # fmt: skip
    grad, x = wide(grad), wide(x)
    inverse = broadcast(convert(inverse, x.element_type), x.shape.dimensions)
    normal, over = sx.mul(x, inverse), _last(x, normalized_shape)
    return [
        _by_normalized(grad, normal, inverse, weight, over, centred=False) if output_mask[0] else None,
        _over_first(sx.mul(grad, normal), normalized_shape) if output_mask[1] and weight is not None else None,
    ]


# ---- over groups of features ----


@aten("aten.native_group_norm.default")
def group_norm(
    call: Call, x: XlaOp, weight: XlaOp | None, bias: XlaOp | None, batch: int, features: int, pixels: int, groups: int,
    eps: float,
) -> list[XlaOp]:  # fmt: skip
    x, sizes = wide(x), x.shape.dimensions
    if groups in (1, features):  # in the image's dimensions, so that its layout may be another one
        parts, over, each = x, range(1 if groups == 1 else 2, len(sizes)), (features, *(1 for _ in sizes[2:]))
    else:
        parts, over = sx.reshape(x, (batch, groups, features // groups, pixels)), range(2, 4)
        each = (groups, features // groups, 1)
    mean, _, inverse = _moments(parts, over, eps)
    made = _scaled(parts, mean, inverse, _sized(weight, each, x), _sized(bias, each, x))
    return [sx.reshape(made, sizes), *(sx.reshape(moment, (batch, groups)) for moment in (mean, inverse))]


@aten("aten.native_group_norm_backward.default")
def group_norm_backward(
    call: Call, grad: XlaOp, x: XlaOp, mean: XlaOp, inverse: XlaOp, weight: XlaOp | None, batch: int, features: int,
    pixels: int, groups: int, output_mask: Sequence[bool],
) -> Results:  # fmt: skip
    sizes, whole = x.shape.dimensions, (batch, groups, features // groups, pixels)
    grad, x = sx.reshape(wide(grad), whole), sx.reshape(wide(x), whole)
    mean, inverse = (
        broadcast(convert(sx.reshape(each, (batch, groups, 1, 1)), x.element_type), whole) for each in (mean, inverse)
    )
    normal = sx.mul(sx.sub(x, mean), inverse)
    scale = _sized(weight, (groups, features // groups, 1), x)
    by_x = sx.reshape(_by_normalized(grad, normal, inverse, scale, (2, 3)), sizes)
    sums = [sx.reshape(total(each, (0, 3)), (features,)) for each in (sx.mul(grad, normal), grad)]
    return [each if wanted else None for each, wanted in zip((by_x, *sums), output_mask)]
