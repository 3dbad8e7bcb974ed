"""Private functions for elementary functions, or big and rare parts of them: one for all uses in a module.

Their code is compiled once, where LLVM would take as long for each copy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlir.ir as ir

from stablexla.lowering.math.values import Integer, Real, Scope

PREFIX = "stablexla."


def shared(name: str, body: Callable[[Real], Sequence[Real | Integer]], x: Real) -> list[Any]:
    """Emit a call of a function that computes `body`, and the function if there is none yet for values of this type.

    In code for a device, and outside of functions, the body is emitted in place.
    """
    module = module_around(ir.InsertionPoint.current.block.owner.operation)
    if module is None:
        return list(body(x))

    def emit(argument: ir.Value) -> list[ir.Value]:
        return [made.ssa for made in body(_typed(Scope(argument.owner), argument))]

    return [_typed(x.format.scope, value) for value in call(module, name, emit, [x.ssa])]


def call(module: ir.Operation, name: str, emit: Callable[..., list[ir.Value]], operands: Sequence[ir.Value]) -> Any:
    """Emit a call of the function of that name for operands of these types; `emit` gives the results of its body.

    The function's symbol begins with `PREFIX`.
    """
    types = [operand.type for operand in operands]
    words = (str(type_).replace("<", "_").removesuffix(">") for type_ in dict.fromkeys(types))
    symbol = "_".join([f"{PREFIX}{name}", *words])
    table = ir.SymbolTable(module)
    function = table[symbol].operation if symbol in table else _emit(module, symbol, emit, types)
    results = ir.TypeAttr(function.attributes["function_type"]).value.results
    callee = {"callee": ir.FlatSymbolRefAttr.get(symbol)}
    return ir.Operation.create("func.call", results=results, operands=operands, attributes=callee).results


def module_around(op: ir.Operation) -> ir.Operation | None:
    """Return the module around the function that an operation is in, or is; None in code for a device."""
    while op.parent is not None and op.name != "func.func":
        op = op.parent.operation
    above = op.parent
    return above.operation if above is not None and above.operation.name == "builtin.module" else None


def _emit(module: ir.Operation, symbol: str, emit: Callable[..., list[ir.Value]], types: list[ir.Type]) -> ir.Operation:
    attributes = {
        "sym_name": ir.StringAttr.get(symbol),
        "sym_visibility": ir.StringAttr.get("private"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, [])),
        "llvm.linkage": ir.Attribute.parse("#llvm.linkage<internal>"),  # parts of a program have one each
        "no_inline": ir.UnitAttr.get(),
    }
    start = ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0])
    function = ir.Operation.create("func.func", attributes=attributes, regions=1, ip=start)
    block = function.regions[0].blocks.append(*types, arg_locs=[ir.Location.current] * len(types))
    with ir.InsertionPoint(block):
        results = emit(*block.arguments)
        ir.Operation.create("func.return", operands=results)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [r.type for r in results]))
    return function


def _typed(scope: Scope, value: ir.Value) -> Any:
    element = value.type.element_type if isinstance(value.type, ir.VectorType) else value.type
    return (Integer if isinstance(element, ir.IntegerType) else Real)(scope.format_of(value.type), value)
