"""Small programs with scatters, scans, sorts and other operations whose threads are not all alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stablexla as sx
from tests.gpu.programs import numbers

Program = tuple[Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]


def integers(*shape: int, below: int, seed: int = 0, dtype: Any = np.int32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(-3, below + 3, shape).astype(dtype)


def replaced(old: sx.XlaOp, new: sx.XlaOp) -> sx.XlaOp:
    return new


def weighted(old: sx.XlaOp, new: sx.XlaOp) -> sx.XlaOp:
    """Neither associative nor commutative."""
    return old * 0.5 + new


def into(*, window: tuple[int, ...] = (), computation: Any = sx.add, inserted: Any = (0,), **more: Any) -> Any:
    """A scatter by one number each into the first dimension."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp, indices: sx.XlaOp, updates: sx.XlaOp) -> sx.XlaOp:
        return sx.scatter(x, indices, updates, computation, 1, window, inserted, (0,), **more)

    return make


def into_both(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp, indices: sx.XlaOp, u: sx.XlaOp, v: sx.XlaOp) -> Any:
    """Two arrays at once, which each other's elements decide."""

    def larger(a: sx.XlaOp, i: sx.XlaOp, c: sx.XlaOp, j: sx.XlaOp) -> Any:
        take = sx.gt(c, a)
        return sx.tuple((sx.select(take, c, a), sx.select(take, j, i)))

    return sx.scatter((x, y), indices, (u, v), larger, 1, (), (0,), (0,))


def batched(b: sx.XlaBuilder, x: sx.XlaOp, indices: sx.XlaOp, updates: sx.XlaOp) -> sx.XlaOp:
    dimensions = {"input_batching_dims": (0,), "scatter_indices_batching_dims": (0,)}
    return sx.scatter(x, indices, updates, sx.add, 2, (2,), (1,), (1,), **dimensions)


COUNTS = np.arange(9, dtype=np.int32) * 3

SCATTERS: dict[str, Program] = {
    "atomic": (into(), (COUNTS, integers(700, below=9, seed=1), integers(700, below=5, seed=2))),
    "atomic-rows": (
        into(window=(1,), computation=sx.max),
        (integers(9, 40, below=9), integers(70, below=9, seed=1), integers(70, 40, below=50, seed=2)),
    ),
    "narrow": (into(), (numbers(300), integers(2500, below=300, seed=1), numbers(2500, seed=2))),
    "narrow-f64": (
        into(computation=weighted),
        (numbers(30, dtype=np.float64), integers(90, below=30, seed=1, dtype=np.int64), numbers(90, dtype=np.float64)),
    ),
    "rows": (into(window=(1,)), (numbers(50, 33), integers(300, below=50, seed=1), numbers(300, 33, seed=2))),
    "wide-rows": (into(window=(1,)), (numbers(7, 2500), integers(20, below=7, seed=1), numbers(20, 2500, seed=2))),
    "last-one-stays": (
        into(window=(1,), computation=replaced),
        (numbers(20, 17), integers(90, below=20, seed=1), numbers(90, 17, seed=2)),
    ),
    "distinct": (
        into(computation=replaced, unique_indices=True),
        (numbers(99), np.random.default_rng(1).permutation(99)[:60].astype(np.int32), numbers(60)),
    ),
    "partly": (
        into(window=(1,), inserted=(), unique_indices=False),
        (numbers(40), integers(12, below=40, seed=1), numbers(12, 7, seed=2)),
    ),
    "one-window": (
        into(window=(1,), inserted=()),
        (numbers(40), np.array([36], np.int32), numbers(1, 7, seed=2)),
    ),
    "both": (
        into_both,
        (numbers(30), integers(30, below=9), integers(200, below=30, seed=1), numbers(200), integers(200, below=900)),
    ),
    "batches": (
        batched,
        (numbers(3, 20, 5), integers(3, 30, 1, below=20, seed=1), numbers(3, 30, 5, seed=2)),
    ),
}

IRREGULAR: dict[str, Program] = {f"scatter-{name}": program for name, program in SCATTERS.items()}

# ---- scans -----------------------------------------------------------------------------------------------------------


def cumulative(computation: Any, start: Any, dimension: int, *, backwards: bool = False) -> Any:
    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        shape = x.shape.dimensions
        window = tuple(n if d == dimension else 1 for d, n in enumerate(shape))
        reach = (0, shape[dimension] - 1) if backwards else (shape[dimension] - 1, 0)
        padding = tuple(reach if d == dimension else (0, 0) for d in range(len(shape)))
        start_ = b.constant(start, x.shape.element_type)
        return sx.reduce_window(x, start_, computation, window, (1,) * len(shape), padding)

    return make


def running_pair(b: sx.XlaBuilder, x: sx.XlaOp, i: sx.XlaOp) -> Any:
    """The largest so far, and its place."""

    def larger(a: sx.XlaOp, k: sx.XlaOp, c: sx.XlaOp, m: sx.XlaOp) -> Any:
        take = sx.gt(c, a)
        return sx.tuple((sx.select(take, c, a), sx.select(take, m, k)))

    starts = (b.constant(-np.inf, "f32"), b.constant(0, "s32"))
    n = x.shape.dimensions[1]
    return sx.reduce_window((x, i), starts, larger, (1, n), (1, 1), ((0, 0), (n - 1, 0)))


def positive(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Without cancellation, so that the order of sums is seen in the last digits only."""
    return np.abs(numbers(*shape, dtype=dtype)) + dtype(0.1)


def places(*shape: int) -> np.ndarray[Any, Any]:
    return np.broadcast_to(np.arange(shape[-1], dtype=np.int32), shape).copy()


SCANS: dict[str, Program] = {
    "short": (cumulative(sx.add, 0, 1), (positive(9, 37),)),
    "warp": (cumulative(sx.add, 0, 1), (positive(5, 512),)),
    "block": (cumulative(sx.add, 0, 1), (positive(3, 2500),)),
    "block-unaligned": (cumulative(sx.max, -np.inf, 1), (numbers(3, 1377),)),
    "backwards": (cumulative(sx.mul, 1, 1, backwards=True), (integers(3, 1600, below=9),)),
    "backwards-unaligned": (cumulative(sx.add, 5, 1, backwards=True), (integers(3, 777, below=9),)),
    "parts": (cumulative(sx.add, 0, 1), (positive(2, 20001),)),
    "parts-backwards": (cumulative(sx.add, 3, 0, backwards=True), (integers(20000, below=9),)),
    "pair": (running_pair, (numbers(3, 700), places(3, 700))),
    "truth": (
        lambda b, x: cumulative(sx.or_, False, 1)(b, sx.gt(x, sx.broadcast(b.constant(2.0), x.shape.dimensions))),
        (numbers(3, 100),),
    ),
    "bytes": (cumulative(sx.add, 0, 1), (integers(3, 3000, below=9, dtype=np.int8),)),
    "columns": (cumulative(sx.add, 0, 0), (positive(50, 33),)),
    "columns-parts": (cumulative(sx.add, 0, 1, backwards=True), (integers(2, 300, 5, below=90, dtype=np.int64),)),
    "columns-f64": (cumulative(sx.min, np.inf, 1), (numbers(2, 67, 3, dtype=np.float64),)),
}
IRREGULAR |= {f"scan-{name}": program for name, program in SCANS.items()}
