"""Images at places that tensors tell, by the nearest element, linear or cubic interpolation, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product
from math import prod

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.interop.torch.call import Call, convert, full_like, total, wide, zeros_like
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.sampling import scattered

LINEAR, NEAREST, CUBIC = range(3)
ZEROS, BORDER, REFLECTION = range(3)
_A = -0.75


@dataclass(frozen=True)
class _Tap:
    """An element along one dimension for each place, f[N,P]: its number, its weight, and the weight's slope by the
    grid's coordinate; None is 1, and without a slope 0."""

    number: XlaOp
    weight: XlaOp | None = None
    slope: XlaOp | None = None


@aten("aten.grid_sampler_2d.default", "aten.grid_sampler_3d.default")
def grid_sampler(call: Call, x: XlaOp, grid: XlaOp, mode: int, padding: int, align_corners: bool) -> XlaOp:
    corners = _corners(x, grid, mode, padding, align_corners)
    flat = sx.reshape(wide(x), (*x.shape.dimensions[:2], prod(x.shape.dimensions[2:])))
    parts = []
    for taps in corners:
        place, inside = _place(taps, x.shape.dimensions[2:])
        part = _at(flat, place)
        part = sx.select(_over_features(inside, part), part, zeros_like(part))
        weight = _product([tap.weight for tap in taps])  # NaN at places that are none, as the result is there
        if weight is not None:
            part = sx.mul(part, _over_features(convert(weight, part.element_type), part))
        parts.append(part)
    return sx.reshape(reduce(sx.add, parts), call.dimensions)


@aten("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def grid_sampler_backward(
    call: Call, grad: XlaOp, x: XlaOp, grid: XlaOp, mode: int, padding: int, align_corners: bool,
    output_mask: Sequence[bool],
) -> list[XlaOp | None]:  # fmt: skip
    corners = _corners(x, grid, mode, padding, align_corners)
    (batch, features, *sizes), count = x.shape.dimensions, prod(grid.shape.dimensions[1:-1])
    flat, grad = sx.reshape(wide(x), (batch, features, prod(sizes))), sx.reshape(wide(grad), (batch, features, count))
    rows = (batch * features, count)
    places, values = [], []
    slopes: list[XlaOp] = [full_like(grad, 0, (batch, count))] * len(sizes)
    for taps in corners:
        place, inside = _place(taps, sizes)
        if output_mask[0]:
            weight = _product([tap.weight for tap in taps])
            part = grad if weight is None else sx.mul(grad, _over_features(convert(weight, grad.element_type), grad))
            places.append(sx.reshape(_over_features(sx.select(inside, place, full_like(place, -1)), grad), rows))
            values.append(sx.reshape(part, rows))
        if output_mask[1] and mode != NEAREST:
            projected = total(sx.mul(_at(flat, place), grad), (1,))
            projected = sx.select(inside, projected, zeros_like(projected))
            for d, tap in enumerate(taps):
                rate = _product([each.slope if each is tap else each.weight for each in taps])
                assert rate is not None  # a tap has a slope, but for the nearest one
                slopes[d] = sx.add(slopes[d], sx.mul(projected, convert(rate, grad.element_type)))
    by_x = by_grid = None
    if output_mask[0]:
        joined, added = sx.concat_in_dim(places, 1), sx.concat_in_dim(values, 1)
        by_x = sx.reshape(scattered(rows[0], prod(sizes), joined, added), x.shape.dimensions)
    if output_mask[1]:  # the grid's coordinates are those of the last dimension first
        columns = [sx.reshape(each, (batch, count, 1)) for each in reversed(slopes)]
        by_grid = sx.reshape(sx.concat_in_dim(columns, 2), grid.shape.dimensions)
    return [by_x, by_grid]


def _corners(x: XlaOp, grid: XlaOp, mode: int, padding: int, align_corners: bool) -> list[tuple[_Tap, ...]]:
    """Return the elements around each place: a tap for each dimension."""
    sizes, places = x.shape.dimensions[2:], (grid.shape.dimensions[0], prod(grid.shape.dimensions[1:-1]))
    flat = sx.reshape(wide(grid), (*places, len(sizes)))
    taps = []
    for d, size in enumerate(sizes):
        column = len(sizes) - 1 - d
        at = sx.reshape(sx.slice_in_dim(flat, column, column + 1, 1, 2), places)
        taps.append(_taps(at, size, mode, padding, align_corners))
    return list(product(*taps))


