"""Program order of side effects: calls with effects, and control flow that contains them."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.lowering.support.kernels import EFFECT
from stablexla.lowering.support.operations import walk


def has_effect(op: ir.Operation) -> bool:
    """Whether the operation or a nested one has side effects: it must run, in order with the others."""
    if op.name == "func.call":
        return EFFECT in op.attributes
    return op.name.startswith("scf.") and any(EFFECT in inner.attributes for inner in walk(op))


def previous_effects(block: ir.Block) -> dict[ir.Operation, ir.Operation]:
    """Map each operation of the block with effects, but the first, to the one that must run before it."""
    found = [view.operation for view in block.operations if has_effect(view.operation)]
    return dict(zip(found[1:], found, strict=False))
