"""Scans with any combiner along strided dimensions: vectors lie across them."""

from __future__ import annotations

from dataclasses import replace

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.kernel import Emitted, KernelArguments
from stablexla.targets.codegen.vector_loops import LoopPart, WorkItems, estimate_ns, grain_of
from stablexla.targets.cpu.scan.panels import PanelAccumulators, PanelScan
from stablexla.targets.cpu.scan.plan import ScanPlan, ScanWriter, emit_three_phase_scan
from stablexla.targets.cpu.scan.prefix_scan import BLOCK, MANY

# L1 budget for the accumulators of a panel, of all arrays together.
PANEL_BYTES = Gate("scan.panel-bytes", 8 << 10, eager=1)


@dataclass(frozen=True)
class _Panels:
    """The tiling of rows into panels: `count` panels of `width` elements."""

    width: int
    count: int

    @staticmethod
    def of(plan: ScanPlan) -> _Panels:
        """Choose panels whose accumulators stay in L1, and several of them where there are few rows side by side."""
        step = 4 * plan.lanes
        most = PANEL_BYTES() * 8 // sum(map(cg.bits_of, plan.elements))
        if plan.outer < MANY():
            most = min(most, plan.inner // 4)
        width = max(1, most // step) * step
        return _Panels(width, -(-plan.inner // width)) if width < plan.inner else _Panels(plan.inner, 1)

    def part(self, panel: Value) -> LoopPart | None:
        """Return one panel as a part of the row."""
        if self.count == 1:
            return None
        return LoopPart(panel * self.width, panel * self.width + self.width, panel.eq(self.count - 1))


def _panel(plan: ScanPlan, arguments: KernelArguments, line: Value, panels: _Panels, panel: Value) -> PanelScan:
    """Return the scan of one panel of a line's rows."""
    writer = ScanWriter(plan, arguments)

    def place(row: Value, column: Value) -> Value:
        row = cg.index(plan.extent - 1) - row if plan.backwards else row
        return (line * plan.extent + row) * plan.inner + column

    return PanelScan(
        plan.inner,
        plan.lanes,
        panels.part(panel),
        panels.width,
        plan.elements,
        writer.combine,
        lambda row, column, count: writer.read(place(row, column), count),
        lambda totals, row, column, count: writer.write(totals, place(row, column), count),
    )


def emit_row_scan(plan: ScanPlan) -> Emitted:
    """Emit scans with a panel per work item; or, where there are few and long ones, with blocks of their rows."""
    panels = _Panels.of(plan)
    items = WorkItems((0,), (plan.outer,), panels.count)
    rows = max(1, BLOCK() // panels.width)
    time = estimate_ns(plan.cost + 2, plan.extent * panels.width, plan.bytes // items.count, plan.target)
    if items.count >= MANY() or plan.extent < 2 * rows:
        with plan.kernel.phase(plan.target) as arguments, arguments.items(items.count) as item:
            at, panel = items.split(item)
            walk = _panel(plan, arguments, at[0], panels, panel)
            own = walk.room()
            walk.scan(cg.index(0), cg.index(plan.extent), plan.extent, own, cg.truth(False), own)
        return Emitted(items.count, grain_of(time, items.count), in_place=plan.in_place)

    def panel_of(arguments: KernelArguments, line: Value, at: Value) -> tuple[PanelScan, PanelAccumulators]:
        places, panel = items.split(line)
        buffers = arguments.scratch
        return _panel(plan, arguments, places[0], panels, panel), PanelAccumulators(buffers, at)

    def total(arguments: KernelArguments, line: Value, block: Value, at: Value) -> None:
        walk, own = panel_of(arguments, line, at)
        walk = replace(walk, write=lambda *_: None)
        walk.scan(block * rows, block * rows + rows, rows, own, cg.truth(False), own)

    def scan(arguments: KernelArguments, line: Value, block: Value, last: Value, at: Value) -> None:
        walk, before = panel_of(arguments, line, at)
        stop = cg.select(last, cg.index(plan.extent), block * rows + rows)
        walk.scan(block * rows, stop, 2 * rows, before, block.gt(0), walk.room())

    return emit_three_phase_scan(plan, plan.extent // rows, items.count, panels.width, time, total, scan)
