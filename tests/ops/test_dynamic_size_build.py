"""What the builder makes of dynamic dimensions, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.dynamic_sizes import SIZES
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
        error = unsupported(lambda x: sx.cross_replica_sum(x), ROWS)
        assert error.operation == "stablehlo.all_reduce"
        assert "it takes no array with a dynamic dimension" in str(error)
        assert "operand 0  f32[<=8,3]" in str(error)
        assert "sx.set_dimension_size(x, bound, dimension) makes a dimension static again" in str(error)

    def test_reshapes_that_tear_elements_apart(self):
        error = unsupported(lambda x: sx.reshape(x, (24,)), sx.f32[3, "<=8"])
        assert "dimension 1 is dynamic, and its elements do not stay together under [24]" in str(error)
        unsupported(lambda x: sx.reshape(x, (24,)), sx.f32["<=3", "<=8"])
        unsupported(lambda x: sx.reshape(x, (6, 4)), sx.f32[3, "<=8"])

    def test_counting_up_to_a_size(self):
        b = sx.XlaBuilder("iota")
        with pytest.raises(sx.ShapeError, match=r"shape must be static\n(.*\n)*.*set_dimension_size\(b.iota"):
            b.iota(sx.s32["<=4"], 0)

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
                lambda x, i: sx.gather(
                    x, i, dimension_numbers=sx.GatherDimensionNumbers((1,), (0,), (0,), 1), slice_sizes=(1, 2)
                ),
                [sx.f32[8, "<=3"], sx.s32[4, 1]],
                "slices take a part of dimension 1",
            ),
            (
                lambda x, i: sx.gather(
                    x, i, dimension_numbers=sx.GatherDimensionNumbers((1,), (0,), (0,), 1), slice_sizes=(1, 3)
                ),
                [sx.f32[8, 3], sx.s32[4, "<=1"]],
                "the index vectors must be static",
            ),
            (
                lambda x, i, u: sx.scatter(
                    x, i, u, sx.add, dimension_numbers=sx.ScatterDimensionNumbers((1,), (0,), (0,), 1)
                ),
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
