"""Native runtime: compiled programs as callables, their worker threads, and the memory of their results.

It knows addresses and arrays, nothing of MLIR; the maker of the machine code also keeps it alive.
"""

import atexit

from stablexla.targets.runtime import _runtime
from stablexla.targets.runtime._runtime import (
    ArraySpec,
    CompiledFunction,
    DeviceArray,
    GpuFunction,
    ObjectCode,
    cpu_limit,
    default_num_threads,
    find_symbol,
    get_num_threads,
    parallel_for_address,
    pool_stats,
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
    "cpu_limit",
    "default_num_threads",
    "find_symbol",
    "get_num_threads",
    "library_path",
    "parallel_for_address",
    "pool_stats",
    "set_num_threads",
    "set_pool_fill",
    "set_pool_limit",
    "trim_pool",
    "undefined_symbols",
]


# A daemon thread may be inside a program when Python ends; it must not return into a finalized interpreter.
atexit.register(_runtime.begin_shutdown)


def library_path() -> str:
    """Return the path of the library that has `stablexla_parallel_for`, for `ExecutionEngine(shared_libs=[...])`."""
    path = _runtime.__file__
    assert path is not None
    return path
