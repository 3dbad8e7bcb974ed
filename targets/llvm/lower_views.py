"""Lower views of buffers, affine arithmetic, vector transfers and vectors of several dimensions.

Emitters address elements by `arith`, and load, store and shuffle vectors of one dimension; the general path makes the
rest, and passes from elsewhere do. MLIR's passes for it rewrite greedily: on a program without any they take as long
for each operation as the conversions to LLVM's dialect.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.contexts import pass_manager
from stablexla.dialects.erasing import only_ours
from stablexla.lowering.support.operations import operations_named
from stablexla.targets.pipeline.passes import module_pass

_AFFINE = "apply delinearize_index for if linearize_index load max min parallel prefetch store vector_load vector_store"
_VIEWS = "collapse_shape expand_shape extract_strided_metadata subview"
_VECTORS = (
    "constant_mask contract create_mask extract_strided_slice insert_strided_slice multi_reduction outerproduct "
    "shape_cast step transfer_read transfer_write transpose"
)
_X86 = (
    "avx.bcst_to_f32.packed avx.cvt.packed.even.indexed_to_f32 avx.cvt.packed.odd.indexed_to_f32 avx.dot.i8 "
    "avx.intr.dot avx.rsqrt avx512.cvt.packed.f32_to_bf16 avx512.dot avx512.mask.compress avx512.mask.rndscale "
    "avx512.mask.scalef avx512.vp2intersect"
)
LOWERED = (
    *(f"affine.{name}" for name in _AFFINE.split()),
    *(f"memref.{name}" for name in _VIEWS.split()),
    *(f"vector.{name}" for name in _VECTORS.split()),
    *(f"x86vector.{name}" for name in _X86.split()),
)
"""Operations that the passes lower."""
_OF_SHAPES = "bitcast broadcast deinterleave fma from_elements gather interleave to_elements"
LOWERED_OF_SHAPES = tuple(f"vector.{name}" for name in _OF_SHAPES.split())
"""Those that they lower on vectors of several dimensions or none, and broadcasts of vectors; emitters make none."""
_PASSES = (
    "builtin.module("
    "func.func(convert-vector-to-scf{full-unroll=true},lower-affine,convert-scf-to-cf),"
    "expand-strided-metadata,lower-affine,convert-vector-to-llvm{enable-x86vector=true})"
)


@module_pass(
    "stablexla-lower-views",
    "lowers views of buffers, affine arithmetic, vector transfers and vectors of several dimensions, if there are any",
)
def lower_views(module: ir.Module) -> None:
    """Run MLIR's passes on a module that holds any of these; structured control flow becomes branches with them."""
    shaped = () if only_ours.get() else LOWERED_OF_SHAPES
    if any(map(_is_lowered, operations_named(module.operation, *LOWERED, *shaped))):
        pass_manager("upstream", _PASSES, verify_each=False).run(module.operation)


def _is_lowered(op: ir.Operation) -> bool:
    if op.name not in LOWERED_OF_SHAPES:
        return True
    types = [value.type for value in (*op.operands, *op.results) if isinstance(value.type, ir.VectorType)]
    is_of_vector = op.name == "vector.broadcast" and len(types) > 1
    return is_of_vector or any(len(type_.shape) != 1 for type_ in types)
