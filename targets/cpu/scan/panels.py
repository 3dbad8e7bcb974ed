"""Scans down a panel of rows: vectors lie along a row, and accumulators lie in buffers that stay in L1.

Rows are scanned in blocks of blocks, see `codegen/sums/blocked_reduction.py`: a block's accumulators restart,
and the total before the block is combined with each of its rows.
"""

from __future__ import annotations

from collections.abc import Callable

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.sums.blocked_reduction import BLOCK, block_levels
from stablexla.targets.codegen.vector_loops import LoopPart, vector_loop

Values = list[Value]


@dataclass(frozen=True)
class PanelAccumulators:
    """A panel's accumulators: a buffer for each array, with the panel's first element at `at`."""

    buffers: Values
    at: Value


@dataclass(frozen=True)
class PanelScan:
    """A scan down one panel of an array's rows.

    Attributes:
        inner: elements of a row.
        part: the panel; None if it is the whole row.
        width: elements of a panel, at most.
        combine: (prefix, values) -> both combined.
        read: (row, column, active lanes) -> values.
        write: (totals, row, column, active lanes) -> None.
    """

    inner: int
    lanes: int
    part: LoopPart | None
    width: int
    elements: tuple[ir.Type, ...]
    combine: Callable[[Values, Values], Values]
    read: Callable[[Value, Value, int], Values]
    write: Callable[[Values, Value, Value, int], None]

    def room(self) -> PanelAccumulators:
        """Allocate accumulators on the stack."""
        return PanelAccumulators([cg.alloca(self.width, element) for element in self.elements], cg.index(0))

    def each(self, step: Callable[[Value, int], None]) -> None:
        """Emit a step at each vector of the panel, given its column and its number of active lanes."""

        def one(column: Value, count: int | None, _: Values) -> Values:
            step(column, count or self.lanes)
            return []

        vector_loop(self.inner, self.lanes, one, [[]] * 4, self.part)

    def scan(
        self,
        start: Value,
        stop: Value,
        trip_count: int,
        before: PanelAccumulators,
        exists: Value,
        own: PanelAccumulators,
    ) -> None:
        """Scan rows [start, stop).

        Args:
            trip_count: their number, at most.
            before: the total before them, if something `exists` there.
            own: where to store their total.
        """
        self._blocks(block_levels(trip_count), start, stop, before, exists, own)

    def _blocks(
        self, level: int, start: Value, stop: Value, before: PanelAccumulators, exists: Value, own: PanelAccumulators
    ) -> None:
        if not level:
            with cg.loop(start, stop) as rows:
                self._row(rows.iv, rows.iv.eq(start), before, exists, own)
            return
        here, child, size = self.room(), self.room(), max(2, BLOCK()) ** level
        with cg.loop(start, stop, size) as blocks:
            later = blocks.iv.gt(start)
            self._merge(here, before, own, exists, later)
            self._blocks(level - 1, blocks.iv, cg.minimum(blocks.iv + size, stop), here, exists | later, child)
            self._merge(own, own, child, later, cg.truth(True))

    def _row(self, row: Value, first: Value, before: PanelAccumulators, exists: Value, own: PanelAccumulators) -> None:
        def step(column: Value, count: int) -> None:
            values = self.read(row, column, count)
            totals = _either(first, values, self.combine(self._load(own, column, count), values))
            self.keep(totals, own, column, count)
            after = self.combine(self._load(before, column, count), totals)
            self.write(_either(exists, after, totals), row, column, count)

        self.each(step)

    def _merge(
        self, to: PanelAccumulators, a: PanelAccumulators, b: PanelAccumulators, has_a: Value, has_b: Value
    ) -> None:
        """Combine two accumulators, either of which may be absent; of two absent ones the result is arbitrary."""

        def step(column: Value, count: int) -> None:
            left, right = self._load(a, column, count), self._load(b, column, count)
            both = _either(has_a, self.combine(left, right), right)
            self.keep(_either(has_b, both, left), to, column, count)

        self.each(step)

    def _load(self, totals: PanelAccumulators, column: Value, count: int) -> Values:
        return [cg.load_lanes(b, self._place(totals, column), self.lanes, count) for b in totals.buffers]

    def keep(self, values: Values, totals: PanelAccumulators, column: Value, count: int) -> None:
        """Store values into accumulators."""
        for value, buffer in zip(values, totals.buffers, strict=True):
            cg.store_lanes(value, buffer, self._place(totals, column), count)

    def _place(self, totals: PanelAccumulators, column: Value) -> Value:
        return totals.at + (column if self.part is None else column - self.part.start)


def _either(condition: Value, these: Values, those: Values) -> Values:
    if condition.known is not None:
        return these if condition.known else those
    return [Value(arith.select(condition.ssa, a.ssa, b.ssa)) for a, b in zip(these, those, strict=True)]
