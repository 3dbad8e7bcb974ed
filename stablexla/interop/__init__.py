"""Programs of other producers: StableHLO as text, bytecode, portable artifacts, files and modules of jaxlib."""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["load"]

if TYPE_CHECKING:
    from stablexla.interop import jax as jax
    from stablexla.interop import tensorflow as tensorflow
    from stablexla.interop import torch as torch
    from stablexla.interop.loading import load as load

_MODULES = ("jax", "tensorflow", "torch")


def __getattr__(name: str) -> object:
    """Import what is asked for: `jax`, `tensorflow` and `torch` need a large package, `load` all readers."""
    if name in _MODULES:
        return import_module(f"stablexla.interop.{name}")
    if name == "load":
        value = globals()[name] = import_module("stablexla.interop.loading").load
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names alone; modules that are imported by their names are found all the same."""
    return sorted({*_MODULES, *__all__})
