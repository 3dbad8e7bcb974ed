"""Upstream's execution engine by way of its C interface, which lets go of the GIL while LLVM works.

The Python class of the engine holds the GIL; two modules would be compiled one after the other. What is made here is
an object of that class all the same.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlir.ir as ir
from mlir import _mlir_libs
from mlir.execution_engine import ExecutionEngine


class _Handle(ctypes.Structure):
    """MlirModule and MlirExecutionEngine: a struct of one pointer."""

    _fields_ = (("pointer", ctypes.c_void_p),)


class _String(ctypes.Structure):
    """MlirStringRef."""

    _fields_ = (("data", ctypes.c_char_p), ("length", ctypes.c_size_t))

    @classmethod
    def of(cls, text: str) -> _String:
        data = text.encode()
        return cls(data, len(data))


@functools.cache
def _library() -> Any:
    """The library that the bindings are linked to: a second copy of MLIR could not read their modules."""
    library = ctypes.CDLL(str(Path(_mlir_libs.__file__).parent / "libMLIRPythonCAPI.so"))
    strings = ctypes.POINTER(_String)
    create = library.mlirExecutionEngineCreate
    create.argtypes = [_Handle, ctypes.c_int, ctypes.c_int, strings, ctypes.c_bool, ctypes.c_bool]
    create.restype = _Handle
    for lookup in (library.mlirExecutionEngineLookup, library.mlirExecutionEngineLookupPacked):
        lookup.argtypes, lookup.restype = [_Handle, _String], ctypes.c_void_p
    return library


_pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_capsule_of = ctypes.pythonapi.PyCapsule_New
_capsule_of.restype, _capsule_of.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_ENGINE = b"mlir.execution_engine.ExecutionEngine._CAPIPtr"


def make_engine(module: ir.Module, opt_level: int, libraries: Sequence[str]) -> ExecutionEngine:
    """Translates and optimises a module.

    Raises:
        RuntimeError: something in it has no translation; MLIR's diagnostics say what.
    """
    paths = (_String * len(libraries))(*map(_String.of, libraries))
    handle = _Handle(_pointer_of(module._CAPIPtr, b"mlir.ir.Module._CAPIPtr"))
    made = _library().mlirExecutionEngineCreate(handle, opt_level, len(libraries), paths, True, False)
    if not made.pointer:
        raise RuntimeError("Failure while creating the ExecutionEngine.")
    engine: ExecutionEngine = ExecutionEngine._CAPICreate(_capsule_of(made.pointer, _ENGINE, None))
    return engine


def find_function(engine: ExecutionEngine, name: str, *, packed: bool = False) -> int:
    """The address of a function, 0 if there is none; the first call makes the machine code.

    Args:
        packed: asks for the function that takes the addresses of its arguments.
    """
    library = _library()
    find = library.mlirExecutionEngineLookupPacked if packed else library.mlirExecutionEngineLookup
    handle = _Handle(_pointer_of(engine._CAPIPtr, _ENGINE))
    address: int = find(handle, _String.of(name)) or 0
    return address
