"""Pass that expands operations to loops where their computations hold more than scalar arithmetic.

The body of a kernel holds scalars. Arrays, random bits, host calls and collectives are operations of `main`, at most
inside control flow: a computation can have them only as the body of a loop over elements.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects import hlo
from stablexla.dialects.custom_calls import registered
from stablexla.dialects.erasing import erase
from stablexla.dialects.rules import rule_for
from stablexla.targets.pipeline.contents import for_any
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.computations import collectives, folds, scattering, sorting  # noqa: F401
from stablexla.targets.stablehlo.computations.element_loops import blank
from stablexla.targets.stablehlo.computations.registry import EXPANSIONS
from stablexla.targets.stablehlo.computations.scalars import pick_elements
from stablexla.targets.stablehlo.inlining import all_operations

# Operations that are not arithmetic, though all their values may be scalars.
OF_MAIN = ("stablehlo.replica_id", "stablehlo.partition_id")


@module_pass(
    "stablexla-expand-computations",
    "writes operations as loops over elements whose computations hold arrays, calls of the host or collectives",
    side="stablehlo",
    acts_on=for_any(EXPANSIONS),
)
def expand_computations(module: hlo_ir.Module) -> None:
    """Expand nested operations first: an outer one moves them, or drops them if it never applies its computation."""
    for op in [op for op in all_operations(module) if op.name in EXPANSIONS]:
        if rule_for(op) is None and _needs_loops(op):
            for region in op.regions:
                pick_elements(region)
            if _needs_loops(op):
                _expand(op)


def _expand(op: Any) -> None:
    with op.location, hlo_ir.InsertionPoint(op):
        if all(0 in result.type.shape for result in op.results):  # padding may have taken away more than there is
            results: Any = [hlo.reshape(blank(result.type), result.type.shape) for result in op.results]
        else:
            results = EXPANSIONS[op.name](op)
    if results is None:
        return
    for result, value in zip(op.results, results, strict=True):
        result.replace_all_uses_with(value)
    erase(op)


def _needs_loops(op: Any) -> bool:
    """Whether a computation of the operation holds operations that a kernel's body cannot."""
    return not all(map(_is_scalar, all_operations(op)[:-1]))


def _is_scalar(op: Any) -> bool:
    """Whether an operation is scalar arithmetic."""
    if op.name in OF_MAIN or _calls_host(op):
        return False
    return all(isinstance(v.type, hlo_ir.RankedTensorType) and not v.type.rank for v in (*op.operands, *op.results))


def _calls_host(op: Any) -> bool:
    if op.name != "stablehlo.custom_call":
        return False
    return registered(str(hlo_ir.StringAttr(op.attributes["call_target_name"]).value)) is not None
