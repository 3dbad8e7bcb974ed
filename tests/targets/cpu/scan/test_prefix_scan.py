"""Kernels of running scans. Oracle: numpy, for sums in its longest float."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu.scan.prefix_scan import emit_scan
from tests.targets.cpu.harness import DTYPES, compile_kernel, emit

FUNCTIONS = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "xor": np.bitwise_xor,
}
# Lines, rows that are carried in registers, and rows that are cut into panels; few and long ones in blocks.
EXTENTS = [(1, 2, 1), (3, 7, 1), (9, 1003, 1), (1, 20_001, 1), (2, 16_384, 1), (2, 5, 3), (9, 40, 33), (1, 9_000, 5)]
EXTENTS += [(1, 3_000, 64), (2, 30, 1_100), (9, 20, 2_500), (1, 12, 70)]


def kernel(
    extents: tuple[int, int, int],
    element: str,
    name: str,
    *,
    backwards: bool,
    start: bool = True,
    unsigned: bool = False,
) -> str:
    array, scalar = f"tensor<{prod(extents)}x{element}>", f", %s: {element}" if start else ""
    words = {"backwards": backwards, "start": start, "unsigned": unsigned, "whole_bytes": True, "associative": True}
    config = ", ".join([f'computation = "{name}"', *(f"{k} = {str(v).lower()}" for k, v in words.items())])
    config += ", outer = {} : i64, extent = {} : i64, inner = {} : i64".format(*extents)
    attributes = f'{{stablexla.kernel = "scan", stablexla.config = {{{config}}}}}'
    return f"func.func private @scan(%x: {array}{scalar}) -> {array} attributes {attributes} {{ return %x : {array} }}"


def scanned(x: np.ndarray, name: str, backwards: bool) -> np.ndarray:
    x = np.flip(x, 1) if backwards else x
    made = FUNCTIONS[name].accumulate(x, 1, dtype=x.dtype)
    return np.flip(made, 1) if backwards else made


def compared(
    extents: tuple[int, int, int], element: str, name: str, backwards: bool, target: CpuTarget | None = None
) -> None:
    dtype, rng = DTYPES[element], np.random.default_rng(extents)
    x = (rng.normal(size=extents) if dtype.kind == "f" else rng.integers(-100, 100, extents)).astype(dtype)
    compiled = compile_kernel(kernel(extents, element, name, backwards=backwards), target, emit_scan)
    (got,) = compiled.in_all_ways(x.reshape(-1), 3)
    wide = x.astype(np.longdouble) if dtype.kind == "f" else x
    exact = FUNCTIONS[name](scanned(wide, name, backwards), dtype.type(3))
    if dtype.kind == "f" and name == "add":
        allowed = np.finfo(dtype).eps * 30 * (scanned(np.abs(wide), name, backwards) + 3)
        assert (np.abs(got.reshape(extents) - exact) <= allowed).all()
    else:
        np.testing.assert_array_equal(got.reshape(extents), exact.astype(dtype))


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
@pytest.mark.parametrize("extents", EXTENTS, ids=str)
def test_every_way_of_scanning(extents: tuple[int, int, int], backwards: bool) -> None:
    compared(extents, "f32", "add", backwards)
    compared(extents, "i32", "maximum", backwards)


@pytest.mark.parametrize("vector_bits", [128, 512])
def test_other_widths_of_vectors(vector_bits: int) -> None:
    target = CpuTarget(vector_bits=vector_bits, num_vector_registers=32 if vector_bits == 512 else 16)
    for extents in ((3, 1003, 1), (1, 20_001, 1), (1, 9_000, 5), (2, 30, 1_100)):
        compared(extents, "f32", "add", True, target=target)
        compared(extents, "i16", "xor", False, target=target)


@pytest.mark.parametrize(
    ("element", "name"), [("f64", "minimum"), ("i8", "add"), ("i64", "multiply"), ("i16", "minimum")]
)
def test_other_types(element: str, name: str) -> None:
    for extents in ((1, 20_001, 1), (9, 77, 1), (3, 50, 9)):
        compared(extents, element, name, False)


def test_without_a_first_value() -> None:
    x = np.random.default_rng(0).integers(0, 200, 300).astype(np.uint8)
    text = kernel((1, 300, 1), "i8", "maximum", backwards=False, start=False, unsigned=True)
    (got,) = compile_kernel(text, None, emit_scan).in_all_ways(x.view(np.int8))
    np.testing.assert_array_equal(got.view(np.uint8), np.maximum.accumulate(x))


def test_results_past_the_caches() -> None:
    target = CpuTarget(nontemporal_bytes=1)
    for backwards in (False, True):
        compared((2, 4096, 1), "f32", "add", backwards, target=target)


def test_what_is_left_to_the_general_path() -> None:
    for element, name in (("bf16", "multiply"), ("f32", ""), ("complex<f32>", "add")):
        with pytest.raises(LookupError):
            emit(kernel((1, 9, 1), element, name, backwards=False), CpuTarget(), emit_scan)
