"""Transposes on the CPU, kernel by kernel. Oracle: numpy.transpose, element for element."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.cpu.movement.transpose import emit_transpose
from tests.targets.cpu.assembly import assembly_for
from tests.targets.cpu.harness import DTYPES, CompiledKernel, compile_kernel, emit
from tests.targets.cpu.kernel_text import KernelText


def transpose_text(
    shape: Sequence[int], permutation: Sequence[int], element: str, body: str = "", out: str = ""
) -> str:
    """A kernel whose result has dimension permutation[i] of the input as its dimension i."""
    text = KernelText("transpose")
    x = text.input(element, shape)
    place = {d: i for i, d in enumerate(permutation)}
    map_ = ", ".join(f"d{place[d]}" for d in range(len(shape)))
    made = text.map([shape[d] for d in permutation], [(x, map_)], body, out or element, "%r" if body else "%a")
    return text.text(made)


def numbered(shape: Sequence[int], element: str) -> np.ndarray:
    """An array whose elements differ as far as the type allows."""
    count = int(np.prod(shape, dtype=np.int64))
    dtype = DTYPES[element]
    if dtype.kind == "c":
        return (np.arange(count) - 1j * np.arange(count)).astype(dtype).reshape(shape)
    if dtype.itemsize < 4:
        return np.arange(count, dtype=np.uint32).astype(f"u{dtype.itemsize}").view(dtype).reshape(shape)
    return np.arange(count).astype(dtype).reshape(shape)


def bits(array: np.ndarray) -> np.ndarray:
    """The bytes, so that NaNs compare equal to themselves."""
    return np.ascontiguousarray(array).view(np.uint8)


def check(
    shape: Sequence[int], permutation: Sequence[int], element: str = "f32", target: CpuTarget | None = None
) -> CompiledKernel:
    kernel = compile_kernel(transpose_text(shape, permutation, element), target, emit_transpose)
    x = numbered(shape, element)
    for chunks in (1, 3):
        (result,) = kernel(x, chunks=chunks)
        np.testing.assert_array_equal(bits(result), bits(np.transpose(x, permutation)))
    return kernel


@pytest.mark.parametrize(
    "shape",
    [(1, 1), (1, 9), (9, 1), (8, 8), (7, 5), (16, 3), (3, 16), (33, 41), (64, 8), (100, 260), (530, 37), (300, 1000)],
    ids=str,
)
def test_matrices(shape: tuple[int, int]) -> None:
    check(shape, (1, 0))


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize("shape", [(2, 3, 4), (17, 9, 20), (40, 1, 33)], ids=str)
def test_three_dimensions(shape: tuple[int, ...], permutation: tuple[int, ...]) -> None:
    check(shape, permutation)


@pytest.mark.parametrize(
    "permutation", [(0, 2, 1, 3), (0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (1, 0, 3, 2), (2, 3, 0, 1)]
)
def test_four_dimensions(permutation: tuple[int, ...]) -> None:
    check((3, 10, 6, 18), permutation)


@pytest.mark.parametrize("element", ["i8", "i16", "bf16", "f16", "i32", "f64", "i64", "complex<f32>", "complex<f64>"])
@pytest.mark.parametrize("shape", [(5, 3), (37, 70), (130, 300)], ids=str)
def test_element_types(element: str, shape: tuple[int, int]) -> None:
    check(shape, (1, 0), element)


@pytest.mark.parametrize("element", ["i8", "f32", "complex<f32>"])
def test_lines_stay_whole(element: str) -> None:
    check((4, 6, 19), (1, 0, 2), element)
    check((4, 6, 3), (1, 0, 2), element)
    check((9, 700, 65), (1, 0, 2), element)


@pytest.mark.parametrize("width", [128, 256])
def test_narrower_vectors(width: int) -> None:
    if width > host_target().vector_bits:
        pytest.skip("this machine has no such vectors")
    check((37, 70), (1, 0), target=CpuTarget(vector_bits=width))
    check((37, 70), (1, 0), "f64", target=CpuTarget(vector_bits=width))


@pytest.mark.parametrize("shape", [(96, 544), (100, 512)], ids=str)
def test_large_results_go_past_the_caches(shape: tuple[int, int]) -> None:
    """With tiny caches: blocks through a buffer, and stores that bypass caches where lines are aligned."""
    target = CpuTarget(vector_bits=host_target().vector_bits, l2_bytes=4096, nontemporal_bytes=4096)
    check(shape, (1, 0), target=target)
    check((shape[0], 24, 32), (1, 0, 2), target=target)


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize("shape", [(72, 1024), (130, 2048)], ids=str)
def test_lines_that_drive_each_other_out_of_the_cache(shape: tuple[int, int], element: str) -> None:
    check(shape, (1, 0), element, CpuTarget(vector_bits=host_target().vector_bits, l2_bytes=4096))


@pytest.mark.parametrize(("shape", "element"), [((3, 200, 96), "f32"), ((2, 70, 101), "f32"), ((150, 300), "i16")])
def test_lines_that_are_moved_whole(shape: tuple[int, ...], element: str) -> None:
    order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
    check(shape, order, element, CpuTarget(vector_bits=host_target().vector_bits, l2_bytes=4096))


@pytest.mark.parametrize("element", ["f32", "f64", "i16", "i8"])
def test_compiles_for_avx512(element: str) -> None:
    target = CpuTarget(vector_bits=512, num_vector_registers=32, l2_bytes=4096, nontemporal_bytes=4096)
    module, _, _ = emit(transpose_text((128, 544), (1, 0), element), target, emit_transpose)
    assembly = assembly_for(module, "sapphirerapids")
    assert "vmovnt" in assembly
    assert element in ("i16", "i8") or "zmm" in assembly


def test_empty() -> None:
    check((0, 4), (1, 0))
    check((3, 0, 4), (2, 1, 0))


def test_with_an_elementwise_body() -> None:
    body = "%s = arith.addf %a, %a : f32\n%r = arith.truncf %s : f32 to bf16"
    kernel = compile_kernel(transpose_text((37, 70), (1, 0), "f32", body, "bf16"), None, emit_transpose)
    x = numbered((37, 70), "f32")
    np.testing.assert_array_equal(bits(kernel(x)[0]), bits((x + x).T.astype(ml_dtypes.bfloat16)))


def test_declines_what_reads_two_arrays() -> None:
    text = KernelText("transpose")
    x, y = text.input("f32", [4, 5]), text.input("f32", [5, 4])
    made = text.map([5, 4], [(x, "d1, d0"), y], "%r = arith.addf %a, %b : f32")
    with pytest.raises(LookupError):
        emit(text.text(made), CpuTarget(), emit_transpose)


def test_declines_repetition() -> None:
    text = KernelText("transpose")
    made = text.map([5, 4], [(text.input("f32", [4]), "d1")], "", "f32", "%a")
    with pytest.raises(LookupError):
        emit(text.text(made), CpuTarget(), emit_transpose)
