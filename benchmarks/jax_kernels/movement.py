"""Data moved by JAX: pads, reversals, concatenations, slices, transposes of other shapes and element types."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from benchmarks.traced import trace

N = 4096
IMAGES = (32, 56, 56, 64)


def enter(name: str, text: str, function: Any, numpy: Any, *shapes: tuple[int, ...], **more: Any) -> None:
    trace(name, text, function, lambda draw: [draw.normal(*shape) for shape in shapes], numpy=numpy, **more)


def turned(x: Any) -> Any:
    return np.ascontiguousarray(x.T)


enter("transpose-1000x1003", "of a matrix", lambda x: x.T, turned, (1000, 1003))
enter("transpose-bf16-4096", "of a matrix", lambda x: x.T, turned, (N, N), dtype=ml_dtypes.bfloat16)
enter("transpose-f64-2048", "of a matrix", lambda x: x.T, turned, (2048, 2048), dtype=np.float64, wide=True)
enter(
    "channels-first-32x56",
    "32x56x56x64 with channels moved to the front",
    lambda x: x.transpose(0, 3, 1, 2),
    lambda x: np.ascontiguousarray(x.transpose(0, 3, 1, 2)),
    IMAGES,
)
enter("pad-4096", "by one at each side", lambda x: jnp.pad(x, 1), lambda x: np.pad(x, 1), (N, N))
enter(
    "pad-images",
    "by 3 around 8 images",
    lambda x: jnp.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0))),
    lambda x: np.pad(x, ((0, 0), (3, 3), (3, 3), (0, 0))),
    (8, 56, 56, 64),
)
enter("reverse-4096", "of rows", lambda x: jnp.flip(x, 1), lambda x: x[:, ::-1].copy(), (N, N))
enter("reverse-columns-4096", "of columns", lambda x: jnp.flip(x, 0), lambda x: x[::-1].copy(), (N, N))
enter(
    "concatenate-4096",
    "two matrices, rows of one beside rows of the other",
    lambda x, y: jnp.concatenate([x, y], 1),
    lambda x, y: np.concatenate([x, y], 1),
    (N, N),
    (N, N),
)
enter(
    "concatenate-columns-1000",
    "three of 1000x1001",
    lambda x, y, z: jnp.concatenate([x, y, z]),
    lambda x, y, z: np.concatenate([x, y, z]),
    *[(1000, 1001)] * 3,
)
HALF = 4.0 * N * N // 4
enter(
    "slice-4096",
    "the middle of a matrix",
    lambda x: x[1000:3048, 1000:3048],
    lambda x: x[1000:3048, 1000:3048].copy(),
    (N, N),
    moved=(HALF, HALF),
)
enter(
    "slice-strided-4096",
    "every second column",
    lambda x: x[:, ::2],
    lambda x: x[:, ::2].copy(),
    (N, N),
    moved=(4 * HALF, 2 * HALF),
)
enter("roll-4096", "rows moved by 5", lambda x: jnp.roll(x, 5, 1), lambda x: np.roll(x, 5, 1), (N, N))
enter("tile-1024", "a matrix repeated 2x2", lambda x: jnp.tile(x, (2, 2)), lambda x: np.tile(x, (2, 2)), (1024, 1024))
enter(
    "repeat-1024x512", "each row four times", lambda x: jnp.repeat(x, 4, 0), lambda x: np.repeat(x, 4, 0), (1024, 512)
)
enter(
    "stack-512",
    "four matrices, one element beside the other",
    lambda *xs: jnp.stack(xs, -1),
    lambda *xs: np.stack(xs, -1),
    *[(512, 512)] * 4,
)
enter("split-heads", "(8,128,768) into heads", lambda x: x.reshape(8, 128, 12, 64).swapaxes(1, 2), None, (8, 128, 768))
trace(
    "update-slice-4096",
    "64 rows of a matrix replaced",
    lambda x, y, i: jax.lax.dynamic_update_slice(x, y, (i, 0)),
    lambda draw: [draw.normal(N, N), draw.normal(64, N), draw.fixed(np.int32(77))],
)
