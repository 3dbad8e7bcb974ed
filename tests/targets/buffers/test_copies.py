"""Copies of whole arrays in main: of any size, by one thread and by several. Oracle: numpy."""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.buffers.copies import BLOCK, GRAIN
from stablexla.targets.codegen.machine import CpuTarget

SHARED = 2 * GRAIN() * BLOCK()


def with_one_element_replaced(name: str, size: int, options: sx.CompileOptions | None = None) -> sx.Executable:
    """The parameter must stay as it is: the result begins as a copy of it."""
    b = sx.XlaBuilder("test")
    x, update, at = (
        b.parameter(0, sx.Shape(name, (size,))),
        b.parameter(1, sx.Shape(name, (1,))),
        b.parameter(2, sx.s32[()]),
    )
    return sx.compile(b.build(sx.dynamic_update_slice(x, update, [at])), options=options)


def check(executable: sx.Executable, x: np.ndarray) -> None:
    before, new = x.copy(), np.ones(1, x.dtype)
    for at in (0, len(x) // 2, len(x) - 1):
        expected = x.copy()
        expected[at] = 1
        np.testing.assert_array_equal(executable(x, new, np.int32(at)), expected)
    np.testing.assert_array_equal(x, before)


SIZES = [1, 63, SHARED - BLOCK(), SHARED - BLOCK() + 1, SHARED, SHARED + 37, SHARED + BLOCK() + 64]


@pytest.mark.parametrize("size", SIZES)
def test_any_number_of_bytes(size: int):
    executable = with_one_element_replaced("s8", size)
    assert ("call @copy_" in executable.ir("buffers")) == (size > SHARED - BLOCK())
    check(executable, np.random.default_rng(size).integers(-128, 128, size).astype(np.int8))


@pytest.mark.parametrize("name", ["pred", "bf16", "f32", "f64", "c64", "c128"])
def test_every_size_of_elements(name: str):
    x = np.random.default_rng(0).integers(0, 2, SHARED // 2 + 3)
    check(with_one_element_replaced(name, len(x)), x.astype(sx.Shape(name, ()).element_type.dtype))


def test_what_is_bigger_than_the_caches():
    x = np.random.default_rng(1).integers(-128, 128, CpuTarget().nontemporal_bytes + 4001).astype(np.int8)
    executable = with_one_element_replaced("s8", len(x))
    assert "nontemporal" in executable.ir("buffers")
    check(executable, x)


def test_one_thread():
    executable = with_one_element_replaced("f32", SHARED, sx.CompileOptions(num_threads=1))
    assert "stablexla.grain" not in executable.ir("buffers")
    check(executable, np.random.default_rng(2).normal(size=SHARED).astype(np.float32))


def test_copies_of_one_size_share_a_function():
    b = sx.XlaBuilder("test")
    x, y = b.parameter(0, sx.f32[SHARED]), b.parameter(1, sx.s32[SHARED])
    executable = sx.compile(b.build(sx.tuple([x, y])))
    assert executable.ir("buffers").count("func.func private @copy_") == 1
    given = np.arange(SHARED, dtype=np.float32), np.arange(SHARED, dtype=np.int32)
    for got, expected in zip(executable(*given), given, strict=True):
        np.testing.assert_array_equal(got, expected)
