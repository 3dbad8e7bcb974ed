"""Gathers of rows on the CPU, kernel by kernel. Oracle: numpy's indexing, byte for byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.cpu.indexing.gather import emit_gather
from tests.ops.samples import sample
from tests.programs import general_only
from tests.targets.cpu.harness import CompiledKernel, compile_kernel, emit

Gather = sx.GatherDimensionNumbers
WIDTHS = (128, 256, 512)


def kernel_text(x: sx.Shape, indices: sx.Shape, numbers: Gather, sizes: tuple[int, ...]) -> str:
    """The module of the one kernel that a gather becomes."""
    b = sx.XlaBuilder("test")
    root = sx.gather(b.parameter(0, x), b.parameter(1, indices), dimension_numbers=numbers, slice_sizes=sizes)
    text = sx.compile(b.build(root), options=general_only()).ir("kernels")
    (kernel,) = (part for part in text.split("\n  func.func ") if part.startswith("private @gather"))
    return f"func.func {kernel}"


def compiled(target: CpuTarget | None, *arguments: Any) -> CompiledKernel:
    return compile_kernel(kernel_text(*arguments), target, emit_gather)


def test_rows_of_every_length_and_width():
    rng = np.random.default_rng(0)
    places = rng.integers(-3, 12, 7).astype(np.int32)
    for columns in (8, 9, 15, 16, 31, 33, 64, 100):
        x = rng.normal(size=(9, columns)).astype(np.float32)
        for width in WIDTHS if columns in (9, 33) else (host_target().vector_bits,):
            if width > host_target().vector_bits:
                continue
            shapes = sx.f32[9, columns], sx.s32[7], Gather((1,), (0,), (0,), 1), (1, columns)
            (result,) = compiled(CpuTarget(vector_bits=width), *shapes).in_all_ways(x.reshape(-1), places)
            np.testing.assert_array_equal(result.reshape(7, columns), x[np.clip(places, 0, 8)])


@pytest.mark.parametrize("width", WIDTHS)
def test_it_is_written_for_every_width(width: int):
    text = kernel_text(sx.f32[9, 33], sx.s32[7], Gather((1,), (0,), (0,), 1), (1, 33))
    assert f"vector<{width // 32}xf32>" in str(emit(text, CpuTarget(vector_bits=width), emit_gather)[0])


def test_slices_of_several_rows_and_batches():
    """Slices [2,3,16] of [3,5,16], whose dimensions lie around those of the indices; rows of each of several arrays."""
    rng = np.random.default_rng(1)
    x, places = rng.normal(size=(4, 5, 16)).astype(np.float32), rng.integers(-2, 6, (3, 2)).astype(np.int64)
    numbers = Gather((0, 2, 3), (), (0, 1), 1)
    kernel = compiled(None, sx.f32[4, 5, 16], sx.s64[3, 2], numbers, (2, 3, 16))
    # What lies outside of the loop over the vectors makes a table of them: the kernel is given that.
    held = np.clip(places, 0, (2, 2))
    (result,) = kernel.in_all_ways(x.reshape(-1), (held[:, 0] * 80 + held[:, 1] * 16).astype(np.int32))
    expected = np.stack([x[i : i + 2, j : j + 3] for i, j in held], 1)
    np.testing.assert_array_equal(result.reshape(2, 3, 3, 16), expected)

    batched = Gather((2,), (1,), (1,), 2, (0,), (0,))
    rows = rng.integers(-2, 6, (4, 3)).astype(np.uint8)
    kernel = compiled(None, sx.f32[4, 5, 16], sx.u8[4, 3], batched, (1, 1, 16))
    (result,) = kernel.in_all_ways(x.reshape(-1), rows.reshape(-1))
    expected = np.take_along_axis(x, np.minimum(rows, 4)[..., None].astype(int), 1)
    np.testing.assert_array_equal(result.reshape(4, 3, 16), expected)


def test_big_results_go_past_the_caches_and_rows_are_fetched_ahead():
    target = CpuTarget(vector_bits=256, nontemporal_bytes=1 << 12, l2_bytes=1 << 10)
    rng = np.random.default_rng(2)
    x, places = rng.normal(size=(50, 24)).astype(np.float32), rng.integers(-9, 60, 200).astype(np.int32)
    shapes = sx.f32[50, 24], sx.s32[200], Gather((1,), (0,), (0,), 1), (1, 24)
    text = str(emit(kernel_text(*shapes), target, emit_gather)[0])
    assert "nontemporal" in text
    assert "memref.prefetch" in text
    if host_target().vector_bits >= 256:
        (result,) = compiled(target, *shapes).in_all_ways(x.reshape(-1), places)
        np.testing.assert_array_equal(result.reshape(200, 24), x[np.clip(places, 0, 49)])
    odd = kernel_text(sx.f32[50, 25], sx.s32[200], Gather((1,), (0,), (0,), 1), (1, 25))
    assert "nontemporal" not in str(emit(odd, target, emit_gather)[0])


@pytest.mark.parametrize("name", [t.name for t in sx.ELEMENT_TYPES])
def test_every_element_type(name: str):
    x = sample(name, 7 * 70).reshape(7, 70)
    places = np.array([6, 0, 3, 9, -1], np.int32)
    b = sx.XlaBuilder("test")
    numbers = Gather((1,), (0,), (0,), 1)
    root = sx.gather(
        b.parameter(0, sx.Shape(name, x.shape)),
        b.parameter(1, sx.s32[5]),
        dimension_numbers=numbers,
        slice_sizes=(1, 70),
    )
    executable = sx.compile(b.build(root))
    assert [k.path for k in executable.kernels] == ["emitted"]
    result = executable(x, places)
    np.testing.assert_array_equal(
        np.ascontiguousarray(result).view(np.uint8), np.ascontiguousarray(x[[6, 0, 3, 6, 0]]).view(np.uint8)
    )


@pytest.mark.parametrize(
    ("x", "indices", "numbers", "sizes"),
    [
        (sx.f32[9, 7], sx.s32[4], Gather((1,), (0,), (0,), 1), (1, 7)),  # a short row
        (sx.f32[9, 64], sx.s32[4], Gather((0,), (1,), (1,), 1), (9, 1)),  # a column
        (sx.f32[64], sx.s32[4], Gather((), (0,), (0,), 1), (1,)),  # single elements
        (sx.f32[9, 64], sx.s32[1], Gather((1,), (0,), (0,), 1), (1, 64)),  # one row
    ],
)
def test_what_it_leaves_to_the_general_path(x: sx.Shape, indices: sx.Shape, numbers: Gather, sizes: tuple[int, ...]):
    with pytest.raises(LookupError):
        emit(kernel_text(x, indices, numbers, sizes), host_target(), emit_gather)
