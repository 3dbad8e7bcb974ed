"""Where functions of LAPACK and BLAS are found: in the library that SciPy brings, by their Fortran interfaces."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from stablexla.lowering.lapack_routines import ROUTINES
from stablexla.targets.cpu.symbols import symbol

PREFIX = "stablexla_lapack_"
# The letter of each type of elements, as MLIR spells the type.
LETTERS = {"f32": "s", "f64": "d", "complex<f32>": "c", "complex<f64>": "z"}


@functools.cache
def address(function: str) -> int:
    """The address of a function such as `dpotrf`."""
    from scipy.linalg import cython_blas, cython_lapack  # only programs that call LAPACK load it

    capsules: dict[str, Any] = {**cython_lapack.__pyx_capi__, **cython_blas.__pyx_capi__}
    return _pointer(capsules[function])


def _pointer(capsule: Any) -> int:
    """What a capsule points to; its name is the function's signature in C."""
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype = ctypes.c_char_p
    api.PyCapsule_GetName.argtypes = [ctypes.py_object]
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return int(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))


for _name in {*ROUTINES, *(letter + "trsm" for letter in LETTERS.values())}:
    symbol(PREFIX + _name)(functools.partial(address, _name))
