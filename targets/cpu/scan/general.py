"""Scans with any combiner, over several arrays at once and from either end.

The combiner has no known identity, so the first vector of a line has no predecessor. Otherwise they are emitted as in
`prefix_scan.py`, and the order of the elements is kept.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.kernels.scan.line_scan import ScanConfig
from stablexla.targets.codegen.element_combiner import ElementCombiner
from stablexla.targets.codegen.kernel import Emitted, Kernel
from stablexla.targets.codegen.machine import CpuTarget
from stablexla.targets.codegen.refusals import COMBINER, COMPLEX, Refusal, refuse
from stablexla.targets.cpu.emitters import emitter
from stablexla.targets.cpu.scan.contiguous import emit_line_scan
from stablexla.targets.cpu.scan.plan import ScanPlan
from stablexla.targets.cpu.scan.strided import emit_row_scan

_TYPES = Refusal(
    "emitters take such scans of integers of whole bytes, of f32 and f64, and sums of bf16 and f16",
    "a convert to f32, the scan, and a convert back",
)


@emitter("scan")
def emit_general_scan(kernel: Kernel, target: CpuTarget) -> Emitted | None:
    """Emit scans whose combiner can be vectorized."""
    config = kernel.config(ScanConfig)
    if config.returned is None:
        refuse(_obstacle(kernel.inputs[0].type.element_type))
        return None
    combiner = ElementCombiner.of(kernel)
    if not combiner.fits_lanes:
        refuse(COMBINER)
        return None
    plan = ScanPlan.of(kernel, config, config.returned, combiner, target)
    return emit_line_scan(plan) if plan.inner == 1 else emit_row_scan(plan)


def _obstacle(element: ir.Type) -> Refusal:
    """Return why a scan of such elements has no combiner that emitters take."""
    if isinstance(element, ir.ComplexType):
        return COMPLEX
    whole = isinstance(element, ir.IntegerType) and element.width >= 8
    return COMBINER if whole or isinstance(element, ir.F32Type | ir.F64Type) else _TYPES
