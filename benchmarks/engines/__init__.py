"""What can run a program: each engine in a file of its own, imported when it is asked for."""

from __future__ import annotations

from importlib import import_module

from benchmarks.engines.base import Engine, MissingEngineError, Prepared

ENGINES = ("stablexla", "xla", "numpy", "iree", "torch", "inductor")


def find_engine(name: str, patience: float | None = None) -> Engine:
    """The engine of that name.

    Args:
        patience: seconds that compiling a program may take, for an engine that compiles in a process of its own.

    Raises:
        MissingEngineError: a package that it needs is not installed.
    """
    engine: Engine = import_module(f"benchmarks.engines.{name}_engine").engine()
    if patience is not None and hasattr(engine, "patience"):
        engine.patience = patience
    return engine


__all__ = ["ENGINES", "Engine", "MissingEngineError", "Prepared", "find_engine"]
