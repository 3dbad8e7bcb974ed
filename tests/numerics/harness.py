"""Compiles one elementary function as a vectorised kernel that can be called on arrays, or turned into assembly."""

from __future__ import annotations

import ctypes
import importlib.util
import math
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlir.ir as ir
import numpy as np
from mlir.dialects import func, memref, scf, vector

from stablexla.dialects.contexts import upstream_context
from stablexla.lowering import math as math_expansion
from stablexla.targets.llvm.to_llvm import code_to_llvm
from tests.jit import jit

#: elements that a kernel is compiled for; longer arrays are cut in pieces
BLOCK = 4096

Array = np.ndarray[Any, np.dtype[Any]]
Emit = Callable[..., ir.Value]


def operation(name: str) -> Emit:
    """Return an emitter of the operation `name`, with the type of its first operand."""

    def emit(*operands: ir.Value) -> ir.Value:
        return ir.Operation.create(name, results=[operands[0].type], operands=list(operands)).result

    return emit


def element_type(dtype: Any) -> ir.Type:
    """The element type of an array; integers have no sign in MLIR."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return ir.F32Type.get() if dtype.itemsize == 4 else ir.F64Type.get()
    return ir.IntegerType.get_signless(8 * dtype.itemsize)


def kernel(emit: Emit, dtypes: Sequence[Any], shape: Sequence[int] | None = (8,)) -> ir.Module:
    """A module with @f(inputs..., output): `emit` over arrays of `BLOCK` elements, a vector of `shape` at a time.

    Without a shape, a scalar at a time.
    """
    with upstream_context(), ir.Location.unknown():
        module = ir.Module.create()
        elements = [element_type(d) for d in dtypes]
        with ir.InsertionPoint(module.body):
            function = func.FuncOp("f", ([ir.MemRefType.get([BLOCK], e) for e in [*elements, elements[0]]], []))
            block = function.add_entry_block()
        step = 1 if shape is None else math.prod(shape)
        with ir.InsertionPoint(block):
            *inputs, output = block.arguments
            for place in scf.for_(0, BLOCK, step):
                if shape is None:
                    memref.store(emit(*(memref.load(i, [place]) for i in inputs)), output, [place])
                else:
                    flat = [ir.VectorType.get([step], e) for e in elements]
                    loaded = [vector.load(t, i, [place]) for t, i in zip(flat, inputs)]
                    shaped = [vector.shape_cast(ir.VectorType.get(shape, e), v) for e, v in zip(elements, loaded)]
                    vector.store(vector.shape_cast(flat[0], emit(*shaped)), output, [place])
                scf.yield_([])
            func.return_([])
        return module


def lower(module: ir.Module) -> ir.Module:
    """The pass under test, then upstream's passes to LLVM's dialect."""
    with module.context:
        math_expansion.expand_math(module)
        module.operation.verify()
    code_to_llvm(module)
    return module


class Kernel:
    """A compiled function of arrays."""

    def __init__(self, emit: Emit, dtypes: Sequence[Any], shape: Sequence[int] | None = (8,)) -> None:
        self.dtypes = [np.dtype(d) for d in dtypes]
        [self._call] = jit(lower(kernel(emit, dtypes, shape)), ["f"])

    def __call__(self, *arguments: Any) -> Array:
        size = np.size(arguments[0])
        padded = -(-size // BLOCK) * BLOCK
        arrays = [np.ones(padded, dtype) for dtype in self.dtypes]
        for array, argument in zip(arrays, arguments):
            array[:size] = argument
        arrays.append(np.empty(padded, self.dtypes[0]))
        for start in range(0, padded, BLOCK):
            slots = (ctypes.c_void_p * len(arrays))(*(a[start:].ctypes.data for a in arrays))
            first = ctypes.addressof(slots)
            self._call((ctypes.c_void_p * len(arrays))(*(first + 8 * k for k in range(len(arrays)))))
        return arrays[-1][:size]


def assembly(emit: Emit, dtypes: Sequence[Any], shape: Sequence[int], cpu: str) -> str:
    """Return the assembly of a kernel for `cpu`."""
    module = str(lower(kernel(emit, dtypes, shape)))
    translated = _run("mlir", "mlir-translate", ["--mlir-to-llvmir"], module)
    return _run("llvm", "llc", ["-O2", f"-mcpu={cpu}"], translated)


def _run(package: str, tool: str, options: list[str], text: str) -> str:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations is not None
    found = [Path(folder) / "bin" / tool for folder in spec.submodule_search_locations]
    program = next(path for path in found if path.exists())
    return subprocess.run([program, *options], input=text, capture_output=True, text=True, check=True).stdout
