"""The PJRT plugin: with `JAX_PLATFORMS=stablexla` every program of JAX is compiled and run by stablexla.

JAX finds `initialize` by the entry point group `jax_plugins`, and calls it in every process that it is installed for;
so it does nothing unless the platform is asked for. `where` says where JAX's programs run:

>>> import stablexla.pjrt
>>> stablexla.pjrt.where()  # doctest: +SKIP
"JAX's programs run here, on 1 device"
"""

from __future__ import annotations

import sys
from typing import Any

PLATFORM = "stablexla"


def initialize() -> None:
    """Register the platform with JAX, if `jax_platforms` names it."""
    import jax
    from jax._src import xla_bridge
    from jax._src.lib import _profiler

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
    _profiler.register_plugin_profiler(table())  # as register_plugin does for libraries


def where() -> str:
    """Say where JAX's programs run, or will; JAX does not start for it."""
    jax = sys.modules.get("jax")
    bridge = sys.modules.get("jax._src.xla_bridge")
    if jax is None or bridge is None:
        return "JAX is not imported"
    way = f"JAX_PLATFORMS={PLATFORM} has them run here"
    if not bridge.backends_are_initialized():
        named = str(jax.config.jax_platforms or "").split(",")
        return "JAX's programs will run here" if named[0] == PLATFORM else f"JAX's programs will not run here; {way}"
    if PLATFORM not in jax.devices()[0].client.platform_version:
        return f"JAX's programs run on {jax.default_backend()}; {way}"
    count = jax.device_count()
    return f"JAX's programs run here, on {count} device{'' if count == 1 else 's'}"
