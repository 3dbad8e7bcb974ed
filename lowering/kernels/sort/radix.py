"""Stable LSD radix sort of rows by integer keys.

A key is rematerialized wherever an element is loaded, so only the elements themselves are moved. One long row is
partitioned into parts that count and move their elements in parallel; of many rows, each is sorted by one thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith, func

from stablexla.dialects.choices import Gate
from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.sort.comparators import FLOATS, Order
from stablexla.lowering.kernels.sort.merging import Rows
from stablexla.lowering.support import loops
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.loops import add, as_index, count, get, mul, number, put, smaller
from stablexla.lowering.support.storage import constant
from stablexla.lowering.support.types import TensorType

# Columns of a matrix from which on they are sorted where they lie, up to a length, and elements of one up to which they
# always are; others are transposed to rows.
COLUMNS = Gate("sort.columns", 8, eager=2)
COLUMN_LENGTH = Gate("sort.column-length", 2048, eager=1)
# Long columns are read a part of a line at a time, for which the matrix has to stay in L2.
SHORT_COLUMN = Gate("sort.short-column", 64, eager=1)
COLUMN_BYTES = Gate("sort.column-bytes", 1 << 20, eager=1)
FEW_ELEMENTS = Gate("sort.few-elements", 512, eager=1)
# Rows of keys up to this length are put at their ranks where no target has other code.
RANKED_KEYS = Gate("sort.ranked-keys", 64, eager=1)
# Elements of these widths may be sorted by vectorized comparisons.
WIDE = (32, 64)
# Rows from this length on are sorted by digits of 11 bits instead of 8: larger tables.
LONG_DIGITS = Gate("sort.long-digits", 1 << 14, eager=1)
# A single row from this length on is sorted in so many parts, by several threads.
PARALLEL_ROW = Gate("sort.parallel-row", 1 << 15, eager=1)
PARTS = 4
# Buffers of a row up to this size are on the stack of the thread that sorts it.
STACK_BYTES = Gate("sort.stack-bytes", 1 << 16, eager=1)

Values = Sequence[ir.Value]


@dataclass(frozen=True)
class _Digits:
    """Digits of the keys of some orders.

    Attributes:
        orders: the orders that define the keys, most significant first.
        bits: width of a digit.
    """

    orders: tuple[Order, ...]
    bits: int

    @property
    def passes(self) -> list[tuple[Order, int]]:
        """The digits from least to most significant: the order of each, and its shift in bits."""
        return [(o, shift) for o in reversed(self.orders) for shift in range(0, o.bits, self.bits)]

    @property
    def size(self) -> int:
        """The number of values of a digit, the size of a histogram."""
        return 1 << self.bits

    def of(self, order: Order, elements: Values, shift: ir.Value | int) -> ir.Value:
        """Return the digit of an order's key at `shift`, as an index."""
        key = order.key(elements[order.operand])
        by = constant(key.type, shift) if isinstance(shift, int) else shift
        return as_index(arith.andi(arith.shrui(key, by), constant(key.type, self.size - 1)))


@dataclass(frozen=True)
class SortKeysConfig:
    """A sort of the rows of one array by a total order of its elements.

    Attributes:
        unsigned: they are integers without sign.
        descending: the largest element comes first.
        zeros_alike, nans_alike: -0 and 0, and all NaNs, have one key.
        infinity: the bit pattern of the float; 0 for integers.
        inner: the distance of a row's elements: as many rows lie side by side.
    """

    rows: int
    length: int
    unsigned: bool
    descending: bool
    zeros_alike: bool
    nans_alike: bool
    infinity: int
    inner: int = 1


def sorts_columns(rows: Rows, orders: tuple[Order, ...]) -> bool:
    """Return whether an array is sorted along a dimension that is not the last without being transposed."""
    few = rows.rows * rows.length <= FEW_ELEMENTS()
    near = rows.length * rows.inner * orders[0].bits // 8 <= COLUMN_BYTES() or rows.length <= SHORT_COLUMN()
    wide = rows.inner >= COLUMNS() and rows.length <= COLUMN_LENGTH() and near
    return len(rows.types) == len(orders) == 1 and orders[0].bits in WIDE and (few or wide)


def is_in_parts(rows: Rows) -> bool:
    """Return whether a row is sorted by several threads."""
    return rows.rows == 1 and rows.length >= PARALLEL_ROW()


