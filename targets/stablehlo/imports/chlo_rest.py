"""CHLO operations that jaxlib decomposes only in part, or that appear as custom calls."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.hlo import broadcast, emit
from stablexla.targets.stablehlo.imports.replacements import is_static, replaces


@replaces("chlo.broadcast_select")
def broadcast_select(op: Any) -> list[Any] | None:
    """Broadcast the operands of a select by numpy's rules; a scalar predicate stays one."""
    if not is_static(op):
        return None
    (result,) = op.results
    shape = list(result.type.shape)
    predicate, *others = op.operands
    predicate = _stretched(predicate, shape) if predicate.type.rank else predicate
    return [emit("stablehlo.select", [predicate, *(_stretched(v, shape) for v in others)], [result.type])]


def _stretched(x: Any, shape: list[int]) -> Any:
    """Broadcast an array to a shape by numpy's rules: trailing dimensions aligned, extent 1 expanded."""
    extents, first = list(x.type.shape), len(shape) - x.type.rank
    if extents == shape:
        return x
    kept = [d for d, n in enumerate(extents) if n == shape[first + d]]
    if len(kept) < len(extents):
        x = emit("stablehlo.reshape", [x], [ir.RankedTensorType.get([extents[d] for d in kept], x.type.element_type)])
    return broadcast(x, shape, [first + d for d in kept])


@replaces("stablehlo.custom_call")
def custom_call(op: Any) -> list[Any] | None:
    """Rewrite the custom call that stands for MHLO's mulhi (upper half of integer products)."""
    if str(ir.StringAttr(op.attributes["call_target_name"]).value) != "mhlo.mulhi":
        return None
    return [emit("chlo.mulhi", list(op.operands), [op.results[0].type])]
