"""Errors of runs under guard: accesses outside of arrays, by the kernel that made them."""

from __future__ import annotations

from typing import NoReturn

from stablexla.dialects.errors import ExecutionError

_HINT = "no argument can do that: the fault is in the kernel's code, which `executable.ir('buffers')` shows"


def raise_outside(program: str, kernel: str, verb: str, array: str, offset: int, nbytes: int, address: int) -> NoReturn:
    """Raise the error for an access that lies in no array, or that is not allowed.

    Args:
        program: its name.
        kernel: the kernel and the user's line; "" for main itself, and where that is not known.
        verb: "read", "wrote" or "accessed".
        array: the array nearest by; "" where there is none.
        offset: of the access, in bytes from the array's start.
        nbytes: the array's size.
        address: of the access.
    """
    if not array:
        what = f"{verb} address {address:#x}, near no array"
    elif 0 <= offset < nbytes:
        what = f"{verb} byte {offset} of {array}, which is only read"
    else:
        what = f"{verb} byte {offset} of {array}, which has {nbytes}"
    raise ExecutionError(f"{program}: {kernel or 'main'} went outside of its arrays\n  {what}", hint=_HINT)
