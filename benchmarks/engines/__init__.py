"""What can run a program: each engine in a file of its own, imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from benchmarks.engines.base import Engine, MissingEngineError, Prepared

ENGINES = ("stablexla", "xla", "numpy", "iree")


def find_engine(name: str) -> Engine:
    """The engine of that name.

    Raises:
        MissingEngineError: a package that it needs is not installed.
    """
    engine: Engine = import_module(f"benchmarks.engines.{name}_engine").engine()
    return engine


__all__ = ["ENGINES", "Engine", "MissingEngineError", "Prepared", "find_engine"]
