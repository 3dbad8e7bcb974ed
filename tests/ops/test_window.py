"""reduce_window and select_and_scatter, run. Oracles: the reference interpreter, XLA:CPU and numpy.

Where an initial value is not neutral the two engines differ: XLA:CPU leaves padding out, and the reference interpreter
folds the initial value in for each element of padding. The operation semantics say that windows are those of the padded
array, so the interpreter is followed. XLA:CPU also forgets the initial value of an array of rank 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.element_types import element_type
from stablexla.targets.pipeline.knobs import knobs
from tests.comparison import assert_same
from tests.ops.samples import sample
from tests.programs import check, general_only, run

BOTH = ["interpreter", "xla"]
MAX_FLOAT = np.finfo(np.float32).max


def reduced(
    op: Any, start: Any, sizes: Any, strides: Any = (), base: Any = (), window: Any = (), padding: Any = "VALID"
) -> Callable[..., sx.XlaOp]:
    """A program that reduces windows, from a constant."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        init = b.constant(np.asarray(start).astype(x.shape.element_type.dtype))
        return sx.reduce_window_with_general_padding(x, init, op, sizes, strides, base, window, padding)

    return make


def every_way(make: Callable[..., Any], *arrays: Any, **checks: Any) -> None:
    """Runs a program by the CPU's emitters and, against what they give, by the general path."""
    results = run(make, *arrays, **checks)
    run(make, *arrays, options=general_only(), **{**checks, "against": [], "expected": results})


def neutral(name: str, op: Any) -> Any:
    """What changes nothing when an operation folds it in."""
    type_ = element_type(name)
    if op in (sx.add, sx.or_, sx.xor):
        return 0
    if op is sx.mul:
        return 1
    if op is sx.and_:
        return True if type_.is_pred else -1 if type_.is_signed else (1 << type_.bits) - 1
    if type_.is_pred:
        return op is sx.min
    if type_.is_float:
        return -np.inf if op is sx.max else np.inf
    low = -(1 << (type_.bits - 1)) if type_.is_signed else 0
    return low if op is sx.max else low + (1 << type_.bits) - 1


# --- the examples of the operation semantics ------------------------------------------------------------------------


@pytest.mark.parametrize(("padding", "expected"), [("VALID", [100, 1]), ("SAME", [1000, 10, 1])])
def test_the_example_with_max_float(padding: str, expected: list[int]) -> None:
    x = np.float32([10000, 1000, 100, 10, 1])
    every_way(
        lambda b, v: sx.reduce_window(v, b.constant(MAX_FLOAT), sx.min, (3,), (2,), padding),
        x,
        against=BOTH,
        expected=[np.float32(expected)],
    )


def test_the_example_of_a_maximum_in_blocks() -> None:
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
    least = np.finfo(np.float32).min
    every_way(
        lambda b, v: sx.reduce_window(v, b.constant(least), sx.max, (2, 3), (2, 3), "VALID"),
        x,
        against=BOTH,
        expected=[x.reshape(2, 2, 2, 3).max((1, 3))],
    )


# --- windows of any form ----------------------------------------------------------------------------------------------

INTEGER_OPS = [sx.add, sx.mul, sx.max, sx.min, sx.and_, sx.or_, sx.xor]


def geometry(rng: np.random.Generator, rank: int, widest: int) -> tuple[tuple[int, ...], dict[str, Any]]:
    """The extents of an array, and a window that fits at least once."""
    while True:
        shape = tuple(int(n) for n in rng.integers(0, 8, rank))
        sizes = rng.integers(1, widest + 1, rank)
        base, dilation, strides = (np.where(rng.random(rank) < 0.6, 1, rng.integers(1, 4, rank)) for _ in range(3))
        padding = rng.integers(-2, 4, (rank, 2))
        padding[rng.random(rank) < 0.4] = 0
        padded = np.maximum((np.array(shape) - 1) * base + 1, 0) * (np.array(shape) > 0) + padding.sum(1)
        if ((sizes - 1) * dilation + 1 <= padded).all():
            break
    names = ("sizes", "strides", "base", "window")
    made = {name: tuple(map(int, v)) for name, v in zip(names, (sizes, strides, base, dilation), strict=True)}
    return shape, {**made, "padding": [tuple(map(int, row)) for row in padding]}


