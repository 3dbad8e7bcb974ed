"""Top-k selection of each row with a binary heap of the best elements so far.

The heap's root is the worst of them. An element that is no better is rejected by one comparison, so a row costs little
more than reading it.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.choices import Gate
from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.sort.comparators import Order
from stablexla.lowering.support import loops
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.loops import add, as_index, count, get, is_less, mul, number, pick, put, smaller, sub
from stablexla.lowering.support.types import TensorType

# This many elements are rejected at once when even the best of them is no better than the heap's root.
TOGETHER = 8
# Fewer rows than this are cut into so many parts at most, each of at least so many elements.
FEW_ROWS = Gate("top-k.few-rows", 4, eager=2)
MOST_PARTS = Gate("top-k.most-parts", 4, eager=2)
PART_LENGTH = Gate("top-k.part-length", 1 << 15, eager=1)

Values = Sequence[ir.Value]


def select_first(
    ctx: LoweringContext, array: ir.Value, rows: int, type_: TensorType, order: Order, k: int
) -> list[ir.Value]:
    """Emit top-k: the first `k` elements of each row of a flat array in an order, and their indices in the row.

    Equal elements keep their order.
    """
    length = type_.size // rows
    # Parts of few long rows, whose best elements are selected from again.
    parts = min(MOST_PARTS(), length // max(PART_LENGTH(), 16 * k)) if rows < FEW_ROWS() else 1
    if parts < 2:
        return _Selection(rows, length, 1, order, k).run(ctx, [array])
    some = _Selection(rows, length, parts, order, k).run(ctx, [array])
    return _Selection(rows, parts * k, 1, order, k).run(ctx, some)


@dataclass(frozen=True)
class _Heap:
    """A binary max-heap in tables of keys and of indices; keys are unsigned, and the smallest is the best."""

    keys: ir.Value
    places: ir.Value
    base: ir.Value

    @property
    def tables(self) -> list[ir.Value]:
        return [self.keys, self.places]

    def having(self, tables: Values) -> _Heap:
        keys, places = tables
        return _Heap(keys, places, self.base)

    def at(self, node: ir.Value) -> list[ir.Value]:
        """Load the key and index of a node."""
        return get(self.tables, add(self.base, node))

    def put(self, node: ir.Value, pair: Values) -> _Heap:
        return self.having(put(pair, self.tables, add(self.base, node)))

    def sift(self, start: ir.Value, size: ir.Value, pair: Values) -> _Heap:
        """Sift a pair down from a node: worse children move up."""

        def going(node: ir.Value, *_: ir.Value) -> ir.Value:
            return is_less(add(mul(node, 2), 1), size)

        def body(node: ir.Value, *tables: ir.Value) -> list[ir.Value]:
            heap = self.having(tables)
            left = add(mul(node, 2), 1)
            right = smaller(add(left, 1), sub(size, 1))
            on_right = _worse(heap.at(right), heap.at(left))
            (child,) = pick(on_right, [right], [left])
            below = pick(on_right, heap.at(right), heap.at(left))
            moved = _worse(below, pair)
            heap = heap.put(node, pick(moved, below, pair)).put(child, pick(moved, pair, below))
            return [*pick(moved, [child], [size]), *heap.tables]

        return self.having(loops.repeat([start, *self.put(start, pair).tables], going, body)[1:])


def _worse(one: Values, other: Values) -> ir.Value:
    """Return whether a pair of key and index comes after another."""
    after = arith.cmpi(arith.CmpIPredicate.ugt, one[0], other[0])
    same = arith.cmpi(arith.CmpIPredicate.eq, one[0], other[0])
    return arith.ori(after, arith.andi(same, arith.cmpi(arith.CmpIPredicate.sgt, one[1], other[1])))


@dataclass(frozen=True)
class _Selection:
    """Top-k selection of rows, each in parts that are searched independently."""

    rows: int
    length: int
    parts: int
    order: Order
    k: int

    def run(self, ctx: LoweringContext, arrays: Values) -> list[ir.Value]:
        """Emit the kernel: the best of each part in order, and their indices, in the row or from a second array."""
        size = (self.rows * self.parts * self.k,)
        i32 = BY_NAME["s32"]
        # The last two results are workspace for the heaps; they have no users.
        elements = [self.order.element, i32, BY_NAME[f"u{self.order.bits}"], i32]
        types = [TensorType(e, size) for e in elements]
        made = kernel(ctx, "top_k", arrays, lambda *xs: self._all(xs, types), result_types=types, independent=True)
        return made[:2]

    def _all(self, arrays: Values, types: Sequence[TensorType]) -> list[ir.Value]:
        size = -(-self.length // self.parts)

        def one(item: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            row, part = loops.quotient(item, self.parts), loops.remainder(item, self.parts)
            start = mul(row, self.length)
            low = add(start, mul(part, size))
            high = smaller(add(low, size), add(start, self.length))
            heap = _Heap(carried[2], carried[3], mul(item, self.k))
            heap = self._search(arrays[0], heap, low, high)
            return self._write(arrays, carried[:2], heap, low, start)

        return count(0, self.rows * self.parts, loops.empties(types), one)

    def _search(self, array: ir.Value, heap: _Heap, low: ir.Value, high: ir.Value) -> _Heap:
        """Search [low, high) for the best elements; the heap holds indices relative to `low`."""
        heap = self._begin(array, heap, low)
        i32 = ir.IntegerType.get_signless(32)
        worst = heap.at(number(0))[0]

        def body(i: ir.Value, worst: ir.Value, *tables: ir.Value) -> list[ir.Value]:
            key = self._key(array, i)

            def enter() -> list[ir.Value]:
                pair = [key, arith.index_cast(i32, sub(i, low))]
                entered = heap.having(tables).sift(number(0), number(self.k), pair)
                return [entered.at(number(0))[0], *entered.tables]

            better = arith.cmpi(arith.CmpIPredicate.ult, key, worst)
            types = [v.type for v in (worst, *tables)]
            return loops.choose(better, types, enter, lambda: [worst, *tables])

        def several(i: ir.Value, worst: ir.Value, *tables: ir.Value) -> list[ir.Value]:
            keys = [self._key(array, add(i, t)) for t in range(TOGETHER)]
            while len(keys) > 1:
                keys = [arith.minui(a, b) for a, b in zip(keys[::2], keys[1::2], strict=True)]
            better = arith.cmpi(arith.CmpIPredicate.ult, keys[0], worst)
            carried = [worst, *tables]
            one_by_one = lambda: count(i, add(i, TOGETHER), carried, body)  # noqa: E731
            return loops.choose(better, [v.type for v in carried], one_by_one, lambda: carried)

        begin = add(low, self.k)
        whole = mul(loops.quotient(sub(high, begin), TOGETHER), TOGETHER)
        carried = count(begin, add(begin, whole), [worst, *heap.tables], several, step=TOGETHER)
        return heap.having(count(add(begin, whole), high, carried, body)[1:])

    def _begin(self, array: ir.Value, heap: _Heap, low: ir.Value) -> _Heap:
        """Build a heap of the first elements."""
        i32 = ir.IntegerType.get_signless(32)

        def enter(i: ir.Value, *tables: ir.Value) -> list[ir.Value]:
            pair = [self._key(array, add(low, i)), arith.index_cast(i32, i)]
            return heap.having(tables).put(i, pair).tables

        def settle(i: ir.Value, *tables: ir.Value) -> list[ir.Value]:
            node = sub(number(self.k // 2 - 1), i)
            filled = heap.having(tables)
            return filled.sift(node, number(self.k), filled.at(node)).tables

        tables = count(0, self.k, heap.tables, enter)
        return heap.having(count(0, self.k // 2, tables, settle))

    def _write(self, arrays: Values, results: Values, heap: _Heap, low: ir.Value, start: ir.Value) -> list[ir.Value]:
        """Pop the worst element repeatedly, filling the results from their end."""
        i32 = ir.IntegerType.get_signless(32)

        def take(i: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            filled = heap.having(carried[2:])
            last = sub(number(self.k - 1), i)
            at = add(low, as_index(filled.at(number(0))[1]))
            place = get(arrays[1:], at) or [arith.index_cast(i32, sub(at, start))]
            written = put([*get(arrays[:1], at), *place], carried[:2], add(heap.base, last))
            return [*written, *filled.sift(number(0), last, filled.at(last)).tables]

        return count(0, self.k, [*results, *heap.tables], take)

    def _key(self, array: ir.Value, at: ir.Value) -> ir.Value:
        return self.order.key(get([array], at)[0])
