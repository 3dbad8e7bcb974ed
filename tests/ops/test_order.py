"""sort and top_k, run.

Oracles: numpy's stable sort of keys that are made here, XLA:CPU, and the reference interpreter, but for TOTALORDER,
which it takes for FLOAT. XLA:CPU overruns memory when it sorts elements of 2 bits, and has no order of small floats.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from stablexla.lowering.kernels.sort import comparators
from tests import oracles
from tests.comparison import assert_same
from tests.ops.building import without_chlo
from tests.ops.samples import EDGE_SHAPES, INTEGERS, sample
from tests.ops.test_composites import decomposing
from tests.programs import check, general_only, run

SMALL = ("pred", "s2", "u2", "s4", "u4")
SMALL_FLOATS = ("f4e2m1fn", "f8e4m3fn", "f8e5m2")
NAMES = ("pred", "s2", "u2", *INTEGERS, *SMALL_FLOATS, "bf16", "f16", "f32", "f64")
# Lengths on both sides of every change of method: by counting, by digits in one part and in several.
LENGTHS = (1, 2, 3, 5, 64, 65, 100, 4096, 4097, 8193, (1 << 14) + 1, (1 << 15) + 3, 100_003)


def keys(x: np.ndarray) -> np.ndarray:
    """Integers in the total order of an array's elements."""
    type_ = element_type(x.dtype)
    if not type_.is_float:
        return x.astype(np.uint64 if type_.is_unsigned else np.int64)
    bits = x.view(f"i{x.dtype.itemsize}").astype(np.int64) << (64 - type_.bits)
    return bits ^ ((bits >> 63) & np.iinfo(np.int64).max)


def places(x: np.ndarray, axis: int = -1, *, descending: bool = False) -> np.ndarray:
    """Where the elements of the stable order stand."""
    found = keys(x)
    return np.argsort(~found if descending else found, axis=axis, kind="stable").astype(np.int32)


def oracles_for(name: str) -> tuple[str, ...]:
    """Those that are right about the total order of a type."""
    if name in SMALL_FLOATS:
        return ()
    return (*(("interpreter",) if not element_type(name).is_float else ()), *(("xla",) if name not in SMALL else ()))


def plain(name: str, size: int, seed: int = 0) -> np.ndarray:
    """A sample without denormals, which XLA:CPU takes for zeros."""
    x = sample(name, size, seed)
    if element_type(name).part.is_float:
        parts = x.view(element_type(name).part.dtype)
        with np.errstate(invalid="ignore"):
            tiny = np.abs(parts.astype(np.float64)) < ml_dtypes.finfo(parts.dtype).smallest_normal
            parts[tiny & (parts != 0)] = 1
    return x


def less(name: str, *, descending: bool = False) -> Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp]:
    if element_type(name).is_float:
        return sx.gt_total_order if descending else sx.lt_total_order
    return sx.gt if descending else sx.lt


def merged(comparator: Callable[..., sx.XlaOp]) -> Callable[..., sx.XlaOp]:
    """The same comparator, written so that it is no longer seen to be a plain one."""
    return lambda *elements: sx.not_(sx.not_(comparator(*elements)))


