"""Gather and scatter: slices and updates at positions that arrays of indices give."""

from __future__ import annotations

from collections.abc import Sequence

from stablexla.builder.checking import Operands, Rules, Sizes, checking, same
from stablexla.builder.computation import Computation
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.attributes.index_numbers import GatherDimensionNumbers, ScatterDimensionNumbers
from stablexla.dialects.shapes import Shape
from stablexla.ops.shape import slice
from stablexla.ops.support.combiners import checked_combiner
from stablexla.ops.support.index_numbers import (
    IndexVectors,
    NamedShape,
    ascends,
    check_range,
    chosen_numbers,
    differ,
    named_dimensions,
)

__all__ = ["gather", "scatter", "torch_gather", "torch_index_select"]


@operation("stablehlo.gather")
def gather(
    operand: XlaOp,
    start_indices: XlaOp,
    index_vector_dim: int | None = None,
    offset_dims: Sequence[int] | None = None,
    slice_sizes: Sizes | None = None,
    collapsed_slice_dims: Sequence[int] | None = None,
    start_index_map: Sequence[int] | None = None,
    indices_are_sorted: bool = False,
    *,
    operand_batching_dims: Sequence[int] = (),
    start_indices_batching_dims: Sequence[int] = (),
    dimension_numbers: GatherDimensionNumbers | None = None,
) -> XlaOp:
    """Slices of `operand`, one for each index vector in `start_indices`.

    A start is clamped so that its slice is within `operand`. The result has the dimensions of the indices, without the
    vectors' own, and among them those of a slice, at `offset_dims`.

    Args:
        operand: an array.
        start_indices: an array of integers.
        index_vector_dim: the dimension of `start_indices` along a vector; its rank, when each number is one.
        offset_dims: the result's dimensions that run through a slice.
        slice_sizes: the size of a slice in each dimension of `operand`.
        collapsed_slice_dims: dimensions of `operand`, of size 1 in a slice, that the result drops; without it none.
        start_index_map: for each number of an index vector the dimension of `operand` that it points into.
        indices_are_sorted: a promise that the starts ascend.
        operand_batching_dims: dimensions of `operand` that go along with dimensions of the indices,
        start_indices_batching_dims: namely with these.
        dimension_numbers: all dimensions as one value, in place of the single ones.

    Raises:
        ShapeError: (C1) the dimensions of `operand` are not all in a slice, collapsed or batching; (C2, C3) index
            vectors of another length than `start_index_map`; (C4, C5) `offset_dims` out of order, or of the result; (C6
            to C9) `collapsed_slice_dims` out of order, of `operand`, or not of size 1 in a slice; (C10 to C17) batching
            dimensions that do not fit together; (C18, C19) `start_index_map` with a dimension twice, or none of
            `operand`; (C20, C21) slice sizes that are not those of a part of `operand`.

    Source: `Gather` of XLA's operation semantics; StableHLO `gather`.

    >>> b = sx.XlaBuilder("example")
    >>> table, rows = b.parameter(0, sx.f32[50, 8]), b.parameter(1, sx.s32[3])
    >>> sx.gather(table, rows, 1, offset_dims=(1,), slice_sizes=(1, 8), collapsed_slice_dims=(0,), start_index_map=(0,))
    XlaOp(stablehlo.gather, f32[3,8])
    """
    with checking("gather", operand=operand, start_indices=start_indices) as rule:
        x, starts = rule.op("operand", operand), rule.op("start_indices", start_indices)
        rule.one_builder([x, starts])
        rule.arrays(operand=x, start_indices=starts)
        rule("I2", starts.shape.element_type.is_integer, "start_indices must be of integer type")
        single = {
            "offset_dims": offset_dims,
            "collapsed_slice_dims": collapsed_slice_dims,
            "start_index_map": start_index_map,
            "index_vector_dim": index_vector_dim,
            "operand_batching_dims": operand_batching_dims,
            "start_indices_batching_dims": start_indices_batching_dims,
        }
        numbers = chosen_numbers(rule, GatherDimensionNumbers, dimension_numbers, single, x.shape, starts.shape)
        sizes = rule.sizes("slice_sizes", slice_sizes)
        is_sorted = rule.truth("indices_are_sorted", indices_are_sorted)
        rule.operands.update(dimension_numbers=numbers, slice_sizes=sizes)
        shape = _gathered(rule, x.shape, starts.shape, numbers, sizes)
    attributes = {
        "dimension_numbers": numbers.attribute(x.builder.context),
        "slice_sizes": sizes,
        "indices_are_sorted": is_sorted,
    }
    return x.builder.emit("stablehlo.gather", [x, starts], shape, attributes)


