"""Sorting and searching: orders, the first of them, medians, and places among sorted numbers."""

from __future__ import annotations

import math

import stablexla as sx
from stablexla.interop.torch.call import (
    Call,
    Value,
    convert,
    full_like,
    kept,
    place,
    result_type,
    total,
    zeros_like,
)
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.rules.indexing import rows_of


def _alike(x: sx.XlaOp) -> sx.XlaOp:
    """Return floats with one zero and one NaN, so that the total order is PyTorch's: NaN above all numbers."""
    if not x.element_type.is_float:
        return x
    x = sx.select(sx.eq(x, zeros_like(x)), zeros_like(x), x)
    return sx.select(sx.ne(x, x), full_like(x, math.nan), x)


def _before(x: sx.XlaOp, y: sx.XlaOp, descending: bool) -> sx.XlaOp:
    first, second = (_alike(y), _alike(x)) if descending else (_alike(x), _alike(y))
    return sx.lt_total_order(first, second) if x.element_type.is_float else sx.lt(first, second)


def sorted_along(x: sx.XlaOp, dim: int, descending: bool = False) -> tuple[sx.XlaOp, sx.XlaOp]:
    """Return a tensor sorted along a dimension, and where its elements were; equal ones keep their order."""
    places = x.builder.iota(sx.s64[x.shape.dimensions], dim)
    both = sx.sort((x, places), lambda a, b, i, j: _before(a, b, descending), dim, True)
    return both[0], both[1]


def _first(x: sx.XlaOp, k: int, dim: int, largest: bool) -> tuple[sx.XlaOp, sx.XlaOp]:
    """Return the first elements of the order along a dimension, and where they are."""
    last = x.shape.rank - 1
    order = [*(d for d in range(last + 1) if d != dim), dim]
    rows = sx.transpose(x, order)
    _, places = sx.top_k(_alike(rows), k, largest)
    places = convert(places, "s64")
    back = sorted(range(last + 1), key=order.__getitem__)
    return sx.transpose(sx.torch_gather(rows, places, last), back), sx.transpose(places, back)


# ---- sorting ----


@aten("aten.sort.default")
def sort(call: Call, x: sx.XlaOp, dim: int, descending: bool) -> tuple[sx.XlaOp, sx.XlaOp]:
    if not x.shape.rank:
        return x, call.constant(0, "s64")
    return sorted_along(x, place(dim, x.shape.rank), descending)


@aten("aten.sort.stable")
def sort_stable(
    call: Call, x: sx.XlaOp, *, stable: bool | None, dim: int, descending: bool
) -> tuple[sx.XlaOp, sx.XlaOp]:
    return sort(call, x, dim, descending)


@aten("aten.argsort.default")
def argsort(call: Call, x: sx.XlaOp, dim: int, descending: bool) -> sx.XlaOp:
    return sort(call, x, dim, descending)[1]


@aten("aten.argsort.stable")
def argsort_stable(call: Call, x: sx.XlaOp, *, stable: bool, dim: int, descending: bool) -> sx.XlaOp:
    return sort(call, x, dim, descending)[1]


@aten("aten.topk.default")
def topk(call: Call, x: sx.XlaOp, k: int, dim: int, largest: bool, sorted: bool) -> tuple[sx.XlaOp, sx.XlaOp]:
    if not x.shape.rank:
        return x, call.constant(0, "s64")
    if 0 in call.dimensions:
        return full_like(x, 0, call.dimensions), call.constant(0, "s64", call.dimensions)
    return _first(x, k, place(dim, x.shape.rank), largest)


# ---- one of the order ----


def _reshaped(call: Call, *parts: sx.XlaOp) -> list[sx.XlaOp]:
    return [sx.reshape(part, call.dimensions) for part in parts]


