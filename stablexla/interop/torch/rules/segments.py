"""Reductions of segments of rows, and their gradients."""

from __future__ import annotations

import math

import stablexla as sx
from stablexla.interop.torch.call import Call, convert, full_like, wide, zeros_like
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.rules.order import search

_REDUCTIONS = {
    "sum": (sx.add, 0.0),
    "mean": (sx.add, 0.0),
    "prod": (sx.mul, 1.0),
    "max": (sx.max, -math.inf),
    "min": (sx.min, math.inf),
}


class _Segments:
    """The segments of a tensor's rows along a dimension, each set of rows with its own.

    Args:
        call: of the operator.
        data: the tensor.
        lengths, offsets: of the segments; one of them is given.
        axis: the dimension.
    """

    def __init__(
        self, call: Call, data: sx.XlaOp, lengths: sx.XlaOp | None, offsets: sx.XlaOp | None, axis: int
    ) -> None:
        if offsets is not None:
            starts, last = convert(offsets, "s64"), offsets.shape.rank - 1
            self.count = starts.shape.dimensions[last] - 1
            ends = sx.slice_in_dim(starts, 1, self.count + 1, 1, last)
            self.lengths = sx.sub(ends, sx.slice_in_dim(starts, 0, self.count, 1, last))
        else:
            assert lengths is not None
            self.lengths, last = convert(lengths, "s64"), lengths.shape.rank - 1
            self.count = lengths.shape.dimensions[last]
            ends = call.apply("aten.cumsum.default", self.lengths, last, shape=self.lengths.shape)
        self.axis, self.sizes = axis, data.shape.dimensions
        place = call.iota("s64", self.sizes[: axis + 1], axis)
        self.segment = search(ends, place, True)

    def reduce(self, x: sx.XlaOp, reduction: str, initial: float | None = None) -> sx.XlaOp:
        """Return the reduction of each segment, from a first number on."""
        combiner, start = _REDUCTIONS[reduction]
        first = full_like(x, start if initial is None else initial, self._reduced_sizes())
        ahead, windows = tuple(range(self.axis)), tuple(range(self.axis + 1, x.shape.rank))
        numbers = sx.ScatterDimensionNumbers(windows, (self.axis,), (self.axis,), self.axis + 1, ahead, ahead)
        if not x.shape.size or not first.shape.size:
            return first
        return sx.scatter(first, self.segment, x, combiner, dimension_numbers=numbers)

    def to_rows(self, x: sx.XlaOp) -> sx.XlaOp:
        """Return for each row what a tensor has for its segment."""
        ahead, windows = tuple(range(self.axis)), tuple(range(self.axis + 1, len(self.sizes)))
        slices = [1] * (self.axis + 1) + list(self.sizes[self.axis + 1 :])
        numbers = sx.GatherDimensionNumbers(windows, (self.axis,), (self.axis,), self.axis + 1, ahead, ahead)
        return sx.gather(x, self.segment, dimension_numbers=numbers, slice_sizes=slices)

    def long(self, x: sx.XlaOp) -> sx.XlaOp:
        """Return the segments' lengths in the sizes and the type of a reduced tensor."""
        return sx.broadcast_in_dim(convert(self.lengths, x.element_type), x.shape.dimensions, range(self.axis + 1))

    def _reduced_sizes(self) -> tuple[int, ...]:
        return (*self.sizes[: self.axis], self.count, *self.sizes[self.axis + 1 :])


@aten("aten.segment_reduce.default")
def segment_reduce(
    call: Call,
    data: sx.XlaOp,
    reduce: str,
    *,
    lengths: sx.XlaOp | None,
    offsets: sx.XlaOp | None,
    axis: int,
    unsafe: bool,
    initial: float | None,
) -> sx.XlaOp:
    """A mean counts the first number in the sum alone; of an empty segment without one it is NaN."""
    segments = _Segments(call, data, lengths, offsets, axis)
    made = segments.reduce(wide(data), reduce, initial)
    if reduce != "mean":
        return made
    long = segments.long(made)
    empty = made if initial is not None else full_like(made, math.nan)
    return sx.select(sx.eq(long, zeros_like(long)), empty, sx.div(made, long))


@aten("aten._segment_reduce_backward.default")
def segment_reduce_backward(
    call: Call,
    grad: sx.XlaOp,
    output: sx.XlaOp,
    data: sx.XlaOp,
    reduce: str,
    *,
    lengths: sx.XlaOp | None,
    offsets: sx.XlaOp | None,
    axis: int,
    initial: float | None,
) -> sx.XlaOp:
    """Equal extremes share the gradient; the product's is that of the others."""
    if not data.shape.size or not grad.shape.size:
        return full_like(data, 0)
    segments = _Segments(call, data, lengths, offsets, axis)
    grad, output, x = wide(grad), wide(output), wide(data)
    if reduce == "mean":
        grad = sx.div(grad, segments.long(grad))
    rows = segments.to_rows(grad)
    if reduce in ("max", "min"):
        result = segments.to_rows(output)
        is_it = sx.or_(sx.eq(x, result), sx.and_(sx.ne(x, x), sx.ne(result, result)))
        share = segments.reduce(convert(is_it, x.element_type), "sum")
        return sx.select(is_it, sx.div(rows, segments.to_rows(share)), zeros_like(rows))
    if reduce != "prod":
        return rows
    is_zero = sx.eq(x, zeros_like(x))
    others = segments.reduce(sx.select(is_zero, full_like(x, 1), x), "prod", initial)
    zeros = segments.to_rows(segments.reduce(convert(is_zero, x.element_type), "sum"))
    of_zero = sx.select(sx.eq(zeros, full_like(zeros, 1)), segments.to_rows(others), zeros_like(x))
    of_number = sx.div(segments.to_rows(output), sx.select(is_zero, full_like(x, 1), x))
    return sx.mul(rows, sx.select(is_zero, of_zero, of_number))
