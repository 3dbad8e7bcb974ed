"""BERT-base's encoder: twelve blocks on embedded tokens, normalized after each residual."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np

from benchmarks.models.transformer import WIDTH, Weights, attend, block_weights, dense, heads, norm
from benchmarks.traced import Draw, trace

LAYERS = 12


def block(x: jax.Array, weights: Weights) -> jax.Array:
    q, k, v = (heads(dense(x, weights[name])) for name in ("query", "key", "value"))
    x = norm(x + dense(attend(q, k, v), weights["output"]), weights["first"])
    inner = jax.nn.gelu(dense(x, weights["up"]), approximate=False)
    return norm(x + dense(inner, weights["down"]), weights["second"])


def encode(blocks: list[Weights], x: jax.Array) -> jax.Array:
    for weights in blocks:
        x = block(x, weights)
    return x


def enter(name: str, batch: int, tokens: int, dtype: Any, layers: int = LAYERS, **more: Any) -> None:
    def make(draw: Draw) -> list[Any]:
        return [[block_weights(draw) for _ in range(layers)], draw.normal(batch, tokens, WIDTH)]

    kind = np.dtype(dtype).name
    trace(name, f"{layers} blocks, {batch} x {tokens} tokens, {kind}", encode, make, dtype=dtype, **more)


enter("bert-base", 1, 128, np.float32, tolerance=1e-4)
# Engines round bf16 at different places.
enter("bert-base-bf16", 1, 128, ml_dtypes.bfloat16, tolerance=0.1, peak="bf16")
enter("bert-37-tokens", 1, 37, np.float32, tolerance=1e-4)
enter("bert-4-blocks-batch-8", 8, 128, np.float32, layers=4, tolerance=1e-4)
enter("bert-1-block-f64", 1, 128, np.float64, layers=1, tolerance=1e-10, peak="f64", wide=True)
