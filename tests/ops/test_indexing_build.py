"""What the builder emits for gather, scatter and their like, and what it refuses.

Oracle: the rules' numbers in StableHLO's specification, whose verifier sees everything that is built here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.ops.building import build, evaluate, refused

ROWS = {"offset_dims": (1,), "collapsed_slice_dims": (0,), "start_index_map": (0,), "index_vector_dim": 1}
BATCHED = {
    "offset_dims": (2,),
    "collapsed_slice_dims": (1,),
    "start_index_map": (1,),
    "index_vector_dim": 2,
    "operand_batching_dims": (0,),
    "start_indices_batching_dims": (0,),
}


def rows(sizes: tuple[int, ...] = (1, 4), **changed: Any) -> Callable[..., Any]:
    """Rows of an array [6,4], with some numbers changed."""
    numbers = sx.GatherDimensionNumbers(**{**ROWS, **changed})
    return lambda x, i: sx.gather(x, i, dimension_numbers=numbers, slice_sizes=sizes)


def batched(sizes: tuple[int, ...] = (1, 1, 4), **changed: Any) -> Callable[..., Any]:
    """Rows of each of several arrays, [2,6,4] at [2,3]."""
    numbers = sx.GatherDimensionNumbers(**{**BATCHED, **changed})
    return lambda x, i: sx.gather(x, i, dimension_numbers=numbers, slice_sizes=sizes)


TABLE = (sx.f32[6, 4], sx.s32[3])
TABLES = (sx.f32[2, 6, 4], sx.s32[2, 3])


class TestGather:
    def test_what_is_emitted(self):
        text = str(build(rows(), *TABLE))
        assert "offset_dims = [1], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>" in text
        assert "indices_are_sorted = false, slice_sizes = array<i64: 1, 4>" in text
        numbers = sx.GatherDimensionNumbers(**ROWS)
        sorted_ = build(
            lambda x, i: sx.gather(x, i, dimension_numbers=numbers, slice_sizes=(1, 4), indices_are_sorted=True), *TABLE
        )
        assert "indices_are_sorted = true" in str(sorted_)
        text = str(build(batched(), *TABLES))
        assert "operand_batching_dims = [0], start_indices_batching_dims = [0]" in text

    @pytest.mark.parametrize(
        ("make", "shapes", "result"),
        [
            (rows(), TABLE, sx.f32[3, 4]),
            (rows(offset_dims=(0,)), TABLE, sx.f32[4, 3]),
            (rows((2, 4), offset_dims=(1, 2), collapsed_slice_dims=()), TABLE, sx.f32[3, 2, 4]),
            (rows(index_vector_dim=0), (sx.f32[6, 4], sx.s64[1, 3]), sx.f32[3, 4]),
            (rows(offset_dims=(0,), index_vector_dim=0), (sx.f32[6, 4], sx.u8[()]), sx.f32[4]),
            (rows((1, 0)), TABLE, sx.f32[3, 0]),
            (batched(), TABLES, sx.f32[2, 3, 4]),
        ],
    )
    def test_shapes(self, make, shapes, result):
        assert build(make, *shapes).result_shape == result

    def test_every_type_verifies(self):
        for t in sx.ELEMENT_TYPES:
            assert build(rows(), t[6, 4], sx.s32[3]).result_shape == t[3, 4]
            if t.is_integer:
                assert build(rows(), sx.f32[6, 4], t[3]).result_shape == sx.f32[3, 4]

    def test_gather_i2(self):
        refused("I2", rows(), sx.f32[6, 4], sx.f32[3])
        refused("I2", rows(), sx.f32[6, 4], sx.pred[3])

    def test_gather_c1(self):
        error = refused("C1", rows(offset_dims=()), *TABLE)
        assert "operand has 2 dimensions" in error.summary
        assert "name 0, 1 and 0 of them" in error.summary

    def test_gather_c2(self):
        refused("C2", rows(index_vector_dim=2), *TABLE)
        error = refused("C2", rows(index_vector_dim=-1), *TABLE)
        assert "from 0 to 1, the rank of start_indices, and is -1" in error.summary

    def test_gather_c3(self):
        error = refused("C3", rows(), sx.f32[6, 4], sx.s32[3, 2])
        assert error.summary == "start_index_map has 1 entries, and index vectors have 2 numbers"
        refused("C3", rows(start_index_map=(0, 1)), *TABLE)

    def test_gather_c4(self):
        numbers = {"collapsed_slice_dims": (), "start_index_map": (0,)}
        for offsets in [(2, 1), (1, 1)]:
            refused("C4", rows((1, 4), offset_dims=offsets, **numbers), *TABLE)

    def test_gather_c5(self):
        for offset in (2, -1):
            error = refused("C5", rows(offset_dims=(offset,)), *TABLE)
            assert f"offset_dims: {offset} is no dimension of the result, of rank 2" in error.summary

    def test_gather_c6(self):
        refused("C6", rows((1, 1), offset_dims=(), collapsed_slice_dims=(0, 0)), *TABLE)
        refused("C6", batched(collapsed_slice_dims=(0,)), *TABLES)

    def test_gather_c7(self):
        refused("C7", rows((1, 1), offset_dims=(), collapsed_slice_dims=(1, 0)), *TABLE)

    def test_gather_c8(self):
        for dim in (2, -1):
            refused("C8", rows(collapsed_slice_dims=(dim,)), *TABLE)

    def test_gather_c9(self):
        error = refused("C9", rows((2, 4)), *TABLE)
        assert error.summary == "slice_sizes[0] must be 1, for 0 is in collapsed_slice_dims"

    def test_gather_c10(self):
        numbers = {"operand_batching_dims": (1, 0), "start_indices_batching_dims": (0, 1), "start_index_map": (2,)}
        refused("C10", batched(collapsed_slice_dims=(), **numbers), sx.f32[2, 3, 4], sx.s32[2, 3])

    def test_gather_c11(self):
        refused("C11", batched(operand_batching_dims=(3,)), *TABLES)
        refused("C11", batched(operand_batching_dims=(-1,)), *TABLES)

    def test_gather_c12(self):
        refused("C12", batched((2, 1, 4)), *TABLES)

    def test_gather_c13(self):
        numbers = {"operand_batching_dims": (0, 1), "start_indices_batching_dims": (0, 0), "start_index_map": (2,)}
        refused("C13", batched(collapsed_slice_dims=(), **numbers), sx.f32[2, 2, 4], sx.s32[2, 3])

    def test_gather_c14(self):
        refused("C14", batched(start_indices_batching_dims=(2,)), *TABLES)

    def test_gather_c15(self):
        changed = {"start_indices_batching_dims": (1,), "index_vector_dim": 1, "offset_dims": (1,)}
        refused("C15", batched(**changed), sx.f32[2, 6, 4], sx.s32[2, 1])

    def test_gather_c16(self):
        error = refused("C16", batched(start_indices_batching_dims=()), *TABLES)
        assert "operand_batching_dims has 1 entries, start_indices_batching_dims has 0" in error.summary

    def test_gather_c17(self):
        error = refused("C17", batched(), sx.f32[5, 6, 4], sx.s32[2, 3])
        assert "batching dimension 0 of operand has size 5, but 0 of start_indices 2" in error.summary

    def test_gather_c18(self):
        refused("C18", rows(start_index_map=(0, 0)), sx.f32[6, 4], sx.s32[3, 2])
        refused("C18", batched(start_index_map=(0,)), *TABLES)

    def test_gather_c19(self):
        for dim in (2, -1):
            refused("C19", rows(start_index_map=(dim,)), *TABLE)

    def test_gather_c20(self):
        refused("C20", rows((1,)), *TABLE)

    def test_gather_c21(self):
        refused("C21", rows((1, 5)), *TABLE)
        error = refused("C21", rows((1, -1)), *TABLE)
        assert error.summary == "slice_sizes[1] must be from 0 to 4, and is -1"

    def test_other_refusals(self):
        refused("", lambda x, i: sx.gather(x, i, dimension_numbers=(1, 0, 0, 1), slice_sizes=(1, 4)), *TABLE)
        refused(
            "",
            lambda x, i: sx.gather(x, 3, dimension_numbers=sx.GatherDimensionNumbers(**ROWS), slice_sizes=(1, 4)),
            *TABLE,
        )
        refused("", rows(("1", 4)), *TABLE)
        with pytest.raises(sx.ShapeError, match="offset_dims must be a sequence of integers"):
            rows(offset_dims=(0.5,))
        other = sx.XlaBuilder("other").parameter(0, sx.s32[3])
        refused(
            "",
            lambda x, i: sx.gather(x, other, dimension_numbers=sx.GatherDimensionNumbers(**ROWS), slice_sizes=(1, 4)),
            *TABLE,
        )


INTO_ROWS = {
    "update_window_dims": (1,),
    "inserted_window_dims": (0,),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 1,
}
INTO_BATCHES = {
    "update_window_dims": (2,),
    "inserted_window_dims": (1,),
    "scatter_dims_to_operand_dims": (1,),
    "index_vector_dim": 2,
    "input_batching_dims": (0,),
    "scatter_indices_batching_dims": (0,),
}
ADDED = (sx.f32[6, 4], sx.s32[3], sx.f32[3, 4])
ALL_ADDED = (sx.f32[2, 6, 4], sx.s32[2, 3], sx.f32[2, 3, 4])


def into_rows(computation: Any = sx.add, **changed: Any) -> Callable[..., Any]:
    """Added to rows of an array [6,4], with some numbers changed."""
    numbers = sx.ScatterDimensionNumbers(**{**INTO_ROWS, **changed})
    return lambda x, i, u: sx.scatter(x, i, u, computation, dimension_numbers=numbers)


def into_batches(**changed: Any) -> Callable[..., Any]:
    """Added to rows of each of several arrays, [2,6,4] at [2,3]."""
    numbers = sx.ScatterDimensionNumbers(**{**INTO_BATCHES, **changed})
    return lambda x, i, u: sx.scatter(x, i, u, sx.add, dimension_numbers=numbers)


class TestScatter:
    def test_what_is_emitted(self):
        text = str(build(into_rows(), *ADDED))
        assert "<update_window_dims = [1], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], " in text
        assert "indices_are_sorted = false" in text
        assert "unique_indices = false" in text
        numbers = sx.ScatterDimensionNumbers(**INTO_ROWS)

        def make(x: sx.XlaOp, i: sx.XlaOp, u: sx.XlaOp) -> sx.XlaOp:
            return sx.scatter(x, i, u, sx.add, dimension_numbers=numbers, indices_are_sorted=True, unique_indices=True)

        text = str(build(make, *ADDED))
        assert "indices_are_sorted = true" in text
        assert "unique_indices = true" in text
        assert "input_batching_dims = [0], scatter_indices_batching_dims = [0]" in str(
            build(into_batches(), *ALL_ADDED)
        )

    def test_several_operands(self):
        def make(x, y, i, u, v):
            swap = lambda a, b, c, d: (a + c, sx.max(b, d))  # noqa: E731
            return list(sx.scatter((x, y), i, (u, v), swap, dimension_numbers=sx.ScatterDimensionNumbers(**INTO_ROWS)))

        built = build(make, sx.f32[6, 4], sx.s8[6, 4], sx.s32[3], sx.f32[3, 4], sx.s8[3, 4])
        assert built.result_shape == sx.Shape.tuple([sx.f32[6, 4], sx.s8[6, 4]])

    def test_windows_may_be_smaller_than_the_operand(self):
        changed = {"inserted_window_dims": (), "update_window_dims": (1, 2)}
        assert build(into_rows(**changed), sx.f32[6, 4], sx.s32[3], sx.f32[3, 2, 3]).result_shape == sx.f32[6, 4]

    def test_a_wider_type(self):
        b = sx.XlaBuilder("sum")
        total = b.build(b.parameter(0, sx.f32[()]) + b.parameter(1, sx.f32[()]))
        assert build(into_rows(total), sx.bf16[6, 4], sx.s32[3], sx.bf16[3, 4]).result_shape == sx.f32[6, 4]

    def test_every_type_verifies(self):
        overwrite = into_rows(lambda there, new: new)
        for t in sx.ELEMENT_TYPES:
            assert build(overwrite, t[6, 4], sx.s32[3], t[3, 4]).result_shape == t[6, 4]

    def test_the_current_value_comes_first(self):
        x, i, u = np.float32([[10, 20]]), np.int32([0]), np.float32([[1, 2]])
        np.testing.assert_array_equal(evaluate(into_rows(sx.sub), x, i, u), [[9, 18]])

    def test_scatter_i2(self):
        refused("I2", into_rows(), sx.f32[6, 4], sx.f32[3], sx.f32[3, 4])

    def test_scatter_c1(self):

        def make(x: sx.XlaOp, y: sx.XlaOp, i: sx.XlaOp, u: sx.XlaOp) -> sx.XlaOp:
            return sx.scatter((x, y), i, (u, u), sx.add, dimension_numbers=sx.ScatterDimensionNumbers(**INTO_ROWS))

        refused("C1", make, sx.f32[6, 4], sx.f32[5, 4], sx.s32[3], sx.f32[3, 4])

    def test_scatter_c2(self):
        error = refused("C2", into_rows(inserted_window_dims=()), *ADDED)
        assert "the operands have 2 dimensions" in error.summary

    def test_scatter_c3(self):

        def make(x: sx.XlaOp, i: sx.XlaOp, u: sx.XlaOp, v: sx.XlaOp) -> sx.XlaOp:
            return sx.scatter((x, x), i, (u, v), sx.add, dimension_numbers=sx.ScatterDimensionNumbers(**INTO_ROWS))

        refused("C3", make, sx.f32[6, 4], sx.s32[3], sx.f32[3, 4], sx.f32[3, 3])

    @pytest.mark.parametrize("update", [sx.f32[3, 5], sx.f32[2, 4], sx.f32[3, 4, 1]])
    def test_scatter_c4(self, update):
        error = refused("C4", into_rows(), sx.f32[6, 4], sx.s32[3], update)
        assert "of the updates has size" in error.summary or "the updates must have 2 dimensions" in error.summary

    def test_scatter_c5(self):
        numbers = sx.ScatterDimensionNumbers(**INTO_ROWS)
        refused("C5", lambda x, i, u: sx.scatter((), i, (), sx.add, dimension_numbers=numbers), *ADDED)
        error = refused("C5", lambda x, i, u: sx.scatter((x, x), i, u, sx.add, dimension_numbers=numbers), *ADDED)
        assert error.summary == "there are 2 operands, and 1 updates"

    def test_scatter_c6(self):
        error = refused("C6", into_rows(), sx.f32[6, 4], sx.s32[3], sx.f64[3, 4])
        assert error.summary == "updates[0] must be of type f32 as its operand, not f64"

    def test_scatter_c7(self):
        for dims in [(2, 1), (1, 1)]:
            changed = {"update_window_dims": dims, "inserted_window_dims": ()}
            refused("C7", into_rows(**changed), sx.f32[6, 4], sx.s32[3], sx.f32[3, 2, 3])

    def test_scatter_c8(self):
        for dim in (2, -1):
            refused("C8", into_rows(update_window_dims=(dim,)), *ADDED)

    def test_scatter_c9(self):
        changed = {"update_window_dims": (), "inserted_window_dims": (0, 0)}
        refused("C9", into_rows(**changed), sx.f32[6, 4], sx.s32[3], sx.f32[3])
        refused("C9", into_batches(inserted_window_dims=(0,)), *ALL_ADDED)

    def test_scatter_c10(self):
        changed = {"update_window_dims": (), "inserted_window_dims": (1, 0)}
        refused("C10", into_rows(**changed), sx.f32[6, 4], sx.s32[3], sx.f32[3])

    def test_scatter_c11(self):
        for dim in (2, -1):
            refused("C11", into_rows(inserted_window_dims=(dim,)), *ADDED)

    def test_scatter_c12(self):
        changed = {
            "inserted_window_dims": (),
            "input_batching_dims": (1, 0),
            "scatter_indices_batching_dims": (0, 1),
            "scatter_dims_to_operand_dims": (2,),
        }
        refused("C12", into_batches(**changed), sx.f32[2, 3, 4], sx.s32[2, 3], sx.f32[2, 3, 4])

    def test_scatter_c13(self):
        refused("C13", into_batches(input_batching_dims=(3,)), *ALL_ADDED)

    def test_scatter_c14(self):
        changed = {
            "inserted_window_dims": (),
            "input_batching_dims": (0, 1),
            "scatter_indices_batching_dims": (0, 0),
            "scatter_dims_to_operand_dims": (2,),
        }
        refused("C14", into_batches(**changed), sx.f32[2, 2, 4], sx.s32[2, 3], sx.f32[2, 3, 4])

    def test_scatter_c15(self):
        refused("C15", into_batches(scatter_indices_batching_dims=(2,)), *ALL_ADDED)

    def test_scatter_c16(self):
        changed = {"scatter_indices_batching_dims": (1,), "index_vector_dim": 1, "update_window_dims": (1,)}
        refused("C16", into_batches(**changed), sx.f32[2, 6, 4], sx.s32[2, 1], sx.f32[2, 4])

    def test_scatter_c17(self):
        refused("C17", into_batches(scatter_indices_batching_dims=()), *ALL_ADDED)

    def test_scatter_c18(self):
        error = refused("C18", into_batches(), sx.f32[5, 6, 4], sx.s32[2, 3], sx.f32[2, 3, 4])
        assert "batching dimension 0 of operands has size 5, but 0 of scatter_indices 2" in error.summary

    def test_scatter_c19(self):
        error = refused("C19", into_rows(), sx.f32[6, 4], sx.s32[3, 2], sx.f32[3, 4])
        assert error.summary == "scatter_dims_to_operand_dims has 1 entries, and index vectors have 2 numbers"

    def test_scatter_c20(self):
        refused("C20", into_rows(scatter_dims_to_operand_dims=(0, 0)), sx.f32[6, 4], sx.s32[3, 2], sx.f32[3, 4])
        refused("C20", into_batches(scatter_dims_to_operand_dims=(0,)), *ALL_ADDED)

    def test_scatter_c21(self):
        for dim in (2, -1):
            refused("C21", into_rows(scatter_dims_to_operand_dims=(dim,)), *ADDED)

    def test_scatter_c22(self):
        for dim in (2, -1):
            refused("C22", into_rows(index_vector_dim=dim), *ADDED)

    def test_scatter_c23(self):
        refused("C23", into_rows(lambda a, u: a > u), *ADDED)
        refused("C23", into_rows(lambda a, u: (a, u)), *ADDED)
        b = sx.XlaBuilder("sum")
        narrow = b.build(b.parameter(0, sx.f16[()]) + b.parameter(1, sx.f16[()]))
        error = refused("C23", into_rows(narrow), *ADDED)
        assert "must take and return scalars of the operands' types" in error.summary

    def test_other_refusals(self):
        refused("", lambda x, i, u: sx.scatter(x, i, u, sx.add, dimension_numbers={}), *ADDED)
        refused(
            "",
            lambda x, i, u: sx.scatter(x, [0], u, sx.add, dimension_numbers=sx.ScatterDimensionNumbers(**INTO_ROWS)),
            *ADDED,
        )
        with pytest.raises(sx.ShapeError, match="update_window_dims must be a sequence of integers"):
            into_rows(update_window_dims="1")


class TestInTorchsWords:
    def test_shapes(self):
        select = lambda x, i: sx.torch_index_select(x, i, 1)  # noqa: E731
        assert build(select, sx.f32[2, 3, 4], sx.s32[5, 6]).result_shape == sx.f32[2, 5, 6, 4]
        each = lambda x, i: sx.torch_index_select(x, i, 2, batch_dims=1)  # noqa: E731
        assert build(each, sx.f32[2, 3, 4], sx.s32[2, 6]).result_shape == sx.f32[2, 3, 6]
        along = lambda x, i: sx.torch_gather(x, i, 1)  # noqa: E731
        assert build(along, sx.f32[2, 3, 4], sx.s32[2, 7, 3]).result_shape == sx.f32[2, 7, 3]

    def test_torch_index_select_i2(self):
        refused("I2", lambda x, i: sx.torch_index_select(x, i, 0), sx.f32[2], sx.f32[3])

    def test_torch_gather_i2(self):
        refused("I2", lambda x, i: sx.torch_gather(x, i, 0), sx.f32[2], sx.f32[3])

    def test_torch_index_select_refusals(self):
        for dim, batch in [(3, 0), (-1, 0), (0, 1), (2, 3), (1, -1), (2, 2)]:
            make = lambda x, i, d=dim, b=batch: sx.torch_index_select(x, i, d, b)  # noqa: E731
            refused("", make, sx.f32[2, 3, 4], sx.s32[2, 6])

    def test_torch_gather_refusals(self):
        refused("", lambda x, i: sx.torch_gather(x, i, 2), sx.f32[2, 3], sx.s32[2, 3])
        refused("", lambda x, i: sx.torch_gather(x, i, 0), sx.f32[2, 3], sx.s32[2])
        refused("", lambda x, i: sx.torch_gather(x, i, 0), sx.f32[2, 3], sx.s32[2, 4])


class TestDimensionsOneByOne:
    """Parameters as XLA's operation semantics has them; one value of all dimensions says the same."""

    def test_gather(self):
        b = sx.XlaBuilder("one")
        x, i = b.parameter(0, sx.f32[5, 4]), b.parameter(1, sx.s32[3])
        one = sx.gather(x, i, 1, (1,), (1, 4), (0,), (0,), True)
        named = sx.gather(
            start_indices=i,
            operand=x,
            index_vector_dim=1,
            offset_dims=(1,),
            slice_sizes=(1, 4),
            collapsed_slice_dims=(0,),
            start_index_map=(0,),
            indices_are_sorted=True,
        )
        numbers = sx.GatherDimensionNumbers(**ROWS)
        whole = sx.gather(x, i, dimension_numbers=numbers, slice_sizes=(1, 4), indices_are_sorted=True)
        one_by_one, by_name, at_once = (str(op.values[0].owner).partition("=")[2] for op in (one, named, whole))
        assert one_by_one == by_name == at_once

    def test_scatter(self):
        b = sx.XlaBuilder("one")
        x, i, u = b.parameter(0, sx.f32[5, 4]), b.parameter(1, sx.s32[3]), b.parameter(2, sx.f32[3, 4])
        one = sx.scatter(x, i, u, sx.add, 1, (1,), (0,), (0,), False, True)
        numbers = sx.ScatterDimensionNumbers(**INTO_ROWS)
        whole = sx.scatter(x, i, u, sx.add, dimension_numbers=numbers, unique_indices=True)
        for name in ("scatter_dimension_numbers", "indices_are_sorted", "unique_indices"):
            assert one.values[0].owner.attributes[name] == whole.values[0].owner.attributes[name]

    def test_what_is_not_said(self):
        error = refused("", lambda x, i: sx.gather(x, i, 1, (1,), (1, 4), (0,)), *TABLE)
        assert "start_index_map must be given" in error.summary

    def test_the_way_out_takes_rows(self):
        b = sx.XlaBuilder("rows")
        operand, start_indices = b.parameter(0, sx.f32[5, 4, 2]), b.parameter(1, sx.s32[3, 6])
        operands, scatter_indices, updates = operand, start_indices, b.parameter(2, sx.f32[3, 6, 4, 2])
        names = {**locals(), "update_computation": sx.add, "sx": sx}
        with pytest.raises(sx.ShapeError) as raised:
            sx.gather(operand, start_indices)
        assert eval(raised.value.hint.partition(", where")[0], names).shape == sx.f32[3, 6, 4, 2]
        with pytest.raises(sx.ShapeError) as raised:
            sx.scatter(operands, scatter_indices, updates, sx.add)
        assert eval(raised.value.hint.partition(", where")[0], names).shape == operand.shape

    def test_what_is_said_twice(self):
        numbers = sx.GatherDimensionNumbers(**ROWS)
        error = refused("", lambda x, i: sx.gather(x, i, 1, None, (1, 4), dimension_numbers=numbers), *TABLE)
        assert "index_vector_dim and dimension_numbers must not both be given" in error.summary
