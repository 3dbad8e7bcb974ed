"""The pass that finds attention for a GPU: what its kernel takes becomes one kernel, all else is left in parts."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.targets.codegen.match.attention_find import find
from stablexla.targets.gpu.attention.tiles import takes
from stablexla.targets.gpu.chips import DEFAULT
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-find-gpu-attention", "moves softmax(q k) v together, where a GPU's kernel takes it")
def find_gpu_attention(module: ir.Module, *, chip: str = DEFAULT) -> None:
    """As `stablexla-find-attention` does for the CPU.

    Args:
        chip: whose kernel is meant.
    """
    find(module, lambda attention: takes(attention, chip))
