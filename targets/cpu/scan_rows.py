"""Scans with any computation along dimensions whose elements are not neighbours: vectors lie across them."""

from __future__ import annotations

from dataclasses import dataclass

import mlir.ir as ir

from stablexla.targets.cpu.emission import (
    Value,
    alloca,
    bits_of,
    branch,
    emitting,
    index,
    load_lanes,
    loop,
    select,
    store_lanes,
)
from stablexla.targets.cpu.kernel import Emitted, KernelArguments
from stablexla.targets.cpu.scan_work import Plan, Values, Writer, emit_blocks
from stablexla.targets.cpu.sweeps import Items, Part, duration, grain_of, sweep
from stablexla.targets.cpu.window_scan import BLOCK, MANY

# Elements of a row whose totals are kept in the nearest cache, of all arrays together.
PANEL_BYTES = 8 << 10


@dataclass(frozen=True)
class _Panels:
    """How rows are cut: panels of `width` elements, `count` of them."""

    width: int
    count: int

    @staticmethod
    def of(plan: Plan) -> _Panels:
        """Panels whose totals stay in the nearest cache, and several of them where there are few rows side by side."""
        step = 4 * plan.lanes
        most = PANEL_BYTES * 8 // sum(map(bits_of, plan.elements))
        if plan.outer < MANY:
            most = min(most, plan.inner // 4)
        width = max(1, most // step) * step
        return _Panels(width, -(-plan.inner // width)) if width < plan.inner else _Panels(plan.inner, 1)

    def part(self, panel: Value) -> Part | None:
        """One of them as a piece of the row."""
        if self.count == 1:
            return None
        return Part(panel * self.width, panel * self.width + self.width, panel.eq(self.count - 1))


class _Rows:
    """Scans down a panel of rows; what the rows so far come to lies in buffers, from element `at` on."""

    def __init__(self, plan: Plan, arguments: KernelArguments, totals: Values, at: Value, part: Part | None) -> None:
        self.plan, self.writer, self.part = plan, Writer(plan, arguments), part
        self.totals, self.at = totals, at if part is None else at - part.start

    def begin(self, line: Value, row: Value, *, written: bool) -> None:
        """Takes a row as the totals."""

        def step(column: Value, count: int | None, _: Values) -> Values:
            place, number = self._place(line, row, column), count or self.plan.lanes
            values = self.writer.read(place, number)
            self._store(values, column, number)
            if written:
                self.writer.write(values, place, number)
            return []

        sweep(self.plan.inner, self.plan.lanes, step, [[]] * 4, self.part)

    def rows(self, line: Value, start: Value, stop: Value, *, written: bool) -> None:
        """Adds rows to the totals."""
        with loop(start, stop) as row:

            def step(column: Value, count: int | None, _: Values) -> Values:
                place, number = self._place(line, row.iv, column), count or self.plan.lanes
                before = [load_lanes(b, self.at + column, self.plan.lanes, number) for b in self.totals]
                values = self.writer.combine(before, self.writer.read(place, number))
                self._store(values, column, number)
                if written:
                    self.writer.write(values, place, number)
                return []

            sweep(self.plan.inner, self.plan.lanes, step, [[]] * 4, self.part)

    def _store(self, values: Values, column: Value, count: int) -> None:
        for value, buffer in zip(values, self.totals, strict=True):
            store_lanes(value, buffer, self.at + column, count)

    def _place(self, line: Value, row: Value, column: Value) -> Value:
        if self.plan.backwards:
            row = index(self.plan.extent - 1) - row
        return (line * self.plan.extent + row) * self.plan.inner + column


def emit_rows(plan: Plan) -> Emitted:
    """A panel for each item; or, where there are few and long ones, blocks of their rows."""
    panels = _Panels.of(plan)
    items = Items((0,), (plan.outer,), panels.count)
    rows = max(1, BLOCK // panels.width)
    time = duration(plan.cost + 2, plan.extent * panels.width, plan.bytes // items.count, plan.target)
    if items.count >= MANY or plan.extent < 2 * rows:
        function, arguments = plan.kernel.declare()
        with emitting(function, plan.target), loop(Value(arguments.lo), Value(arguments.hi)) as item:
            at, panel = items.split(item.iv)
            totals = [alloca(panels.width, element) for element in plan.elements]
            walk = _Rows(plan, arguments, totals, index(0), panels.part(panel))
            walk.begin(at[0], index(0), written=True)
            walk.rows(at[0], index(1), index(plan.extent), written=True)
        return Emitted(items.count, grain_of(time, items.count), in_place=plan.in_place)

    def rows_of(arguments: KernelArguments, line: Value, at: Value) -> tuple[_Rows, Value]:
        places, panel = items.split(line)
        buffers = [Value(buffer) for buffer in arguments.scratch]
        return _Rows(plan, arguments, buffers, at, panels.part(panel)), places[0]

    def total(arguments: KernelArguments, line: Value, block: Value, at: Value) -> None:
        walk, outer = rows_of(arguments, line, at)
        walk.begin(outer, block * rows, written=False)
        walk.rows(outer, block * rows + 1, block * rows + rows, written=False)

    def scan(arguments: KernelArguments, line: Value, block: Value, last: Value, at: Value) -> None:
        walk, outer = rows_of(arguments, line, at)
        first = branch(block.eq(0), [ir.IndexType.get()])
        with first.then:
            walk.begin(outer, index(0), written=True)
            first.yields(index(1))
        with first.otherwise:
            first.yields(block * rows)
        stop = select(last, index(plan.extent), block * rows + rows)
        walk.rows(outer, first.results[0], stop, written=True)

    return emit_blocks(plan, plan.extent // rows, items.count, panels.width, time, total, scan)
