"""Kernels that reduce, over any loops. Oracles: numpy in f64 for sums, numpy itself where results are exact."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.cpu.elementwise.loops import emit_loop
from stablexla.targets.cpu.reduction.rows import emit_rows
from tests.targets.cpu.harness import DTYPES, compile_kernel, emit
from tests.targets.cpu.kernel_text import KernelText
from tests.targets.cpu.reduction_bodies import IN_ORDER, INF, NEG_INF, arg_best, in_f32, of_preds, plain

SUM = plain("arith.addf", "f32")
# In the order in which they are asked.
EMITTERS = (emit_loop, emit_rows)
ALL = [
    ((1,), (0,)), ((7,), (0,)), ((1000,), (0,)), ((300_001,), (0,)), ((0,), (0,)),
    ((5, 1), (1,)), ((5, 3), (1,)), ((9, 8), (1,)), ((50, 10), (1,)), ((6, 33), (1,)), ((5, 1001), (1,)),
    ((3, 70_003), (1,)), ((5, 0), (1,)), ((0, 5), (1,)),
    ((1, 5), (0,)), ((5, 1), (0,)), ((3, 7), (0,)), ((8, 5000), (0,)), ((1000, 37), (0,)), ((1003, 512), (0,)),
    ((70_001, 3), (0,)), ((0, 5), (0,)), ((5, 0), (0,)),
    ((4, 6, 5), (1,)), ((3, 100, 40), (1,)), ((2, 30_000, 9), (1,)), ((2, 3, 4), (0, 1, 2)), ((6, 5, 4), (1, 2)),
    ((20, 3, 100), (0, 2)), ((100, 4, 300, 9), (0, 2)), ((2, 5, 3, 7), (1, 3)), ((2, 5, 3, 7), (0, 2)),
]  # fmt: skip


def run(text: str, *arguments: object, target: CpuTarget | None = None) -> list[np.ndarray]:
    """The results, the same however the kernel is called."""
    return compile_kernel(text, target, *EMITTERS).in_all_ways(*arguments)


def reduction(shape: Sequence[int], axes: Sequence[int], body: str, start: str, element: str = "f32") -> str:
    text = KernelText("reduce")
    x = text.input(element, shape)
    return text.text(*text.fold(shape, axes, [x], [(start, element)], body))


def numbers(dtype: np.dtype | str, shape: Sequence[int], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        return rng.integers(-100, 100, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(("shape", "axes"), ALL, ids=str)
def test_sums(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = numbers("f4", shape)
    (got,) = run(reduction(shape, axes, SUM, "0.5"), x)
    exact = x.sum(axis=axes, dtype="f8") + 0.5
    assert got.shape == exact.shape
    allowed = 1e-6 * (np.abs(x).sum(axis=axes, dtype="f8") + 0.5)
    assert (np.abs(got - exact) <= allowed).all()


@pytest.mark.parametrize(("shape", "axes"), [((5, 100), (1,)), ((100, 20), (0,)), ((9, 50, 30), (0, 2))], ids=str)
@pytest.mark.parametrize("bits", [128, 512])
def test_vector_widths(shape: tuple[int, ...], axes: tuple[int, ...], bits: int) -> None:
    x = numbers("f4", shape)
    (got,) = run(reduction(shape, axes, SUM, "0.0"), x, target=CpuTarget(vector_bits=bits))
    np.testing.assert_allclose(got, x.sum(axis=axes, dtype="f8"), rtol=1e-4, atol=1e-4)


SOME = [((5, 3), (1,)), ((4, 70), (1,)), ((2, 70_003), (1,)), ((50, 33), (0,)), ((3, 40, 9), (1,))]
OPERATIONS: dict[str, tuple[str, Callable[[np.ndarray, int], np.ndarray]]] = {
    "addi": ("0", lambda x, a: x.sum(axis=a, dtype=x.dtype)),
    "muli": ("1", lambda x, a: x.prod(axis=a, dtype=x.dtype)),
    "andi": ("-1", lambda x, a: np.bitwise_and.reduce(x, axis=a)),
    "ori": ("0", lambda x, a: np.bitwise_or.reduce(x, axis=a)),
    "xori": ("0", lambda x, a: np.bitwise_xor.reduce(x, axis=a)),
    "maxsi": ("-100", lambda x, a: x.max(axis=a)),
    "minsi": ("100", lambda x, a: x.min(axis=a)),
    "maxui": ("0", lambda x, a: x.view(f"u{x.itemsize}").max(axis=a).view(x.dtype)),
    "minui": ("-1", lambda x, a: x.view(f"u{x.itemsize}").min(axis=a).view(x.dtype)),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize(("shape", "axes"), SOME, ids=str)
def test_integer_operations(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    start, expected = OPERATIONS[name]
    element = "i32" if shape[0] % 2 else "i8"
    x = numbers(DTYPES[element], shape)
    (got,) = run(reduction(shape, axes, plain(f"arith.{name}", element), start, element), x)
    np.testing.assert_array_equal(got, expected(x, axes[0]))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("shape", "axes"), [*SOME, ((30, 1000), (1,))], ids=str)
def test_extremes_with_nan_and_signed_zeros(largest: bool, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    name, start = ("arith.maximumf", NEG_INF) if largest else ("arith.minimumf", INF)
    kernel = compile_kernel(reduction(shape, axes, plain(name, "f32"), start), None, *EMITTERS)
    rng = np.random.default_rng(1)
    zeros = rng.choice(np.array([0.0, -0.0], "f4"), shape, p=[0.01, 0.99] if largest else [0.99, 0.01])
    spoiled = np.where(rng.random(shape) < 0.01, np.nan, rng.standard_normal(shape)).astype("f4")
    infinite = rng.choice(np.array([np.inf, -np.inf], "f4"), shape)
    for x in (numbers("f4", shape), zeros, spoiled, infinite):
        (got,) = kernel(x, chunks=2)
        np.testing.assert_array_equal(got, (x.max if largest else x.min)(axis=axes))
    signs = np.signbit(zeros)
    np.testing.assert_array_equal(
        np.signbit(kernel(zeros)[0]), signs.all(axis=axes) if largest else signs.any(axis=axes)
    )


@pytest.mark.parametrize("element", ["bf16", "f16"])
@pytest.mark.parametrize(("shape", "axes"), SOME, ids=str)
def test_narrow_floats_are_added_in_f32(element: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 8, shape).astype(DTYPES[element])
    (got,) = run(reduction(shape, axes, in_f32(element), "0.0", element), x)
    exact = x.astype("f8").sum(axis=axes)
    if exact.max() < 65504 or element == "bf16":  # small whole numbers: the sum in f32 is exact
        np.testing.assert_array_equal(got, exact.astype(DTYPES[element]))


@pytest.mark.parametrize("operation", ["ori", "andi"])
@pytest.mark.parametrize(("shape", "axes"), [*SOME, ((4, 0), (1,))], ids=str)
def test_preds(operation: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    rare = np.random.default_rng(0).random(shape) < 0.01
    x = (rare if operation == "ori" else ~rare).astype(np.int8)
    start = "0" if operation == "ori" else "1"
    (got,) = run(reduction(shape, axes, of_preds(operation), start, "i8"), x)
    np.testing.assert_array_equal(got, (x.any if operation == "ori" else x.all)(axis=axes))


@pytest.mark.parametrize(("shape", "axes"), SOME, ids=str)
def test_operations_before_and_after(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    """The norm of x - shift, for a shift that is given for each element and one that is a scalar."""
    text = KernelText("reduce")
    x, y, s = text.input("f32", shape), text.input("f32", shape), text.input("f32")
    moved = text.map(shape, [x, y, s], "%p = arith.subf %a, %b : f32\n%r = arith.subf %p, %c : f32")
    (total,) = text.fold(
        shape, axes, [moved], [("0.0", "f32")], "%p = arith.mulf %a, %a : f32\n%r = arith.addf %b, %p : f32"
    )
    norm = text.map(total.shape or (), [total], "%r = math.sqrt %a : f32")
    a, b = numbers("f4", shape), numbers("f4", shape, 1)
    norms, totals = run(text.text(norm, total), a, b, 0.5)
    exact = ((a.astype("f8") - b - 0.5) ** 2).sum(axis=axes)
    np.testing.assert_allclose(totals, exact, rtol=1e-5)
    np.testing.assert_allclose(norms, np.sqrt(exact), rtol=1e-5)


@pytest.mark.parametrize(("shape", "axes"), SOME, ids=str)
def test_several_totals_of_one_reduction(shape: tuple[int, ...], axes: tuple[int, ...]) -> None:
    text = KernelText("reduce")
    x = text.input("f32", shape)
    body = "%p = arith.addf %b, %a : f32\n%q = arith.maximumf %c, %a : f32"
    both = text.fold(shape, axes, [x], [("0.0", "f32"), (NEG_INF, "f32")], body, "%p, %q")
    a = numbers("f4", shape)
    total, largest = run(text.text(*both), a)
    np.testing.assert_allclose(total, a.sum(axis=axes, dtype="f8"), rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(largest, a.max(axis=axes))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("element", ["f32", "f64", "i32"])
@pytest.mark.parametrize(
    ("shape", "axis"), [((20, 3), 1), ((20, 10), 1), ((7, 1001), 1), ((2, 70_003), 1), ((50, 33), 0), ((3, 40, 9), 1)]
)
def test_the_first_best_index(shape: tuple[int, ...], axis: int, element: str, largest: bool) -> None:
    index = "i64" if element == "f64" else "i32"
    extremes = {"i32": ("-2147483648", "2147483647"), "f64": ("0xFFF0000000000000", "0x7FF0000000000000")}
    start = extremes.get(element, (NEG_INF, INF))[not largest]
    text = KernelText("row")
    x = text.input(element, shape)
    places = text.map(
        shape, [], f"%i = linalg.index {axis} : index\n%r = arith.index_cast %i : index to {index}", index
    )
    best = text.fold(
        shape, [axis], [x, places], [(start, element), ("0", index)], arg_best(largest, element, index), "%x, %y"
    )
    kernel = compile_kernel(text.text(*best), None, *EMITTERS)
    rng = np.random.default_rng(2)
    cases = [rng.integers(-9, 9, shape).astype(DTYPES[element])]
    if element != "i32":
        spoiled = np.where(rng.random(shape) < 0.01, np.nan, rng.standard_normal(shape))
        zeros = rng.choice([0.0, -0.0], shape)
        cases += [c.astype(DTYPES[element]) for c in (spoiled, zeros, np.full(shape, -np.inf if largest else np.inf))]
    for case in cases:
        value, place = kernel(case, chunks=3)
        np.testing.assert_array_equal(place, (np.argmax if largest else np.argmin)(case, axis=axis))
        np.testing.assert_array_equal(value, (np.max if largest else np.min)(case, axis=axis))


@pytest.mark.parametrize(("shape", "axis"), [((20, 13), 1), ((13, 20), 0), ((3, 13, 5), 1), ((5, 0), 1)])
def test_other_bodies_keep_their_order(shape: tuple[int, ...], axis: int) -> None:
    x = numbers("f4", shape)
    (got,) = run(reduction(shape, (axis,), IN_ORDER, "1.0"), x)
    total = np.ones([n for d, n in enumerate(shape) if d != axis], "f4")
    for element in np.moveaxis(x, axis, 0):
        total = (total * total - element) * np.float32(0.25)
    np.testing.assert_allclose(got, total, rtol=1e-6)


def test_operands_that_are_repeated() -> None:
    """sum over d1 of x[d0, d1] * y[d1], with y read at the end first."""
    text = KernelText("row")
    x, y = text.input("f32", (9, 100)), text.input("f32", (100,))
    body = "%p = arith.mulf %a, %b : f32\n%r = arith.addf %c, %p : f32"
    (total,) = text.fold((9, 100), [1], [x, (y, "-d1 + 99")], [("0.0", "f32")], body)
    a, b = numbers("f4", (9, 100)), numbers("f4", (100,), 1)
    (got,) = run(text.text(total), a, b)
    np.testing.assert_allclose(got, (a * b[::-1]).sum(axis=1, dtype="f8"), rtol=1e-4, atol=1e-5)


def test_long_reductions_have_items_for_many_threads() -> None:
    for shape, axes in (
        ((1 << 22,), (0,)),
        ((1 << 14, 256), (0,)),
        ((2, 1 << 14, 64), (1,)),
        ((64, 2, 1 << 14), (0, 2)),
    ):
        _, _, emitted = emit(reduction(shape, axes, SUM, "0.0"), host_target(), *EMITTERS)
        assert emitted.phases[0].items >= 16


def test_reductions_over_different_loops_are_declined() -> None:
    text = KernelText("reduce")
    x = text.input("f32", (6, 7))
    rows = text.fold((6, 7), [1], [x], [("0.0", "f32")], SUM)
    columns = text.fold((6, 7), [0], [x], [("0.0", "f32")], SUM)
    with pytest.raises(LookupError):
        emit(text.text(*rows, *columns), host_target(), *EMITTERS)
