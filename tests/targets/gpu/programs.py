"""Small programs, one or more for each kind of kernel, that the tests of the GPU compile and run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import stablexla as sx


def program(make: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> sx.XlaComputation:
    """The computation that `make` writes for a builder and parameters of the arrays' shapes."""
    b = sx.XlaBuilder("test")
    root = make(b, *(b.parameter(i, sx.Shape(a.dtype, a.shape)) for i, a in enumerate(arrays)))
    return b.build(sx.tuple(root) if isinstance(root, list | tuple) else root)


def numbers(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def softmax(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
    shape, last = x.shape.dimensions, len(x.shape.dimensions) - 1
    rows = tuple(range(last))
    largest = sx.reduce(x, b.constant(-np.inf, x.shape.element_type), sx.max, (last,))
    e = sx.exp(x - sx.broadcast_in_dim(largest, shape, rows))
    total = sx.reduce(e, b.constant(0.0, x.shape.element_type), sx.add, (last,))
    return e / sx.broadcast_in_dim(total, shape, rows)


def argmax(b: sx.XlaBuilder, x: sx.XlaOp) -> Any:
    def better(a: sx.XlaOp, i: sx.XlaOp, c: sx.XlaOp, j: sx.XlaOp) -> Any:
        take = sx.gt(a, c) | (sx.eq(a, c) & sx.lt(i, j))
        return sx.select(take, a, c), sx.select(take, i, j)

    indices = b.iota(sx.Shape("s32", x.shape.dimensions), 1)
    return list(sx.reduce((x, indices), (b.constant(-np.inf, "f32"), b.constant(0, "s32")), better, (1,)))


def total(*dimensions: int) -> Callable[..., Any]:
    return lambda b, x: sx.reduce(x, b.constant(0, x.shape.element_type), sx.add, dimensions)


def count_up(b: sx.XlaBuilder, x: sx.XlaOp) -> Any:
    """Goes on for as long as the sum is small, which the host must read."""

    def below(state: sx.XlaOp) -> sx.XlaOp:
        i, v = state
        inside = state.builder
        small = sx.lt(sx.reduce(v, inside.constant(0.0, "f32"), sx.add, (0,)), inside.constant(1e6, "f32"))
        return sx.lt(i, inside.constant(5, "s32")) & small

    def step(state: sx.XlaOp) -> sx.XlaOp:
        i, v = state
        return sx.tuple((i + 1, v * 1.5 + 1.0))

    _, last = sx.while_(below, step, sx.tuple((b.constant(0, "s32"), x)))
    return last


def in_16_bits(element: str, *, turned: bool = False) -> Callable[..., Any]:
    """A product of matrices of 16-bit floats, summed up in f32; `turned`: the right one lies along k, too."""
    dimensions = sx.DotDimensionNumbers((1,), (1 if turned else 0,))

    def product(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
        narrow = [sx.convert_element_type(v, element) for v in (x, y)]
        return sx.dot_general(*narrow, dimensions, preferred_element_type="f32")

    return product


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[np.ndarray[Any, Any], ...]]] = {
    "elementwise": (lambda b, x, y: sx.tanh(x) * y + 1.0, (numbers(33, 100), numbers(33, 100, seed=1))),
    "elementwise-odd": (lambda b, x: sx.exp(x), (numbers(7, 13),)),
    "elementwise-tail": (lambda b, x: x * x, (numbers(1003),)),
    "elementwise-f64": (lambda b, x: sx.log(sx.abs(x)), (numbers(40, 3, dtype=np.float64),)),
    "bf16": (lambda b, x: sx.convert_element_type(sx.convert_element_type(x, "bf16") * 3.0, "f32"), (numbers(64),)),
    "pred": (lambda b, x: sx.select(sx.gt(x, x * 0.0), x, -x), (numbers(64),)),
    "broadcast": (lambda b, x: sx.broadcast(x, (5,)), (numbers(9, 4),)),
    "softmax": (softmax, (numbers(6, 1024),)),
    "softmax-odd": (softmax, (numbers(6, 37),)),
    "softmax-long": (softmax, (numbers(2, 9001),)),
    "softmax-blocks": (softmax, (numbers(2, 4096),)),
    "argmax": (argmax, (numbers(5, 700),)),
    "rows": (total(1), (numbers(50, 128),)),
    "columns": (total(0), (numbers(50, 128),)),
    "everything": (total(0, 1), (np.abs(numbers(64, 100)),)),
    "everything-in-parts": (total(0, 1), (np.abs(numbers(130, 300)),)),
    "long-rows": (total(1), (np.abs(numbers(3, 20001)),)),
    "long-argmax": (argmax, (numbers(2, 30000),)),
    "middle": (total(1), (numbers(4, 30, 20),)),
    "transpose": (lambda b, x: sx.transpose(x, (1, 0)), (numbers(65, 70),)),
    "transpose-3d": (lambda b, x: sx.transpose(x, (2, 0, 1)), (numbers(20, 3, 33),)),
    "transpose-bf16": (
        lambda b, x: sx.transpose(sx.convert_element_type(x, "bf16"), (1, 0)),
        (numbers(64, 32),),
    ),
    "dot": (lambda b, x, y: sx.exp(sx.dot(x, y)), (numbers(33, 47) / 8, numbers(47, 50, seed=1) / 8)),
    "dot-big": (lambda b, x, y: sx.dot(x, y), (numbers(520, 37) / 8, numbers(37, 515, seed=1) / 8)),
    "dot-batch": (
        lambda b, x, y: sx.dot_general(x, y, sx.DotDimensionNumbers((2,), (2,), (0,), (0,))) * 2.0,
        (numbers(3, 40, 20), numbers(3, 36, 20, seed=1)),
    ),
    "dot-bf16": (in_16_bits("bf16"), (numbers(64, 48), numbers(48, 72, seed=1))),
    "dot-f16": (in_16_bits("f16"), (numbers(130, 40), numbers(40, 136, seed=1))),
    "dot-bf16-turned": (in_16_bits("bf16", turned=True), (numbers(50, 64), numbers(66, 64, seed=1))),
    "dot-s8": (
        lambda b, x, y: sx.dot(x, y, preferred_element_type="s32"),
        (np.arange(40 * 17).reshape(40, 17).astype(np.int8), np.arange(17 * 30).reshape(17, 30).astype(np.int8)),
    ),
    "sort": (lambda b, x: sx.sort(x, lambda a, c: sx.lt(a, c)), (numbers(4, 50),)),
    "cumulative": (
        lambda b, x: sx.reduce_window(x, b.constant(0.0), sx.add, (1, 8), (1, 1), ((0, 0), (7, 0))),
        (numbers(4, 30),),
    ),
    "while": (count_up, (numbers(30),)),
}
