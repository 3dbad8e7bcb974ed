"""Programs of other producers: StableHLO as text, bytecode, portable artifacts, files and modules of jaxlib."""

from importlib import import_module

from stablexla.interop.load import load

__all__ = ["load"]


def __getattr__(name: str) -> object:
    """Import `stablexla.interop.jax` at its first use."""
    if name == "jax":
        return import_module("stablexla.interop.jax")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
