"""The passes from buffers to LLVM's dialect, for every program on this machine."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.targets.pipeline.driver import run_pipeline
from stablexla.targets.pipeline.pipelines import Pipeline, Step

LLVM = frozenset({"llvm"})

EXPANSIONS = ("stablexla-expand-math", "stablexla-expand-small-floats", "stablexla-lower-views")
# One conversion replaces many small ones, each with a walk of its own; functions need their own options.
CONVERSIONS = (
    "func.func(convert-scf-to-cf)",
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1}",
    "convert-to-llvm",
    "reconcile-unrealized-casts",
)
ANNOTATIONS = ("stablexla-keep-rolled", "stablexla-bf16-as-bits")
CODE_TO_LLVM: tuple[str, ...] = (*EXPANSIONS, *CONVERSIONS, *ANNOTATIONS)
"""What functions on buffers take, those of single kernels too."""
TO_LLVM = (
    "stablexla-note-sizes",
    "stablexla-list-calls",
    "stablexla-check-stops",
    *CODE_TO_LLVM,
    "stablexla-run-in-parallel",
    "stablexla-hide-kernels",
)
"""What a whole program takes, with its `main`."""


def code_to_llvm(module: ir.Module) -> None:
    """Lower functions on buffers to LLVM's dialect, in place; the module needs no `main`."""
    run_pipeline(module, Pipeline("code", [Step("llvm", ",".join(CODE_TO_LLVM), LLVM)]), is_trusted=True)
