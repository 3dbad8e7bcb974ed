"""The entry function of a module."""

from __future__ import annotations

import jaxlib.mlir.ir as ir

from stablexla.dialects.errors import VerificationError
from stablexla.dialects.symbols import functions_of, symbol_of
from stablexla.targets.pipeline.options import MAIN


def with_entry(module: ir.Module, entry: str) -> ir.Module:
    """Return the module with the function of that name public and renamed to `main`.

    A function that had the name gets another one.

    Raises:
        VerificationError: there is no such function; the error lists those that there are.
    """
    if entry == MAIN:
        return module
    functions = functions_of(module)
    if entry not in functions:
        found = f"it has {', '.join('@' + name for name in functions)}" if functions else "it has no functions"
        raise VerificationError(f"the module has no function @{entry}; {found}")
    if MAIN in functions:
        _rename(module, functions[MAIN], _free_name(functions))
        functions[MAIN].attributes["sym_visibility"] = ir.StringAttr.get("private", module.context)
    _rename(module, functions[entry], MAIN)
    functions[entry].attributes["sym_visibility"] = ir.StringAttr.get("public", module.context)
    return module


def _free_name(names: dict[str, ir.OpView]) -> str:
    return next(name for number in range(len(names) + 1) if (name := f"{MAIN}_{number}") not in names)


def _rename(module: ir.Module, function: ir.OpView, name: str) -> None:
    ir.SymbolTable.replace_all_symbol_uses(symbol_of(function), name, module.operation)
    ir.SymbolTable.set_symbol_name(function, name)
