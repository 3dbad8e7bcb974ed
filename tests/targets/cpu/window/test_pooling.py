"""Kernels of pooling and of its gradient, on random windows. Oracle: loops over all windows, in Python."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod

import mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.attributes.windows import Window
from stablexla.lowering.kernels.window.axes import axes_of
from stablexla.lowering.support.configs import config_attribute
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu.window.pooling import emit_pool, emit_select_and_scatter
from tests.targets.cpu.harness import DTYPES, compile_kernel, emit

FUNCTIONS = {"add": np.add, "maximum": np.maximum, "minimum": np.minimum}
COMPARISONS = {"GE": np.greater_equal, "LT": np.less, "NE": np.not_equal}


def window_of(rng: np.random.Generator, shape: tuple[int, ...], *, reaching: bool) -> Window:
    """A window over all dimensions but the last; `reaching` ones all have an element of the array."""
    rank = len(shape) - 1
    while True:
        sizes, strides = (rng.integers(1, 4, rank) for _ in range(2))
        padding = rng.integers(-1, 4, (rank, 2))
        padding[rng.random(rank) < 0.3] = 0
        window = Window(
            (*map(int, sizes), 1),
            (*map(int, strides), 1),
            (1,) * (rank + 1),
            (1,) * (rank + 1),
            (*((int(a), int(b)) for a, b in padding), (0, 0)),
        )
        positions = window.positions(shape)
        if min(positions) and (not reaching or all(axis.reaches_in for axis in axes_of(window, shape, positions))):
            return window


def windows(window: Window, shape: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Each position, and the elements of the array that its window has, in order."""
    for at in itertools.product(*map(range, window.positions(shape))):
        ranges = [
            [p for p in range(i * s - low, i * s - low + size) if 0 <= p < n]
            for i, s, size, n, (low, _) in zip(at, window.strides, window.sizes, shape, window.padding, strict=True)
        ]
        yield at, list(itertools.product(*ranges))


def function(kind: str, window: Window, shape: tuple[int, ...], element: str, words: str) -> str:
    """The text of a kernel; emitters look at nothing but its signature and configuration."""
    positions = window.positions(shape)
    with ir.Context():
        table = str(config_attribute(axes_of(window, shape, positions)))
    array, small = (f"tensor<{prod(extents)}x{element}>" for extents in (shape, positions))
    given = f"%x: {array}, %s: {element}" if kind == "pool" else f"%x: {array}, %y: {small}, %r: {array}"
    result, value = (small, f"tensor.empty() : {small}") if kind == "pool" else (array, "")
    attributes = f'{{stablexla.kernel = "{kind}", stablexla.config = {{axes = {table}, {words}}}}}'
    body = f"%e = {value} return %e : {result}" if value else f"return %r : {result}"
    return f"func.func private @kernel({given}) -> {result} attributes {attributes} {{ {body} }}"


