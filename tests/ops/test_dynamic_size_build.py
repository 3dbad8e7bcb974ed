"""What the builder makes of dynamic dimensions, what it refuses, and how executables take and give such arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.dynamic_sizes import SIZES
from stablexla.interop.load import load
from tests.ops.building import build, refused

ROWS = sx.f32["<=8", 3]


def shape_of(make: Callable[..., Any], *shapes: sx.Shape) -> str:
    return str(build(make, *shapes).result_shape)


def unsupported(make: Callable[..., Any], *shapes: sx.Shape) -> sx.UnsupportedError:
    with pytest.raises(sx.UnsupportedError) as raised:
        build(make, *shapes)
    assert raised.value.source is not None
    assert raised.value.source.file == __file__
    assert raised.value.hint
    return raised.value


class TestShapes:
    def test_a_bound_is_spelled_and_printed_as_xla_does(self):
        assert str(ROWS) == "f32[<=8,3]"
        assert repr(ROWS) == "Shape('f32', ('<=8', 3))"
        assert (
            ROWS
            == sx.Shape("f32", ("<= 8", 3))
            == sx.Shape.parse("f32[<=8, 3]")
            == eval(repr(ROWS), {"Shape": sx.Shape})
        )
        assert sx.f32[8, 3] != ROWS
        assert len({ROWS, sx.f32[8, 3], sx.f32[8, 3].with_dynamic((0,))}) == 2

    def test_what_it_says_of_its_dimensions(self):
        assert ROWS.dimensions == (8, 3)
        assert ROWS.dynamic_dimensions == (True, False)
        assert [ROWS.is_dynamic_dimension(d) for d in range(2)] == [True, False]
        assert not ROWS.is_static
        assert sx.f32[8, 3].is_static
        assert not sx.Shape.tuple((sx.f32[2], sx.Shape.tuple((ROWS,)))).is_static
        assert ROWS.size == 24

    def test_its_type_in_stablehlo(self):
        assert ROWS.mlir == "tensor<?x3xf32, #stablehlo.bounds<8, ?>>"
        assert sx.f32["<=8", "<=3"].mlir == "tensor<?x?xf32, #stablehlo.bounds<8, 3>>"

    def test_changes(self):
        assert ROWS.with_element_type("s8") == sx.s8["<=8", 3]
        assert ROWS.with_dimensions((2, "<=5")) == sx.f32[2, "<=5"]
        assert ROWS.with_dynamic(()) == sx.f32[8, 3]
        assert ROWS.with_dynamic((1,)) == sx.f32[8, "<=3"]

    def test_it_is_pickled(self):
        import pickle

        assert pickle.loads(pickle.dumps(ROWS)) == ROWS

    @pytest.mark.parametrize("bad", ["8", "<=", "<=-1", "<=x", "<8"])
    def test_texts_that_are_no_bounds(self, bad):
        with pytest.raises(sx.ShapeError, match="sequence of integers"):
            sx.Shape("f32", (bad,))

    def test_a_bound_of_more_than_32_bits(self):
        with pytest.raises(sx.ShapeError, match="32 bits"):
            sx.f32[f"<={2**31}"]


class TestSetDimensionSize:
    def test_the_dimension_becomes_dynamic(self):
        assert shape_of(lambda x, n: sx.set_dimension_size(x, n, 1), sx.f32[8, 3], sx.s32[()]) == "f32[8,<=3]"
        assert shape_of(lambda x, n: sx.set_dimension_size(x, n, 1), ROWS, sx.s32[()]) == "f32[<=8,<=3]"
        assert shape_of(lambda x: sx.set_dimension_size(x, 2, dimension=1), ROWS) == "f32[<=8,<=3]"

    def test_a_constant_equal_to_the_bound_makes_it_static(self):
        assert shape_of(lambda x: sx.set_dimension_size(x, 8, 0), ROWS) == "f32[8,3]"
        assert shape_of(lambda x: sx.set_dimension_size(x, x.builder.constant(8), 0), ROWS) == "f32[8,3]"
        assert shape_of(lambda x: sx.set_dimension_size(x, 3, 1), ROWS) == "f32[<=8,3]"

    def test_set_dimension_size_c1(self):
        for dimension in (2, -1):
            error = refused("C1", lambda x, d=dimension: sx.set_dimension_size(x, 1, d), sx.f32[4, 3])
            assert f"{dimension} is no dimension of an array of rank 2" in str(error)

    def test_set_dimension_size_i2(self):
        for shape in (sx.s32[1], sx.s64[()], sx.f32[()]):
            error = refused("I2", lambda x, n: sx.set_dimension_size(x, n, 0), sx.f32[4, 3], shape)
            assert f"size must be an s32 scalar, not {shape}" in str(error)
        for size in (-1, 5):
            error = refused("I2", lambda x, n=size: sx.set_dimension_size(x, n, 0), sx.f32[4, 3])
            assert "size must be from 0 to 4, the bound of dimension 0" in str(error)

    def test_operands_that_are_no_arrays(self):
        refused("", lambda x: sx.set_dimension_size(sx.tuple((x,)), 1, 0), sx.f32[4])
        refused("", lambda x: sx.set_dimension_size(x, 1.5, 0), sx.f32[4])

    @pytest.mark.parametrize(("given", "size"), [(-5, 0), (-(2**31), 0), (0, 0), (4, 4), (5, 4), (2**31 - 1, 4)])
    def test_a_size_out_of_range_is_held_in_it(self, given, size):
        """XLA leaves it undefined; here it is held as start indices are."""
        b = sx.XlaBuilder("held")
        x = sx.set_dimension_size(b.parameter(0, sx.f32[4]), b.parameter(1, sx.s32[()]), 0)
        made, told = sx.compile(b.build(sx.tuple((x, sx.get_dimension_size(x, 0)))))(
            np.arange(4, dtype=np.float32), given
        )
        assert made.tolist() == list(range(size))
        assert told == size

    def test_elements_behind_a_size_are_still_there(self):
        b = sx.XlaBuilder("seen")
        few = sx.set_dimension_size(b.parameter(0, sx.s32[4]), b.parameter(1, sx.s32[()]), 0)
        more = sx.set_dimension_size(few, 3, 0)
        roots = sx.tuple((few, more, sx.set_dimension_size(few, 4, 0), sx.reduce(few, b.constant(0), sx.add, (0,))))
        results = sx.compile(b.build(roots))(np.array([1, 2, 4, 8], np.int32), 2)
        assert [r.tolist() for r in results] == [[1, 2], [1, 2, 4], [1, 2, 4, 8], 3]


class TestResults:
    """The shapes that operations give; that StableHLO's verifier agrees is part of building."""

    def test_elementwise(self):
        assert shape_of(lambda x, y: x + y, ROWS, ROWS) == "f32[<=8,3]"
        assert shape_of(lambda x, y: x + y, ROWS, sx.f32[8, 3]) == "f32[<=8,3]"
        assert shape_of(lambda x, y: y * x, ROWS, sx.f32[1, 3]) == "f32[<=8,3]"
        assert shape_of(lambda x, y: x > y, ROWS, sx.f32[8, "<=3"]) == "pred[<=8,<=3]"
        assert shape_of(lambda x, y: sx.select(x > 0, y, x), ROWS, sx.f32[8, 3]) == "f32[<=8,3]"
        assert shape_of(lambda x, p: sx.select(p, x, 0.0), ROWS, sx.pred[()]) == "f32[<=8,3]"

    def test_shapes(self):
        assert shape_of(lambda x: sx.transpose(x, (1, 0)), ROWS) == "f32[3,<=8]"
        assert shape_of(lambda x: sx.reshape(x, (24,)), ROWS) == "f32[<=24]"
        assert shape_of(lambda x: sx.reshape(x, (4, 2, 3)), ROWS) == "f32[<=4,2,3]"
        assert shape_of(lambda x: x[1:7:2], ROWS) == "f32[<=3,3]"
        assert shape_of(lambda x: x[1], ROWS) == "f32[3]"
        assert shape_of(lambda x: x[:, 1], ROWS) == "f32[<=8]"
        assert shape_of(lambda x: sx.concatenate((x, x[:4]), 0), ROWS) == "f32[<=12,3]"
        assert shape_of(lambda x: sx.pad(x, 0.0, ((1, -2, 1), (0, 0, 0))), ROWS) == "f32[<=14,3]"
        assert shape_of(lambda x: sx.dynamic_slice(x, (0, 0), (8, 2)), ROWS) == "f32[<=8,2]"
        assert shape_of(lambda x: sx.dynamic_slice(x, (0, 0), (2, 2)), ROWS) == "f32[2,2]"

    def test_several_dynamic_dimensions(self):
        both = sx.f32["<=8", "<=3", 2]
        assert shape_of(lambda x: sx.reshape(x, (8, 1, 6)), both) == "f32[<=8,1,<=6]"
        assert shape_of(lambda x: sx.broadcast(x, (4,)), both) == "f32[4,<=8,<=3,2]"
        assert shape_of(lambda x: sx.reduce(x, x.builder.constant(0.0), sx.add, (1,)), both) == "f32[<=8,2]"

    def test_contractions(self):
        numbers = sx.DotDimensionNumbers((2,), (1,), (0,), (0,))
        args = sx.f32["<=8", "<=3", 2], sx.f32[8, 2, "<=5"]
        assert shape_of(lambda x, y: sx.dot_general(x, y, numbers), *args) == "f32[<=8,<=3,<=5]"

    def test_tuples_and_loops(self):
        computation = build(
            lambda s: sx.while_(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1]), s), sx.Shape.tuple((sx.s32[()], ROWS))
        )
        assert str(computation.result_shape) == "(s32[], f32[<=8,3])"


