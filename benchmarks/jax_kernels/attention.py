"""Attention as JAX users write it: softmax of scaled products, with and without a mask."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from benchmarks.traced import trace


def attention(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """Over (heads, places, width)."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k) * np.array(q.shape[-1] ** -0.5, q.dtype)
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, -1), v)


def causal(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
    """A place sees those before it and itself."""
    scores = jnp.einsum("hqd,hkd->hqk", q, k) * np.array(q.shape[-1] ** -0.5, q.dtype)
    seen = jnp.tril(jnp.ones(scores.shape[1:], bool))
    chances = jax.nn.softmax(jnp.where(seen, scores, jnp.finfo(q.dtype).min), -1)
    return jnp.einsum("hqk,hkd->hqd", chances, v)


def with_bias(q: jax.Array, k: jax.Array, v: jax.Array, bias: jax.Array) -> jax.Array:
    """In (batch, places, heads, width), as flax has it."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q / jnp.sqrt(q.shape[-1]).astype(q.dtype), k) + bias
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v)


def gradient(function: Any) -> Any:
    """What training takes: the derivatives by q, k and v, from that by the result."""

    def backward(q: jax.Array, k: jax.Array, v: jax.Array, towards: jax.Array) -> Any:
        return jax.vjp(function, q, k, v)[1](towards)

    return backward


def enter(name: str, function: Any, heads: int, places: int, width: int, dtype: Any = np.float32, **more: Any) -> None:
    text = f"{heads} heads x {places} x {width}, {np.dtype(dtype).name}"
    defaults = {"tolerance": 1e-4, "dtype": dtype}
    trace(name, text, function, lambda draw: [draw.normal(heads, places, width) for _ in range(3)], **defaults | more)


enter("attention-96x512x64", attention, 96, 512, 64)
enter("attention-causal-12x1024x64", causal, 12, 1024, 64)
enter("attention-7x37x50", attention, 7, 37, 50)
enter("attention-12x128x64-bf16", attention, 12, 128, 64, ml_dtypes.bfloat16, tolerance=0.05, peak="bf16")
enter("attention-12x128x64-f64", attention, 12, 128, 64, np.float64, tolerance=1e-10, peak="f64", wide=True)
trace(
    "attention-bias-4x128x12x64",
    "4 sequences of 128 with 12 heads x 64 and a bias",
    with_bias,
    lambda draw: [*(draw.normal(4, 128, 12, 64) for _ in range(3)), draw.normal(1, 12, 128, 128)],
    tolerance=1e-4,
)
for name, function, heads, places in (
    ("attention-gradient-12x512x64", attention, 12, 512),
    ("attention-gradient-causal-12x512x64", causal, 12, 512),
    ("attention-gradient-7x37x64", attention, 7, 37),
):
    trace(
        name,
        f"derivatives by q, k and v, {heads} heads x {places} x 64",
        gradient(function),
        lambda draw, shape=(heads, places, 64): [draw.normal(*shape) for _ in range(4)],
        tolerance=1e-4,
    )