@aten("aten.kthvalue.default")
def kthvalue(call: Call, x: sx.XlaOp, k: int, dim: int, keepdim: bool) -> list[sx.XlaOp]:
    if not x.shape.rank:
        return [x, call.constant(0, "s64")]
    d = place(dim, x.shape.rank)
    if 0 in call.dimensions:
        return [full_like(x, 0, call.dimensions), call.constant(0, "s64", call.dimensions)]
    parts = _first(x, k, d, False)
    return _reshaped(call, *(sx.slice_in_dim(part, k - 1, k, 1, d) for part in parts))


@aten("aten.median.dim")
def median(call: Call, x: sx.XlaOp, dim: int, keepdim: bool) -> list[sx.XlaOp]:
    """The lower one of two; NaN where there is one, the first of them."""
    return _median(call, x, dim, skip=False)


@aten("aten.nanmedian.dim")
def nanmedian(call: Call, x: sx.XlaOp, dim: int, keepdim: bool) -> list[sx.XlaOp]:
    """The lower one of two among numbers."""
    return _median(call, x, dim, skip=True)


@aten("aten.median.default")
def median_of_all(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return _median_of_all(call, x, skip=False)


@aten("aten.nanmedian.default")
def nanmedian_of_all(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return _median_of_all(call, x, skip=True)


def _median_of_all(call: Call, x: sx.XlaOp, *, skip: bool) -> sx.XlaOp:
    size = x.shape.size
    if not size:
        return full_like(x, math.nan, ())
    return _median(call, sx.reshape(x, (size,)), 0, skip=skip)[0]


def _median(call: Call, x: sx.XlaOp, dim: int, *, skip: bool) -> list[sx.XlaOp]:
    if not x.shape.rank:
        return [x, call.constant(0, "s64")]
    if 0 in call.dimensions:
        return [full_like(x, 0, call.dimensions), call.constant(0, "s64", call.dimensions)]
    d = place(dim, x.shape.rank)
    size = x.shape.dimensions[d]
    if not x.element_type.is_float:
        parts = _first(x, (size + 1) // 2, d, False)
        return _reshaped(call, *(sx.slice_in_dim(part, (size - 1) // 2, (size + 1) // 2, 1, d) for part in parts))
    values, places = sorted_along(x, d)
    numbers = kept(total(convert(sx.eq(x, x), "s64"), (d,)), x.shape.dimensions, (d,))
    middle = sx.div(sx.max(sx.sub(numbers, 1), zeros_like(numbers)), 2)
    if not skip:  # the first NaN stands behind the numbers
        middle = sx.select(sx.lt(numbers, size), numbers, middle)
    return _reshaped(call, *(sx.torch_gather(part, middle, d) for part in (values, places)))


@aten("aten.mode.default")
def mode(call: Call, x: sx.XlaOp, dim: int, keepdim: bool) -> list[sx.XlaOp]:
    """The least of the most frequent numbers and its last place: the longest run of equals in the order."""
    if not x.shape.rank:
        return [x, call.constant(0, "s64")]
    d = place(dim, x.shape.rank)
    if 0 in x.shape.dimensions:
        return [full_like(x, 0, call.dimensions), call.constant(0, "s64", call.dimensions)]
    size = x.shape.dimensions[d]
    values, places = sorted_along(x, d)
    number = call.iota("s64", x.shape.dimensions, d)
    ahead = sx.slice_in_dim(values, 0, size - 1, 1, d)
    differs = sx.ne(ahead, sx.slice_in_dim(values, 1, size, 1, d))
    begins = sx.pad(differs, call.constant(True, "pred"), [(int(n == d), 0, 0) for n in range(x.shape.rank)])
    start = sx.select(begins, number, zeros_like(number))
    window = [size if n == d else 1 for n in range(x.shape.rank)]
    before = [(size - 1, 0) if n == d else (0, 0) for n in range(x.shape.rank)]
    start = sx.reduce_window(start, full_like(start, 0, ()), sx.max, window, None, padding=before)
    # The first place where a run is longest: that of its last element.
    length = sx.sub(number, start)
    key = sx.sub(sx.mul(length, size), number)
    best = sx.reduce(key, full_like(key, -size * size, ()), sx.max, (d,))
    at = sx.sub(full_like(best, size - 1), sx.rem(sx.add(best, 2 * size - 1), size))
    at = kept(at, x.shape.dimensions, (d,))
    return _reshaped(call, *(sx.torch_gather(part, at, d) for part in (values, places)))


# ---- searching ----


def search(numbers: sx.XlaOp, x: sx.XlaOp, right: bool, sorter: sx.XlaOp | None = None) -> sx.XlaOp:
    """Return how many of sorted numbers come before each element; with `right`, those that equal it, too.

    Args:
        numbers: along the last dimension, for all elements or for each row of them.
        x: of the same element type.
        sorter: the order of the numbers, where they are not sorted.
    """
    size = numbers.shape.dimensions[-1]
    sizes, rows = x.shape.dimensions, numbers.shape.rank > 1
    if not size or 0 in sizes:
        return full_like(convert(x, "s64"), 0)
    last = numbers.shape.rank - 1
    if not rows:
        x = sx.reshape(x, (math.prod(sizes),))

    def step(state: sx.XlaOp) -> sx.XlaOp:
        count, low, high = state
        middle = sx.div(sx.add(low, high), 2)
        at = sx.min(middle, full_like(middle, size - 1))
        at = at if sorter is None else sx.torch_gather(sorter, at, last)
        number = sx.torch_gather(numbers, at, last)
        # By the opposite comparison: a NaN on either side goes on to the right.
        further = sx.not_(sx.gt(number, x) if right else sx.ge(number, x))
        further = sx.and_(further, sx.lt(low, high))
        low, high = sx.select(further, sx.add(middle, 1), low), sx.select(further, high, middle)
        return sx.tuple([sx.add(count, 1), low, high])

    low = full_like(convert(x, "s64"), 0)
    state = sx.tuple([x.builder.constant(0), low, full_like(low, size)])
    return sx.reshape(sx.while_(lambda state: sx.lt(state[0], size.bit_length()), step, state)[1], sizes)


def _searched(call: Call, numbers: sx.XlaOp, x: Value, right: bool, sorter: sx.XlaOp | None) -> sx.XlaOp:
    type_ = result_type(numbers, x)
    numbers, x = convert(numbers, type_), call.op(x, type_)
    return search(numbers, x, right, None if sorter is None else convert(sorter, "s64"))


@aten("aten.searchsorted.Tensor", "aten.searchsorted.Scalar")
def searchsorted(
    call: Call, numbers: sx.XlaOp, x: Value, *, right: bool, side: str | None, sorter: sx.XlaOp | None, out_int32: bool
) -> sx.XlaOp:
    return _searched(call, numbers, x, right or side == "right", sorter)


@aten("aten.bucketize.Tensor", "aten.bucketize.Scalar")
def bucketize(call: Call, x: Value, boundaries: sx.XlaOp, *, right: bool, out_int32: bool) -> sx.XlaOp:
    return _searched(call, boundaries, x, right, None)


@aten("aten.isin.Tensor_Tensor", "aten.isin.Tensor_Scalar", "aten.isin.Scalar_Tensor")
def isin(call: Call, elements: Value, tests: Value, *, assume_unique: bool, invert: bool) -> sx.XlaOp:
    type_ = result_type(elements, tests)
    x, tests = call.op(elements, type_), call.op(tests, type_)
    size = tests.shape.size
    if not size:
        return call.constant(invert, "pred", call.dimensions)
    numbers, _ = sorted_along(sx.reshape(tests, (size,)), 0)
    at = sx.min(search(numbers, x, False), full_like(convert(x, "s64"), size - 1))
    found = sx.eq(rows_of(numbers, 0, at), x)
    return sx.not_(found) if invert else found
