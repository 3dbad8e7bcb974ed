"""The functions that custom calls can name: C functions by their addresses, and Python functions on arrays."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from stablexla.dialects.errors import CompileError

C_FUNCTION = "stablexla.custom_call."
"""What stands before a target's name in the name of its C function."""

PARTITIONER_NOTES = frozenset(
    [
        "annotate_device_placement",
        "LayoutConstraint",
        "Sharding",
        "SPMDFullToShardShape",
        "SPMDShardToFullShape",
        "xla.sdy.FuncResultSharding",
        "xla.sdy.GlobalToLocalShape",
        "xla.sdy.LocalToGlobalShape",
        "xla.sdy.PropagationBarrier",
        "xla.sdy.ShardingGroup",
    ]
)
"""Targets that say something to a partitioner, which has nothing to do on one device."""

OF_THIS_PROCESS = "jax callback "
"""What the names of functions begin with that mean something else in another process."""


@dataclass(frozen=True)
class CustomCallTarget:
    """A function under the name that custom calls know it by.

    Attributes:
        name: that name.
        address: of a C function, or 0.
        stages: addresses of the handlers of XLA's typed foreign function interface that instantiate, prepare,
            initialise and execute, 0 where there is none; nothing for what is no such handler.
        function: a Python function, or None.
        keep: what has to live as long as the address is used.
    """

    name: str
    address: int = 0
    stages: tuple[int, ...] = ()
    function: Callable[..., Any] | None = None
    keep: object = None


TARGETS: dict[str, CustomCallTarget] = {}


def registered(name: str) -> CustomCallTarget | None:
    """The target of that name, if there is one."""
    return TARGETS.get(name)


def find_custom_call(name: str, place: str = "") -> CustomCallTarget:
    """The target of that name.

    Args:
        place: where it is called, for the error.

    Raises:
        CompileError: there is none; the error lists those that there are, the likeliest first.
    """
    if name in TARGETS:
        return TARGETS[name]
    raise unknown_target(name, place)


# How the names of calls begin that only other devices can do, and what these are.
GPU_LIBRARIES = ("cuda", "cusolver", "cublas", "cusparse", "cudnn", "hip", "rocm", "triton", "mosaic_gpu")
ELSEWHERE = {
    "GPUs": (*GPU_LIBRARIES, "cu_", "__cu", "__gpu", "__hip", "xla.gpu"),
    "TPUs": ("tpu_", "mosaic_tpu"),
}


def unknown_target(name: str, place: str = "", others: Iterable[str] = ()) -> CompileError:
    """The error for a name that nobody has registered.

    Args:
        place: where it is called.
        others: names that need no registering.
    """
    register = f"sx.register_custom_call({name!r}, function)"
    for devices, beginnings in ELSEWHERE.items():
        if name.startswith(beginnings) and name not in others:
            summary = f"custom_call: the target {name!r} is a function for {devices}{place}"
            hint = f'export the program for CPUs, in JAX jax.export.export(f, platforms=["cpu"]), or {register}'
            return CompileError(summary, hint=hint)
    near = difflib.get_close_matches(name, {*TARGETS, *others}, n=3)
    names = [*near, *sorted(set(TARGETS) - set(near))]
    known = f"known are {', '.join(map(repr, names))}" if names else "none is registered"
    hint = f"{near[0]!r}, or {register}" if near else register
    return CompileError(f"custom_call: there is no target {name!r}; {known}{place}", hint=hint)
