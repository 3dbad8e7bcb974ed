"""Sorting of JAX: other element types, lengths that are multiples of nothing, searches, medians, keys with payload."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.traced import trace


def enter(name: str, text: str, function: Any, make: Any, numpy: Any = None, **more: Any) -> None:
    trace(name, text, function, make, numpy=numpy, **more)


ODD = 1_000_003
enter("sort-s32-1m", "1000003 whole numbers", jnp.sort, lambda draw: [draw.integers(1 << 30, ODD)], np.sort)
enter("sort-f64-1m", "1000003 f64", jnp.sort, lambda draw: [draw.normal(ODD)], np.sort, dtype=np.float64, wide=True)
enter(
    "sort-jax-1m",
    "1Mi f32 as jnp.sort compares them",
    jnp.sort,
    lambda draw: [draw.normal(1 << 20)],
    np.sort,
)
enter(
    "argsort-jax-1m",
    "1Mi f32 as jnp.argsort compares them",
    jnp.argsort,
    lambda draw: [draw.normal(1 << 20)],
    lambda x: np.argsort(x, kind="stable").astype(np.int32),
)
enter("sort-1000", "1000 numbers", jnp.sort, lambda draw: [draw.normal(1000)], np.sort)
enter(
    "sort-pairs-100k",
    "100k keys and what belongs to them",
    lambda k, v: jax.lax.sort((k, v), num_keys=1),
    lambda draw: [draw.integers(1 << 30, 100_000), draw.normal(100_000)],
)
enter("top-k-32x50257", "40 of each of 32 rows", lambda x: jax.lax.top_k(x, 40), lambda draw: [draw.normal(32, 50257)])
enter("top-1-50257", "the largest and its place", lambda x: jax.lax.top_k(x, 1), lambda draw: [draw.normal(1, 50257)])
enter(
    "median-1001x1000",
    "of 1001 rows",
    lambda x: jnp.median(x, 1),
    lambda draw: [draw.normal(1001, 1000)],
    lambda x: np.median(x, 1),
)
enter(
    "search-sorted-100k",
    "100k numbers in a million",
    lambda x, y: jnp.searchsorted(x, y),
    lambda draw: [draw.fixed(np.linspace(-4, 4, 1_000_000, dtype=np.float32)), draw.normal(100_000)],
    lambda x, y: np.searchsorted(x, y).astype(np.int32),
)
