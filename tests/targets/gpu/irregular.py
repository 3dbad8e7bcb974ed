"""Small programs with scatters, scans, sorts and other operations whose threads are not all alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stablexla as sx
from tests.targets.gpu.programs import numbers

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
    "block": (cumulative(sx.add, 0, 1), (positive(3, 2500),)),
    "block-unaligned": (cumulative(sx.max, -np.inf, 1), (numbers(3, 1377),)),
    "backwards": (cumulative(sx.mul, 1, 1, backwards=True), (integers(3, 1600, below=9),)),
    "parts": (cumulative(sx.add, 0, 1), (positive(2, 20001),)),
    "parts-backwards": (cumulative(sx.add, 3, 0, backwards=True), (integers(20000, below=9),)),
    "pair": (running_pair, (numbers(3, 700), places(3, 700))),
    "truth": (
        lambda b, x: cumulative(sx.or_, False, 1)(b, sx.gt(x, sx.broadcast(b.constant(2.0), x.shape.dimensions))),
        (numbers(3, 100),),
    ),
    "bytes": (cumulative(sx.add, 0, 1), (integers(3, 3000, below=9, dtype=np.int8),)),
    "columns-parts": (cumulative(sx.add, 0, 1, backwards=True), (integers(2, 300, 5, below=90, dtype=np.int64),)),
    "columns-f64": (cumulative(sx.min, np.inf, 1), (numbers(2, 67, 3, dtype=np.float64),)),
}
IRREGULAR |= {f"scan-{name}": program for name, program in SCANS.items()}

# ---- sorts -----------------------------------------------------------------------------------------------------------


def in_order(dimension: int = -1, *, largest: bool = False) -> Any:
    def make(b: sx.XlaBuilder, *arrays: sx.XlaOp) -> Any:
        """By the first array; the others go along."""

        def before(*pairs: sx.XlaOp) -> sx.XlaOp:
            return sx.gt(pairs[0], pairs[1]) if largest else sx.lt(pairs[0], pairs[1])

        given = arrays if len(arrays) > 1 else arrays[0]
        made = sx.sort(given, before, dimension, is_stable=True)
        return [made[i] for i in range(len(arrays))] if len(arrays) > 1 else made

    return make


def by_distance(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> Any:
    """A comparison that is no plain order of one array."""

    def nearer(a: sx.XlaOp, c: sx.XlaOp, d: sx.XlaOp, e: sx.XlaOp) -> sx.XlaOp:
        return sx.lt(a * a + d * d, c * c + e * e)

    made = sx.sort((x, y), nearer, 1, is_stable=True)
    return [made[0], made[1]]


def without_order(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
    """A comparison that contradicts itself; the result is sorted again, so that only what is in it matters."""
    mixed = sx.sort(x, lambda a, c: sx.lt(a * c - c * c, a - 2.0), 1)
    return sx.sort(mixed, lambda a, c: sx.lt(a, c), 1)


def best(k: int) -> Any:
    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> Any:
        made = sx.top_k(x, k)
        return [made[0], made[1]]

    return make


SORTS: dict[str, Program] = {
    "rows": (in_order(), (numbers(9, 50),)),
    "tiles": (in_order(largest=True), (numbers(2, 5000),)),
    "equal-ones": (in_order(), (integers(2, 4500, below=9), places(2, 4500))),
    "with-bytes": (in_order(), (integers(3, 300, below=90, dtype=np.int16), places(3, 300).astype(np.uint8))),
    "distance": (by_distance, (numbers(2, 2100), numbers(2, 2100, seed=1))),
    "without-order": (without_order, (numbers(2, 5000),)),
    "best": (best(5), (np.round(numbers(3, 9000), 2),)),
    "best-half": (best(1500), (numbers(2, 5000),)),
}
IRREGULAR |= {f"sort_rows-{name}": program for name, program in SORTS.items()}

# ---- random bits -----------------------------------------------------------------------------------------------------


def bits(algorithm: str, element: str, *shape: int) -> Any:
    def make(b: sx.XlaBuilder, state: sx.XlaOp) -> Any:
        made = sx.rng_bit_generator(algorithm, state, sx.Shape(element, shape))
        return [made[0], made[1]]

    return make


STATE = np.array([0x123456789ABCDEF0, (1 << 64) - 3], np.uint64)

BITS: dict[str, Program] = {
    "threefry": (bits("rng_three_fry", "u32", 30, 7), (STATE,)),
    "threefry-rows": (bits("rng_three_fry", "u32", 5, 6, 7), (STATE,)),
    "threefry-wide": (bits("rng_three_fry", "u64", 33), (STATE,)),
    "philox": (bits("rng_philox", "u32", 41), (STATE,)),
    "philox-bytes": (bits("rng_philox", "u8", 402), (STATE,)),
}
IRREGULAR |= {f"random_bits-{name}": program for name, program in BITS.items()}

# ---- linear algebra --------------------------------------------------------------------------------------------------


def definite(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Matrices that are positive definite, but for the last one, if there are several of real numbers."""
    x = numbers(*shape, dtype=np.float64)
    is_complex = np.issubdtype(dtype, np.complexfloating)
    if is_complex:
        x = x + 1j * numbers(*shape, seed=1, dtype=np.float64)
    made = x @ np.conj(np.swapaxes(x, -1, -2)) / shape[-1] + np.eye(shape[-1])
    if len(shape) > 2 and not is_complex:
        made[-1, -1, -1] = -1
    return made.astype(dtype)


