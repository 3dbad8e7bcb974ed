"""What the builder emits for reductions and map, and what it refuses.

Oracles: the reference interpreter, numpy for values, and the examples that XLA's operation semantics prints.
"""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from tests.ops.building import build, evaluate, refused

# "1 to 6 in each of four copies along dimension 0", as the description has it.
CUBE = np.tile(np.arange(1, 7, dtype=np.float32).reshape(2, 3), (4, 1, 1))


def summed(x, dimensions):
    return sx.reduce(x, x.builder.constant(0.0), lambda a, c: a + c, dimensions)


def scalar_sum() -> sx.XlaComputation:
    b = sx.XlaBuilder("sum")
    return b.build(b.parameter(0, sx.f32[()]) + b.parameter(1, sx.f32[()]))


class TestReduce:
    @pytest.mark.parametrize(
        ("dimensions", "expected"),
        [
            ((0,), [[4, 8, 12], [16, 20, 24]]),
            ((2,), [[6, 15]] * 4),
            ((0, 1), [20, 28, 36]),
            ((1, 0), [20, 28, 36]),
            ((0, 1, 2), 84),
            ((), CUBE),
        ],
    )
    def test_examples_of_the_description(self, dimensions, expected):
        np.testing.assert_array_equal(evaluate(lambda x: summed(x, dimensions), CUBE), expected)

    def test_computation_of_another_builder(self):
        plus = scalar_sum()
        make = lambda x: sx.reduce(operands=x, init_values=x.builder.constant(1.0), computation=plus, dimensions=(0,))  # noqa: E731
        assert evaluate(make, np.float32([1, 2, 3])) == 7
        assert "applies stablehlo.add across dimensions = [0]" in str(build(make, sx.f32[3]))

    def test_operations_themselves_are_computations(self):
        make = lambda x: sx.reduce(x, x.builder.constant(-np.inf), sx.max, (1,))  # noqa: E731
        np.testing.assert_array_equal(evaluate(make, CUBE[0]), [3, 6])

    def test_maximum_and_its_place(self):
        """The variadic example of the description."""

        def fold(best, place, value, index):
            better = value >= best
            return sx.select(better, value, best), sx.select(better, index, place)

        def make(x):
            b = x.builder
            values, places = sx.reduce((x, b.iota(sx.s32[4], 0)), (b.constant(-np.inf), b.constant(0)), fold, (0,))
            return values, places

        best, place = evaluate(make, np.float32([1, 7, 7, 3]))
        assert (best, place) == (7, 2)
        assert (best.dtype, place.dtype) == (np.float32, np.int32)

    def test_a_wider_accumulator(self):
        def make(x):
            return sx.reduce(x, x.builder.constant(0, "bf16"), scalar_sum(), (0,))

        result = build(make, sx.bf16[4])
        assert result.result_shape == sx.f32[()]
        refused("C6", lambda x: sx.reduce(x, x.builder.constant(0, "f64"), scalar_sum(), (0,)), sx.f64[4])

    def test_whole_array(self):
        assert evaluate(lambda x: sx.reduce_all(x, x.builder.constant(1.0), sx.mul), CUBE[0]) == 720

    def test_every_type_verifies(self):
        for t in sx.ELEMENT_TYPES:
            assert build(lambda x, i: sx.reduce(x, i, sx.max, (0, 2)), t[2, 0, 3], t[()]).result_shape == t[0]

    def test_reduce_i2(self):
        refused("I2", lambda x: sx.reduce(x, x, sx.add, (0,)), sx.f32[3])

    def test_reduce_c1(self):
        refused("C1", lambda x, y, i: sx.reduce((x, y), (i, i), two, (0,)), sx.f32[3], sx.f32[4], sx.f32[()])

    def test_reduce_c2(self):
        refused("C2", lambda x, i: sx.reduce(x, i, sx.add, (0,)), sx.f32[3], sx.f64[()])

    def test_reduce_c3(self):
        refused("C3", lambda x, i: sx.reduce((x, x), i, two, (0,)), sx.f32[3], sx.f32[()])
        refused("C3", lambda x: sx.reduce((), (), two, (0,)), sx.f32[3])

    def test_reduce_c4(self):
        refused("C4", lambda x: summed(x, (1,)), sx.f32[3])
        refused("C4", lambda x: summed(x, (-1,)), sx.f32[3])

    def test_reduce_c5(self):
        refused("C5", lambda x: summed(x, (0, 0)), sx.f32[3])

    def test_reduce_c6(self):
        def reduced(x, computation):
            return sx.reduce(x, x.builder.constant(0.0), computation, (0,))

        refused("C6", lambda x: reduced(x, lambda a, c: a < c), sx.f32[3])
        refused("C6", lambda x: reduced(x, lambda a, c: (a, c)), sx.f32[3])
        refused("C6", lambda x: reduced(x, lambda a, c: sx.broadcast(a, (2,))), sx.f32[3])
        refused("", lambda x: reduced(x, build(lambda a: a, sx.f32[()])), sx.f32[3])


def two(a, b, c, d):
    return a + c, b + d


class TestMap:
    def test_values(self):
        x, y = CUBE[0], CUBE[0].T.copy().reshape(2, 3)
        result = evaluate(lambda a, c: sx.map((a, c), lambda p, q: p * 2 > q), x, y)
        np.testing.assert_array_equal(result, x * 2 > y)
        result = evaluate(lambda a: sx.map(a, lambda p: p + 1, dimensions=(0, 1)), x)
        np.testing.assert_array_equal(result, x + 1)

    def test_operands_of_different_types(self):
        result = evaluate(
            lambda p, a: sx.map([p, a], lambda q, r: sx.select(q, r, 0)), np.array([True, False]), np.int8([5, 6])
        )
        np.testing.assert_array_equal(result, [5, 0])

    def test_map_c1(self):
        refused("C1", lambda x, y: sx.map((x, y), sx.add), sx.f32[3], sx.f32[1])

    def test_map_c2(self):
        refused("C2", lambda x: sx.map((), sx.add), sx.f32[3])

    def test_map_c3(self):
        refused("C3", lambda x: sx.map(x, sx.neg, (1, 0)), sx.f32[3, 2])
        refused("C3", lambda x: sx.map(x, sx.neg, (0,)), sx.f32[3, 2])

    def test_map_c4_with_static_operands(self):
        refused("", lambda x, p: sx.map(x, build(sx.neg, sx.f32[()]), static_operands=p), sx.f32[3], sx.f32[2])
        refused("C4", lambda x, p: sx.map(x, lambda a, c: c, static_operands=p), sx.f32[3], sx.f32[2])
        refused("C4", lambda x, p: sx.map(x, build(sx.add, sx.f32[()], sx.f32[()]), None, p), sx.f32[3], sx.f32[2])
        refused("", lambda x: sx.map(x, sx.add, static_operands=1.0), sx.f32[3])

    def test_map_c4(self):
        refused("C4", lambda x: sx.map(x, lambda a: (a, a)), sx.f32[3])
        refused("C4", lambda x: sx.map(x, build(sx.neg, sx.f64[()])), sx.f32[3])
        refused("C4", lambda x: sx.map(x, lambda a: sx.broadcast(a, (1,))), sx.f32[3])
