"""The operations behind the methods of `XlaOp` and `XlaBuilder`: a table that `stablexla.ops` fills."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

OPERATORS: dict[str, Callable[..., Any]] = {}


def operator(name: str) -> Callable[..., Any]:
    """The operation of this name."""
    if not OPERATORS:
        import_module("stablexla.ops.operators")
    return OPERATORS[name]
