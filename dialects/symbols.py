"""Symbol names of operations, and a module's functions by name; of either MLIR."""

from __future__ import annotations

from typing import Any


def symbol_of(operation: Any) -> str:
    """Return the symbol name of an operation, a view of one or a module, without @; "" if it has none."""
    attributes = operation.operation.attributes
    return str(attributes["sym_name"].value) if "sym_name" in attributes else ""


def functions_of(module: Any) -> dict[str, Any]:
    """Return a module's `func.func` operations by name, in their order."""
    return {symbol_of(op): op.operation for op in module.body.operations if op.operation.name == "func.func"}


def callee_of(op: Any) -> str:
    """Return the name of the function that a call of any dialect, or a composite for its decomposition, names."""
    return str(op.attributes["decomposition" if op.name == "stablehlo.composite" else "callee"].value)
