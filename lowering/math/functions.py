"""Functions for elementary functions, or big and rare parts of them: one for all uses in a module, or in all programs.

Their code is compiled once, where LLVM would take as long for each copy. Where a library of machine code is open,
elementary functions are declared, and linked from it; else they are private functions of the module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

import mlir.ir as ir

from stablexla.lowering.math.values import Integer, Real, Scope

PREFIX = "stablexla."


class Library(Protocol):
    """Machine code of functions, for programs that declare them."""

    def symbol_for(
        self, module: ir.Operation, name: str, key: Sequence[object], make: Callable[[str], ir.Module]
    ) -> str | None:
        """Return the symbol of a function; None where code for this module does not come from the library.

        Args:
            name: the beginning of the symbol, for readers.
            key: all that the code depends on, but for the processor.
            make: emits the function in a module of its own, under the symbol; called when the library lacks it.
        """


library: ContextVar[Library | None] = ContextVar("library of elementary functions", default=None)


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
    symbol = f"{PREFIX}{_symbol(name, types)}"
    table = ir.SymbolTable(module)
    function = table[symbol].operation if symbol in table else _emit(module, symbol, emit, types)
    results = ir.TypeAttr(function.attributes["function_type"]).value.results
    return _call(symbol, results, operands)


def call_of_library(
    module: ir.Operation,
    name: str,
    key: Sequence[object],
    emit: Callable[..., list[ir.Value]],
    operands: Sequence[ir.Value],
    results: Sequence[ir.Type],
) -> Any:
    """Emit a call of the library's function, as `call` does; None where there is no library for this module.

    Args:
        key: all that the function depends on, but for its name, its operands' types and the processor.
    """
    types = [operand.type for operand in operands]
    name, found = _symbol(name, types), library.get()

    def make(symbol: str) -> ir.Module:
        with ir.Location.unknown(module.context):
            alone = ir.Module.create()
            _emit(alone.operation, symbol, emit, types)
        return alone

    symbol = None if found is None else found.symbol_for(module, name, (name, *key), make)
    if symbol is None:
        return None
    if symbol not in ir.SymbolTable(module):
        _declare(module, symbol, types, results)
    return _call(symbol, results, operands)


def _symbol(name: str, types: Sequence[ir.Type]) -> str:
    words = (str(type_).replace("<", "_").removesuffix(">") for type_ in dict.fromkeys(types))
    return "_".join([name, *words])


def _call(symbol: str, results: Sequence[ir.Type], operands: Sequence[ir.Value]) -> Any:
    callee = {"callee": ir.FlatSymbolRefAttr.get(symbol)}
    return ir.Operation.create("func.call", results=results, operands=operands, attributes=callee).results


def _declare(
    module: ir.Operation, symbol: str, types: Sequence[ir.Type], results: Sequence[ir.Type] = ()
) -> ir.Operation:
    attributes = {
        "sym_name": ir.StringAttr.get(symbol),
        "sym_visibility": ir.StringAttr.get("private"),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(types, results)),
    }
    start = ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0])
    return ir.Operation.create("func.func", attributes=attributes, regions=1, ip=start)


def module_around(op: ir.Operation) -> ir.Operation | None:
    """Return the module around the function that an operation is in, or is; None in code for a device."""
    while op.parent is not None and op.name != "func.func":
        op = op.parent.operation
    above = op.parent
    return above.operation if above is not None and above.operation.name == "builtin.module" else None


def _emit(module: ir.Operation, symbol: str, emit: Callable[..., list[ir.Value]], types: list[ir.Type]) -> ir.Operation:
    function = _declare(module, symbol, types)
    function.attributes["no_inline"] = ir.UnitAttr.get()
    if symbol.startswith(PREFIX):  # parts of a program have one each
        function.attributes["llvm.linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
    else:
        del function.attributes["sym_visibility"]
    block = function.regions[0].blocks.append(*types, arg_locs=[ir.Location.current] * len(types))
    with ir.InsertionPoint(block):
        results = emit(*block.arguments)
        ir.Operation.create("func.return", operands=results)
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(types, [r.type for r in results]))
    return function


def _typed(scope: Scope, value: ir.Value) -> Any:
    element = value.type.element_type if isinstance(value.type, ir.VectorType) else value.type
    return (Integer if isinstance(element, ir.IntegerType) else Real)(scope.format_of(value.type), value)
