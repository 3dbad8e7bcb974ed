"""Histograms, over one and several dimensions, by bounds or by edges."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, prod

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.interop.torch.call import Call, broadcast, convert, full_like, reduced, total, wide, zeros_like
from stablexla.interop.torch.registry import aten

Bounds = tuple[XlaOp, XlaOp]


@aten("aten.histc.default")
def histc(call: Call, x: XlaOp, bins: int, min: float, max: float) -> XlaOp:
    x = sx.reshape(wide(x), (x.shape.size,))
    low, high = _bounds(x, None if min == max else (float(min), float(max)), 1.0)
    steps = sx.div(_over(sx.sub(x, _like(low, x)), float(bins)), _like(sx.sub(high, low), x))
    place = sx.clamp(0, convert(sx.floor(steps), "s64"), bins - 1)
    return _counted([place], [_inside(x, low, high)], (bins,), full_like(x, 1))


def _over(x: XlaOp, factor: float) -> XlaOp:
    return sx.mul(x, full_like(x, factor))


@aten("aten.histogram.bin_ct")
def histogram(
    call: Call, x: XlaOp, bins: int, *, range: Sequence[float] | None, weight: XlaOp | None, density: bool
) -> tuple[XlaOp, XlaOp]:
    flat = sx.reshape(x, (x.shape.size, 1))
    (edges,) = bin_edges(call, flat, [bins], range=range)
    return _histogram(call, flat, [edges], weight, density, even=True), edges


@aten("aten.histogram.bins_tensor")
def histogram_by_edges(
    call: Call, x: XlaOp, bins: XlaOp, *, weight: XlaOp | None, density: bool
) -> tuple[XlaOp, XlaOp]:
    return _histogram(call, sx.reshape(x, (x.shape.size, 1)), [bins], weight, density), bins


@aten("aten._histogramdd_bin_edges.default")
def bin_edges(
    call: Call,
    x: XlaOp,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None,
    weight: XlaOp | None = None,
    density: bool = False,
) -> list[XlaOp]:
    x = _points(x)
    made = []
    for number, count in enumerate(bins):
        given = None if range is None else (range[2 * number], range[2 * number + 1])
        made.append(_evenly(*_bounds(_column(x, number), given, 0.5), count))
    return made


@aten("aten._histogramdd_from_bin_cts.default")
def histogramdd(
    call: Call,
    x: XlaOp,
    bins: Sequence[int],
    *,
    range: Sequence[float] | None,
    weight: XlaOp | None,
    density: bool,
) -> XlaOp:
    return _histogram(call, _points(x), bin_edges(call, x, bins, range=range), weight, density, even=True)


@aten("aten._histogramdd_from_bin_tensors.default")
def histogramdd_by_edges(call: Call, x: XlaOp, bins: Sequence[XlaOp], *, weight: XlaOp | None, density: bool) -> XlaOp:
    return _histogram(call, _points(x), bins, weight, density)


def _points(x: XlaOp) -> XlaOp:
    """Return points as a matrix with a row for each."""
    *others, columns = x.shape.dimensions
    return sx.reshape(x, (prod(others), columns))


def _column(x: XlaOp, number: int) -> XlaOp:
    return sx.reshape(sx.slice_in_dim(x, number, number + 1, 1, 1), (x.shape.dimensions[0],))


def _bounds(x: XlaOp, given: tuple[float, float] | None, margin: float) -> Bounds:
    """Return the bounds that are given, or the least and the largest number, or 0 and 1 for none; equal ones are
    moved apart by a margin."""
    if given is not None:
        low, high = (full_like(x, each, ()) for each in given)
    elif not x.shape.size:
        low, high = full_like(x, 0 if margin < 1 else -1, ()), full_like(x, 1, ())
    else:
        low, high = reduced(x, inf, sx.min, (0,)), reduced(x, -inf, sx.max, (0,))
    apart = sx.select(sx.eq(low, high), full_like(low, margin), zeros_like(low))
    return sx.sub(low, apart), sx.add(high, apart)


def _evenly(low: XlaOp, high: XlaOp, bins: int) -> XlaOp:
    """Return bins + 1 edges, as `linspace` makes them: from both ends to the middle."""
    at = low.builder.iota(sx.Shape(low.element_type, (bins + 1,)), 0)
    step = _like(sx.div(sx.sub(high, low), full_like(low, float(bins))), at)
    from_low = sx.add(_like(low, at), sx.mul(step, at))
    from_high = sx.sub(_like(high, at), sx.mul(step, sx.sub(full_like(at, float(bins)), at)))
    return sx.select(sx.lt(at, full_like(at, (bins + 1) // 2)), from_low, from_high)


def _like(scalar: XlaOp, x: XlaOp) -> XlaOp:
    return broadcast(scalar, x.shape.dimensions)


def _histogram(
    call: Call, x: XlaOp, edges: Sequence[XlaOp], weight: XlaOp | None, density: bool, even: bool = False
) -> XlaOp:
    """Return the histogram of points [n, d] by the edges along each of d dimensions.

    Args:
        even: the bins of a dimension have one width.
    """
    columns = [_column(x, number) for number in range(len(edges))]
    places, inside, ends = [], [], []
    for column, along in zip(columns, edges, strict=True):
        places.append(_place_among(call, column, along, even))
        ends.append((_edge(along, 0), _edge(along, along.shape.size - 1)))
        inside.append(_inside(column, *ends[-1]))
    sizes = tuple(along.shape.size - 1 for along in edges)
    weights = full_like(columns[0], 1) if weight is None else sx.reshape(weight, (weight.shape.size,))
    made = _counted(places, inside, sizes, convert(weights, x.element_type))
    if density:
        made = sx.div(made, _like(total(made, tuple(range(len(sizes)))), made))
        for number, along in enumerate(edges):
            widths = sx.sub(_part(along, 1, sizes[number] + 1), _part(along, 0, sizes[number]))
            made = sx.div(made, sx.broadcast_in_dim(widths, sizes, (number,)))
    return made


def _part(x: XlaOp, start: int, stop: int) -> XlaOp:
    return sx.slice(x, (start,), (stop,))


def _edge(edges: XlaOp, number: int) -> XlaOp:
    return sx.reshape(_part(edges, number, number + 1), ())


def _inside(x: XlaOp, low: XlaOp, high: XlaOp) -> XlaOp:
    return sx.and_(sx.ge(x, _like(low, x)), sx.le(x, _like(high, x)))


def _place_among(call: Call, x: XlaOp, edges: XlaOp, even: bool) -> XlaOp:
    """Return each number's bin: the last one whose lower edge is not above it, and the last bin for its upper edge."""
    bins = edges.shape.size - 1
    if not even:
        shape = sx.Shape("s64", x.shape.dimensions)
        upper = call.apply("aten.searchsorted.Tensor", edges, x, right=True, shape=shape)
        return sx.clamp(0, convert(upper, "s64") - 1, bins - 1)
    low, high = _edge(edges, 0), _edge(edges, bins)
    steps = sx.div(_over(sx.sub(x, _like(low, x)), float(bins)), _like(sx.sub(high, low), x))
    place = sx.clamp(0, convert(sx.floor(steps), "s64"), bins - 1)
    # Rounding may have led to a neighbour of the bin that the edges themselves say.
    below = sx.lt(x, sx.torch_index_select(edges, place, 0))
    above = sx.ge(x, sx.torch_index_select(edges, place + 1, 0))
    return sx.clamp(0, place - convert(below, "s64") + convert(above, "s64"), bins - 1)


def _counted(places: Sequence[XlaOp], inside: Sequence[XlaOp], sizes: tuple[int, ...], weights: XlaOp) -> XlaOp:
    """Return the sums of weights in each bin; those outside are sent behind the last bin, where scatter drops them."""
    flat, fits = places[0], inside[0]
    for place, fit, size in zip(places[1:], inside[1:], sizes[1:], strict=True):
        flat, fits = flat * size + place, sx.and_(fits, fit)
    flat = sx.select(fits, flat, full_like(flat, prod(sizes)))
    empty = full_like(weights, 0, (prod(sizes),))
    return sx.reshape(sx.scatter(empty, flat, weights, sx.add, 1, (), (0,), (0,)), sizes)
