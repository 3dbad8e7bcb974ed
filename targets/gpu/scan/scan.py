"""Scans (prefix sums) with any combiner, along any dimension and in either direction.

Combiners that are not known to be associative run sequentially, a line by each thread.
"""

from __future__ import annotations

from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.refusals import COMBINER, refuse
from stablexla.targets.gpu.emitters import GpuName, gpu_emitter
from stablexla.targets.gpu.scan.contiguous import emit_lines
from stablexla.targets.gpu.scan.plan import ScanPlan
from stablexla.targets.gpu.scan.strided import emit_columns


@gpu_emitter("scan")
def emit_scan(kernel: Kernel, chip: GpuName) -> Emitted | None:
    """Emit scans whose combiner is arithmetic."""
    plan = ScanPlan.of(kernel)
    if plan is None:
        refuse(COMBINER)
        return None
    return emit_lines(plan) if plan.inner == 1 and plan.associative else emit_columns(plan)
