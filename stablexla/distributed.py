"""One program in many processes: `mpiexec -n 4 python program.py`, which calls `initialize()` first.

Each process has its share of a program's devices; collectives use the MPI library that mpi4py has loaded. Without a
launcher there is one process, which has all devices.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

import numpy as np

from stablexla.dialects import system
from stablexla.dialects.errors import ExecutionError, StablexlaError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.pipeline.knobs import is_launched, knobs
from stablexla.targets.runtime import _runtime, mpi_symbols

_HINT = 'pip install "stablexla[mpi]"'
_EXIT_LIMIT = 10.0
"""Seconds for which a process that failed waits for the others to end too."""


@dataclass(frozen=True)
class World:
    """The processes that run a program together.

    Attributes:
        rank: the number of this one.
        size: how many there are.
    """

    rank: int
    size: int


_lock = threading.Lock()
_world: World | None = None
_kept: list[object] = []
"""The communicators, which the native runtime uses by their handles."""


def initialize() -> World:
    """Join the processes that `mpiexec` has started; further calls do nothing.

    From then on a program for N devices has N / size of them in each process, in the order of ranks, unless
    `executable.processes` places them otherwise, and its collectives reach those of the others. All processes must call
    it, and those that share a program run the same ones in the same order.
    Where no launcher of MPI has started the process, it is alone, and mpi4py is not needed.

    MPI must allow calls from several threads at once, which is mpi4py's default. Each process uses its share of the
    machine's cores, unless `set_num_threads` or STABLEXLA_NUM_THREADS sets its number of threads. MPI ends with Python;
    a process does not wait for others that failed.

    Returns:
        The processes: `rank` and `size`.

    Raises:
        StablexlaError: mpi4py is missing or finds no MPI, or MPI was initialised for one thread only.

    Source: this package.

    >>> sx.distributed.initialize()
    World(rank=0, size=1)
    """
    global _world
    with _lock:
        if _world is None:
            _world = _start() if "mpi4py.MPI" in sys.modules or is_launched() else World(0, 1)
        return _world


def is_initialized() -> bool:
    """Return whether `initialize` was called.

    >>> _ = sx.distributed.initialize()
    >>> sx.distributed.is_initialized()
    True
    """
    return _world is not None


def process_index() -> int:
    """Return the rank of this process; 0 before `initialize`.

    >>> sx.distributed.process_index()
    0
    """
    return 0 if _world is None else _world.rank


def process_count() -> int:
    """Return the number of processes; 1 before `initialize`.

    >>> sx.distributed.process_count()
    1
    """
    return 1 if _world is None else _world.size


def local_devices(count: int) -> range:
    """Return the devices of a program that this process has.

    Raises:
        ExecutionError: the processes cannot have equally many.

    >>> sx.distributed.local_devices(4)
    range(0, 4)
    """
    processes = process_count()
    if count % processes:
        raise ExecutionError(
            f"a program for {count} devices cannot run in {processes} processes, each with as many as the others",
            hint=f"mpiexec -n with a number that divides {count}, or executable.processes = [that of each device]",
        )
    each = count // processes
    return range(process_index() * each, (process_index() + 1) * each)


def launcher() -> list[str]:
    """Return the launcher's command; append `-n N program`.

    It is the mpiexec installed beside this Python, or the first on the path. Open MPI's gets the option for more
    processes than cores.

    Raises:
        StablexlaError: there is none.
    """
    beside = Path(sysconfig.get_path("scripts")) / "mpiexec"
    path = str(beside) if beside.exists() else shutil.which("mpiexec")
    if path is None:
        raise StablexlaError("mpiexec is not installed", hint=_HINT)
    done = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60)
    said = done.stdout + done.stderr
    return [path, "--oversubscribe"] if re.search(r"open ?mpi|prte|openrte", said, re.IGNORECASE) else [path]


def _start() -> World:
    """Start MPI, and connect the native runtime to the other processes."""
    MPI, ours = _import_mpi()
    if MPI.Query_thread() < MPI.THREAD_MULTIPLE:
        raise StablexlaError(
            "MPI was initialised for calls from one thread at a time, and devices run in threads of their own",
            hint='mpi4py.rc.thread_level = "multiple", which is the default, before mpi4py.MPI is imported',
        )
    world = World(MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size())
    if world.size == 1:
        return world
    data, control = MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()
    _kept.extend((data, control))
    own = np.array(_place(), np.int64)
    rows = np.empty((world.size, len(own)), np.int64)
    MPI.COMM_WORLD.Allgather(own, rows)
    pids = _pids(rows.tolist())
    names = ("BYTE", "REQUEST_NULL", "ERRORS_RETURN")
    constants = {name: _handle(MPI, getattr(MPI, name)) for name in names}
    constants["ANY_SOURCE"] = MPI.ANY_SOURCE
    constants["TAG_UB"] = MPI.COMM_WORLD.Get_attr(MPI.TAG_UB)
    handles = _handle(MPI, data), _handle(MPI, control)
    library = _library()
    mpi_symbols.use(library, MPI.get_vendor()[0], _handle(MPI, MPI.COMM_WORLD), world.size)
    _runtime.start_mpi(library, constants, world.rank, *handles, pids, _share_cores(pids))
    atexit.register(_leave, MPI, ours)
    return world


def _share_cores(pids: list[int]) -> bool:
    """Give each process on this machine its share of the cores; return whether there are more processes than these."""
    neighbours = sum(pid != 0 for pid in pids)
    cores = _runtime.default_num_threads()
    if _runtime.get_num_threads() == cores and knobs.num_threads is None:
        _runtime.set_num_threads(max(1, cores // neighbours))
    return neighbours > cores


def _import_mpi() -> tuple[Any, bool]:
    """Return mpi4py's module, and whether this process has to finalise MPI."""
    ours = "mpi4py.MPI" not in sys.modules
    try:
        import mpi4py

        if ours:
            mpi4py.rc.finalize = False  # a process that failed could wait in it without end
        from mpi4py import MPI
    except ImportError as error:
        raise StablexlaError(f"many processes need mpi4py: {error}", hint=_HINT) from None
    except RuntimeError as error:  # it finds no library
        raise StablexlaError(f"mpi4py: {error}", hint=_HINT) from None
    return MPI, ours


