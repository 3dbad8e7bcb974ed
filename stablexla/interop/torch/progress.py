"""Activities that take long: named on a terminal, and without Python's garbage collector."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause Python's garbage collector: a graph's many live objects are searched again and again for no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def announced(what: str) -> Iterator[None]:
    """Name on standard error, if that is a terminal, an activity that takes over two seconds."""
    timer = Timer(2, print, [f"stablexla: {what} ..."], {"file": sys.stderr})
    timer.daemon = True
    if sys.stderr is not None and sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
