"""What this machine could do at best: arithmetic on all cores, and bytes moved to and from caches and memory.

Measured by loops of our own with no dependence between neighbouring instructions. A program's limit is the larger of
its arithmetic over the peak and its bytes over the bandwidth of the smallest cache that they fit in.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, astuple, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.limit_loops import Loop, arithmetic_loops, memory_loops
from benchmarks.programs.registry import Work
from stablexla.inspection.profiling.machine_limits import aligned, best_seconds, count_for

CACHES = {"near cache": 1 << 18, "far cache": 1 << 22, "memory": 1 << 27}
"""Bytes that a core reads and writes; the last is more than a last-level cache holds of it."""
KEPT = Path(__file__).parents[1] / "build" / "benchmarks" / "limits.json"
FALL_BACK = {"bf16": "f32", "f16": "f32", "int8": "int32"}
"""Where a processor has no instructions for a type, it computes in another."""


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second on all cores; a copy counts what it reads and what it writes."""

    read: float
    copy: float
    fill: float

    def seconds(self, read: float, written: float) -> float:
        """As much as possible is copied; the rest is only read, or only written."""
        both = min(read, written)
        return 2 * both / self.copy + (read - both) / self.read + (written - both) / self.fill


@dataclass(frozen=True)
class Limits:
    """Of this machine.

    Attributes:
        peaks: operations a second by type.
        bandwidths: by where the bytes are, from the nearest on.
        threads: that were used.
    """

    peaks: dict[str, float]
    bandwidths: dict[str, Bandwidth]
    threads: int

    def of(self, work: Work) -> float:
        """The least time of a program in seconds."""
        arithmetic = work.operations / self.peaks[self.known(work.peak)]
        return max(arithmetic, self.place(work.read + work.written).seconds(work.read, work.written))

    def or_better(self, other: Limits) -> Limits:
        """Of two measurements of the same machine, what was faster."""
        rates = {
            place: Bandwidth(*map(max, astuple(one), astuple(other.bandwidths[place])))
            for place, one in self.bandwidths.items()
        }
        return Limits({name: max(rate, other.peaks[name]) for name, rate in self.peaks.items()}, rates, self.threads)

    def known(self, peak: str) -> str:
        """The type itself, or what the machine computes it in."""
        return peak if peak in self.peaks else FALL_BACK[peak]

    def place(self, moved: float) -> Bandwidth:
        """The bandwidth of the smallest place that holds so many bytes."""
        for name, of_one in CACHES.items():
            if moved <= of_one * self.threads:
                return self.bandwidths[name]
        return self.bandwidths["memory"]

    def words(self) -> dict[str, str]:
        """For a reader."""
        peaks = ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in self.peaks.items())
        told = {"peak, 10^9 operations a second": peaks}
        for name, each in self.bandwidths.items():
            rates = f"read {each.read / 1e9:.0f}, copy {each.copy / 1e9:.0f}, fill {each.fill / 1e9:.0f}"
            told[f"{name}, 10^9 bytes a second"] = rates
        return told


def kept_limits(again: bool) -> Limits:
    """What was last measured here; anew when there is nothing, or when it is asked for."""
    if KEPT.exists() and not again:
        data = json.loads(KEPT.read_text())
        bandwidths = {name: Bandwidth(**each) for name, each in data["bandwidths"].items()}
        found = Limits(data["peaks"], bandwidths, data["threads"])
        if found.threads == len(os.sched_getaffinity(0)):
            return found
    found = measure_limits()
    keep(found)
    return found


def keep(limits: Limits) -> None:
    """For runs of a few programs."""
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    KEPT.write_text(json.dumps(asdict(limits)))


def measure_limits(rounds: int = 5, seconds: float = 0.02) -> Limits:
    """Runs the loops on as many threads as there are processors; the best round counts."""
    threads = len(os.sched_getaffinity(0))
    peaks = {name: _peak(loop, threads, rounds, seconds) for name, loop in arithmetic_loops().items()}
    loops = memory_loops()
    bandwidths = {name: _bandwidth(loops, size, threads, rounds, seconds) for name, size in CACHES.items()}
    return Limits(peaks, bandwidths, threads)


def _peak(loop: Loop, threads: int, rounds: int, seconds: float) -> float:
    places = [np.ones(1 << 12, np.uint8) for _ in range(threads)]

    def run(thread: int, count: int) -> None:
        loop.run(places[thread].ctypes.data, places[thread].ctypes.data, 1, count)

    count = count_for(partial(run, 0), seconds)
    return threads * count * loop.work / best_seconds(run, threads, count, rounds)


def _bandwidth(loops: dict[str, Loop], size: int, threads: int, rounds: int, seconds: float) -> Bandwidth:
    """Of each kind, the fastest way to do it."""
    sources, targets = ([aligned(size // 2) for _ in range(threads)] for _ in range(2))
    found = {}
    for name, loop in loops.items():

        def run(thread: int, count: int, loop: Loop = loop) -> None:
            loop.run(sources[thread].ctypes.data, targets[thread].ctypes.data, size // 2, count)

        count = count_for(partial(run, 0), seconds)
        found[name] = threads * count * loop.work * (size // 2) / best_seconds(run, threads, count, rounds)
    return Bandwidth(*(max(rate for way, rate in found.items() if way.startswith(k)) for k in ("read", "copy", "fill")))