def radix_sort(ctx: LoweringContext, arrays: Values, rows: Rows, orders: tuple[Order, ...]) -> list[ir.Value]:
    """Emit a stable radix sort of the arrays' rows by the keys of one or more of them."""
    long = rows.length >= LONG_DIGITS() and max(order.bits for order in orders) > 16
    digits = _Digits(orders, 11 if long else 8)
    # Three passes over 32-bit integers are as fast as merging them, and less code; 64-bit integers mostly are small,
    # and a digit that all elements share is skipped.
    by_digits = is_in_parts(rows) and not orders[0].element.is_float
    if len(arrays) == 1 and len(orders) == 1 and orders[0].bits in WIDE and not by_digits:
        return _sort_keys(ctx, arrays, rows, digits)
    if is_in_parts(rows):
        return _sort_in_parts(ctx, arrays, rows, digits)
    return _sort_each(ctx, arrays, rows, digits)


def _sort_keys(ctx: LoweringContext, arrays: Values, rows: Rows, digits: _Digits) -> list[ir.Value]:
    """Emit the sort of a single array as a kernel that a target may replace; equal keys may be of unequal elements."""
    order = digits.orders[0]
    config = SortKeysConfig(
        rows=rows.rows,
        length=rows.length,
        unsigned=not order.element.is_float and not order.element.is_signed,
        descending=order.descending,
        zeros_alike=order.zeros_alike,
        nans_alike=order.nans_alike,
        infinity=FLOATS.get(order.element.name, 0),
        inner=rows.inner,
    )
    return kernel(
        ctx,
        "sort_keys",
        arrays,
        lambda x: [_rows_of_keys(x, rows, digits)],
        config=config,
        result_types=list(rows.types),
        independent=True,
    )


def _rows_of_keys(array: ir.Value, rows: Rows, digits: _Digits) -> ir.Value:
    """Sort the rows of one array with little code: targets with sorts of keys have code of their own.

    The elements of a short row are put at their ranks, longer rows are sorted digit by digit.
    """
    (result,), length, order = loops.empty_like([array], rows.rows * rows.length), rows.length, digits.orders[0]
    word, zero = ir.IntegerType.get_signless(order.bits), number(0)

    def row(r: ir.Value, result: ir.Value) -> list[ir.Value]:
        first = add(mul(loops.quotient(r, rows.inner), length * rows.inner), loops.remainder(r, rows.inner))

        def place(i: ir.Value) -> ir.Value:
            return add(first, mul(i, rows.inner))

        def put_one(i: ir.Value, result: ir.Value) -> list[ir.Value]:
            element = get([array], place(i))
            key = order.key(element[0])

            def note(j: ir.Value, rank: ir.Value) -> list[ir.Value]:
                other = order.key(get([array], place(j))[0])
                # Of equal ones those on the left come before.
                no_later = arith.andi(loops.is_equal(other, key), loops.is_less(j, i))
                before = arith.ori(arith.cmpi(arith.CmpIPredicate.ult, other, key), no_later)
                return [add(rank, as_index(before))]

            (rank,) = count(0, length, [zero], note)
            return put(element, [result], place(rank))

        if length <= RANKED_KEYS():
            return count(0, length, [result], put_one)
        own, spare = loops.empty_like([array, array], length)

        def one_digit(shift: ir.Value, here: ir.Value, there: ir.Value) -> list[ir.Value]:
            by = arith.index_cast(word, shift)

            def note(i: ir.Value, table: ir.Value) -> list[ir.Value]:
                at = digits.of(order, get([here], i), by)
                (found,) = get([table], at)
                return put([arith.addi(found, constant(found.type, 1))], [table], at)

            (table,) = count(0, length, [_zeros(digits.size, ir.IntegerType.get_signless(32))], note)
            table, bounds = _running_sums(table, 0, digits.size), (zero, number(length))
            _, there = _move(([here], zero), ([there], zero), bounds, (table, 0), digits, order, by)
            # Arrays of a loop keep their buffers: they may not change places.
            return [*count(0, length, [here], lambda i, to: put(get([there], i), [to], i)), there]

        (own,) = count(0, length, [own], lambda i, to: put(get([array], place(i)), [to], i))
        own, _ = count(0, order.bits, [own, spare], one_digit, step=digits.bits)
        return count(0, length, [result], lambda i, to: put(get([own], i), [to], place(i)))

    return count(0, rows.rows, [result], row)[0]


# --- a row by one thread --------------------------------------------------------------------------------------------