def _gathered(
    rule: Rules, given: Shape, starts: Shape, numbers: GatherDimensionNumbers, sizes: tuple[int, ...]
) -> Shape:
    """C1 to C22; the result's shape."""
    offsets = rule.integers("offset_dims", numbers.offset_dims)
    collapsed = rule.integers("collapsed_slice_dims", numbers.collapsed_slice_dims)
    vectors = IndexVectors(
        rule,
        NamedShape("operand", given),
        NamedShape("start_indices", starts),
        rule.integer("index_vector_dim", numbers.index_vector_dim),
        named_dimensions(rule, "start_index_map", numbers.start_index_map),
        named_dimensions(rule, "operand_batching_dims", numbers.operand_batching_dims),
        named_dimensions(rule, "start_indices_batching_dims", numbers.start_indices_batching_dims),
    )
    batching = vectors.batching.value
    rule(
        "C1",
        given.rank == len(offsets) + len(collapsed) + len(batching),
        f"operand has {given.rank} dimensions, and offset_dims, collapsed_slice_dims and operand_batching_dims name "
        f"{len(offsets)}, {len(collapsed)} and {len(batching)} of them",
    )
    vectors.check_vectors("C2", "C3")
    rule("C4", ascends(offsets), "offset_dims must ascend, without a dimension twice")
    rank = len(vectors.sizes) + len(offsets)
    check_range(rule, "C5", "offset_dims", offsets, rank, "the result")
    rule(
        "C6",
        differ(collapsed + batching),
        "collapsed_slice_dims and operand_batching_dims must not have a dimension twice",
    )
    rule("C7", ascends(collapsed), "collapsed_slice_dims must ascend")
    check_range(rule, "C8", "collapsed_slice_dims", collapsed, given.rank, "operand")
    vectors.check_batching(("C10", "C11", "C13", "C14", "C15", "C16", "C17"))
    vectors.check_map("C18", "C19")
    rule("C20", len(sizes) == given.rank, "slice_sizes must have one entry for each dimension of operand")
    for place, (size, whole) in enumerate(zip(sizes, given.dimensions)):
        rule("C21", 0 <= size <= whole, f"slice_sizes[{place}] must be from 0 to {whole}, and is {size}")
    for number, name, chosen in (("C9", "collapsed_slice_dims", collapsed), ("C12", "operand_batching_dims", batching)):
        for place in chosen:
            rule(number, sizes[place] <= 1, f"slice_sizes[{place}] must be 1, for {place} is in {name}")
    in_slice = iter([size for place, size in enumerate(sizes) if place not in collapsed + batching])
    others = iter(vectors.sizes)
    return given.with_dimensions(next(in_slice if place in offsets else others) for place in range(rank))


