"""Loops whose steps are small: an LSTM, its training, and a scan over sixty numbers."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.traced import Draw, trace

STEPS, WIDTH = 128, 512
SCALARS, SCALAR_STEPS = 60, 614
Weights = dict[str, Any]
State = tuple[jax.Array, jax.Array]


def cell(weights: Weights, state: State, x: jax.Array) -> tuple[State, jax.Array]:
    h, c = state
    gates = x @ weights["inputs"] + h @ weights["state"] + weights["bias"]
    i, f, g, o = jnp.split(gates, 4, -1)
    c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
    h = jax.nn.sigmoid(o) * jnp.tanh(c)
    return (h, c), h


def lstm(weights: Weights, x: jax.Array) -> jax.Array:
    zero = jnp.zeros((x.shape[1], weights["state"].shape[0]), x.dtype)
    return jax.lax.scan(lambda state, each: cell(weights, state, each), (zero, zero), x)[1]


def lstm_step(weights: Weights, x: jax.Array) -> tuple[jax.Array, Weights]:
    """Plain gradient descent on the squared results."""
    loss, gradients = jax.value_and_grad(lambda weights: jnp.mean(jnp.square(lstm(weights, x))))(weights)
    return loss, jax.tree.map(lambda w, g: w - 0.1 * g, weights, gradients)


def scalars(start: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
    def step(v: tuple[jax.Array, ...], _: None) -> tuple[tuple[jax.Array, ...], None]:
        return tuple(v[i] * 0.5 + (v[(i + 1) % SCALARS] * 0.25 + 0.01) for i in range(SCALARS)), None

    return jax.lax.scan(step, start, None, SCALAR_STEPS)[0]


def enter_lstm(name: str, function: Any, batch: int, width: int, steps: int, dtype: Any = np.float32) -> None:
    def make(draw: Draw) -> list[Any]:
        weights = {
            "inputs": draw.dense(width, 4 * width),
            "state": draw.dense(width, 4 * width),
            "bias": draw.normal(4 * width, scale=0.1),
        }
        return [weights, draw.normal(steps, batch, width)]

    text = f"{steps} steps of {width} units, {batch} at once, {np.dtype(dtype).name}"
    wide = dtype == np.float64
    tolerance, peak = (1e-10, "f64") if wide else (1e-3, "f32")
    trace(name, text, function, make, dtype=dtype, wide=wide, tolerance=tolerance, peak=peak)


enter_lstm("lstm-128", lstm, 16, WIDTH, STEPS)
enter_lstm("lstm-128-batch-1", lstm, 1, WIDTH, STEPS)
enter_lstm("lstm-100-of-200-f64", lstm, 8, 200, 100, np.float64)
enter_lstm("lstm-step", lstm_step, 16, 256, 64)
trace(
    "scan-60-scalars",
    f"{SCALAR_STEPS} steps of a scan that carries {SCALARS} numbers",
    scalars,
    lambda draw: [tuple(draw.normal() for _ in range(SCALARS))],
    operations=4.0 * SCALARS * SCALAR_STEPS,
)
