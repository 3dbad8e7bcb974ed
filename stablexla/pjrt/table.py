"""The table of functions that jaxlib calls, and the thread on which it compiles."""

from __future__ import annotations

import atexit
import functools
import os
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Event
from types import FrameType
from typing import Any

from stablexla.dialects.caller import untraced, user_frame, working_for
from stablexla.dialects.errors import LoadError, ParseError, StablexlaError, UnsupportedError, VerificationError
from stablexla.dialects.stopping import stopped_by
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime._runtime import pjrt_drain, pjrt_table
from stablexla.version import VERSION

INVALID_ARGUMENT, UNIMPLEMENTED, INTERNAL = 3, 12, 13
"""Codes of errors."""
_MOST = 1024
"""Devices of a process."""


@functools.cache
def table() -> Any:
    """Return the table, as a capsule; there is one in a process."""
    from jax._src.xla_bridge import _CPU_ENABLE_ASYNC_DISPATCH

    current, minimum = stablehlo_versions()
    asynchronous = bool(_CPU_ENABLE_ASYNC_DISPATCH.value)
    version = f"stablexla {VERSION}"
    made = pjrt_table(_answer, _devices_or_none(), version, current, minimum, asynchronous, *_processes())
    atexit.register(pjrt_drain)  # before the interpreter ends, and the runtime with it
    return made


def stablehlo_versions() -> tuple[list[int], list[int]]:
    """Return the newest version of StableHLO that can be read, and the oldest that can be written."""
    from jaxlib.mlir.dialects import stablehlo

    def numbers(version: str) -> list[int]:
        return [int(n) for n in version.split(".")]

    return numbers(stablehlo.get_current_version()), numbers(stablehlo.get_minimum_version())


def num_devices() -> int:
    """Return how many devices of the platform each process has.

    The first that is given counts: STABLEXLA_NUM_DEVICES; JAX's `jax_num_cpu_devices`, of which less than 0 is none,
    as for XLA's CPU; `--xla_force_host_platform_device_count` in XLA_FLAGS; 1.

    Raises:
        StablexlaError: it is no number from 1 to 1024.
    """
    if knobs.num_devices is not None:
        return knobs.num_devices
    config = getattr(sys.modules.get("jax"), "config", None)  # none where a program of another language is compiled
    count = int(getattr(config, "jax_num_cpu_devices", -1))
    if count == 0 or count > _MOST:
        raise StablexlaError(f"jax_num_cpu_devices={count}: it is a number of devices, from 1 to {_MOST}")
    return count if count > 0 else knobs.forced_devices or 1


def _devices_or_none() -> int:
    """Return 0 where `num_devices` raises, as it does once more when JAX asks for the platform."""
    try:
        return num_devices()
    except StablexlaError:
        return 0


def _processes() -> tuple[int, int]:
    """Return this process's number, and how many `jax.distributed.initialize` joined; they exchange data by MPI.

    Raises:
        StablexlaError: no launcher of MPI has started them, or it has numbered them in another order.
    """
    from jax._src.distributed import global_state as state

    if state.client is None or (state.num_processes or 1) == 1:
        return 0, 1
    from stablexla import distributed

    rank, size = state.process_id, state.num_processes
    world = distributed.initialize()
    if (world.rank, world.size) != (rank, size):
        raise StablexlaError(
            f"process {rank} of {size} of JAX's is process {world.rank} of {world.size} of MPI, by which data goes",
            hint=f"mpiexec -n {size} python program.py, and in there "
            'jax.distributed.initialize(cluster_detection_method="mpi4py")',
        )
    return rank, size


waiting: list[FrameType] = []
"""The user's frames that wait for a compilation: jaxlib 0.10 asks for it on a thread of its own, which has none."""


@functools.cache
def _thread() -> ThreadPoolExecutor:
    """Return the thread that compiles.

    jaxlib compiles on threads of its own, of which Python keeps nothing between two calls: contexts of MLIR would die
    with each.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="stablexla-compile")


os.register_at_fork(after_in_child=_thread.cache_clear)  # a child has no thread but its own


def _answer(what: str, *arguments: Any) -> Any:
    """Call a function of `compiling` for the table; return what it returns, or an error's code and message.

    Raises:
        KeyboardInterrupt: or what a signal's handler raises; the compilation ends, too.
    """
    stop, frame = Event(), user_frame() or next(iter(waiting[-1:]), None)

    def work() -> Any:
        untraced()
        from stablexla.pjrt import compiling

        with stopped_by(stop), working_for(frame):
            return getattr(compiling, what)(*arguments)

    try:
        answer = _thread().submit(work)
        try:
            wait([answer])
        except BaseException:
            stop.set()
            raise
        return answer.result()
    except Exception as error:
        return failure_of(error)


def failure_of(error: Exception) -> tuple[int, str]:
    """Return an error's code and message, as the table has them."""
    from stablexla.pjrt.compiling import OptionError

    if isinstance(error, UnsupportedError):
        return UNIMPLEMENTED, str(error)
    if isinstance(error, (ParseError, VerificationError, LoadError, OptionError)):
        return INVALID_ARGUMENT, str(error)
    return INTERNAL, f"{type(error).__name__}: {error}"
