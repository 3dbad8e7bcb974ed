"""Rows of tables of embeddings, bags of them, and the gradients of both."""

from __future__ import annotations

import math

import stablexla as sx
from stablexla.interop.torch.call import (
    Call,
    convert,
    full_like,
    running_sum,
    total,
    wide,
    zeros_like,
)
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.rules.indexing import rows_of

SUM, MEAN, MAX = range(3)


def _flat(index: sx.XlaOp) -> sx.XlaOp:
    return sx.reshape(convert(index, "s64"), (index.shape.size,))


def _column(x: sx.XlaOp, sizes: tuple[int, ...]) -> sx.XlaOp:
    """Return one number for each row in rows of these sizes."""
    return sx.broadcast_in_dim(x, sizes, (0,))


def _add_rows(table: sx.XlaOp, index: sx.XlaOp, rows: sx.XlaOp, ascending: bool = False) -> sx.XlaOp:
    """Return a table with rows added at an index; those at -1 are left out."""
    if not rows.shape.size:
        return table
    windows = tuple(range(1, table.shape.rank))
    return sx.scatter(table, index, rows, sx.add, 1, windows, (0,), (0,), ascending)


def _counts(index: sx.XlaOp, size: int) -> sx.XlaOp:
    """Return how often each number below `size` is in an index."""
    return _add_rows(full_like(index, 0, (size,)), index, full_like(index, 1))


@aten("aten.embedding.default")
def embedding(call: Call, weight: sx.XlaOp, indices: sx.XlaOp, *_: object) -> sx.XlaOp:
    # What else there is concerns the gradient.
    return rows_of(weight, 0, indices) if math.prod(call.dimensions) else full_like(weight, 0, call.dimensions)


