"""Compiles one elementary function as a vectorised kernel, and measures its errors in units in the last place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import mlir.ir as ir
import numpy as np
from mlir.dialects import func, memref, scf, vector
from mlir.execution_engine import ExecutionEngine
from mlir.passmanager import PassManager
from stablexla.dialects.contexts import upstream_context
from stablexla.lowering import math_expansion

TO_LLVM = (
    "builtin.module(func.func(convert-vector-to-scf{full-unroll=true},convert-scf-to-cf),convert-vector-to-llvm,"
    "expand-strided-metadata,lower-affine,convert-math-to-llvm,convert-ub-to-llvm,"
    "finalize-memref-to-llvm{use-generic-functions=1},convert-arith-to-llvm,convert-index-to-llvm,convert-cf-to-llvm,"
    "convert-func-to-llvm{use-bare-ptr-memref-call-conv=1},reconcile-unrealized-casts,canonicalize,cse)"
)
#: elements that a kernel is compiled for; longer arrays are cut in pieces
BLOCK = 4096

Emit = Callable[..., ir.Value]


def operation(name: str) -> Emit:
    """What emits the operation `name` on values of one type."""

    def emit(*operands: ir.Value) -> ir.Value:
        return ir.Operation.create(name, results=[operands[0].type], operands=list(operands)).result

    return emit


def element_type(dtype: np.dtype[Any]) -> ir.Type:
    if dtype.kind == "f":
        return ir.F32Type.get() if dtype.itemsize == 4 else ir.F64Type.get()
    return ir.IntegerType.get_signless(8 * dtype.itemsize)


def kernel(emit: Emit, dtypes: Sequence[Any], shape: Sequence[int] | None = (8,), length: int = BLOCK) -> ir.Module:
    """A module with @f: `emit` over arrays of `length` elements (inputs, then the output), vectors of `shape` at a time."""
    with upstream_context(), ir.Location.unknown():
        module = ir.Module.create()
        elements = [element_type(np.dtype(d)) for d in dtypes]
        step = int(np.prod(shape)) if shape is not None else 1
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", ([ir.MemRefType.get([length], e) for e in [*elements, elements[0]]], []))
            function.attributes["llvm.emit_c_interface"] = ir.UnitAttr.get()
            block = function.add_entry_block()
        with ir.InsertionPoint(block):
            *inputs, output = block.arguments
            for place in scf.for_(0, length, step):
                if shape is None:
                    memref.store(emit(*(memref.load(i, [place]) for i in inputs)), output, [place])
                else:
                    flat = [vector.load(ir.VectorType.get([step], e), i, [place]) for e, i in zip(elements, inputs)]
                    shaped = [vector.shape_cast(ir.VectorType.get(shape, e), v) for e, v in zip(elements, flat)]
                    result = vector.shape_cast(flat[0].type, emit(*shaped))
                    vector.store(result, output, [place])
                scf.yield_([])
            func.return_([])
        return module


def lower(module: ir.Module) -> ir.Module:
    """The pass under test, then upstream's to LLVM's dialect."""
    with module.context:
        math_expansion.expand_math(module)
        module.operation.verify()
        PassManager.parse(TO_LLVM).run(module.operation)
    return module


class Kernel:
    """A compiled function of arrays."""

    def __init__(self, emit: Emit, dtypes: Sequence[Any], shape: Sequence[int] | None = (8,)) -> None:
        self.dtypes = [np.dtype(d) for d in dtypes]
        self.engine = ExecutionEngine(lower(kernel(emit, dtypes, shape)), opt_level=2, enable_object_dump=False)
        address = self.engine.raw_lookup("f")
        assert address, "a symbol could not be resolved"
        self.call = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(address)

    def __call__(self, *arguments: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        size = arguments[0].size
        padded = -(-size // BLOCK) * BLOCK
        inputs = []
        for argument, dtype in zip(arguments, self.dtypes):
            whole = np.ones(padded, dtype)
            whole[:size] = argument
            inputs.append(whole)
        output = np.empty(padded, self.dtypes[0])
        for start in range(0, padded, BLOCK):
            pointers = [a[start:].ctypes.data for a in (*inputs, output)]
            slots = (ctypes.c_void_p * len(pointers))(*pointers)
            packed = (ctypes.c_void_p * len(pointers))(
                *(ctypes.addressof(slots) + 8 * k for k in range(len(pointers)))
            )
            self.call(ctypes.addressof(packed))
        return output[:size]
