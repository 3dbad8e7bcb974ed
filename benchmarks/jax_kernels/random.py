"""Random numbers as jax.random lowers them: threefry written out, and what is made of its bits."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from benchmarks.traced import trace

# Two words take 20 rounds of an addition, a rotation (three operations) and an exclusive or, and some 20 for the keys.
PER_WORD = (20 * 5 + 20) / 2
MANY, FEWER = 1 << 24, 1 << 22


def key(draw: Any) -> list[Any]:
    return [draw.fixed(np.array([42, 1234567], np.uint32))]


def enter(name: str, text: str, function: Any, count: int, **more: Any) -> None:
    trace(name, text, function, key, operations=PER_WORD * count, peak="int32", **more)


enter("jax-bits-16m", "16Mi words of jax.random.bits", lambda k: jax.random.bits(k, (MANY,)), MANY)
enter("jax-uniform-4m", "4Mi numbers", lambda k: jax.random.uniform(k, (FEWER,)), FEWER)
enter("jax-normal-4m", "4Mi numbers", lambda k: jax.random.normal(k, (FEWER,)), FEWER, tolerance=1e-5)
enter("jax-bernoulli-4m", "4Mi times yes or no", lambda k: jax.random.bernoulli(k, 0.1, (FEWER,)), FEWER)
enter("jax-bits-1000003", "a million and three words", lambda k: jax.random.bits(k, (1_000_003,)), 1_000_003)
enter("jax-permutation-100k", "of 100000", lambda k: jax.random.permutation(k, 100_000), 100_000)
trace(
    "jax-dropout-4m",
    "a tenth of 4Mi numbers made 0",
    lambda k, x: jax.numpy.where(jax.random.bernoulli(k, 0.9, x.shape), x / 0.9, 0.0),
    lambda draw: [*key(draw), draw.normal(FEWER)],
    operations=PER_WORD * FEWER,
    peak="int32",
)