def counted(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """An array of the same dimensions that counts along one of them."""
    shape = [1] * x.ndim
    shape[axis] = -1
    return np.broadcast_to(np.arange(x.shape[axis], dtype=np.int32).reshape(shape), x.shape).copy()


def sort_with_places(x: np.ndarray, comparator: Callable[..., Any], axis: int = -1, **checks: Any) -> list[np.ndarray]:
    """Sorts an array and, by it, the places of its elements."""

    def make(b: sx.XlaBuilder, v: sx.XlaOp, i: sx.XlaOp) -> sx.XlaOp:
        return sx.sort((v, i), lambda a, c, *_: comparator(a, c), axis, is_stable=True)

    return run(make, x, counted(x, axis), **checks)


# --- sort -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_types(name: str, descending: bool) -> None:
    """-0 comes before 0, and NaN at the ends, by TOTALORDER."""
    against = oracles_for(name)
    comparator = less(name, descending=descending)
    for length in (40, 200):
        x = sample(name, 3 * length).reshape(3, length)
        order = places(x, descending=descending)
        expected = [np.take_along_axis(x, order, 1), order]
        sort_with_places(x, comparator, against=against if length == 40 else (), expected=expected)
        if length == 40 and not descending:
            sort_with_places(x, merged(comparator), against=[], expected=expected)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("way", ["plain", "merged"])
def test_lengths(length: int, way: str) -> None:
    comparator = sx.lt if way == "plain" else merged(sx.lt)
    for rows in (1, 3) if length > 4000 else (3,):
        x = np.random.default_rng(length).integers(-50, 50, (rows, length), dtype=np.int32)
        order = places(x)
        sort_with_places(x, comparator, against=[], expected=[np.take_along_axis(x, order, 1), order])


@pytest.mark.parametrize("name", ["f32", "f64", "u16", "s64"])
@pytest.mark.parametrize("length", [50, 5000, 40_000])
def test_one_operand(name: str, length: int) -> None:
    x = sample(name, length)
    run(lambda b, v: sx.sort(v, less(name)), x, against=["xla"] if length < 99 else [], expected=[x[places(x)]])


@pytest.mark.parametrize("shape", [s for s in EDGE_SHAPES if s], ids=str)
def test_edge_shapes(shape: tuple[int, ...]) -> None:
    x = sample("f32", int(np.prod(shape))).reshape(shape)
    for axis in range(len(shape)):
        order = places(x, axis)
        expected = [np.take_along_axis(x, order, axis), order]
        sort_with_places(x, sx.lt_total_order, axis, against=["xla"] if x.size else [], expected=expected)
    sort_with_places(x, merged(sx.lt_total_order), axis, against=[], expected=expected)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_dimensions_that_are_not_the_last(axis: int) -> None:
    x = np.random.default_rng(axis).integers(0, 9, (13, 70, 21), dtype=np.int16)
    order = places(x, axis)
    sort_with_places(
        x, sx.lt, axis, against=["interpreter", "xla"], expected=[np.take_along_axis(x, order, axis), order]
    )


def test_the_general_path() -> None:
    x = np.random.default_rng(0).integers(0, 9, (5, 30), dtype=np.int32)
    order = places(x)
    expected = [np.take_along_axis(x, order, 1), order]
    sort_with_places(x, sx.lt, against=[], expected=expected, options=general_only())


def test_sorted_inside_a_loop() -> None:
    """Each turn sorts what the one before left; the state is an operand and the result."""
    x = np.random.default_rng(0).integers(0, 1000, 200, dtype=np.int32)

    def make(b: sx.XlaBuilder, v: sx.XlaOp) -> sx.XlaOp:
        def body(state: sx.XlaOp) -> sx.XlaOp:
            i, w = state
            return sx.tuple((i + 1, sx.sort(sx.mul(w, -1), sx.lt)))

        return sx.while_(lambda s: s[0] < 3, body, sx.tuple((b.constant(0), v)))[1]

    run(make, x, against=["interpreter", "xla"], expected=[np.sort(-x)])


KEYED = [
    ("or", lambda a, b, c, d: (a < b) | (sx.eq(a, b) & (c > d))),
    ("or, the other way round", lambda a, b, c, d: (sx.gt(c, d) & sx.eq(b, a)) | sx.gt(b, a)),
    ("select", lambda a, b, c, d: sx.select(sx.eq(a, b), c > d, a < b)),
    ("not seen", lambda a, b, c, d: (sx.ne(a, b) & (a < b)) | (sx.eq(a, b) & (c > d))),
]


@pytest.mark.parametrize("length", [40, 300, 40_000])
@pytest.mark.parametrize("comparator", [c for _, c in KEYED], ids=[n for n, _ in KEYED])
def test_two_keys(comparator: Callable[..., Any], length: int) -> None:
    rng = np.random.default_rng(length)
    x, y = rng.integers(0, 7, length, dtype=np.uint8), rng.integers(-5, 5, length).astype(np.float32)
    index = np.arange(length, dtype=np.int64)
    order = np.lexsort((index, -y, x))

    def make(b: sx.XlaBuilder, *columns: sx.XlaOp) -> sx.XlaOp:
        return sx.sort(columns, lambda a, b, c, d, *_: comparator(a, b, c, d), 0, is_stable=True)

    run(make, x, y, index, against=["xla"] if length < 99 else [], expected=[x[order], y[order], index[order]])


def test_a_key_that_is_not_the_first_operand() -> None:
    x = np.random.default_rng(1).random((4, 90)).astype(np.float32)
    y = np.random.default_rng(2).integers(0, 2, (4, 90)).astype(bool)
    order = np.argsort(y, axis=1, kind="stable")
    expected = [np.take_along_axis(v, order, 1) for v in (x, y)]
    make = lambda b, v, w: sx.sort((v, w), lambda a, c, d, e: d < e, is_stable=True)  # noqa: E731
    run(make, x, y, against=["interpreter", "xla"], expected=expected)


def test_many_operands_of_all_widths() -> None:
    names = ("u8", "f64", "pred", "c64", "s16", "f16", "u4")
    columns = [sample(name, 500) for name in names]
    order = places(columns[0])
    make = lambda b, *vs: sx.sort(vs, lambda a, c, *_: a < c, 0, is_stable=True)  # noqa: E731
    run(make, *columns, against=[], expected=[c[order] for c in columns])


def test_complex_numbers_by_their_parts() -> None:
    x = np.random.default_rng(3).integers(-3, 3, (2, 300)).astype(np.float32)
    z = (x[0] + 1j * x[1]).astype(np.complex64)

    def smaller(a: sx.XlaOp, b: sx.XlaOp) -> sx.XlaOp:
        return (sx.real(a) < sx.real(b)) | (sx.eq(sx.real(a), sx.real(b)) & (sx.imag(a) < sx.imag(b)))

    run(lambda b, v: sx.sort(v, smaller), z, against=["xla"], expected=[np.sort(z)])


FICKLE: dict[str, Callable[..., Any]] = {
    "always": lambda a, b: sx.eq(a, a),
    "not less": lambda a, b: sx.ge(a, b),
    "not greater": lambda a, b: sx.le(a, b),
    "in a circle": lambda a, b: sx.lt(sx.rem(sx.sub(a, b) + 3000, 3), 2),
    "at random": lambda a, b: sx.gt(sx.and_(sx.mul(a * 40503 + b, 2654435761 - (1 << 32)), 1 << 20), 0),
}


@pytest.mark.parametrize("name", FICKLE)
@pytest.mark.parametrize("length", [5, 70, 20_000])
def test_comparators_that_contradict_themselves(name: str, length: int) -> None:
    """Some permutation comes out, and both operands are moved alike."""
    x = np.random.default_rng(length).integers(0, 1000, length, dtype=np.int32)
    y, order = sort_with_places(x, FICKLE[name], against=[])
    np.testing.assert_array_equal(np.sort(order), np.arange(length))
    np.testing.assert_array_equal(y, x[order])


@pytest.mark.parametrize("length", [7, 5000])
def test_a_comparator_that_never_answers_yes_leaves_all_as_it_was(length: int) -> None:
    x = np.random.default_rng(length).integers(0, 1000, length, dtype=np.int32)
    sort_with_places(x, lambda a, b: sx.lt(a, a), against=[], expected=[x, counted(x)])


@pytest.mark.parametrize("length", [8, 100, 40_000])
@pytest.mark.parametrize("way", ["plain", "merged"])
def test_nan_by_a_comparison_without_a_place_for_it(length: int, way: str) -> None:
    """`<` makes zeros equal, and NaN equal to everything: a permutation, sorted when there is no NaN."""
    x = plain("f32", length)
    comparator = sx.lt if way == "plain" else merged(sx.lt)
    y, order = sort_with_places(x, comparator, against=[])
    np.testing.assert_array_equal(np.sort(order), np.arange(length))
    assert_same(y, x[order])
    x[np.isnan(x)] = 0
    order = np.argsort(x, kind="stable").astype(np.int32)
    against = ["interpreter", "xla"] if length < 999 else []
    sort_with_places(x, comparator, against=against, expected=[x[order], order])


def test_a_comparator_that_makes_zeros_alike_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    read, original = 0, comparators._read

    def counted(*given: Any) -> Any:
        nonlocal read
        read += 1
        return original(*given)

    def alike(x: sx.XlaOp) -> sx.XlaOp:
        zero = x.builder.constant(np.float32(0))
        for _ in range(9):
            x = sx.select(sx.eq(x, zero), zero, x)
        return x

    monkeypatch.setattr(comparators, "_read", counted)
    x = np.array([2, -0.0, 1, 0.0, -3], np.float32)
    run(lambda b, v: sx.sort(v, lambda p, q: alike(p) < alike(q), 0), x, against=["interpreter"])
    assert 0 < read < 200


def test_a_comparator_that_reads_a_value_from_around_it() -> None:
    text = """
    func.func public @main(%x: tensor<9xi32>, %s: tensor<i32>) -> tensor<9xi32> {
      %0 = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
      ^bb0(%a: tensor<i32>, %b: tensor<i32>):
        %1 = stablehlo.multiply %a, %s : tensor<i32>
        %2 = stablehlo.multiply %b, %s : tensor<i32>
        %3 = stablehlo.compare LT, %1, %2 : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %3 : tensor<i1>
      }) : (tensor<9xi32>) -> tensor<9xi32>
      return %0 : tensor<9xi32>
    }"""
    x = np.random.default_rng(5).permutation(9).astype(np.int32)
    check(text, [x, np.int32(-1)], against=["interpreter"], expected=[np.sort(x)[::-1]])


@pytest.mark.parametrize(
    ("name", "length"),
    [
        *((name, 300) for name in ("float32", "float64", "bfloat16", "float16", "int32", "uint8", "bool", "complex64")),
        *(("float32", 40), ("complex64", 40), ("bfloat16", 33_000), ("float64", 33_000)),
    ],
)
def test_what_jax_writes(name: str, length: int) -> None:
    """Its comparators take zeros, and NaNs, for equal: the bits of both show whether the order is stable."""
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        type_ = element_type(jnp.dtype(name))
        x, y = plain(type_.name, length), plain(type_.name, length, 1)
        functions = [
            lambda a, b: jnp.sort(a),
            lambda a, b: jnp.argsort(a),
            lambda a, b: jnp.argsort(a, descending=True),
            lambda a, b: jnp.lexsort((a, b)),
            lambda a, b: jax.lax.sort((a, b), num_keys=2),
        ]
        for function in functions if length == 300 and name in ("float32", "int32") else functions[1:2]:
            text = jax.jit(function, keep_unused=True).lower(x, y).as_text()
            results = [np.asarray(r) for r in jax.tree.leaves(jax.jit(function)(x, y))]
            for actual, expected in zip(sx.compile(text).execute([x, y]), results, strict=True):
                assert actual.dtype == expected.dtype
                np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("shape", [(3, 300), (40_000,)], ids=str)
@pytest.mark.parametrize("keys", [6, 7])
def test_many_keys(keys: int, shape: tuple[int, ...]) -> None:
    """24 bytes of keys are sorted by digits, 28 are merged in rows of one thread each; NaNs and zeros are alike."""
    import jax

    rng = np.random.default_rng(keys)
    some = np.array([0.0, -0.0, np.nan, 1.5, -np.inf], np.float32)
    columns = [some[rng.integers(0, 5, shape)] for _ in range(keys)]
    columns.append(np.broadcast_to(np.arange(shape[-1], dtype=np.int32), shape).copy())
    function = jax.jit(lambda *arrays: jax.lax.sort(arrays, num_keys=keys))
    found = sx.compile(function.lower(*columns).as_text()).execute(columns)
    for actual, expected in zip(found, function(*columns), strict=True):
        np.testing.assert_array_equal(actual.view(np.int32), np.asarray(expected).view(np.int32))
    # numpy has no NaNs that are alike, nor zeros: ranks of the values
    ranks = [np.where(np.isnan(c), 3, np.searchsorted([-np.inf, 0.0, 1.5], c)) for c in columns[:keys]]
    places = np.stack([np.lexsort(rows[::-1]) for rows in np.stack(ranks).reshape(keys, -1, shape[-1]).swapaxes(0, 1)])
    np.testing.assert_array_equal(found[-1].reshape(places.shape), places)


def ways_of(comparator: Callable[..., Any], name: str, *shape: int) -> str:
    b = sx.XlaBuilder("ways")
    x = b.parameter(0, sx.Shape(name, shape))
    options = sx.CompileOptions(choices="usual")
    return sx.compile(b.build(sx.sort(x, comparator)), options=options).ir("tensor")


def test_how_plain_comparators_are_sorted() -> None:
    assert "sort_keys" in ways_of(sx.lt, "f32", 1 << 20)
    assert "radix_count" in ways_of(sx.lt, "bf16", 1 << 20)
    assert "radix_count" in ways_of(sx.lt, "s32", 1 << 20)
    assert "radix_count" in ways_of(sx.lt, "s64", 1 << 20)
    assert "sort_merge" in ways_of(merged(sx.lt), "f32", 1 << 20)
    assert "sort_merge" in ways_of(sx.le, "f32", 1 << 20)
    assert "linalg.generic" in ways_of(sx.gt, "s16", 10, 20)
    assert "sort_keys" in ways_of(sx.gt, "s64", 10, 20)
    assert "linalg.generic" not in ways_of(merged(sx.gt), "s64", 1000, 20)
    equal_zeros = lambda a, b: sx.lt_total_order(*(sx.select(sx.eq(v, 0.0), 0.0, v) for v in (a, b)))  # noqa: E731
    assert "sort_keys" in ways_of(equal_zeros, "f32", 1 << 20)
    below_zero = lambda a, b: sx.lt_total_order(*(sx.select(sx.lt(v, 0.0), 0.0, v) for v in (a, b)))  # noqa: E731
    assert "sort_merge" in ways_of(below_zero, "f32", 1 << 20)
    one_side = lambda a, b: sx.lt_total_order(sx.select(sx.eq(a, 0.0), 0.0, a), b)  # noqa: E731
    assert "sort_merge" in ways_of(one_side, "f32", 1 << 20)


# --- top_k ------------------------------------------------------------------------------------------------------------


def first(x: np.ndarray, k: int, *, largest: bool = True) -> list[np.ndarray]:
    order = places(x, descending=largest)[..., :k]
    return [np.take_along_axis(x, order, -1), order]


def select(x: np.ndarray, k: int, *, largest: bool = True, against: tuple[str, ...] = ("xla",), **options: Any) -> None:
    """Runs top_k and compares it with the keys' order, and with oracles on its decomposition."""
    b = sx.XlaBuilder("test")
    computation = b.build(sx.top_k(b.parameter(0, sx.Shape(x.dtype, x.shape)), k, largest))
    references = [first(x, k, largest=largest)]
    references += [getattr(oracles, name)(without_composites(computation), [x]) for name in against]
    results = sx.compile(computation, **options).execute([x])
    for reference in references:
        for actual, expected in zip(results, reference, strict=True):
            assert actual.dtype == expected.dtype
            np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))