@aten("aten.embedding_dense_backward.default")
def embedding_dense_backward(
    call: Call, grad: sx.XlaOp, indices: sx.XlaOp, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> sx.XlaOp:
    index = _flat(indices)
    rows = sx.reshape(wide(grad), (*index.shape.dimensions, *call.dimensions[1:]))
    return _weight_gradient(call, index, rows, padding_idx, scale_grad_by_freq)


def _weight_gradient(call: Call, index: sx.XlaOp, rows: sx.XlaOp, padding_idx: int, by_frequency: bool) -> sx.XlaOp:
    """Return the sums of the gradient's rows for each row of the table, but for the one that pads."""
    if by_frequency and rows.shape.size:
        often = rows_of(_counts(index, call.dimensions[0]), 0, index)
        rows = sx.div(rows, _column(convert(often, rows.element_type), rows.shape.dimensions))
    return _add_rows(full_like(rows, 0, call.dimensions), _without(index, padding_idx), rows)


def _without(index: sx.XlaOp, padding_idx: int) -> sx.XlaOp:
    """Return an index with -1, which is no row, in the place of padding."""
    return index if padding_idx < 0 else sx.select(sx.eq(index, padding_idx), full_like(index, -1), index)


@aten("aten.embedding_renorm.default")
def embedding_renorm(call: Call, weight: sx.XlaOp, indices: sx.XlaOp, max_norm: float, norm_type: float) -> sx.XlaOp:
    """The rows that an index names, scaled to the norm that is allowed."""
    x = wide(weight)
    count = x.shape.dimensions[0]
    shape = sx.Shape(x.element_type, (count,))
    norm = call.apply("aten.linalg_vector_norm.default", x, norm_type, [1], shape=shape)
    used = sx.gt(_counts(_flat(indices), count), 0)
    scale = sx.div(full_like(norm, max_norm), sx.add(norm, 1e-7))
    scale = sx.select(sx.and_(used, sx.gt(norm, max_norm)), scale, full_like(norm, 1))
    return sx.mul(x, _column(scale, x.shape.dimensions))


# ---- bags ----


def _bags(offsets: sx.XlaOp, count: int) -> sx.XlaOp:
    """Return the bag of each of `count` rows: how many bags have begun, less one."""
    begun = _add_rows(full_like(offsets, 0, (count,)), offsets, full_like(offsets, 1))
    return sx.sub(running_sum(begun), 1)


@aten("aten._embedding_bag.default", "aten._embedding_bag_forward_only.default")
def embedding_bag(
    call: Call,
    weight: sx.XlaOp,
    indices: sx.XlaOp,
    offsets: sx.XlaOp,
    scale_grad_by_freq: bool,
    mode: int,
    sparse: bool,
    per_sample_weights: sx.XlaOp | None,
    include_last_offset: bool,
    padding_idx: int,
) -> list[sx.XlaOp]:
    """Sums, means or maxima of bags of rows; the bag of each row; the bags' sizes; where the maxima are."""
    index, offsets = _flat(indices), convert(offsets, "s64")
    (count,), sizes = index.shape.dimensions, call.dimensions
    bag = _bags(offsets, count)
    own = bag if padding_idx < 0 else sx.select(sx.eq(index, padding_idx), full_like(bag, -1), bag)
    bag_size = _counts(own, sizes[0])
    table = wide(weight)
    rows = rows_of(table, 0, index) if count else full_like(table, 0, (0, sizes[1]))
    if per_sample_weights is not None:
        rows = sx.mul(rows, _column(convert(per_sample_weights, rows.element_type), rows.shape.dimensions))
    places = call.constant(0, "s64", sizes)
    if mode == MAX:
        made, places = _largest(rows, index, own, bag_size, sizes)
    else:
        made = _add_rows(full_like(rows, 0, sizes), own, rows, ascending=padding_idx < 0)
    if mode == MEAN:
        made = sx.div(made, _column(convert(sx.max(bag_size, full_like(bag_size, 1)), made.element_type), sizes))
    shapes = [shape.dimensions for shape in call.shapes if shape is not None]
    others = [bag, bag_size, places if mode == MAX else bag_size]
    return [made, *(_as_sized(call, x, wanted) for x, wanted in zip(others, shapes[1:]))]


def _as_sized(call: Call, x: sx.XlaOp, sizes: tuple[int, ...]) -> sx.XlaOp:
    """Return what a gradient needs in PyTorch's sizes; zeros where these are others, and no gradient needs it."""
    return x if x.shape.dimensions == sizes else call.constant(0, "s64", sizes)


def _largest(
    rows: sx.XlaOp, index: sx.XlaOp, bag: sx.XlaOp, bag_size: sx.XlaOp, sizes: tuple[int, ...]
) -> tuple[sx.XlaOp, sx.XlaOp]:
    """Return the maxima of bags, 0 for empty ones, and which row of the table each is from: the first in its bag."""
    count = rows.shape.dimensions[0]
    if not rows.shape.size:
        return full_like(rows, 0, sizes), full_like(index, 0, sizes)
    made = sx.scatter(full_like(rows, -math.inf, sizes), bag, rows, sx.max, 1, (1,), (0,), (0,))
    is_largest = sx.eq(rows, rows_of(made, 0, bag))
    place = rows.builder.iota(sx.s64[rows.shape.dimensions], 0)
    place = sx.select(is_largest, place, full_like(place, count - 1))
    first = sx.scatter(full_like(place, count - 1, sizes), bag, place, sx.min, 1, (1,), (0,), (0,))
    is_full = _column(sx.gt(bag_size, 0), sizes)
    found = rows_of(index, 0, first)
    return sx.select(is_full, made, zeros_like(made)), sx.select(is_full, found, zeros_like(found))


@aten("aten._embedding_bag_dense_backward.default")
def embedding_bag_dense_backward(
    call: Call,
    grad: sx.XlaOp,
    indices: sx.XlaOp,
    offset2bag: sx.XlaOp,
    bag_size: sx.XlaOp,
    maximum_indices: sx.XlaOp,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    per_sample_weights: sx.XlaOp | None,
    padding_idx: int,
) -> sx.XlaOp:
    index, grad = _flat(indices), wide(grad)
    if not index.shape.size or not grad.shape.size:
        return full_like(grad, 0, call.dimensions)
    if mode == MAX:
        return _to_largest(call, grad, bag_size, convert(maximum_indices, "s64"))
    bag = convert(offset2bag, "s64")
    rows = rows_of(grad, 0, bag)
    sizes = rows.shape.dimensions
    if per_sample_weights is not None:
        rows = sx.mul(rows, _column(convert(per_sample_weights, rows.element_type), sizes))
    if mode == MEAN:
        rows = sx.div(rows, _column(rows_of(convert(bag_size, rows.element_type), 0, bag), sizes))
    return _weight_gradient(call, index, rows, padding_idx, scale_grad_by_freq)


def _to_largest(call: Call, grad: sx.XlaOp, bag_size: sx.XlaOp, places: sx.XlaOp) -> sx.XlaOp:
    """Return the table's gradient of maxima: each element of a bag's goes to the row that it came from."""
    empty = _column(sx.eq(bag_size, zeros_like(bag_size)), places.shape.dimensions)
    places = sx.select(empty, full_like(places, -1), places)
    numbers = sx.ScatterDimensionNumbers((), (0,), (0,), 2, (1,), (1,))
    return sx.scatter(full_like(grad, 0, call.dimensions), places, grad, sx.add, dimension_numbers=numbers)


@aten("aten._embedding_bag_per_sample_weights_backward.default")
def embedding_bag_per_sample_weights_backward(
    call: Call,
    grad: sx.XlaOp,
    weight: sx.XlaOp,
    indices: sx.XlaOp,
    offsets: sx.XlaOp,
    offset2bag: sx.XlaOp,
    mode: int,
    padding_idx: int,
) -> sx.XlaOp:
    """For each row of the table that was taken its product with the bag's gradient."""
    index = _flat(indices)
    if not index.shape.size:
        return full_like(grad, 0, call.dimensions)
    bag = _bags(convert(offsets, "s64"), index.shape.dimensions[0])
    made = total(sx.mul(rows_of(wide(grad), 0, bag), rows_of(wide(weight), 0, index)), (1,))
    return made if padding_idx < 0 else sx.select(sx.eq(index, padding_idx), zeros_like(made), made)
