"""Scatters on the CPU, kernel by kernel. Oracle: the updates one after the other in numpy, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.cpu.indexing.scatter import BLOCK, emit_scatter
from tests.ops.samples import sample
from tests.programs import general_only
from tests.targets.cpu.harness import CompiledKernel, compile_kernel, emit
from tests.targets.cpu.one_kernel import kernel_of

Scatter = sx.ScatterDimensionNumbers
ROWS, ELEMENTS, COLUMNS = Scatter((1,), (0,), (0,), 1), Scatter((), (0,), (0,), 1), Scatter((0,), (1,), (1,), 1)
Shapes = tuple[sx.Shape, sx.Shape, sx.Shape]


def kernel_text(shapes: Shapes, numbers: Scatter, region: Callable[..., Any] = sx.add, **more: Any) -> str:
    """The module of the one kernel that a scatter becomes."""
    b = sx.XlaBuilder("test")
    x, indices, updates = (b.parameter(i, shape) for i, shape in enumerate(shapes))
    root = sx.scatter(x, indices, updates, region, dimension_numbers=numbers, **more)
    return kernel_of(b.build(root), "scatter").text


def compiled(shapes: Shapes, numbers: Scatter, target: CpuTarget | None = None, **more: Any) -> CompiledKernel:
    return compile_kernel(kernel_text(shapes, numbers, **more), target, emit_scatter)


def in_all_ways(kernel: CompiledKernel, x: np.ndarray, indices: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """The result, which must not depend on how the places are shared."""
    arguments = (x.reshape(-1), indices.reshape(-1), updates.reshape(-1))
    made = [kernel(*arguments, chunks=chunks, in_place={0: 0})[0] for chunks in (1, 2, 3)]
    assert made[0].tobytes() == made[1].tobytes() == made[2].tobytes()
    return made[0].reshape(x.shape)


def added(x: np.ndarray, places: np.ndarray, updates: np.ndarray) -> np.ndarray:
    """Updates of rows, or of elements, one after the other."""
    made = x.copy()
    for place, update in zip(places.tolist(), updates, strict=True):
        if 0 <= place < len(made):
            made[place] += update
    return made


def test_rows_of_every_length_and_width():
    rng = np.random.default_rng(0)
    places = rng.integers(-3, 12, 40).astype(np.int32)
    for columns in (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 64, 101):
        x = rng.normal(size=(9, columns)).astype(np.float32)
        updates = rng.normal(size=(40, columns)).astype(np.float32)
        for width in (128, 256, 512) if columns in (9, 33) else (host_target().vector_bits,):
            if width > host_target().vector_bits:
                continue
            shapes = sx.f32[9, columns], sx.s32[40], sx.f32[40, columns]
            kernel = compiled(shapes, ROWS, CpuTarget(vector_bits=width))
            result = in_all_ways(kernel, x, places, updates)
            np.testing.assert_array_equal(result, added(x, places, updates), err_msg=f"{columns} columns")


@pytest.mark.parametrize("count", [1, 2, 7, 255, 256, 257, 263, BLOCK() - 1, BLOCK(), BLOCK() + 1, 2 * BLOCK() + 9])
def test_elements_however_many(count: int):
    """Those that lie outside are left out: before, behind, and far away."""
    rng = np.random.default_rng(count)
    x, updates = rng.normal(size=30).astype(np.float32), rng.normal(size=count).astype(np.float32)
    places = rng.integers(-5, 35, count).astype(np.int32)
    places[:: max(1, count // 5)] = np.iinfo(np.int32).min
    places[count // 2 :: max(1, count // 3)] = np.iinfo(np.int32).max
    kernel = compiled((sx.f32[30], sx.s32[count], sx.f32[count]), ELEMENTS)
    np.testing.assert_array_equal(in_all_ways(kernel, x, places, updates), added(x, places, updates))


@pytest.mark.parametrize("name", ["s8", "s16", "s64", "u8", "u16", "u32", "u64"])
def test_every_type_of_indices(name: str):
    rng = np.random.default_rng(7)
    type_ = element_type(name)
    limits = np.iinfo(type_.dtype)
    for rows in (100, 400):
        places = rng.integers(0, 100, 301).astype(type_.dtype)
        places[::7], places[3::7] = limits.min, limits.max
        x, updates = rng.normal(size=(rows, 3)).astype(np.float32), rng.normal(size=(301, 3)).astype(np.float32)
        kernel = compiled((sx.f32[rows, 3], sx.Shape(name, (301,)), sx.f32[301, 3]), ROWS)
        np.testing.assert_array_equal(in_all_ways(kernel, x, places, updates), added(x, places, updates))


def test_vectors_of_two_numbers():
    rng = np.random.default_rng(3)
    x = rng.normal(size=(5, 6, 10)).astype(np.float32)
    places = rng.integers(-1, 7, (300, 2)).astype(np.int32)
    updates = rng.normal(size=(300, 10)).astype(np.float32)
    expected = x.copy()
    for (i, j), update in zip(places.tolist(), updates, strict=True):
        if 0 <= i < 5 and 0 <= j < 6:
            expected[i, j] += update
    shapes = sx.f32[5, 6, 10], sx.s32[300, 2], sx.f32[300, 10]
    np.testing.assert_array_equal(
        in_all_ways(compiled(shapes, Scatter((1,), (0, 1), (0, 1), 1)), x, places, updates), expected
    )


@pytest.mark.parametrize("count", [1, 5, 300])
def test_one_window_of_each_batch(count: int):
    """As the gradient of a cross entropy has them."""
    rng = np.random.default_rng(count)
    x, updates = rng.normal(size=(count, 7)).astype(np.float32), rng.normal(size=(count, 1)).astype(np.float32)
    places = rng.integers(-1, 8, (count, 1)).astype(np.int32)
    expected = x.copy()
    for row, place in enumerate(places[:, 0].tolist()):
        if 0 <= place < 7:
            expected[row, place] += updates[row, 0]
    shapes = sx.f32[count, 7], sx.s32[count, 1], sx.f32[count, 1]
    kernel = compiled(shapes, Scatter((), (1,), (1,), 2, (0,), (0,)))
    np.testing.assert_array_equal(in_all_ways(kernel, x, places, updates), expected)


def test_several_windows_of_each_batch():
    rng = np.random.default_rng(4)
    x, updates = rng.normal(size=(3, 9)).astype(np.float32), rng.normal(size=(3, 20)).astype(np.float32)
    places = rng.integers(0, 9, (3, 20)).astype(np.int32)
    b = sx.XlaBuilder("test")
    given = [b.parameter(i, shape) for i, shape in enumerate((sx.f32[3, 9], sx.s32[3, 20], sx.f32[3, 20]))]
    numbers = Scatter((), (1,), (1,), 2, (0,), (0,))
    made = sx.compile(b.build(sx.scatter(*given, sx.add, dimension_numbers=numbers)))(x, places, updates)
    np.testing.assert_array_equal(made, [added(*each) for each in zip(x, places, updates, strict=True)])


@pytest.mark.parametrize("rows", [1, 7])
def test_columns(rows: int):
    """Windows whose elements lie far apart, the updates' dimension of windows behind that of the windows' elements."""
    rng = np.random.default_rng(4)
    x, updates = rng.normal(size=(rows, 13)).astype(np.float32), rng.normal(size=(rows, 300)).astype(np.float32)
    places = rng.integers(-2, 15, 300).astype(np.int32)
    kernel = compiled((sx.f32[rows, 13], sx.s32[300], sx.f32[rows, 300]), COLUMNS)
    np.testing.assert_array_equal(in_all_ways(kernel, x, places, updates), added(x.T, places, updates.T).T)


def test_windows_of_several_loops():
    """Windows [4, *, 5] of [4, 6, 5], moved along the middle."""
    rng = np.random.default_rng(5)
    x, updates = rng.normal(size=(4, 6, 5)).astype(np.float32), rng.normal(size=(20, 4, 5)).astype(np.float32)
    places = rng.integers(-2, 8, 20).astype(np.int32)
    expected = x.copy()
    for place, update in zip(places.tolist(), updates, strict=True):
        if 0 <= place < 6:
            expected[:, place] += update
    kernel = compiled((sx.f32[4, 6, 5], sx.s32[20], sx.f32[20, 4, 5]), Scatter((1, 2), (1,), (1,), 1))
    np.testing.assert_array_equal(in_all_ways(kernel, x, places, updates), expected)


@pytest.mark.parametrize(
    ("region", "step"),
    [
        (lambda a, u: u, lambda a, u: u),  # the last update stays
        (sx.sub, np.subtract),
        (sx.mul, np.multiply),
        (sx.max, np.maximum),
        (lambda a, u: a * 0.5 + sx.abs(u), lambda a, u: a * np.float32(0.5) + np.abs(u)),
    ],
)
def test_any_region_in_the_order_of_the_updates(region: Callable[..., Any], step: Callable[..., Any]):
    rng = np.random.default_rng(6)
    x, updates = sample("f32", 6 * 19).reshape(6, 19), sample("f32", 300 * 19, 1).reshape(300, 19)
    places = rng.integers(0, 6, 300).astype(np.int32)
    places[places == 2] = 3
    expected = x.copy()
    with np.errstate(all="ignore"):
        for place, update in zip(places.tolist(), updates, strict=True):
            expected[place] = step(expected[place], update)
    shapes = sx.f32[6, 19], sx.s32[300], sx.f32[300, 19]
    result = in_all_ways(compiled(shapes, ROWS, region=region), x, places, updates)
    np.testing.assert_array_equal(result, expected)
    assert result[2].tobytes() == x[2].tobytes()


def test_places_that_are_promised_to_differ():
    """Threads share the updates then."""
    rng = np.random.default_rng(8)
    x, updates = rng.normal(size=20_000).astype(np.float32), rng.normal(size=17_001).astype(np.float32)
    places = rng.permutation(20_100)[:17_001].astype(np.int32)
    kernel = compiled((sx.f32[20_000], sx.s32[17_001], sx.f32[17_001]), ELEMENTS, unique_indices=True)
    assert kernel.emitted.items == 17_001
    np.testing.assert_array_equal(in_all_ways(kernel, x, places, updates), added(x, places, updates))


@pytest.mark.parametrize("name", [t.name for t in sx.ELEMENT_TYPES])
def test_every_element_type(name: str):
    """By both paths. A pass over all updates of one scalar goes with it."""
    rng = np.random.default_rng(9)
    x, updates = sample(name, 5 * 37).reshape(5, 37), sample(name, 300 * 37, 1).reshape(300, 37)
    places = rng.integers(-1, 6, 300).astype(np.int32)

    def computation() -> sx.XlaComputation:
        b = sx.XlaBuilder("test")
        v, i, u = (
            b.parameter(0, sx.Shape(name, (5, 37))),
            b.parameter(1, sx.s32[300]),
            b.parameter(2, sx.Shape(name, (300, 37))),
        )
        first = sx.scatter(v, i, u, sx.or_ if element_type(name).is_pred else sx.add, dimension_numbers=ROWS)
        one = sx.broadcast(sx.reshape(sx.slice(u, (0, 0), (1, 1), (1, 1)), ()), (300, 37))
        return b.build(sx.scatter(first, i, one, lambda a, b: b, dimension_numbers=ROWS))

    executable = sx.compile(computation())
    assert {k.path for k in executable.kernels if k.name.startswith("scatter")} == {
        "general" if element_type(name).is_complex else "emitted"
    }
    result, expected = executable(x, places, updates), sx.compile(computation(), options=general_only())
    with np.errstate(all="ignore"):
        assert np.asarray(result).tobytes() == np.asarray(expected(x, places, updates)).tobytes()


def test_what_lies_far_is_asked_for_ahead():
    target = CpuTarget(vector_bits=256, l2_bytes=1 << 10)
    rng = np.random.default_rng(10)
    x, updates = rng.normal(size=(50, 24)).astype(np.float32), rng.normal(size=(400, 24)).astype(np.float32)
    places = rng.integers(-9, 60, 400).astype(np.int32)
    shapes = sx.f32[50, 24], sx.s32[400], sx.f32[400, 24]
    assert str(emit(kernel_text(shapes, ROWS), target, emit_scatter)[0]).count("memref.prefetch") == 4
    if host_target().vector_bits >= 256:
        kernel = compiled(shapes, ROWS, target)
        np.testing.assert_array_equal(in_all_ways(kernel, x, places, updates), added(x, places, updates))


@pytest.mark.parametrize(
    ("shapes", "numbers"),
    [
        ((sx.f32[9, 64], sx.s32[4], sx.f32[4, 2, 64]), Scatter((1, 2), (), (0,), 1)),  # windows may lie partly inside
        ((sx.c64[9], sx.s32[4], sx.c64[4]), ELEMENTS),
        ((sx.f32[9, 4], sx.s32[5, 0], sx.f32[5, 9, 4]), Scatter((1, 2), (), (), 1)),  # vectors without numbers
    ],
)
def test_what_it_leaves_to_the_general_path(shapes: Shapes, numbers: Scatter):
    with pytest.raises(LookupError):
        emit(kernel_text(shapes, numbers), host_target(), emit_scatter)