class TestRefusals:
    def test_an_operation_without_a_rule(self):
        error = unsupported(lambda x: sx.batch_norm_training(x, x[0], x[0], 1e-3, 1), ROWS)
        assert error.operation == "stablehlo.batch_norm_training"
        assert "it takes no array with a dynamic dimension" in str(error)
        assert "operand 0  f32[<=8,3]" in str(error)
        assert "sx.set_dimension_size(x, bound, dimension) makes a dimension static again" in str(error)

    def test_reshapes_that_tear_elements_apart(self):
        error = unsupported(lambda x: sx.reshape(x, (24,)), sx.f32[3, "<=8"])
        assert "dimension 1 is dynamic, and its elements do not stay together under [24]" in str(error)
        unsupported(lambda x: sx.reshape(x, (24,)), sx.f32["<=3", "<=8"])
        unsupported(lambda x: sx.reshape(x, (6, 4)), sx.f32[3, "<=8"])

    def test_a_stretched_dimension(self):
        assert "can't be stretched" in str(unsupported(lambda x: sx.broadcast_in_dim(x, (4,), (0,)), sx.f32["<=1"]))

    @pytest.mark.parametrize(
        ("make", "shapes", "message"),
        [
            (lambda x: sx.fft(x, "FFT", (8,)), [sx.c64[2, "<=8"]], "transformed must be static"),
            (lambda x: sx.cholesky(x), [sx.f32["<=3", 3]], "dimensions of the matrices must be static"),
            (lambda x: sx.top_k(x, 2), [sx.f32["<=8"]], "the last dimension must be static"),
            (lambda x, w: sx.conv(x, w, (1,), "VALID"), [sx.f32[2, 1, 8], sx.f32[4, 1, "<=3"]], "rhs must be static"),
            (
                lambda x, w: sx.conv(x, w, (1,), "VALID"),
                [sx.f32[2, "<=1", 8], sx.f32[4, 1, 3]],
                "the feature dimension must be static",
            ),
            (
                lambda x, i: sx.gather(x, i, sx.GatherDimensionNumbers((1,), (0,), (0,), 1), (1, 2)),
                [sx.f32[8, "<=3"], sx.s32[4, 1]],
                "slices take a part of dimension 1",
            ),
            (
                lambda x, i: sx.gather(x, i, sx.GatherDimensionNumbers((1,), (0,), (0,), 1), (1, 3)),
                [sx.f32[8, 3], sx.s32[4, "<=1"]],
                "the index vectors must be static",
            ),
            (
                lambda x, i, u: sx.scatter(x, i, u, sx.add, sx.ScatterDimensionNumbers((1,), (0,), (0,), 1)),
                [sx.f32[8, 3], sx.s32[4, 1], sx.f32[4, "<=3"]],
                "dimension 1 of the updates is dynamic",
            ),
            (lambda x: sx.bitcast_convert_type(x, "u8"), None, None),
            (lambda x: sx.bitcast_convert_type(x, "s32"), [sx.u8[2, "<=4"]], "the last dimension"),
        ],
    )
    def test_dimensions_that_must_be_static(self, make, shapes, message):
        if shapes is None:
            assert shape_of(make, ROWS) == "u8[<=8,3,4]"
        else:
            b = sx.XlaBuilder("refused")
            with pytest.raises(sx.UnsupportedError, match=message):
                make(*(b.parameter(n, s) for n, s in enumerate(shapes)))

    def test_states_of_another_size(self):
        error = refused(
            "C2", lambda x: sx.while_(lambda s: s[0, 0] < 1, lambda s: sx.set_dimension_size(s, 8, 0), x), ROWS
        )
        assert "f32[8,3]" in str(error)
        assert "f32[<=8,3]" in str(error)


