"""Quantised types: operations on `!quant.uniform` arrays, compared with the specification's formulas in numpy, and with
StableHLO's interpreter where that follows them.

The interpreter legalises quantised operations by StableHLO's own pass. For some of them that is not what the
specification says; the tests name these, and numpy decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from jaxlib.mlir.dialects import stablehlo

import stablexla as sx
from stablexla.inspection.judging.oracles import shared_oracle
from stablexla.interop.loading import load
from stablexla.processes.questions import Refusal
from stablexla.targets.signature.signature import signature_of
from tests.comparison import assert_same
from tests.loading import load_file

F32 = np.float32
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Quant:
    """A quantised type, and the specification's conversions from and to numbers."""

    storage: str = "i8"
    scales: tuple[float, ...] = (1.0,)
    zeros: tuple[int, ...] = (0,)
    axis: int | None = None
    bounds: tuple[int, int] | None = None
    expressed: str = "f32"

    def __str__(self) -> str:
        pairs = [f"{s!r}:{z}" for s, z in zip(self.scales, self.zeros, strict=True)]
        bounds = f"<{self.bounds[0]}:{self.bounds[1]}>" if self.bounds else ""
        axis = "" if self.axis is None else f":{self.axis}"
        parameters = pairs[0] if self.axis is None else f"{{{', '.join(pairs)}}}"
        return f"!quant.uniform<{self.storage}{bounds}:{self.expressed}{axis}, {parameters}>"

    @property
    def dtype(self) -> Any:
        names = {"i4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "u8": np.uint8, "u16": np.uint16}
        return np.dtype(names.get(self.storage) or f"i{int(self.storage[1:]) // 8}")

    @property
    def limits(self) -> tuple[int, int]:
        bits, unsigned = int(self.storage[1:]), self.storage[0] == "u"
        return self.bounds or ((0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1))

    @property
    def float(self) -> Any:
        names = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
        return np.dtype(names[self.expressed])

    def numbers(self, integers: np.ndarray) -> np.ndarray:
        """(q - zero point) * scale."""
        wide = integers.astype(np.int64) - self._along(self.zeros, integers.ndim).astype(np.int64)
        return wide.astype(self.float) * self._along(self.scales, integers.ndim).astype(self.float)

    def integers(self, numbers: np.ndarray) -> np.ndarray:
        """round(clamp(x / scale + zero point))."""
        scaled = numbers.astype(self.float) / self._along(self.scales, numbers.ndim).astype(self.float)
        moved = scaled + self._along(self.zeros, numbers.ndim).astype(self.float)
        low, high = self.limits
        held = np.rint(moved.astype(np.float64).clip(low, high))
        return held.astype(np.int64).astype(self.dtype)

    def drawn(self, *shape: int) -> np.ndarray:
        low, high = self.limits
        return (
            np.random.default_rng(3).integers(max(low, -3000), min(high, 3000), shape, endpoint=True).astype(self.dtype)
        )

    def _along(self, values: Sequence[float], rank: int) -> np.ndarray:
        return np.array(values).reshape([-1 if i == self.axis else 1 for i in range(rank)])


X = Quant("i8", (0.0371,), (3,))
Y = Quant("i8", (0.0213,), (-7,))
R = Quant("i8", (0.151,), (11,))


def program(body: str, *types: str) -> str:
    """A program of one operation: `%r = ...`, with the types of %a, %b ... and at last that of %r."""
    parameters = ", ".join(f"%{name}: {t}" for name, t in zip("abc", types[:-1]))
    return f"func.func @main({parameters}) -> {types[-1]} {{\n  {body}\n  return %r : {types[-1]}\n}}"


def tensor(quant: object, *shape: int) -> str:
    return f"tensor<{''.join(f'{n}x' for n in shape)}{quant}>"


def plain(name: str, types: Sequence[str], attributes: str = "") -> str:
    operands = ", ".join(f"%{n}" for n, _ in zip("abc", types[:-1]))
    return f'%r = "stablehlo.{name}"({operands}) {{{attributes}}} : ({", ".join(types[:-1])}) -> {types[-1]}'


def check(text: str, arguments: Sequence[np.ndarray], expected: np.ndarray, *, interpreter: bool = True) -> None:
    """Runs a program; the interpreter runs it in a process of its own."""
    (result,) = sx.compile(text).execute(arguments)
    assert_same(result, expected, ulp=0)
    if interpreter:
        module = load(text)
        found = shared_oracle("interpreter").run(module, [np.asarray(a) for a in arguments])
        assert not isinstance(found, Refusal), found
        [type_] = signature_of(module).results
        assert_same(result, found[0].view(type_.element.dtype).reshape(type_.shape))


UNARY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "negate": np.negative,
    "round_nearest_even": np.rint,
    "sign": np.sign,
    "sqrt": lambda x: np.sqrt(np.abs(x)),
    "tanh": np.tanh,
    "logistic": lambda x: 1 / (1 + np.exp(-x)),
    "cosine": np.cos,
}
BINARY: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "divide": np.divide,
}