def without_composites(computation: sx.XlaComputation) -> str:
    import jaxlib.mlir.ir as ir
    import jaxlib.mlir.passmanager as passmanager

    module = ir.Module.parse(without_chlo(computation), computation.module.context)
    passes = "builtin.module(func.func(stablehlo-legalize-composite-to-call))"
    passmanager.PassManager.parse(passes, module.context).run(module.operation)
    return str(module)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_top_k_types(name: str, largest: bool) -> None:
    for k in (3, 25):
        select(sample(name, 100).reshape(4, 25), k, largest=largest, against=oracles_for(name))


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize(("shape", "k"), [((1,), 1), ((7,), 0), ((3, 0), 0), ((0, 4), 2), ((2, 1, 3, 1, 2, 5), 4)])
def test_top_k_edge_shapes(shape: tuple[int, ...], k: int, largest: bool) -> None:
    x = sample("f32", int(np.prod(shape))).reshape(shape)
    select(x, k, largest=largest, against=("xla",) if x.size and k else ())


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize(("length", "k"), [(100, 1), (1000, 64), (1000, 65), (5000, 300), (5000, 5000), (200_003, 17)])
def test_top_k_of_many_equal_elements(rows: int, length: int, k: int) -> None:
    """Selected by heaps, in one part and in several, and by sorting all."""
    select(np.random.default_rng(rows).integers(0, 40, (rows, length), dtype=np.int16), k, against=())


