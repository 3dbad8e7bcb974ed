"""What the builder emits for operations that slide windows, and what it refuses.

Oracles: the reference interpreter, and the examples that XLA's operation semantics prints.
"""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from tests.ops.building import build, evaluate, refused

MAX_FLOAT = np.finfo(np.float32).max


def summed(x, sizes, strides=None, padding="VALID", **more):
    base, window = more.get("base_dilations"), more.get("window_dilations")
    zero = x.builder.constant(np.zeros((), x.shape.element_type.dtype))
    strides = (1,) * len(sizes) if strides is None else strides
    return sx.reduce_window_with_general_padding(x, zero, sx.add, sizes, strides, base, window, padding)


def scattered(x, source, **more):
    given = {
        "select": sx.ge,
        "window_dimensions": (2,),
        "window_strides": (2,),
        "padding": "VALID",
        "init_value": x.builder.constant(0.0),
        "scatter": sx.add,
    }
    return sx.select_and_scatter(x, source=source, **{**given, **more})


class TestReduceWindow:
    @pytest.mark.parametrize(
        ("padding", "expected"), [("VALID", [100, 1]), ("SAME", [1000, 10, 1]), ([(1, 1)], [1000, 10, 1])]
    )
    def test_example_of_the_description(self, padding, expected):
        """The smallest of 3 elements every 2, where MAX_FLOAT stands beyond the edges."""
        x = np.float32([10000, 1000, 100, 10, 1])
        make = lambda v: sx.reduce_window(v, v.builder.constant(MAX_FLOAT), sx.min, (3,), (2,), padding)  # noqa: E731
        np.testing.assert_array_equal(evaluate(make, x), expected)

    def test_example_of_two_dimensions(self):
        """The largest of each block of 2 by 3 in an array of 4 by 6."""
        x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)
        least = np.finfo(np.float32).min
        make = lambda v: sx.reduce_window(v, v.builder.constant(least), sx.max, (2, 3), (2, 3), "VALID")  # noqa: E731
        np.testing.assert_array_equal(evaluate(make, x), x.reshape(2, 2, 2, 3).max((1, 3)))

    def test_parameters_by_name(self):
        result = build(
            lambda x, i: sx.reduce_window_with_general_padding(
                operands=x,
                init_values=i,
                computation=sx.max,
                window_dimensions=(2, 1),
                window_strides=(1, 2),
                base_dilations=(3, 1),
                window_dilations=(2, 1),
                padding=((0, 1), (-1, 0)),
            ),
            sx.s8[4, 5],
            sx.s8[()],
        )
        assert result.result_shape == sx.s8[9, 2]

    def test_what_is_left_out_is_one(self):
        plain = build(lambda x: summed(x, (2, 2)), sx.f32[4, 5])
        again = build(lambda x: summed(x, (2, 2), (), base_dilations=(), window_dilations=()), sx.f32[4, 5])
        assert str(plain) == str(again)
        assert plain.result_shape == sx.f32[3, 4]

    @pytest.mark.parametrize(
        ("extent", "size", "stride", "expected"),
        [(5, 3, 2, 3), (6, 3, 2, 3), (6, 2, 1, 6), (7, 2, 3, 3), (1, 9, 4, 1), (0, 3, 1, 0)],
    )
    def test_same_padding_keeps_one_position_a_stride(self, extent, size, stride, expected):
        assert build(lambda x: summed(x, (size,), (stride,), "SAME"), sx.f32[extent]).result_shape == sx.f32[expected]

    def test_same_padding_of_dilations(self):
        made = build(
            lambda x: summed(x, (3,), (2,), "SAME", base_dilations=(2,), window_dilations=(3,)),
            sx.f32[5],
        )
        assert made.result_shape == sx.f32[5]
        assert "padding = dense<3>" in str(made)

    def test_windows_that_do_not_fit(self):
        assert build(lambda x: summed(x, (7,)), sx.f32[5]).result_shape == sx.f32[0]
        assert build(lambda x: summed(x, (1,), None, [(-4, -4)]), sx.f32[5]).result_shape == sx.f32[0]

    def test_several_operands(self):
        def fold(best, place, value, index):
            better = value >= best
            return sx.select(better, value, best), sx.select(better, index, place)

        def make(x):
            b = x.builder
            both, starts = (x, b.iota(sx.s32[5], 0)), (b.constant(-np.inf), b.constant(-1))
            return list(sx.reduce_window(both, starts, fold, (3,), (1,), "SAME"))

        values, places = evaluate(make, np.float32([3, 1, 4, 1, 5]))
        np.testing.assert_array_equal(values, [3, 4, 4, 5, 5])
        np.testing.assert_array_equal(places, [0, 2, 2, 4, 4])

    def test_a_wider_computation(self):
        b = sx.XlaBuilder("sum")
        plus = b.build(b.parameter(0, sx.f32[()]) + b.parameter(1, sx.f32[()]))
        make = lambda x: sx.reduce_window(x, x.builder.constant(0, "bf16"), plus, (2,), (1,), "VALID")  # noqa: E731
        assert build(make, sx.bf16[4]).result_shape == sx.f32[3]

    def test_rank_0(self):
        assert build(lambda x: summed(x, ()), sx.f32[()]).result_shape == sx.f32[()]
        assert build(lambda x: summed(x, (), (), "SAME"), sx.f32[()]).result_shape == sx.f32[()]

    def test_every_type_verifies(self):
        for t in sx.ELEMENT_TYPES:
            make = lambda x, i: sx.reduce_window(x, i, sx.max, (2, 1, 3), (1, 1, 2), "SAME")  # noqa: E731
            assert build(make, t[2, 0, 3], t[()]).result_shape == t[2, 0, 2]

    def test_reduce_window_i2(self):
        refused("I2", lambda x: sx.reduce_window(x, x, sx.add, (1,), (1,), "VALID"), sx.f32[3])

    def test_reduce_window_c1(self):
        refused("C1", lambda x, i: sx.reduce_window((x, x), i, sx.add, (1,), (1,), "VALID"), sx.f32[3], sx.f32[()])
        refused("C1", lambda x: sx.reduce_window((), (), sx.add, (1,), (1,), "VALID"), sx.f32[3])

    def test_reduce_window_c2(self):
        make = lambda x, y, i: sx.reduce_window((x, y), (i, i), sx.add, (1,), (1,), "VALID")  # noqa: E731
        refused("C2", make, sx.f32[3], sx.f32[4], sx.f32[()])

    def test_reduce_window_c3(self):
        refused("C3", lambda x, i: sx.reduce_window(x, i, sx.add, (1,), (1,), "VALID"), sx.f32[3], sx.f64[()])

    def test_reduce_window_c4(self):
        error = refused("C4", lambda x: summed(x, (1,)), sx.f32[3, 4])
        assert "window_dimensions must have 2 numbers" in str(error)
        refused("C4", lambda x: summed(x, (), ()), sx.f32[3, 4])
        zero = lambda x: x.builder.constant(0.0)  # noqa: E731
        refused("C4", lambda x: sx.reduce_window(x, zero(x), sx.add, None, (1,), "VALID"), sx.f32[3])

    def test_reduce_window_c5(self):
        error = refused("C5", lambda x: summed(x, (1, 0)), sx.f32[3, 4])
        assert "window_dimensions must be positive, not (1, 0)" in str(error)
        refused("C5", lambda x: summed(x, (-1, 1)), sx.f32[3, 4])

    def test_reduce_window_c6(self):
        refused("C6", lambda x: summed(x, (1, 1), (1,)), sx.f32[3, 4])

    def test_reduce_window_c7(self):
        refused("C7", lambda x: summed(x, (1, 1), (1, 0)), sx.f32[3, 4])

    def test_reduce_window_c8(self):
        refused("C8", lambda x: summed(x, (1, 1), base_dilations=(1,)), sx.f32[3, 4])

    def test_reduce_window_c9(self):
        refused("C9", lambda x: summed(x, (1, 1), base_dilations=(0, 1)), sx.f32[3, 4])

    def test_reduce_window_c10(self):
        refused("C10", lambda x: summed(x, (1, 1), window_dilations=(1, 1, 1)), sx.f32[3, 4])

    def test_reduce_window_c11(self):
        refused("C11", lambda x: summed(x, (1, 1), window_dilations=(1, -1)), sx.f32[3, 4])

    def test_reduce_window_c12(self):
        for padding in ("same", [(1, 1)], [(1, 1), (1, 1, 1)], 3):
            refused("C12", lambda x, p=padding: summed(x, (1, 1), None, p), sx.f32[3, 4])

    def test_reduce_window_c13(self):
        def reduced(x, computation):
            return sx.reduce_window(x, x.builder.constant(0.0), computation, (2,), (1,), "VALID")

        refused("C13", lambda x: reduced(x, lambda a, c: a < c), sx.f32[3])
        refused("C13", lambda x: reduced(x, lambda a, c: (a, c)), sx.f32[3])
        refused("C13", lambda x: reduced(x, build(lambda a, c: a, sx.f64[()], sx.f32[()])), sx.f32[3])
        refused("", lambda x: reduced(x, build(lambda a: a, sx.f32[()])), sx.f32[3])