@pytest.mark.parametrize("name", UNARY)
def test_element_by_element(name: str) -> None:
    x = X.drawn(64)
    x = np.maximum(x, 3) if name == "sqrt" else x
    types = [tensor(X, 64), tensor(R, 64)]
    check(program(plain(name, types), *types), [x], R.integers(UNARY[name](X.numbers(x))), interpreter=name == "tanh")


@pytest.mark.parametrize("name", BINARY)
def test_of_two_operands(name: str) -> None:
    """For an addition the interpreter rounds both operands to the scale of the result first; it should not."""
    x, y = X.drawn(64), np.where(Y.drawn(64)[::-1] == -7, 1, Y.drawn(64)[::-1]).astype(np.int8)
    types = [tensor(X, 64), tensor(Y, 64), tensor(R, 64)]
    expected = R.integers(BINARY[name](X.numbers(x), Y.numbers(y)))
    check(program(plain(name, types), *types), [x, y], expected, interpreter=name == "subtract")


TYPES = [
    Quant("i4", (0.4,), (2,)),
    Quant("u4", (0.4,), (9,)),
    Quant("u8", (0.0371,), (130,)),
    Quant("i16", (0.011,), (100,)),
    Quant("u16", (0.011,), (40000,)),
    Quant("i8", (0.0371,), (3,), bounds=(-100, 90)),
    Quant("i8", (0.25,), (3,), expressed="f16"),
    Quant("i8", (0.25,), (3,), expressed="bf16"),
    Quant("i32", (0.011,), (100,), expressed="f64"),
    Quant("i8", (0.02, 0.3, 0.011), (0, 1, -5), axis=1),
]


@pytest.mark.parametrize("quant", TYPES, ids=str)
def test_there_and_back(quant: Quant) -> None:
    """No interpreter: it takes unsigned storage for signed, and refuses other expressed types than f32."""
    integers = quant.drawn(8, 3)
    stored, numbers = tensor(quant, 8, 3), tensor(quant.expressed, 8, 3)
    check(
        program(plain("uniform_dequantize", [stored, numbers]), stored, numbers),
        [integers],
        quant.numbers(integers),
        interpreter=False,
    )
    x = (np.random.default_rng(5).standard_normal((8, 3)) * 40).astype(quant.float)
    text = program(plain("uniform_quantize", [numbers, stored]), numbers, stored)
    check(text, [x], quant.integers(x), interpreter=False)


def test_bounds_of_a_type_that_its_floats_do_not_hold() -> None:
    """2**31 - 1 is no f32: beyond it, the largest integer comes."""
    quant = Quant("i32", (0.5,), (7,))
    x = np.array([2e9, -2e9, 3.25, np.inf, -np.inf], F32)
    text = program(plain("uniform_quantize", [tensor("f32", 5), tensor(quant, 5)]), tensor("f32", 5), tensor(quant, 5))
    (result,) = sx.compile(text).execute([x])
    assert result.tolist() == [2**31 - 1, -(2**31), 14, 2**31 - 1, -(2**31)]


def test_ties_go_to_even() -> None:
    x = np.array([0.25, 0.75, 1.25, -0.25, -0.75], F32)
    quant = Quant("i8", (0.5,))
    text = program(plain("uniform_quantize", [tensor("f32", 5), tensor(quant, 5)]), tensor("f32", 5), tensor(quant, 5))
    check(text, [x], np.array([0, 2, 2, 0, -2], np.int8))


def test_from_one_quantised_type_to_another() -> None:
    x = X.drawn(64)
    types = [tensor(X, 64), tensor(R, 64)]
    check(program(plain("uniform_quantize", types), *types), [x], R.integers(X.numbers(x)))


W = Quant("i8", (0.0213,))
AXIS = Quant("i8", (0.02, 0.03, 0.011, 0.5), (0, 0, 0, 0), axis=1)
WIDE = Quant("i32", (0.002, 0.004, 0.0011, 0.07), (0, 0, 0, 0), axis=1)


def _products(x: np.ndarray, w: np.ndarray, quant: Quant) -> np.ndarray:
    """In exact arithmetic, but for the scales."""
    return X.numbers(x).astype(np.float64) @ quant.numbers(w).astype(np.float64)


