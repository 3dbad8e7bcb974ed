"""Views and copies: new sizes, orders, parts and concatenations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch

import stablexla as sx
from stablexla.dialects.errors import UnsupportedError
from stablexla.interop.torch.call import Call, Value, broadcast, convert, full_like, place
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.tensors import inverse, order_of


@aten(
    "aten.alias.default", "aten.alias_copy.default", "aten.clone.default", "aten.contiguous.default",
    "aten.detach.default", "aten.detach_copy.default", "aten.lift.default", "aten.lift_fresh.default",
    "aten.lift_fresh_copy.default", "aten.positive.default", "aten.to.dtype", "aten._to_copy.default",
    "aten._lazy_clone.default", "prims.clone.default", "prims.convert_element_type.default",
    "prims.device_put.default", "prims.view_of.default",
)  # fmt: skip
def same(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return x


@aten(
    "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.flatten.using_ints",
    "aten.view_copy.default", "aten._reshape_copy.default", "aten._reshape_alias.default",
    "aten._reshape_alias_copy.default", "aten.squeeze.default", "aten.squeeze.dim", "aten.squeeze.dims",
    "aten.squeeze_copy.default", "aten.squeeze_copy.dim", "aten.squeeze_copy.dims", "aten.unsqueeze.default",
    "aten.unsqueeze_copy.default", "prims.reshape.default", "prims.collapse_view.default", "prims.split_dim.default",
    "prims.squeeze.default", "prims.collapse.default",
)  # fmt: skip
def view(call: Call, x: sx.XlaOp, *_: object) -> sx.XlaOp:
    return sx.reshape(x, call.dimensions)


@aten("aten.expand.default", "aten.expand_copy.default")
def expand(call: Call, x: sx.XlaOp, size: Sequence[int]) -> sx.XlaOp:
    return broadcast(x, call.dimensions)


@aten("prims.broadcast_in_dim.default")
def broadcast_in_dim(call: Call, x: sx.XlaOp, shape: Sequence[int], dimensions: Sequence[int]) -> sx.XlaOp:
    return sx.broadcast_in_dim(x, call.dimensions, tuple(dimensions))


@aten("aten.repeat.default")
def repeat(call: Call, x: sx.XlaOp, repeats: Sequence[int]) -> sx.XlaOp:
    sizes = (1,) * (len(repeats) - x.shape.rank) + x.shape.dimensions
    copies = [part for pair in zip(repeats, sizes) for part in pair]
    apart = sx.broadcast_in_dim(sx.reshape(x, sizes), copies, range(1, 2 * len(sizes), 2))
    return sx.reshape(apart, call.dimensions)


@aten("aten.copy.default")
def copy(call: Call, x: sx.XlaOp, src: sx.XlaOp) -> sx.XlaOp:
    return broadcast(src, call.dimensions)


# ---- orders ----


@aten("aten.permute.default", "aten.permute_copy.default", "prims.transpose.default")
def permute(call: Call, x: sx.XlaOp, dims: Sequence[int]) -> sx.XlaOp:
    return sx.transpose(x, [d % x.shape.rank for d in dims]) if dims else x


@aten("aten.transpose.int", "aten.transpose_copy.int")
def transpose(call: Call, x: sx.XlaOp, dim0: int, dim1: int) -> sx.XlaOp:
    order = list(range(x.shape.rank))
    if order:
        order[dim0], order[dim1] = order[dim1], order[dim0]
    return sx.transpose(x, order)


@aten("aten.t.default", "aten.t_copy.default")
def t(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.transpose(x, range(x.shape.rank)[::-1])


@aten("aten.flip.default", "prims.rev.default")
def flip(call: Call, x: sx.XlaOp, dims: Sequence[int]) -> sx.XlaOp:
    return sx.rev(x, sorted(place(d, x.shape.rank) for d in dims)) if x.shape.rank else x


@aten("aten.roll.default")
def roll(call: Call, x: sx.XlaOp, shifts: Sequence[int], dims: Sequence[int]) -> sx.XlaOp:
    sizes = x.shape.dimensions
    if not dims:
        x, dims = sx.reshape(x, (math.prod(sizes),)), (0,)
    for shift, dim in zip(shifts, dims):
        d = place(dim, x.shape.rank)
        size = x.shape.dimensions[d]
        first = -shift % size if size else 0
        if first:
            x = sx.concat_in_dim([sx.slice_in_dim(x, first, size, 1, d), sx.slice_in_dim(x, 0, first, 1, d)], d)
    return sx.reshape(x, sizes)


# ---- parts ----


def _bounds(start: int | None, end: int | None, size: int) -> tuple[int, int]:
    """Return the bounds of a slice within a dimension, as Python's slices take them."""
    first, last, _ = slice(start, end).indices(size)
    return first, max(first, last)


