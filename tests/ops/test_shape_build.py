"""What the builder emits for arranging elements, and what it refuses.

Oracles: the reference interpreter, numpy for values, and the examples that XLA's operation semantics prints.
"""

from __future__ import annotations

import numpy as np
import pytest

import stablexla as sx
from tests.ops.building import build, evaluate, refused

V = np.array(
    [
        [[10, 11, 12], [15, 16, 17]],
        [[20, 21, 22], [25, 26, 27]],
        [[30, 31, 32], [35, 36, 37]],
        [[40, 41, 42], [45, 46, 47]],
    ],
    np.float32,
)
A = np.arange(5, dtype=np.float32)
B = np.arange(12, dtype=np.float32).reshape(4, 3)


class TestBroadcast:
    def test_values(self):
        np.testing.assert_array_equal(evaluate(lambda x: sx.broadcast(x, (2, 3)), np.float32(2)), np.full((2, 3), 2.0))
        x = np.int32([1, 2, 3, 4])
        np.testing.assert_array_equal(evaluate(lambda a: sx.broadcast(a, (2,)), x), [x, x])
        assert evaluate(lambda a: sx.broadcast(a, ()), x).tolist() == x.tolist()
        assert build(lambda a: sx.broadcast(a, (0, 3)), sx.f32[2]).result_shape == sx.f32[0, 3, 2]


class TestBroadcastInDim:
    def test_values(self):
        x = np.int32([[1, 2, 3]])
        np.testing.assert_array_equal(
            evaluate(lambda a: sx.broadcast_in_dim(a, (2, 3, 2), (1, 2)), x.T),
            np.broadcast_to(x.reshape(1, 3, 1), (2, 3, 2)),
        )
        np.testing.assert_array_equal(
            evaluate(lambda a: sx.broadcast_in_dim(a, (2, 4, 3), (1, 2)), x), np.broadcast_to(x, (2, 4, 3))
        )
        np.testing.assert_array_equal(evaluate(lambda a: sx.broadcast_in_dim(a, (2,), ()), np.int32(5)), [5, 5])

    def test_broadcast_in_dim_c2(self):
        refused("C2", lambda x: sx.broadcast_in_dim(x, (2, 3), (1,)), sx.f32[2, 3])

    def test_broadcast_in_dim_c3(self):
        refused("C3", lambda x: sx.broadcast_in_dim(x, (2, 3), (2,)), sx.f32[3])
        refused("C3", lambda x: sx.broadcast_in_dim(x, (2, 3), (-1,)), sx.f32[3])

    def test_broadcast_in_dim_c4(self):
        refused("C4", lambda x: sx.broadcast_in_dim(x, (3, 3), (1, 1)), sx.f32[3, 3])

    def test_dimensions_in_another_order(self):
        """XLA's page on broadcasting asks for strictly increasing dimensions; a text has StableHLO's rules."""
        error = refused("", lambda x: sx.broadcast_in_dim(x, (3, 2), (1, 0)), sx.f32[2, 3])
        assert "strictly increasing" in error.summary
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        advice = error.hint.replace("operand", "x")
        np.testing.assert_array_equal(evaluate(lambda x: eval(advice, {"sx": sx, "x": x}), x), x.T)
        text = """func.func @main(%x: tensor<2x3xf32>) -> tensor<3x2xf32> {
          %0 = stablehlo.broadcast_in_dim %x, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>
          return %0 : tensor<3x2xf32>
        }"""
        np.testing.assert_array_equal(sx.compile(text)(x), x.T)

    def test_broadcast_in_dim_c5(self):
        error = refused("C5", lambda x: sx.broadcast_in_dim(x, (2, 3), (0,)), sx.f32[3])
        assert error.operands == {"operand": "f32[3]", "out_dim_size": "(2, 3)", "broadcast_dimensions": "(0,)"}


class TestReshape:
    def test_examples_of_the_description(self):
        np.testing.assert_array_equal(evaluate(lambda v: sx.reshape(v, (24,)), V), V.reshape(24))
        np.testing.assert_array_equal(evaluate(lambda v: sx.reshape(v, (8, 3)), V), V.reshape(8, 3))
        assert evaluate(lambda v: sx.reshape(v, ()), np.float32([[5]])) == 5
        np.testing.assert_array_equal(evaluate(lambda v: sx.reshape(v, (1, 1)), np.float32(5)), [[5]])

    def test_with_an_order_of_dimensions(self):
        result = evaluate(lambda v: sx.reshape(v, (1, 2, 0), (6, 4)), V)
        np.testing.assert_array_equal(result, V.transpose(1, 2, 0).reshape(6, 4))
        assert "transpose" not in str(build(lambda v: sx.reshape(v, (0, 1), new_sizes=(6,)), sx.f32[2, 3]))

    def test_reshape_c2(self):
        error = refused("C2", lambda x: sx.reshape(x, (5,)), sx.f32[2, 3])
        assert "6 elements can't fill f32[5], which has 5" in error.summary

    def test_refusals(self):
        refused("", lambda x: sx.reshape(x, (0, 0), (6,)), sx.f32[2, 3])
        refused("", lambda x: sx.reshape(x, (0,), (6,)), sx.f32[2, 3])
        refused("", lambda x: sx.reshape(x, (-1,)), sx.f32[2, 3])
        refused("", lambda x: sx.reshape(x, 6), sx.f32[2, 3])


