"""Resolve LAPACK and BLAS symbols in the library that comes with SciPy, by their Fortran interfaces."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path
from typing import Any

from stablexla.dialects.system import loaded_files
from stablexla.lowering.rules.calls.lapack_routines import ROUTINES
from stablexla.targets.host.symbol_table import symbol
from stablexla.targets.runtime._runtime import set_blas_functions

PREFIX = "stablexla_lapack_"
# The type letter in routine names, by element type as MLIR spells it.
LETTERS = {"f32": "s", "f64": "d", "complex<f32>": "c", "complex<f64>": "z"}


@functools.cache
def address(function: str) -> int:
    """Return the address of a function such as `dpotrf`."""
    from scipy.linalg import cython_blas, cython_lapack  # imported only by programs that call LAPACK

    _tell_of_threads()
    capsules: dict[str, Any] = {**cython_lapack.__pyx_capi__, **cython_blas.__pyx_capi__}
    return _pointer(capsules[function])


@functools.cache
def _tell_of_threads() -> None:
    """Register OpenBLAS's functions that get and set its thread count with the runtime."""
    for path in loaded_files():
        if "openblas" not in Path(path).name or not Path(path).is_file():
            continue
        library = ctypes.CDLL(path)
        for prefix in ("scipy_openblas", "openblas"):
            names = [f"{prefix}_{verb}_num_threads" for verb in ("get", "set")]
            if all(hasattr(library, name) for name in names):
                get, set_ = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in names)
                set_blas_functions(get, set_)
                return


def _pointer(capsule: Any) -> int:
    """Return the pointer in a capsule; the capsule's name is the function's signature in C."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))


for _name in {*ROUTINES, *(letter + "trsm" for letter in LETTERS.values())}:
    symbol(PREFIX + _name)(functools.partial(address, _name))
