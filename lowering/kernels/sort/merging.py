"""Stable parallel merge sort of rows by any comparator, with merge path partitioning.

Rows longer than a block are sorted block by block; then adjacent runs are merged, level by level, each merge
partitioned into pieces of a block's size. Whatever the comparator answers, the result is a permutation: a merge is
partitioned once, in order, and an exhausted run is not read further.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.choices import Gate
from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support import loops
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.loops import (
    add,
    as_index,
    count,
    get,
    is_less,
    mul,
    not_,
    number,
    pick,
    put,
    smaller,
    sub,
)
from stablexla.lowering.support.types import TensorType

GROUP = 4
# Elements that a merge sort sorts by itself, before it merges them.
MERGE_BLOCK = Gate("sort.merge-block", 4096, eager=4)

Values = Sequence[ir.Value]
Less = Callable[[Values, Values], ir.Value]
"""A comparator: whether one element comes before another; an element is its value in each array, in storage form."""


@dataclass(frozen=True)
class Rows:
    """Flattened arrays of rows of equal length.

    Attributes:
        inner: the distance of a row's elements: as many rows lie side by side. Above 1 for sorts by keys of one array.
    """

    types: tuple[TensorType, ...]
    rows: int
    length: int
    inner: int = 1

    @property
    def block(self) -> int:
        """The length of the blocks that a merge sort begins with."""
        return MERGE_BLOCK()

    @property
    def pieces(self) -> int:
        """The number of blocks in a row, each sorted by itself."""
        return -(-self.length // self.block)


def merge_sort(ctx: LoweringContext, arrays: Values, rows: Rows, less: Less) -> list[ir.Value]:
    """Emit a merge sort of the arrays' rows; all arrays are permuted alike."""
    types = list(rows.types)
    sorted_ = kernel(
        ctx, "sort", arrays, lambda *xs: _sort_blocks(xs, rows, less), result_types=types, independent=True
    )
    width = rows.block
    while width < rows.length:
        sorted_ = _merge_level(ctx, sorted_, rows, less, width)
        width *= 2
    return sorted_


# --- blocks ---------------------------------------------------------------------------------------------------------


def _sort_blocks(sources: Values, rows: Rows, less: Less) -> list[ir.Value]:
    """Sort each block by itself, ping-pong between its part of the result and a buffer of a block's size."""
    longest = min(rows.block, rows.length)
    results = loops.empty_like(sources, rows.rows * rows.length)

    def block(piece: ir.Value, *arrays: ir.Value) -> list[ir.Value]:
        low, high = _piece(piece, rows)
        buffers = loops.empty_like(sources, longest)
        length = sub(high, low)
        begun = _sort_groups(sources, list(arrays), low, length, less)
        return _sort_block(begun, buffers, low, length, less, _pairs_of_levels(longest))

    return count(0, rows.rows * rows.pieces, results, block)


def _sort_groups(sources: Values, arrays: Values, base: ir.Value, length: ir.Value, less: Less) -> list[ir.Value]:
    """Copy a block with each group of `GROUP` elements sorted by adjacent exchanges, which is stable.

    The last group may be shorter: elements beyond the block's end are not moved.
    """

    def group(start: ir.Value, *to: ir.Value) -> list[ir.Value]:
        there = [is_less(add(start, n), length) for n in range(GROUP)]
        at = [add(base, smaller(add(start, n), sub(length, 1))) for n in range(GROUP)]
        places = list(at)
        for iteration in range(GROUP):
            for n in range(iteration % 2, GROUP - 1, 2):
                x, y = places[n], places[n + 1]
                swapped = arith.andi(there[n + 1], less(get(sources, y), get(sources, x)))
                places[n], places[n + 1] = loops.either(swapped, y, x), loops.either(swapped, x, y)
        made = put(get(sources, places[0]), to, at[0])
        for n in range(1, GROUP):
            made = _put_if(there[n], get(sources, places[n]), made, at[n])
        return made

    return count(0, length, arrays, group, step=GROUP)


def _put_if(condition: ir.Value, values: Values, arrays: Values, at: ir.Value) -> list[ir.Value]:
    types = [array.type for array in arrays]
    return loops.choose(condition, types, lambda: put(values, arrays, at), lambda: arrays)