class TestCollapse:
    @pytest.mark.parametrize(("dimensions", "sizes"), [((0, 1, 2), (24,)), ((0, 1), (8, 3)), ((1, 2), (4, 6))])
    def test_examples_of_the_description(self, dimensions, sizes):
        np.testing.assert_array_equal(evaluate(lambda v: sx.collapse(v, dimensions), V), V.reshape(sizes))

    @pytest.mark.parametrize("dimensions", [(), (1,)])
    def test_nothing_to_do(self, dimensions):
        assert build(lambda v: sx.collapse(v, dimensions), sx.f32[4, 2]).result_shape == sx.f32[4, 2]

    @pytest.mark.parametrize("dimensions", [(1, 0), (0, 2), (2, 3), (-1, 0)])
    def test_refusals(self, dimensions):
        refused("", lambda v: sx.collapse(v, dimensions), sx.f32[4, 2, 3])


class TestTransposeAndRev:
    def test_values(self):
        np.testing.assert_array_equal(evaluate(lambda v: sx.transpose(v, (2, 0, 1)), V), V.transpose(2, 0, 1))
        np.testing.assert_array_equal(evaluate(lambda v: sx.rev(v, (0, 2)), V), V[::-1, :, ::-1])
        assert build(lambda v: sx.transpose(v, ()), sx.f32[()]).result_shape == sx.f32[()]

    def test_transpose_c2(self):
        for order in [(0,), (0, 0), (0, 2), (1, -1)]:
            refused("C2", lambda v, order=order: sx.transpose(v, order), sx.f32[4, 2])

    def test_rev_c2(self):
        refused("C2", lambda v: sx.rev(v, (0, 0)), sx.f32[4, 2])

    def test_rev_c3(self):
        refused("C3", lambda v: sx.rev(v, (2,)), sx.f32[4, 2])


class TestSlice:
    def test_examples_of_the_description(self):
        np.testing.assert_array_equal(evaluate(lambda a: sx.slice(a, (2,), (4,)), A), [2.0, 3.0])
        np.testing.assert_array_equal(evaluate(lambda b: sx.slice(b, (2, 1), (4, 3)), B), [[7.0, 8.0], [10.0, 11.0]])

    @pytest.mark.parametrize(
        ("starts", "limits", "strides"), [((0, 0), (4, 3), (2, 2)), ((1, 2), (4, 3), (3, 1)), ((2, 0), (2, 3), (1, 5))]
    )
    def test_strides(self, starts, limits, strides):
        result = evaluate(lambda b: sx.slice(b, starts, limits, strides), B)
        np.testing.assert_array_equal(result, B[tuple(map(slice, starts, limits, strides))])

    def test_in_one_dimension(self):
        np.testing.assert_array_equal(evaluate(lambda b: sx.slice_in_dim(b, 1, 4, 2, 0), B), B[1:4:2])
        np.testing.assert_array_equal(evaluate(lambda b: sx.slice_in_dim(b, 1, 3, dimno=1), B), B[:, 1:3])
        refused("", lambda b: sx.slice_in_dim(b, 1, 3, dimno=2), sx.f32[4, 3])

    def test_slice_c2(self):
        refused("C2", lambda b: sx.slice(b, (0,), (4, 3)), sx.f32[4, 3])
        refused("C2", lambda b: sx.slice(b, (0, 0), (4, 3), (1,)), sx.f32[4, 3])

    @pytest.mark.parametrize(("start", "limit"), [(-1, 2), (3, 2), (0, 5)])
    def test_slice_c3(self, start, limit):
        refused("C3", lambda a: sx.slice(a, (start,), (limit,)), sx.f32[4])

    def test_slice_c4(self):
        refused("C4", lambda a: sx.slice(a, (0,), (4,), (0,)), sx.f32[4])