@pytest.mark.parametrize("seed", range(28))
def test_integers_in_windows_of_any_form(seed: int) -> None:
    rng = np.random.default_rng(seed)
    name = ["s32", "s8", "u8", "u64", "s4", "u4", "s16"][seed % 7]
    shape, window = geometry(rng, 1 + seed % 4, 4 if seed % 4 > 1 else 6)
    op = INTEGER_OPS[int(rng.integers(len(INTEGER_OPS)))]
    start = neutral(name, op) if seed % 3 else 3
    x = sample(name, int(np.prod(shape)), seed).reshape(shape)
    every_way(reduced(op, start, **window), x, against=["interpreter"])


@pytest.mark.parametrize("name", ["pred", "f8e4m3fn", "f8e5m2", "bf16", "f16", "f32", "f64"])
@pytest.mark.parametrize("op", [sx.max, sx.min], ids=["max", "min"])
def test_extremes_of_other_types(name: str, op: Any) -> None:
    """NaN stays, and +0 is above -0."""
    x = sample(name, 2 * 9 * 11).reshape(2, 9, 11)
    for start in (neutral(name, op), x[0, 0, 5]):
        every_way(reduced(op, start, (1, 3, 2), (1, 2, 1), padding="SAME"), x, against=["interpreter"])


@pytest.mark.parametrize("op", [sx.and_, sx.or_, sx.xor], ids=["and", "or", "xor"])
def test_pred(op: Any) -> None:
    x = np.random.default_rng(1).random((5, 40)) < 0.7
    for size in (3, 20):
        every_way(reduced(op, neutral("pred", op), (1, size), padding="SAME"), x, against=BOTH)


@pytest.mark.parametrize("name", ["bf16", "f16", "f32", "f64", "c64"])
def test_sums_in_small_windows_keep_their_order(name: str) -> None:
    """So they are what the interpreter has, to the last digit."""
    x = np.random.default_rng(2).normal(size=(2, 9, 10, 3)).astype(element_type(name).dtype)
    for padding in ("VALID", "SAME"):
        make = reduced(sx.add, 0.5, (1, 3, 3, 1), (1, 2, 1, 1), padding=padding)
        real = lambda b, v, make=make: sx.real(make(b, v))  # noqa: E731 - the interpreter can't return complex numbers
        with knobs.scoped(choices="usual"):
            every_way(real if name == "c64" else make, x, against=["interpreter"])


@pytest.mark.parametrize("shape", [(), (1,), (1, 1, 1), (2, 1, 3, 1, 2, 2), (0, 3), (3, 0)], ids=str)
def test_edge_shapes(shape: tuple[int, ...]) -> None:
    x = sample("s32", int(np.prod(shape))).reshape(shape)
    ones, twos = (1,) * len(shape), (2,) * len(shape)
    for sizes, strides, padding in ((ones, ones, "VALID"), (twos, ones, "SAME"), (twos, twos, [(1, 2)] * len(shape))):
        every_way(reduced(sx.add, 7, sizes, strides, padding=padding), x, against=["interpreter"])


def test_windows_without_an_element() -> None:
    x = sample("s32", 5)
    every_way(reduced(sx.add, 7, (7,)), x, against=["interpreter"])
    every_way(reduced(sx.add, 7, (1,), padding=[(-4, -3)]), x, against=[], expected=[x[:0]])  # the interpreter aborts
    every_way(reduced(sx.add, 7, (2,), padding=[(4, -5)]), x, against=["interpreter"])
    every_way(reduced(sx.max, 7, (12,), padding=[(20, 3)]), x[:0], against=["interpreter"])


