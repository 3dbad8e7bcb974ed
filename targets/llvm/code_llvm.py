"""The LLVM that makes machine code: that of MLIR's package, or a second one, which takes the first one's bitcode.

The package's LLVM is built with assertions. A build without them takes a fifth less time for the same code.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any, Literal

from stablexla.dialects.builds.installed import installed_version
from stablexla.dialects.builds.private_libraries import deep_binding
from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.pipeline.knobs import knobs

PACKAGE = "karellen-llvm-core"
"""The package of the extra `fast`; its library is in the environment's own folder `lib`."""
OLDEST = 22
"""The version whose bitcode it has to read: that of MLIR's package."""
_NEEDED = {
    "LLVMGetVersion": (None, [POINTER(c_uint)] * 3),
    "LLVMParseBitcodeInContext2": (c_int, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "LLVMCreateMemoryBufferWithMemoryRange": (c_void_p, [c_char_p, c_size_t, c_char_p, c_int]),
}


@dataclass(frozen=True)
class SecondLlvm:
    """A loaded library, and its version."""

    library: Any
    version: str

    @staticmethod
    def load(path: Path) -> SecondLlvm:
        """Load a library.

        Raises:
            CompileError: it is none, or too old.
        """
        try:
            library = ctypes.CDLL(str(path), ctypes.DEFAULT_MODE | deep_binding())
            for name, (result, arguments) in _NEEDED.items():
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
        except (OSError, AttributeError) as error:
            raise CompileError(f"{path}: no LLVM that can be used: {error}", hint=_HINT) from None
        parts = [c_uint() for _ in range(3)]
        library.LLVMGetVersion(*map(byref, parts))
        if parts[0].value < OLDEST:
            raise CompileError(f"{path}: LLVM {parts[0].value}, where {OLDEST} or later is needed", hint=_HINT)
        return SecondLlvm(library, ".".join(str(part.value) for part in parts))

    def parse(self, bitcode: bytes, context: int) -> int | None:
        """Return the module in bitcode; None if there is none, which the context is told."""
        library, module = self.library, c_void_p()
        buffer = library.LLVMCreateMemoryBufferWithMemoryRange(bitcode, len(bitcode), b"part", 0)
        failed = library.LLVMParseBitcodeInContext2(context, buffer, byref(module))
        library.LLVMDisposeMemoryBuffer(c_void_p(buffer))
        return None if failed else module.value


_HINT = "STABLEXLA_LLVM=off, for the LLVM of MLIR's package"


def second_llvm() -> SecondLlvm | None:
    """Return the library that `STABLEXLA_LLVM` names, or else that of the extra `fast`, if it is installed and works.

    Raises:
        CompileError: the one that is named cannot be used.
    """
    return _second_llvm(knobs.llvm)


def key_of_second_llvm() -> str:
    """Return what keys of caches hold of it, without loading it: the file, its size and its time; "" for none."""
    path = _path_of(knobs.llvm)
    if path is None or not path.exists():
        return ""
    found = path.stat()
    return f"{path} {found.st_size} {found.st_mtime_ns}"


@functools.cache
def _second_llvm(chosen: Path | Literal["off"] | None) -> SecondLlvm | None:
    path = _path_of(chosen)
    try:
        return None if path is None else SecondLlvm.load(path)
    except CompileError:
        if chosen is None:  # the extra is never required
            return None
        raise


@functools.cache
def _path_of(chosen: Path | Literal["off"] | None) -> Path | None:
    if chosen is not None:
        return None if chosen == "off" else Path(chosen)
    try:
        installed_version(PACKAGE)
    except ImportError:
        return None
    return next(iter(Path(sys.prefix, "lib").glob("libLLVM.so.*")), None)