class TestConcatenate:
    def test_examples_of_the_description(self):
        parts = [np.int32(p) for p in ([2, 3], [4, 5], [6, 7])]
        np.testing.assert_array_equal(evaluate(lambda *p: sx.concatenate(p, 0), *parts), [2, 3, 4, 5, 6, 7])
        rows = np.int32([[1, 2], [3, 4], [5, 6]]), np.int32([[7, 8]])
        np.testing.assert_array_equal(evaluate(lambda *p: sx.concat_in_dim(p, 0), *rows), np.concatenate(rows))

    def test_of_one(self):
        assert evaluate(lambda p: sx.concatenate(p, 0), np.int32([1])) == [1]

    def test_concatenate_c1(self):
        refused("C1", lambda x, y: sx.concatenate((x, y), 0), sx.f32[2], sx.f64[2])

    def test_concatenate_c2(self):
        refused("C2", lambda x, y: sx.concatenate((x, y), 0), sx.f32[2, 3], sx.f32[2, 4])
        refused("C2", lambda x, y: sx.concatenate((x, y), 0), sx.f32[2, 3], sx.f32[2])

    def test_concatenate_c3(self):
        refused("C3", lambda x: sx.concatenate((), 0), sx.f32[2])

    def test_concatenate_c4(self):
        refused("C4", lambda x: sx.concatenate((x, x), 1), sx.f32[2])
        refused("C4", lambda x: sx.concatenate((x, x), 0), sx.f32[()])