@pytest.mark.parametrize("name", ["f32", "s8", "u16", "bf16"])
@pytest.mark.parametrize("padding", ["SAME", [(0, 0), (2, -1), (1, 3), (0, 0)]], ids=str)
def test_pooling_with_padding(name: str, padding: Any) -> None:
    """Windows are cut at the edges then; a start that is not neutral stands for all of the padding."""
    dtype = element_type(name).dtype
    x = np.random.default_rng(15).integers(0, 9, (1, 5, 6, 11)).astype(dtype)

    def make(b: sx.XlaBuilder, v: sx.XlaOp) -> list[sx.XlaOp]:
        ways = [
            (sx.max, 4),
            (sx.add, 0),
            (sx.min, neutral("f32" if dtype.kind not in "iu" else name, sx.min)),
            (sx.add, 3),
        ]
        return [reduced(op, start, (1, 3, 2, 1), (1, 2, 1, 1), padding=padding)(b, v) for op, start in ways]

    every_way(make, x, against=["interpreter"])


# --- large windows ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [9, 16, 17, 100])
@pytest.mark.parametrize("op", [sx.add, sx.max, sx.xor], ids=["add", "max", "xor"])
def test_large_windows(size: int, op: Any) -> None:
    x = sample("s32", 150)
    start = neutral("s32", op)

    def make(b: sx.XlaBuilder, v: sx.XlaOp) -> list[sx.XlaOp]:
        rows = sx.reshape(v, (3, 50))
        return [
            reduced(op, start, (size,), padding="SAME")(b, v),
            reduced(op, 5, (size,), (3,))(b, v),
            reduced(op, start, (size,), (size,), padding=[(size, 1)])(b, v),
            reduced(op, 5, (1, size), (2, 1), (1, 2), (1, 3), [(0, 0), (size, 2 * size)])(b, rows),
            reduced(op, 5, (2, 20), (1, 7), padding=[(1, 0), (size, 0)])(b, rows),
        ]

    every_way(make, x, against=["interpreter"])


@pytest.mark.parametrize("shape", [(100, 64), (3, 600, 4)])
def test_large_windows_of_floats(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(3).random(shape, np.float32)
    sizes = (50, 20) if len(shape) == 2 else (1, 200, 3)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), sizes)
    axes = tuple(range(len(shape), 2 * len(shape)))
    wanted = {sx.add: windows.sum(axes).astype(np.float32), sx.max: windows.max(axes).astype(np.float32)}
    for op, expected in wanted.items():
        scale = 2e-6 if op is sx.add else 0
        start = neutral("f32", op)
        every_way(reduced(op, start, sizes), x, against=["xla"], expected=[expected], scale=scale)
        every_way(reduced(op, start, sizes, padding="SAME"), x, against=["xla"], scale=scale)


def test_windows_as_large_as_the_array() -> None:
    x = np.random.default_rng(4).random((2, 7, 7, 24), np.float32)
    make = reduced(sx.add, 0, (1, 7, 7, 1))
    every_way(make, x, against=BOTH, expected=[x.sum((1, 2), keepdims=True)], scale=1e-6)


# --- computations that are no single operation ------------------------------------------------------------------------


def place_of_the_largest(v: Any, i: Any, w: Any, j: Any) -> Any:
    take = sx.or_(sx.gt(v, w), sx.and_(sx.eq(v, w), sx.lt(i, j)))
    return sx.select(take, v, w), sx.select(take, i, j)


@pytest.mark.parametrize("sizes", [(1, 3), (2, 2), (1, 30)])
def test_values_and_places(sizes: tuple[int, int]) -> None:
    x = np.random.default_rng(5).integers(0, 9, (6, 40)).astype(np.float32)

    def make(b: sx.XlaBuilder, v: sx.XlaOp) -> list[sx.XlaOp]:
        both, starts = (v, b.iota(sx.s32[6, 40], 1)), (b.constant(-np.inf), b.constant(1 << 30))
        return list(sx.reduce_window(both, starts, place_of_the_largest, sizes, (1, 2), "SAME"))

    every_way(make, x, against=BOTH)


def test_a_computation_whose_order_matters() -> None:
    """First element first; any other order would be as right, and this is the interpreter's."""
    x = sample("s32", 60)
    for size in (5, 40):
        make = reduced(lambda a, c: a * 3 - c, 1, (size,), (2,), padding=[(4, 6)])
        every_way(make, x, against=["interpreter"])