def cholesky(*, lower: bool = True) -> Any:
    return lambda b, x: sx.cholesky(x, lower=lower)


def solved(**options: Any) -> Any:
    given = {"left_side": True, "lower": True, "unit_diagonal": False, "transpose_a": "NO_TRANSPOSE"} | options
    return lambda b, x, y: sx.triangular_solve(x, y, **given)


def triangular(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    x = numbers(*shape, dtype=np.float64) / shape[-1] + 2 * np.eye(shape[-1])
    if np.issubdtype(dtype, np.complexfloating):
        x = x + 1j * numbers(*shape, seed=1, dtype=np.float64) / shape[-1]
    return x.astype(dtype)


FACTORS: dict[str, Program] = {
    "cholesky-one-tile": (cholesky(), (definite(3, 7, 7),)),
    "cholesky-tiles": (cholesky(), (definite(2, 70, 70),)),
    "cholesky-upper": (cholesky(lower=False), (definite(45, 45, dtype=np.float64),)),
    "cholesky-complex": (cholesky(), (definite(40, 40, dtype=np.complex64),)),
    "triangular_solve-left": (solved(), (triangular(2, 40, 40), numbers(2, 40, 35))),
    "triangular_solve-upper": (solved(lower=False), (triangular(70, 70), numbers(70, 3))),
    "triangular_solve-turned": (solved(transpose_a="TRANSPOSE"), (triangular(37, 37), numbers(37, 5))),
    "triangular_solve-right": (
        solved(left_side=False, unit_diagonal=True),
        (triangular(2, 33, 33), numbers(2, 40, 33)),
    ),
    "triangular_solve-adjoint": (
        solved(left_side=False, lower=False, transpose_a="ADJOINT"),
        (triangular(20, 20, dtype=np.complex128), triangular(20, 20, dtype=np.complex128)[:7]),
    ),
}
IRREGULAR |= FACTORS

# ---- select and scatter ----------------------------------------------------------------------------------------------


def pool_gradient(window: tuple[int, ...], strides: tuple[int, ...], padding: Any) -> Any:
    def make(b: sx.XlaBuilder, x: sx.XlaOp, source: sx.XlaOp) -> sx.XlaOp:
        zero = b.constant(0, x.shape.element_type)
        return sx.select_and_scatter_with_general_padding(x, sx.ge, window, strides, padding, source, zero, sx.add)

    return make


POOLS: dict[str, Program] = {
    "apart": (pool_gradient((1, 2, 2, 1), (1, 2, 2, 1), ((0, 0),) * 4), (numbers(2, 6, 8, 3), numbers(2, 3, 4, 3))),
    "overlapping": (
        pool_gradient((1, 3, 3), (1, 2, 2), ((0, 0), (1, 1), (1, 1))),
        (integers(2, 9, 9, below=4), integers(2, 5, 5, below=90, seed=1)),
    ),
    "padded": (
        pool_gradient((2, 3), (3, 1), ((3, 1), (-1, 2))),
        (numbers(8, 9, dtype=np.float64), numbers(4, 8, dtype=np.float64)),
    ),
}
IRREGULAR |= {f"select_and_scatter-{name}": program for name, program in POOLS.items()}

# ---- gathers ---------------------------------------------------------------------------------------------------------


def taken(dimension: int) -> Any:
    return lambda b, x, indices: sx.torch_index_select(x, indices, dimension)


def pairs_taken(b: sx.XlaBuilder, x: sx.XlaOp, indices: sx.XlaOp) -> sx.XlaOp:
    numbers_ = sx.GatherDimensionNumbers((1,), (0, 2), (0, 2), 1)
    return sx.gather(x, indices, slice_sizes=(1, x.shape.dimensions[1], 1), dimension_numbers=numbers_)


GATHERS: dict[str, Program] = {
    "rows": (taken(0), (numbers(20, 64), integers(30, below=20))),
    "columns": (taken(1), (numbers(7, 40), integers(30, below=40))),
    "pairs": (pairs_taken, (numbers(9, 6, 8), integers(30, 2, below=8))),
}
IRREGULAR |= {f"gather-{name}": program for name, program in GATHERS.items()}

# ---- Fourier transforms ----------------------------------------------------------------------------------------------


def transformed(kind: str, *lengths: int) -> Any:
    return lambda b, x: sx.fft(x, kind, lengths)


def complex_numbers(*shape: int, dtype: Any = np.complex64) -> np.ndarray[Any, Any]:
    return (numbers(*shape) + 1j * numbers(*shape, seed=1)).astype(dtype)


TRANSFORMS: dict[str, Program] = {
    "line": (transformed("FFT", 512), (complex_numbers(3, 512),)),
    "chirp": (transformed("FFT", 134), (complex_numbers(3, 134),)),
    "plane": (transformed("IFFT", 12, 20), (complex_numbers(2, 12, 20, dtype=np.complex128),)),
    "real-odd": (transformed("RFFT", 45), (numbers(3, 45, dtype=np.float64),)),
    "to-real": (transformed("IRFFT", 96), (complex_numbers(3, 49),)),
    "to-real-odd": (transformed("IRFFT", 27), (complex_numbers(3, 14),)),
    "to-real-plane": (transformed("IRFFT", 6, 10), (complex_numbers(4, 6, 6),)),
}
IRREGULAR |= {f"fft-{name}": program for name, program in TRANSFORMS.items()}
