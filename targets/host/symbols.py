"""Declare C functions that generated code calls by name, and pass arrays to them.

Their addresses are found in `symbol_table.py`. Functions of the native runtime need no entry there: the loader finds
them in its shared library.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith, func, memref

from stablexla.dialects.symbols import symbol_of
from stablexla.lowering.support.types import parsed_type


def declare(
    kernel: ir.Operation, name: str, inputs: Sequence[ir.Type], results: Sequence[ir.Type] = ()
) -> ir.FlatSymbolRefAttr:
    """Declare a C function, once, in the module that contains a function.

    Args:
        kernel: a function of the module.
        inputs: types of its parameters: numbers and `!llvm.ptr`.
    """
    module = kernel.operation.parent
    declared = {symbol_of(v) for v in module.regions[0].blocks[0].operations}
    if name not in declared:
        with ir.InsertionPoint.at_block_begin(module.regions[0].blocks[0]), ir.Location.unknown():
            func.FuncOp(name, ir.FunctionType.get(list(inputs), list(results)), visibility="private")
    return ir.FlatSymbolRefAttr.get(name)


def pointer_type() -> ir.Type:
    """Return the pointer type."""
    return parsed_type("!llvm.ptr")


def pointer_to(buffer: ir.Value) -> ir.Value:
    """Return the address of a memref's first element."""
    return to_pointer(memref.extract_aligned_pointer_as_index(buffer))


def to_pointer(index: ir.Value) -> ir.Value:
    """Return an address that is given as an index."""
    number = arith.index_cast(ir.IntegerType.get_signless(64), index)
    return ir.Operation.create("llvm.inttoptr", results=[pointer_type()], operands=[number]).result