def test_a_wider_computation() -> None:
    b = sx.XlaBuilder("sum")
    plus = b.build(b.parameter(0, sx.f32[()]) + b.parameter(1, sx.f32[()]))
    x = np.random.default_rng(6).normal(size=50).astype(element_type("bf16").dtype)
    for size in (3, 50):
        make = reduced(plus, 0.25, (size,), padding=[(size - 1, 0)])
        expected = np.float32([0.25 * (size - min(i + 1, size) + 1) for i in range(50)])
        wide = np.concatenate([np.zeros(size - 1), x.astype(np.float64)])
        expected += [wide[i : i + size].sum() for i in range(50)]
        every_way(make, x, against=[], expected=[expected.astype(np.float32)], scale=1e-6)


# --- scans ------------------------------------------------------------------------------------------------------------


def cumulative(op: Any, start: Any, shape: tuple[int, ...], axis: int, backwards: bool = False) -> Callable[..., Any]:
    """A scan as JAX writes it."""
    n = shape[axis]
    padding = [(0, 0)] * len(shape)
    padding[axis] = (0, n - 1) if backwards else (n - 1, 0)
    sizes = tuple(n if d == axis else 1 for d in range(len(shape)))
    return reduced(op, start, sizes, padding=padding)


def accumulated(function: Any, x: np.ndarray, axis: int, backwards: bool) -> np.ndarray:
    if backwards:
        return np.flip(function.accumulate(np.flip(x, axis), axis, dtype=x.dtype), axis)
    return function.accumulate(x, axis, dtype=x.dtype)


SCANNED = [((2,), 0), ((7,), 0), ((50,), 0), ((3, 20), 1), ((9, 21), 1), ((30, 5), 0), ((2, 12, 9), 1), ((2, 3, 70), 1)]
SCANNED += [((2, 1, 3, 1, 2, 2), 2), ((1, 33, 1), 1)]


