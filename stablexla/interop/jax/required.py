"""JAX itself, which only those need who use it, and the few things in it that have no public name."""

from __future__ import annotations

from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

from stablexla.dialects.errors import StablexlaError


@cache
def jax() -> Any:
    """The package jax.

    Raises:
        StablexlaError: it is not installed.
    """
    try:
        import jax
        import jax.export
    except ImportError as error:
        raise StablexlaError(f"jax cannot be imported: {error}", hint="pip install 'stablexla[jax]'") from error
    package: ModuleType = jax
    return package


@cache
def internals() -> Any:
    """What a call of a compiled function costs little with, and what a lowered function knows of its callbacks.

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
        settings=config.trace_context,
    )
