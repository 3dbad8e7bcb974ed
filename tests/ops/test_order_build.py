"""What the builder emits for sort and top_k, and what it refuses.

Oracles: the reference interpreter, and the example that XLA's operation semantics prints.
"""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from tests.ops.building import build, evaluate, refused


def ascending(a, b):
    return a < b


class TestSort:
    def test_example_of_the_description(self):
        """Three operands, sorted by the first one alone."""
        result = evaluate(
            lambda x, y, z: list(sx.sort((x, y, z), lambda a, b, *_: a < b)),
            np.int32([3, 1]),
            np.int32([42, 50]),
            np.float32([-3.0, 1.1]),
        )
        for actual, expected in zip(result, ([1, 3], [50, 42], np.float32([1.1, -3.0])), strict=True):
            np.testing.assert_array_equal(actual, expected)

    @pytest.mark.parametrize(("dimension", "axis"), [(0, 0), (1, 1), (-1, 1), (-2, 0)])
    def test_dimensions(self, dimension, axis):
        x = np.float32([[3, 1, 2], [1, 5, 0]])
        result = evaluate(lambda v: sx.sort(v, ascending, dimension=dimension), x)
        np.testing.assert_array_equal(result, np.sort(x, axis=axis))
        assert f"dimension = {axis} : i64" in str(build(lambda v: sx.sort(v, ascending, dimension), sx.f32[2, 3]))

    def test_the_last_dimension_and_no_promise_are_the_defaults(self):
        text = str(build(lambda v: sx.sort(v, ascending), sx.f32[2, 3]))
        assert "dimension = 1 : i64, is_stable = false" in text
        assert "is_stable = true" in str(build(lambda v: sx.sort(v, ascending, is_stable=True), sx.f32[2, 3]))

    def test_a_computation_of_another_builder(self):
        descending = build(lambda a, b: a > b, sx.s32[()], sx.s32[()])
        np.testing.assert_array_equal(evaluate(lambda v: sx.sort(v, descending), np.int32([1, 3, 2])), [3, 2, 1])

    def test_operations_themselves_are_comparators(self):
        np.testing.assert_array_equal(evaluate(lambda v: sx.sort(v, sx.gt), np.int32([1, 3, 2])), [3, 2, 1])

    def test_every_type_verifies(self):
        for t in sx.ELEMENT_TYPES:
            made = build(lambda v, i: sx.sort((v, i), lambda a, b, i, j: i < j), t[2, 0, 3], sx.s32[2, 0, 3])
            assert made.result_shape == sx.Shape.tuple((t[2, 0, 3], sx.s32[2, 0, 3]))

    def test_sort_c1(self):
        refused("C1", lambda x: sx.sort((), ascending), sx.f32[3])

    def test_sort_c3(self):
        error = refused("C3", lambda x, y: sx.sort((x, y), lambda a, b, c, d: a < b), sx.f32[3], sx.f32[3, 1])
        assert "must have the same dimensions" in str(error)

    @pytest.mark.parametrize("dimension", [2, -3, 1 << 40])
    def test_sort_c4(self, dimension):
        error = refused("C4", lambda x: sx.sort(x, ascending, dimension), sx.f32[3, 4])
        assert "dimension must be from -2 to 1" in str(error)

    def test_sort_c4_for_scalars(self):
        refused("C4", lambda x: sx.sort(x, ascending), sx.f32[()])

    def test_sort_c5(self):
        error = refused("C5", lambda x: sx.sort(x, lambda a, b: a - b), sx.f32[3])
        assert "must be of type (f32[], f32[]) -> pred[]" in str(error)
        refused("C5", lambda x: sx.sort(x, lambda a, b: (a < b, a)), sx.f32[3])
        refused("C5", lambda x: sx.sort(x, lambda a, b: sx.broadcast(a < b, (1,))), sx.f32[3])
        refused("C5", lambda x: sx.sort(x, build(ascending, sx.f64[()], sx.f64[()])), sx.f32[3])

    def test_a_comparator_of_another_number_of_parameters(self):
        refused("", lambda x, y: sx.sort((x, y), build(ascending, sx.f32[()], sx.f32[()])), sx.f32[3], sx.f32[3])

    def test_operands_that_are_no_arrays(self):
        refused("", lambda x: sx.sort((sx.tuple((x, x)),), ascending), sx.f32[3])
        refused("", lambda x: sx.sort(x, ascending, is_stable=1), sx.f32[3])


class TestTopK:
    def test_values(self):
        x = np.float32([[3, 1, 2, 3], [0, 5, 5, -1]])
        values, indices = evaluate(lambda v: list(sx.top_k(v, 3)), x)
        np.testing.assert_array_equal(values, [[3, 3, 2], [5, 5, 0]])
        np.testing.assert_array_equal(indices, [[0, 3, 2], [1, 2, 0]])
        assert indices.dtype == np.int32

    def test_shapes(self):
        both = build(lambda v: sx.top_k(v, 4), sx.bf16[2, 3, 9]).result_shape
        assert both == sx.Shape.tuple((sx.bf16[2, 3, 4], sx.s32[2, 3, 4]))
        smallest = build(lambda v: sx.top_k(v, 4, largest=False), sx.bf16[2, 3, 9])
        assert smallest.result_shape == both
        assert 'stablehlo.composite "stablexla.bottom_k"' in str(smallest)

    def test_top_k_i1(self):
        assert "not c64" in str(refused("I1", lambda x: sx.top_k(x, 1), sx.c64[3]))

    def test_rank(self):
        assert "operand must have a dimension" in str(refused("", lambda x: sx.top_k(x, 0), sx.f32[()]))

    @pytest.mark.parametrize("k", [-1, 4])
    def test_range_of_k(self, k):
        assert "k must be from 0 to 3" in str(refused("", lambda x: sx.top_k(x, k), sx.f32[5, 3]))

    def test_other_arguments(self):
        refused("", lambda x: sx.top_k(x, 1.5), sx.f32[3])
        refused("", lambda x: sx.top_k(x, 1, largest="no"), sx.f32[3])