def _sort_each(ctx: LoweringContext, arrays: Values, rows: Rows, digits: _Digits) -> list[ir.Value]:
    bytes_of_row = rows.length * sum(t.element.bytes for t in rows.types)
    # Results without users are workspace, of which each row has its own part.
    shared = bytes_of_row > STACK_BYTES() and len(digits.passes) > 1
    types = list(rows.types) * (2 if shared else 1)
    made = kernel(
        ctx, "sort", arrays, lambda *xs: _rows(xs, rows, digits, shared), result_types=types, independent=True
    )
    return made[: len(arrays)]


def _rows(arrays: Values, rows: Rows, digits: _Digits, shared: bool) -> list[ir.Value]:
    many = len(arrays)
    results = loops.empty_like(arrays, rows.rows * rows.length)
    spare = loops.empty_like(arrays, rows.rows * rows.length) if shared else []

    def row(r: ir.Value, *carried: ir.Value) -> list[ir.Value]:
        base = mul(r, rows.length)
        buffers = (carried[many:], base) if shared else (loops.empty_like(arrays, rows.length), number(0))
        sorted_, left = _sort_row((arrays, base), (carried[:many], base), buffers, rows.length, digits)
        return [*sorted_, *(left if shared else [])]

    return count(0, rows.rows, [*results, *spare], row)


_Place = tuple[Values, ir.Value]
"""Arrays, and the offset of a row in them."""


def _sort_row(source: _Place, result: _Place, spare: _Place, length: int, digits: _Digits) -> tuple[Values, Values]:
    """Run the passes on ping-pong buffers, result and spare, so that the last pass ends in the result."""
    i32 = ir.IntegerType.get_signless(32)
    passes = digits.passes
    tables = _zeros(len(passes) * digits.size, i32)

    def note(i: ir.Value, table: ir.Value) -> list[ir.Value]:
        elements = get(source[0], add(source[1], i))
        for p, (order, shift) in enumerate(passes):
            at = add(digits.of(order, elements, shift), p * digits.size)
            (found,) = get([table], at)
            (table,) = put([arith.addi(found, constant(i32, 1))], [table], at)
        return [table]

    (tables,) = count(0, length, [tables], note)
    for p in range(len(passes)):
        tables = _running_sums(tables, p * digits.size, digits.size)
    places = {True: result, False: spare}
    for p, (order, shift) in enumerate(passes):
        to_result = (len(passes) - 1 - p) % 2 == 0
        target = places[to_result]
        bounds = (number(0), number(length))
        tables, *moved = _move(source, target, bounds, (tables, p * digits.size), digits, order, shift)
        source = places[to_result] = (moved, target[1])
    return places[True][0], places[False][0]


def _zeros(size: int, type_: ir.Type) -> ir.Value:
    table = ir.Operation.create("tensor.empty", results=[ir.RankedTensorType.get([size], type_)], operands=[]).result
    return count(0, size, [table], lambda i, t: put([constant(type_, 0)], [t], i))[0]


def _running_sums(table: ir.Value, start: int, size: int) -> ir.Value:
    """Emit an exclusive prefix sum in place."""
    zero = constant(table.type.element_type, 0)

    def step(i: ir.Value, total: ir.Value, table: ir.Value) -> list[ir.Value]:
        (found,) = get([table], i)
        return [arith.addi(total, found), *put([total], [table], i)]

    return count(start, start + size, [zero, table], step)[1]


def _move(
    source: _Place,
    target: _Place,
    bounds: tuple[ir.Value, ir.Value],
    table: tuple[ir.Value, int],
    digits: _Digits,
    order: Order,
    shift: ir.Value | int,
) -> list[ir.Value]:
    """Scatter each element to the offset of its digit, from a position of the table on.

    Returns:
        The table with its offsets advanced, and the target's arrays.
    """

    def step(i: ir.Value, places: ir.Value, *to: ir.Value) -> list[ir.Value]:
        elements = get(source[0], add(source[1], i))
        at = digits.of(order, elements, shift)
        at = add(at, table[1]) if table[1] else at
        (place,) = get([places], at)
        (places,) = put([arith.addi(place, constant(place.type, 1))], [places], at)
        return [places, *put(elements, to, add(target[1], as_index(place)))]

    return count(*bounds, [table[0], *target[0]], step)


# --- one row in parts -----------------------------------------------------------------------------------------------


