"""Convolutions. Oracles: numpy (convolution_reference.py) in a wider type, the reference interpreter and XLA:CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests import programs
from tests.ops.convolution_reference import convolve, wide
from tests.ops.samples import sample
from tests.programs import check, general_only, run

Numbers = sx.ConvDimensionNumbers
NHWC = Numbers.of("NHWC", "HWIO", "NHWC")
NCHW = Numbers.default(2)
# Sums of some hundred products at most: see test_contraction.py.
SCALE = {"f32": 1e-6, "f64": 2e-15, "bf16": 8e-3, "f16": 1e-3}
BOTH = ["interpreter", "xla"]


def normal(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape).astype(dtype)


def both_ways(x: np.ndarray, w: np.ndarray, numbers: Numbers, against: list[str] = BOTH, **window: Any) -> None:
    """One convolution through the emitters, held against the oracles and numpy; and through the general path."""
    strides = window.pop("strides", (1,) * (x.ndim - 2))
    padding = window.pop("padding", ((0, 0),) * (x.ndim - 2))
    expected = convolve(wide(x), wide(w), numbers, strides=strides, padding=padding, **window).astype(x.dtype)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, k: sx.XlaOp) -> sx.XlaOp:
        return sx.conv_general_dilated(
            v,
            k,
            strides,
            padding,
            window.get("lhs_dilation"),
            window.get("rhs_dilation"),
            numbers,
            feature_group_count=window.get("feature_groups", 1),
            batch_group_count=window.get("batch_groups", 1),
            window_reversal=window.get("reversal"),
        )

    scale = SCALE.get(str(x.dtype).replace("float", "f"), 0 if x.dtype.kind in "iu" else SCALE["f32"])
    run(make, x, w, against=against, expected=[expected], scale=scale)
    run(make, x, w, against=[], expected=[expected], scale=scale, options=general_only())


WINDOWS: list[dict[str, Any]] = [
    {},
    {"padding": ((1, 1), (1, 1))},
    {"strides": (2, 3), "padding": ((0, 2), (3, 1))},
    {"padding": ((-1, 2), (3, -2))},
    {"padding": ((-2, -3), (-1, -1)), "strides": (1, 2)},
    {"rhs_dilation": (2, 3), "padding": ((2, 2), (3, 3))},
    {"lhs_dilation": (2, 1), "padding": ((1, 0), (2, 2))},
    {"lhs_dilation": (2, 3), "strides": (3, 2), "padding": ((2, 1), (3, 4))},
    {"lhs_dilation": (3, 2), "rhs_dilation": (2, 3), "padding": ((4, 4), (5, 3))},
    {"lhs_dilation": (2, 2), "strides": (2, 4), "rhs_dilation": (2, 1), "padding": ((-1, 3), (1, -2))},
    {"reversal": (True, False), "padding": ((1, 0), (0, 2))},
    {"reversal": (True, True), "strides": (2, 1), "lhs_dilation": (1, 2), "rhs_dilation": (2, 2)},
    {"padding": ((9, 0), (0, 11)), "strides": (4, 5)},
]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
def test_windows(window: dict[str, Any]) -> None:
    both_ways(normal(2, 9, 11, 4), normal(3, 2, 4, 6, seed=1), NHWC, **window)


@pytest.mark.parametrize("window", WINDOWS[1:10:2], ids=str)
def test_windows_over_features_first(window: dict[str, Any]) -> None:
    both_ways(normal(2, 5, 9, 11), normal(19, 5, 3, 2, seed=1), NCHW, **window)


@pytest.mark.parametrize(
    "orders",
    [("HWCN", "OHWI", "CNWH"), ("NWCH", "HIWO", "HNWC"), ("WHNC", "IOWH", "WCHN"), ("CNHW", "IHWO", "CHWN")],
    ids=str,
)
def test_orders_of_dimensions(orders: tuple[str, str, str]) -> None:
    """The interpreter aborts the process where the result's features stand before its batch."""
    sizes = {"N": 2, "C": 3, "H": 7, "W": 10}
    kernel = {"I": 3, "O": 20, "H": 2, "W": 3}
    x = normal(*(sizes[letter] for letter in orders[0]))
    w = normal(*(kernel[letter] for letter in orders[1]), seed=1)
    against = BOTH if orders[2].index("N") < orders[2].index("C") else ["xla"]
    both_ways(x, w, Numbers.of(*orders), against, strides=(1, 2), padding=((1, 1), (0, 1)))


