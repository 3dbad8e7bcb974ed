"""Threads that do units of work in rounds; between rounds, when they have ended, the process is measured."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import stablexla as sx
from tests.soak.bouts import BOUTS, LIMIT
from tests.soak.samples import Sample, sample
from tests.soak.work import EIGHT, REPLICAS, UNITS, Work, called, draw_unit


@dataclass
class Soak:
    """What was done, what was measured, and what must not be.

    Attributes:
        done: how often each unit and bout was done.
        faults: what came out of those that failed.
    """

    threads: int
    seed: int = 0
    done: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def round(self, work: Work, goes_on: Callable[[int], bool], bout: int | None = None) -> None:
        """All threads do units for as long as that says, of how many they have done; at the same time, one bout."""
        round_ = len(self.samples)
        threads = [
            threading.Thread(target=self._units, args=(work, random.Random(f"{self.seed} {round_} {n}"), goes_on))
            for n in range(self.threads)
        ]
        for thread in threads:
            thread.start()
        if bout is not None:
            chosen = BOUTS[bout % len(BOUTS)]
            self._try(chosen.__name__.replace("_", " "), lambda: chosen(work))
        for thread in threads:
            thread.join()
        self.samples.append(sample())

    def meet(self) -> None:
        """Run a program of several devices from all threads at the same moment.

        The runtime keeps the threads of as many devices as have run at once, which by chance would be a late moment.
        """
        barrier = threading.Barrier(self.threads * REPLICAS)

        def meets(x: Any) -> Any:
            barrier.wait(LIMIT)
            return x

        sx.register_custom_call("soak_meets", meets)
        try:
            program = sx.compile(called("soak_meets"), num_replicas=REPLICAS)
            call = partial(program.execute_replicated, [[EIGHT]] * REPLICAS)
            threads = [threading.Thread(target=self._try, args=("meeting", call)) for _ in range(self.threads)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sx.unregister_custom_call("soak_meets")

    def _units(self, work: Work, rng: random.Random, goes_on: Callable[[int], bool]) -> None:
        count = 0
        while goes_on(count):
            name = draw_unit(rng)
            self._try(name, lambda name=name: UNITS[name][0](work, rng))  # type: ignore[misc]
            count += 1

    def _try(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            with self._lock:
                self.faults.append(f"{name}: {type(error).__name__}: {str(error)[:1000]}")
        with self._lock:
            self.done[name] += 1


def for_minutes(
    soak: Soak, minutes: float, seconds: float = 5.0, told: Callable[[Soak], None] = lambda _: None
) -> None:
    """Rounds of so many seconds, every second one with a bout, for so many minutes."""
    end = time.monotonic() + minutes * 60
    soak.meet()
    with Work() as work:
        while time.monotonic() < end:
            until, number = time.monotonic() + seconds, len(soak.samples)
            soak.round(work, lambda _, until=until: time.monotonic() < until, number // 2 if number % 2 else None)  # type: ignore[misc]
            told(soak)
