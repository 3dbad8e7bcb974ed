"""Rewriting of branches between blocks, `cf.br` and the like, as structured control flow.

Upstream's MLIR does that, for any control-flow graph. The two MLIRs share no objects but texts: upstream
takes StableHLO's operations as unknown ones. The loops come back in the dialect scf; the pass that refines shapes
rewrites them as StableHLO, with all other operations of scalar dialects.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir
import mlir.ir as upstream
import mlir.passmanager as passmanager

from stablexla.dialects.contexts import diagnostics, unregistered_allowed, upstream_context
from stablexla.dialects.errors import UnsupportedError
from stablexla.targets.pipeline.messages import messages_of

_BRANCHES = ("cf.br", "cf.cond_br", "cf.switch")


def structure_branches(module: ir.Module) -> ir.Module:
    """Return the module, or another one in its context, without branches.

    Raises:
        UnsupportedError: a flow of control that cannot be structured, such as a loop without an end.
    """
    if not _has_branches(module):
        return module
    text = str(module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True))
    with diagnostics(module.context):
        return ir.Module.parse(_lifted(text), module.context)


def _has_branches(module: ir.Module) -> bool:
    found = False

    def look(op: Any) -> Any:
        nonlocal found
        found = op.name in _BRANCHES
        return ir.WalkResult.INTERRUPT if found else ir.WalkResult.ADVANCE

    module.operation.walk(look)
    return found


def _lifted(text: str) -> str:
    context = upstream_context()
    with unregistered_allowed(context):
        with diagnostics(context) as seen:
            try:
                module = upstream.Module.parse(text, context)
                passmanager.PassManager.parse("builtin.module(lift-cf-to-scf)", context).run(module.operation)
            except upstream.MLIRError as error:
                raise UnsupportedError(
                    f"branches that cannot be structured: {messages_of(error, seen)[0]}", operation="cf.br"
                ) from None
        return str(module.operation.get_asm(print_generic_op_form=True, enable_debug_info=True))
