"""reduce and map, with any computation. Oracles: numpy, the reference interpreter and XLA:CPU."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from tests.ops.samples import sample
from tests.programs import run

SHAPE = (3, 5, 4)
SUBSETS = [c for n in range(4) for c in itertools.combinations(range(3), n)]


@pytest.mark.parametrize("dimensions", SUBSETS, ids=str)
def test_the_sums_of_the_specification(dimensions: tuple[int, ...]) -> None:
    """Over every set of dimensions, in the order of the document's example with an array of three dimensions."""
    x = np.arange(60, dtype=np.int32).reshape(SHAPE)
    run(
        lambda b, v: sx.reduce(v, b.constant(np.int32(0)), sx.add, dimensions),
        x,
        against=["interpreter", "xla"],
        expected=[x.sum(axis=dimensions, dtype=np.int32)],
    )


REDUCERS: list[tuple[str, Any, Any]] = [
    ("add", sx.add, 0),
    ("mul", sx.mul, 1),
    ("max", sx.max, None),
    ("min", sx.min, None),
]


@pytest.mark.parametrize("name", ["s8", "u8", "s32", "u64", "s4"])
@pytest.mark.parametrize(("_", "reducer", "start"), REDUCERS, ids=[r[0] for r in REDUCERS])
@pytest.mark.parametrize("dimension", [0, 1])
def test_integers(name: str, _: str, reducer: Any, start: int | None, dimension: int) -> None:
    x = sample(name, 13 * 21).reshape(13, 21)
    init = x.reshape(-1)[0] if start is None else element_type(name).dtype.type(start)
    run(
        lambda b, v: sx.reduce(v, b.constant(np.asarray(init)), reducer, (dimension,)),
        x,
        against=["interpreter"],
    )


