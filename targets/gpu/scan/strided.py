"""Scans along dimensions of non-unit stride: a thread for each line, coalesced across lines.

Few long lines are split into parts, as in `contiguous.py`.
"""

from __future__ import annotations

from stablexla.dialects.choices import Gate
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, KernelArguments
from stablexla.targets.codegen.sums.blocked_reduction import blocked_scan
from stablexla.targets.gpu.scan.plan import ScanElements, ScanPlan, Values
from stablexla.targets.gpu.threads import Launch, coordinates, grid_loop, kernel_function, launched

AHEAD = 4
"""Elements loaded ahead of their use."""
ENOUGH = Gate("gpu-scan.enough", 1 << 15, eager=8)
LEAST = Gate("gpu-scan.least", 32, eager=1)
"""Threads that fill a chip; and elements of a part, at least."""


def emit_columns(plan: ScanPlan) -> Emitted:
    """Emit a scan with a thread for each line, or for each part of it."""
    lines = plan.outer * plan.inner
    parts = min(-(-ENOUGH() // lines), plan.extent // LEAST())
    if parts < 2 or not plan.associative:
        with kernel_function(plan.kernel, Launch.for_items(lines)) as arguments, grid_loop(lines) as item:
            columns = _Columns(plan, arguments)
            outer, column = coordinates(item.iv, [plan.outer, plan.inner])
            columns.scan(outer, column, cg.index(0), cg.index(plan.extent), None, written=True)
        return Emitted(1, 1)
    return _emit_parts(plan, lines, -(-plan.extent // parts))


def _emit_parts(plan: ScanPlan, lines: int, size: int) -> Emitted:
    parts = -(-plan.extent // size)
    kernel = plan.kernel
    scratch = tuple((str(e), lines * parts) for e in plan.totals)
    names = [f"{kernel.impl_name}_{suffix}" for suffix in ("totals", "before", "parts")]
    extents = [plan.outer, parts, plan.inner]
    items = lines * (parts - 1)
    with kernel_function(kernel, Launch.for_items(items), names[0], scratch) as arguments, grid_loop(items) as item:
        outer, part, column = coordinates(item.iv, [plan.outer, parts - 1, plan.inner])
        totals = _Columns(plan, arguments).scan(outer, column, part * size, part * size + size, None, written=False)
        for value, buffer in zip(totals, arguments.scratch, strict=True):
            cg.store(value, buffer, (outer * parts + part) * plan.inner + column)
    with kernel_function(kernel, Launch.for_items(lines), names[1], scratch) as arguments, grid_loop(lines) as item:
        outer, column = coordinates(item.iv, [plan.outer, plan.inner])
        _Columns(plan, arguments).scan_totals(arguments.scratch, outer, column, parts)
    items = lines * parts
    with kernel_function(kernel, Launch.for_items(items), names[2], scratch) as arguments, grid_loop(items) as item:
        outer, part, column = coordinates(item.iv, extents)
        place = (outer * parts + cg.select(part.eq(0), part, part - 1)) * plan.inner + column
        before = [cg.load(v, place) for v in arguments.scratch]
        stop = cg.minimum(part * size + size, plan.extent)
        _Columns(plan, arguments).scan(outer, column, part * size, stop, (part.gt(0), before), written=True)
    return launched(names, scratch)


class _Columns:
    """Scans of one line inside one function."""

    def __init__(self, plan: ScanPlan, arguments: KernelArguments) -> None:
        self.plan, self.writer = plan, ScanElements(plan, arguments)

    def scan(
        self,
        outer: Value,
        column: Value,
        start: Value,
        stop: Value,
        before: tuple[Value, Values] | None,
        *,
        written: bool,
    ) -> Values:
        """Scan a part of a line, and return its total.

        Args:
            before: whether something came before the part, and what. Without it the part begins the line when it is
                written, and else nothing is added to it.
        """
        writer = self.writer
        place = self._place(outer, start, column)
        values = writer.read(place)
        totals = self._begun(values, before) if written else values
        if written:
            writer.write(totals, place)

        def step(at: Value, found: Values, totals: Values) -> Values:
            made = writer.combine(totals, found)
            if written:
                writer.write(made, self._place(outer, at, column))
            return made

        def several(first: Value, here: Values) -> Values:
            places = [first + n for n in range(AHEAD)]
            found = [writer.read(self._place(outer, at, column)) for at in places]
            own = found[0]
            for at, values in zip(places, found, strict=True):
                own = values if at is places[0] else writer.combine(own, values)
                if written:
                    writer.write(writer.combine(here, own), self._place(outer, at, column))
            return own

        first = start + 1
        whole = first + (stop - first) // AHEAD * AHEAD
        if self.plan.associative:
            trip_count = -(-self.plan.extent // AHEAD)
            totals = blocked_scan(first, whole, AHEAD, trip_count, totals, writer.combine, several)
        else:
            whole = first
        with cg.loop(whole, stop, 1, totals) as rest:
            rest.yields(*step(rest.iv, writer.read(self._place(outer, rest.iv, column)), rest.args))
        return rest.results

    def _begun(self, values: Values, before: tuple[Value, Values] | None) -> Values:
        """Combine the first element with the carried prefix."""
        begun = self.writer.combine(self.writer.starts(), values) if self.plan.starts else values
        if before is None:
            return begun
        exists, totals = before
        return [cg.select(exists, t, b) for t, b in zip(self.writer.combine(totals, values), begun, strict=True)]

    def scan_totals(self, buffers: Values, outer: Value, column: Value, parts: int) -> None:
        """Scan the totals of a line's parts, in place."""

        def place(part: Value) -> Value:
            return (outer * parts + part) * self.plan.inner + column

        totals = self._begun([cg.load(b, place(cg.index(0))) for b in buffers], None)
        for value, buffer in zip(totals, buffers, strict=True):
            cg.store(value, buffer, place(cg.index(0)))

        def body(part: Value, here: Values) -> Values:
            own = [cg.load(b, place(part)) for b in buffers]
            for value, buffer in zip(self.writer.combine(here, own), buffers, strict=True):
                cg.store(value, buffer, place(part))
            return own

        blocked_scan(1, parts - 1, 1, parts, totals, self.writer.combine, body)

    def _place(self, outer: Value, row: Value, column: Value) -> Value:
        if self.plan.backwards:
            row = cg.index(self.plan.extent - 1) - row
        return (outer * self.plan.extent + row) * self.plan.inner + column