@operation("stablehlo.scatter")
def scatter(
    operands: Operands,
    scatter_indices: XlaOp,
    updates: Operands,
    update_computation: Computation,
    index_vector_dim: int | None = None,
    update_window_dims: Sequence[int] | None = None,
    inserted_window_dims: Sequence[int] | None = None,
    scatter_dims_to_operand_dims: Sequence[int] | None = None,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    *,
    input_batching_dims: Sequence[int] = (),
    scatter_indices_batching_dims: Sequence[int] = (),
    dimension_numbers: ScatterDimensionNumbers | None = None,
) -> XlaOp:
    """The operands with windows of `updates` combined into them, each at its index vector.

    Updates outside of the operands are dropped. Where several updates address one element, all of them are combined
    with it; the order is not fixed.

    Args:
        operands: N arrays of the same dimensions.
        scatter_indices: an array of integers.
        updates: N arrays of the same dimensions, of the operands' element types.
        update_computation: the combiner: takes N present values and N updates, and returns N values; for N above 1 as a
            tuple.
        index_vector_dim: the dimension of `scatter_indices` along a vector; its rank, when each number is one.
        update_window_dims: the updates' dimensions that run through a window.
        inserted_window_dims: the operands' dimensions, of size 1 in a window, that the updates drop; without it none.
        scatter_dims_to_operand_dims: for each number of an index vector the dimension of the operands that it points
            into.
        indices_are_sorted: a promise that the index vectors ascend.
        unique_indices: a promise that no two updates address one element.
        input_batching_dims: dimensions of the operands that go along with dimensions of the indices,
        scatter_indices_batching_dims: namely with these.
        dimension_numbers: all dimensions as one value, in place of the single ones.

    Returns:
        An array for N = 1, else a tuple of N.

    Raises:
        ShapeError: (C1, C3) dimensions of the operands, or of the updates, differ; (C2) the operands' dimensions are
            not all in a window, inserted or batching; (C4) updates of other sizes; (C5, C6) not as many updates as
            operands, or of other types; (C7, C8) `update_window_dims` out of order, or of the updates; (C9 to C11)
            `inserted_window_dims` out of order, or of the operands; (C12 to C18) batching dimensions that do not fit
            together; (C19, C22) index vectors of another length than `scatter_dims_to_operand_dims`; (C20, C21) in
            which a dimension comes twice, or is none of the operands'; (C23) a computation of other types.

    Source: `Scatter` of XLA's operation semantics; StableHLO `scatter`.

    >>> b = sx.XlaBuilder("example")
    >>> counts, values = b.parameter(0, sx.s32[10]), b.parameter(1, sx.s32[100])
    >>> ones = sx.broadcast(b.constant(1), (100,))
    >>> sx.scatter(counts, values, ones, sx.add, 1, (), (0,), (0,))
    XlaOp(stablehlo.scatter, s32[10])
    """
    with checking("scatter", operands=operands, scatter_indices=scatter_indices, updates=updates) as rule:
        xs, us = rule.sequence("operands", operands), rule.sequence("updates", updates)
        indices = rule.op("scatter_indices", scatter_indices)
        _check_scattered(rule, xs, indices, us)
        single = {
            "update_window_dims": update_window_dims,
            "inserted_window_dims": inserted_window_dims,
            "scatter_dims_to_operand_dims": scatter_dims_to_operand_dims,
            "index_vector_dim": index_vector_dim,
            "input_batching_dims": input_batching_dims,
            "scatter_indices_batching_dims": scatter_indices_batching_dims,
        }
        shapes = xs[0].shape, indices.shape
        numbers = chosen_numbers(rule, ScatterDimensionNumbers, dimension_numbers, single, *shapes)
        rule.operands.update(dimension_numbers=numbers)
        promises = {
            "indices_are_sorted": rule.truth("indices_are_sorted", indices_are_sorted),
            "unique_indices": rule.truth("unique_indices", unique_indices),
        }
        _check_windows(rule, xs[0].shape, indices.shape, us[0].shape, numbers)
        types = [x.shape.element_type for x in xs]
        body = checked_combiner(rule, "C23", xs[0], update_computation, types, "update_computation")
    results = [x.shape.with_element_type(leaf.element_type) for x, leaf in zip(xs, body.result_shape.leaves)]
    attributes = {
        "scatter_dimension_numbers": numbers.attribute(xs[0].builder.context),
        **promises,
    }
    result = results[0] if len(results) == 1 else Shape.tuple(results)
    return xs[0].builder.emit("stablehlo.scatter", [*xs, indices, *us], result, attributes, [body])