def _pairs_of_levels(longest: int) -> int:
    """Return how many times runs, which begin as groups, must quadruple to cover the whole."""
    return -(-(-(-longest // GROUP) - 1).bit_length() // 2)


def _piece(piece: ir.Value, rows: Rows) -> tuple[ir.Value, ir.Value]:
    """Return the bounds [first, end) of a block."""
    if rows.pieces == 1:
        low = mul(piece, rows.length)
        return low, add(low, rows.length)
    row, part = loops.quotient(piece, rows.pieces), loops.remainder(piece, rows.pieces)
    start = mul(row, rows.length)
    low = add(start, mul(part, rows.block))
    return low, smaller(add(low, rows.block), add(start, rows.length))


def _sort_block(
    arrays: list[ir.Value], buffers: list[ir.Value], base: ir.Value, length: ir.Value, less: Less, pairs: int
) -> list[ir.Value]:
    """Merge runs, which begin as groups, into the buffers and back (ping-pong)."""
    many, zero = len(arrays), number(0)

    def two_levels(_: ir.Value, width: ir.Value, *both: ir.Value) -> list[ir.Value]:
        here, there = list(both[:many]), list(both[many:])
        there = _merge_runs(here, base, there, zero, length, width, less)
        here = _merge_runs(there, zero, here, base, length, mul(width, 2), less)
        return [mul(width, 4), *here, *there]

    return count(0, pairs, [number(GROUP), *arrays, *buffers], two_levels)[1 : many + 1]


def _merge_runs(
    source: Values, source_base: ir.Value, target: Values, target_base: ir.Value, length: ir.Value, width: ir.Value,
    less: Less,
) -> list[ir.Value]:  # fmt: skip
    """Merge each pair of adjacent runs of `width` elements."""

    def pair(start: ir.Value, *to: ir.Value) -> list[ir.Value]:
        middle = smaller(add(start, width), length)
        end = smaller(add(middle, width), length)
        ends = [add(source_base, v) for v in (start, middle, middle, end)]
        return merge(source, (ends[0], ends[1]), (ends[2], ends[3]), to, add(target_base, start), sub(end, start), less)

    return count(0, length, target, pair, step=mul(width, 2))


def merge(
    source: Values,
    left: tuple[ir.Value, ir.Value],
    right: tuple[ir.Value, ir.Value],
    target: Values,
    to: ir.Value,
    length: ir.Value,
    less: Less,
) -> list[ir.Value]:
    """Merge two sorted runs, stably, into `length` elements from `to` on.

    The merge is bidirectional, from both ends at once, so that two steps are in flight. Where the comparator
    contradicts itself the two ends may not meet; then the merge is repeated from the left alone.
    """
    trip_count = loops.quotient(length, 2)
    run = _Run(source, left, right, less)

    def step(k: ir.Value, i: ir.Value, j: ir.Value, p: ir.Value, q: ir.Value, *arrays: ir.Value) -> list[ir.Value]:
        first, i, j = run.forward(i, j)
        last, p, q = run.backward(p, q)
        arrays_ = put(first, arrays, add(to, k))
        return [i, j, p, q, *put(last, arrays_, sub(sub(add(to, length), 1), k))]

    begin = [left[0], right[0], sub(left[1], 1), sub(right[1], 1)]
    i, j, p, q, *made = count(0, trip_count, [*begin, *target], step)
    met = arith.andi(not_(is_less(p, sub(i, 1))), not_(is_less(q, sub(j, 1))))

    # The remainder: the middle element of an odd number, or all.
    rest = [i, j, add(to, trip_count), sub(length, mul(trip_count, 2))]
    i, j, to, length = pick(met, rest, [left[0], right[0], to, length])
    return run.from_left(i, j, made, to, length)


@dataclass(frozen=True)
class _Run:
    """Two runs that are being merged, from the left or from the right."""

    source: Values
    left: tuple[ir.Value, ir.Value]
    right: tuple[ir.Value, ir.Value]
    less: Less

    def forward(self, i: ir.Value, j: ir.Value) -> tuple[list[ir.Value], ir.Value, ir.Value]:
        """Return the smaller of the elements at i and j; an exhausted run has none."""
        last_left = loops.larger(sub(self.left[1], 1), self.left[0])
        one, other = smaller(i, last_left), smaller(j, sub(self.right[1], 1))
        second = arith.andi(is_less(j, self.right[1]), self.less(get(self.source, other), get(self.source, one)))
        second = arith.ori(second, not_(is_less(i, self.left[1])))
        moved = as_index(second)
        return get(self.source, loops.either(second, other, one)), sub(add(i, 1), moved), add(j, moved)

    def backward(self, i: ir.Value, j: ir.Value) -> tuple[list[ir.Value], ir.Value, ir.Value]:
        """Return the larger of the elements at i and j."""
        first_right = smaller(self.right[0], sub(self.right[1], 1))
        one, other = loops.larger(i, self.left[0]), loops.larger(j, first_right)
        first = arith.andi(not_(is_less(i, self.left[0])), self.less(get(self.source, other), get(self.source, one)))
        first = arith.ori(first, is_less(j, self.right[0]))
        moved = as_index(first)
        return get(self.source, loops.either(first, one, other)), sub(i, moved), add(sub(j, 1), moved)

    def from_left(self, i: ir.Value, j: ir.Value, target: Values, to: ir.Value, length: ir.Value) -> list[ir.Value]:
        def step(k: ir.Value, i: ir.Value, j: ir.Value, *arrays: ir.Value) -> list[ir.Value]:
            element, i, j = self.forward(i, j)
            return [i, j, *put(element, arrays, add(to, k))]

        return count(0, length, [i, j, *target], step)[2:]


# --- levels ---------------------------------------------------------------------------------------------------------


def _merge_level(ctx: LoweringContext, arrays: Values, rows: Rows, less: Less, width: int) -> list[ir.Value]:
    """Merge each pair of runs of `width` elements, by blocks of the output."""
    total = rows.rows * rows.pieces
    places = TensorType(BY_NAME["s64"], (total,))
    many = len(arrays)
    (cuts,) = kernel(
        ctx,
        "sort_cuts",
        [*arrays, number(width)],
        lambda *given: [_cut(given[:many], rows, less, given[many], total)],
        result_types=[places],
    )
    return kernel(
        ctx,
        "sort_merge",
        [*arrays, cuts, number(width)],
        lambda *given: _merge_pieces(given[:many], rows, less, given[many], given[many + 1]),
        result_types=list(rows.types),
        independent=True,
    )


@dataclass(frozen=True)
class _Pair:
    """Two adjacent runs, and a block of their merged output."""

    start: ir.Value
    middle: ir.Value
    end: ir.Value
    low: ir.Value
    high: ir.Value


def _pair_of(piece: ir.Value, rows: Rows, width: ir.Value) -> _Pair:
    low, high = _piece(piece, rows)
    row = mul(loops.quotient(piece, rows.pieces), rows.length)
    both = mul(width, 2)
    start = add(row, mul(loops.quotient(sub(low, row), both), both))
    row_end = add(row, rows.length)
    middle = smaller(add(start, width), row_end)
    return _Pair(start, middle, smaller(add(middle, width), row_end), low, high)


def _cut(arrays: Values, rows: Rows, less: Less, width: ir.Value, total: int) -> ir.Value:
    """Partition the merges: for each output block, the first element of its left run in or after the block."""
    i64 = ir.IntegerType.get_signless(64)

    def block(piece: ir.Value, before: ir.Value, cuts: ir.Value) -> list[ir.Value]:
        pair = _pair_of(piece, rows, width)
        first = loops.is_equal(pair.low, pair.start)
        # Never before the previous cut, in either run: blocks then share no element.
        least = loops.larger(before, sub(pair.low, sub(pair.end, pair.middle)))
        most = smaller(add(before, rows.block), pair.middle)
        least, most = pick(first, [pair.start, pair.start], [least, most])
        cut, _ = _search(arrays, pair, least, most, less)
        return [cut, *put([arith.index_cast(i64, cut)], [cuts], piece)]

    empty = ir.Operation.create("tensor.empty", results=[ir.RankedTensorType.get([total], i64)], operands=[]).result
    return count(0, total, [number(0), empty], block)[1]


def _search(arrays: Values, pair: _Pair, least: ir.Value, most: ir.Value, less: Less) -> list[ir.Value]:
    """Binary search (merge path): how many elements of the left run precede position `low` of the merged runs."""

    def body(least: ir.Value, most: ir.Value) -> list[ir.Value]:
        half = add(least, loops.quotient(sub(most, least), 2))
        other = sub(add(pair.middle, sub(pair.low, half)), 1)
        right_first = less(get(arrays, other), get(arrays, half))
        return [arith.select(right_first, least, add(half, 1)), arith.select(right_first, half, most)]

    return loops.repeat([least, most], lambda least, most: is_less(least, most), body)


def _merge_pieces(arrays: Values, rows: Rows, less: Less, cuts: ir.Value, width: ir.Value) -> list[ir.Value]:
    """Merge each output block from its parts of the two runs."""
    total = rows.rows * rows.pieces
    results = loops.empty_like(arrays, rows.rows * rows.length)

    def block(piece: ir.Value, *to: ir.Value) -> list[ir.Value]:
        pair = _pair_of(piece, rows, width)
        following = smaller(add(piece, 1), total - 1)
        (here,), (there,) = get([cuts], piece), get([cuts], following)
        left = arith.index_cast(ir.IndexType.get(), here)
        last = loops.is_equal(pair.high, pair.end)
        left_end = arith.select(last, pair.middle, arith.index_cast(ir.IndexType.get(), there))
        right = _right(pair, pair.low, left)
        right_end = _right(pair, pair.high, left_end)
        return merge(arrays, (left, left_end), (right, right_end), to, pair.low, sub(pair.high, pair.low), less)

    return count(0, total, results, block)


def _right(pair: _Pair, place: ir.Value, left: ir.Value) -> ir.Value:
    """Return the cut of the right run for an output position whose cut of the left run is `left`."""
    return add(pair.middle, sub(sub(place, pair.start), sub(left, pair.start)))
