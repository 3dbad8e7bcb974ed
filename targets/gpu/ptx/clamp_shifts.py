"""Clamp the distance of 64-bit shifts, to keep those of more than 32 bits right.

PTX's distances have 32 bits, and its shifts by more than the width give 0. LLVM 22 therefore drops the select in
`distance < 64 ? x << distance : 0`, and truncates the distance: a shift by 2^32 becomes one by 0.
"""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.support.operations import walk
from stablexla.targets.pipeline.passes import module_pass

_SHIFTS = ("llvm.shl", "llvm.lshr")
_LAST = 63  # the largest defined distance; beyond it a shift is poison in LLVM


@module_pass("stablexla-clamp-shifts", "makes distances of shifts of 64 bits small enough for a GPU's 32 bits of them")
def clamp_shifts(module: ir.Module) -> None:
    """Clamp distances; to be run when kernels are functions of LLVM's dialect."""
    with module.context:
        wide = ir.IntegerType.get_signless(64)
        for view in module.body.operations:
            for op in walk(view.operation) if view.operation.name == "gpu.module" else ():
                if op.name in _SHIFTS and _element(op.operands[1].type) == wide and not _is_constant(op.operands[1]):
                    _clamp(op)


def _clamp(op: ir.Operation) -> None:
    distance = op.operands[1]
    with op.location, ir.InsertionPoint(op):
        number = ir.IntegerAttr.get(_element(distance.type), _LAST)
        if isinstance(distance.type, ir.VectorType):
            number = ir.DenseElementsAttr.get_splat(distance.type, number)
        last = ir.Operation.create("llvm.mlir.constant", [distance.type], attributes={"value": number}).results[0]
        op.operands[1] = ir.Operation.create("llvm.intr.umin", [distance.type], [distance, last]).results[0]


def _element(type_: ir.Type) -> ir.Type:
    return type_.element_type if isinstance(type_, ir.VectorType) else type_


def _is_constant(value: ir.Value) -> bool:
    return not isinstance(value.owner, ir.Block) and value.owner.name == "llvm.mlir.constant"
