"""XLA's broadcasting: every example of its description with its values, and what is refused.

Oracles: the numbers that the description prints, and numpy for those of which it gives the shapes alone.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import stablexla as sx
from tests.ops.building import build, evaluate, refused, shape_of

MATRIX = np.array([[1, 2, 3], [4, 5, 6]], np.float32)
VECTOR = np.array([7, 8, 9], np.float32)


def added(lhs: np.ndarray, rhs: np.ndarray, dimensions: tuple[int, ...] = ()) -> np.ndarray:
    return evaluate(lambda x, y: sx.add(x, y, broadcast_dimensions=dimensions), lhs, rhs)


def counted(*sizes: int) -> np.ndarray:
    return np.arange(1, np.prod(sizes) + 1, dtype=np.float32).reshape(sizes)


# The examples of the description, in its order.


def test_vector_on_the_rows_of_a_matrix():
    np.testing.assert_array_equal(added(MATRIX, VECTOR, (1,)), [[8, 10, 12], [11, 13, 15]])
    np.testing.assert_array_equal(added(VECTOR, MATRIX, (1,)), [[8, 10, 12], [11, 13, 15]])


def test_scalar_on_a_matrix():
    np.testing.assert_array_equal(added(MATRIX, np.float32(7)), [[8, 9, 10], [11, 12, 13]])
    np.testing.assert_array_equal(added(np.float32(7), MATRIX), [[8, 9, 10], [11, 12, 13]])
    np.testing.assert_array_equal(evaluate(lambda x: x + 7, MATRIX), [[8, 9, 10], [11, 12, 13]])


def test_vector_on_a_matrix_without_dimensions_is_refused():
    error = refused("B1", lambda x, v: sx.add(x, v), sx.f32[2, 3], sx.f32[3])
    assert str(error).splitlines()[:3] == [
        "add: operands of different ranks, 1 and 2, need broadcast_dimensions (B1)",
        "  lhs  f32[2,3]",
        "  rhs  f32[3]",
    ]
    assert "lambda x, v: sx.add(x, v), sx.f32[2, 3]" in str(error)
    assert error.hint == "sx.add(lhs, rhs, broadcast_dimensions=(1,))"


@pytest.mark.parametrize(
    ("dimensions", "repeated"),
    [((1,), [[7, 8, 9], [7, 8, 9], [7, 8, 9]]), ((0,), [[7, 7, 7], [8, 8, 8], [9, 9, 9]])],
)
def test_vector_on_a_square_matrix_either_way(dimensions, repeated):
    np.testing.assert_array_equal(added(np.zeros((3, 3), np.float32), VECTOR, dimensions), repeated)


def test_vector_of_3_on_dimension_0_of_2_is_refused():
    error = refused("B4", lambda x, v: sx.add(x, v, (0,)), sx.f32[2, 3], sx.f32[3])
    assert "dimension 0 of rhs has size 3" in error.summary
    assert "dimension 0 of lhs" in error.summary
    assert error.hint == "broadcast_dimensions=(1,)"


def test_matrix_on_dimensions_1_and_2_of_a_cuboid():
    cuboid, matrix = counted(2, 3, 4), counted(3, 4)
    np.testing.assert_array_equal(added(cuboid, matrix, (1, 2)), cuboid + matrix)


@pytest.mark.parametrize("place", range(4))
def test_vector_on_each_dimension_of_rank_4(place):
    whole = counted(2, 3, 4, 5)
    vector = counted(whole.shape[place])
    other = [1] * 4
    other[place] = -1
    np.testing.assert_array_equal(added(whole, vector, (place,)), whole + vector.reshape(other))


@pytest.mark.parametrize("places", [(2, 3), (1, 2), (0, 3), (0, 1), (0, 2), (1, 3)])
def test_matrix_on_each_pair_of_dimensions_of_rank_4(places):
    whole = counted(2, 3, 4, 5)
    matrix = counted(*(whole.shape[place] for place in places))
    other = [size if place in places else 1 for place, size in enumerate(whole.shape)]
    np.testing.assert_array_equal(added(whole, matrix, places), whole + matrix.reshape(other))


@pytest.mark.parametrize("places", [(2, 1), (3, 1), (1, 1)])
def test_dimensions_out_of_order_are_refused(places):
    error = refused("B3", lambda x, y: sx.add(x, y, places), sx.f32[2, 3, 3, 3], sx.f32[3, 3])
    assert "increase strictly" in error.summary


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [
        ((2, 1), (2, 3), (2, 3)),
        ((1, 2, 5), (7, 2, 5), (7, 2, 5)),
        ((7, 2, 5), (7, 1, 5), (7, 2, 5)),
        ((2, 1), (1, 3), (2, 3)),
    ],
)
def test_degenerate_dimensions(lhs, rhs, result):
    x, y = counted(*lhs), counted(*rhs)
    assert added(x, y).shape == result
    np.testing.assert_array_equal(added(x, y), x + y)


def test_sizes_5_and_6_are_refused():
    error = refused("B4", lambda x, y: x + y, sx.f32[7, 2, 5], sx.f32[7, 2, 6])
    assert "dimension 2 of rhs has size 6, but dimension 2 of lhs" in error.summary
    assert error.operands == {"lhs": "f32[7,2,5]", "rhs": "f32[7,2,6]"}


def test_composed_vector_of_4_and_matrix_of_1_by_2():
    lhs, rhs = np.array([1, 2, 3, 4], np.float32), np.array([[5, 6]], np.float32)
    np.testing.assert_array_equal(added(lhs, rhs, (0,)), [[6, 7], [7, 8], [8, 9], [9, 10]])


def test_composed_matrix_of_1_by_2_and_array_of_4_by_3_by_1():
    lhs, rhs = counted(1, 2), counted(4, 3, 1)
    result = added(lhs, rhs, (1, 2))
    assert result.shape == (4, 3, 2)
    np.testing.assert_array_equal(result, lhs + rhs)


# What the description does not print.


def test_add_b2():
    refused("B2", lambda x, y: sx.add(x, y, (0,)), sx.f32[2, 3, 4], sx.f32[3, 4])
    refused("B2", lambda x, y: sx.add(x, y, (0,)), sx.f32[2, 3], sx.f32[()])


@pytest.mark.parametrize("place", [-1, 2])
def test_add_b3_dimension_that_is_not_there(place):
    refused("B3", lambda x, y: sx.add(x, y, (place,)), sx.f32[2, 3], sx.f32[3])


def test_add_b5():
    assert build(lambda x, y: sx.add(x, y, (0, 1)), sx.f32[2, 3], sx.f32[2, 3]).result_shape == sx.f32[2, 3]
    refused("B5", lambda x, y: sx.add(x, y, (1, 0)), sx.f32[3, 3], sx.f32[3, 3])
    refused("B5", lambda x, y: sx.add(x, y, (0,)), sx.f32[3, 3], sx.f32[3, 3])


def test_no_broadcast_is_emitted_where_shapes_are_the_same():
    assert "broadcast" not in str(build(lambda x, y: x + y, sx.f32[2, 3], sx.f32[2, 3]))


def test_empty_dimensions():
    assert build(lambda x, y: x + y, sx.f32[0, 1], sx.f32[1, 4]).result_shape == sx.f32[0, 4]
    refused("B4", lambda x, y: x + y, sx.f32[0], sx.f32[2])


@st.composite
def operands(draw):
    """Two shapes that broadcast: the second's dimensions are some of the first's, and any may be 1."""
    sizes = draw(st.lists(st.integers(0, 4), min_size=1, max_size=4))
    places = sorted(draw(st.sets(st.sampled_from(range(len(sizes))), min_size=1)))
    shrunk = st.sampled_from([False, False, True])
    lower = [1 if draw(shrunk) else sizes[place] for place in places]
    higher = [1 if draw(shrunk) else size for size in sizes]
    return tuple(higher), tuple(lower), tuple(places)


@settings(max_examples=40, deadline=None)
@given(operands())
def test_agrees_with_numpy(drawn):
    higher, lower, places = drawn
    x, y = counted(*higher), counted(*lower)
    reshaped = np.ones(len(higher), int)
    reshaped[list(places)] = lower
    expected = x + y.reshape(reshaped)
    computation = build(lambda a, b: sx.add(a, b, places), shape_of(x), shape_of(y))
    assert computation.result_shape.dimensions == expected.shape
    np.testing.assert_array_equal(added(x, y, places), expected)
    np.testing.assert_array_equal(added(y, x, places), expected)