@pytest.mark.parametrize(("shape", "axis"), SCANNED, ids=str)
def test_scans_against_the_interpreter(shape: tuple[int, ...], axis: int) -> None:
    def make(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
        of = [(x, sx.add, 0), (x, sx.max, 1), (x, sx.add, 3), (x, sx.mul, 1), (y, sx.and_, 7), (y, sx.xor, 0)]
        return [cumulative(op, start, shape, axis, back)(b, v) for v, op, start in of for back in (False, True)]

    arrays = [sample(name, int(np.prod(shape)), 1).reshape(shape) for name in ("s32", "u4")]
    every_way(make, *arrays, against=["interpreter"])


LONG = [(20001,), (2, 17000), (9, 1003), (4100, 5), (3000, 3, 4), (40, 1100), (9, 20, 130)]


@pytest.mark.parametrize("name", ["integer", "f32", "f64"])
@pytest.mark.parametrize(
    ("shape", "integer"), [*zip(LONG, ["s16", "s64", "u32", "s8", "u64", "s32", "u8"], strict=True)]
)
def test_long_scans(shape: tuple[int, ...], integer: str, name: str) -> None:
    rng = np.random.default_rng(7)
    axis = 1 if shape[0] in (2, 9) else 0
    type_ = element_type(integer if name == "integer" else name)
    x = (rng.integers(0, 100, shape) if name == "integer" else rng.normal(size=shape)).astype(type_.dtype)
    ways = [(op, back) for op in (sx.add, sx.min) for back in (False, True)]

    def make(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        return [cumulative(op, neutral(type_.name, op), shape, axis, back)(b, x) for op, back in ways]

    exact = x if name == "integer" else x.astype(np.longdouble)
    for (op, back), result in zip(ways, run(make, x, against=[]), strict=True):
        expected = accumulated(np.add if op is sx.add else np.minimum, exact, axis, back).astype(x.dtype)
        assert_same(result, expected, scale={"f32": 2e-5, "f64": 4e-14}.get(name, 0))


def test_long_scans_are_the_same_on_any_number_of_threads() -> None:
    x = np.random.default_rng(8).normal(size=100_003).astype(np.float32)
    b = sx.XlaBuilder("scan")
    computation = b.build(cumulative(sx.add, 0, x.shape, 0)(b, b.parameter(0, sx.f32[x.size])))
    results = [sx.compile(computation, options=sx.CompileOptions(num_threads=n))(x) for n in (1, 2, 3)]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_scans_carry_nan_and_the_sign_of_zero() -> None:
    x = np.float32([-0.0, -0.0, 1, np.nan, 2, -np.inf, 0] * 7)
    for backwards in (False, True):
        for op, start in ((sx.add, 0), (sx.add, -0.0), (sx.max, -np.inf), (sx.min, np.inf), (sx.mul, 1)):
            every_way(cumulative(op, start, x.shape, 0, backwards), x, against=["interpreter"])


@pytest.mark.parametrize("name", ["bf16", "f16", "f8e5m2", "pred"])
def test_scans_of_types_that_are_computed_in_others(name: str) -> None:
    x = sample(name, 90, 2).reshape(2, 45)
    op = sx.or_ if name == "pred" else sx.max
    for axis in (0, 1):
        every_way(cumulative(op, neutral(name, op), x.shape, axis), x, against=["interpreter"])


@pytest.mark.parametrize("name", ["c64", "c128"])
def test_complex_numbers(name: str) -> None:
    rng = np.random.default_rng(16)
    x = (rng.normal(size=(3, 40)) + 1j * rng.normal(size=(3, 40))).astype(element_type(name).dtype)
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.complex128), (2, 20))
    ways = [(sx.add, 0, x.cumsum(1)), (sx.mul, 1, x.cumprod(1))]

    def make(b: sx.XlaBuilder, v: sx.XlaOp) -> list[sx.XlaOp]:
        return [reduced(sx.add, 0, (2, 20))(b, v), *(cumulative(op, start, x.shape, 1)(b, v) for op, start, _ in ways)]

    expected = [windows.sum((2, 3)), *(total for *_, total in ways)]
    every_way(
        make, x, against=[], expected=[e.astype(x.dtype) for e in expected], scale=2e-6 if name == "c64" else 1e-14
    )


def log_add_exp(a: Any, c: Any) -> Any:
    """As JAX writes it."""
    difference = a - c
    together = sx.max(a, c) + sx.log1p(sx.exp(-sx.abs(difference)))
    return sx.select(sx.ne(difference, difference), a + c, together)


@pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
def test_a_scan_of_any_computation(backwards: bool) -> None:
    x = np.random.default_rng(9).normal(size=(3, 200)).astype(np.float32)
    make = cumulative(log_add_exp, -np.inf, x.shape, 1, backwards)
    expected = accumulated(np.logaddexp, x.astype(np.float64), 1, backwards).astype(np.float32)
    every_way(make, x, against=["xla"], expected=[expected], scale=1e-6)


def test_a_scan_whose_start_is_not_neutral() -> None:
    """Found when it runs: the elements of padding count then, one by one."""
    x = sample("s32", 50)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, start: sx.XlaOp) -> sx.XlaOp:
        return sx.reduce_window(v, start, lambda a, c: a * 2 + c, (50,), (1,), [(49, 0)])

    for start in (0, 1):  # 0 * 2 + 0 is 0, and 1 * 2 + 1 is not 1
        every_way(make, x, np.int32(start), against=["interpreter"])


def test_a_scan_of_several_arrays() -> None:
    x = np.random.default_rng(10).integers(0, 50, (4, 60)).astype(np.float32)

    def make(b: sx.XlaBuilder, v: sx.XlaOp) -> list[sx.XlaOp]:
        both, starts = (v, b.iota(sx.s32[4, 60], 1)), (b.constant(-np.inf), b.constant(1 << 30))
        padding = [(0, 0), (59, 0)]
        return list(sx.reduce_window(both, starts, place_of_the_largest, (1, 60), (1, 1), padding))

    every_way(make, x, against=BOTH)