def _check_scattered(rule: Rules, xs: Sequence[XlaOp], indices: XlaOp, us: Sequence[XlaOp]) -> None:
    """C1, C3, C5, C6: operands and updates belong together."""
    rule("C5", bool(xs), "there must be an operand")
    rule("C5", len(xs) == len(us), f"there are {len(xs)} operands, and {len(us)} updates")
    rule.one_builder([*xs, indices, *us])
    for name, ops in (("operands", xs), ("updates", us)):
        for number, op in enumerate(ops):
            rule("", op.shape.is_array, f"{name}[{number}] must be an array")
    rule.arrays(scatter_indices=indices)
    rule("I2", indices.shape.element_type.is_integer, "scatter_indices must be of integer type")
    rule("C1", same(x.shape.dimensions for x in xs), "the operands must have the same dimensions")
    rule("C3", same(u.shape.dimensions for u in us), "the updates must have the same dimensions")
    for number, (x, u) in enumerate(zip(xs, us)):
        wanted, given = x.shape.element_type, u.shape.element_type
        rule("C6", given is wanted, f"updates[{number}] must be of type {wanted} as its operand, not {given}")


def _check_windows(
    rule: Rules, operand: Shape, indices: Shape, update: Shape, numbers: ScatterDimensionNumbers
) -> None:
    """C2, C4, C7 to C22."""
    windows = rule.integers("update_window_dims", numbers.update_window_dims)
    inserted = rule.integers("inserted_window_dims", numbers.inserted_window_dims)
    vectors = IndexVectors(
        rule,
        NamedShape("operands", operand),
        NamedShape("scatter_indices", indices),
        rule.integer("index_vector_dim", numbers.index_vector_dim),
        named_dimensions(rule, "scatter_dims_to_operand_dims", numbers.scatter_dims_to_operand_dims),
        named_dimensions(rule, "input_batching_dims", numbers.input_batching_dims),
        named_dimensions(rule, "scatter_indices_batching_dims", numbers.scatter_indices_batching_dims),
    )
    batching = vectors.batching.value
    rule(
        "C2",
        operand.rank == len(windows) + len(inserted) + len(batching),
        f"the operands have {operand.rank} dimensions, and update_window_dims, inserted_window_dims and "
        f"input_batching_dims name {len(windows)}, {len(inserted)} and {len(batching)} of them",
    )
    vectors.check_vectors("C22", "C19")
    rule("C7", ascends(windows), "update_window_dims must ascend, without a dimension twice")
    check_range(rule, "C8", "update_window_dims", windows, update.rank, "the updates")
    both = "inserted_window_dims and input_batching_dims must not have a dimension twice"
    rule("C9", differ(inserted + batching), both)
    rule("C10", ascends(inserted), "inserted_window_dims must ascend")
    check_range(rule, "C11", "inserted_window_dims", inserted, operand.rank, "the operands")
    vectors.check_batching(("C12", "C13", "C14", "C15", "C16", "C17", "C18"))
    vectors.check_map("C20", "C21")
    others = vectors.sizes
    rank = len(others) + len(windows)
    rule("C4", update.rank == rank, f"the updates must have {rank} dimensions, and have {update.rank}")
    whole = [size for place, size in enumerate(operand.dimensions) if place not in inserted + batching]
    for place, most in zip(windows, whole):
        size = update.dimensions[place]
        rule("C4", size <= most, f"dimension {place} of the updates has size {size}, the operands' has {most}")
    over = [(place, size) for place, size in enumerate(update.dimensions) if place not in windows]
    for (place, size), wanted in zip(over, others):
        rule("C4", size == wanted, f"dimension {place} of the updates has size {size}, the indices' has {wanted}")


