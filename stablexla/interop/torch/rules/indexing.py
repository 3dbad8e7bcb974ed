"""Elements and rows at positions that tensors give: read, written, added and replaced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import stablexla as sx
from stablexla.dialects.element_types import ElementType
from stablexla.interop.torch.call import (
    Call,
    Value,
    broadcast,
    broadcast_sizes,
    convert,
    full_like,
    highest,
    lowest,
    place,
    running_sum,
    unknown_size,
    wide,
    zeros_like,
)
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.types import Number

Combiner = Callable[[sx.XlaOp, sx.XlaOp], sx.XlaOp]


def _latter(_: sx.XlaOp, new: sx.XlaOp) -> sx.XlaOp:
    return new


def _flat(x: sx.XlaOp) -> sx.XlaOp:
    return sx.reshape(x, (x.shape.size,))


def _from_front(index: sx.XlaOp, size: int) -> sx.XlaOp:
    """Return positions as s64, those below 0 counted from the end."""
    index = convert(index, "s64")
    return sx.select(sx.lt(index, zeros_like(index)), sx.add(index, size), index)


# ---- along one dimension, of the index's sizes ----


def _at_least_1d(*tensors: sx.XlaOp) -> list[sx.XlaOp]:
    return [x if x.shape.rank else sx.reshape(x, (1,)) for x in tensors]


@aten("aten.gather.default")
def gather(call: Call, x: sx.XlaOp, dim: int, index: sx.XlaOp) -> sx.XlaOp:
    if not index.shape.size:
        return full_like(x, 0, call.dimensions)
    x, index = _at_least_1d(x, index)
    return sx.reshape(sx.torch_gather(x, index, place(dim, x.shape.rank)), call.dimensions)


class _Places:
    """Where in a tensor updates go: rows of it, or elements along a dimension.

    Args:
        x: the tensor.
        dim: the dimension that the index counts in.
        index: of rows, one dimension; or of elements, of x's rank.
        rows: which of them.
    """

    def __init__(self, x: sx.XlaOp, dim: int, index: sx.XlaOp, *, rows: bool) -> None:
        self.x, (self.whole, self.index) = x, _at_least_1d(x, index)
        self.dim = place(dim, self.whole.shape.rank)
        others = tuple(d for d in range(self.whole.shape.rank) if d != self.dim)
        if rows:
            self.sizes = list(self.whole.shape.dimensions)
            self.sizes[self.dim] = self.index.shape.dimensions[0]
            self.part = list(self.whole.shape.dimensions)
            self.numbers = sx.ScatterDimensionNumbers(others, (self.dim,), (self.dim,), 1)
        else:
            self.sizes = list(self.index.shape.dimensions)
            self.part = list(self.sizes)
            self.part[self.dim] = self.whole.shape.dimensions[self.dim]
            self.numbers = sx.ScatterDimensionNumbers(
                (), (self.dim,), (self.dim,), self.index.shape.rank, others, others
            )

    def put(self, x: sx.XlaOp, source: Value, combiner: Combiner) -> sx.XlaOp:
        """Return a tensor of the same sizes with updates combined into it; a number is all of them."""
        if 0 in self.sizes:
            return x
        whole = sx.reshape(x, self.whole.shape.dimensions)
        if isinstance(source, sx.XlaOp) and source.shape.rank:
            updates = sx.slice(convert(source, x.element_type), (0,) * len(self.sizes), self.sizes)
        elif isinstance(source, sx.XlaOp):
            updates = broadcast(convert(source, x.element_type), self.sizes)
        else:
            updates = full_like(x, source, self.sizes)
        # An index may cover the first part of the other dimensions.
        part = sx.slice(whole, (0,) * len(self.part), self.part)
        made = sx.scatter(part, self.index, updates, combiner, dimension_numbers=self.numbers)
        if made.shape != whole.shape:
            made = sx.dynamic_update_slice(whole, made, [0] * whole.shape.rank)
        return sx.reshape(made, x.shape.dimensions)

    def reduced(self, source: Value, reduce: str, include_self: bool = True) -> sx.XlaOp:
        """Return the tensor with updates reduced into it, halves in f32."""
        x = wide(self.x)
        combiner, start = _REDUCTIONS[reduce]
        if not include_self:
            there = self.put(convert(full_like(x, 0), "pred"), True, _latter)
            x = sx.select(there, full_like(x, start(x.element_type)), x)
        made = self.put(x, source, combiner)
        if reduce != "mean":
            return made
        count = self.put(full_like(convert(x, "s64"), int(include_self)), 1, sx.add)
        count = convert(sx.max(count, full_like(count, 1)), made.element_type)
        return _floor_div(made, count) if made.element_type.is_integer else sx.div(made, count)


# How they combine two numbers, and what they begin with.
_REDUCTIONS: dict[str, tuple[Combiner, Callable[[ElementType], Number]]] = {
    "sum": (sx.add, lambda _: 0),
    "add": (sx.add, lambda _: 0),
    "mean": (sx.add, lambda _: 0),
    "prod": (sx.mul, lambda _: 1),
    "multiply": (sx.mul, lambda _: 1),
    "amax": (sx.max, lowest),
    "amin": (sx.min, highest),
}


def _floor_div(x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
    """Return integers divided by positive ones, rounded down."""
    quotient = sx.div(x, y)
    below = sx.lt(sx.rem(x, y), zeros_like(x))
    return sx.select(below, sx.sub(quotient, 1), quotient)


@aten("aten.scatter.src", "aten.scatter.value")
def scatter(call: Call, x: sx.XlaOp, dim: int, index: sx.XlaOp, source: Value) -> sx.XlaOp:
    return _Places(x, dim, index, rows=False).put(x, source, _latter)


@aten("aten.scatter.reduce", "aten.scatter.value_reduce")
def scatter_by(call: Call, x: sx.XlaOp, dim: int, index: sx.XlaOp, source: Value, *, reduce: str) -> sx.XlaOp:
    return _Places(x, dim, index, rows=False).reduced(source, reduce)


@aten("aten.scatter_add.default")
def scatter_add(call: Call, x: sx.XlaOp, dim: int, index: sx.XlaOp, source: sx.XlaOp) -> sx.XlaOp:
    return _Places(x, dim, index, rows=False).reduced(source, "sum")


@aten("aten.scatter_reduce.two")
def scatter_reduce(
    call: Call, x: sx.XlaOp, dim: int, index: sx.XlaOp, source: sx.XlaOp, reduce: str, *, include_self: bool
) -> sx.XlaOp:
    return _Places(x, dim, index, rows=False).reduced(source, reduce, include_self)


# ---- rows ----


def rows_of(x: sx.XlaOp, dim: int, index: sx.XlaOp) -> sx.XlaOp:
    """Return rows of a tensor along a dimension; an index of any rank takes the place of the dimension."""
    sizes, rank = list(x.shape.dimensions), index.shape.rank
    sizes[dim] = 1
    offsets = [*range(dim), *range(dim + rank, len(sizes) - 1 + rank)]
    return sx.gather(x, index, rank, offsets, sizes, (dim,), (dim,))


@aten("aten.index_select.default")
def index_select(call: Call, x: sx.XlaOp, dim: int, index: sx.XlaOp) -> sx.XlaOp:
    if 0 in call.dimensions:
        return full_like(x, 0, call.dimensions)
    (whole,) = _at_least_1d(x)
    return sx.reshape(rows_of(whole, place(dim, whole.shape.rank), index), call.dimensions)


@aten("aten.index_add.default")
def index_add(call: Call, x: sx.XlaOp, dim: int, index: sx.XlaOp, source: sx.XlaOp, *, alpha: float) -> sx.XlaOp:
    if alpha != 1:
        source = sx.mul(source, full_like(source, alpha))
    return _Places(x, dim, index, rows=True).reduced(source, "sum")


@aten("aten.index_copy.default")
def index_copy(call: Call, x: sx.XlaOp, dim: int, index: sx.XlaOp, source: sx.XlaOp) -> sx.XlaOp:
    return _Places(x, dim, index, rows=True).put(x, source, _latter)


@aten("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor")
def index_fill(call: Call, x: sx.XlaOp, dim: int, index: sx.XlaOp, value: Value) -> sx.XlaOp:
    size = x.shape.dimensions[place(dim, x.shape.rank)] if x.shape.rank else 1
    return _Places(x, dim, _from_front(index, size), rows=True).put(x, value, _latter)


@aten("aten.index_reduce.default")
def index_reduce(
    call: Call, x: sx.XlaOp, dim: int, index: sx.XlaOp, source: sx.XlaOp, reduce: str, *, include_self: bool
) -> sx.XlaOp:
    return _Places(x, dim, index, rows=True).reduced(source, reduce, include_self)


# ---- several dimensions ----


class _Index:
    """The indices of `x[i, :, j]` as index vectors.

    Args:
        x: what is indexed.
        indices: a tensor of positions for each dimension, or None for all of it.

    Attributes:
        sizes: what the indices are broadcast to.
        offsets: the dimensions of the result that are dimensions of x in whole; the others stand where the first index
            is, or first, where a dimension without one lies between.
    """

    def __init__(self, x: sx.XlaOp, indices: Sequence[sx.XlaOp | None]) -> None:
        given = [(d, index) for d, index in enumerate(indices) if index is not None]
        self.dims = tuple(d for d, _ in given)
        self.sizes = broadcast_sizes(*(index.shape.dimensions for _, index in given))
        at = self.dims[0] if self.dims[-1] - self.dims[0] == len(self.dims) - 1 else 0
        rank, between = x.shape.rank - len(self.dims), range(at, at + len(self.sizes))
        self.offsets = tuple(d for d in range(rank + len(self.sizes)) if d not in between)
        self.windows = [1 if d in self.dims else size for d, size in enumerate(x.shape.dimensions)]
        whole = iter(size for d, size in enumerate(x.shape.dimensions) if d not in self.dims)
        of_indices = iter(self.sizes)
        self.result = [next(of_indices if d in between else whole) for d in range(rank + len(self.sizes))]
        columns = [broadcast(_from_front(index, x.shape.dimensions[d]), self.sizes) for d, index in given]
        if len(columns) == 1:
            self.vectors, self.along = columns[0], len(self.sizes)
        else:
            parts = [sx.reshape(column, (*self.sizes, 1)) for column in columns]
            self.vectors, self.along = sx.concat_in_dim(parts, len(self.sizes)), len(self.sizes)

    def read(self, x: sx.XlaOp) -> sx.XlaOp:
        if 0 in self.result:
            return full_like(x, 0, self.result)
        return sx.gather(x, self.vectors, self.along, self.offsets, self.windows, self.dims, self.dims)

    def write(self, x: sx.XlaOp, values: sx.XlaOp, accumulate: bool) -> sx.XlaOp:
        if 0 in self.result:
            return x
        wanted = wide(x) if accumulate else x
        updates = broadcast(convert(values, wanted.element_type), self.result)
        combiner = sx.add if accumulate else _latter
        numbers = sx.ScatterDimensionNumbers(self.offsets, self.dims, self.dims, self.along)
        return sx.scatter(wanted, self.vectors, updates, combiner, dimension_numbers=numbers)


def _is_mask(index: sx.XlaOp | None) -> bool:
    return index is not None and index.element_type.name in ("pred", "u8")


@aten("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(call: Call, x: sx.XlaOp, indices: Sequence[sx.XlaOp | None]) -> sx.XlaOp:
    if any(map(_is_mask, indices)):
        raise unknown_size()
    if all(each is None for each in indices):
        return x
    return _Index(x, indices).read(x)


@aten("aten.index_put.default", "aten._unsafe_index_put.default", "aten._index_put_impl.default")
def index_put(
    call: Call, x: sx.XlaOp, indices: Sequence[sx.XlaOp | None], values: sx.XlaOp, accumulate: bool
) -> sx.XlaOp:
    if all(each is None for each in indices):
        values = broadcast(convert(values, x.element_type), x.shape.dimensions)
        return sx.add(x, values) if accumulate else values
    if any(map(_is_mask, indices)):
        return _put_where(x, indices, values, accumulate)
    return _Index(x, indices).write(x, values, accumulate)


def _put_where(x: sx.XlaOp, indices: Sequence[sx.XlaOp | None], values: sx.XlaOp, accumulate: bool) -> sx.XlaOp:
    """Put values at the true places of one mask: the same ones at all of them, or one after another."""
    given = [(d, each) for d, each in enumerate(indices) if each is not None]
    (first, mask), *others = given
    if others:
        raise unknown_size()
    if 0 in values.shape.dimensions:
        return x
    mask = convert(mask, "pred")
    rank = mask.shape.rank
    ahead, behind = x.shape.dimensions[:first], x.shape.dimensions[first + rank :]
    own = len(behind) + 1
    sizes = (1,) * (own - values.shape.rank) + values.shape.dimensions
    values = convert(values, x.element_type)
    if sizes[-own] == 1:  # the same one at all places
        values = sx.reshape(values, (*sizes[:-own], *(1,) * rank, *sizes[len(sizes) - own + 1 :]))
        new = broadcast(values, x.shape.dimensions)
    else:
        number = sx.reshape(running_sum(convert(_flat(mask), "s64")), mask.shape.dimensions)
        new = rows_of(broadcast(values, (*ahead, sizes[-own], *behind)), first, sx.sub(number, 1))
    there = sx.broadcast_in_dim(mask, x.shape.dimensions, range(first, first + rank))
    if accumulate:
        new = sx.add(x, new)
    return sx.select(there, new, x)


@aten("aten._unsafe_masked_index.default")
def unsafe_masked_index(
    call: Call, x: sx.XlaOp, mask: sx.XlaOp, indices: Sequence[sx.XlaOp | None], fill: Value
) -> sx.XlaOp:
    """Elements where the mask is true; elsewhere the number, and no element is read."""
    if 0 in x.shape.dimensions:
        return broadcast(call.op(fill, x.element_type), call.dimensions)
    found = _Index(x, indices).read(x)
    return sx.select(broadcast(mask, call.dimensions), found, broadcast(call.op(fill, x.element_type), call.dimensions))


@aten("aten._unsafe_masked_index_put_accumulate.default")
def unsafe_masked_index_put_accumulate(
    call: Call, x: sx.XlaOp, mask: sx.XlaOp, indices: Sequence[sx.XlaOp | None], values: sx.XlaOp
) -> sx.XlaOp:
    if 0 in x.shape.dimensions:
        return x
    it = _Index(x, indices)
    values = broadcast(values, it.result)
    return it.write(x, sx.select(broadcast(mask, it.result), values, zeros_like(values)), True)


# ---- the whole tensor as one row ----


@aten("aten.take.default")
def take(call: Call, x: sx.XlaOp, index: sx.XlaOp) -> sx.XlaOp:
    if 0 in call.dimensions:
        return full_like(x, 0, call.dimensions)
    memory = _flat(x)
    return rows_of(memory, 0, _from_front(index, memory.shape.dimensions[0]))


@aten("aten.put.default")
def put(call: Call, x: sx.XlaOp, index: sx.XlaOp, source: sx.XlaOp, accumulate: bool) -> sx.XlaOp:
    memory = _flat(x)
    places = _Index(memory, [_flat(index)])
    return sx.reshape(places.write(memory, _flat(source), accumulate), x.shape.dimensions)


# ---- masks ----


@aten("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(call: Call, x: sx.XlaOp, mask: sx.XlaOp, value: Value) -> sx.XlaOp:
    new = broadcast(call.op(value, x.element_type), call.dimensions)
    return sx.select(broadcast(mask, call.dimensions), new, broadcast(x, call.dimensions))


@aten("aten.masked_scatter.default")
def masked_scatter(call: Call, x: sx.XlaOp, mask: sx.XlaOp, source: sx.XlaOp) -> sx.XlaOp:
    mask, x = broadcast(convert(mask, "pred"), call.dimensions), broadcast(x, call.dimensions)
    if not math.prod(call.dimensions) or not source.shape.size:
        return x
    number = sx.sub(running_sum(convert(_flat(mask), "s64")), 1)
    new = rows_of(convert(_flat(source), x.element_type), 0, number)
    return sx.select(mask, sx.reshape(new, call.dimensions), x)


@aten("aten.masked_scatter_backward.default")
def masked_scatter_backward(call: Call, grad: sx.XlaOp, mask: sx.XlaOp, sizes: Sequence[int]) -> sx.XlaOp:
    """The gradient's elements at the mask's true places, one after another, and zeros."""
    mask = _flat(broadcast(convert(mask, "pred"), grad.shape.dimensions))
    result = full_like(grad, 0, (math.prod(sizes),))
    if not mask.shape.size:
        return sx.reshape(result, sizes)
    number = sx.sub(running_sum(convert(mask, "s64")), 1)
    number = sx.select(mask, number, full_like(number, -1))
    made = sx.scatter(result, number, _flat(grad), _latter, 1, (), (0,), (0,))
    return sx.reshape(made, sizes)


@aten("aten.nonzero_static.default")
def nonzero_static(call: Call, x: sx.XlaOp, *, size: int, fill_value: int) -> sx.XlaOp:
    """The places of the first elements that are not zero, a row for each, and rows of a number behind them."""
    sizes, rank = x.shape.dimensions, x.shape.rank
    if not rank or not size or 0 in sizes:
        return call.constant(fill_value, "s64", call.dimensions)
    found = convert(_flat(x), "pred")
    number = sx.sub(running_sum(convert(found, "s64")), 1)
    number = sx.select(found, number, full_like(number, -1))
    columns = []
    for d in range(rank):
        places = _flat(call.iota("s64", sizes, d))
        column = sx.scatter(call.constant(fill_value, "s64", (size,)), number, places, _latter, 1, (), (0,), (0,))
        columns.append(sx.reshape(column, (size, 1)))
    return sx.concat_in_dim(columns, 1)


@aten("aten.repeat_interleave.Tensor")
def repeat_interleave(call: Call, repeats: sx.XlaOp, *, output_size: int | None) -> sx.XlaOp:
    """Each place as often as its count says: ones where the next place begins, summed up."""
    if output_size is None:
        raise unknown_size()
    counts = convert(repeats, "s64")
    if not output_size or not counts.shape.dimensions[0]:
        return call.constant(0, "s64", call.dimensions)
    ends = running_sum(counts)
    begins = sx.scatter(
        call.constant(0, "s64", (output_size,)), ends, full_like(ends, 1), sx.add, 1, (), (0,), (0,),
        indices_are_sorted=True,
    )  # fmt: skip
    return running_sum(begins)
