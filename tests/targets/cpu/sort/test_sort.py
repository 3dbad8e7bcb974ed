"""Sorts of one array by keys on the CPU: in lanes, tiles, phases. Oracle: numpy's stable argsort of integer keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.targets.cpu.assembly import assembly_for
from tests.targets.cpu.harness import emit

DTYPES = {"f32": np.float32, "f64": np.float64, "s32": np.int32, "u32": np.uint32, "s64": np.int64, "u64": np.uint64}


def sample(name: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Numbers with many equal ones, the ends of the type, and for floats zeros and NaNs of both signs."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(DTYPES[name])
    kind = rng.integers(0, 20, shape)
    if dtype.kind != "f":
        info = np.iinfo(dtype)
        x = rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)
        for number, value in enumerate((info.max, info.min, 0, 1)):
            x[kind == number] = value
        return x
    x = rng.standard_normal(shape).astype(dtype)
    other_nan = np.array([np.nan], dtype).view(f"i{dtype.itemsize}") + 5
    for number, value in enumerate((0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, *other_nan.view(dtype))):
        x[kind == number] = value
    return x


def keys_of(x: np.ndarray, alike: bool) -> np.ndarray:
    """Integers in the order of the elements."""
    if x.dtype.kind != "f":
        return x
    x = np.where(np.isnan(x), x.dtype.type(np.nan), np.where(x == 0, x.dtype.type(0), x)) if alike else x
    bits = x.view(f"i{x.dtype.itemsize}")
    return bits ^ ((bits >> (8 * x.dtype.itemsize - 1)) & np.iinfo(bits.dtype).max)


def expected(x: np.ndarray, way: str, axis: int) -> np.ndarray:
    keys = keys_of(x, way == "alike")
    keys = ~keys if way == "descending" else keys
    return np.take_along_axis(x, np.argsort(keys, axis=axis, kind="stable"), axis)


def alike(v: sx.XlaOp) -> sx.XlaOp:
    return sx.select(sx.ne(v, v), float("nan"), sx.select(sx.eq(v, 0.0), 0.0, v))


def sort(x: np.ndarray, name: str, way: str, axis: int = -1, **options: Any) -> np.ndarray:
    less, greater = (sx.lt, sx.gt) if x.dtype.kind != "f" else (sx.lt_total_order, sx.gt_total_order)
    comparator = {"ascending": less, "descending": greater, "alike": lambda a, b: less(alike(a), alike(b))}[way]
    b = sx.XlaBuilder("sort")
    c = b.build(sx.sort(b.parameter(0, sx.Shape(name, x.shape)), comparator, axis, is_stable=True))
    executable = sx.compile(c, options=sx.CompileOptions(**options))
    assert "sort_keys" in executable.ir("tensor")
    return np.asarray(executable(x))


def check(x: np.ndarray, name: str, way: str, axis: int = -1, **options: Any) -> None:
    actual = sort(x, name, way, axis, **options)
    np.testing.assert_array_equal(actual.view(np.uint8), expected(x, way, axis).view(np.uint8))


@pytest.mark.parametrize("name", sorted(DTYPES))
@pytest.mark.parametrize(
    ("shape", "axis"), [((10, 27), 0), ((3, 65, 5), 1), ((2, 100, 17), 1), ((2049, 8), 0), ((600, 3), 0), ((2, 2), 0)]
)
def test_columns(name: str, shape: tuple[int, ...], axis: int) -> None:
    """Along a dimension that is not the last, in place or transposed; the general path sorts the same."""
    usual = sx.pipeline("cpu")
    general = usual.replacing_pass("stablexla-emit-kernels", "stablexla-emit-kernels{general-only=true}")
    for way in ("ascending", "alike") if name.startswith("f") else ("ascending", "descending"):
        for options in ({}, {"vector_bits": 128}, {"pipeline": general}):
            check(sample(name, shape), name, way, axis, **options)


@pytest.mark.parametrize("length", [2, 3, 7, 8, 9, 33, 100, 1025])
def test_many_rows(length: int) -> None:
    check(sample("f32", (19, length)), "f32", "alike")


@pytest.mark.parametrize(("name", "bits"), [*((name, 256) for name in sorted(DTYPES)), ("f32", 128), ("f64", 512)])
def test_rows_of_any_length_and_of_one(name: str, bits: int) -> None:
    """The function of the library, whose argument the length is, and code for the length; on both sides of vectors."""
    for rows, length in ((17, 2), (16, 7), (31, 8), (20, 16), (18, 17), (47, 33)):
        x = sample(name, (rows, length), rows)
        for way in ("alike", "descending") if DTYPES[name] in (np.float32, np.float64) else ("ascending", "descending"):
            for least in (1, rows * length):
                check(x, name, way, vector_bits=bits, choices=f"usual+sort.library-elements={least}")


@pytest.mark.parametrize("name", sorted(DTYPES))
def test_element_types(name: str) -> None:
    """Rows in lanes, a row of one tile, and one of several."""
    for shape in ((16, 20), (1, 3001), (2, 40_000)):
        check(sample(name, shape), name, "ascending")
    check(sample(name, (2, 700)), name, "descending")


@pytest.mark.parametrize("shape", [(1, 65), (1, 4097), (3, 70_001), (1, 140_001)], ids=str)
@pytest.mark.parametrize("name", ["f32", "f64"])
def test_elements_that_are_alike_keep_their_order(name: str, shape: tuple[int, ...]) -> None:
    check(sample(name, shape), name, "alike")


def test_orders_that_are_there_already() -> None:
    """Runs that do not overlap, and rows of equal keys."""
    up = np.arange(50_000, dtype=np.float32)
    for x in (up, up[::-1].copy(), np.zeros(50_000, np.float32), np.full(50_000, np.inf, np.float32), up % 7):
        check(x[None], "f32", "alike")


@pytest.mark.parametrize("bits", [128, 256])
def test_widths_of_vectors(bits: int) -> None:
    for shape in ((16, 50), (1, 100_000)):
        check(sample("f32", shape), "f32", "alike", vector_bits=bits)


def test_threads_make_no_difference() -> None:
    x = sample("f64", (2, 50_000))
    one, two = (sort(x, "f64", "alike", num_threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one.view(np.uint64), two.view(np.uint64))


TEXT = """
func.func private @sort(%x: tensor<{size}xf32>) -> tensor<{size}xf32>
    attributes {{stablexla.kernel = "sort_keys", stablexla.config = {{rows = {rows} : i64, length = {length} : i64,
        unsigned = false, descending = false, zeros_alike = true, nans_alike = true, infinity = 2139095040 : i64}}}} {{
  return %x : tensor<{size}xf32>
}}
"""


@pytest.mark.parametrize(("rows", "length"), [(100, 100), (1, 100_000)])
def test_compiles_for_avx512(rows: int, length: int) -> None:
    from stablexla.targets.codegen.machine import host_target
    from stablexla.targets.cpu.sort.sort import emit_sort

    text = TEXT.format(rows=rows, length=length, size=rows * length)
    module, _, _ = emit(text, host_target().with_vectors(512), emit_sort)
    assembly = assembly_for(module, "sapphirerapids")
    assert "vpminsd" in assembly
    assert "zmm" in assembly