@pytest.mark.parametrize("depth", [16, 400], ids=["carried by floats", "carried by integers"])
@pytest.mark.parametrize("per_axis", [False, True], ids=["by tensor", "by axis"])
def test_dot_general(depth: int, per_axis: bool) -> None:
    """The interpreter is not asked: it cuts the scaled sums off toward zero, and lets them wrap."""
    weights, result = (AXIS, WIDE) if per_axis else (W, R)
    x, w = X.drawn(5, depth), weights.drawn(depth, 4)
    types = [tensor(X, 5, depth), tensor(weights, depth, 4), tensor(result, 5, 4)]
    body = f"%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({types[0]}, {types[1]}) -> {types[2]}"
    text = program(body, *types)
    exact = _products(x, w, weights) / result._along(result.scales, 2) + result._along(result.zeros, 2)
    (actual,) = sx.compile(text).execute([x, w])
    low, high = result.limits
    tied = np.abs(np.abs(exact - np.floor(exact)) - 0.5) < 1e-6 * np.maximum(np.abs(exact), 100)
    right = actual == np.rint(exact.clip(low, high)).astype(result.dtype)
    assert (right | tied).all()
    assert not tied.all()


SCALES = (0.5, 0.25, 1.0, 0.125)  # powers of two: what is computed in another way has the same bits
EXACT = {
    "bytes": (Quant("i8", (0.25,), (0,)), Quant("i8", SCALES, (0,) * 4, axis=2)),
    "zero points": (Quant("i8", (0.25,), (-128,)), Quant("i8", SCALES, (0,) * 4, axis=2)),
    "unsigned": (Quant("u8", (0.25,), (200,)), Quant("u8", (0.5,), (0,))),
    "words": (Quant("i16", (0.25,), (-1,), bounds=(-300, 300)), Quant("i16", (0.5,), (0,), bounds=(-300, 300))),
    "half bytes": (Quant("i4", (0.25,), (-3,)), Quant("i4", (0.5,), (0,))),
}


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("size", [(3, 1, 5), (33, 37, 4), (2, 300, 4)], ids=str)
def test_dot_general_is_exact(name: str, size: tuple[int, int, int]) -> None:
    """Sums of bytes, less what zero points add to them; several products, and what is contracted comes first."""
    (left, right), (m, k, n), batch = EXACT[name], size, 2
    if right.axis is not None:
        n = len(right.scales)
    result = Quant("i32", (2.0**-6,), (0,))
    types = [tensor(left, batch, k, m), tensor(right, batch, k, n), tensor(result, batch, m, n)]
    numbers = "batching_dims = [0] x [0], contracting_dims = [1] x [1]"
    body = f"%r = stablehlo.dot_general %a, %b, {numbers} : ({types[0]}, {types[1]}) -> {types[2]}"
    x, w = left.drawn(batch, k, m), right.drawn(batch, k, n)
    (actual,) = sx.compile(program(body, *types)).execute([x, w])
    exact = np.einsum("bkm,bkn->bmn", left.numbers(x), right.numbers(w), dtype=np.float64).astype(F32)
    assert np.array_equal(actual, result.integers(exact))