@pytest.fixture(scope="module")
def double() -> sx.Executable:
    b = sx.XlaBuilder("double")
    x, scale = b.parameter(0, ROWS, "x"), b.parameter(1, sx.f32[()], "scale")
    return sx.compile(b.build(x * scale))


class TestExecutables:
    def test_what_it_says(self, double):
        assert "(f32[<=8,3], f32[]) -> (f32[<=8,3])" in repr(double)
        assert [(p.name, p.shape) for p in double.parameters] == [("x", (8, 3)), ("scale", ())]
        assert [r.shape for r in double.results] == [(8, 3)]

    @pytest.mark.parametrize("size", [0, 1, 7, 8])
    def test_arrays_up_to_the_bound(self, double, size):
        x = np.arange(3 * size, dtype=np.float32).reshape(size, 3)
        for given in (x, np.asfortranarray(x), np.repeat(x, 2, 1)[:, ::2], memoryview(x) if size == 8 else x):
            made = double(given, 2)
            np.testing.assert_array_equal(made, 2 * x)
            assert made.flags.c_contiguous
        (made,) = double.execute([x, np.float32(3)])
        np.testing.assert_array_equal(made, 3 * x)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (
                np.zeros((9, 3), np.float32),
                r"parameter 0 \(x\) takes float32\[<=8,3\], but an array of the shape \[9,3\]",
            ),
            (np.zeros((8, 2), np.float32), r"takes float32\[<=8,3\], but an array of the shape \[8,2\]"),
            (np.zeros(3, np.float32), r"takes float32\[<=8,3\], but an array of the shape \[3\]"),
            (1.5, r"takes float32\[<=8,3\], but an array of the shape \[\]"),
            (np.zeros((4, 3), np.float64), r"float64\[4,3\] came"),
            ([[1.0]], "a list came"),
        ],
    )
    def test_arguments_that_do_not_fit(self, double, given, message):
        with pytest.raises(sx.ExecutionError, match=message):
            double(given, 1)

    def test_a_wrong_number_of_arguments(self, double):
        with pytest.raises(sx.ExecutionError, match="takes 2 arguments"):
            double(np.zeros((2, 3), np.float32))

    def test_tuples(self):
        b = sx.XlaBuilder("tuples")
        p = b.parameter(0, sx.Shape.tuple((ROWS, sx.Shape.tuple((sx.f32[2], sx.s32["<=4"])))))
        first, (_, last) = p
        compiled = sx.compile(b.build(sx.tuple((sx.tuple((last,)), first))))
        x, n = np.ones((2, 3), np.float32), np.arange(3, dtype=np.int32)
        (got,), whole = compiled((x, (np.zeros(2, np.float32), n)))
        np.testing.assert_array_equal(got, n)
        np.testing.assert_array_equal(whole, x)

    def test_a_program_that_only_passes_on(self):
        b = sx.XlaBuilder("same")
        x = np.ones((5, 3), np.float32)
        np.testing.assert_array_equal(sx.compile(b.build(b.parameter(0, ROWS)))(x), x)

    def test_many_threads(self, double):
        from concurrent.futures import ThreadPoolExecutor

        arrays = [np.full((n % 9, 3), n, np.float32) for n in range(64)]
        with ThreadPoolExecutor(4) as pool:
            for x, made in zip(arrays, pool.map(lambda x: double(x, 2), arrays), strict=True):
                np.testing.assert_array_equal(made, 2 * x)