JAX_SUM = """
func.func public @main(%x: tensor<3x90xf32>) -> tensor<3x90xf32> {
  %cst = stablehlo.constant dense<0.0> : tensor<f32>
  %zero = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<f32>
  %0 = "stablehlo.reduce_window"(%x, %zero) <{padding = dense<[[0, 0], [89, 0]]> : tensor<2x2xi64>,
      window_dimensions = array<i64: 1, 90>}> ({
  ^bb0(%a: tensor<f32>, %c: tensor<f32>):
    %1 = stablehlo.add %a, %c : tensor<f32>
    stablehlo.return %1 : tensor<f32>
  }) : (tensor<3x90xf32>, tensor<f32>) -> tensor<3x90xf32>
  return %0 : tensor<3x90xf32>
}
"""


def test_a_cumulative_sum_is_one_pass() -> None:
    """As JAX 0.10 writes it, with what is 1 left out."""
    x = np.random.default_rng(11).random((3, 90), np.float32)
    check(JAX_SUM, [x], against=BOTH, scale=1e-6)
    assert 'stablexla.kernel = "scan"' in sx.compile(JAX_SUM).ir("kernels")


# --- select_and_scatter -----------------------------------------------------------------------------------------------


def scattered(
    sizes: Any, strides: Any, padding: Any, select: Any = sx.ge, scatter: Any = sx.add, start: Any = 0
) -> Callable[..., sx.XlaOp]:
    """A program that scatters to the largest elements."""

    def make(b: sx.XlaBuilder, x: sx.XlaOp, source: sx.XlaOp) -> sx.XlaOp:
        init = b.constant(np.asarray(start).astype(x.shape.element_type.dtype))
        return sx.select_and_scatter(x, select, sizes, strides, padding, source, init, scatter)

    return make


def test_the_figures_of_the_description() -> None:
    """In the second one two windows choose the 9, which gets 2 + 6."""
    x = np.float32([[7, 2, 5, 3, 8, 1], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]])
    source = np.float32([[2, 6], [3, 1]])
    apart, shared = np.zeros((4, 6), np.float32), np.zeros((4, 5), np.float32)
    apart[1, 2], apart[0, 4], apart[2, 2], apart[3, 5] = 2, 6, 3, 1
    shared[1, 2], shared[2, 2] = 2 + 6, 3 + 1
    every_way(scattered((2, 3), (2, 3), "VALID"), x, source, against=BOTH, expected=[apart])
    every_way(scattered((2, 3), (2, 2), "VALID"), x[:, :5], source, against=BOTH, expected=[shared])