@pytest.mark.parametrize("zero", [0, 1])
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("features", [1, 3, 8])
def test_convolution_is_exact(name: str, features: int, zero: int) -> None:
    """Borders are zeros, whatever the zero point; of 3 features one has no neighbour. Weights may have one, too."""
    (left, right), result = EXACT[name], Quant("i32", (2.0**-6,), (0,))
    right = replace(right, axis=right.axis and 3, zeros=(zero,) * len(right.zeros))
    types = [tensor(left, 2, 7, 9, features), tensor(right, 3, 3, features, 4), tensor(result, 2, 7, 9, 4)]
    body = (
        "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
        "window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        f": ({types[0]}, {types[1]}) -> {types[2]}"
    )
    x, w = left.drawn(2, 7, 9, features), right.drawn(3, 3, features, 4)
    (actual,) = sx.compile(program(body, *types)).execute([x, w])
    padded = np.pad(left.numbers(x), [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    exact = np.einsum("nxyihw,hwio->nxyo", windows, right.numbers(w), dtype=np.float64).astype(F32)
    assert np.array_equal(actual, result.integers(exact))


def test_products_of_bytes_are_products_of_bytes() -> None:
    """What zero points add is taken off the sums, so that the kernel of bytes can be had."""
    types = [tensor(X, 64, 64), tensor(W, 64, 64), tensor(R, 64, 64)]
    body = f"%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({types[0]}, {types[1]}) -> {types[2]}"
    executable = sx.compile(program(body, *types))
    (product,) = (line for line in executable.ir("stablehlo").splitlines() if "dot_general" in line)
    assert "(tensor<64x64xi8>, tensor<64x64xi8>) -> tensor<64x64xi32>" in product
    assert [k.kind for k in executable.kernels if k.kind == "contraction"] == ["contraction"]


@pytest.mark.parametrize("operation", ["maximum", "minimum"])
@pytest.mark.parametrize("scale", [1.5e-38, 0.1, 3.5e37])
def test_a_choice_of_numbers_is_one_of_integers(operation: str, scale: float) -> None:
    """All but scales so small or so large that numbers are rounded: there numbers are computed, as defined."""
    quant = Quant("i8", (scale,), (-9,))
    type_ = tensor(quant, 256, 256)
    body = f"%r = stablehlo.{operation} %a, %b : {type_}"
    x, y = np.meshgrid(np.arange(-128, 128), np.arange(-128, 128))
    x, y = x.astype(np.int8), y.astype(np.int8)
    executable = sx.compile(program(body, type_, type_, type_))
    with np.errstate(over="ignore"):
        choose = {"maximum": np.maximum, "minimum": np.minimum}[operation]
        expected = quant.integers(choose(quant.numbers(x), quant.numbers(y)))
    (actual,) = executable.execute([x, y])
    assert np.array_equal(actual, expected)
    assert ("divide" in executable.ir("stablehlo")) == (scale != 0.1)


def test_dot_general_of_floats_and_weights() -> None:
    x, w = np.random.default_rng(0).standard_normal((3, 8)).astype(F32), AXIS.drawn(8, 4)
    types = [tensor("f32", 3, 8), tensor(AXIS, 8, 4), tensor("f32", 3, 4)]
    body = f"%r = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0] : ({types[0]}, {types[1]}) -> {types[2]}"
    (actual,) = sx.compile(program(body, *types)).execute([x, w])
    assert_same(actual, (x.astype(np.float64) @ AXIS.numbers(w)).astype(F32), scale=1e-6)


def test_convolution_pads_with_zeros_not_with_zero_points() -> None:
    """The interpreter agrees here."""
    types = [tensor(X, 1, 6, 6, 2), tensor(Y, 3, 3, 2, 4), tensor(R, 1, 6, 6, 4)]
    body = (
        "%r = stablehlo.convolution(%a, %b) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], "
        "window = {pad = [[1, 1], [1, 1]]} {batch_group_count = 1 : i64, feature_group_count = 1 : i64} "
        f": ({types[0]}, {types[1]}) -> {types[2]}"
    )
    x, w = X.drawn(1, 6, 6, 2), Y.drawn(3, 3, 2, 4)
    padded = np.pad(X.numbers(x), [(0, 0), (1, 1), (1, 1), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(1, 2))
    expected = np.einsum("nxyihw,hwio->nxyo", windows, Y.numbers(w), dtype=np.float64)
    check(program(body, *types), [x, w], R.integers(expected.astype(F32)))


def test_a_reduction_rounds_after_each_addition() -> None:
    """The interpreter refuses it. Its body is an operation on quantised arrays."""
    quant = Quant("i8", (0.5,), (3,))
    types = [tensor(quant, 6, 4), tensor(quant), tensor(quant, 4)]
    body = (
        "%r = stablehlo.reduce(%a init: %b) applies stablehlo.add across dimensions = [0] "
        f": ({types[0]}, {types[1]}) -> {types[2]}"
    )
    x = np.random.default_rng(0).integers(-20, 20, (6, 4)).astype(np.int8)
    expected = quant.integers(quant.numbers(x).sum(0))
    check(program(body, *types), [x, np.array(3, np.int8)], expected, interpreter=False)


def test_what_only_moves_elements_works_on_integers() -> None:
    """Also where a float would not hold them."""
    quant = Quant("i32", (0.5,), (7,))
    x = np.array([[2**31 - 1, 5, -(2**31)], [16777217, 1, 2]], np.int32)
    types = [tensor(quant, 2, 3), tensor(quant, 4, 4)]
    text = f"""func.func @main(%a: {types[0]}) -> {types[1]} {{
  %t = stablehlo.transpose %a, dims = [1, 0] : ({types[0]}) -> {tensor(quant, 3, 2)}
  %c = stablehlo.concatenate %t, %t, dim = 1 : ({tensor(quant, 3, 2)}, {tensor(quant, 3, 2)}) -> {tensor(quant, 3, 4)}
  %z = stablehlo.constant() <{{value = dense<9> : tensor<i32>}}> : () -> {tensor(quant)}
  %p = stablehlo.pad %c, %z, low = [1, 0], high = [0, 0], interior = [0, 0]
    : ({tensor(quant, 3, 4)}, {tensor(quant)}) -> {types[1]}
  return %p : {types[1]}
}}"""
    expected = np.concatenate([np.full((1, 4), 9, np.int32), np.concatenate([x.T, x.T], 1)])
    check(text, [x], expected, interpreter=False)


def test_comparison_and_selection() -> None:
    x, y = X.drawn(32), X.drawn(32)[::-1].copy()
    t = tensor(X, 32)
    text = f"""func.func @main(%a: {t}, %b: {t}) -> {t} {{
  %p = stablehlo.compare LT, %a, %b, FLOAT : ({t}, {t}) -> tensor<32xi1>
  %r = stablehlo.select %p, %a, %b : tensor<32xi1>, {t}
  return %r : {t}
}}"""
    check(text, [x, y], np.minimum(x, y), interpreter=False)


def test_control_flow_and_calls() -> None:
    t = tensor(X, 8)
    text = f"""func.func @main(%a: {t}, %n: tensor<i32>) -> {t} {{
  %i = stablehlo.constant dense<0> : tensor<i32>
  %one = stablehlo.constant dense<1> : tensor<i32>
  %r:2 = stablehlo.while(%x = %a, %k = %i) : {t}, tensor<i32> cond {{
    %p = stablehlo.compare LT, %k, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }} do {{
    %y = func.call @twice(%x) : ({t}) -> {t}
    %j = stablehlo.add %k, %one : tensor<i32>
    stablehlo.return %y, %j : {t}, tensor<i32>
  }}
  return %r#0 : {t}
}}
func.func private @twice(%a: {t}) -> {t} {{
  %y = stablehlo.add %a, %a : {t}
  return %y : {t}
}}"""
    x = X.drawn(8)
    expected = X.integers(X.numbers(X.integers(X.numbers(x) * 2)) * 2)
    check(text, [x, np.int32(2)], expected, interpreter=False)


def test_outside_they_are_their_integers() -> None:
    quant = Quant("u8", (0.5,), (128,))
    text = program(plain("abs", [tensor(quant, 2), tensor(quant, 2)]), tensor(quant, 2), tensor(quant, 2))
    executable = sx.compile(text)
    assert repr(executable) == "Executable('main', (u8[2]) -> (u8[2]), target='cpu')"
    assert executable(np.array([126, 255], np.uint8)).tolist() == [130, 255]
    with pytest.raises(sx.ExecutionError, match=r"uint8\[2\].*int8"):
        executable(np.array([126, 127], np.int8))


def test_portable_artifacts_hold_them() -> None:
    text = program(plain("abs", [tensor(X, 4), tensor(X, 4)]), tensor(X, 4), tensor(X, 4))
    artifact = stablehlo.serialize_portable_artifact(load(text), stablehlo.get_current_version())
    x = X.drawn(4)
    assert_same(sx.compile(artifact)(x), sx.compile(text)(x))


def test_unknown_extents() -> None:
    t = f"tensor<?x{X}>"
    text = f"func.func @main(%a: {t}) -> {t} {{\n  %r = stablehlo.negate %a : {t}\n  return %r : {t}\n}}"
    executable = sx.compile(text)
    for size in (2, 5):
        x = X.drawn(size)
        assert_same(executable(x), X.integers(-X.numbers(x)))


def test_bounded_extents() -> None:
    t = f"tensor<?x{X}, #stablehlo.bounds<8>>"
    text = f"func.func @main(%a: {t}) -> {t} {{\n  %r = stablehlo.negate %a : {t}\n  return %r : {t}\n}}"
    x = X.drawn(5)
    assert_same(sx.compile(text)(x), X.integers(-X.numbers(x)))


def test_the_table_of_the_page() -> None:
    """To make the table anew takes a minute; here only its operations are compared."""
    page = ROOT / "docs/quantized.md"
    made = load_file(ROOT / "docs/make_quantized.py")
    rows = page.read_text().split(made.BEGIN)[1].split(made.END)[0].splitlines()[2:]
    assert [line.split(" | ")[0].strip("| ") for line in rows] == sorted(case.operation for case in made.cases())


def test_types_that_are_not_uniform() -> None:
    t = "tensor<2x4x!quant.uniform<i8:f32:{0:1, 1:2}, {{0.5, 0.25}, {0.125, 1.0}}>>"
    text = f"func.func @main(%a: {t}) -> {t} {{ return %a : {t} }}"
    with pytest.raises(sx.UnsupportedError, match="uniform, by tensor or by axis"):
        sx.compile(text)
