"""Lookups of JAX: rows of a table, elements along an axis, sums by segment, updates at places."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.traced import trace

WORDS, WIDTH, TOKENS = 50257, 768, 512


def added(x: Any, i: Any, u: Any) -> Any:
    made = x.copy()
    np.add.at(made, i, u)
    return made


def segments(values: Any, places: Any) -> Any:
    return jax.ops.segment_sum(values, places, 1000)


def segments_in_numpy(values: Any, places: Any) -> Any:
    made = np.zeros((1000, values.shape[1]), values.dtype)
    np.add.at(made, places, values)
    return made


row_bytes = 4.0 * TOKENS * WIDTH
trace(
    "embed-512",
    "512 rows of a table of 50257x768",
    lambda table, i: table[i],
    lambda draw: [draw.normal(WORDS, WIDTH), draw.integers(WORDS, TOKENS)],
    numpy=lambda table, i: table[i],
    moved=(row_bytes, row_bytes),
)
trace(
    "embed-gradient-512",
    "512 rows added to a table of 5000x768",
    lambda table, i, u: table.at[i].add(u),
    lambda draw: [draw.normal(5000, WIDTH), draw.integers(5000, TOKENS), draw.normal(TOKENS, WIDTH)],
    numpy=added,
    tolerance=1e-4,
)
trace(
    "segment-sum-100k-64",
    "100k rows of 64 into 1000 sums",
    segments,
    lambda draw: [draw.normal(100_000, 64), draw.integers(1000, 100_000)],
    numpy=segments_in_numpy,
    tolerance=1e-3,
)
trace(
    "scatter-set-100k",
    "100k numbers written into a million, all at different places",
    lambda x, i, u: x.at[i].set(u, unique_indices=True),
    lambda draw: [
        draw.normal(1_000_000),
        draw.fixed((np.arange(100_000, dtype=np.int32) * 7919) % 1_000_000),
        draw.normal(100_000),
    ],
)
trace(
    "take-along-4096x1000",
    "one element of each row",
    lambda x, i: jnp.take_along_axis(x, i[:, None], 1),
    lambda draw: [draw.normal(4096, 1000), draw.integers(1000, 4096)],
    numpy=lambda x, i: np.take_along_axis(x, i[:, None], 1),
    moved=(4096 * 8.0, 4096 * 4.0),
)
trace(
    "gather-columns-1000x1003",
    "all columns in another order",
    lambda x, i: x[:, i],
    lambda draw: [draw.normal(1000, 1003), draw.integers(1003, 1003)],
    numpy=lambda x, i: x[:, i],
)
trace(
    "one-hot-4096x1000",
    "of 4096 places",
    lambda i: jax.nn.one_hot(i, 1000),
    lambda draw: [draw.integers(1000, 4096)],
)
