"""Chains of reductions and elementwise operations over rows. Oracle: numpy in f64."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.cpu.elementwise.loops import emit_loop
from stablexla.targets.cpu.reduction.rows import SCRATCH_BYTES, emit_rows
from tests.targets.cpu.harness import compile_kernel, emit
from tests.targets.cpu.kernel_text import Array, KernelText
from tests.targets.cpu.reduction_bodies import IN_ORDER, NEG_INF

EMITTERS = (emit_loop, emit_rows)
ADD, SUB = "%r = arith.addf %a, %b : f32", "%r = arith.subf %a, %b : f32"
MUL, DIV = "%r = arith.mulf %a, %b : f32", "%r = arith.divf %a, %b : f32"
EXP, MAX = "%r = math.exp %a : f32", "%r = arith.maximumf %b, %a : f32"
# Shapes and the dimensions that are reduced: rows of every length, and vectors across rows.
ALL = [
    ((1, 1), (1,)), ((5, 1), (1,)), ((7, 3), (1,)), ((3, 8), (1,)), ((9, 10), (1,)), ((3, 33), (1,)),
    ((37, 1001), (1,)), ((4, 96), (1,)), ((2, 3, 40), (2,)), ((2, 3, 5, 40), (2, 3)), ((0, 5), (1,)), ((1, 2000), (1,)),
    ((7, 3), (0,)), ((100, 37), (0,)), ((3, 12, 8), (1,)), ((3, 12, 70), (1,)), ((2, 3, 4, 21), (0, 2)),
    ((3, 4, 5, 6), (1, 3)),
]  # fmt: skip


def run(text: str, *arguments: object, target: CpuTarget | None = None) -> list[np.ndarray]:
    """The results, the same however the kernel is called."""
    return compile_kernel(text, target, *EMITTERS).in_all_ways(*arguments)


def numbers(shape: Sequence[int], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("f4")


class Rows(KernelText):
    """A kernel over `shape` that reduces `axes`."""

    def __init__(self, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
        super().__init__("row")
        self.shape, self.axes = shape, axes
        self.kept = ", ".join(f"d{d}" for d in range(len(shape)) if d not in axes)
        self.rows = tuple(n for d, n in enumerate(shape) if d not in axes)

    def total(self, x: Array, body: str = ADD.replace("%a, %b", "%b, %a"), start: str = "0.0") -> Array:
        return self.fold(self.shape, self.axes, [x], [(start, "f32")], body)[0]

    def each(self, body: str, x: Array, row: Array | None = None) -> Array:
        return self.map(self.shape, [x] if row is None else [x, (row, self.kept)], body)


def softmax(shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
    text = Rows(shape, axes)
    x = text.input("f32", shape)
    powers = text.each(EXP, text.each(SUB, x, text.total(x, MAX, NEG_INF)))
    return text.text(text.each(DIV, powers, text.total(powers)))


def exact_softmax(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    powers = np.exp(x - x.max(axis=axes, keepdims=True, initial=-np.inf).astype("f8"))
    total: np.ndarray = powers.sum(axis=axes, keepdims=True)
    shares: np.ndarray = powers / total
    return shares


@pytest.mark.parametrize(("shape", "axes"), ALL, ids=str)
def test_softmax(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = numbers(shape) * 4
    (got,) = run(softmax(shape, axes), x)
    np.testing.assert_allclose(got, exact_softmax(x, axes), rtol=4e-6)


@pytest.mark.parametrize("bits", [128, 512])
@pytest.mark.parametrize(("shape", "axes"), [((3, 100), (1,)), ((4, 9), (1,)), ((30, 21), (0,))], ids=str)
def test_vector_widths(shape: tuple[int, ...], axes: tuple[int, ...], bits: int) -> None:
    x = numbers(shape)
    (got,) = run(softmax(shape, axes), x, target=CpuTarget(vector_bits=bits))
    np.testing.assert_allclose(got, exact_softmax(x, axes), rtol=4e-6)


def test_softmax_of_masked_and_spoiled_rows() -> None:
    x = numbers((6, 50))
    x[1, 7], x[2, 3], x[3] = -np.inf, np.nan, -np.inf
    x[4, 5] = np.inf
    (got,) = run(softmax((6, 50), (1,)), x)
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(got, exact_softmax(x, (1,)), rtol=4e-6)
    assert got[1, 7] == 0
    assert np.isnan(got[2:5]).all()


def layer_norm(shape: tuple[int, ...], axes: tuple[int, ...]) -> str:
    """(x - mean) / sqrt(variance + eps) * scale + shift, with mean and 1 / deviation as further results."""
    text = Rows(shape, axes)
    last = len(shape) - 1
    x, scale, shift = text.input("f32", shape), text.input("f32", shape[-1:]), text.input("f32", shape[-1:])
    eps = text.input("f32")
    count = float(np.prod([shape[a] for a in axes]))
    divide = f"%n = arith.constant {count} : f32\n%r = arith.divf %a, %n : f32"
    mean = text.map(text.rows, [text.total(x)], divide)
    off = text.each(SUB, x, mean)
    variance = text.map(text.rows, [text.total(text.each("%r = arith.mulf %a, %a : f32", off))], divide)
    body = "%p = arith.addf %a, %b : f32\n%r = math.rsqrt %p : f32"
    inverse = text.map(text.rows, [variance, eps], body)
    scaled = text.map(shape, [text.each(MUL, off, inverse), (scale, f"d{last}")], MUL)
    return text.text(text.map(shape, [scaled, (shift, f"d{last}")], ADD), mean, inverse)


@pytest.mark.parametrize(("shape", "axes"), [c for c in ALL if np.prod(c[0]) > 1], ids=str)
def test_layer_norm(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x, scale, shift = numbers(shape), numbers(shape[-1:], 1), numbers(shape[-1:], 2)
    got, mean, inverse = run(layer_norm(shape, axes), x, scale, shift, 1e-3)
    exact = x.astype("f8")
    mu, var = exact.mean(axis=axes, keepdims=True), exact.var(axis=axes, keepdims=True)
    np.testing.assert_allclose(mean, mu.squeeze(axes), atol=1e-5)
    np.testing.assert_allclose(inverse, 1 / np.sqrt(var + 1e-3).squeeze(axes), rtol=1e-4)
    np.testing.assert_allclose(got, (exact - mu) / np.sqrt(var + 1e-3) * scale + shift, rtol=1e-3, atol=1e-3)


def test_rows_kept_as_arrays_with_a_dimension_of_one() -> None:
    """As jax writes keepdims: row values have the shape (rows, 1) and are read at (d0, 0)."""
    text = KernelText("row")
    x = text.input("f32", (6, 45))
    (total,) = text.fold((6, 45), [1], [x], [("0.0", "f32")], ADD.replace("%a, %b", "%b, %a"))
    mean = text.map((6, 1), [(total, "d0")], "%n = arith.constant 45.0 : f32\n%r = arith.divf %a, %n : f32")
    result = text.map((6, 45), [x, (mean, "d0, 0")], SUB)
    a = numbers((6, 45))
    got, means = run(text.text(result, mean), a)
    np.testing.assert_allclose(means, a.mean(axis=1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(got, a - a.mean(axis=1, keepdims=True), atol=1e-5)


def test_a_result_of_the_first_pass_and_one_of_the_last() -> None:
    text = Rows((5, 70), (1,))
    x, y = text.input("f32", (5, 70)), text.input("f32", (5, 70))
    both = text.map((5, 70), [x, y], ADD)
    text_result = text.text(both, text.each(DIV, both, text.total(both)))
    a, b = np.abs(numbers((5, 70))), np.abs(numbers((5, 70), 1))
    first, last = run(text_result, a, b)
    np.testing.assert_array_equal(first, a + b)
    np.testing.assert_allclose(last, (a + b) / (a + b).sum(axis=1, keepdims=True), rtol=1e-5)


def test_an_operand_read_in_a_later_pass_is_not_overwritten() -> None:
    text = Rows((5, 70), (1,))
    x, y = text.input("f32", (5, 70)), text.input("f32", (5, 70))
    both = text.map((5, 70), [x, y], ADD)
    share = text.each(DIV, both, text.total(both))
    _, _, emitted = emit(text.text(both, text.map((5, 70), [share, x], MUL)), host_target(), emit_rows)
    assert set(emitted.in_place) == {(1, 0), (1, 1)}


def test_values_too_long_to_be_kept_are_computed_again() -> None:
    columns = SCRATCH_BYTES() // 4 + 5
    x = numbers((2, columns))
    text = softmax((2, columns), (1,))
    assert "memref.alloca" not in str(emit(text, host_target(), emit_rows)[0])
    (got,) = run(text, x)
    np.testing.assert_allclose(got, exact_softmax(x, (1,)), rtol=2e-5)


def test_dear_values_are_computed_once() -> None:
    module, _, _ = emit(softmax((5, 512), (1,)), host_target(), emit_rows)
    implementation = next(op for op in module.body.operations if op.name.value == "k_impl")
    passes = str(implementation).split("scf.for")
    assert ["math.exp" in p for p in passes] == [False, False, False, True, False]


def test_bodies_that_keep_their_order_among_others() -> None:
    text = Rows((6, 40), (1,))
    x = text.input("f32", (6, 40))
    result = text.each(MUL, x, text.total(x, IN_ORDER, "1.0"))
    a = numbers((6, 40))
    (got,) = run(text.text(text.each(SUB, result, text.total(result))), a)
    total = np.ones(6, "f4")
    for j in range(40):
        total = (total * total - a[:, j]) * np.float32(0.25)
    exact = a * total[:, None].astype("f8")
    np.testing.assert_allclose(got, exact - exact.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-6)


def test_big_results_are_stored_past_the_caches() -> None:
    target = dataclasses.replace(host_target(), nontemporal_bytes=1)
    text = softmax((6, 512), (1,))
    assert "nontemporal" in str(emit(text, target, emit_rows)[0])
    x = numbers((6, 512))
    np.testing.assert_allclose(run(text, x, target=target)[0], exact_softmax(x, (1,)), rtol=4e-6)


@pytest.mark.parametrize("length", [16, 48, 64, 90, 512, 1000])
def test_rows_of_bf16(length: int) -> None:
    """Two registers of numbers at a time where the length allows it."""
    b = sx.XlaBuilder("softmax")
    x = b.parameter(0, sx.bf16[5, length])
    powers = sx.exp(sx.sub(x, sx.reduce(x, b.constant(-np.inf, "bf16"), sx.max, (1,)), broadcast_dimensions=(0,)))
    total = sx.reduce(sx.convert_element_type(powers, sx.f32), b.constant(0.0), sx.add, (1,))
    built = b.build(sx.div(powers, sx.convert_element_type(total, sx.bf16), broadcast_dimensions=(0,)))
    values = numbers((5, length)).astype(ml_dtypes.bfloat16)
    values[1, 3], values[2, 7] = -np.inf, np.nan
    got = np.asarray(sx.compile(built)(values)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        exact = exact_softmax(values.astype(np.float64), (1,))
    # four roundings to 8 bits, one of them of an exponent of 8 at most
    np.testing.assert_allclose(got, exact, rtol=0.04)
