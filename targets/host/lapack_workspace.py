"""LAPACK workspace queries: a call with the length -1 returns the size, and does nothing more."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import numpy as np

from stablexla.dialects.errors import CompileError
from stablexla.lowering.rules.calls.lapack_routines import ROUTINES
from stablexla.targets.host.lapack import address

# Spare memory in case a routine writes during a query: as much as any does.
SPARE_BYTES = 4096
TYPES = {"s": np.float32, "d": np.float64, "c": np.float32, "z": np.float64}


def query_workspace(name: str, sizes: Mapping[str, int], words: Mapping[str, str]) -> int:
    """Query the workspace, in elements, with which a routine is fastest; 0 for one that takes none.

    Raises:
        CompileError: the routine finds fault with its arguments.
    """
    is_complex = name[0] in "cz"
    tokens = [t.removesuffix("?") for t in ROUTINES[name].call.split() if is_complex or t[-1] != "?"]
    if "work" not in tokens:
        return 0
    work, info = np.zeros(SPARE_BYTES, np.uint8), ctypes.c_int32(0)
    kept: list[object] = []

    def argument(token: str) -> object:
        if token == "work":
            return ctypes.c_void_p(work.ctypes.data)
        if token == "info":
            return ctypes.byref(info)
        if token == "null":
            return None
        kept.append(made := _argument(token, sizes, words))
        return ctypes.byref(made)

    prototype = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(tokens))
    prototype(address(name))(*map(argument, tokens))
    if info.value:
        raise CompileError(f"LAPACK's {name} refuses its argument {-info.value}")
    answer = work.view(TYPES[name[0]])[0]
    # An inexact float may have been rounded down.
    return int(np.nextafter(answer, np.inf, dtype=answer.dtype)) + 1


def _argument(
    token: str, sizes: Mapping[str, int], words: Mapping[str, str]
) -> ctypes._SimpleCData[int] | ctypes.Array[ctypes.c_char]:
    if token in sizes:
        return ctypes.c_int32(sizes[token])
    if token in words:
        return ctypes.create_string_buffer(words[token].encode())
    if token in ("lwork", "lrwork", "liwork"):
        return ctypes.c_int32(-1)
    if token.startswith("ld("):
        return ctypes.c_int32(max(1, sizes[token[3:-1]]))
    return ctypes.create_string_buffer(SPARE_BYTES)
