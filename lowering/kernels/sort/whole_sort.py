"""A sort of rows as one kernel with its comparator, for targets that have sort algorithms of their own.

Its body is an insertion sort by adjacent exchanges, a reference semantics that holds the comparator once.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.kernels.sort.comparators import Order
from stablexla.lowering.kernels.sort.merging import Less, Rows
from stablexla.lowering.support import loops
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.kernels import Combiner, kernel
from stablexla.lowering.support.loops import add, count, get, mul, number, pick, put, sub
from stablexla.lowering.support.storage import constant
from stablexla.lowering.support.types import storage_type

SORT_ROWS = "sort_rows"
"""The kind of these kernels."""

Values = Sequence[ir.Value]


@dataclass(frozen=True)
class SortRowsConfig:
    """A sort of rows by the comparator in the kernel's body.

    Attributes:
        first: elements of each sorted row that are wanted (top-k).
        by_keys: the comparator is a total order of keys, so it cannot be inconsistent.
    """

    rows: int
    length: int
    first: int
    by_keys: bool


def by_keys(orders: Sequence[Order]) -> Less:
    """Return the lexicographic comparator of the keys in these orders."""

    def less(these: Values, those: Values) -> ir.Value:
        answer = None
        for order in reversed(orders):
            one, other = (order.key(elements[order.operand]) for elements in (these, those))
            before = arith.cmpi(arith.CmpIPredicate.ult, one, other)
            if answer is not None:
                same = arith.cmpi(arith.CmpIPredicate.eq, one, other)
                before = arith.ori(before, arith.andi(same, answer))
            answer = before
        return constant(ir.IntegerType.get_signless(1), 0) if answer is None else answer

    return less


def sort_whole(
    ctx: LoweringContext, arrays: Values, rows: Rows, less: Less, first: int, *, by_keys: bool
) -> list[ir.Value]:
    """Emit a stable sort of rows by a comparator, of which the first `first` elements of each row are kept.

    Args:
        by_keys: the comparator compares keys, and so it cannot contradict itself.
    """
    types = [t.with_shape((rows.rows * first,)) for t in rows.types]
    config = SortRowsConfig(rows.rows, rows.length, first, by_keys)
    return kernel(
        ctx,
        SORT_ROWS,
        arrays,
        lambda *xs: _sorted(xs, rows, less, first),
        config=config,
        combiner=Combiner(
            [storage_type(t.element) for t in rows.types] * 2,
            lambda both: [less(both[: len(types)], both[len(types) :])],
        ),
        result_types=types,
        independent=True,
    )


def _sorted(sources: Values, rows: Rows, less: Less, first: int) -> list[ir.Value]:
    results = loops.empty_like(sources, rows.rows * first)

    def row(r: ir.Value, *to: ir.Value) -> list[ir.Value]:
        base = mul(r, rows.length)
        line = loops.empty_like(sources, rows.length)
        line = count(0, rows.length, line, lambda i, *xs: put(get(sources, add(base, i)), xs, i))

        def enter(i: ir.Value, *line: ir.Value) -> list[ir.Value]:
            return count(0, i, line, lambda moved, *xs: pass_by(sub(i, moved), xs))

        def pass_by(at: ir.Value, line: Values) -> list[ir.Value]:
            before = sub(at, 1)
            these, those = get(line, at), get(line, before)
            swapped = less(these, those)
            line = put(pick(swapped, those, these), line, at)
            return put(pick(swapped, these, those), line, before)

        line = count(number(1), rows.length, line, enter)
        return count(0, first, to, lambda i, *xs: put(get(line, i), xs, add(mul(r, first), i)))

    return count(0, rows.rows, results, row)
