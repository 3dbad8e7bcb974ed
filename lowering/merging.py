"""Stable merge sort of rows by any comparison, as kernels whose pieces can run at the same time.

Rows longer than a block are sorted block by block; then neighbouring runs are merged, level by level, each merge cut
into pieces of a block's size. Whatever the comparison answers, every element comes out once: where a merge is cut is
decided once, in order, and a run that is used up is not read on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.element_types import BY_NAME
from stablexla.lowering import loops
from stablexla.lowering.context import LoweringContext
from stablexla.lowering.kernels import kernel
from stablexla.lowering.loops import add, as_index, count, get, is_less, mul, not_, number, pick, put, smaller, sub
from stablexla.lowering.types import TensorType

BLOCK = 4096

Values = Sequence[ir.Value]
Less = Callable[[Values, Values], ir.Value]
"""Whether one element comes before another; an element is its value in each array, as stored."""


@dataclass(frozen=True)
class Rows:
    """Arrays of one dimension, each the rows of equal length one after the other."""

    types: tuple[TensorType, ...]
    rows: int
    length: int

    @property
    def pieces(self) -> int:
        """Blocks in a row."""
        return -(-self.length // BLOCK)


def merge_sort(ctx: LoweringContext, arrays: Values, rows: Rows, less: Less) -> list[ir.Value]:
    """The arrays with their rows sorted; all are moved alike."""
    types = list(rows.types)
    sorted_ = kernel(
        ctx, "sort", arrays, lambda *xs: _sort_blocks(xs, rows, less), result_types=types, independent=True
    )
    width = BLOCK
    while width < rows.length:
        sorted_ = _merge_level(ctx, sorted_, rows, less, width)
        width *= 2
    return sorted_


# --- blocks ---------------------------------------------------------------------------------------------------------


def _sort_blocks(sources: Values, rows: Rows, less: Less) -> list[ir.Value]:
    """Sorts each block by itself, between its place in the result and a buffer as long as a block."""
    longest = min(BLOCK, rows.length)
    results = loops.empty_like(sources, rows.rows * rows.length)

    def block(piece: ir.Value, *arrays: ir.Value) -> list[ir.Value]:
        low, high = _piece(piece, rows)
        buffers = loops.empty_like(sources, longest)
        length = sub(high, low)
        copied = count(0, length, arrays, lambda k, *to: put(get(sources, add(low, k)), to, add(low, k)))
        return _sort_block(list(copied), list(buffers), low, length, less, _pairs_of_levels(longest))

    return count(0, rows.rows * rows.pieces, results, block)


def _pairs_of_levels(longest: int) -> int:
    """How often runs must become four times as long to be the whole."""
    return -(-max(1, (longest - 1).bit_length()) // 2)


def _piece(piece: ir.Value, rows: Rows) -> tuple[ir.Value, ir.Value]:
    """First place of a block and the place after its last."""
    if rows.pieces == 1:
        low = mul(piece, rows.length)
        return low, add(low, rows.length)
    row, part = loops.quotient(piece, rows.pieces), loops.remainder(piece, rows.pieces)
    start = mul(row, rows.length)
    low = add(start, mul(part, BLOCK))
    return low, smaller(add(low, BLOCK), add(start, rows.length))


def _sort_block(
    arrays: list[ir.Value], buffers: list[ir.Value], base: ir.Value, length: ir.Value, less: Less, pairs: int
) -> list[ir.Value]:
    """Merges runs of 1, 2, 4 ... elements, into the buffers and back again."""
    many, zero = len(arrays), number(0)

    def two_levels(_: ir.Value, width: ir.Value, *both: ir.Value) -> list[ir.Value]:
        here, there = both[:many], both[many:]
        there = _merge_runs(here, base, there, zero, length, width, less)
        here = _merge_runs(there, zero, here, base, length, mul(width, 2), less)
        return [mul(width, 4), *here, *there]

    return count(0, pairs, [number(1), *arrays, *buffers], two_levels)[1 : many + 1]


def _merge_runs(
    source: Values, source_base: ir.Value, target: Values, target_base: ir.Value, length: ir.Value, width: ir.Value,
    less: Less,
) -> list[ir.Value]:  # fmt: skip
    """Every two neighbouring runs of `width` elements become one."""

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
    """Two sorted runs into one, `length` elements from `to` on; of equal elements the left one comes first."""
    last_left, last_right = (loops.larger(sub(end, 1), start) for start, end in (left, right))

    def step(k: ir.Value, i: ir.Value, j: ir.Value, *arrays: ir.Value) -> list[ir.Value]:
        x, y = get(source, smaller(i, last_left)), get(source, smaller(j, last_right))
        second = arith.andi(is_less(j, right[1]), less(y, x))
        second = arith.ori(second, not_(is_less(i, left[1])))
        moved = as_index(second)
        return [sub(add(i, 1), moved), add(j, moved), *put(pick(second, y, x), arrays, add(to, k))]

    return count(0, length, [left[0], right[0], *target], step)[2:]


# --- levels ---------------------------------------------------------------------------------------------------------


def _merge_level(ctx: LoweringContext, arrays: Values, rows: Rows, less: Less, width: int) -> list[ir.Value]:
    """Every two runs of `width` elements become one, block by block of what comes out."""
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
    """Two neighbouring runs, and a block of what they become."""

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
    """For each block of the result, which element of its left run is the first in it or after it."""
    i64 = ir.IntegerType.get_signless(64)

    def block(piece: ir.Value, before: ir.Value, cuts: ir.Value) -> list[ir.Value]:
        pair = _pair_of(piece, rows, width)
        first = loops.is_equal(pair.low, pair.start)
        # Never behind the cut before, in neither run: a block then has no element of another one.
        least = loops.larger(before, sub(pair.low, sub(pair.end, pair.middle)))
        most = smaller(add(before, BLOCK), pair.middle)
        least, most = pick(first, [pair.start, pair.start], [least, most])
        cut, _ = _search(arrays, pair, least, most, less)
        return [cut, *put([arith.index_cast(i64, cut)], [cuts], piece)]

    empty = ir.Operation.create("tensor.empty", results=[ir.RankedTensorType.get([total], i64)], operands=[]).result
    return count(0, total, [number(0), empty], block)[1]


def _search(arrays: Values, pair: _Pair, least: ir.Value, most: ir.Value, less: Less) -> list[ir.Value]:
    """By halves: how many of the left run come before place `low` of the two runs merged."""

    def turn(least: ir.Value, most: ir.Value) -> list[ir.Value]:
        half = add(least, loops.quotient(sub(most, least), 2))
        other = sub(add(pair.middle, sub(pair.low, half)), 1)
        right_first = less(get(arrays, other), get(arrays, half))
        return [arith.select(right_first, least, add(half, 1)), arith.select(right_first, half, most)]

    return loops.repeat([least, most], lambda least, most: is_less(least, most), turn)


def _merge_pieces(arrays: Values, rows: Rows, less: Less, cuts: ir.Value, width: ir.Value) -> list[ir.Value]:
    """Each block of the result from its parts of the two runs."""
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
    """Where the right run is cut when the left one is cut at `left` for a place of the result."""
    return add(pair.middle, sub(sub(place, pair.start), sub(left, pair.start)))
