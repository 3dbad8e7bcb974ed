"""Sums of a few elements along a dimension, at places that are known, and elements at places that tensors tell."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.interop.torch.call import broadcast, convert, full_like, total

# A filter's taps are written out; more are a dimension that is summed over.
_WRITTEN = 4
# So many runs of evenly spaced places are slices that are set side by side, and more are a gather.
_RUNS = 16
_LARGEST = 1 << 31


class Taps:
    """Which elements along a dimension make up each element of the result, and how much each of them weighs.

    Args:
        places: s64[size, T], the elements' numbers; -1 is none.
        weights: f[size, T]; without them all are 1.
    """

    def __init__(self, places: Any, weights: Any = None) -> None:
        self.places = np.asarray(places, np.int64)
        self.weights = None if weights is None else np.asarray(weights)

    @property
    def size(self) -> int:
        return len(self.places)

    def applied(self, x: XlaOp, dimension: int) -> XlaOp:
        """Return x[...,n,...] with the sums in the place of its elements along a dimension, f[...,size,...].

        >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[3, 4])
        >>> print(Taps([[0, 1], [2, 3], [3, -1]]).applied(x, 1).shape)
        f32[3,3]
        """
        count = self.places.shape[1]
        if self._repeats(x.shape.dimensions[dimension]):
            return self._weighed(repeated(x, dimension, self.size // x.shape.dimensions[dimension]), dimension, 0)
        runs = _runs(self.places[:, 0], _RUNS) if count == 1 else []
        if runs:
            parts = [_sliced(x, places, dimension) for places in runs]
            return self._weighed(parts[0] if len(parts) == 1 else sx.concat_in_dim(parts, dimension), dimension, 0)
        if count > _WRITTEN:
            made = self._weighed(rows(x, np.maximum(self.places, 0), dimension), dimension, slice(None))
            return total(made, (dimension + 1,))
        columns = np.maximum(self.places, 0).T
        return reduce(sx.add, (self._weighed(rows(x, each, dimension), dimension, t) for t, each in enumerate(columns)))

    def transposed(self, size: int) -> Taps:
        """Return the taps of the gradient by a dimension of this size.

        >>> Taps([[0, 1], [1, 2]]).transposed(3).places.tolist()
        [[0, -1], [0, 1], [1, -1]]
        """
        valid = self.places >= 0
        outputs = np.broadcast_to(np.arange(self.size)[:, None], valid.shape)[valid]
        inputs = self.places[valid]
        order = np.argsort(inputs, kind="stable")
        inputs, outputs = inputs[order], outputs[order]
        column = np.arange(len(inputs)) - np.searchsorted(inputs, inputs)
        width = int(column.max(initial=0)) + 1
        places = np.full((size, width), -1)
        places[inputs, column] = outputs
        if self.weights is None:
            return Taps(places)
        weights = np.zeros((size, width), self.weights.dtype)
        weights[inputs, column] = self.weights[valid][order]
        return Taps(places, weights)

    def _repeats(self, size: int) -> bool:
        """Whether each element comes equally often, one after the other."""
        if self.places.shape[1] != 1 or not size or self.size % size:
            return False
        return np.array_equal(self.places[:, 0], np.arange(self.size) // (self.size // size))

    def _weighed(self, x: XlaOp, dimension: int, column: int | slice) -> XlaOp:
        """Return elements times their weights, zeros where there is none."""
        places = self.places[:, column]
        dimensions = tuple(range(dimension, dimension + places.ndim))

        def along(values: Any) -> XlaOp:
            return sx.broadcast_in_dim(x.builder.constant(values), x.shape.dimensions, dimensions)

        if self.weights is not None:
            x = sx.mul(x, along(self.weights[:, column].astype(x.element_type.dtype)))
        if (places < 0).any():
            x = sx.select(along(places >= 0), x, full_like(x, 0))
        return x


def _runs(places: Any, most: int) -> list[Any]:
    """Return evenly spaced parts of places; none if there are more than so many.

    >>> _runs(np.array([2, 1, 0, 1, 2, 3, 3, 3, -1]), 4)
    [array([2, 1, 0]), array([1, 2, 3]), array([3, 3]), array([-1])]
    """
    steps = np.where(np.diff(places < 0), -len(places) * 2, np.diff(places))
    found: list[Any] = []
    first = 0
    while first < len(places) and len(found) <= most:
        step = steps[first] if first < len(steps) else 0
        same = steps[first:] == step if step >= -len(places) else np.zeros(1, bool)
        last = first + 1 + (len(same) if same.all() else int(np.argmin(same)))
        found.append(places[first:last])
        first = last
    return found if len(found) <= most else []


def _sliced(x: XlaOp, places: Any, dimension: int) -> XlaOp:
    """Return the elements at evenly spaced places; any where there is none."""
    first, last = max(int(places.min()), 0), max(int(places.max()), 0)
    step = abs(int(places[1] - places[0])) if len(places) > 1 else 1
    part = sx.slice_in_dim(x, first, last + 1, max(step, 1), dimension)
    if step == 0:
        return repeated(part, dimension, len(places))
    return sx.rev(part, (dimension,)) if len(places) > 1 and places[0] > places[1] else part


def repeated(x: XlaOp, dimension: int, times: int) -> XlaOp:
    """Return a tensor with each element along a dimension so many times."""
    if times == 1:
        return x
    sizes = list(x.shape.dimensions)
    within = (*sizes[: dimension + 1], times, *sizes[dimension + 1 :])
    kept = [d for d in range(len(within)) if d != dimension + 1]
    sizes[dimension] *= times
    return sx.reshape(sx.broadcast_in_dim(x, within, kept), sizes)


def rows(x: XlaOp, places: Any, dimension: int) -> XlaOp:
    """Return the elements at places along a dimension, in whose place the dimensions of `places` come.

    Args:
        x: of any rank.
        places: s64[...], an array or a tensor.
        dimension: of `x`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[3, 4, 5])
    >>> print(rows(x, np.zeros((7, 2), np.int64), 1).shape)
    f32[3,7,2,5]
    """
    starts = places if isinstance(places, XlaOp) else x.builder.constant(np.asarray(places, np.int32))
    rank, more = x.shape.rank, starts.shape.rank - 1
    return sx.gather(
        x,
        starts,
        starts.shape.rank,
        offset_dims=[d if d < dimension else d + more for d in range(rank) if d != dimension],
        slice_sizes=[1 if d == dimension else n for d, n in enumerate(x.shape.dimensions)],
        collapsed_slice_dims=(dimension,),
        start_index_map=(dimension,),
    )


def picked(x: XlaOp, places: XlaOp) -> XlaOp:
    """Return from each row of x[R,n] the elements at places[R,m], f[R,m]; places outside give elements at the edge."""
    inside = sx.clamp(0, places, x.shape.dimensions[1] - 1)
    return rows(sx.reshape(x, (x.shape.size,)), _flat(inside, x.shape.dimensions), 0)


def scattered(rows: int, size: int, places: XlaOp, values: XlaOp, add: bool = True) -> XlaOp:
    """Return f[R,n] of zeros with values[R,m] at places[R,m], added up or the last one; places outside are left out."""
    inside = sx.and_(sx.ge(places, full_like(places, 0)), sx.lt(places, full_like(places, size)))
    flat = _flat(places, (rows, size))
    flat = sx.select(inside, flat, full_like(flat, rows * size))
    made = sx.scatter(
        full_like(values, 0, (rows * size,)), sx.reshape(flat, (flat.shape.size,)),
        sx.reshape(values, (values.shape.size,)), sx.add if add else lambda old, new: new, 1, (), (0,), (0,),
    )  # fmt: skip
    return sx.reshape(made, (rows, size))


def _flat(places: XlaOp, sizes: Sequence[int]) -> XlaOp:
    """Return places within rows as places in all of them."""
    wanted = "s32" if prod(sizes) < _LARGEST else "s64"
    places = convert(places, wanted)
    (count, size) = sizes
    starts = places.builder.iota(places.shape.with_dimensions((count, 1)), 0)
    starts = sx.mul(starts, full_like(starts, size))
    return sx.add(places, broadcast(starts, places.shape.dimensions))
