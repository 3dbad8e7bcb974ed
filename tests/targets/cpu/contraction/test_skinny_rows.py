"""Products of a few rows with a large matrix, read in parts of k and in pieces side by side. Oracle: numpy.einsum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from stablexla.targets.codegen.machine import host_target
from stablexla.targets.cpu.contraction.strategy import emit_contraction
from tests.targets.cpu.contraction.test_strategy import check_dot, dot, draw, wide
from tests.targets.cpu.harness import compile_kernel
from tests.targets.cpu.kernel_text import KernelText

# In one part; in parts of which the last is short, with columns that fill no vector; in parts that divide k.
SIZES = {"one part": (520, 101), "ragged": (1037, 517), "even": (1024, 384)}


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("m", [1, 2, 3, 5, 8, 16])
def test_rows(m: int, sizes: str) -> None:
    k, n = SIZES[sizes]
    phases = check_dot("mk,kn->mn", m=m, k=k, n=n).phases
    assert len(phases) == (1 if sizes == "one part" else 2)


@pytest.mark.parametrize(
    ("equation", "sizes"),
    [
        ("km,kn->mn", {"m": 5, "k": 1037, "n": 517}),
        ("mjk,jkn->mn", {"m": 3, "j": 5, "k": 203, "n": 301}),
        ("mkj,jkn->mn", {"m": 3, "j": 5, "k": 203, "n": 301}),
        ("bmk,bkn->bmn", {"b": 3, "m": 1, "k": 600, "n": 517}),
        ("bmk,bkn->bmn", {"b": 9, "m": 2, "k": 601, "n": 200}),
        ("k,kn->n", {"k": 1037, "n": 517}),
    ],
)
def test_forms(equation: str, sizes: dict[str, int]) -> None:
    check_dot(equation, **sizes)


@pytest.mark.parametrize(("element", "total", "cast"), [("f64", "", ""), ("bf16", "f32", "extf"), ("i32", "", "")])
@pytest.mark.parametrize("m", [1, 7])
def test_element_types(element: str, total: str, cast: str, m: int) -> None:
    check_dot("mk,kn->mn", element, total, cast, m=m, k=1037, n=517)


def test_the_sums_of_parts_meet_the_epilogue_once() -> None:
    text = KernelText("contraction")
    made, inputs = dot(text, "mk,kn->mn", {"m": 3, "k": 1037, "n": 517}, "f32", "f32")
    before = text.input("f32", [3, 517])
    out = text.map((3, 517), [made, (before, "d0, d1")], "%r = arith.addf %a, %b : f32")
    kernel = compile_kernel(text.text(out), None, emit_contraction)
    x, y, z = (draw(array, seed) for seed, array in enumerate([*inputs, before]))
    expected = np.einsum("mk,kn->mn", wide(x), wide(y)) + z
    np.testing.assert_allclose(kernel(x, y, z)[0], expected, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(kernel(x, y, z, in_place={0: 2})[0], expected, rtol=1e-4, atol=1e-3)


def test_a_nan_or_infinity_of_lhs_reaches_all_sums_of_its_row() -> None:
    text = KernelText("contraction")
    made, inputs = dot(text, "mk,kn->mn", {"m": 2, "k": 1037, "n": 517}, "f32", "f32")
    x, y = (draw(array, seed) for seed, array in enumerate(inputs))
    x[1, 1036], y[:, 5] = np.inf, 0
    (result,) = compile_kernel(text.text(made), None, emit_contraction)(x, y)
    assert np.isfinite(result[0]).all()
    assert np.isnan(result[1, 5])
    assert np.isinf(np.delete(result[1], np.flatnonzero(y[1036] == 0))).all()


@pytest.mark.parametrize("m", [1, 6])
def test_the_order_of_additions_does_not_depend_on_threads(m: int) -> None:
    text = KernelText("contraction")
    made, inputs = dot(text, "mk,kn->mn", {"m": m, "k": 1037, "n": 517}, "f32", "f32")
    x, y = (draw(array, seed) for seed, array in enumerate(inputs))
    results = [
        compile_kernel(text.text(made), replace(host_target(), num_threads=threads), emit_contraction)(x, y)[0]
        for threads in (1, 2, 16)
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])
