"""The symbol table: addresses of C functions that generated code calls by name; nothing here needs an MLIR."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

Address = Callable[[], int]

SYMBOLS: dict[str, Address] = {}


def symbol(name: str) -> Callable[[Address], Address]:
    """Register a function that returns the address of a C function; it is called when code that needs it is loaded."""

    def register(address: Address) -> Address:
        assert name not in SYMBOLS, f"two C functions are called {name}"
        SYMBOLS[name] = address
        return address

    return register


def addresses(names: Sequence[str]) -> dict[str, ctypes.c_void_p]:
    """Look up the addresses of those names that are registered."""
    return {name: ctypes.c_void_p(SYMBOLS[name]()) for name in names if name in SYMBOLS}
