"""What the builder emits for convolutions, and what it refuses.

Oracle: numpy (convolution_reference.py) through the reference interpreter, and StableHLO's own verifier.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.ops.building import build, evaluate, refused
from tests.ops.convolution_reference import convolve

Numbers = sx.ConvDimensionNumbers
NHWC = Numbers.of("NHWC", "HWIO", "NHWC")
X, W = sx.f32[2, 8, 9, 4], sx.f32[3, 2, 4, 6]


def dilated(**given: Any) -> Any:
    """conv_general_dilated with some of its arguments; the others are those of a plain convolution."""
    window: dict[str, Any] = {"window_strides": (1, 1), "padding": "VALID", "lhs_dilation": None, "rhs_dilation": None}
    window |= {"dimension_numbers": NHWC, **given}
    return lambda x, w: sx.conv_general_dilated(x, w, **window)


class TestDimensionNumbers:
    def test_letters(self):
        assert Numbers.of("NCHW", "OIHW", "NCHW") == Numbers.default(2)
        assert Numbers.of("NC", "OI", "NC") == Numbers.default(0)
        numbers = Numbers.of("HWNC", "IWOH", "CWHN")
        assert numbers == Numbers(2, 3, [0, 1], 0, 2, (3, 1), 3, 0, iter((2, 1)))

    @pytest.mark.parametrize("words", [("NHW", "HWIO", "NHWC"), ("NHWC", "HWIO", "NHWD"), ("NHWC", "HIO", "NHWC")])
    def test_letters_that_do_not_fit(self, words):
        with pytest.raises(sx.ShapeError, match="must have the letters"):
            Numbers.of(*words)

    def test_the_order_of_xla_is_the_default(self):
        text = str(build(lambda x, w: sx.conv(x, w, (1,), "VALID"), sx.f32[2, 3, 8], sx.f32[4, 3, 5]))
        assert "dim_numbers = [b, f, 0]x[o, i, 0]->[b, f, 0]" in text


class TestWhatIsEmitted:
    def test_attributes(self):
        make = dilated(
            window_strides=(2, 3),
            padding=((1, -1), (0, 2)),
            lhs_dilation=(2, 1),
            rhs_dilation=(1, 3),
            window_reversal=(True, False),
            precision_config=("HIGH", "HIGHEST"),
        )
        text = str(build(make, X, W))
        assert "stride = [2, 3], pad = [[1, -1], [0, 2]], lhs_dilate = [2, 1], rhs_dilate = [1, 3]" in text
        assert "reverse = [true, false]" in text
        assert "precision HIGH>, #stablehlo<precision HIGHEST" in text

    def test_groups(self):
        text = str(build(dilated(feature_group_count=4), X, sx.f32[3, 2, 1, 8]))
        assert "feature_group_count = 4" in text
        assert "batch_group_count = 2" in str(build(dilated(batch_group_count=2), X, W))

    @pytest.mark.parametrize("name", ["conv", "conv_with_general_padding"])
    def test_values(self, name):
        """Values through the interpreter."""
        x = np.arange(2 * 3 * 7, dtype=np.float32).reshape(2, 3, 7)
        w = np.arange(5 * 3 * 2, dtype=np.float32).reshape(5, 3, 2)
        expected = convolve(x, w, Numbers.default(1), strides=(2,), padding=((0, 1),))
        given = ((2,), "SAME") if name == "conv" else ((2,), [(0, 1)])
        np.testing.assert_array_equal(evaluate(lambda a, b: getattr(sx, name)(a, b, *given), x, w), expected)

    def test_same_with_dilation(self):
        """SAME keeps the size also where the window is dilated."""

        def make(x, w):
            return sx.conv_with_general_padding(x, w, (1,), "SAME", None, (3,))

        assert build(make, sx.f32[1, 1, 10], sx.f32[1, 1, 4]).result_shape == sx.f32[1, 1, 10]

    @pytest.mark.parametrize(
        ("size", "window", "strides", "padding", "result"),
        [
            (5, 3, 1, (0, 0), 3),
            (5, 3, 2, (1, 1), 3),
            (2, 3, 1, (0, 0), 0),
            (0, 2, 1, (1, 2), 2),
            (4, 1, 3, (-2, -2), 0),
        ],
    )
    def test_sizes(self, size, window, strides, padding, result):
        def make(x, w):
            return sx.conv_with_general_padding(x, w, (strides,), [padding])

        made = build(make, sx.f32[1, 1, size], sx.f32[1, 1, window])
        assert made.result_shape == sx.f32[1, 1, result]

    def test_preferred_element_type(self):
        make = dilated(preferred_element_type="s32")
        assert build(make, sx.s8[2, 8, 9, 4], sx.s8[3, 2, 4, 6]).result_shape == sx.s32[2, 6, 8, 6]
        refused("", dilated(preferred_element_type="f32"), sx.s8[2, 8, 9, 4], sx.s8[3, 2, 4, 6])
        refused("", dilated(preferred_element_type="bf16"), X, W)


class TestRefusals:
    """The numbers are those of the constraints and the inputs of StableHLO's `convolution`."""

    def test_conv_general_dilated_c1(self):
        refused("C1", dilated(), X, sx.f32[3, 4, 6])

    def test_conv_general_dilated_c2(self):
        refused("C2", dilated(window_strides=(1,)), X, W)

    def test_conv_general_dilated_c3(self):
        refused("C3", dilated(window_strides=(1, 0)), X, W)

    def test_conv_general_dilated_c4(self):
        refused("C4", dilated(padding=((0, 0),)), X, W)

    def test_conv_general_dilated_c5(self):
        refused("C5", dilated(lhs_dilation=(1, 1, 1)), X, W)

    def test_conv_general_dilated_c6(self):
        refused("C6", dilated(lhs_dilation=(0, 1)), X, W)

    def test_conv_general_dilated_c7(self):
        refused("C7", dilated(rhs_dilation=()), X, W)

    def test_conv_general_dilated_c8(self):
        refused("C8", dilated(rhs_dilation=(1, -1)), X, W)

    def test_conv_general_dilated_c9(self):
        refused("C9", dilated(window_reversal=(True,)), X, W)

    def test_conv_general_dilated_c10(self):
        refused("C10", dilated(batch_group_count=3), X, W)

    def test_conv_general_dilated_c11(self):
        refused("C11", dilated(feature_group_count=3), X, W)

    def test_conv_general_dilated_c12(self):
        refused("C12", dilated(dimension_numbers=Numbers(0, 3, (1,), 2, 3, (0, 1), 0, 3, (1, 2))), X, W)

    def test_conv_general_dilated_c13(self):
        refused("C13", dilated(dimension_numbers=Numbers(0, 3, (1, 3), 2, 3, (0, 1), 0, 3, (1, 2))), X, W)

    def test_conv_general_dilated_c14(self):
        refused("C14", dilated(feature_group_count=2), X, W)

    def test_conv_general_dilated_c15(self):
        refused("C15", dilated(batch_group_count=2), X, sx.f32[3, 2, 4, 5])

    def test_conv_general_dilated_c16(self):
        refused("C16", dilated(feature_group_count=2), X, sx.f32[3, 2, 2, 5])

    def test_conv_general_dilated_c17(self):
        refused("C17", dilated(dimension_numbers=Numbers(0, 3, (1, 2), 2, 3, (0, 1, 1), 0, 3, (1, 2))), X, W)

    def test_conv_general_dilated_c18(self):
        refused("C18", dilated(dimension_numbers=Numbers(0, 3, (1, 2), 2, 4, (0, 1), 0, 3, (1, 2))), X, W)

    def test_conv_general_dilated_c19(self):
        refused("C19", dilated(dimension_numbers=Numbers(0, 3, (1, 2), 2, 3, (0, 1), 0, 3, ())), X, W)

    def test_conv_general_dilated_c20(self):
        refused("C20", dilated(dimension_numbers=Numbers(0, 3, (1, 2), 2, 3, (0, 1), 0, -1, (1, 2))), X, W)

    def test_conv_general_dilated_c21(self):
        refused("C21", dilated(feature_group_count=0), X, W)

    def test_conv_general_dilated_c22(self):
        refused("C22", dilated(batch_group_count=-1), X, W)

    def test_conv_general_dilated_c23(self):
        refused("C23", dilated(feature_group_count=2, batch_group_count=2), X, W)

    def test_conv_general_dilated_c24(self):
        refused("C24", dilated(precision_config=("HIGH",)), X, W)

    def test_conv_general_dilated_c27(self):
        refused("C27", dilated(), X, sx.f64[3, 2, 4, 6])

    def test_conv_general_dilated_i19(self):
        refused("I19", dilated(precision_config="BEST"), X, W)

    def test_the_error_tells_shapes_and_rule(self):
        error = refused("C14", dilated(feature_group_count=2), X, W)
        assert error.operation == "conv_general_dilated"
        assert "rhs must have 2 input features, as lhs has in each group, not 4 (C14)" in str(error)
        assert "f32[2,8,9,4]" in str(error)

    @pytest.mark.parametrize("name", ["conv", "conv_with_general_padding"])
    def test_of_the_default_order(self, name):
        error = refused("C2", lambda x, w: getattr(sx, name)(x, w, (1,), "VALID"), X, sx.f32[6, 8, 3, 2])
        assert error.operation == name

    @pytest.mark.parametrize("name", ["conv_with_general_dimensions", "conv_general"])
    def test_of_free_order(self, name):
        error = refused("C3", lambda x, w: getattr(sx, name)(x, w, (0, 1), "VALID", NHWC), X, W)
        assert error.operation == name

    def test_arguments_of_wrong_kinds(self):
        refused("", dilated(padding="FULL"), X, W)
        refused("C4", dilated(padding=3), X, W)
        refused("C4", dilated(padding=((1, 2, 3), (0, 0))), X, W)
        refused("C4", dilated(padding=((1.5, 0), (0, 0))), X, W)
        refused("", dilated(window_strides=("a", 1)), X, W)
        refused("", dilated(feature_group_count=1.5), X, W)
        refused("", dilated(dimension_numbers="NHWC"), X, W)
        refused("", lambda x, w: sx.conv(x, 2.0, (1, 1), "SAME"), X, W)
        refused("C1", dilated(), sx.f32[3], sx.f32[3])
        refused("", dilated(), X, sx.f32[0, 2, 4, 6])