SCATTERED: list[tuple[tuple[int, ...], Any, Any, Any]] = [
    ((12,), (3,), (2,), "SAME"),
    ((2, 9, 10, 5), (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
    ((2, 3, 9, 8), (1, 1, 2, 3), (1, 1, 2, 2), "VALID"),
    ((6, 7), (3, 3), (1, 1), [(2, 2), (1, 0)]),
    ((5, 4), (2, 1), (3, 2), [(0, 1), (0, 0)]),
    ((1, 1, 1), (1, 1, 1), (1, 1, 1), "VALID"),
    ((2, 1, 3, 1, 2, 2), (2, 1, 2, 1, 1, 2), (1, 1, 1, 1, 1, 2), "SAME"),
    ((4, 6), (1, 1), (1, 1), "VALID"),
]


def source_of(x: np.ndarray, sizes: Any, strides: Any, padding: Any) -> np.ndarray:
    """A small number for each window."""
    b = sx.XlaBuilder("positions")
    op, zero = b.parameter(0, sx.Shape(x.dtype, x.shape)), b.constant(np.zeros((), x.dtype))
    positions = sx.reduce_window(op, zero, sx.add, sizes, strides, padding).shape.dimensions
    return np.random.default_rng(13).integers(0, 20, positions).astype(x.dtype)


@pytest.mark.parametrize("name", ["s32", "u8", "bf16"])
@pytest.mark.parametrize(("shape", "sizes", "strides", "padding"), SCATTERED, ids=str)
def test_of_equal_elements_the_order_decides(
    name: str, shape: tuple[int, ...], sizes: Any, strides: Any, padding: Any
) -> None:
    """`ge` takes the first of them and `gt` the last, in row-major order, as the operation semantics have it.

    XLA:CPU goes through windows of two dimensions column by column.
    """
    x = np.random.default_rng(12).integers(0, 5, shape).astype(element_type(name).dtype)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, source: sx.XlaOp) -> list[sx.XlaOp]:
        ways = [(sx.ge, sx.add), (sx.lt, sx.add), (sx.gt, sx.max)]
        return [scattered(sizes, strides, padding, *way)(b, v, source) for way in ways]

    every_way(make, x, source_of(x, sizes, strides, padding), against=["interpreter"])


@pytest.mark.parametrize(("shape", "sizes", "strides", "padding"), SCATTERED, ids=str)
def test_select_and_scatter(shape: tuple[int, ...], sizes: Any, strides: Any, padding: Any) -> None:
    x = np.random.default_rng(14).permutation(int(np.prod(shape))).reshape(shape).astype(np.float32)
    source = source_of(x, sizes, strides, padding)
    every_way(scattered(sizes, strides, padding), x, source, against=BOTH)
    # A place that is selected holds the initial value once; the interpreter folds it in twice.
    every_way(scattered(sizes, strides, padding, start=3), x, source, against=["xla"])


def test_general_padding() -> None:
    x, source = np.float32([4, 3, 2, 1]), np.float32([1, 2, 3])

    def make(b: sx.XlaBuilder, v: sx.XlaOp, s: sx.XlaOp) -> sx.XlaOp:
        zero = b.constant(0.0)
        return sx.select_and_scatter_with_general_padding(v, sx.ge, (2,), (2,), [(1, 1)], s, zero, sx.add)

    every_way(make, x, source, against=BOTH, expected=[np.float32([1, 2, 0, 3])])


def test_padding_is_never_selected() -> None:
    """XLA:CPU and the operation semantics pass over a window that is all padding; the interpreter does not run it."""
    x, source = np.int32([5, 1, 7]), np.int32([10, 20, 30, 40, 50])
    every_way(
        scattered((2,), (2,), [(4, 3)]),
        x,
        source,
        against=["xla"],
        expected=[np.int32([30, 0, 40])],
    )


def test_of_elements_that_are_nan() -> None:
    """The selection alone decides: `ge` of NaN is false, so the later element is taken."""
    x = np.float32([np.nan, 1, 2, np.nan, 0.0, -0.0, np.nan, np.nan])
    every_way(scattered((2,), (2,), "VALID"), x, np.float32([1, 2, 3, 4]), against=BOTH)
    every_way(scattered((4,), (1,), "SAME"), x, np.arange(8, dtype=np.float32), against=BOTH)


def test_a_wider_combination() -> None:
    b = sx.XlaBuilder("sum")
    plus = b.build(b.parameter(0, sx.f32[()]) + b.parameter(1, sx.f32[()]))
    dtype = element_type("bf16").dtype
    x, source = np.array([1, 2, 1], dtype), np.array([256, 1], dtype)
    make = scattered((2,), (1,), "VALID", scatter=plus, start=0.5)
    every_way(make, x, source, against=[], expected=[np.float32([0.5, 257.5, 0.5])])


@pytest.mark.parametrize("name", ["s32", "f32"])
def test_select_and_scatter_of_a_scalar(name: str) -> None:
    x = np.asarray(4, element_type(name).dtype)
    every_way(scattered((), (), "VALID", start=2), x, np.asarray(3, x.dtype), against=[], expected=[x * 0 + 5])


def test_select_and_scatter_to_nothing() -> None:
    x = np.zeros((0, 3), np.float32)
    every_way(scattered((1, 2), (1, 1), "VALID"), x, np.zeros((0, 2), np.float32), against=["xla"])
    y = np.ones((2, 3), np.float32)
    every_way(scattered((1, 4), (1, 1), "VALID", start=2), y, np.zeros((2, 0), np.float32), against=["xla"])
