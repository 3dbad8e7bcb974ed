"""Contractions on the CPU, kernel by kernel. Oracle: numpy.einsum in float64 or int64."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.codegen.machine import CpuTarget, host_target
from stablexla.targets.cpu.contraction import strategy as contraction
from stablexla.targets.cpu.contraction.strategy import emit_contraction
from tests.targets.cpu.assembly import assembly_for
from tests.targets.cpu.harness import DTYPES, CompiledKernel, compile_kernel, emit
from tests.targets.cpu.kernel_text import Array, KernelText


def dot(
    text: KernelText, equation: str, sizes: dict[str, int], element: str, total: str, cast: str = ""
) -> tuple[Array, list[Array]]:
    """Adds the contraction `equation` (as einsum spells it) and its two inputs."""
    operands, out = equation.split("->")
    left, right = operands.split(",")
    loops = out + "".join(sorted(set(left + right) - set(out)))
    place = {letter: f"d{i}" for i, letter in enumerate(loops)}
    inputs = [text.input(element, [sizes[x] for x in side]) for side in (left, right)]
    maps = [", ".join(place[x] for x in side) for side in (left, right)]
    kind = "f" if total.startswith("f") else "i"
    convert = [f"%{x}{x} = arith.{cast} %{x} : {element} to {total}" for x in "ab"] if cast else []
    x, y = ("%aa", "%bb") if cast else ("%a", "%b")
    body = [*convert, f"%p = arith.mul{kind} {x}, {y} : {total}", f"%r = arith.add{kind} %c, %p : {total}"]
    zero = "0.0" if kind == "f" else "0"
    (made,) = text.fold(
        [sizes[x] for x in loops],
        range(len(out), len(loops)),
        list(zip(inputs, maps, strict=True)),
        [(zero, total)],
        "\n".join(body),
    )
    return made, inputs


def draw(array: Array, seed: int) -> np.ndarray:
    """Small numbers, so that integer sums do not overflow and f16 keeps them."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[array.element]
    if dtype.kind == "i":
        return rng.integers(-9, 10, array.shape).astype(dtype)
    return np.asarray(rng.standard_normal(array.shape), np.float32).astype(dtype)


def wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.int64 if array.dtype.kind in "iu" else np.float64)


def check_dot(
    equation: str,
    element: str = "f32",
    total: str = "",
    cast: str = "",
    target: CpuTarget | None = None,
    **sizes: int,
) -> CompiledKernel:
    """Compiles a contraction, compares with einsum, and with itself computed in other pieces."""
    text = KernelText("contraction")
    made, inputs = dot(text, equation, sizes, element, total or element, cast)
    kernel = compile_kernel(text.text(made), target, emit_contraction)
    x, y = (draw(array, seed) for seed, array in enumerate(inputs))
    (result,) = kernel(x, y)
    close_to_einsum(result, equation, x, y)
    for chunks in (2, 5):
        np.testing.assert_array_equal(kernel(x, y, chunks=chunks)[0], result)
    return kernel


def close_to_einsum(result: np.ndarray, equation: str, x: np.ndarray, y: np.ndarray) -> None:
    expected = np.einsum(equation, wide(x), wide(y))
    if result.dtype.kind == "i":
        np.testing.assert_array_equal(result, expected.astype(result.dtype))
        return
    # Each sum is off by at most its length times the rounding of the sum of magnitudes; the root is what is seen.
    magnitude = np.einsum(equation, abs(wide(x)), abs(wide(y)))
    terms = max(4, x.size * y.size / max(1, result.size)) ** 0.25
    error = abs(wide(result) - expected)
    assert (error <= 4 * terms * np.finfo(result.dtype).eps * magnitude).all(), (error.max(), magnitude.max())


# --- shapes --------------------------------------------------------------------------------------------------

SHAPES = [
    (1, 1, 1),
    (7, 33, 5),
    (3, 5, 2),
    (8, 8, 8),
    (33, 31, 17),
    (1, 7, 100),
    (100, 1, 7),
    (1, 1, 1003),
    (64, 4, 300),
    (5, 5030, 36),
    (13, 90, 700),
    (33, 70, 600),
    (37, 53, 601),
    (130, 70, 1030),
]
ORDERS = ["mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn"]


