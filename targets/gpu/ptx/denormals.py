"""Flush 32-bit denormals to zero in kernels, by the `ftz` forms of instructions."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-flush-denormals", "has kernels of a GPU count denormal numbers of 32 bits as zero")
def flush_denormals(module: ir.Module) -> None:
    """Set LLVM's `denormal_fp_math_f32` on kernels; to be run when they are functions of LLVM's dialect."""
    with module.context:
        for view in module.body.operations:
            if view.operation.name == "gpu.module":
                for inner in view.operation.regions[0].blocks[0].operations:
                    if inner.operation.name == "llvm.func":
                        inner.operation.attributes["denormal_fp_math_f32"] = ir.StringAttr.get("preserve-sign")
