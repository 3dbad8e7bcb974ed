"""Scans with any combiner, over several arrays at once and from either end.

The combiner has no known identity, so the first vector of a line has no predecessor. Otherwise they are emitted as in
`prefix_scan.py`, and the order of the elements is kept.
"""

from __future__ import annotations

from stablexla.lowering.kernels.scan.config import ScanConfig
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.scan.combiner import ScanPlan, match_combiner
from stablexla.targets.cpu.scan.contiguous import emit_line_scan
from stablexla.targets.cpu.scan.strided import emit_row_scan


@emitter("scan")
def emit_general_scan(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit scans whose combiner can be vectorized; the kernel's function must carry the accumulators as stored."""
    config = kernel.config(ScanConfig)
    if config.returned is None:
        return None
    combination = match_combiner(kernel)
    if combination is None:
        return None
    plan = ScanPlan.of(kernel, config, config.returned, combination, target)
    return emit_line_scan(plan) if plan.inner == 1 else emit_row_scan(plan)
