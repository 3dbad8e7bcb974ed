"""GPT-2 small: one token after a cache of keys and values, and the first 128 tokens at once."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from benchmarks.models.transformer import HEADS, WIDTH, Weights, attend, block_weights, dense, heads, norm, norm_weights
from benchmarks.traced import Draw, trace

LAYERS, WORDS, PLACES, CACHE = 12, 50257, 1024, 512
Cache = tuple[jax.Array, jax.Array]


def block(x: jax.Array, weights: Weights, cache: Cache | None, place: jax.Array | None) -> tuple[jax.Array, Cache]:
    """With a cache, the keys and values of `x` are put into it, and what lies behind them is not looked at."""
    normal = norm(x, weights["first"])
    q, k, v = (heads(dense(normal, weights[name])) for name in ("query", "key", "value"))
    if cache is None:
        mask = jnp.tril(jnp.ones((x.shape[1], x.shape[1]), bool))
    else:
        k, v = (
            jax.lax.dynamic_update_slice(old, new, (0, place, 0, 0)) for old, new in zip(cache, (k, v), strict=True)
        )
        mask = jnp.arange(k.shape[1]) <= place
    x = x + dense(attend(q, k, v, mask), weights["output"])
    inner = jax.nn.gelu(dense(norm(x, weights["second"]), weights["up"]))
    return x + dense(inner, weights["down"]), (k, v)


def logits(weights: Weights, x: jax.Array) -> jax.Array:
    """Of the last token."""
    return norm(x[:, -1], weights["last"]) @ weights["words"].T


def decode(weights: Weights, caches: list[Cache], token: jax.Array, place: jax.Array) -> tuple[jax.Array, list[Cache]]:
    x = weights["words"][token][:, None] + weights["places"][place]
    grown = []
    for inner, cache in zip(weights["blocks"], caches, strict=True):
        x, made = block(x, inner, cache, place)
        grown.append(made)
    return logits(weights, x), grown


def prefill(weights: Weights, tokens: jax.Array) -> tuple[jax.Array, list[Cache]]:
    x = weights["words"][tokens] + weights["places"][: tokens.shape[1]]
    caches = []
    for inner in weights["blocks"]:
        x, made = block(x, inner, None, None)
        caches.append(made)
    return logits(weights, x), caches


def all_weights(draw: Draw) -> Weights:
    return {
        "blocks": [block_weights(draw) for _ in range(LAYERS)],
        "words": draw.normal(WORDS, WIDTH, scale=0.02),
        "places": draw.normal(PLACES, WIDTH, scale=0.01),
        "last": norm_weights(draw),
    }


def enter_decode(name: str, batch: int, dtype: Any, **more: Any) -> None:
    def make(draw: Draw) -> list[Any]:
        shape = (batch, CACHE, HEADS, WIDTH // HEADS)
        caches = [(draw.normal(*shape), draw.normal(*shape)) for _ in range(LAYERS)]
        return [all_weights(draw), caches, draw.integers(WORDS, batch), draw.fixed(np.int32(CACHE - 12))]

    text = f"a token for {batch} after {CACHE - 12} cached, {np.dtype(dtype).name}"
    trace(name, text, decode, make, dtype=dtype, **more)


def enter_prefill(name: str, tokens: int, dtype: Any, **more: Any) -> None:
    def make(draw: Draw) -> list[Any]:
        return [all_weights(draw), draw.integers(WORDS, 1, tokens)]

    trace(name, f"the first {tokens} tokens, {np.dtype(dtype).name}", prefill, make, dtype=dtype, **more)


enter_decode("gpt2-decode", 1, np.float32, tolerance=1e-4)
enter_decode("gpt2-decode-batch-8", 8, np.float32, tolerance=1e-4)
enter_decode("gpt2-decode-bf16", 1, ml_dtypes.bfloat16, tolerance=0.1, peak="bf16")
enter_prefill("gpt2-prefill-128", 128, np.float32, tolerance=1e-4)
