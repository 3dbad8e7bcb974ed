"""What the builder emits for conversions, and what it refuses. Oracles: the reference interpreter and numpy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from stablexla.builder.registry import REGISTRY
from tests.ops.building import build, evaluate, refused


class TestConvertElementType:
    def test_example_of_the_description(self):
        result = evaluate(lambda x: sx.convert_element_type(x, "f32"), np.int32([0, 1, 2]))
        np.testing.assert_array_equal(result, np.float32([0.0, 1.0, 2.0]))

    @pytest.mark.parametrize("name", ["pred", "s4", "u8", "s32", "bf16", "f8e4m3fn", "f64", "c64"])
    def test_values(self, name):
        x = np.float32([0.0, 1.0, 2.5, 3.75])
        wanted = sx.element_type(name)
        result = evaluate(lambda a: sx.convert_element_type(a, wanted), x)
        np.testing.assert_array_equal(result, x.astype(wanted.dtype))

    def test_every_pair_of_types_verifies(self):
        for given in sx.ELEMENT_TYPES:
            make = lambda x: [sx.convert_element_type(x, wanted) for wanted in sx.ELEMENT_TYPES]  # noqa: E731
            assert len(build(make, given[3]).result_shape.tuple_shapes) == len(sx.ELEMENT_TYPES)

    def test_real_part_of_complex_numbers(self):
        result = evaluate(lambda x: sx.convert_element_type(x, "f32"), np.complex64([1 + 2j]))
        np.testing.assert_array_equal(result, np.float32([1]))

    def test_nothing_is_emitted_for_the_same_type(self):
        assert "convert" not in str(build(lambda x: sx.convert_element_type(x, np.float32), sx.f32[3]))

    def test_refusals(self):
        error = refused("", lambda x: sx.convert_element_type(x, "float32x"), sx.f32[3])
        assert "'float32x' is no element type" in str(error)
        refused("", lambda x: sx.convert_element_type(sx.tuple((x,)), "f32"), sx.f32[3])


class TestBitcastConvertType:
    @pytest.mark.parametrize("name", ["u32", "s32", "u8", "bf16", "f16", "u16"])
    def test_from_f32(self, name):
        x = np.float32([[0.0, 1.0], [-2.5, 3e-45]])
        dtype = sx.element_type(name).dtype
        parts = 4 // dtype.itemsize
        expected = x.view(dtype).reshape((2, 2) if parts == 1 else (2, 2, parts))
        result = evaluate(lambda a: sx.bitcast_convert_type(a, name), x)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result.view(f"u{dtype.itemsize}"), expected.view(f"u{dtype.itemsize}"))

    def test_shapes_of_the_description(self):
        for given, wanted, result in [
            ("f32[10]", "f16", "f16[10,2]"),
            ("f32[]", "f16", "f16[2]"),
            ("f16[10,2]", "f32", "f32[10]"),
            ("s8[2,4]", "f32", "f32[2]"),
            ("c128[3]", "c64", "c64[3,2]"),
            ("u8[3]", "u4", "u4[3,2]"),
            ("s2[4,0,4]", "u8", "u8[4,0]"),
            ("pred[8]", "u8", "u8[]"),
        ]:
            computation = build(lambda x, to=wanted: sx.bitcast_convert_type(x, to), sx.Shape.parse(given))
            assert str(computation.result_shape) == result

    def test_there_and_back(self):
        x = np.arange(8, dtype=np.int16)
        make = lambda a: sx.bitcast_convert_type(sx.bitcast_convert_type(a, "u8"), "s16")  # noqa: E731
        np.testing.assert_array_equal(evaluate(make, x), x)

    @pytest.mark.parametrize(
        ("given", "wanted"), [("f16[10,3]", "f32"), ("f16[]", "f32"), ("f6e2m3fn[4]", "u8"), ("u8[4]", "f6e3m2fn")]
    )
    def test_bitcast_convert_type_c1(self, given, wanted):
        refused("C1", lambda x: sx.bitcast_convert_type(x, wanted), sx.Shape.parse(given))

    def test_bitcast_convert_type_c2(self):
        refused("C2", lambda x: sx.bitcast_convert_type(x, "c64"), sx.f64[3])
        refused("C2", lambda x: sx.bitcast_convert_type(x, "f32"), sx.c64[3])


class TestReducePrecision:
    def test_to_half_precision(self):
        """numpy's float16 is the format of 5 and 10 bits; its denormals are beyond this operation."""
        x = np.float32([1.0, 1 / 3, -65504, 65519, 65520, 1e-10, np.inf])
        result = evaluate(lambda a: sx.reduce_precision(a, 5, 10), x)
        with np.errstate(over="ignore"):
            expected = x.astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(result, expected)

    def test_to_bfloat16_by_keywords(self):
        x = np.float32([np.pi, -1e30])
        result = evaluate(lambda a: sx.reduce_precision(operand=a, mantissa_bits=7, exponent_bits=8), x)
        np.testing.assert_array_equal(result, x.astype(ml_dtypes.bfloat16).astype(np.float32))

    def test_reduce_precision_i1(self):
        for t in sx.ELEMENT_TYPES:
            if REGISTRY["reduce_precision"].allows(t):
                build(lambda x: sx.reduce_precision(x, 3, 2), t[2])
            else:
                refused("I1", lambda x: sx.reduce_precision(x, 3, 2), t[2])

    def test_reduce_precision_c2(self):
        refused("C2", lambda x: sx.reduce_precision(x, 0, 2), sx.f32[2])

    def test_reduce_precision_c3(self):
        refused("C3", lambda x: sx.reduce_precision(x, 5, -1), sx.f32[2])