@aten("aten.slice.Tensor", "aten.slice_copy.Tensor")
def slice_(
    call: Call, x: sx.XlaOp, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> sx.XlaOp:
    d = place(dim, x.shape.rank)
    return sx.slice_in_dim(x, *_bounds(start, end, x.shape.dimensions[d]), step, d)


@aten("prims.slice.default")
def prims_slice(
    call: Call, x: sx.XlaOp, start: Sequence[int], limit: Sequence[int], strides: Sequence[int] | None
) -> sx.XlaOp:
    return sx.slice(x, start, limit, strides)


@aten("aten.narrow.default", "aten.narrow_copy.default")
def narrow(call: Call, x: sx.XlaOp, dim: int, start: int, length: int) -> sx.XlaOp:
    d = place(dim, x.shape.rank)
    first = start % x.shape.dimensions[d] if start < 0 else start
    return sx.slice_in_dim(x, first, first + length, 1, d)


@aten("aten.select.int", "aten.select_copy.int")
def select(call: Call, x: sx.XlaOp, dim: int, index: int) -> sx.XlaOp:
    d = place(dim, x.shape.rank)
    first = place(index, x.shape.dimensions[d])
    return sx.reshape(sx.slice_in_dim(x, first, first + 1, 1, d), call.dimensions)


@aten(
    "aten.split.Tensor", "aten.split_copy.Tensor", "aten.unsafe_split.Tensor", "aten.split_with_sizes.default",
    "aten.split_with_sizes_copy.default", "aten.unsafe_split_with_sizes.default",
)  # fmt: skip
def split(call: Call, x: sx.XlaOp, sizes: int | Sequence[int], dim: int) -> list[sx.XlaOp]:
    d = place(dim, x.shape.rank)
    lengths = [shape.dimensions[d] for shape in call.shapes if shape is not None]
    ends = accumulate(lengths)
    return [sx.slice_in_dim(x, end - length, end, 1, d) for length, end in zip(lengths, ends)]


@aten("aten.unbind.int", "aten.unbind_copy.int")
def unbind(call: Call, x: sx.XlaOp, dim: int) -> list[sx.XlaOp]:
    d = place(dim, x.shape.rank)
    sizes = x.shape.dimensions[:d] + x.shape.dimensions[d + 1 :]
    return [sx.reshape(sx.slice_in_dim(x, n, n + 1, 1, d), sizes) for n in range(x.shape.dimensions[d])]


def _spread(x: sx.XlaOp, value: Value, size: int, dim: int, start: int, step: int) -> sx.XlaOp:
    """Return a tensor with its elements along a dimension at `start` and every `step` places, and a value elsewhere."""
    length = x.shape.dimensions[dim]
    padding = [(0, 0, 0)] * x.shape.rank
    padding[dim] = (start, size - start - (length - 1) * step - 1, step - 1) if length else (0, size, 0)
    return sx.pad(x, value if isinstance(value, sx.XlaOp) else full_like(x, value, ()), padding)


def _replaced(call: Call, x: sx.XlaOp, source: sx.XlaOp, dim: int, start: int, step: int) -> sx.XlaOp:
    """Return a tensor with another one at `start` and every `step` places along a dimension."""
    source = convert(source, x.element_type)
    if step == 1 or source.shape.dimensions[dim] == 1:
        return sx.dynamic_update_slice(x, source, [start if d == dim else 0 for d in range(x.shape.rank)])
    size = x.shape.dimensions[dim]
    there = call.constant(True, "pred", source.shape.dimensions)
    return sx.select(_spread(there, False, size, dim, start, step), _spread(source, 0, size, dim, start, step), x)


@aten("aten.slice_scatter.default")
def slice_scatter(
    call: Call, x: sx.XlaOp, src: sx.XlaOp, dim: int, start: int | None, end: int | None, step: int
) -> sx.XlaOp:
    d = place(dim, x.shape.rank)
    first, last = _bounds(start, end, x.shape.dimensions[d])
    sizes = list(x.shape.dimensions)
    sizes[d] = len(range(first, last, step))
    return _replaced(call, x, broadcast(src, sizes), d, first, step) if sizes[d] else x


@aten("aten.slice_backward.default")
def slice_backward(
    call: Call, grad: sx.XlaOp, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> sx.XlaOp:
    d = place(dim, grad.shape.rank)
    first, _ = _bounds(start, end, call.dimensions[d])
    return _spread(grad, 0, call.dimensions[d], d, first, step)


@aten("aten.select_scatter.default")
def select_scatter(call: Call, x: sx.XlaOp, src: sx.XlaOp, dim: int, index: int) -> sx.XlaOp:
    d = place(dim, x.shape.rank)
    sizes = list(x.shape.dimensions)
    first, sizes[d] = place(index, sizes[d]), 1
    source = broadcast(src, sizes[:d] + sizes[d + 1 :])
    return _replaced(call, x, sx.reshape(source, sizes), d, first, 1)


@aten("aten.select_backward.default")
def select_backward(call: Call, grad: sx.XlaOp, input_sizes: Sequence[int], dim: int, index: int) -> sx.XlaOp:
    d = place(dim, len(call.dimensions))
    size = call.dimensions[d]
    row = sx.reshape(grad, (*call.dimensions[:d], 1, *call.dimensions[d + 1 :]))
    return _spread(row, 0, size, d, place(index, size), 1)


# ---- diagonals ----


class _Diagonal:
    """A diagonal as elements of equal distance along the two dimensions, flattened as the last one.

    Args:
        sizes: of the tensor that has it.
        offset: how far above the main diagonal it lies.
        dim1, dim2: of its rows and columns.
    """

    def __init__(self, sizes: Sequence[int], offset: int, dim1: int, dim2: int) -> None:
        rank = len(sizes)
        both = place(dim1, rank), place(dim2, rank)
        self.order = [d for d in range(rank) if d not in both] + list(both)
        self.moved = [sizes[d] for d in self.order]
        *self.others, rows, columns = self.moved
        self.length = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
        self.start = (offset if offset >= 0 else -offset * columns) if self.length else 0
        self.step, self.size = columns + 1, rows * columns

    def flat(self, x: sx.XlaOp) -> sx.XlaOp:
        return sx.reshape(sx.transpose(x, self.order), (*self.others, self.size))

    def back(self, x: sx.XlaOp) -> sx.XlaOp:
        return sx.transpose(sx.reshape(x, self.moved), sorted(range(len(self.order)), key=self.order.__getitem__))

    def spread(self, x: sx.XlaOp) -> sx.XlaOp:
        """Return zeros with this diagonal."""
        return self.back(_spread(x, 0, self.size, len(self.others), self.start, self.step))


@aten("aten.diagonal.default", "aten.diagonal_copy.default")
def diagonal(call: Call, x: sx.XlaOp, offset: int, dim1: int, dim2: int) -> sx.XlaOp:
    it = _Diagonal(x.shape.dimensions, offset, dim1, dim2)
    last = it.start + (it.length - 1) * it.step + 1 if it.length else 0
    return sx.slice_in_dim(it.flat(x), it.start, last, it.step, len(it.others))


@aten("aten.diagonal_scatter.default")
def diagonal_scatter(call: Call, x: sx.XlaOp, src: sx.XlaOp, offset: int, dim1: int, dim2: int) -> sx.XlaOp:
    it = _Diagonal(x.shape.dimensions, offset, dim1, dim2)
    if not it.length:
        return x
    source = broadcast(src, (*it.others, it.length))
    return it.back(_replaced(call, it.flat(x), source, len(it.others), it.start, it.step))


@aten("aten.diagonal_backward.default")
def diagonal_backward(
    call: Call, grad: sx.XlaOp, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int
) -> sx.XlaOp:
    return _Diagonal(call.dimensions, offset, dim1, dim2).spread(grad)


@aten("aten.diag_embed.default")
def diag_embed(call: Call, x: sx.XlaOp, offset: int, dim1: int, dim2: int) -> sx.XlaOp:
    return _Diagonal(call.dimensions, offset, dim1, dim2).spread(x)


# ---- concatenations and padding ----


@aten("aten.cat.default", "prims.cat.default")
def cat(call: Call, tensors: Sequence[sx.XlaOp], dim: int) -> sx.XlaOp:
    d = place(dim, len(call.dimensions))
    # An empty tensor of one dimension joins any other.
    parts = [convert(x, call.type) for x in tensors if x.shape.rank == len(call.dimensions)]
    parts = [x for x in parts if x.shape.dimensions[d]] or parts[:1]
    return sx.concat_in_dim(parts, d) if len(parts) > 1 else parts[0]


@aten("aten.stack.default", "aten._stack.default")
def stack(call: Call, tensors: Sequence[sx.XlaOp], dim: int) -> sx.XlaOp:
    d = place(dim, len(call.dimensions))
    sizes = (*call.dimensions[:d], 1, *call.dimensions[d + 1 :])
    return sx.concat_in_dim([sx.reshape(convert(x, call.type), sizes) for x in tensors], d)


@aten("aten.constant_pad_nd.default")
def constant_pad_nd(call: Call, x: sx.XlaOp, pad: Sequence[int], value: Value) -> sx.XlaOp:
    padding = [(0, 0, 0)] * x.shape.rank
    for number in range(len(pad) // 2):
        padding[-1 - number] = (pad[2 * number], pad[2 * number + 1], 0)
    return sx.pad(x, call.op(value, x.element_type), padding)


@aten("aten.resize.default")
def resize(call: Call, x: sx.XlaOp, size: Sequence[int], **_: object) -> sx.XlaOp:
    """The memory in other sizes; what it did not have before has no numbers, here zeros."""
    memory, wanted = _Memory(call, x, None).flat, math.prod(call.dimensions)
    return sx.reshape(sx.pad(memory, full_like(memory, 0, ()), [(0, wanted - x.shape.size, 0)]), call.dimensions)


# ---- windows ----


@aten("aten.unfold.default", "aten.unfold_copy.default")
def unfold(call: Call, x: sx.XlaOp, dimension: int, size: int, step: int) -> sx.XlaOp:
    """The windows along a dimension, each as a last dimension of the result."""
    if not x.shape.rank:
        return sx.reshape(x, call.dimensions) if size else full_like(x, 0, call.dimensions)
    rank, d = x.shape.rank, place(dimension, x.shape.rank)
    count = call.dimensions[d]
    if not size:
        return full_like(x, 0, call.dimensions)
    starts = sx.mul(call.iota("s64", (count,)), step)
    sizes = [size if n == d else length for n, length in enumerate(x.shape.dimensions)]
    windows = sx.gather(x, starts, 1, [n for n in range(rank + 1) if n != d], sizes, (), (d,), True)
    return sx.transpose(windows, [n for n in range(rank + 1) if n != d + 1] + [d + 1])


@aten("aten.unfold_backward.default")
def unfold_backward(call: Call, grad: sx.XlaOp, input_sizes: Sequence[int], dim: int, size: int, step: int) -> sx.XlaOp:
    """Each element the sum of the windows' over it."""
    if not input_sizes:
        return sx.reshape(grad, ())
    rank, d = len(input_sizes), place(dim, len(input_sizes))
    order = [*range(rank)]
    order.insert(d + 1, rank)
    starts = sx.mul(call.iota("s64", (grad.shape.dimensions[d],)), step)
    numbers = sx.ScatterDimensionNumbers(tuple(n for n in range(rank + 1) if n != d), (), (d,), 1)
    return sx.scatter(
        full_like(grad, 0, input_sizes), starts, sx.transpose(grad, order), sx.add,
        dimension_numbers=numbers, indices_are_sorted=True,
    )  # fmt: skip


class _Memory:
    """The memory of an operator's first argument, of which PyTorch has noted how its dimensions lie in it.

    Args:
        call: of the operator.
        x: its first argument.
        offset: where in PyTorch's memory the elements begin; None where the argument begins.

    Raises:
        UnsupportedError: there are gaps in it, of which nothing is known, or the elements begin before it.
    """

    def __init__(self, call: Call, x: sx.XlaOp, offset: int | None) -> None:
        node = call.translator.node
        like = node.args[0].meta.get("val") if node is not None and node.target is call.operator else None
        self.order: tuple[int, ...] | None = None
        self.offset, self.x = offset or 0, x
        if isinstance(like, torch.Tensor) and not like.is_contiguous():
            self.order = order_of(x.shape.dimensions, [int(step) for step in like.stride()])
            if self.order is None and x.shape.size:
                raise UnsupportedError("its argument's elements do not lie one behind another", hint="x.contiguous()")
        if isinstance(like, torch.Tensor) and offset is not None:
            self.offset -= int(like.storage_offset())
        if self.offset < 0:
            raise UnsupportedError("its elements begin before those of its argument", hint="the whole tensor")
        self.flat = sx.reshape(x if self.order is None else sx.transpose(x, self.order), (x.shape.size,))

    def back(self, flat: sx.XlaOp) -> sx.XlaOp:
        """Return new memory as the tensor."""
        sizes = self.x.shape.dimensions
        if self.order is None:
            return sx.reshape(flat, sizes)
        return sx.transpose(sx.reshape(flat, [sizes[d] for d in self.order]), inverse(self.order))


@aten("aten.as_strided.default", "aten.as_strided_copy.default", "prims.as_strided.default")
def as_strided(call: Call, x: sx.XlaOp, size: Sequence[int], stride: Sequence[int], offset: int | None) -> sx.XlaOp:
    """Elements of the memory by strides: slices of it where these are multiples of one another, else a gather."""
    if not math.prod(size):
        return full_like(x, 0, size)
    memory = _Memory(call, x, offset)
    made = _nested(memory.flat, size, stride, memory.offset)
    if made is None:
        places = _places(call, size, stride, memory.offset)
        made = sx.gather(memory.flat, places, len(size), (), (1,), (0,), (0,))
    return made


def _nested(memory: sx.XlaOp, size: Sequence[int], stride: Sequence[int], offset: int) -> sx.XlaOp | None:
    """Return a view whose dimensions lie in one another, from that of the largest stride; None for any other."""
    inner = sorted((d for d in range(len(size)) if size[d] > 1 and stride[d]), key=lambda d: -stride[d])
    strides, sizes = [stride[d] for d in inner], [size[d] for d in inner]
    blocks = [*(large // small for large, small in pairwise(strides)), *strides[-1:]]
    if any(large % small for large, small in pairwise(strides)) or any(
        length > room for length, room in zip(sizes[1:], blocks)
    ):
        return None
    whole = sizes[0] * strides[0] if inner else 1
    missing = offset + whole - memory.shape.dimensions[0]
    if missing > 0:
        memory = sx.pad(memory, full_like(memory, 0, ()), [(0, missing, 0)])
    part = sx.slice_in_dim(memory, offset, offset + whole, 1, 0)
    part = sx.reshape(part, (*sizes[:1], *blocks) if inner else ())
    part = sx.slice(part, (0,) * part.shape.rank, (*sizes, 1)) if inner else part
    part = sx.transpose(sx.reshape(part, sizes), sorted(range(len(inner)), key=inner.__getitem__))
    return sx.broadcast_in_dim(part, tuple(size), sorted(inner))


def _places(call: Call, size: Sequence[int], stride: Sequence[int], offset: int) -> sx.XlaOp:
    """Return the place in memory of each element."""
    found = call.constant(offset, "s64", size)
    for dim, step in enumerate(stride):
        found = sx.add(found, sx.mul(call.iota("s64", size, dim), step))
    return found


@aten("aten.as_strided_scatter.default", "prims.as_strided_scatter.default")
def as_strided_scatter(
    call: Call, x: sx.XlaOp, src: sx.XlaOp, size: Sequence[int], stride: Sequence[int], offset: int | None
) -> sx.XlaOp:
    memory, source = _Memory(call, x, offset), broadcast(convert(src, x.element_type), size)
    if not source.shape.size:
        return x
    places = _places(call, size, stride, memory.offset)
    return memory.back(sx.scatter(memory.flat, places, source, lambda _, new: new, len(size), (), (0,), (0,)))
