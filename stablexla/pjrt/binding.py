"""What jaxlib hands to its own CPU client alone: Python callbacks and the targets of FFI calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any


def bind_in_jax() -> None:
    """Let programs for this platform name functions of this process, as those of `interop.jax` do."""
    from jax._src import compiler
    from jaxlib import xla_client

    # Where XLA's CPU has no client, targets wait for one, and are not to be seen.
    xla_client.register_custom_call_handler("cpu", xla_client._xla.register_custom_call_target)
    xla_client.register_custom_type_handler("cpu", xla_client._xla.register_custom_type)

    compile_and_load = compiler.backend_compile_and_load

    @wraps(compile_and_load)
    def with_callbacks(
        backend: Any, module: Any, executable_devices: Any, options: Any, host_callbacks: Sequence[Any]
    ) -> Any:
        if not host_callbacks or "stablexla" not in backend.platform_version:
            return compile_and_load(backend, module, executable_devices, options, host_callbacks)
        from stablexla.interop.jax.callbacks import bind_callbacks

        module, _ = bind_callbacks(module, host_callbacks)  # the compiled program releases them
        return compile_and_load(backend, module, executable_devices, options, [])

    compiler.backend_compile_and_load = with_callbacks
