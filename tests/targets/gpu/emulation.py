"""Running a program's GPU kernels on the CPU, and comparing with what the CPU's own kernels give."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import stablexla as sx
from stablexla.targets.runtime import find_symbol
from tests.comparison import assert_same

SOURCES = sorted((Path(__file__).parents[3] / "targets/runtime/cpp/emulation").glob("*.cpp"))


@functools.cache
def load_threads() -> None:
    """Makes the functions for threads that wait for each other known, where the runtime does not have them."""
    if find_symbol("stablexla_emulated_multiply_groups"):
        return
    library = Path(tempfile.mkdtemp()) / "libemulated_threads.so"
    command = ["g++", "-O2", "-std=c++17", "-shared", "-fPIC", *map(str, SOURCES), "-o", str(library)]
    subprocess.run(command, check=True)
    ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


def program(make: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> sx.XlaComputation:
    """The computation that `make` writes for a builder and parameters of the arrays' shapes."""
    b = sx.XlaBuilder("test")
    root = make(b, *(b.parameter(i, sx.Shape(a.dtype, a.shape)) for i, a in enumerate(arrays)))
    return b.build(sx.tuple(root) if isinstance(root, list | tuple) else root)


def check(make: Callable[..., Any], *arrays: np.ndarray[Any, Any], ulp: float = 0, scale: float = 0) -> sx.Executable:
    """The emulated kernels give what the CPU's give. Returns the emulated program."""
    load_threads()
    computation = program(make, *arrays)
    emulated = sx.compile(computation, target=sx.targets.gpu(emulated=True))
    for actual, wanted in zip(
        emulated.execute(list(arrays)), sx.compile(computation).execute(list(arrays)), strict=True
    ):
        assert_same(actual, wanted, ulp=ulp, scale=scale)
    return emulated