def _taps(at: XlaOp, size: int, mode: int, padding: int, align_corners: bool) -> list[_Tap]:
    """Return the elements along a dimension for coordinates from -1 to 1."""
    one, half = full_like(at, 1), full_like(at, 0.5)
    if align_corners:
        rate = (size - 1) / 2
        at = sx.mul(sx.add(at, one), full_like(at, rate))
    else:
        rate = size / 2
        at = sx.mul(sx.sub(sx.mul(sx.add(at, one), full_like(at, size)), one), half)
    if mode == CUBIC:
        first = sx.floor(at)
        share, taps = sx.sub(at, first), []
        for offset in range(-1, 3):
            number, _ = _within(sx.add(first, full_like(at, offset)), size, padding, align_corners)
            weight, slope = _cubic(sx.sub(share, full_like(at, offset)), offset)
            taps.append(_Tap(number, weight, sx.mul(slope, full_like(at, rate))))
        return taps
    at, direction = _within(at, size, padding, align_corners)
    if mode == NEAREST:
        return [_Tap(sx.round_nearest_even(at))]
    slope = sx.mul(direction, full_like(at, rate))
    first = sx.floor(at)
    share = sx.sub(at, first)
    return [_Tap(first, sx.sub(one, share), sx.neg(slope)), _Tap(sx.add(first, one), share, slope)]


def _within(at: XlaOp, size: int, padding: int, align_corners: bool) -> tuple[XlaOp, XlaOp]:
    """Return coordinates moved into the image, and their slope: 0 at a border and beyond, -1 if reflected."""
    one, nothing = full_like(at, 1), zeros_like(at)
    slope = one
    if padding == ZEROS:
        return at, slope
    if padding == REFLECTION:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if span == 0:
            return nothing, nothing
        off = sx.sub(at, full_like(at, low))
        distance, length = sx.abs(off), full_like(at, span)
        rest = sx.rem(distance, length)
        flips = sx.floor(sx.div(distance, length))
        even = sx.eq(sx.rem(flips, full_like(at, 2)), nothing)
        at = sx.add(sx.select(even, rest, sx.sub(length, rest)), full_like(at, low))
        slope = sx.select(sx.eq(even, sx.ge(off, nothing)), one, sx.neg(one))
    last = full_like(at, size - 1)
    free = sx.and_(sx.gt(at, nothing), sx.lt(at, last))
    return sx.clamp(nothing, at, last), sx.select(free, slope, nothing)


def _cubic(x: XlaOp, offset: int) -> tuple[XlaOp, XlaOp]:
    """Return Keys' filter of x, from -offset to 1 - offset, and its slope."""
    sign = 1 if offset <= 0 else -1  # of x
    x = sx.mul(x, full_like(x, sign))

    def polynomial(*factors: float) -> XlaOp:
        made = full_like(x, factors[0])
        for factor in factors[1:]:
            made = sx.add(sx.mul(made, x), full_like(x, factor))
        return made

    if offset in (0, 1):
        value, slope = polynomial(_A + 2, -(_A + 3), 0, 1), polynomial(3 * (_A + 2), -2 * (_A + 3), 0)
    else:
        value, slope = polynomial(_A, -5 * _A, 8 * _A, -4 * _A), polynomial(3 * _A, -10 * _A, 8 * _A)
    return value, sx.mul(slope, full_like(x, sign))


def _product(factors: Sequence[XlaOp | None]) -> XlaOp | None:
    made = None
    for factor in factors:
        if factor is not None:
            made = factor if made is None else sx.mul(made, factor)
    return made


def _place(taps: Sequence[_Tap], sizes: Sequence[int]) -> tuple[XlaOp, XlaOp]:
    """Return the numbers of elements in an image, s32[N,P], 0 outside of it, and which are inside."""
    place = inside = None
    for tap, size in zip(taps, sizes):
        number, last = tap.number, full_like(tap.number, size - 1)
        here = sx.and_(sx.ge(number, zeros_like(number)), sx.le(number, last))
        number = sx.convert_element_type(sx.select(here, number, zeros_like(number)), "s32")
        place = number if place is None else sx.add(sx.mul(place, full_like(place, size)), number)
        inside = here if inside is None else sx.and_(inside, here)
    assert place is not None
    assert inside is not None
    return place, inside


def _at(x: XlaOp, places: XlaOp) -> XlaOp:
    """Return from x[N,C,S] the elements at places[N,P] of all features, f[N,C,P]."""
    return sx.gather(
        x, places, 2, offset_dims=(1,), slice_sizes=(1, x.shape.dimensions[1], 1), collapsed_slice_dims=(2,),
        start_index_map=(2,), operand_batching_dims=(0,), start_indices_batching_dims=(0,),
    )  # fmt: skip


def _over_features(x: XlaOp, like: XlaOp) -> XlaOp:
    """Return x[N,P] for all features, f[N,C,P]."""
    return sx.broadcast_in_dim(x, like.shape.dimensions, (0, 2))
