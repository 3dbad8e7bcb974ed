"""The functions of LAPACK and BLAS that emitted kernels call, for tests that run these alone."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

from stablexla.targets.host.lapack import PREFIX, address

_NOTHING = ctypes.CFUNCTYPE(None)(lambda: None)


def fortran_symbols(routines: Iterable[str]) -> dict[str, int]:
    """Addresses by the names under which kernels declare them; that the library has no threads is not told to it."""
    nothing = ctypes.cast(_NOTHING, ctypes.c_void_p).value or 0
    found = {f"stablexla_blas_alone_{when}": nothing for when in ("begin", "end")}
    return found | {PREFIX + routine: address(routine) for routine in routines}
