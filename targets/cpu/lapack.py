"""Where functions of LAPACK and BLAS are found: in the library that SciPy brings, by their Fortran interfaces."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from stablexla.targets.cpu.symbols import symbol

PREFIX = "stablexla_lapack_"
# The letter of each type of elements, as MLIR spells the type.
LETTERS = {"f32": "s", "f64": "d", "complex<f32>": "c", "complex<f64>": "z"}


def name_of(function: str, element: object) -> str:
    """The symbol of a function for a type of elements: `trsm` for f32 is that of `strsm`."""
    return f"{PREFIX}{LETTERS[str(element)]}{function}"


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


for _letter in LETTERS.values():
    for _function in ("potrf", "trsm"):
        symbol(f"{PREFIX}{_letter}{_function}")(functools.partial(address, _letter + _function))