@operation("stablehlo.torch_index_select")
def torch_index_select(input: XlaOp, index: XlaOp, dim: int, batch_dims: int = 0) -> XlaOp:
    """The slices of `input` at `index` along the dimension `dim`.

    An index is clamped to the range of `input`.

    Args:
        input: an array.
        index: an array of integers, whose dimensions take the place of `dim`.
        dim: a dimension of `input`.
        batch_dims: so many of the first dimensions of both go together; they come before `dim`.

    Raises:
        ShapeError: `dim` is no dimension of `input`, `batch_dims` are not before it, or differ in size.

    Source: XLA's builder; StableHLO `torch_index_select`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.torch_index_select(b.parameter(0, sx.f32[4, 5, 6]), b.parameter(1, sx.s32[2, 3]), 1)
    XlaOp(stablehlo.torch_index_select, f32[4,2,3,6])
    """
    with checking("torch_index_select", input=input, index=index, dim=dim, batch_dims=batch_dims) as rule:
        x, places = _indexed(rule, input, index)
        along, batch = rule.integer("dim", dim), rule.integer("batch_dims", batch_dims)
        check_range(rule, "", "dim", (along,), x.shape.rank, "input")
        most = min(along, places.shape.rank)
        rule("", 0 <= batch <= most, f"batch_dims must be from 0 to {most}, and is {batch}")
        sizes, others = x.shape.dimensions, places.shape.dimensions
        rule("", sizes[:batch] == others[:batch], f"the first {batch} dimensions of input and index must be equal")
    shape = x.shape.with_dimensions((*sizes[:along], *others[batch:], *sizes[along + 1 :]))
    attributes = {"dim": along, "batch_dims": batch}
    return x.builder.emit("stablehlo.torch_index_select", [x, places], shape, attributes)


@operation("stablehlo.gather")
def torch_gather(input: XlaOp, index: XlaOp, dim: int) -> XlaOp:
    """For each element of `index` the one of `input` at the same place, but in the dimension `dim` at the index.

    An index is clamped to the range of `input`.

    Raises:
        ShapeError: `dim` is no dimension; `index` has another rank, or is bigger than `input` in another dimension.

    Source: XLA's builder; `numpy.take_along_axis`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.torch_gather(b.parameter(0, sx.f32[4, 5]), b.parameter(1, sx.s32[4, 2]), 1)
    XlaOp(stablehlo.gather, f32[4,2])
    """
    with checking("torch_gather", input=input, index=index, dim=dim) as rule:
        x, places = _indexed(rule, input, index)
        along = rule.integer("dim", dim)
        check_range(rule, "", "dim", (along,), x.shape.rank, "input")
        rule("", places.shape.rank == x.shape.rank, "index must have input's rank")
        for place, (size, most) in enumerate(zip(places.shape.dimensions, x.shape.dimensions)):
            fits = place == along or size <= most
            rule("", fits, f"dimension {place} of index has size {size}, input's has {most}")
    limits = [*places.shape.dimensions]
    limits[along] = x.shape.dimensions[along]
    x = slice(x, (0,) * x.shape.rank, limits)
    others = tuple(place for place in range(x.shape.rank) if place != along)
    numbers = GatherDimensionNumbers((), (along,), (along,), x.shape.rank, others, others)
    return gather(x, places, dimension_numbers=numbers, slice_sizes=(1,) * x.shape.rank)


def _indexed(rule: Rules, input: XlaOp, index: XlaOp) -> tuple[XlaOp, XlaOp]:
    """An array, and an array of indices."""
    x, places = rule.op("input", input), rule.op("index", index)
    rule.one_builder([x, places])
    rule.arrays(input=x, index=places)
    rule("I2", places.shape.element_type.is_integer, "index must be of integer type")
    return x, places
