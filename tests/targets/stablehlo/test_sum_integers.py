"""Products of numbers that a program dequantizes: sums of integers, scaled once. Oracle: numpy in f64.

Catches zero points that padding or a sum has not, scales along the wrong dimension, and programs that are none.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

import stablexla as sx
from tests import oracles

RNG = np.random.default_rng(5)
Made = tuple[sx.XlaOp, np.ndarray]


def integers(dtype: type, *shape: int) -> np.ndarray:
    bounds = np.iinfo(dtype)
    return RNG.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def f32(x: sx.XlaOp) -> sx.XlaOp:
    return sx.convert_element_type(x, "f32")


class Program:
    """A program and the numbers of its arrays in f64."""

    def __init__(self) -> None:
        self.b, self.arguments = sx.XlaBuilder("quantized"), list[np.ndarray]()

    def given(self, array: np.ndarray, is_constant: bool = False) -> sx.XlaOp:
        if is_constant:
            return self.b.constant(array)
        self.arguments.append(array)
        return self.b.parameter(len(self.arguments) - 1, sx.Shape(sx.element_type(array.dtype), array.shape))

    def dequantized(
        self, q: np.ndarray, scale: np.ndarray, axes: tuple[int, ...] = (), zero: int = 0, *, is_constant: bool = False
    ) -> Made:
        """Return (q - zero) * scale, with scales along some dimensions."""
        x = sx.convert_element_type(self.given(q, is_constant), "f32")
        if zero:
            x = x - float(zero)
        s = sx.broadcast_in_dim(self.given(scale.astype(np.float32), is_constant), q.shape, axes)
        spread = (
            scale.astype(np.float32).astype(np.float64).reshape([n if d in axes else 1 for d, n in enumerate(q.shape)])
        )
        return x * s, (q.astype(np.float64) - zero) * spread

    def holds(self, made: sx.XlaOp, wanted: np.ndarray, *, sums: str = "i32") -> None:
        """Check the result, and the type that the product is summed in."""
        compiled = sx.compile(self.b.build(made))
        (result,) = compiled.execute(self.arguments)
        np.testing.assert_allclose(result, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())
        products = re.findall(
            r"stablehlo\.(?:dot_general|convolution).*-> tensor<(?:\d+x)*(\w+)>", compiled.ir("stablehlo")
        )
        assert products == [sums]


@pytest.mark.parametrize("is_constant", [False, True])
@pytest.mark.parametrize("zero", [0, 3, 255])
@pytest.mark.parametrize("left", [np.uint8, np.int8])
def test_products(left: type, zero: int, is_constant: bool) -> None:
    p = Program()
    zero = zero if left is np.uint8 else min(zero, 127)
    x, numbers = p.dequantized(integers(left, 37, 70), np.array(0.02), zero=zero)
    w, weights = p.dequantized(integers(np.int8, 50, 70), RNG.random(50) + 0.01, (0,), is_constant=is_constant)
    made = sx.dot_general(x, w, sx.DotDimensionNumbers((1,), (1,)))
    p.holds(made, numbers @ weights.T)


def test_scales_of_rows_and_of_batches() -> None:
    """As of tokens that are quantized one by one."""
    p = Program()
    x, numbers = p.dequantized(integers(np.int8, 3, 9, 20), RNG.random((3, 9)), (0, 1))
    w, weights = p.dequantized(integers(np.int8, 3, 20, 11), RNG.random((3, 11)), (0, 2))
    made = sx.dot_general(x, w, sx.DotDimensionNumbers((2,), (1,), (0,), (0,)))
    p.holds(made, numbers @ weights)


def test_moved_integers() -> None:
    p = Program()
    x, numbers = p.dequantized(integers(np.uint8, 6, 5, 8), np.array(0.1), zero=9)
    w, weights = p.dequantized(integers(np.int8, 7, 40), RNG.random(7), (0,))
    made = sx.dot(sx.reshape(sx.transpose(x, (1, 0, 2)), (30, 8))[:, :8], sx.transpose(w, (1, 0))[:8])
    wanted = numbers.transpose(1, 0, 2).reshape(30, 8) @ weights.T[:8]
    np.testing.assert_allclose(sx.compile(p.b.build(made)).execute(p.arguments)[0], wanted, rtol=1e-5, atol=1e-4)
    p = Program()
    x, numbers = p.dequantized(integers(np.uint8, 6, 5, 8), np.array(0.1), zero=9)
    w, weights = p.dequantized(integers(np.int8, 7, 8), RNG.random(7), (0,))
    made = sx.dot(sx.reshape(sx.transpose(x, (1, 0, 2)), (30, 8)), sx.transpose(w, (1, 0)))
    p.holds(made, numbers.transpose(1, 0, 2).reshape(30, 8) @ weights.T)


def convolved(
    x: np.ndarray, w: np.ndarray, *, stride: int = 1, pad: int = 1, dilation: int = 1, groups: int = 1
) -> np.ndarray:
    """A convolution of NCHW by OIHW in f64."""
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    out, per, *window = w.shape
    h, v = ((n - dilation * (k - 1) - 1) // stride + 1 for n, k in zip(x.shape[2:], window, strict=True))
    made = np.zeros((len(x), out, h, v))
    for o in range(out):
        first = o // (out // groups) * per
        for i, j in np.ndindex(*window):
            rows, columns = (slice(k * dilation, k * dilation + stride * n, stride) for k, n in ((i, h), (j, v)))
            part = x[:, first : first + per, rows, columns]
            made[:, o] += np.einsum("bchw,c->bhw", part, w[o, :, i, j])
    return made


@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("left", [np.uint8, np.int8])
@pytest.mark.parametrize(
    "window",
    [
        {},
        {"stride": 2},
        {"pad": 2, "dilation": 2},
        {"pad": 0},
        {"groups": 2},
        {"groups": 8},
    ],
    ids=str,
)
def test_convolutions(window: dict[str, int], left: type, zero: int) -> None:
    p, groups = Program(), window.get("groups", 1)
    x, numbers = p.dequantized(integers(left, 2, 8, 9, 10), np.array(0.05), zero=zero)
    w, weights = p.dequantized(integers(np.int8, 16, 8 // groups, 3, 3), RNG.random(16), (0,), is_constant=True)
    pad = window.get("pad", 1)
    made = sx.conv_general_dilated(
        x, w, (window.get("stride", 1),) * 2, [(pad, pad)] * 2, (1, 1), (window.get("dilation", 1),) * 2,
        sx.ConvDimensionNumbers.of("NCHW", "OIHW", "NCHW"), groups,
    )  # fmt: skip
    # Sums over the few elements of one feature are exact in f32 as well.
    p.holds(made, convolved(numbers, weights, **window), sums="f32" if groups == 8 else "i32")


def test_depthwise_convolutions_read_bytes() -> None:
    """Sums are of floats, and no array of them is made."""
    p = Program()
    x, numbers = p.dequantized(integers(np.uint8, 1, 32, 14, 14), np.array(0.05), is_constant=False)
    w, weights = p.dequantized(integers(np.int8, 32, 1, 3, 3), RNG.random(32), (0,), is_constant=True)
    numbers_ = sx.ConvDimensionNumbers.of("NCHW", "OIHW", "NCHW")
    made = sx.conv_general_dilated(x, w, (1, 1), [(1, 1)] * 2, (1, 1), (1, 1), numbers_, 32)
    compiled = sx.compile(p.b.build(made))
    wanted = convolved(numbers, weights, groups=32)
    np.testing.assert_allclose(compiled.execute(p.arguments)[0], wanted, atol=2e-6 * np.abs(wanted).max())
    (call,) = re.findall(r"call @convolution_0\(.*", compiled.ir("kernels"))
    assert "14x32xi8>" in call or "32x14x14xi8>" in call


def test_holes_between_elements_are_no_zero_points() -> None:
    p = Program()
    x, numbers = p.dequantized(integers(np.uint8, 1, 8, 5, 5), np.array(0.05), zero=11)
    w, weights = p.dequantized(integers(np.int8, 4, 8, 3, 3), RNG.random(4), (0,))
    made = sx.conv_general_dilated(
        x, w, (1, 1), [(1, 1)] * 2, (2, 2), (1, 1), sx.ConvDimensionNumbers.of("NCHW", "OIHW", "NCHW")
    )
    spread = np.zeros((1, 8, 9, 9))
    spread[:, :, ::2, ::2] = numbers
    p.holds(made, convolved(spread, weights))


def test_pooling_and_the_same_quantization_again() -> None:
    """Nothing is left but the largest of bytes; windows in the padding alone are computed in f32."""
    q, bound = integers(np.uint8, 1, 9, 9, 4), np.float32(-np.inf)
    for padding, kind in (((1, 1), "ui8"), ((3, 0), "f32")):
        p = Program()
        numbers = (q - 5.0) * np.float32(0.3)
        x = (f32(p.given(q)) - 5.0) * np.float32(0.3)
        around = [(0, 0), padding, padding, (0, 0)]
        top = sx.reduce_window(x, p.b.constant(bound), sx.max, (1, 3, 3, 1), (1, 2, 2, 1), padding=around)
        made = sx.round_nearest_even(top * np.float32(1 / np.float32(0.3))) + 5.0
        made = sx.convert_element_type(made, "u8")
        compiled = sx.compile(p.b.build(made))
        padded = np.pad(numbers, around, constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2].max((-2, -1))
        wanted = np.clip(np.round(windows / np.float32(0.3)) + 5, 0, 255)
        np.testing.assert_array_equal(compiled.execute(p.arguments)[0], wanted)
        text = compiled.ir("stablehlo")
        assert re.findall(r"-> tensor<1x\dx\dx4x(\w+)>", text[text.index("reduce_window") :])[0] == kind
        assert ("round_nearest_even" in text) == (kind == "f32")


@pytest.mark.parametrize("dtype", ["u8", "s8"])
@pytest.mark.parametrize(("high", "is_left_out"), [(6.0, True), (5.9885, True), (5.987, False)])
@pytest.mark.parametrize("zero", [0, 3])
def test_bounds_that_bytes_have_themselves(dtype: str, high: float, is_left_out: bool, zero: int) -> None:
    """Of 6 * 255 / 6 the nearest byte is 255, of 5.9885 as well, of 5.987 it is 254."""
    p, factor = Program(), np.float32(255 / 6)
    values = np.float32([*np.linspace(-2, 8, 999), 5.985, 5.9885, 5.99, np.nan, np.inf, -np.inf, -0.0])
    x = p.given(values)
    bounded = sx.clamp(p.b.constant(np.float32(0)), x, p.b.constant(np.float32(high)))
    q = sx.convert_element_type(sx.round_nearest_even(bounded * factor) + float(zero), dtype)
    compiled = sx.compile(p.b.build(q))
    with np.errstate(invalid="ignore"):
        wanted = np.round(np.clip(values, 0, np.float32(high)) * factor) + zero
    info = np.iinfo(np.uint8 if dtype == "u8" else np.int8)
    wanted = np.where(np.isnan(wanted), 0, np.clip(wanted, info.min, info.max))
    np.testing.assert_array_equal(compiled.execute(p.arguments)[0], wanted)
    assert ("clamp" in compiled.ir("stablehlo")) != (is_left_out and zero == 0 and dtype == "u8")


def test_a_relu_that_others_read() -> None:
    p = Program()
    x = p.given(np.linspace(-1, 1, 50, dtype=np.float32))
    y = sx.max(x, p.b.constant(np.float32(0)))
    made = sx.tuple([sx.convert_element_type(sx.round_nearest_even(y * 200.0), "u8"), y])
    q, y = sx.compile(p.b.build(made)).execute(p.arguments)
    np.testing.assert_array_equal(y, np.maximum(p.arguments[0], 0))
    np.testing.assert_array_equal(q, np.round(np.maximum(p.arguments[0], 0) * np.float32(200)))


@pytest.mark.parametrize("zero", [-5, 256, 300])
def test_padding_with_a_zero_point_that_is_no_byte(zero: int) -> None:
    p = Program()
    x, numbers = p.dequantized(integers(np.uint8, 1, 4, 5, 5), np.array(0.5), zero=zero)
    w, weights = p.dequantized(integers(np.int8, 4, 4, 3, 3), np.array(0.25))
    numbers_ = sx.ConvDimensionNumbers.of("NCHW", "OIHW", "NCHW")
    p.holds(sx.conv_general_dilated(x, w, (1, 1), [(1, 1)] * 2, (1, 1), (1, 1), numbers_), convolved(numbers, weights))


def test_a_matrix_times_its_own_transpose() -> None:
    """Both operands are made from one array of numbers, which nobody reads any more."""
    p = Program()
    x, numbers = p.dequantized(integers(np.int8, 20, 12), np.array(0.5), zero=3)
    p.holds(sx.dot(sx.transpose(x, (1, 0)), x), numbers.T @ numbers)


@pytest.mark.parametrize(
    ("scale", "inverse", "zero", "is_same"),
    [(0.5, 2.0, 3, True), (0.50004, 2.0, 3, True), (0.5002, 2.0, 3, False), (1.00009, 1.0, 16000, False),
     (1e38, 1e-38, 3, False)],
)  # fmt: skip
def test_the_same_quantization_again(scale: float, inverse: float, zero: int, is_same: bool) -> None:
    p, q = Program(), integers(np.int8, 300)
    z = sx.broadcast(p.b.constant(np.float32(zero)), (300,))  # one constant, which both read
    made = sx.round_nearest_even((f32(p.given(q)) - z) * np.float32(scale) * np.float32(inverse)) + z
    compiled = sx.compile(p.b.build(sx.convert_element_type(made, "s8")))
    with np.errstate(over="ignore"):
        wanted = np.round((q - np.float32(zero)) * np.float32(scale) * np.float32(inverse)) + np.float32(zero)
    np.testing.assert_array_equal(compiled.execute(p.arguments)[0], np.clip(wanted, -128, 127))
    assert ("round_nearest_even" in compiled.ir("stablehlo")) != is_same


@pytest.mark.parametrize("is_constant", [False, True])
def test_no_elements(is_constant: bool) -> None:
    p = Program()
    x, _ = p.dequantized(integers(np.int8, 0, 8), np.zeros(0), (0,), is_constant=is_constant)
    w, _ = p.dequantized(integers(np.int8, 8, 3), np.array(0.5))
    assert sx.compile(p.b.build(sx.dot(x, w))).execute(p.arguments)[0].shape == (0, 3)


def test_constants_on_the_left() -> None:
    p, q, w = Program(), integers(np.uint8, 9, 16), integers(np.int8, 16, 8)
    half = sx.broadcast(p.b.constant(np.float32(0.5)), (9, 16))
    product = sx.dot(sx.mul(half, f32(p.given(q))), f32(p.given(w)) * 0.25)
    zero = sx.broadcast(p.b.constant(np.float32(0)), (9, 8))
    made = sx.round_nearest_even(sx.mul(zero + 0.125, sx.max(zero, product)))
    compiled = sx.compile(p.b.build(sx.convert_element_type(made, "u8")))
    wanted = np.clip(np.round(np.maximum((q * 0.5) @ (w * 0.25), 0) * 0.125), 0, 255)
    np.testing.assert_array_equal(compiled.execute(p.arguments)[0], wanted)
    assert "9x8xi32>" in compiled.ir("stablehlo")


def not_matched(build: Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp]) -> None:
    """Hold a program that has to stay in f32 against XLA."""
    p = Program()
    q, w = integers(np.int8, 12, 16), integers(np.int8, 16, 8)
    made = build(p.given(q), p.given(w))
    computation = p.b.build(made)
    wanted = oracles.xla(str(computation), p.arguments)
    np.testing.assert_allclose(
        sx.compile(computation).execute(p.arguments)[0], wanted[0], atol=1e-6 * np.abs(wanted[0]).max()
    )
    assert "xi32>" not in sx.compile(computation).ir("stablehlo")


def test_differences_after_the_scale() -> None:
    not_matched(lambda q, w: sx.dot(f32(q) * 0.1 - 3.0, f32(w) * 0.2))


def test_differences_of_bytes_are_bytes() -> None:
    """They wrap around before they are numbers."""
    p = Program()
    q, w = integers(np.int8, 12, 16), integers(np.int8, 16, 8)
    made = sx.dot(f32(p.given(q) - np.int8(100)) * 0.5, f32(p.given(w)) * 0.25)
    p.holds(made, ((q - np.int8(100)) * 0.5) @ (w * 0.25))


def test_scales_within_a_sum() -> None:
    not_matched(lambda q, w: sx.dot(f32(q) * sx.broadcast_in_dim(f32(w[:, 0]), (12, 16), (1,)), f32(w) * 0.2))


@pytest.mark.parametrize("scale", [float("inf"), 1e30, 1e-30])
def test_scales_that_are_not_ordinary(scale: float) -> None:
    not_matched(lambda q, w: sx.dot(f32(q) * scale, f32(w) * 0.2))


def test_zero_points_that_are_no_integers() -> None:
    not_matched(lambda q, w: sx.dot((f32(q) - 0.5) * 0.1, f32(w) * 0.2))


def test_floats_that_were_made_integers() -> None:
    not_matched(lambda q, w: sx.dot(f32(sx.convert_element_type(f32(q) * 1.5, "s16")) * 0.1, f32(w) * 0.2))


def test_tiny_scales_are_not_multiplied_with_each_other() -> None:
    """Their product has few digits, where the sum times one and the other has all."""
    p = Program()
    x, numbers = p.dequantized(integers(np.int8, 4, 64), np.array(3e-20), is_constant=True)
    y, others = p.dequantized(integers(np.int8, 64, 4), np.array(7e-22), is_constant=True)
    (result,) = sx.compile(p.b.build(sx.dot(x, y) * 1e30)).execute(p.arguments)
    wanted = numbers @ others * 1e30
    np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6 * np.abs(wanted).max())
