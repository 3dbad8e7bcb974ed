"""A small U-Net and one step of training it: two levels down, two up, squared error, plain gradient descent."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.traced import Draw, trace

WIDTHS = (16, 32, 64)
LAYOUT = ("NHWC", "HWIO", "NHWC")
Weights = dict[str, Any]


def convolve(x: jax.Array, weights: Weights) -> jax.Array:
    x = jax.lax.conv_general_dilated(x, weights["kernel"], (1, 1), "SAME", dimension_numbers=LAYOUT)
    return jax.nn.relu(x + weights["bias"])


def pool(x: jax.Array) -> jax.Array:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def enlarge(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.conv_transpose(x, kernel, (2, 2), "SAME", dimension_numbers=LAYOUT)


def predict(weights: Weights, x: jax.Array) -> jax.Array:
    kept = []
    for place, pair in enumerate(weights["down"]):
        x = pool(x) if place else x
        for layer in pair:
            x = convolve(x, layer)
        kept.append(x)
    kept.pop()
    for kernel, pair in zip(weights["enlarge"], weights["up"], strict=True):
        x = jnp.concatenate([enlarge(x, kernel), kept.pop()], -1)
        for layer in pair:
            x = convolve(x, layer)
    return jax.lax.conv_general_dilated(x, weights["last"], (1, 1), "SAME", dimension_numbers=LAYOUT)


def step(weights: Weights, x: jax.Array, wanted: jax.Array) -> tuple[jax.Array, Weights]:
    def error(weights: Weights) -> jax.Array:
        return jnp.mean(jnp.square(predict(weights, x) - wanted))

    loss, gradients = jax.value_and_grad(error)(weights)
    return loss, jax.tree.map(lambda w, g: w - 0.01 * g, weights, gradients)


def pair_weights(draw: Draw, inputs: int, outputs: int) -> list[Weights]:
    return [
        {"kernel": draw.dense(3, 3, before, outputs), "bias": draw.normal(outputs, scale=0.1)}
        for before in (inputs, outputs)
    ]


def all_weights(draw: Draw) -> Weights:
    first, second, third = WIDTHS
    return {
        "down": [pair_weights(draw, a, b) for a, b in ((3, first), (first, second), (second, third))],
        "enlarge": [draw.dense(2, 2, third, second), draw.dense(2, 2, second, first)],
        "up": [pair_weights(draw, 2 * second, second), pair_weights(draw, 2 * first, first)],
        "last": draw.dense(1, 1, first, 1),
    }


def enter(name: str, summary: str, batch: int, pixels: int, function: Any) -> None:
    def make(draw: Draw) -> list[Any]:
        images = [draw.normal(batch, pixels, pixels, 3), draw.normal(batch, pixels, pixels, 1)]
        return [all_weights(draw), *images[: 2 if function is step else 1]]

    trace(name, f"{summary}, {batch} of {pixels}x{pixels}", function, make, dtype=np.float32, tolerance=1e-3)


enter("unet-step", "a step of training", 4, 64, step)
enter("unet", "its results", 1, 128, predict)
