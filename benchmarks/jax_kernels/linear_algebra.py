"""Factorizations of JAX: what it lowers to LAPACK, and cholesky and triangular systems in other sizes and types."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.traced import trace


def square(n: int) -> Any:
    """Matrices that are far from singular."""
    return lambda draw: [draw.normal(n, n)]


def positive(n: int, *batch: int) -> Any:
    """Symmetric ones: the same in each run."""

    def make(draw: Any) -> list[Any]:
        a = np.random.default_rng(7).standard_normal((*batch, n, n))
        return [draw.fixed((a @ np.swapaxes(a, -1, -2) + n * np.eye(n)).astype(draw.dtype))]

    return make


def enter(name: str, text: str, function: Any, make: Any, numpy: Any, operations: float, **more: Any) -> None:
    trace(name, text, function, make, numpy=numpy, operations=operations, **{"tolerance": 1e-3} | more)


def solve(a: Any, b: Any) -> Any:
    return jax.scipy.linalg.solve_triangular(a, b, lower=True)


def system(n: int, count: int) -> Any:
    return lambda draw: [*positive(n)(draw), draw.normal(n, count)]


enter("cholesky-1000", "a matrix of 1000 rows", jnp.linalg.cholesky, positive(1000), np.linalg.cholesky, 1000**3 / 3)
enter(
    "cholesky-f64-512",
    "a matrix of 512 rows, f64",
    jnp.linalg.cholesky,
    positive(512),
    np.linalg.cholesky,
    512**3 / 3,
    dtype=np.float64,
    wide=True,
    peak="f64",
    tolerance=1e-10,
)
enter(
    "solve-triangular-1000x1",
    "one right-hand side",
    solve,
    system(1000, 1),
    None,
    1000.0**2,
)
enter("lu-512", "of 512 rows", lambda a: jax.lax.linalg.lu(a)[0], square(512), None, 2 * 512**3 / 3, tolerance=1e-2)
enter("solve-500", "500 equations", jnp.linalg.solve, system(500, 10), np.linalg.solve, 2 * 500**3 / 3)
enter("inverse-300", "of 300 rows", jnp.linalg.inv, positive(300), np.linalg.inv, 2.0 * 300**3)
enter(
    "qr-512",
    "the triangle's magnitudes, of 512 rows",
    lambda a: jnp.abs(jnp.linalg.qr(a)[1]),
    square(512),
    lambda a: np.abs(np.linalg.qr(a)[1]),
    8 * 512**3 / 3,
)
enter(
    "eigh-200",
    "the values of 200 rows",
    lambda a: jnp.linalg.eigh(a)[0],
    positive(200),
    lambda a: np.linalg.eigh(a)[0],
    9.0 * 200**3,
)
enter(
    "svd-200",
    "the values of 200 rows",
    lambda a: jnp.linalg.svd(a)[1],
    square(200),
    lambda a: np.linalg.svd(a)[1],
    20.0 * 200**3,
)
