"""Dead code elimination on tensors: erases operations without effects whose results have no users."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.kernels import EFFECT
from stablexla.lowering.support.operations import main_of
from stablexla.targets.pipeline.passes import module_pass

_KEPT = frozenset(["func.func", "func.return", "scf.yield", "scf.condition", "scf.while", "scf.if", "scf.for"])


@module_pass("stablexla-drop-unused", "erases operations without effects whose results nobody reads")
def drop_unused_operations(module: ir.Module) -> None:
    """Erase dead operations of `main`; control flow stays."""
    drop_unused(main_of(module))


def drop_unused(main: ir.Operation) -> None:
    """Erase operations without effects whose results have no users; bodies of linalg operations stay as they are."""
    found: list[ir.Operation] = []

    def note(op: ir.Operation) -> ir.WalkResult:
        if op.name not in _KEPT:
            found.append(op.operation)
        return ir.WalkResult.SKIP if op.name == "linalg.generic" else ir.WalkResult.ADVANCE

    main.walk(note, ir.WalkOrder.PRE_ORDER)
    for op in reversed(found):
        results = list(op.results)
        if results and EFFECT not in op.attributes and all(next(iter(r.uses), None) is None for r in results):
            erase(op)