class TestModules:
    """Programs that come as text."""

    def test_bounds_in_the_signature(self):
        text = """
        func.func public @main(%x: tensor<?x3xf32, #stablehlo.bounds<8, ?>>) -> (tensor<f32>, tensor<i32>) {
          %zero = stablehlo.constant dense<0.0> : tensor<f32>
          %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0, 1]
            : (tensor<?x3xf32, #stablehlo.bounds<8, ?>>, tensor<f32>) -> tensor<f32>
          %size = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x3xf32, #stablehlo.bounds<8, ?>>) -> tensor<i32>
          return %sum, %size : tensor<f32>, tensor<i32>
        }"""
        total, size = sx.compile(text)(np.full((5, 3), 2.0, np.float32))
        assert (float(total), int(size)) == (30.0, 5)

    def test_a_static_type_says_that_a_dimension_is_full(self):
        text = """
        func.func public @main(%x: tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<4xf32> {
          %y = stablehlo.add %x, %x : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<?xf32, #stablehlo.bounds<4>>)
            -> tensor<4xf32>
          return %y : tensor<4xf32>
        }"""
        np.testing.assert_array_equal(sx.compile(text)(np.ones(4, np.float32)), np.full(4, 2.0))

    def test_attributes_of_parameters_stay_with_them(self):
        text = """
        func.func public @main(%x: tensor<?xf32, #stablehlo.bounds<4>> {my.note = "x"}, %y: tensor<4xf32>)
            -> (tensor<?xf32, #stablehlo.bounds<4>> {my.note = "result"}) {
          %z = stablehlo.add %x, %y : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<4xf32>)
            -> tensor<?xf32, #stablehlo.bounds<4>>
          return %z : tensor<?xf32, #stablehlo.bounds<4>>
        }"""
        np.testing.assert_array_equal(sx.compile(text)(np.ones(2, np.float32), np.ones(4, np.float32)), [2, 2])

    def test_different_bounds_are_refused(self):
        text = """
        func.func public @main(%x: tensor<?xf32, #stablehlo.bounds<4>>, %y: tensor<?xf32, #stablehlo.bounds<6>>)
            -> tensor<?xf32, #stablehlo.bounds<4>> {
          %z = stablehlo.add %x, %y : (tensor<?xf32, #stablehlo.bounds<4>>, tensor<?xf32, #stablehlo.bounds<6>>)
            -> tensor<?xf32, #stablehlo.bounds<4>>
          return %z : tensor<?xf32, #stablehlo.bounds<4>>
        }"""
        with pytest.raises(sx.UnsupportedError, match="the bounds of the operands differ"):
            sx.compile(text)

    def test_an_operation_without_a_rule_says_where_it_stands(self):
        text = """
        func.func public @main(%x: tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<?xf32, #stablehlo.bounds<4>> {
          %y = stablehlo.custom_call @mine(%x)
            : (tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<?xf32, #stablehlo.bounds<4>>
          return %y : tensor<?xf32, #stablehlo.bounds<4>>
        }"""
        with pytest.raises(sx.UnsupportedError, match="custom_call: it takes no array") as raised:
            sx.compile(text)
        assert "operand 0  [<=4]" in str(raised.value)
        assert ":3:" in str(raised.value)

    def test_dimensions_without_a_bound_are_refused(self):
        with pytest.raises(sx.UnsupportedError, match="dynamic shape"):
            sx.compile("func.func public @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }")

    def test_a_portable_artifact(self):
        from jaxlib.mlir.dialects import stablehlo

        computation = build(lambda x: x + x, ROWS)
        artifact = stablehlo.serialize_portable_artifact_str(str(computation), stablehlo.get_current_version())
        x = np.ones((4, 3), np.float32)
        np.testing.assert_array_equal(sx.compile(artifact)(x), x + x)

    def test_a_program_without_such_dimensions_is_not_touched(self):
        from stablexla.targets.bounded import expand_bounded

        module = load(build(lambda x: sx.while_(lambda s: s[0] < 1, lambda s: s + 1, x), sx.f32[3]))
        before = str(module)
        with module.context, ir.Location.unknown():
            expand_bounded(module)
        assert str(module) == before


def test_every_rule_is_for_an_operation():
    """A name that is misspelt would never be found."""
    from jaxlib.mlir.dialects import _chlo_ops_gen, _stablehlo_ops_gen

    known = {
        value.OPERATION_NAME
        for module in (_stablehlo_ops_gen, _chlo_ops_gen)
        for value in vars(module).values()
        if hasattr(value, "OPERATION_NAME")
    }
    assert set(SIZES) <= known
