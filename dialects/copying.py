"""Copies of modules of either MLIR."""

from __future__ import annotations

from typing import Any


def copy_of_module(module: Any) -> Any:
    """Return a copy in the module's own context."""
    copy = type(module).create(module.operation.location)
    for name, value in dict(module.operation.attributes.items()).items():
        copy.operation.attributes[name] = value
    for op in module.body.operations:
        copy.body.append(op.operation.clone())
    return copy
