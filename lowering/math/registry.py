"""Registry of the expansions of elementary functions, and the pass `stablexla-expand-math` that applies them.

The functions register themselves with `@expands`; importing the package registers all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import mlir.ir as ir

from stablexla.dialects.choices import Gate, active_choices
from stablexla.dialects.erasing import erase
from stablexla.lowering.math.functions import call, call_of_library, library, module_around
from stablexla.lowering.math.logistic import LOGISTIC, QUOTIENT, argument_of, chain_of, function_of, marked_logistic
from stablexla.lowering.math.values import Real, Scope
from stablexla.lowering.support.operations import constant_of, operations_named

PASS_NAME = "stablexla-expand-math"

#: takes the scope and the operation, returns the values that replace its results
Expansion = Callable[[Scope, ir.Operation], "list[ir.Value] | None"]

EXPANSIONS: dict[str, Expansion] = {}

LEAST_CALLED = Gate("elementary-functions.least-called", 17, eager=1)
"""From so many equal operations in a function on, they are calls: 26 hyperbolic tangents behind a product take 1%
longer then, and the product compiles in half the time."""

MOST_EVALUATED = Gate("elementary-functions.most-evaluated", 64, eager=1 << 40)
"""Operations that are evaluated so often at most, on vectors or scalars, when their function runs once are calls of the
library: a call takes a nanosecond or two more, and LLVM some milliseconds less."""

LONG = frozenset({"math.sin", "math.cos", "math.tan"})
"""Operations of so many instructions that a call of the library takes no longer. In place, those of one angle share its
reduction: two of them are no calls."""
ROUNDED = frozenset({"math.exp", "math.erfc"})
"""Operations that are expanded to fewer digits where their results are rounded to bf16."""
SHORT = frozenset({"math.rsqrt", "math.round", "math.isnan", "math.isinf", "math.isfinite", "math.isnormal"})
"""Operations of a few instructions, which are never calls."""

# functions, at whose start constants may be emitted
_FUNCTIONS = frozenset({"func.func", "llvm.func", "gpu.func", "async.func"})


def is_real(type_: ir.Type) -> bool:
    """Whether the type is f32, f64 or a fixed-size vector of one of them."""
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    if not isinstance(element, ir.F32Type | ir.F64Type):
        return False
    return not isinstance(type_, ir.VectorType) or not type_.scalable


def is_rounded_to_bf16(operation: ir.Operation) -> bool:
    """Whether an f32 has users, and all of them round it to bf16, so that some 17 bits suffice."""
    users = [use.owner for use in operation.results[0].uses]
    if not users or not str(operation.results[0].type).rstrip(">").endswith("f32"):
        return False
    return all(user.name == "arith.truncf" and "bf16" in str(user.results[0].type) for user in users)


def expands(*names: str) -> Callable[[Callable[..., Real]], Callable[..., Real]]:
    """Register a function of `Real`s as the expansion of the operations `names`, on f32 and f64."""

    def register(function: Callable[..., Real]) -> Callable[..., Real]:
        def expansion(scope: Scope, operation: ir.Operation) -> list[ir.Value] | None:
            operands = list(operation.operands)
            if not is_real(operands[0].type):
                return None
            format = scope.format_of(operands[0].type)
            return [function(*(Real(format, operand) for operand in operands)).ssa]

        expansion.__module__ = function.__module__
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
    replaced, on scalars and on vectors of any shape. Where a function has many of one operation, each becomes a call of
    a shared function (`functions.py`). Results are within 2 ULP (f32) or 3 ULP (f64) of the correctly rounded ones;
    denormals are kept. A few functions emit `scf.if` or `scf.while`, so the pass runs before
    `convert-scf-to-cf`. `only` names the one operation that is rewritten; "" means all.
    """
    root = module.operation
    # Logistic functions first: what they have before their quotients goes with them.
    for names in ((QUOTIENT,), tuple(EXPANSIONS)):
        found = _find(root, [name for name in names if only in ("", name)])
        for operation, scope in found if only else _shared(found):
            with root.context, operation.location, ir.InsertionPoint(operation):
                values = EXPANSIONS[function_of(operation)](scope, operation)
            if values is not None:
                _replace(operation, values)


def _replace(operation: ir.Operation, values: Sequence[ir.Value]) -> None:
    """Put values in the places of an operation's results, and erase it with what a logistic function has before."""
    before = chain_of(operation) or []
    for old, new in zip(operation.results, values, strict=True):
        old.replace_all_uses_with(new)
    for op in (operation, *before):
        if op is operation or not any(len(list(result.uses)) for result in op.results):
            erase(op)


