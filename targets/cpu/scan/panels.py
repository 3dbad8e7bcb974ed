"""Scans down a panel of rows: vectors lie along a row, and totals lie in buffers that stay in the nearest cache.

Rows are taken in blocks of blocks, see `cascade.py`: a block's totals begin anew, and what comes before the block is
combined with each of its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.targets.codegen.emission import Value, alloca, constant, index, load_lanes, loop, minimum, store_lanes
from stablexla.targets.codegen.sums.cascade import BLOCK, levels_of
from stablexla.targets.codegen.sweeps import Part, sweep

Values = list[Value]


@dataclass(frozen=True)
class Totals:
    """A panel's totals: a buffer for each array, with the panel's first element at `at`."""

    buffers: Values
    at: Value


@dataclass(frozen=True)
class PanelScan:
    """The panel of an array's rows, and what is done there.

    Attributes:
        inner: elements of a row.
        part: the panel; None if it is the whole row.
        width: elements of a panel, at most.
        combine: (what came before, values) -> both.
        read: (row, column, lanes that count) -> values.
        write: (totals, row, column, lanes that count) -> None.
    """

    inner: int
    lanes: int
    part: Part | None
    width: int
    elements: tuple[ir.Type, ...]
    combine: Callable[[Values, Values], Values]
    read: Callable[[Value, Value, int], Values]
    write: Callable[[Values, Value, Value, int], None]

    def room(self) -> Totals:
        """Totals on the stack."""
        return Totals([alloca(self.width, element) for element in self.elements], index(0))

    def each(self, step: Callable[[Value, int], None]) -> None:
        """Does something at each vector of the panel, which is given its column and how many lanes count."""

        def one(column: Value, count: int | None, _: Values) -> Values:
            step(column, count or self.lanes)
            return []

        sweep(self.inner, self.lanes, one, [[]] * 4, self.part)

    def scan(self, start: Value, stop: Value, turns: int, before: Totals, exists: Value, own: Totals) -> None:
        """Scans rows [start, stop).

        Args:
            turns: their number, at most.
            before: what comes before them, if something `exists` there.
            own: where to put what they come to.
        """
        self._blocks(levels_of(turns), start, stop, before, exists, own)

    def _blocks(self, level: int, start: Value, stop: Value, before: Totals, exists: Value, own: Totals) -> None:
        if not level:
            with loop(start, stop) as rows:
                self._row(rows.iv, rows.iv.eq(start), before, exists, own)
            return
        here, child, size = self.room(), self.room(), BLOCK**level
        with loop(start, stop, size) as blocks:
            later = blocks.iv.gt(start)
            self._merge(here, before, own, exists, later)
            self._blocks(level - 1, blocks.iv, minimum(blocks.iv + size, stop), here, exists | later, child)
            self._merge(own, own, child, later, _truth())

    def _row(self, row: Value, first: Value, before: Totals, exists: Value, own: Totals) -> None:
        def step(column: Value, count: int) -> None:
            values = self.read(row, column, count)
            totals = _either(first, values, self.combine(self._load(own, column, count), values))
            self.keep(totals, own, column, count)
            after = self.combine(self._load(before, column, count), totals)
            self.write(_either(exists, after, totals), row, column, count)

        self.each(step)

    def _merge(self, to: Totals, a: Totals, b: Totals, has_a: Value, has_b: Value) -> None:
        """What totals come to, of which one may stand for nothing; of both nothing, anything."""

        def step(column: Value, count: int) -> None:
            left, right = self._load(a, column, count), self._load(b, column, count)
            both = _either(has_a, self.combine(left, right), right)
            self.keep(_either(has_b, both, left), to, column, count)

        self.each(step)

    def _load(self, totals: Totals, column: Value, count: int) -> Values:
        return [load_lanes(b, self._place(totals, column), self.lanes, count) for b in totals.buffers]

    def keep(self, values: Values, totals: Totals, column: Value, count: int) -> None:
        """Puts values into totals."""
        for value, buffer in zip(values, totals.buffers, strict=True):
            store_lanes(value, buffer, self._place(totals, column), count)

    def _place(self, totals: Totals, column: Value) -> Value:
        return totals.at + (column if self.part is None else column - self.part.start)


def _truth() -> Value:
    return constant(1, ir.IntegerType.get_signless(1))


def _either(condition: Value, these: Values, those: Values) -> Values:
    if condition.known is not None:
        return these if condition.known else those
    return [Value(arith.select(condition.ssa, a.ssa, b.ssa)) for a, b in zip(these, those, strict=True)]
