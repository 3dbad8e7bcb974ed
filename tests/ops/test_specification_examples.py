"""Every example with values that XLA's operation semantics print, in the order of the document.

Those of windows, sorting, sizes known at run time and collectives are in the files of their families, those of the
document on broadcasting in tests/test_broadcasting.py. The oracle is the document; StableHLO's reference interpreter
and XLA:CPU have to agree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.programs import run

V = np.array(
    [
        [[10, 11, 12], [15, 16, 17]],
        [[20, 21, 22], [25, 26, 27]],
        [[30, 31, 32], [35, 36, 37]],
        [[40, 41, 42], [45, 46, 47]],
    ],
    np.float32,
)
ALL_OF_V = [10, 11, 12, 15, 16, 17, 20, 21, 22, 25, 26, 27, 30, 31, 32, 35, 36, 37, 40, 41, 42, 45, 46, 47]
A = np.array([0.0, 1.0, 2.0, 3.0, 4.0], np.float32)
B = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]], np.float32)


def f32(*values: Any) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, np.float32)


def s32(*values: Any) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, np.int32)


@pytest.mark.parametrize(
    ("from_type", "shape", "to_type", "result"),
    [("f32", (10,), "f16", (10, 2)), ("f32", (), "f16", (2,)), ("f16", (10, 2), "f32", (10,)), ("s32", (), "s8", (4,))],
)
def test_bitcast_convert_type(from_type: str, shape: tuple[int, ...], to_type: str, result: tuple[int, ...]) -> None:
    """Shapes that grow by a dimension, or lose it; one s32 is four s8."""
    source, target = sx.element_type(from_type).dtype, sx.element_type(to_type).dtype
    x = np.arange(max(1, int(np.prod(shape)))).astype(source).reshape(shape)
    wanted = np.ascontiguousarray(x).reshape(-1).view(target).reshape(result)
    run(lambda b, v: sx.bitcast_convert_type(v, to_type), x, expected=[wanted])


def test_broadcast() -> None:
    run(lambda b, x: sx.broadcast(x, (2, 3)), np.float32(2.0), expected=[np.full((2, 3), 2, np.float32)])


def test_clamp() -> None:
    run(lambda b, x, low, high: sx.clamp(low, x, high), s32(-1, 5, 9), s32(0), s32(6), expected=[s32(0, 5, 6)])


@pytest.mark.parametrize(("dimensions", "shape"), [((0, 1, 2), (24,)), ((0, 1), (8, 3)), ((1, 2), (4, 6))])
def test_collapse(dimensions: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """The document's headings for the last two are each other's: {0,1} leaves 8x3 by its own rule, not 4x6."""
    run(lambda b, x: sx.collapse(x, dimensions), V, expected=[f32(ALL_OF_V).reshape(shape)])


def test_concatenate() -> None:
    run(lambda b, *x: sx.concatenate(x, 0), s32(2, 3), s32(4, 5), s32(6, 7), expected=[s32(2, 3, 4, 5, 6, 7)])
    a, b = s32([[1, 2], [3, 4], [5, 6]]), s32([[7, 8]])
    run(lambda _, x, y: sx.concatenate([x, y], 0), a, b, expected=[s32([[1, 2], [3, 4], [5, 6], [7, 8]])])


@pytest.mark.parametrize(("choice", "result"), [(True, 12.5), (False, 5.0)])
def test_conditional_on_a_pred(choice: bool, result: float) -> None:
    """One of the computations runs, each with its own operand."""
    run(
        lambda b, p, x, y: sx.conditional(p, x, lambda v: v + 2.5, y, lambda v: v * 2.5),
        np.bool_(choice),
        np.float32(10),
        np.float32(2),
        expected=[np.float32(result)],
    )


@pytest.mark.parametrize(("index", "result"), [(0, 11), (1, 20), (2, 7), (-1, 7), (3, 7)])
def test_conditional_on_an_index(index: int, result: int) -> None:
    """Below 0 and from N on the last branch runs."""
    run(
        lambda b, i, x: sx.conditional(i, [lambda v: v + 1, lambda v: v * 2, lambda v: v - 3], [x, x, x]),
        np.int32(index),
        np.int32(10),
        expected=[np.int32(result)],
    )


def test_convert_element_type() -> None:
    run(lambda b, x: sx.convert_element_type(x, "f32"), s32(0, 1, 2), expected=[f32(0, 1, 2)])


@pytest.mark.parametrize(("lhs", "rhs", "shape"), [((3,), (3,), ()), ((2, 3), (3,), (2,)), ((2, 3), (3, 4), (2, 4))])
def test_dot(lhs: tuple[int, ...], rhs: tuple[int, ...], shape: tuple[int, ...]) -> None:
    """The rows of the table: vectors, a matrix and a vector, matrices."""
    x, y = (np.arange(1, np.prod(s) + 1, dtype=np.float32).reshape(s) for s in (lhs, rhs))
    (result,) = run(lambda b, v, w: sx.dot(v, w), x, y, expected=[np.dot(x, y)])
    assert result.shape == shape


def test_dot_general_contracts() -> None:
    numbers = sx.DotDimensionNumbers(lhs_contracting_dimensions=(1,), rhs_contracting_dimensions=(1,))
    x, y = f32([[1, 2, 3], [4, 5, 6]]), f32([[1, 1, 1], [2, 2, 2]])
    run(lambda b, v, w: sx.dot_general(v, w, numbers), x, y, expected=[f32([[6, 12], [15, 30]])])


def test_dot_general_in_batches() -> None:
    numbers = sx.DotDimensionNumbers((2,), (1,), (0,), (0,))
    x, y = f32([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]), f32([[[1, 0], [0, 1]]] * 2)
    run(lambda b, v, w: sx.dot_general(v, w, numbers), x, y, expected=[x])


@pytest.mark.parametrize("batch", [(3,), (3, 2)])
def test_dot_general_batch_dimensions_come_first(batch: tuple[int, ...]) -> None:
    """[b0, m, k] by [b0, k, n], and [b0, b1, m, k] by [b0, b1, k, n]."""
    x = np.arange(np.prod(batch) * 20, dtype=np.float32).reshape(*batch, 4, 5)
    y = np.arange(np.prod(batch) * 30, dtype=np.float32).reshape(*batch, 5, 6) % 7
    places, rank = tuple(range(len(batch))), len(batch)
    numbers = sx.DotDimensionNumbers((rank + 1,), (rank,), places, places)
    run(lambda b, v, w: sx.dot_general(v, w, numbers), x, y, expected=[x @ y])


def test_dynamic_slice() -> None:
    run(lambda b, x, s: sx.dynamic_slice(x, s, (2,)), A, s32([2]), expected=[f32(2, 3)])
    run(lambda b, x, s: sx.dynamic_slice(x, s, (2, 2)), B, s32([2, 1]), expected=[f32([[7, 8], [10, 11]])])


def test_dynamic_slice_stays_inside() -> None:
    """start[i] = clamp(start[i], 0, size of the operand - size of the slice)."""
    run(lambda b, x, s: sx.dynamic_slice(x, s, (2,)), A, s32([9]), expected=[f32(3, 4)])
    run(lambda b, x, s: sx.dynamic_slice(x, s, (2,)), A, s32([-9]), expected=[f32(0, 1)])


def test_dynamic_update_slice() -> None:
    run(lambda b, x, u, s: sx.dynamic_update_slice(x, u, s), A, f32(5, 6), s32([2]), expected=[f32(0, 1, 5, 6, 4)])
    update = f32([[12, 13], [14, 15], [16, 17]])
    wanted = f32([[0, 1, 2], [3, 12, 13], [6, 14, 15], [9, 16, 17]])
    run(lambda b, x, u, s: sx.dynamic_update_slice(x, u, s), B, update, s32([1, 1]), expected=[wanted])


def test_dynamic_update_slice_stays_inside() -> None:
    run(lambda b, x, u, s: sx.dynamic_update_slice(x, u, s), A, f32(5, 6), s32([7]), expected=[f32(0, 1, 2, 5, 6)])


def test_rem_has_the_dividends_sign() -> None:
    """And is smaller than the divisor."""
    x, y = s32(7, -7, 7, -7), s32(3, 3, -3, -3)
    run(lambda b, v, w: sx.rem(v, w), x, y, expected=[s32(1, -1, 1, -1)])
    x, y = f32(7.5, -7.5, 7.5, -7.5), f32(2, 2, -2, -2)
    run(lambda b, v, w: sx.rem(v, w), x, y, expected=[f32(1.5, -1.5, 1.5, -1.5)])


def test_total_order() -> None:
    """-NaN < -Inf < -Finite < -0 < +0 < +Finite < +Inf < +NaN. The interpreter compares without this order."""
    x = np.array([-np.nan, -np.inf, -1, -0.0, 0.0, 1, np.inf, np.nan], np.float32)
    x[0], x[-1] = np.copysign(np.float32(np.nan), -1), np.copysign(np.float32(np.nan), 1)
    below, above = x[:-1], x[1:]
    true, false = np.ones(7, bool), np.zeros(7, bool)
    run(
        lambda b, v, w: [
            sx.lt_total_order(v, w), sx.le_total_order(v, w), sx.ne_total_order(v, w),
            sx.gt_total_order(v, w), sx.ge_total_order(v, w), sx.eq_total_order(v, w),
        ],
        below,
        above,
        against=["xla"],
        expected=[true, true, true, false, false, false],
    )  # fmt: skip
    run(lambda b, v: sx.eq_total_order(v, v), x, against=["xla"], expected=[np.ones(8, bool)])


def test_parts_of_real_numbers() -> None:
    """The imaginary part of a real number is 0, its real part itself."""
    x = f32(1.5, -2, 0)
    run(lambda b, v: [sx.real(v), sx.imag(v)], x, expected=[x, np.zeros(3, np.float32)])


def test_sign() -> None:
    """-1, -0, NaN, +0, 1."""
    x = f32(-3.5, -0.0, np.nan, 0.0, 3.5)
    (result,) = run(lambda b, v: sx.sign(v), x, expected=[f32(-1, -0.0, np.nan, 0.0, 1)])
    assert np.signbit(result[1])
    assert not np.signbit(result[3])


def test_rounding() -> None:
    """Ties away from zero, and ties to even."""
    x = f32(0.5, 1.5, 2.5, -0.5, -1.5, -2.5)
    wanted = [f32(1, 2, 3, -1, -2, -3), f32(0, 2, 2, -0.0, -2, -2)]
    run(lambda b, v: [sx.round(v), sx.round_nearest_even(v)], x, expected=wanted)


def test_tuple_and_get_tuple_element() -> None:
    """let t = tuple(v, s); element 1 has s's shape."""
    v, s = np.arange(10, dtype=np.float32), np.int32(5)

    def make(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
        t = sx.tuple([x, y])
        assert t.shape == sx.Shape.tuple((sx.f32[10], sx.s32[()]))
        assert sx.get_tuple_element(t, 1).shape == sx.s32[()]
        return [sx.get_tuple_element(t, 1), sx.get_tuple_element(t, 0)]

    run(make, v, s, expected=[s, v])


def test_iota() -> None:
    rows, columns = np.indices((4, 8), dtype=np.int32)
    run(lambda b: [b.iota(sx.s32[4, 8], 0), b.iota(sx.s32[4, 8], 1)], expected=[rows, columns])
    run(lambda b: b.iota(sx.f32[4, 8], 1), expected=[columns.astype(np.float32)])


def test_map() -> None:
    """elem_out <- computation(elem1, elem2, elem3, par1), where par1 is given to every call."""
    x, y, z, par = (f32(np.arange(6).reshape(2, 3) + i) for i in (1, 2, 3, 4))
    run(lambda b, *v: sx.map(v, lambda p, q, r, s: p * q + r * s, (0, 1)), x, y, z, par, expected=[x * y + z * par])


def test_pad() -> None:
    """(low, high, interior) for each dimension; the inner padding comes first, a negative edge takes away."""
    x = f32([[1, 2, 3], [4, 5, 6]])
    wanted = f32([[9, 1, 9, 2, 9, 3], [9, 9, 9, 9, 9, 9], [9, 4, 9, 5, 9, 6], [9, 9, 9, 9, 9, 9]])
    run(lambda b, v: sx.pad(v, b.constant(np.float32(9)), ((0, 1, 1), (1, 0, 1))), x, expected=[wanted])
    run(
        lambda b, v: sx.pad(v, b.constant(np.float32(9)), ((0, 0, 0), (-1, -1, 1))),
        x,
        expected=[f32([[9, 2, 9], [9, 5, 9]])],
    )
    run(lambda b, v: sx.pad(v, b.constant(np.float32(9)), ((0, 0, 0), (0, 0, 0))), x, expected=[x])


def test_reduce_of_a_vector() -> None:
    """f(10, f(11, f(12, f(init_value, 13)))), in any order."""
    run(lambda b, x: sx.reduce(x, b.constant(0), sx.add, (0,)), s32(10, 11, 12, 13), expected=[np.int32(46)])


@pytest.mark.parametrize(("dimensions", "wanted"), [((0,), [5, 7, 9]), ((1,), [6, 15])])
def test_reduce_of_a_matrix(dimensions: tuple[int, ...], wanted: list[int]) -> None:
    x = s32([[1, 2, 3], [4, 5, 6]])
    run(lambda b, v: sx.reduce(v, b.constant(0), sx.add, dimensions), x, expected=[s32(wanted)])


@pytest.mark.parametrize(
    ("dimensions", "wanted"),
    [
        ((0,), [[4, 8, 12], [16, 20, 24]]),
        ((2,), [[6, 15], [6, 15], [6, 15], [6, 15]]),
        ((0, 1), [20, 28, 36]),
        ((1, 0), [20, 28, 36]),
        ((0, 1, 2), 84),
    ],
)
def test_reduce_of_three_dimensions(dimensions: tuple[int, ...], wanted: Any) -> None:
    x = np.broadcast_to(s32([[1, 2, 3], [4, 5, 6]]), (4, 2, 3))
    run(lambda b, v: sx.reduce(v, b.constant(0), sx.add, dimensions), x, expected=[s32(wanted)])


def test_variadic_reduce() -> None:
    """The largest value and where it is: of equal ones the last, since f takes the new value where it is >= the old."""
    values, places = f32(3, 9, -1, 9, 2), np.arange(5, dtype=np.int32)

    def largest(top: sx.XlaOp, where: sx.XlaOp, value: sx.XlaOp, index: sx.XlaOp) -> sx.XlaOp:
        p = sx.ge(value, top)
        return sx.tuple([sx.select(p, value, top), sx.select(p, index, where)])

    def make(b: sx.XlaBuilder, v: sx.XlaOp, k: sx.XlaOp) -> list[sx.XlaOp]:
        top, where = sx.reduce([v, k], [b.constant(np.float32(-np.inf)), b.constant(-1)], largest, (0,))
        return [top, where]

    run(make, values, places, expected=[np.float32(9), np.int32(3)])


@pytest.mark.parametrize(
    ("exponent_bits", "mantissa_bits", "wanted"),
    [
        (5, 10, [0.33325195, np.inf, -np.inf, 2048]),
        (8, 7, [0.33398438, 65536, -131072, 2048]),
        (8, 23, None),
        (11, 52, None),
    ],
)
def test_reduce_precision(exponent_bits: int, mantissa_bits: int, wanted: list[float] | None) -> None:
    """To the nearest number of the format, infinite beyond it; more bits than the type has change nothing."""
    x = f32(1 / 3, 65520, -131071, 2049)
    run(
        lambda b, v: sx.reduce_precision(v, exponent_bits, mantissa_bits),
        x,
        expected=[x if wanted is None else f32(wanted)],
    )


def test_reshape() -> None:
    run(lambda b, x: sx.reshape(x, (24,)), V, expected=[f32(ALL_OF_V)])
    run(lambda b, x: sx.reshape(x, (8, 3)), V, expected=[f32(ALL_OF_V).reshape(8, 3)])
    run(lambda b, x: sx.reshape(x, ()), f32([[5]]), expected=[np.float32(5)])
    run(lambda b, x: sx.reshape(x, (1, 1)), np.float32(5), expected=[f32([[5]])])


def test_rev() -> None:
    """Index i becomes N - 1 - i in each dimension that is reversed."""
    x = s32([[1, 2, 3], [4, 5, 6]])
    run(
        lambda b, v: [sx.rev(v, (0,)), sx.rev(v, (1,)), sx.rev(v, (0, 1))],
        x,
        expected=[x[::-1], x[:, ::-1], x[::-1, ::-1]],
    )


def test_select() -> None:
    pred, v1, v2 = np.array([True, False, False, True]), s32(1, 2, 3, 4), s32(100, 200, 300, 400)
    run(lambda b, p, x, y: sx.select(p, x, y), pred, v1, v2, expected=[s32(1, 200, 300, 4)])
    run(lambda b, p, x, y: sx.select(p, x, y), np.bool_(True), v1, v2, expected=[v1])


def test_slice() -> None:
    run(lambda b, x: sx.slice(x, (2,), (4,)), A, expected=[f32(2, 3)])
    run(lambda b, x: sx.slice(x, (2, 1), (4, 3)), B, expected=[f32([[7, 8], [10, 11]])])


def test_transpose() -> None:
    """input_dimensions[permutation[i]] = output_dimensions[i]."""
    run(lambda b, x: sx.transpose(x, (2, 0, 1)), V, expected=[np.transpose(V, (2, 0, 1))])


def test_while() -> None:
    """A thousand turns that add a constant vector to an accumulator."""
    constant = np.arange(10, dtype=np.float32)

    def make(b: sx.XlaBuilder, vector: sx.XlaOp) -> list[sx.XlaOp]:
        init = sx.tuple([b.constant(0), sx.broadcast(b.constant(np.float32(0)), (10,)), vector])
        count, total, _ = sx.while_(
            lambda s: sx.lt(sx.get_tuple_element(s, 0), 1000),
            lambda s: sx.tuple(
                [
                    sx.get_tuple_element(s, 0) + 1,
                    sx.get_tuple_element(s, 1) + sx.get_tuple_element(s, 2),
                    sx.get_tuple_element(s, 2),
                ]
            ),
            init,
        )
        return [count, total]

    run(make, constant, expected=[np.int32(1000), 1000 * constant])
