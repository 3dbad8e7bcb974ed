"""Handlers registered with `jax.ffi.register_ffi_target`, for programs of stablexla."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from stablexla.compiling.custom_calls import register_custom_call
from stablexla.dialects.custom_calls import OF_THIS_PROCESS, TARGETS
from stablexla.dialects.errors import StablexlaError
from stablexla.interop.jax.required import jax as jax_package


def use_ffi_targets(*names: str) -> tuple[str, ...]:
    """Register JAX's handlers for CPUs under the same names; those of LAPACK need no registration.

    Args:
        names: of targets; without any, all that were registered beside jaxlib's own.

    Returns:
        The names.

    Raises:
        StablexlaError: JAX is not installed, or has no target of that name.

    >>> from stablexla.interop import jax as interop
    >>> interop.use_ffi_targets("lapack_ssyevd_ffi")  # jaxlib's own handler instead of our call of LAPACK
    ('lapack_ssyevd_ffi',)
    >>> sx.unregister_custom_call("lapack_ssyevd_ffi")
    """
    jax = jax_package()
    jax.local_devices(backend="cpu")  # JAX registers its targets with XLA at the first request for a device
    from jaxlib import xla_client

    known = {name: stages for name, stages in xla_client.custom_call_targets("cpu").items() if isinstance(stages, dict)}
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise StablexlaError(
                f"JAX knows no FFI target {name!r} for CPUs",
                hint=repr(near[0]) if near else 'jax.ffi.register_ffi_target(name, capsule, platform="cpu")',
            )
    wanted = names or tuple(sorted(name for name in known if not name.startswith(_OWN)))
    for name in wanted:
        register_custom_call(name, known[name])
    return tuple(wanted)


def use_targets_of(calls: Sequence[str]) -> None:
    """Register JAX's handlers for those calls of a program that nobody has registered here."""
    calls = [name for name in calls if not (name in TARGETS or name.startswith((*_OWN, OF_THIS_PROCESS)))]
    if calls:
        from jaxlib import xla_client

        # The name of the platform for functions of the older conventions, and for handlers of the FFI.
        known = xla_client.custom_call_targets("Host") | xla_client.custom_call_targets("cpu")
        for name in calls:
            if name in known:
                register_custom_call(name, known[name])


_OWN = ("lapack_", "xla_", "tridiagonal_solve_perturbed", "dce_sink")
