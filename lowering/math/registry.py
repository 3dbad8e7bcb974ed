"""Registry of the expansions of elementary functions, and the pass `stablexla-expand-math` that applies them.

The functions register themselves with `@expands`; importing the package registers all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlir.ir as ir

from stablexla.dialects.erasing import erase
from stablexla.lowering.math.values import Real, Scope
from stablexla.lowering.support.operations import operations_named

PASS_NAME = "stablexla-expand-math"

#: takes the scope and the operation, returns the values that replace its results
Expansion = Callable[[Scope, ir.Operation], "list[ir.Value] | None"]

EXPANSIONS: dict[str, Expansion] = {}

# functions, at whose start constants may be emitted
_FUNCTIONS = frozenset({"func.func", "llvm.func", "gpu.func", "async.func"})


def is_real(type_: ir.Type) -> bool:
    """Whether the type is f32, f64 or a fixed-size vector of one of them."""
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    if not isinstance(element, ir.F32Type | ir.F64Type):
        return False
    return not isinstance(type_, ir.VectorType) or not type_.scalable


def is_rounded_to_bf16(operation: ir.Operation) -> bool:
    """Whether all users of an f32 round it to bf16, so that some 17 bits suffice."""
    users = [use.owner for use in operation.results[0].uses]
    single = str(operation.results[0].type).rstrip(">").endswith("f32")
    return single and all(user.name == "arith.truncf" and "bf16" in str(user.results[0].type) for user in users)


def expands(*names: str) -> Callable[[Callable[..., Real]], Callable[..., Real]]:
    """Register a function of `Real`s as the expansion of the operations `names`, on f32 and f64."""

    def register(function: Callable[..., Real]) -> Callable[..., Real]:
        def expansion(scope: Scope, operation: ir.Operation) -> list[ir.Value] | None:
            operands = list(operation.operands)
            if not is_real(operands[0].type):
                return None
            format = scope.format_of(operands[0].type)
            return [function(*(Real(format, operand) for operand in operands)).ssa]

        for name in names:
            EXPANSIONS[name] = expansion
        return function

    return register


def expands_operation(*names: str) -> Callable[[Expansion], Expansion]:
    """Register an expansion that reads the operation itself: one with integers or several results."""

    def register(expansion: Expansion) -> Expansion:
        EXPANSIONS.update(dict.fromkeys(names, expansion))
        return expansion

    return register


def emitter(function: Callable[..., Real]) -> Callable[..., ir.Value]:
    """Wrap a function of `Real`s as one of MLIR values that emits at the insertion point."""

    def emit(*operands: ir.Value) -> ir.Value:
        format = Scope().format_of(operands[0].type)
        return function(*(Real(format, operand) for operand in operands)).ssa

    emit.__name__, emit.__doc__ = function.__name__, function.__doc__
    return emit


def expand_math(module: ir.Module | ir.Operation | Any, only: str = "") -> None:
    """Expand the elementary functions on f32 and f64 in `module` into vectorizable arithmetic.

    All `math` operations but those that are instructions themselves (fma, sqrt, floor ...) and `arith.remf` are
    replaced, on scalars and on vectors of any shape. Results are within 2 ULP (f32) or 3 ULP (f64) of the correctly
    rounded ones; denormals are kept. A few functions emit `scf.if` or `scf.while`, so the pass runs before
    `convert-scf-to-cf`. `only` names the one operation that is rewritten; "" means all.
    """
    root = module.operation
    for operation, scope in _find(root):
        if only and operation.name != only:
            continue
        with root.context, operation.location, ir.InsertionPoint(operation):
            values = EXPANSIONS[operation.name](scope, operation)
        if values is None:
            continue
        for result, value in zip(operation.results, values):
            result.replace_all_uses_with(value)
        erase(operation)


def _find(root: ir.Operation) -> list[tuple[ir.Operation, Scope]]:
    """Return the operations to expand, in order, each with the scope of its function."""
    scopes: dict[ir.Operation | None, Scope] = {}
    found: list[tuple[ir.Operation, Scope]] = []
    for operation in operations_named(root, *EXPANSIONS):
        function = _function_of(operation, root)
        if function not in scopes:
            scopes[function] = Scope(_outermost(operation, root) if function is None else _entry(function))
        found.append((operation, scopes[function]))
    return found


def _function_of(operation: ir.Operation, root: ir.Operation) -> ir.Operation | None:
    """Return the function in `root`, or `root` itself, that contains `operation`."""
    while operation.name not in _FUNCTIONS:
        if operation == root or operation.parent is None:
            return None
        operation = operation.parent.operation
    return operation


def _entry(function: ir.Operation) -> ir.Block | None:
    blocks = function.regions[0].blocks
    return blocks[0] if len(blocks) else None


def _outermost(operation: ir.Operation, root: ir.Operation) -> ir.Block:
    """Return the block of `root` that contains `operation`, directly or nested, without a function between."""
    while operation.parent is not None and operation.parent.operation != root:
        operation = operation.parent.operation
    return operation.block
