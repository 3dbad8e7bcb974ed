"""Windows and scans of JAX: pooling, running sums and maxima, associative scans."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.traced import trace


def largest(x: Any) -> Any:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def recurrence(x: Any, y: Any) -> Any:
    """h = x * h + y, all at once."""
    return jax.lax.associative_scan(lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1]), (x, y))[1]


def enter(name: str, text: str, function: Any, *shapes: tuple[int, ...], **more: Any) -> None:
    trace(name, text, function, lambda draw: [draw.normal(*s) for s in shapes], **{"tolerance": 1e-4} | more)


enter("max-pool-batch-32", "3x3 at every second place of 32x112x112x64", largest, (32, 112, 112, 64))
enter("max-pool-57", "3x3 at every second place of 57x57x63", largest, (1, 57, 57, 63))
enter(
    "avg-pool-7x7",
    "global, of 32x7x7x512",
    lambda x: x.mean((1, 2)),
    (32, 7, 7, 512),
    numpy=lambda x: x.mean((1, 2)),
)
enter("cumsum-f64-1m", "of 1000003", jnp.cumsum, (1_000_003,), numpy=np.cumsum, dtype=np.float64, wide=True)
enter(
    "cummax-1m",
    "of 1000003",
    lambda x: jax.lax.cummax(x),
    (1_000_003,),
    numpy=np.maximum.accumulate,
)
enter("associative-sum-1m", "sums from the beginning", lambda x: jax.lax.associative_scan(jnp.add, x), (1 << 20,))
enter(
    "associative-recurrence-1m",
    "h = x * h + y",
    recurrence,
    (1 << 20,),
    (1 << 20,),
    tolerance=1e-3,
)
enter(
    "associative-rows",
    "sums along the rows of 256x4096",
    lambda x: jax.lax.associative_scan(jnp.add, x, axis=1),
    (256, 4096),
)