@pytest.mark.parametrize("equation", ORDERS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shapes(shape: tuple[int, int, int], equation: str) -> None:
    m, n, k = shape
    check_dot(equation, m=m, n=n, k=k)


@pytest.mark.parametrize("m", [1, 5, 11, 13, 29])
@pytest.mark.parametrize(("n", "k"), [(17, 7), (40, 8)])
def test_row_tiles_that_overlap(m: int, n: int, k: int) -> None:
    check_dot("mk,kn->mn", m=m, n=n, k=k)
    check_dot("bkm,bnk->bmn", "f64", target=replace(host_target(), num_threads=8), b=3, m=m, n=n, k=k)


def test_row_tiles_do_not_overlap_over_a_residual() -> None:
    """Rows written twice would have the residual, which lies where they are written, added twice."""
    text = KernelText("contraction")
    made, inputs = dot(text, "mk,kn->mn", {"m": 29, "n": 24, "k": 16}, "f32", "f32")
    residual = text.input("f32", [29, 24])
    kernel = compile_kernel(text.text(text.map((29, 24), [made, residual], "%r = arith.addf %a, %b : f32")))
    assert kernel.emitted.in_place == ((0, 2),)
    x, y, r = (draw(array, seed) for seed, array in enumerate([*inputs, residual]))
    (result,) = kernel(x, y, r, in_place={0: 2})
    np.testing.assert_allclose(result, wide(x) @ wide(y) + r, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("equation", ORDERS)
@pytest.mark.parametrize("shape", [(7, 700, 900), (300, 7, 900), (90, 300, 700), (210, 200, 190)], ids=str)
def test_shapes_cut_for_threads(shape: tuple[int, int, int], equation: str) -> None:
    m, n, k = shape
    kernel = check_dot(equation, target=replace(host_target(), num_threads=8), m=m, n=n, k=k)
    assert kernel.emitted.items > 1


@pytest.mark.parametrize("equation", ORDERS)
@pytest.mark.parametrize("shape", [(7, 33, 5), (5, 2030, 36), (40, 70, 600)], ids=str)
def test_double_precision(shape: tuple[int, int, int], equation: str) -> None:
    m, n, k = shape
    check_dot(equation, "f64", m=m, n=n, k=k)


@pytest.mark.parametrize("bits", [128, 256])
@pytest.mark.parametrize("shape", [(7, 33, 5), (2, 5030, 37), (50, 70, 600)], ids=str)
@pytest.mark.parametrize("element", ["f32", "f64"])
def test_narrower_vectors(shape: tuple[int, int, int], element: str, bits: int) -> None:
    if bits > host_target().vector_bits:
        pytest.skip("this machine has no such vectors")
    m, n, k = shape
    for equation in ("mk,nk->mn", "km,kn->mn"):
        check_dot(equation, element, target=CpuTarget(vector_bits=bits, num_threads=4), m=m, n=n, k=k)


def test_no_terms_give_zeros() -> None:
    for equation in ORDERS:
        check_dot(equation, m=5, n=9, k=0)
        check_dot(equation, "i32", m=1, n=40, k=0)


@pytest.mark.parametrize(("m", "n"), [(0, 4), (4, 0), (0, 0)])
def test_empty_results_write_nothing(m: int, n: int) -> None:
    check_dot("mk,kn->mn", m=m, n=n, k=3)


# --- dimensions in any order ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "equation",
    [
        "bmk,bkn->bmn",
        "bmk,bnk->bmn",
        "mbk,kbn->bmn",
        "bqhd,bkhd->bhqk",
        "bhqk,bkhd->bhqd",
        "bqhd,hdm->bqm",  # two contracted dimensions that do not lie together in lhs
        "abk,kcd->abcd",
        "abk,kn->abn",
        "akb,kn->abn",  # rows that do not lie together
        "mk,kn->nm",
        "kmb,knb->bmn",
        "am,an->mn",
        "m,n->mn",
        "k,k->",
        "bk,bk->b",
        "mk,k->m",
        "k,kn->n",
        "mkj,njk->mn",
        "mk,kn->kmn",  # a batch dimension k, nothing summed
    ],
)
@pytest.mark.parametrize("size", ["small", "large"])
def test_any_order_of_dimensions(equation: str, size: str) -> None:
    sizes = {"a": 2, "b": 3, "c": 4, "d": 5, "h": 2, "j": 3, "k": 7, "m": 6, "n": 9, "q": 4}
    if size == "large":
        sizes |= {"d": 40, "k": 65, "m": 50, "n": 67, "q": 34, "c": 19, "j": 11}
    letters = {x for x in equation if x.isalpha()}
    check_dot(equation, **{x: sizes[x] for x in letters})


@pytest.mark.parametrize("m", [33, 100, 131])
@pytest.mark.parametrize(("k", "n", "reads"), [(300, 70, True), (520, 512, True), (300, 513, True), (4096, 70, False)])
def test_lhs_in_place(m: int, k: int, n: int, reads: bool) -> None:
    """Its rows are read as they lie unless they share lines of L2, also the last ones; the same bits as packed.

    Oracle: float64.
    """
    rng = np.random.default_rng(m)
    x, y, bias = (rng.normal(size=size).astype(np.float32) for size in ((m, k), (k, n), (n,)))
    b = sx.XlaBuilder("product")
    lhs, rhs, more = (b.parameter(i, sx.Shape("f32", a.shape)) for i, a in enumerate((x, y, bias)))
    product = sx.dot(lhs, rhs)
    computation = b.build(sx.tuple([product, sx.tanh(sx.add(product, more, broadcast_dimensions=(1,)))]))
    results = []
    for columns in (1, 1000):
        choices = f"usual+contraction.short-depth=1+contraction.small-bytes=1+contraction.read-columns={columns}"
        choices += "+machine.l2-bytes=2097152"
        executable = sx.compile(computation, options=sx.CompileOptions(choices=choices, vector_bits=256))
        assert ("_in_place_" in executable.ir("buffers")) == (reads and columns > 1)
        results.append(executable(x, y, bias))
    for one, other in zip(*results, strict=True):
        np.testing.assert_array_equal(one, other)
    exact = x.astype(np.float64) @ y
    np.testing.assert_allclose(results[0][0], exact, atol=2e-6 * k**0.5 * 4)
    np.testing.assert_allclose(results[0][1], np.tanh(exact + bias), atol=2e-6 * k**0.5 * 4)


def test_long_outer_sums_in_blocks() -> None:
    check_dot("bqhd,hdm->bqm", b=2, q=40, h=5, d=150, m=70)


def test_many_products_in_blocks() -> None:
    check_dot("bmk,bkn->bmn", b=3, m=120, n=40, k=700)
    check_dot("mk,bkn->bmn", b=3, m=120, n=40, k=700)


@pytest.mark.parametrize("equation", ORDERS)
def test_long_sums_in_parts(equation: str) -> None:
    """A small result of a long k: parts of k are summed apart, then together."""
    kernel = check_dot(equation, m=19, n=37, k=9001)
    assert len(kernel.phases) > 1
    assert kernel.emitted.items > 1


def test_epilogue_after_sums_in_parts() -> None:
    text = KernelText("contraction")
    made, inputs = dot(text, "km,kn->mn", {"m": 20, "n": 21, "k": 9000}, "f32", "f32")
    bias = text.input("f32", [21])
    out = text.map((20, 21), [made, (bias, "d1")], "%r = arith.addf %a, %b : f32")
    (x, y, b), (result,) = run(text, [*inputs, bias], [out])
    np.testing.assert_allclose(result, np.einsum("km,kn->mn", wide(x), wide(y)) + b, rtol=1e-4, atol=1e-3)


def test_the_order_of_additions_does_not_depend_on_threads() -> None:
    text = KernelText("contraction")
    made, inputs = dot(text, "km,kn->mn", {"m": 40, "n": 50, "k": 9000}, "f32", "f32")
    x, y = (draw(array, seed) for seed, array in enumerate(inputs))
    results = [
        compile_kernel(text.text(made), replace(host_target(), num_threads=threads), emit_contraction)(x, y)[0]
        for threads in (1, 16)
    ]
    np.testing.assert_array_equal(*results)


# --- element types -------------------------------------------------------------------------------------------

# Every way of computing, with the function that writes it, and a target of small caches that makes shapes "large".
PATHS = {
    "short": ("emit_short", "mk,kn->mn", (20, 37, 19)),
    "short in place": ("emit_short", "mk,kn->mn", (61, 70, 19)),
    "short of long k": ("emit_short", "mk,kn->mn", (20, 37, 300)),
    "packed rhs": ("emit_short", "mk,nk->mn", (20, 37, 19)),
    "dots": ("emit_skinny_dots", "mk,nk->mn", (2, 37, 83)),
    "dots turned": ("emit_skinny_dots", "mk,nk->mn", (37, 2, 83)),
    "dots with copied lhs": ("emit_skinny_dots", "km,nk->mn", (5, 37, 163)),
    "rows": ("emit_skinny_rows", "mk,kn->mn", (2, 1101, 83)),
    "many rows": ("emit_skinny_rows", "km,kn->mn", (11, 301, 83)),
    "packed": ("emit_packed", "mk,nk->mn", (20, 37, 600)),
    "packed lhs": ("emit_packed", "km,kn->mn", (20, 37, 600)),
}
SMALL_CACHES = replace(host_target(), l2_bytes=64 << 10)


@pytest.mark.parametrize("path", PATHS)
def test_paths_are_those_meant(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, equation, (m, n, k) = PATHS[path]
    taken = []
    written = getattr(contraction, name)
    monkeypatch.setattr(contraction, name, lambda *arguments: taken.append(name) or written(*arguments))
    check_dot(equation, target=SMALL_CACHES, m=m, n=n, k=k)
    assert taken == [name]


# Products of few rows that are too large for one sweep of k in registers; caches do not make rhs "large".
FEW_ROWS = {
    "a row": ("mk,kn->mn", {"m": 1, "k": 512, "n": 512}),
    "rows": ("mk,kn->mn", {"m": 16, "k": 500, "n": 512}),
    "a row each of a batch": ("bmk,bkn->bmn", {"b": 9, "m": 1, "k": 512, "n": 512}),
    "small products of a batch": ("bmk,bkn->bmn", {"b": 9, "m": 2, "k": 128, "n": 160}),
}


@pytest.mark.parametrize("name", FEW_ROWS)
def test_rhs_of_few_rows_is_not_packed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []
    written = contraction.emit_skinny_rows
    monkeypatch.setattr(contraction, "emit_skinny_rows", lambda *arguments: taken.append(1) or written(*arguments))
    equation, sizes = FEW_ROWS[name]
    check_dot(equation, target=replace(host_target(), l1_bytes=48 << 10, l2_bytes=8 << 20), **sizes)
    assert taken


def test_a_part_of_a_skinny_product_is_longer_than_its_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []
    written = contraction.emit_skinny_rows
    monkeypatch.setattr(
        contraction, "emit_skinny_rows", lambda *arguments: plans.append(arguments[3]) or written(*arguments)
    )
    check_dot("mk,kn->mn", m=16, k=128, n=4096, target=replace(host_target(), l2_bytes=1 << 20))
    assert plans[0].depth >= 64


# Tiles of 32 registers hold more rows of lhs than lines of rhs.
MANY_REGISTERS = replace(host_target(), num_vector_registers=32, l1_bytes=8 << 10)


@pytest.mark.parametrize("element", ["f32", "f64"])
@pytest.mark.parametrize(("equation", "m"), [("mk,nk->mn", 5), ("mk,nk->mn", 8), ("mk,nk->mn", 13), ("km,nk->mn", 8)])
def test_lhs_of_dot_products_stays_in_l1(equation: str, m: int, element: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plans = []
    written = contraction.emit_skinny_dots
    monkeypatch.setattr(
        contraction, "emit_skinny_dots", lambda *arguments: plans.append(arguments[3]) or written(*arguments)
    )
    check_dot(equation, element, target=MANY_REGISTERS, m=m, n=50, k=2053)
    size = 8 if element == "f64" else 4
    assert plans[0].ahead
    assert 0 < plans[0].depth * m * size <= MANY_REGISTERS.l1_bytes


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize(
    ("element", "total", "cast"),
    [
        ("bf16", "f32", "extf"),
        ("f16", "f32", "extf"),
        ("f32", "f64", "extf"),
        ("i8", "i32", "extsi"),
        ("i8", "i32", "extui"),
        ("i16", "i32", "extsi"),
        ("i32", "i32", ""),
        ("i64", "i64", ""),
        ("i8", "i8", ""),
        ("i16", "i16", ""),
    ],
)
def test_element_types(path: str, element: str, total: str, cast: str) -> None:
    _, equation, (m, n, k) = PATHS[path]
    text = KernelText("contraction")
    made, inputs = dot(text, equation, {"m": m, "n": n, "k": k}, element, total, cast)
    kernel = compile_kernel(text.text(made), SMALL_CACHES, emit_contraction)
    x, y = (draw(array, seed) for seed, array in enumerate(inputs))
    (result,) = kernel(x, y, chunks=2)
    if cast == "extui":
        x, y = x.view(np.uint8), y.view(np.uint8)
    close_to_einsum(result, equation, x, y)


# --- epilogues -----------------------------------------------------------------------------------------------

EPILOGUE_PATHS = ("short", "short in place", "short of long k", "dots", "dots turned", "rows", "many rows", "packed")


def epilogue_setup(path: str) -> tuple[KernelText, Array, list[Array], str, tuple[int, int]]:
    _, equation, (m, n, k) = PATHS[path]
    text = KernelText("contraction")
    made, inputs = dot(text, equation, {"m": m, "n": n, "k": k}, "f32", "f32")
    return text, made, inputs, equation, (m, n)


def run(text: KernelText, inputs: Sequence[Array], results: Sequence[Array]) -> tuple[list, list]:
    kernel = compile_kernel(text.text(*results), SMALL_CACHES, emit_contraction)
    drawn = [draw(array, seed) for seed, array in enumerate(inputs)]
    out = kernel(*drawn)
    for again, first in zip(kernel(*drawn, chunks=3), out, strict=True):
        np.testing.assert_array_equal(again, first)
    return drawn, out


@pytest.mark.parametrize("path", EPILOGUE_PATHS)
def test_bias_and_relu(path: str) -> None:
    text, made, inputs, equation, (m, n) = epilogue_setup(path)
    bias = text.input("f32", [n])
    body = "%s = arith.addf %a, %b : f32\n%z = arith.constant 0.0 : f32\n%r = arith.maximumf %s, %z : f32"
    out = text.map((m, n), [made, (bias, "d1")], body)
    (x, y, b), (result,) = run(text, [*inputs, bias], [out])
    expected = np.maximum(np.einsum(equation, wide(x), wide(y)) + b, 0)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("path", EPILOGUE_PATHS)
def test_several_operations_and_results(path: str) -> None:
    text, made, inputs, equation, (m, n) = epilogue_setup(path)
    residual, scale, column = text.input("f32", [m, n]), text.input("f32"), text.input("f32", [m])
    turned = text.input("f32", [n, m])
    first = text.map(
        (m, n),
        [made, residual, scale],
        "%s = arith.mulf %a, %c : f32\n%r = arith.addf %s, %b : f32",
    )
    second = text.map(
        (m, n),
        [first, (column, "d0"), (turned, "d1, d0")],
        "%t = math.tanh %a : f32\n%s = arith.mulf %t, %b : f32\n%u = arith.addf %s, %c : f32\n"
        "%r = arith.truncf %u : f32 to bf16",
        element="bf16",
    )
    inputs = [*inputs, residual, scale, column, turned]
    (x, y, r, s, c, t), (a, b) = run(text, inputs, [first, second])
    expected = np.einsum(equation, wide(x), wide(y)) * float(s) + r
    np.testing.assert_allclose(a, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(wide(b), np.tanh(expected) * c[:, None] + t.T, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("path", EPILOGUE_PATHS)
def test_narrow_result_alone(path: str) -> None:
    """No result can hold unfinished sums, so blocks of k need a buffer."""
    text, made, inputs, equation, (m, n) = epilogue_setup(path)
    out = text.map((m, n), [made], "%r = arith.truncf %a : f32 to bf16", element="bf16")
    (x, y), (result,) = run(text, inputs, [out])
    np.testing.assert_allclose(wide(result), np.einsum(equation, wide(x), wide(y)), rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("path", EPILOGUE_PATHS)
def test_positions_in_the_epilogue(path: str) -> None:
    text, made, inputs, equation, (m, n) = epilogue_setup(path)
    body = (
        "%i = linalg.index 0 : index\n%j = linalg.index 1 : index\n%keep = arith.cmpi sge, %i, %j : index\n"
        "%low = arith.constant 0xFF800000 : f32\n%r = arith.select %keep, %a, %low : f32"
    )
    out = text.map((m, n), [made], body)
    (x, y), (result,) = run(text, inputs, [out])
    expected = np.where(np.tri(m, n, dtype=bool), np.einsum(equation, wide(x), wide(y)), -np.inf)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


def test_epilogue_across_merged_rows() -> None:
    """Rows of a product may be several dimensions of the result; the epilogue still reads by each of them."""
    text = KernelText("contraction")
    made, inputs = dot(text, "abk,kcd->abcd", {"a": 3, "b": 5, "k": 9, "c": 4, "d": 6}, "f32", "f32")
    rows, columns = text.input("f32", [5]), text.input("f32", [4])
    body = "%s = arith.mulf %a, %b : f32\n%r = arith.addf %s, %c : f32"
    out = text.map((3, 5, 4, 6), [made, (rows, "d1"), (columns, "d2")], body)
    (x, y, r, c), (result,) = run(text, [*inputs, rows, columns], [out])
    product = np.einsum("abk,kcd->abcd", wide(x), wide(y))
    expected = product * r[None, :, None, None] + c[None, None, :, None]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("path", EPILOGUE_PATHS)
def test_in_place_over_a_residual(path: str) -> None:
    text, made, inputs, equation, (m, n) = epilogue_setup(path)
    residual = text.input("f32", [m, n])
    out = text.map((m, n), [made, residual], "%r = arith.addf %a, %b : f32")
    kernel = compile_kernel(text.text(out), SMALL_CACHES, emit_contraction)
    if path != "packed":  # there unfinished sums lie in the result
        assert kernel.emitted.in_place == ((0, 2),)
    x, y, r = (draw(array, seed) for seed, array in enumerate([*inputs, residual]))
    (result,) = kernel(x, y, r, chunks=2, in_place=dict(kernel.emitted.in_place))
    np.testing.assert_allclose(result, np.einsum(equation, wide(x), wide(y)) + r, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("m", "k"), [(37, 300), (37, 256), (37, 40), (36, 40), (36, 300)])
def test_in_place_over_rows_of_which_the_last_tile_has_fewer(m: int, k: int) -> None:
    """No row goes through the epilogue twice, whatever sums it up: code in place, a function, packed GEMM."""
    text = KernelText("contraction")
    made, inputs = dot(text, "mk,kn->mn", {"m": m, "n": 90, "k": k}, "f32", "f32")
    residual = text.input("f32", [m, 90])
    out = text.map((m, 90), [made, residual], "%r = arith.addf %a, %b : f32")
    kernel = compile_kernel(text.text(out), host_target(), emit_contraction)
    x, y, r = (draw(array, seed) for seed, array in enumerate([*inputs, residual]))
    (result,) = kernel(x, y, r, chunks=2, in_place=dict(kernel.emitted.in_place))
    np.testing.assert_allclose(result, np.einsum("mk,kn->mn", wide(x), wide(y)) + r, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(("bits", "n", "k"), [(128, 10, 600), (256, 20, 600), (256, 24, 1000), (512, 40, 600)])
def test_one_row_of_lhs_in_place(bits: int, n: int, k: int) -> None:
    """A row alone has no distance to the next one, which is how packed panels are told."""
    check_dot("bk,knb->bn", target=host_target().with_vectors(bits), b=4, k=k, n=n)


# --- what is declined, and other machines --------------------------------------------------------------------


def test_declines_other_sums() -> None:
    text = KernelText("contraction")
    x, y = text.input("i8", [4, 5]), text.input("i8", [5, 6])
    body = "%p = arith.andi %a, %b : i8\n%r = arith.ori %c, %p : i8"
    (made,) = text.fold([4, 6, 5], [2], [(x, "d0, d2"), (y, "d2, d1")], [("0", "i8")], body)
    with pytest.raises(LookupError):
        emit(text.text(made), CpuTarget(), emit_contraction)


def test_declines_sums_that_do_not_start_at_zero() -> None:
    text = KernelText("contraction")
    x, y = text.input("f32", [4, 5]), text.input("f32", [5, 6])
    body = "%p = arith.mulf %a, %b : f32\n%r = arith.addf %c, %p : f32"
    (made,) = text.fold([4, 6, 5], [2], [(x, "d0, d2"), (y, "d2, d1")], [("1.0", "f32")], body)
    with pytest.raises(LookupError):
        emit(text.text(made), CpuTarget(), emit_contraction)


def test_declines_a_dimension_of_one_operand_that_is_summed() -> None:
    text = KernelText("contraction")
    x, y = text.input("f32", [4, 5, 3]), text.input("f32", [5, 6])
    body = "%p = arith.mulf %a, %b : f32\n%r = arith.addf %c, %p : f32"
    (made,) = text.fold([4, 6, 5, 3], [2, 3], [(x, "d0, d2, d3"), (y, "d2, d1")], [("0.0", "f32")], body)
    with pytest.raises(LookupError):
        emit(text.text(made), CpuTarget(), emit_contraction)


def test_items_do_not_depend_on_the_order_of_threads() -> None:
    """Work is cut for several threads once it is large enough."""
    target = CpuTarget(num_threads=8)
    text = KernelText("contraction")
    made, _ = dot(text, "mk,kn->mn", {"m": 512, "n": 512, "k": 512}, "f32", "f32")
    _, _, emitted = emit(text.text(made), target, emit_contraction)
    assert emitted.items >= 8
    assert all(phase.grain < phase.items for phase in emitted.phases)


@pytest.mark.parametrize("equation", ["mk,kn->mn", "mk,nk->mn"])
@pytest.mark.parametrize("shape", [(50, 70, 40), (2, 9000, 100), (200, 300, 700)], ids=str)
def test_compiles_for_avx512(shape: tuple[int, int, int], equation: str) -> None:
    text = KernelText("contraction")
    m, n, k = shape
    made, _ = dot(text, equation, {"m": m, "n": n, "k": k}, "f32", "f32")
    target = CpuTarget(vector_bits=512, num_vector_registers=32, l1_bytes=48 << 10, l2_bytes=2 << 20)
    module, _, _ = emit(text.text(made), target, emit_contraction)
    assembly = assembly_for(module, "sapphirerapids")
    assert "zmm" in assembly
    assert "vfmadd" in assembly


@pytest.mark.parametrize("cpu", ["skylake-avx512", "sapphirerapids"])
@pytest.mark.parametrize("shape", [(20, 37, 19), (20, 70, 600)], ids=str)
def test_narrow_floats_need_no_library(shape: tuple[int, int, int], cpu: str) -> None:
    """Parts of vectors of bf16 at the edges must not become calls that convert them."""
    text = KernelText("contraction")
    m, n, k = shape
    made, _ = dot(text, "km,kn->mn", {"m": m, "n": n, "k": k}, "bf16", "f32", "extf")
    out = text.map((m, n), [made], "%r = arith.truncf %a : f32 to bf16", element="bf16")
    module, _, _ = emit(text.text(out), CpuTarget(vector_bits=512, num_vector_registers=32), emit_contraction)
    assert not re.findall(r"\tcallq?\s+(?!stablexla_)\S+", assembly_for(module, cpu))
