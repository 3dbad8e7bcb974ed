"""Reductions of JAX: sums, the place of the largest, variances, over rows and columns, in several element types."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np

from benchmarks.traced import trace

N = 4096


def enter(name: str, text: str, function: Any, shape: tuple[int, ...], numpy: Any = None, **more: Any) -> None:
    # Positive and negative numbers cancel, so that the order of a long sum shows.
    trace(name, text, function, lambda draw: [draw.normal(*shape)], **{"numpy": numpy, "tolerance": 1e-3} | more)


def arg(axis: int) -> Any:
    return lambda x: np.argmax(x, axis).astype(np.int32)


enter("sum-columns-4096", "over axis 0 of 4096x4096", lambda x: x.sum(0), (N, N), lambda x: x.sum(0))
enter("sum-rows-4096", "over axis 1 of 4096x4096", lambda x: x.sum(1), (N, N), lambda x: x.sum(1))
enter("sum-rows-37x1001", "over axis 1 of 37x1001", lambda x: x.sum(1), (37, 1001), lambda x: x.sum(1))
enter("sum-columns-37x1001", "over axis 0 of 37x1001", lambda x: x.sum(0), (37, 1001), lambda x: x.sum(0))
enter("argmax-rows-4096", "over axis 1 of 4096x4096", lambda x: jnp.argmax(x, 1), (N, N), arg(1))
enter("argmax-columns-4096", "over axis 0 of 4096x4096", lambda x: jnp.argmax(x, 0), (N, N), arg(0))
enter("argmax-1m", "of 1000003 numbers", lambda x: jnp.argmax(x), (1_000_003,), lambda x: np.int32(np.argmax(x)))
enter("max-all-16M", "of 16M numbers", jnp.max, (1 << 24,), np.max)
enter("max-rows-4096", "over axis 1 of 4096x4096", lambda x: x.max(1), (N, N), lambda x: x.max(1))
enter("variance-rows-4096", "over axis 1 of 4096x4096", lambda x: jnp.var(x, 1), (N, N), lambda x: x.var(1))
enter("sum-f64-1000x4099", "of 1000x4099 f64", jnp.sum, (1000, 4099), np.sum, dtype=np.float64, wide=True)
enter(
    "sum-bf16-rows-4096",
    "over axis 1 of 4096x4096",
    lambda x: x.sum(1),
    (N, N),
    dtype=ml_dtypes.bfloat16,
    tolerance=0.1,
)
enter("any-positive-16M", "whether any of 16M is above 100", lambda x: jnp.any(x > 100), (1 << 24,))
enter("norm-16M", "the square root of the sum of squares", jnp.linalg.norm, (1 << 24,), np.linalg.norm)
trace(
    "dot-16M",
    "the sum of products of 16M pairs",
    lambda x, y: jnp.sum(x * y),
    lambda draw: [draw.near_one(1 << 24), draw.near_one(1 << 24)],
    numpy=np.dot,
    tolerance=1e-3,
)
