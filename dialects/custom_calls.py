"""Registry of custom call targets: C functions by address, and Python functions on arrays."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from stablexla.dialects.errors import CompileError
from stablexla.dialects.lazy_dataclass import dataclass

C_FUNCTION = "stablexla.custom_call."
"""Prefix of the symbol of a target's C function."""

LAYOUT = "LayoutConstraint"
"""The target of JAX's `with_layout_constraint`."""

OF_MEMORY = frozenset(["annotate_device_placement", "MoveToDevice", "MoveToHost", "PinToDevice", LAYOUT])
"""Targets that say where in memory their operand lies, and in which order."""

PARTITIONER_NOTES = OF_MEMORY | frozenset(
    [
        "ShardBarrierFrom",
        "ShardBarrierTo",
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
"""Targets that are annotations of shardings, layouts and memories: identities on one device."""

ON_PARTS = "stablexla.on_parts"
"""An attribute of calls that every device makes, on its parts of the operands as they are cut."""

OF_THIS_PROCESS = "jax callback "
"""Prefix of names that are valid in this process only."""


@dataclass(frozen=True)
class CustomCallTarget:
    """A function registered as a custom call target.

    Attributes:
        name: that name.
        address: of a C function, or 0.
        stages: addresses of the handlers of XLA's typed foreign function interface that instantiate, prepare,
            initialise and execute, 0 where there is none; nothing for what is no such handler.
        function: a Python function, or None.
        keep: objects that must outlive the address.
    """

    name: str
    address: int = 0
    stages: tuple[int, ...] = ()
    function: Callable[..., Any] | None = None
    keep: object = None


TARGETS: dict[str, CustomCallTarget] = {}

INSPECT = "InspectSharding"
"""The target of JAX's `inspect_array_sharding`: the partitioner tells a function its operand's sharding."""

INSPECTORS: dict[bytes, Callable[[Any], object] | None] = {}
"""These functions of an `ArraySharding` by the call's `backend_config`; None for one that was told already."""


def registered(name: str) -> CustomCallTarget | None:
    """Return the target of that name, if there is one."""
    return TARGETS.get(name)


def find_custom_call(name: str, place: str = "") -> CustomCallTarget:
    """Look up the target of that name.

    Args:
        place: where it is called, for the error.

    Raises:
        CompileError: there is none; the error lists those that there are, the likeliest first.
    """
    if name in TARGETS:
        return TARGETS[name]
    raise unknown_target(name, place)


# Prefixes of targets that only other devices support, and those devices.
GPU_LIBRARIES = ("cuda", "cusolver", "cublas", "cusparse", "cudnn", "hip", "rocm", "triton", "mosaic_gpu")
ELSEWHERE = {
    "GPUs": (*GPU_LIBRARIES, "cu_", "__cu", "__gpu", "__hip", "xla.gpu"),
    "TPUs": ("tpu_", "mosaic_tpu"),
}


def unknown_target(name: str, place: str = "", others: Iterable[str] = ()) -> CompileError:
    """Return the error for an unregistered target.

    Args:
        place: where it is called.
        others: names that need no registering.
    """
    register = f"sx.register_custom_call({name!r}, function)"
    for devices, beginnings in ELSEWHERE.items():
        if name.startswith(beginnings) and name not in others:
            summary = f"custom_call: the target {name!r} is a function for {devices}{place}"
            hint = f'export the program for CPUs, in JAX jax.export.export(f, platforms=["cpu"]), or {register}'
            option = 'an export for CPUs, in JAX jax.export.export(f, platforms=["cpu"])'
            return CompileError(summary, hint=hint, option=option)
    named = {target for target in TARGETS if not target.startswith(OF_THIS_PROCESS)}
    near = difflib.get_close_matches(name, {*named, *others}, n=3)
    names = [*near, *sorted(named - set(near))]
    known = f"known are {', '.join(map(repr, names))}" if names else "none is registered"
    rule = f"a rule of your own, @sx.lowers({f'stablehlo.custom_call:{name}'!r})"
    hint = f"{near[0]!r}, or {register}, or {rule}" if near else f"{register}, or {rule}"
    option = f"--load=FILE.py, which calls {register} or has {rule}; stablexla-compile takes --c-function={name}"
    option = f"{near[0]!r}, or {option}" if near else option
    return CompileError(f"custom_call: there is no target {name!r}; {known}{place}", hint=hint, option=option)
