"""Lower views of buffers, affine arithmetic and vector transfers, which only the general path makes.

Emitters address elements by `arith`, and load and store vectors as such. MLIR's passes for the others rewrite greedily:
on a program without any they take as long for each operation as the conversions to LLVM's dialect.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.contexts import pass_manager
from stablexla.lowering.support.operations import operations_named
from stablexla.targets.pipeline.passes import module_pass

_AFFINE = "apply delinearize_index for if linearize_index load max min parallel prefetch store vector_load vector_store"
_VIEWS = "collapse_shape expand_shape extract_aligned_pointer_as_index extract_strided_metadata subview"
LOWERED = (
    *(f"affine.{name}" for name in _AFFINE.split()),
    *(f"memref.{name}" for name in _VIEWS.split()),
    *("vector.transfer_read", "vector.transfer_write"),
)
"""Operations that the passes lower."""
_PASSES = (
    "builtin.module("
    "func.func(convert-vector-to-scf{full-unroll=true},lower-affine,convert-scf-to-cf),"
    "expand-strided-metadata,lower-affine)"
)


@module_pass(
    "stablexla-lower-views", "lowers views of buffers, affine arithmetic and vector transfers, if there are any"
)
def lower_views(module: ir.Module) -> None:
    """Run MLIR's passes on a module that holds any of `LOWERED`; structured control flow becomes branches with them."""
    if operations_named(module.operation, *LOWERED):
        pass_manager("upstream", _PASSES, verify_each=False).run(module.operation)
