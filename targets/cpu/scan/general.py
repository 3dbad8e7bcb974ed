"""Kernels of running scans with any computation of elements, over several arrays at once and from either end.

Nothing is known to leave an element as it is, so the first vector of a line has nothing before it. Otherwise they are
written as in `window_scan.py`, and their elements stay in their order.
"""

from __future__ import annotations

from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.scan.lines import emit_lines
from stablexla.targets.cpu.scan.rows import emit_rows
from stablexla.targets.cpu.scan.work import Plan, combination_of


@emitter("scan")
def emit_general_scan(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Takes scans whose computation vectors can do; its kernel's function must carry the totals as they are stored."""
    combination = combination_of(kernel) if "returned" in kernel.config else None
    if combination is None:
        return None
    plan = Plan.of(kernel, combination, target)
    return emit_lines(plan) if plan.inner == 1 else emit_rows(plan)
