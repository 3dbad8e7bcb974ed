"""The pass that outlines attention for the CPU: what its emitter takes becomes one kernel, all else stays in parts."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.targets.codegen.machine import host_target
from stablexla.targets.codegen.match.attention_outline import outline_attentions
from stablexla.targets.cpu.attention.attention import workspace_fits
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-find-attention", "moves softmax(q k) v, or another function of rows between products, together")
def find_attention(module: ir.Module) -> None:
    """Outline each attention that the CPU's emitter takes into a kernel."""
    outline_attentions(module, lambda attention: workspace_fits(attention, host_target().with_choices()))