@pytest.mark.parametrize("kind", ["ascending", "descending", "equal"])
def test_top_k_of_rows_in_order(kind: str) -> None:
    x = {"ascending": np.arange(9000), "descending": -np.arange(9000), "equal": np.zeros(9000)}[kind]
    for largest in (True, False):
        select(np.float32([x, x[::-1]]), 50, largest=largest)


def test_top_k_by_its_decomposition() -> None:
    x = sample("f32", 900).reshape(3, 300)
    for largest, k in itertools.product((True, False), (2, 200)):
        select(x, k, largest=largest, against=(), options=decomposing())


@pytest.mark.parametrize("k", [5, 400])
def test_top_k_as_jax_exports_it(k: int) -> None:
    """The operation in text, and the composite in a portable artifact."""
    import jax

    x = sample("f32", 1000).reshape(2, 500)
    function = jax.jit(lambda v: jax.lax.top_k(v, k))
    text = function.lower(x).as_text()
    artifact = jax.export.export(function)(x).mlir_module_serialized
    for program in (text, artifact):
        for actual, expected in zip(sx.compile(program).execute([x]), first(x, k), strict=True):
            np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("largest", [True, False])
def test_top_k_as_a_custom_call(largest: bool) -> None:
    """How other producers of StableHLO write it."""
    text = f"""
    func.func public @main(%x: tensor<2x500xf32>) -> (tensor<2x4xf32>, tensor<2x4xi32>) {{
      %0:2 = stablehlo.custom_call @mhlo.topk(%x) {{
        mhlo.attributes = {{k = 4 : i64, largest = {str(largest).lower()}}}, mhlo.version = 1 : i64
      }} : (tensor<2x500xf32>) -> (tensor<2x4xf32>, tensor<2x4xi32>)
      return %0#0, %0#1 : tensor<2x4xf32>, tensor<2x4xi32>
    }}"""
    x = sample("f32", 1000).reshape(2, 500)
    for actual, expected in zip(sx.compile(text).execute([x]), first(x, 4, largest=largest), strict=True):
        np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))
