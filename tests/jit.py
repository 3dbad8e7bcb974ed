"""Functions in LLVM's dialect as machine code, by the code generator and the loader of programs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mlir.ir as ir

from stablexla.targets.llvm.entry import pack_entry
from stablexla.targets.llvm.llvm_c import object_file
from stablexla.targets.runtime._runtime import ObjectCode, find_symbol, undefined_symbols

Packed = Callable[[int], None]
"""A function of the address of an array with the address of each argument."""


def jit(
    module: ir.Module, names: Sequence[str], *, opt_level: int = 1, symbols: Mapping[str, int] | None = None
) -> list[Packed]:
    """Compile a module, which gains an entry point for each of the functions `names`; return these.

    Args:
        module: in LLVM's dialect.
        names: functions that it defines.
        opt_level: that of `CompileOptions`.
        symbols: addresses of functions that it calls, beside those of the process.
    """
    entries = [pack_entry(module, name) for name in names]
    file = object_file(module, opt_level)
    given = symbols or {}
    called = {name: given.get(name) or find_symbol(name) for name in undefined_symbols(file)}
    assert all(called.values()), f"unresolved: {[name for name, address in called.items() if not address]}"
    code = ObjectCode(file, called)
    return [_packed(code, entry) for entry in entries]


def _packed(code: Any, entry: str) -> Packed:
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address(entry))

    def call(arguments: int) -> None:
        function(arguments)

    call.code = code  # type: ignore[attr-defined]  # which ends with the last of its functions
    return call
