"""Pauses of Python's garbage collector while many modules are imported."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collections() -> Iterator[None]:
    """Hold the collector in a `with` block whose objects stay: modules, functions, classes.

    It would walk them 200 times on the way, 80 ms of the first compilation, and free nothing. They then count as old,
    so that the next collection of young objects does not walk them either.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():  # what a user froze stays frozen
            gc.freeze()
            gc.unfreeze()
        gc.enable()