def _sort_in_parts(ctx: LoweringContext, arrays: Values, rows: Rows, digits: _Digits) -> list[ir.Value]:
    """Sort one row in parallel parts: for each digit histograms, their prefix sum, and a scatter to the offsets."""
    count_of_parts = PARTS
    tables = TensorType(BY_NAME["s32"], (count_of_parts * digits.size,))
    sorted_: list[ir.Value] = list(arrays)
    made: dict[Order, list[ir.Value]] = {}
    for order, amount in digits.passes:
        shift = constant(ir.IntegerType.get_signless(order.bits), amount)
        if order in made:
            counts, places, moved = made[order]
            tables_ = _again(places, _again(counts, [*sorted_, shift]))
            sorted_ = _again(moved, [*sorted_, *tables_, shift])
            continue
        parts = _Parts(rows, digits, order, count_of_parts)
        counts_ = kernel(ctx, "radix_count", [*sorted_, shift], parts.count, result_types=[tables], independent=True)
        places_ = kernel(ctx, "radix_places", counts_, parts.places, result_types=[tables])
        operands, types = [*sorted_, *places_, shift], list(rows.types)
        sorted_ = kernel(ctx, "radix_move", operands, parts.move, result_types=types, independent=True)
        made[order] = [counts_[0], places_[0], sorted_[0]]
    return sorted_


def _again(made: ir.Value, operands: Values) -> list[ir.Value]:
    """Emit another call of the kernel that defines a value."""
    call = made.owner.operation
    name = ir.FlatSymbolRefAttr(call.attributes["callee"]).value
    return list(func.CallOp([r.type for r in call.results], name, list(operands)).results)


@dataclass(frozen=True)
class _Parts:
    """The phases of the parts of a row for one digit: count, offsets, move."""

    rows: Rows
    digits: _Digits
    order: Order
    parts: int

    def _bounds(self, part: ir.Value) -> tuple[ir.Value, ir.Value]:
        size = -(-self.rows.length // self.parts)
        low = mul(part, size)
        return low, smaller(add(low, size), self.rows.length)

    def count(self, *given: ir.Value) -> list[ir.Value]:
        """Emit the histogram of digits of each part."""
        *arrays, shift = given
        size = self.digits.size
        i32 = ir.IntegerType.get_signless(32)
        empty = ir.RankedTensorType.get([self.parts * size], i32)
        tables = ir.Operation.create("tensor.empty", results=[empty], operands=[]).result

        def part(number_: ir.Value, tables: ir.Value) -> list[ir.Value]:
            start = mul(number_, size)
            (tables,) = count(0, size, [tables], lambda i, t: put([constant(i32, 0)], [t], add(start, i)))

            def note(i: ir.Value, tables: ir.Value) -> list[ir.Value]:
                at = add(start, self.digits.of(self.order, get(arrays, i), shift))
                (found,) = get([tables], at)
                return put([arith.addi(found, constant(i32, 1))], [tables], at)

            return count(*self._bounds(number_), [tables], note)

        return count(0, self.parts, [tables], part)

    def places(self, tables: ir.Value) -> list[ir.Value]:
        """Emit the exclusive prefix sum of the histograms: offsets by digit, then by part."""
        size = self.digits.size
        i32 = ir.IntegerType.get_signless(32)
        made = ir.Operation.create("tensor.empty", results=[tables.type], operands=[]).result

        def digit(d: ir.Value, total: ir.Value, made: ir.Value) -> list[ir.Value]:
            def part(number_: ir.Value, total: ir.Value, made: ir.Value) -> list[ir.Value]:
                at = add(mul(number_, size), d)
                (found,) = get([tables], at)
                return [arith.addi(total, found), *put([total], [made], at)]

            return count(0, self.parts, [total, made], part)

        return [count(0, size, [constant(i32, 0), made], digit)[1]]

    def move(self, *given: ir.Value) -> list[ir.Value]:
        """Scatter each part's elements to their offsets, which are disjoint between parts."""
        *arrays, tables, shift = given
        size = self.digits.size
        results = loops.empty_like(arrays, self.rows.length)

        def part(number_: ir.Value, *to: ir.Value) -> list[ir.Value]:
            start = mul(number_, size)
            own = loops.empty_like([tables], size)
            own = count(0, size, own, lambda i, t: put(get([tables], add(start, i)), [t], i))
            zero = number(0)
            whole = (arrays, zero), (to, zero)
            return _move(*whole, self._bounds(number_), (own[0], 0), self.digits, self.order, shift)[1:]

        return count(0, self.parts, results, part)