def padded(x: np.ndarray, value: float, config: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    """Pad in numpy: spread out first, then edges."""
    for axis, (low, high, interior) in enumerate(config):
        moved = np.moveaxis(x, axis, 0)
        n = moved.shape[0]
        spread = np.full((max(n + (n - 1) * interior, 0), *moved.shape[1:]), value, x.dtype)
        spread[:: interior + 1] = moved
        edges = [(max(low, 0), max(high, 0))] + [(0, 0)] * (x.ndim - 1)
        spread = np.pad(spread, edges, constant_values=value)
        cut = spread[max(-low, 0) : len(spread) - max(-high, 0)]
        x = np.moveaxis(cut, 0, axis)
    return x


class TestPad:
    @pytest.mark.parametrize(
        "config",
        [((1, 2, 0), (0, 0, 0)), ((0, 0, 1), (1, 0, 2)), ((-1, 0, 0), (0, -2, 1)), ((2, -4, 1), (-1, -1, 0))],
    )
    def test_values(self, config):
        result = evaluate(lambda b: sx.pad(b, 9.0, config), B)
        np.testing.assert_array_equal(result, padded(B, 9, config))

    def test_other_forms(self):
        assert evaluate(lambda x, v: sx.pad(x, v, ()), np.float32(1), np.float32(2)) == 1
        assert build(lambda x: sx.pad(x, 0.0, ((1, 1, 5),)), sx.f32[0]).result_shape == sx.f32[2]
        result = evaluate(lambda b: sx.pad_in_dim(b, 0.0, 1, 1, 2), B)
        np.testing.assert_array_equal(result, np.pad(B, ((0, 0), (1, 2))))
        refused("", lambda b: sx.pad_in_dim(b, 0.0, 2, 1, 2), sx.f32[4, 3])

    def test_pad_i2(self):
        refused("I2", lambda x, v: sx.pad(x, v, ((0, 0, 0),)), sx.f32[2], sx.f32[1])

    def test_pad_c1(self):
        refused("C1", lambda x, v: sx.pad(x, v, ((0, 0, 0),)), sx.f32[2], sx.f64[()])

    def test_pad_c2(self):
        for config in [(), ((0, 0),), ((0, 0, 0), (0, 0, 0)), (0,), ((0.5, 0, 0),)]:
            refused("C2", lambda x, c=config: sx.pad(x, 0.0, c), sx.f32[2])

    def test_pad_c3(self):
        refused("C3", lambda x: sx.pad(x, 0.0, ((0, 0, -1),)), sx.f32[2])

    def test_pad_c4(self):
        refused("C4", lambda x: sx.pad(x, 0.0, ((-2, -1, 0),)), sx.f32[2])


class TestDynamicSlice:
    def test_examples_of_the_description(self):
        result = evaluate(lambda a, s: sx.dynamic_slice(a, [s], (2,)), A, np.int32(2))
        np.testing.assert_array_equal(result, [2.0, 3.0])
        result = evaluate(lambda b, s: sx.dynamic_slice(b, s, (2, 2)), B, np.int32([2, 1]))
        np.testing.assert_array_equal(result, [[7.0, 8.0], [10.0, 11.0]])

    @pytest.mark.parametrize(("start", "first"), [(-5, 0), (9, 3)])
    def test_starts_are_clamped(self, start, first):
        result = evaluate(lambda a, s: sx.dynamic_slice(a, s, (2,)), A, np.int64([start]))
        np.testing.assert_array_equal(result, A[first : first + 2])

    def test_numbers_among_the_indices(self):
        result = evaluate(lambda b, s: sx.dynamic_slice(b, (s, 1), (1, 2)), B, np.uint8(3))
        np.testing.assert_array_equal(result, B[3:, 1:])
        assert evaluate(lambda x: sx.dynamic_slice(x, (), ()), np.float32(3)) == 3

    def test_dynamic_slice_i2(self):
        refused("I2", lambda x, s: sx.dynamic_slice(x, (s,), (1,)), sx.f32[2], sx.f32[()])
        refused("I2", lambda x, s: sx.dynamic_slice(x, (s,), (1,)), sx.f32[2], sx.s32[2])

    def test_dynamic_slice_c2(self):
        refused("C2", lambda x, s: sx.dynamic_slice(x, (s,), (1, 1)), sx.f32[2, 3], sx.s32[()])
        refused("C2", lambda x, s: sx.dynamic_slice(x, (s, s), (1,)), sx.f32[2, 3], sx.s32[()])

    def test_dynamic_slice_c3(self):
        refused("C3", lambda x, s, t: sx.dynamic_slice(x, (s, t), (1, 1)), sx.f32[2, 3], sx.s32[()], sx.s64[()])

    def test_dynamic_slice_c4(self):
        refused("C4", lambda x, s: sx.dynamic_slice(x, (s,), (3,)), sx.f32[2], sx.s32[()])
        refused("C4", lambda x, s: sx.dynamic_slice(x, (s,), (-1,)), sx.f32[2], sx.s32[()])


class TestDynamicUpdateSlice:
    def test_examples_of_the_description(self):
        result = evaluate(lambda a, u: sx.dynamic_update_slice(a, u, (2,)), A, np.float32([5, 6]))
        np.testing.assert_array_equal(result, [0.0, 1.0, 5.0, 6.0, 4.0])
        u = np.arange(12, 18, dtype=np.float32).reshape(3, 2)
        result = evaluate(lambda b, v, s: sx.dynamic_update_slice(b, v, (s, s)), B, u, np.int32(1))
        np.testing.assert_array_equal(result, [[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]])

    def test_starts_are_clamped(self):
        result = evaluate(lambda a, u, s: sx.dynamic_update_slice(a, u, s), A, np.float32([5, 6]), np.int32([7]))
        np.testing.assert_array_equal(result, [0, 1, 2, 5, 6])

    def test_dynamic_update_slice_i3(self):
        refused("I3", lambda x, s: sx.dynamic_update_slice(x, x, (s,)), sx.f32[2], sx.f32[()])

    def test_dynamic_update_slice_c2(self):
        refused("C2", lambda x, u: sx.dynamic_update_slice(x, u, (0,)), sx.f32[2], sx.f64[2])

    def test_dynamic_update_slice_c3(self):
        refused("C3", lambda x, u: sx.dynamic_update_slice(x, u, (0,)), sx.f32[2], sx.f32[1, 2])

    def test_dynamic_update_slice_c4(self):
        refused("C4", lambda x: sx.dynamic_update_slice(x, x, (0, 0)), sx.f32[2])

    def test_dynamic_update_slice_c5(self):
        refused(
            "C5",
            lambda x, s, t: sx.dynamic_update_slice(x, x, (s, t)),
            *(sx.f32[2, 2], sx.s32[()], sx.s64[()]),
        )

    def test_dynamic_update_slice_c6(self):
        refused("C6", lambda x, u: sx.dynamic_update_slice(x, u, (0,)), sx.f32[2], sx.f32[3])


class TestGetDimensionSize:
    def test_values(self):
        assert evaluate(lambda x: sx.get_dimension_size(x, 1), B) == 3

    def test_get_dimension_size_c1(self):
        refused("C1", lambda x: sx.get_dimension_size(x, 2), sx.f32[4, 3])
        refused("C1", lambda x: sx.get_dimension_size(x, -1), sx.f32[4, 3])


def test_every_type_and_rank_verifies():
    """Arranging takes any element type, scalars, empty arrays and rank 6."""

    def make(x):
        rank = x.shape.rank
        moved = sx.transpose(sx.rev(x, range(rank)), tuple(reversed(range(rank))))
        return sx.slice(sx.pad(moved, zero(x), ((1, 0, 0),) * rank), (0,) * rank, (1,) * rank)

    for t in sx.ELEMENT_TYPES:
        for dimensions in [(), (0,), (2, 1, 2, 0, 1, 3)]:
            assert build(make, sx.Shape(t, dimensions)).result_shape == sx.Shape(t, (1,) * len(dimensions))


def zero(x: sx.XlaOp) -> sx.XlaOp:
    return x.builder.constant(np.zeros((), x.shape.element_type.dtype))
