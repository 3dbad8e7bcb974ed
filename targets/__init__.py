"""Pipelines, passes, and what each target makes of them."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def __getattr__(name: str) -> Any:
    """`targets.gpu`, which is imported when it is first named."""
    if name == "gpu":
        return import_module("stablexla.targets.gpu")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
