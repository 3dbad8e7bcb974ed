"""Cholesky factors and triangular systems: of one large matrix, and of many small ones."""

from __future__ import annotations

import numpy as np

import stablexla as sx
from benchmarks.programs.growing import grows
from benchmarks.programs.registry import PROGRAMS, Array, Built, Program


def matrices(rng: np.random.Generator, batch: int, n: int) -> Array:
    """Positive definite ones."""
    a = rng.standard_normal((batch, n, n), np.float32)
    return np.asarray(a @ np.swapaxes(a, -1, -2) + n * np.eye(n, dtype=np.float32))


def cholesky(batch: int, n: int) -> Program:
    return Built(
        f"cholesky-{batch}x{n}",
        f"the factors of {batch} matrices of {n} rows",
        (sx.f32[batch, n, n],),
        lambda a: sx.cholesky(a, lower=True),
        numpy=np.linalg.cholesky,
        operations=batch * n**3 / 3,
        tolerance=1e-4,
        draw=lambda rng: [matrices(rng, batch, n)],
    )


def solve(batch: int, n: int, count: int) -> Program:
    def draw(rng: np.random.Generator) -> list[Array]:
        return [np.tril(matrices(rng, batch, n)), rng.standard_normal((batch, n, count), np.float32)]

    return Built(
        f"triangular-solve-{batch}x{n}x{count}",
        f"{batch} lower triangles of {n} rows, {count} right-hand sides each",
        (sx.f32[batch, n, n], sx.f32[batch, n, count]),
        lambda a, b: sx.triangular_solve(a, b, True, True, False, "NO_TRANSPOSE"),
        numpy=np.linalg.solve,
        operations=float(batch * n * n * count),
        tolerance=1e-4,
        draw=draw,
    )


for made in (
    cholesky(1000, 4),
    cholesky(1000, 32),
    cholesky(1, 512),
    solve(1000, 4, 4),
    solve(1000, 32, 8),
    solve(1, 512, 512),
):
    PROGRAMS[made.name] = made


def one_factor(n: int) -> Program:
    return cholesky(1, n)


def one_system(n: int) -> Program:
    return solve(1, n, n)


grows("cholesky", "the factor of a matrix of n rows", "n^3", (256, 1024))(one_factor)
grows("triangular-solve", "n right-hand sides of a triangle of n rows", "n^3", (256, 1024))(one_system)
