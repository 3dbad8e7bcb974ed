"""Programs that sort and select, each at any size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stablexla as sx
from benchmarks.programs.growing import grows
from benchmarks.programs.registry import PROGRAMS, Array, Built, Program


def counted(x: sx.XlaOp) -> sx.XlaOp:
    """The places of a row's elements."""
    return x.builder.iota(x.shape.with_element_type("s32"), x.shape.rank - 1)


def places(x: sx.XlaOp) -> sx.XlaOp:
    """What brings an array into order, as jnp.argsort has it."""
    return sx.sort((x, counted(x)), lambda a, b, i, j: sx.lt_total_order(a, b), is_stable=True)[1]


def by_two_keys(a: sx.XlaOp, b: sx.XlaOp, c: sx.XlaOp, d: sx.XlaOp, *_: sx.XlaOp) -> sx.XlaOp:
    return (a < b) | (sx.eq(a, b) & (c < d))


def by_distance(a: sx.XlaOp, b: sx.XlaOp) -> sx.XlaOp:
    """A comparator that is no plain order of its operands."""
    return sx.abs(a - 1.0) < sx.abs(b - 1.0)


def in_words(count: int) -> str:
    return f"{count // 1000}k" if count < 1_000_000 else f"{count // 1_000_000}m"


def vector(
    name: str, summary: str, build: Callable[..., sx.XlaOp], numpy: Callable[..., Array] | None
) -> Callable[[int], Program]:
    """A program on one row of any length."""

    def at(count: int) -> Program:
        text = f"{in_words(count)} {summary}"
        return Built(f"{name}-{in_words(count)}", text, (sx.f32[count],), build, numpy=numpy)

    return at


def sorted_by_distance(x: Array) -> Array:
    return x[np.argsort(np.abs(x - 1), kind="stable")]


def lexsort(count: int) -> Program:
    def draw(rng: np.random.Generator) -> list[Array]:
        return [rng.integers(0, 1000, count).astype(np.int32), rng.standard_normal(count, np.float32)]

    def build(x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
        return sx.sort((x, y, counted(x)), by_two_keys, is_stable=True)[2]

    def in_numpy(x: Array, y: Array) -> Array:
        return np.lexsort((y, x)).astype(np.int32)

    shapes = (sx.s32[count], sx.f32[count])
    text = f"what sorts {in_words(count)} pairs"
    return Built(f"lexsort-{in_words(count)}", text, shapes, build, numpy=in_numpy, draw=draw)


def top_k(rows: int, length: int, k: int, name: str = "") -> Program:
    def in_numpy(x: Array) -> Array:
        return -np.sort(-np.partition(x, length - k, axis=-1)[..., length - k :], axis=-1)

    return Built(
        name or f"top-{k}-{rows}x{length}",
        f"the {k} largest of each of {rows} rows of {length}",
        (sx.f32[rows, length],),
        lambda x: sx.top_k(x, k)[0],
        numpy=in_numpy,
    )


def rows(name: str, axis: int, shape: tuple[int, int]) -> Program:
    def in_numpy(x: Array) -> Array:
        return np.sort(x, axis=axis)

    text = f"a {shape[0]}x{shape[1]} array along dimension {axis}"
    return Built(name, text, (sx.Shape("f32", shape),), lambda x: sx.sort(x, sx.lt, axis), numpy=in_numpy)


def argsort_in_numpy(x: Array) -> Array:
    return np.argsort(x, kind="stable").astype(np.int32)


GROW: tuple[tuple[str, str, int, Any], ...] = (
    ("sort", "n numbers sorted", 100_000, vector("sort", "numbers sorted", lambda x: sx.sort(x, sx.lt), np.sort)),
    ("argsort", "what sorts n numbers", 100_000, vector("argsort", "numbers' places", places, argsort_in_numpy)),
    ("lexsort", "what sorts n pairs", 100_000, lexsort),
    (
        "sort-by",
        "n numbers sorted by a comparator that is no plain order",
        100_000,
        vector(
            "sort-by", "numbers by a distance", lambda x: sx.sort(x, by_distance, is_stable=True), sorted_by_distance
        ),
    ),
)
for name, summary, small, at in GROW:
    grows(name, summary, "n log n", (small, 10 * small))(at)
    large = at(10 * small)
    PROGRAMS[large.name] = large


def top_10(count: int) -> Program:
    return top_k(1, count, 10, f"top-10-{in_words(count)}")


grows("top-k", "the 10 largest of n numbers", "n", (1_000_000, 10_000_000))(top_10)
for program in (
    top_10(1_000_000),
    top_k(256, 50_257, 40),
    rows("sort-rows", 1, (1000, 1000)),
    rows("sort-columns", 0, (1000, 1000)),
    rows("sort-short-rows", 1, (100_000, 10)),
):
    PROGRAMS[program.name] = program
