"""Private functions for the big and rare parts of elementary functions: one for all uses in a module, which call it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlir.ir as ir

from stablexla.lowering.math.values import Integer, Real, Scope


def shared(name: str, body: Callable[[Real], Sequence[Real | Integer]], x: Real) -> list[Any]:
    """Emit a call of a function that computes `body`, and the function if there is none yet for values of this type.

    In code for a device, and outside of functions, the body is emitted in place.
    """
    module = _module()
    if module is None:
        return list(body(x))
    type_ = x.ssa.type
    symbol = f"stablexla.{name}_{str(type_).replace('<', '_').removesuffix('>')}"
    table = ir.SymbolTable(module)
    function = table[symbol].operation if symbol in table else _emit(module, symbol, body, type_)
    results = ir.TypeAttr(function.attributes["function_type"]).value.results
    callee = {"callee": ir.FlatSymbolRefAttr.get(symbol)}
    call = ir.Operation.create("func.call", results=results, operands=[x.ssa], attributes=callee)
    return [_typed(x.format.scope, value) for value in call.results]


def _module() -> ir.Operation | None:
    """Return the module around a function that is being emitted into."""
    op = ir.InsertionPoint.current.block.owner.operation
    while op.parent is not None and op.name != "func.func":
        op = op.parent.operation
    above = op.parent
    return above.operation if above is not None and above.operation.name == "builtin.module" else None


def _emit(
    module: ir.Operation, symbol: str, body: Callable[[Real], Sequence[Real | Integer]], type_: ir.Type
) -> ir.Operation:
    attributes = {
        "sym_name": ir.StringAttr.get(symbol),
        "sym_visibility": ir.StringAttr.get("private"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get([type_], [])),
        "llvm.linkage": ir.Attribute.parse("#llvm.linkage<internal>"),  # parts of a program have one each
        "no_inline": ir.UnitAttr.get(),
    }
    start = ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0])
    function = ir.Operation.create("func.func", attributes=attributes, regions=1, ip=start)
    block = function.regions[0].blocks.append(type_, arg_locs=[ir.Location.current])
    with ir.InsertionPoint(block):
        results = [made.ssa for made in body(_typed(Scope(block), block.arguments[0]))]
        ir.Operation.create("func.return", operands=results)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([type_], [r.type for r in results]))
    return function


def _typed(scope: Scope, value: ir.Value) -> Any:
    element = value.type.element_type if isinstance(value.type, ir.VectorType) else value.type
    return (Integer if isinstance(element, ir.IntegerType) else Real)(scope.format_of(value.type), value)