class TestSelectAndScatter:
    def test_figures_of_the_description(self):
        """Windows that do not overlap, and ones that do: the 9 is the largest of two of them, which add up to 2 + 6."""
        x = np.float32([[7, 2, 5, 3, 8, 1], [3, 8, 9, 3, 4, 2], [1, 5, 7, 5, 6, 1], [0, 6, 2, 7, 2, 8]])
        apart = evaluate(
            lambda v, s: scattered(v, s, window_dimensions=(2, 3), window_strides=(2, 3)),
            x,
            np.float32([[2, 6], [3, 1]]),
        )
        expected = np.zeros((4, 6), np.float32)
        expected[1, 2], expected[0, 4], expected[2, 2], expected[3, 5] = 2, 6, 3, 1
        np.testing.assert_array_equal(apart, expected)
        overlapping = evaluate(
            lambda v, s: scattered(v, s, window_dimensions=(2, 3), window_strides=(2, 2)),
            x[:, :5],
            np.float32([[2, 6], [3, 1]]),
        )
        expected = np.zeros((4, 5), np.float32)
        expected[1, 2], expected[2, 2] = 2 + 6, 3 + 1
        np.testing.assert_array_equal(overlapping, expected)

    def test_of_equal_elements_the_selection_decides(self):
        x, source = np.float32([5, 5, 5, 5]), np.float32([1, 2])
        np.testing.assert_array_equal(evaluate(scattered, x, source), [1, 0, 2, 0])
        np.testing.assert_array_equal(evaluate(lambda v, s: scattered(v, s, select=sx.gt), x, source), [0, 1, 0, 2])

    def test_general_padding(self):
        def make(x, source):
            zero = x.builder.constant(0.0)
            return sx.select_and_scatter_with_general_padding(x, sx.ge, (2,), (2,), [(1, 1)], source, zero, sx.add)

        np.testing.assert_array_equal(evaluate(make, np.float32([4, 3, 2, 1]), np.float32([1, 2, 3])), [1, 2, 0, 3])

    def test_the_initial_value_may_be_a_number(self):
        assert build(lambda x, s: scattered(x, s, init_value=2.0), sx.f32[4], sx.f32[2]).result_shape == sx.f32[4]

    def test_a_wider_combination(self):
        b = sx.XlaBuilder("sum")
        plus = b.build(b.parameter(0, sx.f32[()]) + b.parameter(1, sx.f32[()]))
        make = lambda x, s: scattered(x, s, init_value=x.builder.constant(0, "bf16"), scatter=plus)  # noqa: E731
        assert build(make, sx.bf16[4], sx.bf16[2]).result_shape == sx.f32[4]

    def test_every_type_verifies(self):
        for t in sx.ELEMENT_TYPES:
            make = lambda x, s, i: scattered(x, s, init_value=i, select=sx.ne, scatter=sx.max)  # noqa: E731
            assert build(make, t[4], t[2], t[()]).result_shape == t[4]

    def test_select_and_scatter_i3(self):
        refused("I3", lambda x, s: scattered(x, s, init_value=s), sx.f32[4], sx.f32[2])

    def test_select_and_scatter_c1(self):
        refused("C1", scattered, sx.f32[4], sx.f64[2])

    def test_select_and_scatter_c2(self):
        error = refused("C2", scattered, sx.f32[4], sx.f32[3])
        assert "source must be f32[2], an element for each window" in str(error)
        refused("C2", scattered, sx.f32[4], sx.f32[2, 1])

    def test_select_and_scatter_c3(self):
        refused("C3", lambda x, s, i: scattered(x, s, init_value=i), sx.f32[4], sx.f32[2], sx.s32[()])

    def test_select_and_scatter_c4(self):
        refused("C4", lambda x, s: scattered(x, s, window_dimensions=(2, 2)), sx.f32[4], sx.f32[2])

    def test_select_and_scatter_c5(self):
        refused("C5", lambda x, s: scattered(x, s, window_dimensions=(0,)), sx.f32[4], sx.f32[2])

    def test_select_and_scatter_c6(self):
        refused("C6", lambda x, s: scattered(x, s, window_strides=(2, 2)), sx.f32[4], sx.f32[2])

    def test_select_and_scatter_c7(self):
        refused("C7", lambda x, s: scattered(x, s, window_strides=(0,)), sx.f32[4], sx.f32[2])

    def test_select_and_scatter_c8(self):
        refused("C8", lambda x, s: scattered(x, s, padding="FULL"), sx.f32[4], sx.f32[2])
        refused("C8", lambda x, s: scattered(x, s, padding=[(0, 0), (0, 0)]), sx.f32[4], sx.f32[2])

    def test_select_and_scatter_c9(self):
        refused("C9", lambda x, s: scattered(x, s, select=sx.add), sx.f32[4], sx.f32[2])
        refused("C9", lambda x, s: scattered(x, s, select=build(sx.ge, sx.f64[()], sx.f64[()])), sx.f32[4], sx.f32[2])

    def test_select_and_scatter_c10(self):
        refused("C10", lambda x, s: scattered(x, s, scatter=sx.ge), sx.f32[4], sx.f32[2])
        refused("C10", lambda x, s: scattered(x, s, scatter=lambda a, c: (a, c)), sx.f32[4], sx.f32[2])


def test_reduce_window_takes_padding_sixth_or_last() -> None:
    """The operation semantics calls it with six arguments; its table has the dilations before the padding."""
    b = sx.XlaBuilder("test")
    x, zero = b.parameter(0, sx.f32[5]), b.constant(0.0)
    six = sx.reduce_window(x, zero, sx.add, (2,), (1,), [(1, 0)])
    assert six.shape.dimensions == (5,)
    eight = sx.reduce_window(x, zero, sx.add, (2,), (1,), (2,), (3,), [(1, 0)])
    named = sx.reduce_window(x, zero, sx.add, (2,), (1,), padding=[(1, 0)], base_dilations=(2,), window_dilations=(3,))
    assert eight.shape.dimensions == named.shape.dimensions == (7,)
    for name in ("base_dilations", "window_dilations", "padding"):
        assert eight.values[0].owner.attributes[name] == named.values[0].owner.attributes[name]
    with pytest.raises(sx.ShapeError, match="C12"):
        sx.reduce_window(x, zero, sx.add, (2,), (1,))
