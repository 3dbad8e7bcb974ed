"""Softmax and normalizations over rows, as jax.nn writes them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from benchmarks.traced import trace


def layer_norm(x: Any, scale: Any, offset: Any) -> Any:
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.var(x, -1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(variance + 1e-5) * scale + offset


def rms_norm(x: Any, scale: Any) -> Any:
    wide = x.astype(jnp.float32)
    return (wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-5)).astype(x.dtype) * scale


def softmax_in_numpy(x: Any) -> Any:
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return exponentials / exponentials.sum(-1, keepdims=True)


def layer_norm_in_numpy(x: Any, scale: Any, offset: Any) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5)) * scale + offset


for rows, columns in ((128, 768), (37, 1001), (1, 50257)):
    trace(
        f"softmax-{rows}x{columns}",
        f"of each of {rows} rows",
        lambda x: jax.nn.softmax(x, -1),
        lambda draw, shape=(rows, columns): [draw.normal(*shape)],
        numpy=softmax_in_numpy,
    )
for rows, columns in ((128, 768), (37, 1001)):
    trace(
        f"layer-norm-{rows}x{columns}",
        f"of each of {rows} rows",
        layer_norm,
        lambda draw, shape=(rows, columns): [draw.normal(*shape), draw.normal(shape[1]), draw.normal(shape[1])],
        numpy=layer_norm_in_numpy,
        tolerance=1e-4,
    )
trace(
    "softmax-columns-1024",
    "of each of 1024 columns",
    lambda x: jax.nn.softmax(x, 0),
    lambda draw: [draw.normal(1024, 1024)],
    numpy=lambda x: softmax_in_numpy(x.T).T,
)
trace(
    "softmax-f64-512x1000",
    "of each of 512 rows, f64",
    lambda x: jax.nn.softmax(x, -1),
    lambda draw: [draw.normal(512, 1000)],
    numpy=softmax_in_numpy,
    dtype=np.float64,
    wide=True,
)
trace(
    "softmax-bf16-4096",
    "of each of 4096 rows, bf16",
    lambda x: jax.nn.softmax(x, -1),
    lambda draw: [draw.normal(4096, 4096)],
    dtype=ml_dtypes.bfloat16,
    tolerance=5e-2,
)
trace("log-softmax-256x1000", "of 256 rows", jax.nn.log_softmax, lambda draw: [draw.normal(256, 1000)])
trace(
    "rms-norm-bf16-2048x4096",
    "of 2048 rows, bf16",
    rms_norm,
    lambda draw: [draw.normal(2048, 4096), draw.normal(4096)],
    dtype=ml_dtypes.bfloat16,
    tolerance=2e-2,
)
trace(
    "logsumexp-4096",
    "of each of 4096 rows",
    lambda x: jax.nn.logsumexp(x, -1),
    lambda draw: [draw.normal(4096, 4096)],
)
