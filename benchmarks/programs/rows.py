"""Programs that work on the rows of a matrix, each with several passes over a row."""

import numpy as np

import stablexla as sx
from benchmarks.programs.registry import Array, add

N = 4096


def softmax(x: sx.XlaOp) -> sx.XlaOp:
    """exp(x) over its sum by rows, with the largest of a row taken off before."""
    largest = sx.reduce(x, x.builder.constant(-np.inf, "f32"), sx.max, (1,))
    exponentials = sx.exp(sx.sub(x, largest, broadcast_dimensions=(0,)))
    return sx.div(exponentials, row_sums(exponentials), broadcast_dimensions=(0,))


def softmax_in_numpy(x: Array) -> Array:
    exponentials = np.exp(x - x.max(1, keepdims=True))
    probabilities: Array = exponentials / exponentials.sum(1, keepdims=True)
    return probabilities


def layer_norm(x: sx.XlaOp, scale: sx.XlaOp, offset: sx.XlaOp) -> sx.XlaOp:
    """Rows moved to mean 0 and variance 1, then scaled and moved by column."""
    centred = sx.sub(x, row_sums(x) / N, broadcast_dimensions=(0,))
    variance = row_sums(centred * centred) / N
    normal = sx.mul(centred, sx.rsqrt(variance + 1e-5), broadcast_dimensions=(0,))
    return sx.add(sx.mul(normal, scale, broadcast_dimensions=(1,)), offset, broadcast_dimensions=(1,))


def layer_norm_in_numpy(x: Array, scale: Array, offset: Array) -> Array:
    centred = x - x.mean(1, keepdims=True)
    normal: Array = centred / np.sqrt((centred * centred).mean(1, keepdims=True) + np.float32(1e-5))
    return normal * scale + offset


def row_sums(x: sx.XlaOp) -> sx.XlaOp:
    return sx.reduce(x, x.builder.constant(0.0), sx.add, (1,))


add("softmax-4096", "of each of 4096 rows", [sx.f32[N, N]], softmax, numpy=softmax_in_numpy)
add(
    "layer-norm-4096",
    "of each of 4096 rows",
    [sx.f32[N, N], sx.f32[N], sx.f32[N]],
    layer_norm,
    numpy=layer_norm_in_numpy,
)
