"""Registry of rules that rewrite imported operations to those with lowerings.

A rule may return None while an operand or result has unknown extents, and is applied again later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jaxlib.mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.targets.pipeline.contents import for_any
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.imports.shapes.calls import replace_value
from stablexla.targets.stablehlo.inlining import all_operations

Replacement: TypeAlias = Callable[[Any], Sequence[Any] | None]
"""A rule: takes the operation, before which it inserts; returns the values for its results, or None to leave it."""

REPLACEMENTS: dict[str, Replacement] = {}


def replaces(*names: str) -> Callable[[Replacement], Replacement]:
    """Register the rule for operations of these names."""

    def register(rule: Replacement) -> Replacement:
        for name in names:
            assert name not in REPLACEMENTS, f"two rules for {name}"
            REPLACEMENTS[name] = rule
        return rule

    return register


@module_pass(
    "stablexla-replace-imported",
    "writes deprecated operations, scans of CHLO and dynamic operations of static results out in other operations",
    side="stablehlo",
    acts_on=for_any(REPLACEMENTS),
)
def replace_imported(module: ir.Module) -> None:
    """Apply the rules to a module, nested operations before the one that holds them."""
    for op in [op for op in all_operations(module) if op.name in REPLACEMENTS]:
        with op.location, ir.InsertionPoint(op):
            made = REPLACEMENTS[op.name](op)
        if made is None:
            continue
        for old, new in zip(op.results, made, strict=True):
            replace_value(old, new)
        erase(op)


def is_static(op: Any) -> bool:
    """Whether all operands and results of an operation have static extents."""
    return all(v.type.has_static_shape for v in (*op.operands, *op.results) if isinstance(v.type, ir.RankedTensorType))