@pytest.mark.parametrize(("batch", "inputs", "outputs"), [(1, 1, 1), (3, 5, 7), (4, 20, 33)])
def test_no_spatial_dimension(batch: int, inputs: int, outputs: int) -> None:
    both_ways(normal(batch, inputs), normal(inputs, outputs, seed=1), Numbers.of("NC", "IO", "NC"))
    if inputs == 20:
        both_ways(
            normal(batch, inputs),
            normal(inputs // 4, outputs - 1, seed=1),
            Numbers.of("NC", "IO", "NC"),
            feature_groups=4,
        )


def test_one_spatial_dimension() -> None:
    x, w = normal(2, 4, 30), normal(9, 4, 5, seed=1)
    both_ways(x, w, Numbers.default(1), strides=(2,), padding=((3, 1),), rhs_dilation=(2,))
    both_ways(x, w, Numbers.default(1), padding=((4, 4),), lhs_dilation=(3,), reversal=(True,))


def test_three_spatial_dimensions() -> None:
    x, w = normal(2, 5, 6, 7, 3), normal(2, 3, 2, 3, 10, seed=1)
    numbers = Numbers.of("NDHWC", "DHWIO", "NDHWC")
    both_ways(x, w, numbers, padding=((1, 0), (1, 1), (0, 1)), strides=(1, 2, 1))
    both_ways(x, w, numbers, lhs_dilation=(2, 1, 2), rhs_dilation=(1, 2, 1), padding=((1, 1), (2, -1), (0, 3)))


@pytest.mark.parametrize(
    ("inputs", "outputs", "groups"), [(6, 6, 6), (6, 12, 6), (6, 4, 2), (16, 16, 16), (32, 64, 4), (24, 24, 6)]
)
@pytest.mark.parametrize("numbers", [NHWC, NCHW], ids=["NHWC", "NCHW"])
def test_feature_groups(inputs: int, outputs: int, groups: int, numbers: Numbers) -> None:
    x, w = normal(2, 7, 9, inputs), normal(3, 3, inputs // groups, outputs, seed=1)
    if numbers is NCHW:
        x, w = x.transpose(0, 3, 1, 2).copy(), w.transpose(3, 2, 0, 1).copy()
    both_ways(x, w, numbers, feature_groups=groups, padding=((1, 1), (2, 0)), strides=(2, 1))


@pytest.mark.parametrize(("batch", "outputs", "groups"), [(4, 4, 4), (4, 6, 2), (6, 24, 3), (16, 16, 16)])
def test_batch_groups(batch: int, outputs: int, groups: int) -> None:
    x, w = normal(batch, 7, 8, 3), normal(3, 2, 3, outputs, seed=1)
    both_ways(x, w, NHWC, batch_groups=groups, padding=((1, 1), (0, 1)), rhs_dilation=(2, 1))


def test_gradient_of_the_weights() -> None:
    """As reverse differentiation writes it: the batch is summed over, and the window is as large as the image."""
    x, dy = normal(4, 10, 12, 5), normal(4, 10, 12, 18, seed=1)
    numbers = Numbers(3, 0, (1, 2), 0, 3, (1, 2), 2, 3, (0, 1))
    both_ways(x, dy, numbers, padding=((1, 1), (1, 1)))


@pytest.mark.parametrize("name", ["f64", "bf16", "f16"])
def test_other_floats(name: str) -> None:
    dtype = sx.Shape(name, ()).element_type.dtype
    both_ways(normal(2, 6, 9, 5).astype(dtype), normal(3, 3, 5, 9, seed=1).astype(dtype), NHWC, against=[])


@pytest.mark.parametrize("name", ["f8e4m3fn", "f8e5m2", "f8e4m3b11fnuz", "f8e3m4", "f4e2m1fn"])
def test_small_floats(name: str) -> None:
    """Summed in f32 and rounded once, as StableHLO's dot_general of small floats is here."""
    dtype = sx.Shape(name, ()).element_type.dtype
    x, w = normal(2, 5, 6, 3).astype(dtype), (normal(2, 2, 3, 4, seed=1) / 4).astype(dtype)
    expected = convolve(wide(x), wide(w), NHWC, strides=(1, 1), padding=((0, 0), (1, 0)))
    expected = expected.astype(np.float32).astype(dtype)
    for options in (None, general_only()):
        run(
            lambda b, v, k: sx.conv_general(v, k, (1, 1), ((0, 0), (1, 0)), NHWC),
            x,
            w,
            against=[],
            expected=[expected],
            ulp=1,
            options=options,
        )


@pytest.mark.parametrize("name", ["s2", "s4", "s8", "s16", "s32", "s64", "u4", "u8", "u16", "u32", "u64"])
def test_integers(name: str) -> None:
    """Sums wrap around in the result's type. Against numpy alone below 32 bits, where the interpreter's sums differ."""
    type_ = sx.Shape(name, ()).element_type
    x, w = sample(name, 2 * 5 * 6 * 3).reshape(2, 5, 6, 3), sample(name, 2 * 3 * 3 * 4, 2).reshape(2, 3, 3, 4)
    window: dict[str, Any] = {"strides": (1, 2), "padding": ((1, 0), (2, 1))}
    sums = convolve(x.astype(np.int64).view(np.uint64), w.astype(np.int64).view(np.uint64), NHWC, **window)
    unused = 64 - type_.bits
    wrapped = (sums << unused).view(np.int64 if type_.is_signed else np.uint64) >> unused
    for options in (None, general_only()):
        run(
            lambda b, v, k: sx.conv_general(v, k, window["strides"], window["padding"], NHWC),
            x,
            w,
            against=["interpreter"] if type_.bits >= 32 and options is None else [],
            expected=[wrapped.astype(type_.dtype)],
            options=options,
        )


WIDER = [("s8", "s32"), ("u8", "u32"), ("s16", "s64"), ("bf16", "f32"), ("f32", "f64")]


@pytest.mark.parametrize(("name", "to"), WIDER)
def test_preferred_element_type(name: str, to: str) -> None:
    """Products are made and summed in the wider type. Against numpy alone: the interpreter sums s8 in s8."""
    from_, wanted = (sx.Shape(n, ()).element_type for n in (name, to))
    integer = from_.is_integer
    x = sample(name, 240).reshape(2, 5, 6, 4) if integer else normal(2, 5, 6, 4).astype(from_.dtype)
    w = sample(name, 144, 2).reshape(3, 3, 4, 4) if integer else normal(3, 3, 4, 4, seed=1).astype(from_.dtype)
    expected = convolve(wide(x), wide(w), NHWC, strides=(1, 1), padding=((1, 1), (1, 1))).astype(wanted.dtype)
    for options in (None, general_only()):
        run(
            lambda b, v, k: sx.conv_general(v, k, (1, 1), "SAME", NHWC, preferred_element_type=to),
            x,
            w,
            against=[],
            expected=[expected],
            scale=0 if integer else SCALE[to],
            options=options,
        )


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex(dtype: Any) -> None:
    """Without the interpreter, which aborts the process on complex results."""
    x = (normal(2, 5, 6, 3) + 1j * normal(2, 5, 6, 3, seed=1)).astype(dtype)
    w = (normal(2, 3, 3, 4, seed=2) + 1j * normal(2, 3, 3, 4, seed=3)).astype(dtype)
    both_ways(x, w, NHWC, against=["xla"], padding=((1, 0), (1, 1)))


def test_pred() -> None:
    """Whether some element under the window and its weight are both true. Against numpy: XLA:CPU has no such type."""
    x, w = sample("pred", 90).reshape(1, 5, 6, 3), sample("pred", 72, 1) & sample("pred", 72, 2)
    w = w.reshape(2, 3, 3, 4)
    expected = convolve(wide(x), wide(w), NHWC, strides=(1, 1), padding=((0, 1), (1, 0))) > 0
    run(lambda b, v, k: sx.conv_general(v, k, (1, 1), ((0, 1), (1, 0)), NHWC), x, w, against=[], expected=[expected])


@pytest.mark.parametrize(
    ("x", "w", "padding"),
    [
        ((0, 5, 5, 2), (2, 2, 2, 3), ((0, 0), (0, 0))),
        ((2, 5, 5, 2), (2, 2, 2, 0), ((0, 0), (0, 0))),
        ((2, 5, 5, 0), (2, 2, 0, 3), ((0, 0), (0, 0))),
        ((2, 0, 5, 2), (2, 2, 2, 3), ((2, 1), (0, 0))),
        ((2, 3, 5, 2), (4, 2, 2, 3), ((0, 0), (0, 0))),
        ((2, 3, 5, 2), (2, 2, 2, 3), ((-2, -2), (0, 0))),
    ],
    ids=str,
)
def test_nothing_to_compute(x: Any, w: Any, padding: Any) -> None:
    """Against numpy alone: the interpreter aborts the process where there is nothing to add up."""
    both_ways(normal(*x), normal(*w), NHWC, against=[], padding=padding)


def test_sizes_of_one() -> None:
    both_ways(normal(1, 1, 1, 1), normal(1, 1, 1, 1, seed=1), NHWC)
    both_ways(normal(1, 4, 1, 1), normal(3, 1, 1, 1, seed=1), NHWC, padding=((1, 1), (0, 0)))
    both_ways(normal(1, 1, 1, 3), normal(3, 3, 3, 2, seed=1), NHWC, padding=((1, 1), (1, 1)))
    both_ways(normal(1, 4, 4, 3), normal(4, 4, 3, 5, seed=1), NHWC)
    both_ways(normal(1, 4, 4, 3), normal(4, 4, 3, 5, seed=1), NHWC, reversal=(True, True))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_conv(padding: str, strides: tuple[int, int]) -> None:
    """What SAME adds is told by XLA: half of it in front, the larger half behind."""
    x, w = normal(2, 3, 10, 11), normal(4, 3, 3, 2, seed=1)
    total = [max(0, (-(-n // s) - 1) * s + k - n) for n, s, k in zip(x.shape[2:], strides, w.shape[2:], strict=True)]
    pads = [(t // 2, t - t // 2) for t in total] if padding == "SAME" else [(0, 0), (0, 0)]
    expected = convolve(wide(x), wide(w), NCHW, strides=strides, padding=pads).astype(np.float32)
    run(lambda b, v, k: sx.conv(v, k, strides, padding), x, w, expected=[expected], scale=SCALE["f32"])
    run(
        lambda b, v, k: sx.conv_with_general_dimensions(v, k, strides, padding, NCHW),
        x,
        w,
        expected=[expected],
        scale=SCALE["f32"],
    )


def test_conv_with_general_padding() -> None:
    """The pseudo-code of XLA's operation semantics, element by element."""
    x, w = normal(1, 2, 5, 6), normal(3, 2, 3, 2, seed=1)
    (stride_y, stride_x), (low_y, low_x) = (2, 1), (1, 2)
    wanted = np.zeros((1, 3, 3, 7))
    for b, oz, oy, ox in np.ndindex(wanted.shape):
        for iz, ky, kx in np.ndindex(2, 3, 2):
            iy, ix = oy * stride_y + ky - low_y, ox * stride_x + kx - low_x
            if 0 <= iy < 5 and 0 <= ix < 6:
                wanted[b, oz, oy, ox] += float(x[b, iz, iy, ix]) * float(w[oz, iz, ky, kx])
    run(
        lambda b, v, k: sx.conv_with_general_padding(v, k, (2, 1), ((1, 1), (2, 0))),
        x,
        w,
        expected=[wanted.astype(np.float32)],
        scale=SCALE["f32"],
    )


def test_a_layer_with_its_epilogue() -> None:
    x, w, bias, more = normal(2, 8, 9, 5), normal(3, 3, 5, 17, seed=1), normal(17, seed=2), normal(2, 8, 9, 17, seed=3)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, k: sx.XlaOp, c: sx.XlaOp, m: sx.XlaOp) -> sx.XlaOp:
        y = sx.conv_with_general_dimensions(v, k, (1, 1), "SAME", NHWC)
        return sx.max(sx.add(sx.add(y, c, broadcast_dimensions=(3,)), m), b.constant(np.float32(0)))

    run(make, x, w, bias, more, scale=SCALE["f32"])
    run(make, x, w, bias, more, against=["interpreter"], scale=SCALE["f32"], options=general_only())


def test_a_layer_with_features_first() -> None:
    x, w, bias = normal(2, 5, 8, 9), normal(17, 5, 3, 3, seed=1), normal(17, seed=2)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, k: sx.XlaOp, c: sx.XlaOp) -> sx.XlaOp:
        return sx.max(sx.add(sx.conv(v, k, (1, 1), "SAME"), c, broadcast_dimensions=(1,)), b.constant(np.float32(0)))

    run(make, x, w, bias, scale=SCALE["f32"])


def test_attributes_that_are_left_out() -> None:
    text = """func.func public @main(%x: tensor<1x4x4x2xf32>, %w: tensor<3x3x2x5xf32>) -> tensor<1x2x2x5xf32> {
      %0 = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f], window = {}
        {batch_group_count = 1 : i64, feature_group_count = 1 : i64}
        : (tensor<1x4x4x2xf32>, tensor<3x3x2x5xf32>) -> tensor<1x2x2x5xf32>
      return %0 : tensor<1x2x2x5xf32>
    }"""
    check(text, [normal(1, 4, 4, 2), normal(3, 3, 2, 5, seed=1)], scale=SCALE["f32"])


def test_lhs_from_other_operations() -> None:
    """What the window reads may be anything: a constant, a broadcast, a slice, the result of another convolution."""
    x, w = normal(1, 8, 8, 3), normal(3, 3, 3, 3, seed=1)

    def make(b: sx.XlaBuilder, v: sx.XlaOp, k: sx.XlaOp) -> list[sx.XlaOp]:
        once = sx.conv_with_general_dimensions(v, k, (1, 1), "SAME", NHWC)
        twice = sx.conv_with_general_dimensions(sx.tanh(once), k, (2, 2), "SAME", NHWC)
        splat = sx.broadcast(b.constant(np.float32(2)), (1, 5, 5, 3))
        flat = sx.conv_with_general_dimensions(splat, sx.transpose(k, (1, 0, 3, 2)), (1, 1), "SAME", NHWC)
        return [twice, flat, sx.conv_with_general_dimensions(sx.rev(v, (1,)), k, (1, 1), "VALID", NHWC)]

    run(make, x, w, scale=4e-6)


@pytest.mark.parametrize("channels", [1, 16])
@pytest.mark.parametrize("dilated", ["lhs", "rhs"])
def test_holes_of_dilation_do_nothing(dilated: str, channels: int) -> None:
    """Infinite numbers meet them, and kernels make no NaN of that, as XLA:CPU; the general path multiplies zeros."""
    if programs.TARGET == "upstream":
        pytest.skip("it has the general path alone")
    x, w = np.ones((1, 7, channels), np.float32), np.ones((3, channels, channels), np.float32)
    (w[0] if dilated == "lhs" else x[0, 1:2])[...] = np.inf
    found = [np.inf, channels] * 5 + [np.inf] if dilated == "lhs" else [3 * channels, np.inf, 3 * channels]
    expected = np.broadcast_to(np.array(found, np.float32)[:, None], (1, len(found), channels))

    def make(b: sx.XlaBuilder, v: sx.XlaOp, k: sx.XlaOp) -> sx.XlaOp:
        dilations = ((2,), (1,)) if dilated == "lhs" else ((1,), (2,))
        return sx.conv_general_dilated(v, k, (1,), "VALID", *dilations, Numbers.of("NHC", "HIO", "NHC"))

    run(make, x, w, against=["xla"], expected=[expected])


FAR: list[tuple[Any, Any, dict[str, Any]]] = [
    ((2, 9, 9, 5), (3, 3, 5, 4), {"padding": ((8, 8), (8, 8)), "rhs_dilation": (8, 8)}),
    ((2, 9, 9, 5), (3, 3, 5, 4), {"padding": ((9, 9), (8, 8)), "rhs_dilation": (9, 8)}),
    ((2, 9, 9, 5), (3, 3, 5, 4), {"padding": ((12, 12), (12, 12)), "rhs_dilation": (12, 12)}),
    ((2, 4, 4, 6), (5, 3, 3, 4), {"padding": ((12, 0), (0, 4)), "rhs_dilation": (3, 2), "feature_groups": 2}),
    ((1, 3, 4, 2), (4, 5, 2, 3), {"padding": ((9, 0), (2, 8)), "rhs_dilation": (3, 4), "reversal": (True, True)}),
    ((1, 4, 4, 2), (9, 9, 2, 3), {"padding": ((8, 1), (8, 0)), "strides": (4, 2), "lhs_dilation": (2, 3)}),
]


@pytest.mark.parametrize(("x", "w", "window"), FAR, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.int8])
def test_taps_that_meet_padding_alone(x: Any, w: Any, window: dict[str, Any], dtype: Any) -> None:
    """They are dropped: catches a wrong tap, and padding that does not shrink with the window."""
    values = [normal(*shape) * 3 for shape in (x, w)]
    both_ways(*(v.astype(dtype) for v in values), NHWC, **dict(window))


@pytest.mark.parametrize("place", [(0, 0), (1, 1), (2, 1)])
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("is_constant", [False, True])
def test_weights_in_the_padding_that_are_not_finite(place: tuple[int, int], value: float, is_constant: bool) -> None:
    """A dropped weight times zero is NaN in all results of its feature; a kept one's sign is not lost."""
    x, w = np.abs(normal(1, 4, 4, 3)) + 1, normal(3, 3, 3, 2)
    w[(*place, 1, 0)] = value
    numbers = {"padding": ((5, 5), (5, 5)), "rhs_dilation": (5, 5)}
    with np.errstate(invalid="ignore"):
        expected = convolve(wide(x), wide(w), NHWC, strides=(1, 1), **numbers).astype(np.float32)
    assert not np.isfinite(expected[..., 0]).any()
    assert np.isfinite(expected[..., 1]).all()

    def make(b: sx.XlaBuilder, v: sx.XlaOp, *given: sx.XlaOp) -> sx.XlaOp:
        k = given[0] if given else b.constant(w)
        return sx.conv_general_dilated(v, k, (1, 1), numbers["padding"], None, numbers["rhs_dilation"], NHWC)

    run(make, x, *(() if is_constant else (w,)), against=BOTH, expected=[expected], scale=SCALE["f32"])
