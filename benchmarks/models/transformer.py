"""What the transformers share: normalization, attention, the two dense layers of a block, and their weights."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.traced import Draw

WIDTH, HEADS, HIDDEN = 768, 12, 3072
Weights = dict[str, Any]


def norm(x: jax.Array, weights: Weights) -> jax.Array:
    """Layer normalization, computed in f32 or wider."""
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean = wide.mean(-1, keepdims=True)
    variance = jnp.square(wide - mean).mean(-1, keepdims=True)
    normal = (wide - mean) * jax.lax.rsqrt(variance + 1e-5)
    return (normal * weights["scale"] + weights["offset"]).astype(x.dtype)


def dense(x: jax.Array, weights: Weights) -> jax.Array:
    return x @ weights["kernel"] + weights["bias"]


def heads(x: jax.Array) -> jax.Array:
    """(batch, places, width) to (batch, places, heads, width of a head)."""
    return x.reshape(*x.shape[:2], HEADS, -1)


def attend(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array | None = None) -> jax.Array:
    """Attention over (batch, places, heads, width of a head), with the heads side by side afterwards."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1]).astype(q.dtype)
    if mask is not None:
        scores = jnp.where(mask, scores, jnp.finfo(scores.dtype).min)
    chances = jax.nn.softmax(scores.astype(jnp.promote_types(q.dtype, jnp.float32)), -1).astype(q.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", chances, v).reshape(*q.shape[:2], WIDTH)


def dense_weights(draw: Draw, inputs: int, outputs: int) -> Weights:
    return {"kernel": draw.dense(inputs, outputs), "bias": draw.normal(outputs, scale=0.02)}


def norm_weights(draw: Draw) -> Weights:
    return {"scale": draw.near_one(WIDTH), "offset": draw.normal(WIDTH, scale=0.02)}


def block_weights(draw: Draw) -> Weights:
    """Of one block; query, key and value are three layers."""
    return {
        **{name: dense_weights(draw, WIDTH, WIDTH) for name in ("query", "key", "value", "output")},
        "up": dense_weights(draw, WIDTH, HIDDEN),
        "down": dense_weights(draw, HIDDEN, WIDTH),
        "first": norm_weights(draw),
        "second": norm_weights(draw),
    }
