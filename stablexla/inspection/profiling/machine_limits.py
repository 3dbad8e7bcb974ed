"""The limits of this machine: bytes and f32 operations a second on all threads, measured once and kept.

They are measured the first time a profile needs them, in a fraction of a second, and kept for the process and, where
the kernel cache is on, in its folder.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from time import perf_counter

import numpy as np
import numpy.typing as npt

from stablexla.compiling.cache import Folder
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.runtime import get_num_threads, processor

FILE = "machine-limits.json"
COPIED = 64 << 20
"""Bytes read by the copy, as many are written: more than the caches hold, in a tenth of a second."""
ROUNDS, SECONDS = 10, 0.005
"""How often a loop is timed, of which the best counts, and about how long each time."""


@dataclass(frozen=True)
class MachineLimits:
    """A machine's peak rates, measured.

    Attributes:
        processor: its name.
        threads: the threads that were used.
        bandwidth: bytes a second between memory and the processor, in a copy of a large array; read and written
            bytes both count.
        peak: operations a second on f32, a multiply-add counting as two.
    """

    processor: str
    threads: int
    bandwidth: float
    peak: float


def machine_limits(threads: int | None = None) -> MachineLimits:
    """Return the limits of this machine with so many threads; as many as programs run on, where none are given."""
    return _limits(min(threads or get_num_threads(), get_num_threads()))


@functools.cache
def _limits(threads: int) -> MachineLimits:
    path = _kept_at()
    found = _plausible(path, threads) if path is not None else None
    if found is None:
        found, again = measure_limits(threads), measure_limits(threads)
        if path is not None and _agree(found.peak, again.peak) and _agree(found.bandwidth, again.bandwidth):
            keep_limits(path, found)  # on a busy machine it is measured anew by the next process
        found = max(found, again, key=lambda limits: limits.peak)
    return found


def measured_again(limits: MachineLimits) -> MachineLimits:
    """Return limits that a kernel exceeded, measured once more; the higher ones count, and are kept."""
    again = measure_limits(limits.threads)
    found = replace(limits, bandwidth=max(limits.bandwidth, again.bandwidth), peak=max(limits.peak, again.peak))
    path = _kept_at()
    if path is not None and found != limits:
        keep_limits(path, found)
        _limits.cache_clear()
    return found


def _plausible(path: Path, threads: int) -> MachineLimits | None:
    """Return the limits that are kept, unless one thread's are higher: the machine was busy when they were measured."""
    found, of_one = (read_limits(path, processor.name(), number) for number in (threads, 1))
    if found is None or of_one is None:
        return found
    return None if found.bandwidth < of_one.bandwidth or found.peak < of_one.peak else found


def _agree(one: float, other: float) -> bool:
    return min(one, other) > 0.8 * max(one, other)


# ---- the file --------------------------------------------------------------------------------------------------------


def _kept_at() -> Path | None:
    """Return the file in the folder of the kernel cache; None when the cache is off."""
    folder = Folder.by_default()
    return folder.path / FILE if folder is not None else None


def read_limits(path: Path, name: str, threads: int) -> MachineLimits | None:
    """Return the limits that a file has for a processor and a number of threads; None if it has none."""
    try:
        row = json.loads(path.read_text(encoding="utf-8"))[_key(name, threads)]
        found = MachineLimits(name, threads, float(row["bandwidth"]), float(row["peak"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if found.bandwidth > 0 and found.peak > 0 else None


def keep_limits(path: Path, limits: MachineLimits) -> None:
    """Add limits to a file, which is replaced as a whole: other processes may read it. Failures are silent."""
    rows = {}
    with contextlib.suppress(OSError, ValueError):
        rows = json.loads(path.read_text(encoding="utf-8"))
    rows = rows if isinstance(rows, dict) else {}
    rows[_key(limits.processor, limits.threads)] = {"bandwidth": limits.bandwidth, "peak": limits.peak}
    unfinished = path.with_name(f".{FILE}.{os.getpid()}")
    with contextlib.suppress(OSError):
        unfinished.write_text(json.dumps(rows, indent=1), encoding="utf-8")
        unfinished.replace(path)


def _key(name: str, threads: int) -> str:
    return f"{name}, {threads} threads"


# ---- the measurement -------------------------------------------------------------------------------------------------


def measure_limits(threads: int, *, copied: int = COPIED, rounds: int = ROUNDS) -> MachineLimits:
    """Measure the limits on so many threads, in a few rounds of which the best counts."""
    from stablexla.inspection.profiling.limit_loops import compiled, copy_loops, multiply_adds, vector_bytes

    flags = processor.flags()
    part = max(4096, copied // threads // 4096 * 4096)
    sources, results = ([aligned(part) for _ in range(threads)] for _ in range(2))
    bandwidth = 0.0
    for loop in copy_loops(flags).values():
        run = partial(_run_at, loop.run, sources, results, part)
        bandwidth = max(bandwidth, threads * part * loop.work / best_seconds(run, threads, 1, rounds))
    adds = compiled(*multiply_adds("f32", vector_bytes(flags) // 4))
    run = partial(_run_at, adds.run, sources, results, 1)
    count = count_for(partial(run, 0), SECONDS)
    return MachineLimits(
        processor.name(), threads, bandwidth, threads * count * adds.work / best_seconds(run, threads, count, rounds)
    )


def _run_at(
    run: Callable[[int, int, int, int], None],
    sources: list[npt.NDArray[np.uint8]],
    results: list[npt.NDArray[np.uint8]],
    size: int,
    thread: int,
    count: int,
) -> None:
    run(sources[thread].ctypes.data, results[thread].ctypes.data, size, count)


def aligned(size: int) -> npt.NDArray[np.uint8]:
    """Return so many bytes, written once, beginning at a page."""
    memory = np.ones(size + 4096, np.uint8)
    start = -memory.ctypes.data % 4096
    return memory[start : start + size]


def count_for(run: Callable[[int], None], seconds: float) -> int:
    """Return about how many rounds of a loop take so long."""
    count = 1
    while True:
        taken = min(_seconds(run, count) for _ in range(3))  # another program may have had the core meanwhile
        if taken > seconds / 4:
            return max(1, round(count * seconds / taken))
        count *= 4


def _seconds(run: Callable[[int], None], count: int) -> float:
    start = perf_counter()
    run(count)
    return perf_counter() - start


def best_seconds(run: Callable[[int, int], None], threads: int, count: int, rounds: int) -> float:
    """Return the seconds from the common start to the end of the last thread, in the best round."""
    return min(_together(run, threads, count) for _ in range(rounds))


def _together(run: Callable[[int, int], None], threads: int, count: int) -> float:
    barrier = Barrier(threads)
    spans = [(0.0, 0.0)] * threads

    def body(thread: int) -> None:
        barrier.wait()
        start = perf_counter()
        run(thread, count)
        spans[thread] = (start, perf_counter())

    workers = [Thread(target=body, args=(thread,)) for thread in range(1, threads)]
    for worker in workers:
        worker.start()
    body(0)
    for worker in workers:
        worker.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)
