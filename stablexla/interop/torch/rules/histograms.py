"""Counts of numbers by bins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import stablexla as sx
from stablexla.interop.torch.call import Call, broadcast, convert, full_like, highest, lowest, reduced, total, wide, zeros_like
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.rules.order import search


def _range(x: sx.XlaOp, given: Sequence[float] | None, margin: float) -> tuple[sx.XlaOp, sx.XlaOp]:
    """Return the least and the largest edge: those given, else the numbers', and apart by a margin where they are one."""
    if given is not None:
        low, high = (full_like(x, value, ()) for value in given)
    elif not x.shape.size:
        low, high = full_like(x, 0, ()), full_like(x, 1, ())
    else:
        low = reduced(x, highest(x.element_type), sx.min, range(x.shape.rank))
        high = reduced(x, lowest(x.element_type), sx.max, range(x.shape.rank))
    alike = sx.eq(low, high)
    return sx.select(alike, sx.sub(low, margin), low), sx.select(alike, sx.add(high, margin), high)


def _counted(weight: sx.XlaOp, places: Sequence[sx.XlaOp], counts: Sequence[int]) -> sx.XlaOp:
    """Return the sums of weights for each bin; a place below 0 is in none.

    Args:
        weight: of each element, in one dimension.
        places: the bin of each element, by dimensions of the histogram.
        counts: how many bins these have.
    """
    inside = reduce(sx.and_, (sx.ge(place, zeros_like(place)) for place in places))
    at = zeros_like(places[0])
    for place, count in zip(places, counts):
        at = sx.add(sx.mul(at, count), place)
    at = sx.select(inside, at, full_like(at, -1))
    zero = full_like(weight, 0, (math.prod(counts),))
    made = sx.scatter(zero, at, weight, sx.add, 1, (), (0,), (0,)) if weight.shape.size else zero
    return sx.reshape(made, tuple(counts))


@aten("aten.histc.default")
def histc(call: Call, x: sx.XlaOp, bins: int, min: float, max: float) -> sx.XlaOp:
    """Bins of one width; the largest edge belongs to the last bin."""
    x = wide(sx.reshape(x, (x.shape.size,)))
    low, high = _range(x, None if min == max else (min, max), 1)
    low, high = broadcast(low, x.shape.dimensions), broadcast(high, x.shape.dimensions)
    place = convert(sx.div(sx.mul(sx.sub(x, low), bins), sx.sub(high, low)), "s64")
    place = sx.min(place, full_like(place, bins - 1))
    inside = sx.and_(sx.ge(x, low), sx.le(x, high))
    place = sx.select(inside, place, full_like(place, -1))
    return _counted(full_like(place, 1), [place], [bins])


def _places(x: sx.XlaOp, edges: sx.XlaOp) -> sx.XlaOp:
    """Return the bin of each element by the bins' edges, -1 outside of them."""
    count = edges.shape.dimensions[0] - 1
    place = sx.sub(search(edges, x, True), 1)
    first, last = (
        broadcast(sx.reshape(sx.slice(edges, (n,), (n + 1,)), ()), x.shape.dimensions) for n in (0, count)
    )
    place = sx.select(sx.eq(x, last), full_like(place, count - 1), place)
    return sx.select(sx.and_(sx.ge(x, first), sx.le(x, last)), place, full_like(place, -1))


def _edges(call: Call, x: sx.XlaOp, count: int, range_: Sequence[float] | None) -> sx.XlaOp:
    low, high = _range(x, range_, 0.5)
    shape = sx.Shape(x.element_type, (count + 1,))
    return convert(call.apply("aten.linspace.Tensor_Tensor", low, high, count + 1, shape=shape), x.element_type)


def _histogram(
    columns: Sequence[sx.XlaOp], edges: Sequence[sx.XlaOp], weight: sx.XlaOp | None, density: bool
) -> sx.XlaOp:
    """Return the histogram of points, given by their coordinates.

    Args:
        columns: the coordinates, each in one dimension.
        edges: of the bins of each.
        weight: of the points.
        density: whether to divide by the sum and the bins' sizes.
    """
    weights = full_like(columns[0], 1) if weight is None else sx.reshape(weight, (weight.shape.size,))
    counts = [each.shape.dimensions[0] - 1 for each in edges]
    made = _counted(weights, [_places(x, each) for x, each in zip(columns, edges)], counts)
    if not density:
        return made
    made = sx.div(made, broadcast(total(made, range(len(counts))), counts))
    for d, (each, count) in enumerate(zip(edges, counts)):
        widths = sx.sub(sx.slice(each, (1,), (count + 1,)), sx.slice(each, (0,), (count,)))
        made = sx.div(made, sx.broadcast_in_dim(widths, counts, (d,)))
    return made


def _columns(x: sx.XlaOp) -> list[sx.XlaOp]:
    """Return the coordinates of points, which are the last dimension."""
    count = x.shape.dimensions[-1]
    rows = math.prod(x.shape.dimensions[:-1])
    flat = sx.reshape(x, (rows, count))
    return [sx.reshape(sx.slice_in_dim(flat, n, n + 1, 1, 1), (rows,)) for n in range(count)]


@aten("aten.histogram.bin_ct")
def histogram(
    call: Call, x: sx.XlaOp, bins: int, *, range: Sequence[float] | None, weight: sx.XlaOp | None, density: bool
) -> list[sx.XlaOp]:
    flat = sx.reshape(x, (x.shape.size,))
    edges = _edges(call, flat, bins, range)
    return [_histogram([flat], [edges], weight, density), edges]


@aten("aten.histogram.bins_tensor")
def histogram_of_edges(
    call: Call, x: sx.XlaOp, bins: sx.XlaOp, *, weight: sx.XlaOp | None, density: bool
) -> list[sx.XlaOp]:
    return [_histogram([sx.reshape(x, (x.shape.size,))], [bins], weight, density), bins]


def _pairs(range_: Sequence[float] | None, count: int) -> list[Sequence[float] | None]:
    return [None if range_ is None else range_[2 * n : 2 * n + 2] for n in range(count)]


@aten("aten._histogramdd_bin_edges.default")
def histogramdd_bin_edges(
    call: Call, x: sx.XlaOp, bins: Sequence[int], *, range: Sequence[float] | None, weight: object, density: bool
) -> list[sx.XlaOp]:
    ranges = _pairs(range, len(bins))
    return [_edges(call, column, count, pair) for column, count, pair in zip(_columns(x), bins, ranges)]


@aten("aten._histogramdd_from_bin_cts.default")
def histogramdd_from_bin_cts(
    call: Call,
    x: sx.XlaOp,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None,
    weight: sx.XlaOp | None,
    density: bool,
) -> sx.XlaOp:
    edges = histogramdd_bin_edges(call, x, bins, range=range, weight=None, density=False)
    return _histogram(_columns(x), edges, weight, density)


@aten("aten._histogramdd_from_bin_tensors.default")
def histogramdd_from_bin_tensors(
    call: Call, x: sx.XlaOp, bins: Sequence[sx.XlaOp], *, weight: sx.XlaOp | None, density: bool
) -> sx.XlaOp:
    return _histogram(_columns(x), bins, weight, density)
