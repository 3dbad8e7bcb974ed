"""Registry of rewrite rules by operation name, and their building helpers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jaxlib.mlir.ir as ir

from stablexla.dialects.erasing import erase

Rule: TypeAlias = Callable[[Any], "Sequence[Any] | None"]
"""A rule: returns the values for an operation's results, or None where it has replaced the operation or cannot."""

RULES: dict[str, Rule] = {}


def rewrites(*names: str) -> Callable[[Rule], Rule]:
    """Register the rule for operations of these names."""

    def register(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return register


def rewrite_mhlo(module: ir.Module) -> None:
    """Apply the rules to a module in place, nested operations first; operations without a rule stay as they are."""
    found: list[Any] = []

    def note(op: Any) -> ir.WalkResult:
        if op.name in RULES:
            found.append(op.operation)
        return ir.WalkResult.ADVANCE

    module.operation.walk(note)
    for op in found:
        with op.context, op.location, ir.InsertionPoint(op):
            values = RULES[op.name](op)
        if values is not None:
            for result, value in zip(op.results, values, strict=True):
                result.replace_all_uses_with(value)
            erase(op)
