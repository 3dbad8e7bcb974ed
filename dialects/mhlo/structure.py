"""Rewrites of structural operations: fusions, asynchronous pairs, copies and scheduling barriers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import func

from stablexla.dialects.erasing import erase
from stablexla.dialects.inlining import inline_block
from stablexla.dialects.mhlo.registry import rewrites


@rewrites("mhlo.fusion")
def inline_fusion(op: Any) -> Sequence[Any]:
    """Inline the operations of a fusion."""
    return inline_block(op.regions[0].blocks[0], list(op.operands), op)


@rewrites("mhlo.copy", "mhlo.domain", "mhlo.add_dependency")
def first_operand(op: Any) -> Sequence[Any]:
    """Replace an identity by its operand: copies between layouts, sharding boundaries, waits for a token."""
    return [op.operands[0]]


@rewrites("mhlo.async_start")
def call_at_start(op: Any) -> None:
    """Rewrite an asynchronous start to a call of its computation, whose results replace those of the done.

    It stays where its bundle has other uses than one done, as around a loop.
    """
    bundles: list[Any] = [op]
    waits: list[Any] = []
    for bundle in bundles:  # grows by the updates
        for user in [use.owner.operation for use in bundle.results[0].uses]:
            if user.name not in ("mhlo.async_update", "mhlo.async_done"):
                return
            (bundles if user.name == "mhlo.async_update" else waits).append(user)
    if len(waits) != 1:
        return
    called = ir.FlatSymbolRefAttr(op.attributes["called_computation"])
    call = func.CallOp([r.type for r in waits[0].results], called, list(op.operands))
    for result, value in zip(waits[0].results, call.results, strict=True):
        result.replace_all_uses_with(value)
    for finished in (*waits, *reversed(bundles)):
        erase(finished)