def _place() -> list[int]:
    """Return this machine's boot, the process's PID namespace, and its number in that."""
    return [*system.place(), os.getpid()]


def _pids(places: list[list[int]]) -> list[int]:
    """Return the process ids by rank, 0 outside this machine or PID namespace."""
    boot, space, _ = _place()
    return [pid if (host, other) == (boot, space) else 0 for host, other, pid in places]


def _handle(MPI: Any, value: Any) -> int:
    """Return the C handle of an MPI object, as a signed 64-bit number."""
    handle = int(MPI._handleof(value))
    return handle - (1 << 64) if handle >> 63 else handle


def _library() -> str:
    """Return the MPI library that mpi4py has loaded."""
    found = [file for file in system.loaded_files() if system.is_library(file, r"lib(p?mpi|mpi_abi)(-[0-9a-f]+)?")]
    if len(found) != 1:
        raise StablexlaError(f"one MPI library should be loaded, but there are {len(found)}: {found}")
    return found.pop()


def _leave(MPI: Any, ours: bool) -> None:
    """Finalise MPI with the process, unless other processes could not finish then."""
    if MPI.Is_finalized():
        return
    if _runtime.leave_mpi(_EXIT_LIMIT, getattr(sys, "last_type", None) is not None):  # all have come to their end
        if ours:
            MPI.Finalize()
    elif not ours:  # mpi4py is going to wait in MPI_Finalize
        sys.stdout.flush()
        sys.stderr.flush()
        _runtime.end_process_after(1.0)
