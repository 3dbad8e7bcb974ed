"""The import of JAX, needed by users of it only, and of the few things in it without a public name."""

from __future__ import annotations

import os
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

from stablexla.dialects.errors import StablexlaError

# `stablexla/interop`, all of it.
_LAYER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


@cache
def jax() -> Any:
    """Import the package jax, and have frames of this layer left out of its locations.

    Raises:
        StablexlaError: it is not installed.
    """
    try:
        import jax
        import jax.export
        from jax.extend.source_info_util import register_exclusion
    except ImportError as error:
        raise StablexlaError(f"jax cannot be imported: {error}", hint="pip install 'stablexla[jax]'") from error
    register_exclusion(_LAYER)  # JAX keeps ten frames only: these would take the places of the user's
    package: ModuleType = jax
    return package


@cache
def internals() -> Any:
    """Return JAX's internals for cheap calls of compiled functions, and a lowered function's callbacks.

    Raises:
        StablexlaError: this version of JAX has it elsewhere.
    """
    version = jax().__version__
    try:
        return _internals()
    except (AttributeError, ImportError) as error:
        raise StablexlaError(
            f"jax {version} is not one that stablexla was made for: {error}", hint="pip install 'stablexla[jax]'"
        ) from error


def _internals() -> SimpleNamespace:
    from jax._src import config, core
    from jaxlib import _jax

    return SimpleNamespace(
        Array=_jax.ArrayImpl,
        Ref=core.Ref,
        ShapedArray=core.ShapedArray,
        Tracer=core.Tracer,
        collect_garbage=_jax.collect_garbage,
        no_trace_under_way=core.trace_state_clean,
        put=_jax.batched_device_put,
        debug_infs=config.debug_infs,
        debug_nans=config.debug_nans,
        settings=config.trace_context,
    )
