"""The registry of lowering rules: StableHLO operation name to the function that lowers it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import mlir.ir as ir

from stablexla.dialects.discovery import import_all
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import rule_for
from stablexla.lowering.support.user_rules import apply_rule

if TYPE_CHECKING:
    from stablexla.lowering.support.context import LoweringContext

Lowered: TypeAlias = ir.Value | Sequence[ir.Value]
Rule = Callable[..., Lowered]


@dataclass(frozen=True)
class Registration:
    """A rule and its family (the module that defines it)."""

    rule: Rule
    family: str


RULES: dict[str, Registration] = {}


@functools.cache
def load_rules() -> None:
    """Import all modules of `lowering/rules`, which fills `RULES`."""
    import_all("stablexla.lowering.rules")


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for StableHLO operations.

    A rule takes the context and the lowered operands and returns the lowered result, or a sequence of them when the
    operation has several or none.
    """

    def register(rule: Rule) -> Rule:
        family = rule.__module__.rsplit(".", 1)[-1]
        for name in names:
            assert name not in RULES, f"two rules for {name}"
            RULES[name] = Registration(rule, family)
        return rule

    return register


def lower_operation(ctx: LoweringContext, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """Apply the rule of the context's operation: a user's, where one matches."""
    mine = rule_for(ctx.op)
    if mine is not None:
        ctx.rule = mine
        return apply_rule(mine, ctx, operands)
    registration = RULES.get(ctx.op_name)
    if registration is None:
        raise ctx.unsupported("there is no lowering for it")
    lowered = registration.rule(ctx, *operands)
    return [lowered] if isinstance(lowered, ir.Value) else list(lowered)
