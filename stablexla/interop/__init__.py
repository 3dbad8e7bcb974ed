"""Programs of other producers: StableHLO as text, bytecode, portable artifacts, files and modules of jaxlib."""

from importlib import import_module
from typing import TYPE_CHECKING

from stablexla.interop.load import load

__all__ = ["load"]

if TYPE_CHECKING:
    from stablexla.interop import jax as jax
    from stablexla.interop import torch as torch

_MODULES = ("jax", "torch")


def __getattr__(name: str) -> object:
    """Import `stablexla.interop.jax` and `stablexla.interop.torch` at their first use: each needs a large package."""
    if name in _MODULES:
        return import_module(f"stablexla.interop.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names alone; modules that are imported by their names are found all the same."""
    return sorted({*_MODULES, *__all__})
