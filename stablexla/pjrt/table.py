"""The table of functions that jaxlib calls, and the thread on which it compiles."""

from __future__ import annotations

import atexit
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stablexla.dialects.errors import LoadError, ParseError, StablexlaError, UnsupportedError, VerificationError
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime._runtime import pjrt_drain, pjrt_table
from stablexla.version import VERSION

INVALID_ARGUMENT, UNIMPLEMENTED, INTERNAL = 3, 12, 13
"""Codes of errors."""


@functools.cache
def table() -> Any:
    """Return the table, as a capsule; there is one in a process."""
    import jax
    from jaxlib.mlir.dialects import stablehlo

    current = [int(n) for n in stablehlo.get_current_version().split(".")]
    minimum = [int(n) for n in stablehlo.get_minimum_version().split(".")]
    asynchronous = bool(getattr(jax.config, "jax_cpu_enable_async_dispatch", True))
    made = pjrt_table(_answer, num_devices(), f"stablexla {VERSION}", current, minimum, asynchronous)
    atexit.register(pjrt_drain)  # before the interpreter ends, and the runtime with it
    return made


def num_devices() -> int:
    """Return how many devices of the platform there are: STABLEXLA_NUM_DEVICES, or `jax_num_cpu_devices`, or 1.

    For a number that is none it is 0, which the table refuses when JAX asks for its devices.
    """
    import jax

    try:
        return knobs.num_devices or max(1, getattr(jax.config, "jax_num_cpu_devices", 1))
    except StablexlaError:
        return 0


@functools.cache
def _thread() -> ThreadPoolExecutor:
    """Return the thread that compiles.

    jaxlib compiles on threads of its own, of which Python keeps nothing between two calls: contexts of MLIR would die
    with each.
    """
    return ThreadPoolExecutor(1, thread_name_prefix="stablexla-compile")


os.register_at_fork(after_in_child=_thread.cache_clear)  # a child has no thread but its own


def _answer(what: str, *arguments: Any) -> Any:
    """Call a function of `compiling` for the table; return what it returns, or an error's code and message."""
    from stablexla.pjrt import compiling

    try:
        return _thread().submit(getattr(compiling, what), *arguments).result()
    except UnsupportedError as error:
        return UNIMPLEMENTED, str(error)
    except (ParseError, VerificationError, LoadError) as error:
        return INVALID_ARGUMENT, str(error)
    except (StablexlaError, Exception) as error:
        return INTERNAL, f"{type(error).__name__}: {error}"
