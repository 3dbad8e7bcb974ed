"""Native runtime: compiled programs as callables, their worker threads, and the memory of their results.

It knows addresses and arrays, nothing of MLIR; the maker of the machine code also keeps it alive.
"""

import atexit
import os
import threading

from stablexla.targets.runtime import _runtime
from stablexla.targets.runtime._runtime import (
    ArraySpec,
    CompiledFunction,
    DeviceArray,
    GpuFunction,
    ObjectCode,
    RunLimits,
    cpu_limit,
    default_num_threads,
    find_symbol,
    get_num_threads,
    parallel_for_address,
    pool_stats,
    set_memory_limit,
    set_num_threads,
    set_pool_fill,
    set_pool_limit,
    trim_pool,
    undefined_symbols,
)

__all__ = [
    "ArraySpec",
    "CompiledFunction",
    "DeviceArray",
    "GpuFunction",
    "ObjectCode",
    "RunLimits",
    "cpu_limit",
    "default_num_threads",
    "find_symbol",
    "get_num_threads",
    "library_path",
    "parallel_for_address",
    "pool_stats",
    "set_memory_limit",
    "set_num_threads",
    "set_pool_fill",
    "set_pool_limit",
    "trim_pool",
    "undefined_symbols",
]


# A daemon thread may be inside a program when Python ends; it must not return into a finalized interpreter.
atexit.register(_runtime.begin_shutdown)

# Ctrl-C ends the runs of the main thread; in a forked child that is the thread which forked.
if threading.current_thread() is threading.main_thread():
    _runtime.set_signal_thread()
os.register_at_fork(after_in_child=_runtime.set_signal_thread)


def library_path() -> str:
    """Return the path of the library that has `stablexla_parallel_for`, for `ExecutionEngine(shared_libs=[...])`."""
    path = _runtime.__file__
    assert path is not None
    return path
