"""Application of users' lowering rules: their exceptions and wrong results are reported with the operation's place."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import mlir.ir as ir

from stablexla.dialects.contexts import import_hint, unregistered_allowed
from stablexla.dialects.errors import CompileError, StablexlaError
from stablexla.dialects.rules import LoweringRule, active, active_rules, applied, are_verified, place_of_function
from stablexla.lowering.support.types import ssa_type

if TYPE_CHECKING:
    from stablexla.lowering.support.context import LoweringContext


def apply_rule(rule: LoweringRule, ctx: LoweringContext, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """Apply a user's rule to an operation; return its checked results.

    Raises:
        CompileError: an exception in the rule, or results that do not fit the operation; where rules are verified,
            operations that break a rule of their dialect.
        StablexlaError: as the rule raised it.
    """
    applied(rule)
    block = ir.InsertionPoint.current.block
    before = len(block.operations) if are_verified() else 0
    try:
        with unregistered_allowed(ir.Context.current):
            lowered: Any = rule.function(ctx, *operands)
    except StablexlaError:
        raise
    except Exception as error:
        file, _ = place_of_function(rule.function)
        lines = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        where = f"{file}:{lines[-1].lineno}:  {lines[-1].line}" if lines else rule.place
        what = f"{type(error).__name__}: {error}\n  at {where}"
        raise _failed(rule, ctx, what, hint=import_hint(error, "mlir")) from error
    one = isinstance(lowered, ir.Value) or not isinstance(lowered, (Sequence, ir.OpResultList))
    results = [] if lowered is None else [lowered] if one else list(lowered)
    wanted = [ssa_type(t) for t in ctx.result_types]
    for made in results:
        if not isinstance(made, ir.Value):
            raise _failed(rule, ctx, f"it gave {made!r}, which is no value of upstream's MLIR")
    if [value.type for value in results] != wanted:
        gave = ", ".join(str(value.type) for value in results) or "nothing"
        raise _failed(rule, ctx, f"it gave {gave}, and the results are {', '.join(map(str, wanted)) or 'none'}")
    if are_verified():
        _verify(rule, ctx, list(block.operations)[before:])
    return results


def _verify(rule: LoweringRule, ctx: LoweringContext, emitted: Sequence[Any]) -> None:
    for op in emitted:
        try:
            op.operation.verify()
        except ir.MLIRError as error:
            said = "; ".join(str(found.message) for found in error.error_diagnostics)
            raise _failed(rule, ctx, f"it emitted an invalid operation: {said}") from None


def built_in(ctx: LoweringContext, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """Lower the operation without the user's rules for it."""
    from stablexla.lowering.support.registry import lower_operation

    mine = ctx.rule
    with active(rule for rule in active_rules().values() if rule is not mine):
        return lower_operation(ctx, operands)


def _failed(rule: LoweringRule, ctx: LoweringContext, what: str, hint: str = "") -> CompileError:
    return CompileError(f"the lowering rule {rule}", diagnostics=(f"{what}{ctx.place}",), hint=hint)
