"""Hierarchical blocked scan of one line, which bounds the error: no prefix ends a long chain of additions.

Each block is scanned from its own first element on, and the prefix of the preceding blocks is combined with that.
Blocks of blocks are scanned alike: an element is the result of at most `BLOCK` combinations on each level, and the
number of levels grows with the logarithm of the line's length. The combinations are reassociated, never commuted.
"""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.loops import Values, add, choose, count, is_equal, number, smaller

BLOCK = Gate("scan.level", 32, eager=2)

Combine = Callable[[Values, Values], list[ir.Value]]
Read = Callable[[ir.Value], list[ir.Value]]
Write = Callable[[Values, Values, ir.Value], list[ir.Value]]


def _block() -> int:
    return max(2, BLOCK())


@dataclass(frozen=True)
class LineScan:
    """A scan of `extent` rows, numbered in the order of the scan.

    Attributes:
        combine: (prefix, values) -> both combined.
        read: (row) -> its values.
        write: (accumulators, arrays, row) -> the arrays with the row's result stored.
        in_order: the combiner may not be associative: there is one block.
    """

    extent: int
    combine: Combine
    read: Read
    write: Write
    in_order: bool = False

    def run(self, out: Values, before: Values | None = None) -> list[ir.Value]:
        """Emit the scan; return the arrays with all rows stored, `before` combined with each of them."""
        level, width = 0, self.extent if self.in_order else _block()
        while width < self.extent:
            level, width = level + 1, width * _block()
        return self._blocks(level, number(0), number(self.extent), before, out)[1]

    def _blocks(
        self, level: int, start: ir.Value, stop: ir.Value, before: Values | None, out: Values
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Scan rows [start, stop), at most BLOCK blocks of BLOCK**level rows; return their reduction and the arrays."""
        if not level:
            return self._rows(start, stop, before, out)
        size = _block() ** level
        if before is None:
            totals, out = self._blocks(level - 1, start, smaller(add(start, size), stop), None, out)
        else:
            totals = [*before]  # placeholder, unused in the first iteration
        amount = len(totals)
        types = [v.type for v in totals]

        def body(at: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            totals, out = list(carried[:amount]), list(carried[amount:])
            first = is_equal(at, start)
            here = totals
            if before is not None:
                here = choose(first, types, lambda: before, lambda: self.combine(before, totals))
            own, out = self._blocks(level - 1, at, smaller(add(at, size), stop), here, out)
            if before is None:
                return [*self.combine(totals, own), *out]
            return [*choose(first, types, lambda: own, lambda: self.combine(totals, own)), *out]

        begin = add(start, size) if before is None else start
        made = count(begin, stop, [*totals, *out], body, size)
        return made[:amount], made[amount:]

    def _rows(
        self, start: ir.Value, stop: ir.Value, before: Values | None, out: Values
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Scan one block sequentially; the accumulators are carried from row to row."""

        def written(totals: Values, out: Values, row: ir.Value) -> list[ir.Value]:
            return self.write(totals if before is None else self.combine(before, totals), out, row)

        def body(row: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            totals = self.combine(carried[:amount], self.read(row))
            return [*totals, *written(totals, carried[amount:], row)]

        totals = self.read(start)
        amount = len(totals)
        made = count(add(start, 1), stop, [*totals, *written(totals, out, start)], body)
        return made[:amount], made[amount:]


@dataclass(frozen=True)
class ScanConfig:
    """An inclusive scan of `outer` times `extent` rows of `inner` elements.

    Attributes:
        backwards: from the last row to the first.
        computation: name of the combiner, or "" where it is none that has a name.
        unsigned: the elements are integers without sign.
        whole_bytes: all elements are of 8 bits or more.
        start: there are initial values, inputs behind the arrays.
        associative: parts of a line may be scanned independently.
        returned: numbers of the arrays whose scans are results, of scans with any combiner.
        positive_zeros: zeros are added to the results.
    """

    outer: int
    extent: int
    inner: int
    backwards: bool
    computation: str
    unsigned: bool
    whole_bytes: bool
    start: bool
    associative: bool
    returned: tuple[int, ...] | None = None
    positive_zeros: bool = False
