"""Operating system interface, Linux's and macOS's: names of shared libraries, caches, privileges, memory and pipes."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import sys
from collections.abc import Callable
from pathlib import Path

IS_MACOS = sys.platform == "darwin"

Sysctl = Callable[[str], bytes]
"""Returns a value of macOS's kernel by its name; b"" where it has none."""

_AT_SECURE = 23  # of getauxval
_F_SETSIG = 10  # of Linux: which signal tells of a pipe


def shared_library(name: str) -> str:
    """Return the name of a shared library's file.

    >>> shared_library("libLLVM") in ("libLLVM.so", "libLLVM.dylib")
    True
    """
    return f"{name}.dylib" if IS_MACOS else f"{name}.so"


def sysctl(name: str) -> bytes:
    """Return a value of macOS's kernel; b"" where it has none, and on Linux."""
    if not IS_MACOS:
        return b""
    find, size = ctypes.CDLL(None).sysctlbyname, ctypes.c_size_t()
    if find(name.encode(), None, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return b""
    found = ctypes.create_string_buffer(size.value)
    if find(name.encode(), found, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return b""
    return found.raw[: size.value]


def _number(value: bytes) -> int:
    return int.from_bytes(value, "little")


def _text(value: bytes) -> str:
    return value.rstrip(b"\0").decode(errors="replace")


# ---- the machine -----------------------------------------------------------------------------------------------------


def processor_name() -> str:
    """Return the processor's name for a reader, or the architecture where the system has none for it."""
    return _text(sysctl("machdep.cpu.brand_string")) or _model_name() or platform.machine()


def _model_name() -> str:
    try:
        with Path("/proc/cpuinfo").open() as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return ""


def cache_bytes() -> tuple[int | None, int | None, int | None]:
    """Return the sizes of the data caches, the first two of one core; None for what the system does not say."""
    return macos_caches(sysctl) if IS_MACOS else (_linux_cache(0), _linux_cache(2), _linux_cache(3))


def macos_caches(read: Sysctl) -> tuple[int | None, int | None, int | None]:
    """Return those of the fast cores: they share the second, which is the last that macOS tells of.

    >>> caches = {"l1dcachesize": 128 << 10, "l2cachesize": 12 << 20, "cpusperl2": 4}
    >>> macos_caches(lambda name: caches[name.removeprefix("hw.perflevel0.")].to_bytes(8, "little"))
    (131072, 3145728, 12582912)
    """
    first, second, cores = (_number(read(f"hw.perflevel0.{n}")) for n in ("l1dcachesize", "l2cachesize", "cpusperl2"))
    return first or None, second // max(cores, 1) or None, second or None


def _linux_cache(index: int) -> int | None:
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").read_text().strip()
    except OSError:
        return None
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else int(text) if text else None


# ---- the process -----------------------------------------------------------------------------------------------------


def has_more_privileges() -> bool:
    """Whether the kernel says that whoever started this program has not all of its privileges."""
    libc = ctypes.CDLL(None)
    return bool(libc.issetugid() if IS_MACOS else libc.getauxval(_AT_SECURE))


def place() -> tuple[int, int]:
    """Return numbers of this machine since it started, and of the space that process ids are of."""
    if IS_MACOS:
        return boot_number(_text(sysctl("kern.bootsessionuuid"))), 0
    return boot_number(Path("/proc/sys/kernel/random/boot_id").read_text()), os.stat("/proc/self/ns/pid").st_ino


def boot_number(text: str) -> int:
    """Return the first 60 bits of a UUID, which a signed number holds.

    >>> boot_number("1B4E28BA-2FA1-11D2-883F-0016D3CCA427")
    122972179208474909
    """
    return int(text.replace("-", "")[:15], 16)


def loaded_files() -> list[str]:
    """Return the files of the shared libraries that the process has loaded, and on Linux of all that it maps."""
    if IS_MACOS:
        return _images()
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    return sorted({fields[5] for line in lines if len(fields := line.split(maxsplit=5)) > 5 and fields[5][0] == "/"})


def _images() -> list[str]:
    dyld = ctypes.CDLL(None)
    dyld._dyld_get_image_name.restype = ctypes.c_char_p
    names = (dyld._dyld_get_image_name(number) for number in range(dyld._dyld_image_count()))
    return sorted({os.fsdecode(name) for name in names if name})


def mapped_bytes() -> int | None:
    """Return the size of the process's address space; None on macOS, where much is mapped from the start on."""
    if IS_MACOS:
        return None
    return int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")


def end_group_with(lifeline: int) -> None:
    """Have this process and all of its group killed when the other end of a pipe is closed, whatever they do then.

    On Linux the kernel does it. On macOS a shell does: a pipe sends one signal alone there, which may be ignored.
    """
    import fcntl
    import signal
    import subprocess

    if IS_MACOS:
        subprocess.Popen(["/bin/sh", "-c", "read -r _; kill -KILL 0"], stdin=lifeline)
        return
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def is_library(file: str, pattern: str) -> bool:
    """Whether a file is a shared library whose name without suffix and version matches.

    >>> [is_library(name, "libmpi") for name in ("/a/libmpi.so.12", "/a/libmpi.12.dylib", "/a/libmpich.so")]
    [True, True, False]
    """
    return re.fullmatch(rf"(?:{pattern})(\.so(\.\d+)*|(\.\d+)*\.dylib)", Path(file).name) is not None


def memory_file(name: str) -> int:
    """Return the descriptor of a new empty file in memory; on macOS one that has no name."""
    if not IS_MACOS:
        return os.memfd_create(name)
    import tempfile

    with tempfile.TemporaryFile(prefix=name) as file:
        return os.dup(file.fileno())
