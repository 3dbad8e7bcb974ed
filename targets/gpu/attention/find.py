"""Find attention for a GPU: fuse softmax(QK)V into one kernel where the emitter takes it, leave the rest unfused."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.targets.codegen.match.attention_outline import outline_attentions
from stablexla.targets.gpu.attention.tiles import takes_attention
from stablexla.targets.gpu.chips import DEFAULT
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-find-gpu-attention", "moves softmax(q k) v together, where a GPU's kernel takes it")
def find_gpu_attention(module: ir.Module, *, chip: str = DEFAULT) -> None:
    """Fuse attention as `stablexla-find-attention` does for the CPU.

    Args:
        chip: the chip whose kernel has to take it.
    """
    outline_attentions(module, lambda attention: takes_attention(attention, chip))