@pytest.mark.parametrize("shape", [(1, 1), (7, 1), (1, 9), (37, 101), (100, 3), (3, 1000), (0, 4), (4, 0), (257, 64)])
@pytest.mark.parametrize("dimensions", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_sums_of_floats(shape: tuple[int, int], dimensions: tuple[int, ...], name: str) -> None:
    x = np.random.default_rng(shape).normal(size=shape).astype(element_type(name).dtype)
    wanted = x.astype(np.longdouble).sum(axis=dimensions).astype(x.dtype) + x.dtype.type(2)
    scale = 4e-7 if name == "f32" else 1e-15
    run(
        lambda b, v: sx.reduce(v, b.constant(x.dtype.type(2)), sx.add, dimensions),
        x,
        against=["interpreter"],
        expected=[wanted],
        ulp=2,
        scale=scale * max(1.0, np.abs(x).sum() / max(np.abs(wanted).max(initial=1), 1e-9)),
    )


@pytest.mark.parametrize("name", ["bf16", "f16", "f32", "f64"])
@pytest.mark.parametrize("dimension", [0, 1])
def test_max_and_min_carry_nan(name: str, dimension: int) -> None:
    x = sample(name, 29 * 43).reshape(29, 43)
    x[3] = 1
    x[:, 7] = -0.0

    def make(b: sx.XlaBuilder, v: sx.XlaOp) -> list[sx.XlaOp]:
        low, high = (b.constant(np.asarray(c, x.dtype)) for c in (-np.inf, np.inf))
        return [sx.reduce(v, low, sx.max, (dimension,)), sx.reduce(v, high, sx.min, (dimension,))]

    run(make, x, against=["interpreter"])


@pytest.mark.parametrize("dimensions", [(0,), (1,), (0, 1)])
def test_and_or_of_pred(dimensions: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).random((19, 23)) < 0.9

    def make(b: sx.XlaBuilder, v: sx.XlaOp) -> list[sx.XlaOp]:
        return [
            sx.reduce(v, b.constant(True), sx.and_, dimensions),
            sx.reduce(v, b.constant(False), sx.or_, dimensions),
        ]

    run(make, x, against=["interpreter"], expected=[x.all(axis=dimensions), x.any(axis=dimensions)])


def argmax(b: sx.XlaBuilder, x: sx.XlaOp, dimension: int) -> list[sx.XlaOp]:
    """The largest element and its index; NaN wins, then the lower index."""

    def better(v: Any, i: Any, w: Any, j: Any) -> Any:
        take = sx.or_(sx.gt(v, w), sx.ne(v, v))
        same = sx.eq(v, w)
        take_index = sx.or_(take, sx.and_(same, sx.lt(i, j)))
        return sx.tuple([sx.select(take, v, w), sx.select(take_index, i, j)])

    index = b.iota(sx.Shape("s32", x.shape.dimensions), dimension)
    inits = [b.constant(np.float32(-np.inf)), b.constant(np.int32(0))]
    return list(sx.reduce([x, index], inits, better, (dimension,)))


@pytest.mark.parametrize("dimension", [0, 1])
@pytest.mark.parametrize("shape", [(6, 50), (50, 6), (1, 17), (33, 1)])
def test_a_variadic_reduction(shape: tuple[int, int], dimension: int) -> None:
    x = np.random.default_rng(1).integers(0, 20, shape).astype(np.float32)
    run(
        lambda b, v: argmax(b, v, dimension),
        x,
        against=["interpreter"],
        expected=[x.max(axis=dimension), x.argmax(axis=dimension).astype(np.int32)],
    )


def test_a_computation_that_is_no_single_operation() -> None:
    x = np.random.default_rng(2).random((9, 31)).astype(np.float32)
    run(
        lambda b, v: sx.reduce(v, b.constant(np.float32(1)), lambda a, c: sx.mul(a, sx.add(c, c)), (1,)),
        x,
        against=["interpreter"],
        scale=1e-5,
    )


def test_reduce_all() -> None:
    x = np.arange(24, dtype=np.int32).reshape(2, 3, 4)
    run(lambda b, v: sx.reduce_all(v, b.constant(np.int32(5)), sx.add), x, against=[], expected=[np.int32(x.sum() + 5)])


@pytest.mark.parametrize("shape", [(), (0,), (13,), (4, 5)])
def test_map_with_scalars_for_all_elements(shape: tuple[int, ...]) -> None:
    """Map(op1, op2, op3, computation, par1) of the specification."""
    xs = [np.random.default_rng(n).integers(-9, 9, shape).astype(np.int32) for n in range(3)]
    par = np.float32(0.5)
    wanted = (xs[0] * xs[1] - xs[2]).astype(np.float32) * par

    def computation(a: sx.XlaOp, c: sx.XlaOp, d: sx.XlaOp, p: sx.XlaOp) -> sx.XlaOp:
        return sx.convert_element_type(a * c - d, "f32") * p

    run(lambda b, *vs: sx.map(vs[:3], computation, static_operands=vs[3]), *xs, par, expected=[wanted])


@pytest.mark.parametrize("shape", [(), (0,), (4, 5)])
def test_map_with_arrays_for_all_elements(shape: tuple[int, ...]) -> None:
    """An array, and a tuple of an array and a scalar, which the computation takes whole."""
    x = np.random.default_rng(0).integers(0, 6, shape).astype(np.int32)
    table, shift = np.array([5, 7, 1, 0, 2, 9], np.float32), np.float32(3)

    def computation(i: sx.XlaOp, rows: sx.XlaOp, pair: sx.XlaOp) -> sx.XlaOp:
        picked = sx.reshape(sx.dynamic_slice(rows, (i,), (1,)), ())
        return picked + pair[1] > sx.reduce(pair[0], pair[0].builder.constant(np.float32(0)), sx.max, (0,))

    run(
        lambda b, v, t, s: sx.map(v, computation, None, [t, sx.tuple((t, s))]),
        x,
        table,
        shift,
        expected=[table[x] + shift > 9],
    )


@pytest.mark.parametrize("shape", [(), (0,), (13,), (4, 5)])
def test_map(shape: tuple[int, ...]) -> None:
    size = int(np.prod(shape))
    x, y = (sample("s32", size, seed).reshape(shape) for seed in (0, 1))
    run(
        lambda b, v, w: sx.map([v, w], lambda p, q: sx.max(sx.mul(p, q), sx.sub(p, q)), tuple(range(len(shape)))),
        x,
        y,
        against=["interpreter"],
        expected=[np.maximum(x * y, x - y)],
    )


def test_softmax_and_layer_norm_in_one_program() -> None:
    x = np.random.default_rng(3).normal(size=(37, 101)).astype(np.float32)

    def make(b: sx.XlaBuilder, v: sx.XlaOp) -> list[sx.XlaOp]:
        top = sx.reduce(v, b.constant(np.float32(-np.inf)), sx.max, (1,))
        e = sx.exp(sx.sub(v, top, broadcast_dimensions=(0,)))
        softmax = sx.div(e, sx.reduce(e, b.constant(np.float32(0)), sx.add, (1,)), broadcast_dimensions=(0,))
        n = b.constant(np.float32(101))
        mean = sx.div(sx.reduce(v, b.constant(np.float32(0)), sx.add, (1,)), n)
        centred = sx.sub(v, mean, broadcast_dimensions=(0,))
        variance = sx.div(sx.reduce(sx.mul(centred, centred), b.constant(np.float32(0)), sx.add, (1,)), n)
        scale = sx.rsqrt(sx.add(variance, b.constant(np.float32(1e-5))))
        return [softmax, sx.mul(centred, scale, broadcast_dimensions=(0,))]

    run(make, x, against=["interpreter", "xla"], ulp=8, scale=1e-6)
