"""Machine code with the calling convention of macOS, for other tests on an AArch64 that runs Linux.

`pytest -p tests.targets.runtime.apple_convention tests/ops`. Functions get their arguments in registers, where both
conventions agree. The triple has no version of macOS, whose C library has functions that Linux's lacks.
"""

from __future__ import annotations

import functools
import os
from dataclasses import replace

from stablexla.targets.llvm import llvm_c
from stablexla.targets.llvm.llvm_c import HostProcessor

TRIPLE = b"aarch64-apple-darwin-elf"
os.environ |= {"STABLEXLA_LIBRARY": "off", "STABLEXLA_KERNEL_CACHE": "off"}  # which have the machine's own code
_host = llvm_c.host


@functools.wraps(_host)
def host() -> HostProcessor:
    return replace(_host(), triple=TRIPLE)


llvm_c.host = host


def pytest_report_header() -> str:
    """Say so."""
    return f"machine code for {TRIPLE.decode()}"
