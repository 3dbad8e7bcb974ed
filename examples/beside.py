"""Helpers of the examples that run a library's model: missing libraries, progress, timing, relative differences."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import contextmanager
from importlib.util import find_spec
from time import perf_counter
from typing import Any

import numpy as np
from rich.console import Console


def are_there(*libraries: str) -> bool:
    """Whether libraries are installed; says on standard error which are not."""
    missing = [name for name in libraries if find_spec(name) is None]
    if missing:
        print(f"this example needs {', '.join(missing)}: pip install 'stablexla[real]'", file=sys.stderr)
    return not missing


@contextmanager
def step(what: str) -> Any:
    """Show on a terminal that something is going on, and print the seconds that it took."""
    start = perf_counter()
    with Console(stderr=True).status(f"{what} ..."):
        yield
    print(f"{what}: {perf_counter() - start:.1f} s")


def fastest(call: Callable[[], Any], repeats: int = 5) -> float:
    """The seconds of the fastest of some calls, after one that warms up."""
    call()
    times = []
    for _ in range(repeats):
        start = perf_counter()
        call()
        times.append(perf_counter() - start)
    return min(times)


def apart(found: Any, wanted: Any) -> float:
    """The largest difference of two arrays, as a fraction of the largest magnitude."""
    found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-30))


def say_speed(what: str, ours: float, theirs: float, peer: str) -> None:
    """Print both times, and how many times as fast stablexla is."""
    print(f"{what}: stablexla {1e3 * ours:.1f} ms, {peer} {1e3 * theirs:.1f} ms; {theirs / ours:.2f} times as fast")
