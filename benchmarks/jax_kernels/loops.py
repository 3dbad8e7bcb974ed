"""Loops of JAX: updates of a buffer, numbers alone, small products, short scans."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.traced import trace


def fill(x: Any) -> Any:
    """Each row is made of the one before."""

    def body(i: Any, x: Any) -> Any:
        row = jax.lax.dynamic_slice(x, (i, 0), (1, x.shape[1]))
        return jax.lax.dynamic_update_slice(x, row * 0.5 + 1, (i + 1, 0))

    return jax.lax.fori_loop(0, x.shape[0] - 1, body, x)


def root(x: Any) -> Any:
    """Newton's steps on one number."""
    return jax.lax.while_loop(lambda s: s[1] < 10_000, lambda s: (0.5 * (s[0] + x / s[0]), s[1] + 1), (x, 0))[0]


def powers(x: Any) -> Any:
    return jax.lax.fori_loop(0, 200, lambda _, y: jnp.tanh(y @ x), x)


def moving(x: Any) -> Any:
    """A mean that forgets, of a row at a time."""

    def step(mean: Any, row: Any) -> Any:
        mean = 0.9 * mean + 0.1 * row
        return mean, mean

    return jax.lax.scan(step, jnp.zeros(x.shape[1], x.dtype), x)[1]


def collatz(n: Any) -> Any:
    """Steps until 1, of the first numbers."""

    def one(n: Any) -> Any:
        def body(s: Any) -> Any:
            return jnp.where(s[0] % 2 == 0, s[0] // 2, 3 * s[0] + 1), s[1] + 1

        return jax.lax.while_loop(lambda s: s[0] > 1, body, (n, 0))[1]

    return jax.vmap(one)(n)


def game(x: Any) -> Any:
    """Heat that spreads: 100 times each cell the mean of its neighbours."""

    def body(_: int, x: Any) -> Any:
        around = jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0) + jnp.roll(x, 1, 1) + jnp.roll(x, -1, 1)
        return 0.5 * x + 0.125 * around

    return jax.lax.fori_loop(0, 100, body, x)


trace("loop-update-slice", "2000 rows of 256, each from the one before", fill, lambda draw: [draw.normal(2000, 256)])
trace("loop-newton", "10000 steps on one number", root, lambda draw: [draw.fixed(np.float32(2))])
trace(
    "loop-products-64",
    "200 products of 64x64",
    powers,
    lambda draw: [draw.dense(64, 64)],
    operations=200 * 2.0 * 64**3,
    tolerance=1e-4,
)
trace("scan-rows-1000x512", "1000 rows of 512", moving, lambda draw: [draw.normal(1000, 512)])
trace("loop-collatz-10k", "10000 numbers", collatz, lambda draw: [draw.fixed(np.arange(1, 10_001, dtype=np.int32))])
trace("loop-heat-256", "100 times on 256x256", game, lambda draw: [draw.normal(256, 256)])
