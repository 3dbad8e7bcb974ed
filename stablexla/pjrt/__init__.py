"""The PJRT plugin: with `JAX_PLATFORMS=stablexla` every program of JAX is compiled and run by stablexla.

JAX finds `initialize` by the entry point group `jax_plugins`, and calls it in every process that it is installed for;
so it does nothing unless the platform is asked for.
"""

from __future__ import annotations

from typing import Any

PLATFORM = "stablexla"


def initialize() -> None:
    """Register the platform with JAX, if `jax_platforms` names it."""
    import jax
    from jax._src import xla_bridge

    platforms = str(jax.config.jax_platforms or "").split(",")
    if PLATFORM not in platforms:
        return
    from stablexla.pjrt.binding import bind_in_jax
    from stablexla.pjrt.table import num_devices, table

    def client() -> Any:
        num_devices()  # its error says more than the table's
        made = xla_bridge.make_pjrt_c_api_client(PLATFORM)
        if platforms == [PLATFORM]:
            # What asks for the CPU, as Python callbacks and DLPack do, asks for this platform.
            xla_bridge._backends["cpu"] = made
        return made

    bind_in_jax()
    xla_bridge._nonexperimental_plugins.add(PLATFORM)
    xla_bridge.register_plugin(PLATFORM, priority=-1, c_api=table(), factory=client)
