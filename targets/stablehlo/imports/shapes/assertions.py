"""Checks of `stablehlo.custom_call @shape_assertion` as soon as the shapes are known."""

from __future__ import annotations

import jaxlib.mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.dialects.errors import UnsupportedError
from stablexla.lowering.rules.calls.jax_calls import SHAPE_ASSERTION, text_of
from stablexla.lowering.support.context import place_of
from stablexla.targets.runtime.assertions import check
from stablexla.targets.stablehlo.imports.shapes.values import constant_of
from stablexla.targets.stablehlo.inlining import operations_of


def check_shape_assertions(module: ir.Module) -> None:
    """Remove the assertions that hold. Those on values known only at run time are left to run time.

    Raises:
        ExecutionError: one does not hold; the error has its text.
        UnsupportedError: one has no condition.
    """
    for op in operations_of(module, "stablehlo.custom_call"):
        if str(ir.StringAttr(op.attributes["call_target_name"]).value) != SHAPE_ASSERTION or len(op.results):
            continue
        if not op.operands or any(v.type.rank for v in op.operands):
            said = f"it takes a condition and numbers{place_of(op.location)}"
            raise UnsupportedError(said, operation=SHAPE_ASSERTION)
        values = [constant_of(operand) for operand in op.operands]
        known = [v for v in values if v is not None]
        if len(known) == len(values):
            check(text_of(op.attributes), known)
            erase(op)
