"""Programs that read and write where indices say: rows and single elements, each at any size."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import stablexla as sx
from benchmarks.programs.growing import grows
from benchmarks.programs.registry import PROGRAMS, Array, Built, Program

Draw = Callable[[np.random.Generator], list[Array]]
# Slices are rows, or single elements, at indices that are one number each.
ROWS = sx.GatherDimensionNumbers((1,), (0,), (0,), 1)
ELEMENTS = sx.GatherDimensionNumbers((), (0,), (0,), 1)
INTO_ROWS = sx.ScatterDimensionNumbers((1,), (0,), (0,), 1)
INTO_ELEMENTS = sx.ScatterDimensionNumbers((), (0,), (0,), 1)


def drawn(shape: sx.Shape, count: int, updates: sx.Shape | None = None) -> Draw:
    """An array, so many indices into its first dimension, and maybe updates."""

    def draw(rng: np.random.Generator) -> list[Array]:
        places = rng.integers(0, shape.dimensions[0], count).astype(np.int32)
        rest = [] if updates is None else [rng.standard_normal(updates.dimensions, np.float32)]
        return [rng.standard_normal(shape.dimensions, np.float32), places, *rest]

    return draw


def added(total: Array, places: Array, values: Array) -> Array:
    total = total.copy()
    np.add.at(total, places, values)
    return total


def gather_rows(count: int) -> Program:
    table = sx.f32[count // 2, 128]
    return Built(
        f"gather-rows-{count // 1000}k",
        f"{count // 1000}k rows of 128 numbers from half as many",
        (table, sx.s32[count]),
        lambda x, i: sx.gather(x, i, dimension_numbers=ROWS, slice_sizes=(1, 128)),
        numpy=lambda x, i: np.take(x, i, 0),
        draw=drawn(table, count),
    )


def gather_elements(count: int) -> Program:
    table = sx.f32[1_000_000]
    return Built(
        f"gather-{count // 1000}k",
        f"{count // 1000}k numbers from a million",
        (table, sx.s32[count]),
        lambda x, i: sx.gather(x, i, dimension_numbers=ELEMENTS, slice_sizes=(1,)),
        numpy=np.take,
        draw=drawn(table, count),
    )


def scatter_elements(count: int) -> Program:
    line = sx.f32[count]
    return Built(
        f"scatter-add-{count // 1000}k",
        f"{count // 1000}k numbers added to as many",
        (line, sx.s32[count], line),
        lambda x, i, u: sx.scatter(x, i, u, sx.add, dimension_numbers=INTO_ELEMENTS),
        numpy=added,
        draw=drawn(line, count, line),
    )


def segment_sum(count: int) -> Program:
    sums, values = sx.f32[10_000, 16], sx.f32[count, 16]
    return Built(
        f"segment-sum-{count // 1000}k",
        f"{count // 1000}k rows of 16 numbers added to 10k",
        (sums, sx.s32[count], values),
        lambda x, i, u: sx.scatter(x, i, u, sx.add, dimension_numbers=INTO_ROWS),
        numpy=added,
        draw=drawn(sums, count, values),
        tolerance=1e-4,
    )


for name, summary, small, at in (
    ("gather-rows", "n rows of 128 numbers from half as many", 10_000, gather_rows),
    ("gather", "n numbers from a million", 100_000, gather_elements),
    ("scatter-add", "n numbers added to as many", 100_000, scatter_elements),
    ("segment-sum", "n rows of 16 numbers added to 10k", 100_000, segment_sum),
):
    grows(name, summary, "n", (small, 10 * small))(at)
    large = at(10 * small)
    PROGRAMS[large.name] = large
