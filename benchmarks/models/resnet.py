"""ResNet-18 and ResNet-50 on images of 224x224, features last, as they infer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from benchmarks.traced import Draw, trace

CLASSES, PIXELS = 1000, 224
Weights = dict[str, Any]


def convolve(x: jax.Array, weights: Weights, stride: int = 1) -> jax.Array:
    """A convolution and the normalization after it, by means and variances of the training."""
    x = jax.lax.conv_general_dilated(
        x, weights["kernel"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    factor = jax.lax.rsqrt(weights["variance"] + 1e-5) * weights["scale"]
    return (x - weights["mean"]) * factor + weights["offset"]


def block(x: jax.Array, weights: Weights, stride: int) -> jax.Array:
    """Two convolutions of 3x3, or 1x1, 3x3 and 1x1; the second last has the stride."""
    kept = convolve(x, weights["shortcut"], stride) if "shortcut" in weights else x
    first = len(weights["layers"]) - 2
    for place, layer in enumerate(weights["layers"]):
        x = convolve(x, layer, stride if place == first else 1)
        if layer is not weights["layers"][-1]:
            x = jax.nn.relu(x)
    return jax.nn.relu(x + kept)


def classify(weights: Weights, x: jax.Array) -> jax.Array:
    x = jax.nn.relu(convolve(x, weights["stem"], 2))
    x = jax.lax.reduce_window(x, np.array(-np.inf, x.dtype), jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    for stage, blocks in enumerate(weights["stages"]):
        for place, inner in enumerate(blocks):
            x = block(x, inner, 2 if stage and not place else 1)
    return jnp.mean(x, (1, 2)) @ weights["classes"] + weights["bias"]


def layer_weights(draw: Draw, size: int, inputs: int, outputs: int) -> Weights:
    return {
        "kernel": draw.dense(size, size, inputs, outputs),
        "scale": draw.near_one(outputs),
        "offset": draw.normal(outputs, scale=0.1),
        "mean": draw.normal(outputs, scale=0.1),
        "variance": draw.near_one(outputs),
    }


def stage_weights(draw: Draw, inputs: int, width: int, count: int, narrow: bool) -> list[Weights]:
    outputs = 4 * width if narrow else width
    blocks = []
    for place in range(count):
        before = outputs if place else inputs
        sizes = [(1, before, width), (3, width, width), (1, width, outputs)] if narrow else []
        sizes = sizes or [(3, before, width), (3, width, width)]
        made: Weights = {"layers": [layer_weights(draw, *size) for size in sizes]}
        if before != outputs or (place == 0 and width != 64):
            made["shortcut"] = layer_weights(draw, 1, before, outputs)
        blocks.append(made)
    return blocks


def all_weights(draw: Draw, counts: Sequence[int], narrow: bool) -> Weights:
    widths, stages, inputs = (64, 128, 256, 512), [], 64
    for width, count in zip(widths, counts, strict=True):
        stages.append(stage_weights(draw, inputs, width, count, narrow))
        inputs = 4 * width if narrow else width
    return {
        "stem": layer_weights(draw, 7, 3, 64),
        "stages": stages,
        "classes": draw.dense(inputs, CLASSES),
        "bias": draw.normal(CLASSES, scale=0.1),
    }


def enter(name: str, batch: int, counts: Sequence[int], narrow: bool, dtype: Any, **more: Any) -> None:
    def make(draw: Draw) -> list[Any]:
        return [all_weights(draw, counts, narrow), draw.normal(batch, PIXELS, PIXELS, 3)]

    trace(name, f"{batch} of {PIXELS}x{PIXELS}, {np.dtype(dtype).name}", classify, make, dtype=dtype, **more)


SMALL, LARGE = (2, 2, 2, 2), (3, 4, 6, 3)
enter("resnet-18", 1, SMALL, False, np.float32, tolerance=1e-4)
enter("resnet-50", 1, LARGE, True, np.float32, tolerance=1e-4)
enter("resnet-18-batch-32", 32, SMALL, False, np.float32, tolerance=1e-4)
enter("resnet-18-bf16", 1, SMALL, False, ml_dtypes.bfloat16, tolerance=0.1, peak="bf16")
