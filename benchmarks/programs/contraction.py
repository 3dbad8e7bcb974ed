"""Products of matrices: square ones, some whose sizes no tile divides, with few rows or columns, in narrow types."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import stablexla as sx
from benchmarks.programs.registry import Array, add

SIZES = (
    *((n, n, n) for n in (128, 256, 512, 1024, 2048)),
    (1000, 1001, 999),
    (37, 1001, 53),
    (8, 4096, 4096),
    (16, 512, 2048),
    (32, 4096, 4096),
    (4096, 4096, 8),
)


def add_product(rows: int, inner: int, columns: int, element: str = "f32", result: str = "", **more: Any) -> None:
    """A product of two matrices; with a result's type of its own where one is said."""
    result = result or element
    sizes = str(rows) if rows == inner == columns else f"{rows}x{inner}x{columns}"
    types = [kind for kind in (element, result) if kind != "f32" or result != element]
    name = "-".join(["matmul", *dict.fromkeys(types), sizes]) if types else f"matmul-{sizes}"
    shapes = [sx.Shape(element, (rows, inner)), sx.Shape(element, (inner, columns))]

    def build(x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
        return sx.dot(x, y, preferred_element_type=result)

    in_numpy = (lambda x, y: x @ y) if element in ("f32", "f64") else None
    defaults = {"numpy": in_numpy, "operations": 2.0 * rows * inner * columns, "peak": PEAKS.get(element, element)}
    text = f"({rows},{inner}) by ({inner},{columns}), {element} to {result}"
    add(name, text, shapes, build, **{**defaults, **more})


def drawn_integers(rows: int, inner: int, columns: int) -> Any:
    def draw(rng: np.random.Generator) -> list[Array]:
        return [rng.integers(-128, 128, shape).astype(np.int8) for shape in ((rows, inner), (inner, columns))]

    return draw


def add_constant_product(rows: int, inner: int, columns: int) -> None:
    """A product with a matrix that the program holds itself."""

    @cache
    def weight() -> Array:
        return np.resize(np.random.default_rng(7).standard_normal(99_991).astype(np.float32), (inner, columns))

    add(
        f"matmul-constant-{rows}x{inner}x{columns}",
        f"({rows},{inner}) by a constant ({inner},{columns}), f32",
        [sx.f32[rows, inner]],
        lambda x: sx.dot(x, x.builder.constant(weight())),
        numpy=lambda x: x @ weight(),
        operations=2.0 * rows * inner * columns,
    )


PEAKS = {"s8": "int8"}
for sizes in SIZES:
    add_product(*sizes)
for n in (1024, 2048):
    add_product(n, n, n, "bf16", "f32")
    add_product(n, n, n, "bf16", tolerance=1e-2)
add_product(1000, 1001, 999, "bf16", tolerance=1e-2)
add_product(8, 4096, 4096, "bf16", "f32")
add_product(1024, 1024, 1024, "f16", "f32", tolerance=1e-3)
for sizes in ((1024, 1024, 1024), (500, 501, 499)):
    add_product(*sizes, "s8", "s32", draw=drawn_integers(*sizes))
    add_product(*sizes, "f64")
add_constant_product(128, 1024, 1024)

LONG = 4096
add(
    "matvec-4096",
    "(4096,4096) by (4096)",
    [sx.f32[LONG, LONG], sx.f32[LONG]],
    lambda x, y: sx.dot(x, y),
    numpy=lambda x, y: x @ y,
    operations=2.0 * LONG * LONG,
    tolerance=1e-4,
)
add(
    "vecmat-4096",
    "(4096) by (4096,4096)",
    [sx.f32[LONG], sx.f32[LONG, LONG]],
    lambda x, y: sx.dot(x, y),
    numpy=lambda x, y: x @ y,
    operations=2.0 * LONG * LONG,
    tolerance=1e-4,
)
add(
    "matmul-transposed-1024",
    "(1024,1024) by another one's transpose",
    [sx.f32[1024, 1024], sx.f32[1024, 1024]],
    lambda x, y: x @ sx.transpose(y, (1, 0)),
    numpy=lambda x, y: x @ y.T,
    operations=2.0 * 1024**3,
)
add(
    "matmul-turned-1024",
    "the transpose of (1024,1024) by (1024,1024)",
    [sx.f32[1024, 1024], sx.f32[1024, 1024]],
    lambda x, y: sx.transpose(x, (1, 0)) @ y,
    numpy=lambda x, y: x.T @ y,
    operations=2.0 * 1024**3,
)


BY_BATCH = sx.DotDimensionNumbers((2,), (1,), (0,), (0,))


def add_batch(batch: int, rows: int, inner: int, columns: int, element: str = "f32") -> None:
    shapes = [sx.Shape(element, (batch, rows, inner)), sx.Shape(element, (batch, inner, columns))]
    suffix = "" if element == "f32" else f"-{element}"
    add(
        f"batch-matmul-{batch}x{rows}x{inner}x{columns}{suffix}",
        f"{batch} products of ({rows},{inner}) by ({inner},{columns}), {element}",
        shapes,
        lambda x, y: sx.dot_general(x, y, BY_BATCH),
        numpy=np.matmul,
        operations=2.0 * batch * rows * inner * columns,
        peak=element,
    )


add_batch(1000, 8, 8, 8)
add_batch(1000, 17, 29, 33)
add_batch(96, 128, 64, 128)
add_batch(32, 1, 512, 512)
add_batch(100, 32, 32, 32, "f64")


def add_dots(name: str, count: int, length: int, dimension: int) -> None:
    """Dot products of many pairs of vectors, whose elements lie along a dimension."""
    shape = (count, length) if dimension else (length, count)
    add(
        name,
        f"{count} dot products of {length} elements along dimension {dimension}, f32",
        [sx.Shape("f32", shape)] * 2,
        lambda x, y: sx.dot_general(
            x, y, sx.DotDimensionNumbers((dimension,), (dimension,), (1 - dimension,), (1 - dimension,))
        ),
        numpy=lambda x, y: np.einsum("ij,ij->i" if dimension else "ij,ij->j", x, y),
        operations=2.0 * count * length,
    )


add_dots("dots-100k-of-3", 100_000, 3, 1)
add_dots("dots-10k-of-64-columns", 10_000, 64, 0)
