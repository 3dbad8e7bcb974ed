"""C functions that generated code calls by name: where they are found, how they are declared, how arrays are passed.

Functions of the native runtime need no entry here: the execution engine finds them in its shared library.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import arith, func, llvm, memref

Address = Callable[[], int]

SYMBOLS: dict[str, Address] = {}


def symbol(name: str) -> Callable[[Address], Address]:
    """Registers a function that gives the address of a C function; it is asked when code that calls it is loaded."""

    def register(address: Address) -> Address:
        assert name not in SYMBOLS, f"two C functions are called {name}"
        SYMBOLS[name] = address
        return address

    return register


def addresses(names: Sequence[str]) -> dict[str, ctypes.c_void_p]:
    """The addresses of those names that are registered."""
    return {name: ctypes.c_void_p(SYMBOLS[name]()) for name in names if name in SYMBOLS}


def declare(
    kernel: ir.Operation, name: str, inputs: Sequence[ir.Type], results: Sequence[ir.Type] = ()
) -> ir.FlatSymbolRefAttr:
    """Declares a C function in the module that a function stands in, once.

    Args:
        kernel: a function of the module.
        inputs: types of its parameters: numbers and `!llvm.ptr`.
    """
    module = kernel.operation.parent
    declared = {ir.StringAttr(v.operation.attributes["sym_name"]).value for v in module.regions[0].blocks[0].operations}
    if name not in declared:
        with ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]), ir.Location.unknown():
            func.FuncOp(name, ir.FunctionType.get(list(inputs), list(results)), visibility="private")
    return ir.FlatSymbolRefAttr.get(name)


def pointer_type() -> ir.Type:
    """The type of an address."""
    return ir.Type.parse("!llvm.ptr")


def pointer_to(buffer: ir.Value) -> ir.Value:
    """The address of a memref's first element."""
    index = memref.extract_aligned_pointer_as_index(buffer)
    return llvm.inttoptr(pointer_type(), arith.index_cast(ir.IntegerType.get_signless(64), index))
