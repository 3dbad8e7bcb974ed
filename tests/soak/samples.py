"""What the process holds, over time, and whether it grows: a line fitted to what was measured, with its error."""

from __future__ import annotations

import ctypes
import gc
import os
import re
import time
from dataclasses import astuple, dataclass, fields
from pathlib import Path

import numpy as np

from stablexla.targets.runtime import pool_stats

MOST_AN_HOUR = {"rss": 32 << 20, "pss": 32 << 20, "pool": 0, "cached": 32 << 20, "threads": 0, "files": 0, "shared": 0}
"""What each may grow by in an hour; more, by more than three times the error, is a leak."""


@dataclass(frozen=True)
class Sample:
    """What the process holds at a time.

    Attributes:
        seconds: since some time.
        rss, pss: its memory; of what is shared with others, its part.
        pool, cached: of the runtime's memory, what is in use, and what is kept for later.
        threads, files, shared: its threads, open files, and its entries of /dev/shm.
    """

    seconds: float
    rss: int
    pss: int
    pool: int
    cached: int
    threads: int
    files: int
    shared: int


def sample() -> Sample:
    """What this process holds now, without garbage and without what the C library's allocator keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    text = Path("/proc/self/smaps_rollup").read_text()
    rss, pss = (int(re.search(rf"^{name}:\s+(\d+)", text, re.MULTILINE)[1]) << 10 for name in ("Rss", "Pss"))  # type: ignore[index]
    pool = pool_stats()
    return Sample(
        time.monotonic(),
        rss,
        pss,
        pool["in_use_bytes"],
        pool["cached_bytes"],
        len(os.listdir("/proc/self/task")),
        len(os.listdir("/proc/self/fd")),
        shared_memory(),
    )


def shared_memory() -> int:
    """How many entries of /dev/shm this process has mapped, or has named after itself."""
    mapped = set(re.findall(r"/dev/shm/\S+", Path("/proc/self/maps").read_text()))
    return len(mapped | {entry for entry in os.listdir("/dev/shm") if str(os.getpid()) in entry})


@dataclass(frozen=True)
class Trend:
    """How something grows: by so much an hour, with the error of that."""

    name: str
    first: float
    last: float
    an_hour: float
    error: float

    @property
    def grows(self) -> bool:
        """Whether it is more than it may be, and no accident."""
        return self.an_hour > MOST_AN_HOUR[self.name] + max(3 * self.error, 0.5)


def trends(samples: list[Sample]) -> list[Trend]:
    """Of every figure, over the last two thirds of the time: what came before is warm-up.

    The error is that of the slope of the least squares, from what is left over.
    """
    start, end = samples[0].seconds, samples[-1].seconds
    kept = [s for s in samples if s.seconds >= start + (end - start) / 3]
    table = np.array([astuple(s) for s in kept], np.float64)
    hours = (table[:, 0] - table[0, 0]) / 3600
    names = [f.name for f in fields(Sample)][1:]
    columns = zip(names, table.T[1:], strict=True)
    return [Trend(name, column[0], column[-1], *slope(hours, column)) for name, column in columns]


def slope(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The slope of the line of least squares, and its standard error.

    >>> slope(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0]))
    (2.0, 0.0)
    """
    away = x - x.mean()
    spread = float(away @ away)
    if len(x) < 3 or not spread:
        return 0.0, float("inf")
    found = float(away @ y) / spread
    left = y - y.mean() - found * away
    return found, float(np.sqrt(max(float(left @ left), 0.0) / (len(x) - 2) / spread))
