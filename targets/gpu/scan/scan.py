"""Scans with any computation of elements, along any dimension and from either end of it.

What is not known to be associative is computed one element after the other, a line by each thread.
"""

from __future__ import annotations

from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.gpu.chips import GpuName
from stablexla.targets.gpu.emitters import gpu_emitter
from stablexla.targets.gpu.scan.columns import emit_columns
from stablexla.targets.gpu.scan.lines import emit_lines
from stablexla.targets.gpu.scan.plan import Plan


@gpu_emitter("scan")
def emit_scan(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Takes scans whose computation is arithmetic."""
    plan = Plan.of(kernel)
    if plan is None:
        return None
    return emit_lines(plan) if plan.inner == 1 and plan.associative else emit_columns(plan)
