"""A step of training a network of three dense layers, 784-256-256-10, and its results, on 256 rows and on one."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.traced import Draw, trace

WIDTHS = (784, 256, 256, 10)
Layers = list[tuple[jax.Array, jax.Array]]


def predict(layers: Layers, x: jax.Array) -> jax.Array:
    for weights, bias in layers[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    return x @ layers[-1][0] + layers[-1][1]


def predict_by_constants(x: jax.Array) -> jax.Array:
    """With weights that are part of the program, as a trained network is handed on."""
    return predict(layers_of(Draw(np.random.default_rng(7))), x)


def loss(layers: Layers, x: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean of what the right class lacks."""
    chances = jax.nn.log_softmax(predict(layers, x))
    return -jnp.mean(jnp.take_along_axis(chances, labels[:, None], 1))


def descend(layers: Layers, x: jax.Array, labels: jax.Array) -> tuple[jax.Array, Layers]:
    value, gradients = jax.value_and_grad(loss)(layers, x, labels)
    return value, jax.tree.map(lambda w, g: w - 0.1 * g, layers, gradients)


def adam(
    layers: Layers, first: Layers, second: Layers, count: jax.Array, x: jax.Array, labels: jax.Array
) -> tuple[Any, ...]:
    value, gradients = jax.value_and_grad(loss)(layers, x, labels)
    count = count + 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, gradients)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, gradients)
    low, high = 1 - 0.9**count, 1 - 0.999**count

    def move(w: jax.Array, m: jax.Array, v: jax.Array) -> jax.Array:
        return w - 1e-3 * (m / low) / (jnp.sqrt(v / high) + 1e-8)

    return value, jax.tree.map(move, layers, first, second), first, second, count


def layers_of(draw: Draw) -> list[Any]:
    return [(draw.dense(m, n), draw.normal(n, scale=0.1)) for m, n in pairwise(WIDTHS)]


def small(draw: Draw) -> list[Any]:
    """What the optimizer remembers."""
    return [(draw.near_one(m, n), draw.near_one(n)) for m, n in pairwise(WIDTHS)]


def batch_of(draw: Draw, rows: int) -> list[Any]:
    return [draw.normal(rows, WIDTHS[0]), draw.integers(WIDTHS[-1], rows)]


def enter(name: str, summary: str, rows: int, function: Any, dtype: Any = np.float32) -> None:
    def make(draw: Draw) -> list[Any]:
        memory = [small(draw), small(draw), draw.fixed(np.float32(7))] if function is adam else []
        rest = batch_of(draw, rows)
        return [layers_of(draw), *memory, *(rest[:1] if function is predict else rest)]

    wide = dtype == np.float64
    tolerance, peak = (1e-10, "f64") if wide else (1e-4, "f32")
    text = f"{summary}, {rows} rows, {np.dtype(dtype).name}"
    trace(name, text, function, make, dtype=dtype, wide=wide, tolerance=tolerance, peak=peak)


enter("mlp-step", "a step of plain gradient descent", 256, descend)
enter("mlp-step-adam", "a step of Adam", 256, adam)
enter("mlp-step-batch-32", "a step of plain gradient descent", 32, descend)
enter("mlp-step-f64", "a step of plain gradient descent", 256, descend, np.float64)
enter("mlp-1", "results", 1, predict)
trace(
    "mlp-constant",
    "results of constant weights, 256 rows, float32",
    predict_by_constants,
    lambda draw: batch_of(draw, 256)[:1],
    tolerance=1e-4,
)