def numbers(rng: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    return rng.integers(-4, 5, shape).astype(dtype)


SHAPES = [(9, 7), (5, 6, 8), (3, 5, 6, 33), (2, 4, 3, 2, 70), (7, 2), (4, 4, 4, 19)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("element", ["f32", "i8", "f64"])
def test_pooling(shape: tuple[int, ...], element: str) -> None:
    rng = np.random.default_rng(shape)
    for name in FUNCTIONS:
        window = window_of(rng, shape, reaching=False)
        x = numbers(rng, DTYPES[element], shape)
        text = function("pool", window, shape, element, f'computation = "{name}", unsigned = false')
        (got,) = compile_kernel(text, None, emit_pool).in_all_ways(x.reshape(-1), 1)
        expected = np.full(window.positions(shape), 1, x.dtype)
        for at, elements in windows(window, shape):
            for place in elements:
                expected[at] = FUNCTIONS[name](expected[at], x[place])
        np.testing.assert_array_equal(got, expected.reshape(-1))


@pytest.mark.parametrize("name", ["bf16", "f16"])
@pytest.mark.parametrize("channels", [3, 40])
def test_extremes_of_short_floats(name: str, channels: int) -> None:
    """They are found in f32, and NaN and the sign of zero stay what they are."""
    dtype = np.dtype(DTYPES[name])
    x = np.random.default_rng(channels).normal(size=(1, 7, 6, channels)).astype(dtype)
    x[0, 2, 3], x[0, 5:, :3, 1:] = np.nan, -0.0
    b = sx.XlaBuilder("test")
    v = b.parameter(0, sx.Shape(name, x.shape))
    lowest = b.constant(-np.inf, name)
    pooled = sx.reduce_window(v, lowest, sx.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    executable = sx.compile(b.build(pooled))
    assert "@pool_0" in executable.ir("kernels")
    padded = np.pad(x.astype(np.float32), ((0, 0), (1, 1), (0, 1), (0, 0)), constant_values=-np.inf)
    expected = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2].max((-2, -1))
    got = np.asarray(executable(x))
    np.testing.assert_array_equal(got.astype(np.float32), expected)
    np.testing.assert_array_equal(np.signbit(got), np.signbit(expected) & ~np.isnan(expected))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("element", ["f32", "i16", "f64"])
def test_gradients_of_pooling(shape: tuple[int, ...], element: str) -> None:
    rng = np.random.default_rng(shape)
    for select, scatter in (("GE", "add"), ("LT", "maximum"), ("NE", "add")):
        window = window_of(rng, shape, reaching=True)
        x, y = (numbers(rng, DTYPES[element], s) for s in (shape, window.positions(shape)))
        words = f'select = "{select}", scatter = "{scatter}", unsigned = false, plain = true'
        compiled = compile_kernel(
            function("select_and_scatter", window, shape, element, words), None, emit_select_and_scatter
        )
        assert compiled.emitted.updates == ((0, 2),)
        (got,) = compiled(x.reshape(-1), y.reshape(-1), np.full(x.size, 2, x.dtype), in_place={0: 2}, chunks=3)
        expected = np.full(shape, 2, x.dtype)
        for at, elements in windows(window, shape):
            best = elements[0]
            for place in elements[1:]:
                best = best if COMPARISONS[select](x[best], x[place]) else place
            expected[best] = FUNCTIONS[scatter](expected[best], y[at])
        np.testing.assert_array_equal(got, expected.reshape(-1))


@pytest.mark.parametrize("vector_bits", [128, 512])
def test_other_widths_of_vectors(vector_bits: int) -> None:
    target, shape = CpuTarget(vector_bits=vector_bits), (6, 5, 37)
    window = Window((3, 3, 1), (2, 2, 1), (1, 1, 1), (1, 1, 1), ((1, 1), (0, 1), (0, 0)))
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    text = function("pool", window, shape, "f32", 'computation = "maximum", unsigned = false')
    (got,) = compile_kernel(text, target, emit_pool).in_all_ways(x.reshape(-1), -np.inf)
    padded = np.pad(x, ((1, 1), (0, 1), (0, 0)), constant_values=-np.inf)
    expected = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (0, 1))[::2, ::2].max((-2, -1))
    np.testing.assert_array_equal(got, expected.reshape(-1))


def test_what_is_left_to_the_general_path() -> None:
    def window(sizes: tuple[int, int], low: tuple[int, int]) -> Window:
        return Window(sizes, (1, 1), (1, 1), (1, 1), ((low[0], 0), (low[1], 0)))

    def pool(made: Window, name: str) -> str:
        return function("pool", made, (5, 8), "f32", f'computation = "{name}", unsigned = false')

    def gradient(made: Window, element: str) -> str:
        words = 'select = "GE", scatter = "add", unsigned = false, plain = true'
        return function("select_and_scatter", made, (5, 8), element, words)

    all_padding = window((2, 1), (3, 0))  # the first of them
    refused = [
        gradient(all_padding, "f32"),
        gradient(window((2, 1), (1, 0)), "bf16"),
        pool(all_padding, ""),
        pool(window((1, 2), (0, 1)), "add"),
    ]
    for text in refused:
        with pytest.raises(LookupError):
            emit(text, CpuTarget(), emit_pool if '"pool"' in text else emit_select_and_scatter)