def _shared(found: list[tuple[ir.Operation, Scope]]) -> list[tuple[ir.Operation, Scope]]:
    """Replace operations by calls of functions where that costs little; return those that are left to expand.

    A function has many of them, in straight code such as what follows a product for each of its registers. Where there
    is a library, also those that are long, and those for few elements.
    """
    has_library = library.get() is not None
    keys = [(scope, function_of(operation), operation.results[0].type) for operation, scope in found]
    counts, left = Counter(keys), []
    for (operation, scope), key in zip(found, keys, strict=True):
        are_many = counts[key] >= LEAST_CALLED()
        is_called = are_many or (has_library and (_is_long(operation) or _is_for_few(operation)))
        module = module_around(operation) if is_called and _is_shareable(operation) else None
        if module is None or not _call(module, operation, are_many=are_many):
            left.append((operation, scope))
    return left


def _is_shareable(operation: ir.Operation) -> bool:
    """Return whether an operation is a function of its operands alone, which is expanded alike wherever it stands."""
    is_plain = set(operation.attributes) <= {"fastmath", LOGISTIC} and operation.name not in SHORT
    is_short = operation.name in ROUNDED and is_rounded_to_bf16(operation)
    return is_plain and is_real(operation.operands[0].type) and not is_short


def _is_long(operation: ir.Operation) -> bool:
    """Return whether an operation is long, and no other such one is of its operand."""
    return operation.name in LONG and sum(use.owner.name in LONG for use in operation.operands[0].uses) == 1


def _is_for_few(operation: ir.Operation) -> bool:
    """Return whether an operation is evaluated `MOST_EVALUATED` times at most when its function runs once.

    A loop whose trips are not known is as long as the longest array that the function has.
    """
    evaluated, holder = 1, operation.parent.operation
    while holder.name in ("scf.for", "scf.if"):
        evaluated *= _trips(holder) if holder.name == "scf.for" else 1
        holder = holder.parent.operation
    return holder.name == "func.func" and evaluated <= MOST_EVALUATED()


def _trips(loop: ir.Operation) -> int:
    lower, upper, step = map(constant_of, list(loop.operands)[:3])
    if lower is not None and upper is not None and step:
        return -(-(upper - lower) // step)
    function = loop
    while function.name != "func.func":
        function = function.parent.operation
    types = [argument.type for argument in function.regions[0].blocks[0].arguments]
    arrays = [type_ for type_ in types if isinstance(type_, ir.MemRefType)]
    is_known = arrays and all(array.has_static_shape for array in arrays)
    return max(prod(array.shape) for array in arrays) if is_known else 1 << 40


def _call(module: ir.Operation, operation: ir.Operation, *, are_many: bool) -> bool:
    """Replace an operation by a call of the library's function, or, of many, of the module's; return whether it was."""
    function, types = function_of(operation), [result.type for result in operation.results]
    x = argument_of(operation)
    operands, symbol = list(operation.operands) if x is None else [x], function.removeprefix("stablexla.")

    def emit(*arguments: ir.Value) -> list[ir.Value]:
        if x is None:
            inner = ir.Operation.create(operation.name, results=types, operands=arguments)
        else:
            inner = marked_logistic(*arguments).owner
        values = EXPANSIONS[function](Scope(arguments[0].owner), inner)
        if values is not None:
            _replace(inner, values)
        return list(inner.results) if values is None else values

    with module.context, operation.location, ir.InsertionPoint(operation):
        results, symbol = None, symbol.replace(".", "_")
        if EXPANSIONS[function].__module__.startswith("stablexla."):  # others may change while a process runs
            results = call_of_library(module, symbol, [active_choices()], emit, operands, types)
        if results is None and are_many:
            results = call(module, symbol, emit, operands)
        if results is not None:
            _replace(operation, list(results))
    return results is not None


def _find(root: ir.Operation, names: Sequence[str]) -> list[tuple[ir.Operation, Scope]]:
    """Return the operations of these names to expand, in order, each with the scope of its function."""
    scopes: dict[ir.Operation | None, Scope] = {}
    found: list[tuple[ir.Operation, Scope]] = []
    for operation in operations_named(root, *names):
        if operation.name == QUOTIENT and function_of(operation) == QUOTIENT:
            continue
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
