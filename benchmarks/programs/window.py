"""Programs that slide windows: pooling and its gradient, running and moving sums, and batch normalization."""

from __future__ import annotations

import numpy as np

import stablexla as sx
from benchmarks.programs.growing import grows
from benchmarks.programs.registry import Array, Built, Program, add

POOL, HALVES = (1, 3, 3, 1), (1, 2, 2, 1)
IMAGE = sx.f32[1, 112, 112, 64]


def lowest(x: sx.XlaOp) -> sx.XlaOp:
    return x.builder.constant(-np.inf, "f32")


def pooled(x: sx.XlaOp) -> sx.XlaOp:
    """The largest of 3 by 3 elements, at every second place."""
    return sx.reduce_window(x, lowest(x), sx.max, POOL, HALVES, "SAME")


def pooled_in_numpy(x: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]
    return np.asarray(windows.max((-2, -1)))


def averaged(x: sx.XlaOp) -> sx.XlaOp:
    """The mean of 2 by 2 elements that lie side by side, channels before columns."""
    return sx.reduce_window(x, x.builder.constant(0.0), sx.add, (1, 1, 2, 2), (1, 1, 2, 2), "VALID") * 0.25


def averaged_in_numpy(x: Array) -> Array:
    batch, channels, rows, columns = x.shape
    return np.asarray(x.reshape(batch, channels, rows // 2, 2, columns // 2, 2).mean((3, 5)))


def gradient_of_pooled(x: sx.XlaOp, gradient: sx.XlaOp) -> sx.XlaOp:
    return sx.select_and_scatter(x, sx.ge, POOL, HALVES, "SAME", gradient, x.builder.constant(0.0), sx.add)


def cumulative(x: sx.XlaOp, axis: int) -> sx.XlaOp:
    """Sums from the beginning of a dimension, as JAX writes them."""
    extents = x.shape.dimensions
    size = [n if d == axis else 1 for d, n in enumerate(extents)]
    padding = [(n - 1, 0) if d == axis else (0, 0) for d, n in enumerate(extents)]
    return sx.reduce_window(x, x.builder.constant(0.0), sx.add, size, [1] * len(extents), padding)


def cumulative_program(name: str, summary: str, shape: sx.Shape, axis: int) -> Program:
    # Sums of a million numbers that cancel: engines add them up in different orders.
    return Built(
        name,
        summary,
        (shape,),
        lambda x: cumulative(x, axis),
        numpy=lambda x: np.cumsum(x, axis, dtype=np.float32),
        tolerance=1e-4,
    )


def moving(x: sx.XlaOp, size: int) -> sx.XlaOp:
    """The largest of each `size` neighbours."""
    return sx.reduce_window(x, lowest(x), sx.max, (size,), (1,), "VALID")


def enter(program: Program) -> None:
    add(**vars(program))


def moving_program(count: int) -> Program:
    return Built(
        f"moving-max-{count}",
        f"the largest of each 1000 of {count} numbers",
        (sx.f32[count],),
        lambda x: moving(x, 1000),
    )


def normalized(x: sx.XlaOp, scale: sx.XlaOp, offset: sx.XlaOp) -> sx.XlaOp:
    return sx.batch_norm_training(x, scale, offset, 1e-3, 3)[0]


def normalized_in_numpy(x: Array, scale: Array, offset: Array) -> Array:
    axes = (0, 1, 2)
    centred = x - x.mean(axes)
    return np.asarray(scale * centred / np.sqrt((centred * centred).mean(axes) + np.float32(1e-3)) + offset)


add("max-pool", "3x3 at every second place of 112x112x64", [IMAGE], pooled, numpy=pooled_in_numpy)
add(
    "avg-pool",
    "2x2 of 64x112x112, channels first",
    [sx.f32[1, 64, 112, 112]],
    averaged,
    numpy=averaged_in_numpy,
)
add("max-pool-gradient", "of max-pool", [IMAGE, sx.f32[1, 56, 56, 64]], gradient_of_pooled)
enter(cumulative_program("cumsum-1m", "sums from the beginning of 1M numbers", sx.f32[1 << 20], 0))
enter(cumulative_program("cumsum-rows", "along each of 4096 rows of 4096", sx.f32[4096, 4096], 1))
enter(cumulative_program("cumsum-columns", "along each of 4096 columns of 4096", sx.f32[4096, 4096], 0))
enter(moving_program(1 << 16))
add(
    "batch-norm",
    "of 8x56x56x64, in training",
    [sx.f32[8, 56, 56, 64], sx.f32[64], sx.f32[64]],
    normalized,
    numpy=normalized_in_numpy,
)

grows("cumsum", "sums from the beginning of n numbers", "n", (100_000, 1_000_000))(
    lambda count: cumulative_program(f"cumsum-{count}", f"of {count} numbers", sx.f32[count], 0)
)
grows("moving-max", "the largest of each 1000 of n numbers", "n", (100_000, 1_000_000))(moving_program)
