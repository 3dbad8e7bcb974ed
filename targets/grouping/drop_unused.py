"""Dead code elimination on tensors: erases operations without effects whose results have no users."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.erasing import erase_unused
from stablexla.lowering.support.kernels import EFFECT
from stablexla.lowering.support.operations import program_of
from stablexla.targets.pipeline.passes import module_pass

_KEPT = frozenset(["func.func", "func.return", "scf.yield", "scf.condition", "scf.while", "scf.if", "scf.for"])


@module_pass("stablexla-drop-unused", "erases operations without effects whose results nobody reads")
def drop_unused_operations(module: ir.Module) -> None:
    """Erase dead operations of the program; control flow stays."""
    for function in program_of(module):
        drop_unused(function)


def drop_unused(function: ir.Operation) -> None:
    """Erase operations without effects whose results have no users; bodies of linalg operations stay as they are."""
    found: list[ir.Operation] = []

    def note(op: ir.Operation) -> ir.WalkResult:
        if op.name not in _KEPT:
            found.append(op.operation)
        return ir.WalkResult.SKIP if op.name == "linalg.generic" else ir.WalkResult.ADVANCE

    function.walk(note, ir.WalkOrder.PRE_ORDER)
    for op in reversed(found):
        if EFFECT not in op.attributes and (results := list(op.results)) and not any(map(_is_used, results)):
            erase_unused(op)


def _is_used(value: ir.Value) -> bool:
    return next(iter(value.uses), None) is not None
