"""Confinement of the calling process before it reads untrusted input: files, privileges, system calls, rlimits.

Each of the kernel's means is used where it is there; which ones hold is what the functions return. This module imports
the standard library alone, so that files can be given up before anything else is imported.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from importlib.util import find_spec
from pathlib import Path

from stablexla.processes import landlock, seccomp

_NO_NEW_PRIVILEGES = 38  # of prctl
_LIBRARIES = ("/usr/lib", "/usr/lib64", "/usr/local/lib", "/lib", "/lib64", "/etc/ld.so.cache")
_MACHINE = ("/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system", "/sys/fs/cgroup", "/dev/null")
_RANDOM = ("/dev/urandom", "/dev/random")
_PACKAGES = ("stablexla", "numpy", "ml_dtypes", "scipy", "jaxlib", "mlir", "typing_extensions")
_LOG_BYTES = 1 << 20
_OPEN_FILES = 64


def _readable_paths() -> list[str]:
    """Return what a process has to read that imports this package: Python, libraries, and facts about the machine."""
    folders = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, str(Path(os.__file__).parent)}
    for name in _PACKAGES:
        spec = find_spec(name)
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            folders |= {str(Path(place)), os.path.realpath(place)}
            folders |= {os.path.realpath(inner) for inner in Path(place).iterdir() if inner.is_symlink()}
    return [*sorted(folders - {"/"}), *_LIBRARIES, *_MACHINE, *_RANDOM]


def give_up_privileges() -> list[str]:
    """Give up new privileges; return what holds."""
    libc = ctypes.CDLL(None, use_errno=True)
    return ["no new privileges"] if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 else []


def give_up_files() -> list[str]:
    """Give up new privileges, the network, and all files but those that can be read; return what holds.

    It holds for this thread and those that it starts, so it comes before the imports that start any.
    """
    sys.dont_write_bytecode = True
    held = give_up_privileges()
    return held + landlock.confine(_readable_paths()) if held else []


def filter_calls(filter_: bytes) -> list[str]:
    """Let all threads of this process make the calls of a filter alone; return what holds."""
    return ["seccomp"] if seccomp.apply(filter_) else []


def limit_resources(memory: int, file_bytes: int = _LOG_BYTES) -> list[str]:
    """Bound what this process may take from now on, beside what it has; return what holds.

    Args:
        memory: bytes.
        file_bytes: how long a file may become that it writes: its log.
    """
    most = _data_bytes() + memory
    for kind, value in (
        (resource.RLIMIT_DATA, most),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        _, hard = resource.getrlimit(kind)
        bound = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (bound, bound))
    return ["limits"]


def _data_bytes() -> int:
    """Return the size of this process's private memory that can be written."""
    return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()


def refuse_without(missing: list[str]) -> None:
    """Raise UnsupportedError where this machine lacks what a sandbox requires."""
    if missing:
        from stablexla.dialects.errors import UnsupportedError

        raise UnsupportedError(f"this machine's kernel has no {' and no '.join(missing)}, which the sandbox requires")
