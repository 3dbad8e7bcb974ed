"""Dead code elimination on tensors: erases operations without effects whose results have no users."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.kernels import EFFECT
from stablexla.lowering.support.operations import main_of, walk
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-drop-unused", "erases operations without effects whose results nobody reads")
def drop_unused_operations(module: ir.Module) -> None:
    """Erase dead operations of `main`; control flow stays."""
    drop_unused(main_of(module))


def drop_unused(main: ir.Operation) -> None:
    """Erase operations without effects whose results have no users."""
    keep = ("func.func", "func.return", "scf.yield", "scf.condition", "scf.while", "scf.if", "scf.for")
    for op in reversed(list(walk(main))):
        if op.name in keep or not op.results:
            continue
        if EFFECT in op.attributes or (op.parent is not None and op.parent.name == "linalg.generic"):
            continue
        if all(next(iter(r.uses), None) is None for r in op.results):
            erase(op)
