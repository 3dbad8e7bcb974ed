"""Checking many programs: in parts, in one process or several, with a tally of what came out."""

from __future__ import annotations

import atexit
import concurrent.futures
import functools
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tests.fuzz.check import Checker, Disagreement
from tests.fuzz.generate import Drawn, draw
from tests.fuzz.shrink import Shrinker
from tests.fuzz.workers import Workers

PART = 25  # programs that a process checks before it reports


@dataclass
class Tally:
    """What came out of a number of programs."""

    programs: int = 0
    operations: int = 0
    compared: int = 0
    reordered: int = 0
    found: list[tuple[int, Disagreement]] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    drawn: Counter[str] = field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        self.programs += other.programs
        self.operations += other.operations
        self.compared += other.compared
        self.reordered += other.reordered
        self.found += [pair for pair in other.found if pair[1].kind not in self.kinds]
        for mine, theirs in (
            (self.kinds, other.kinds),
            (self.excused, other.excused),
            (self.refused, other.refused),
            (self.drawn, other.drawn),
        ):
            mine.update(theirs)


def check_some(seeds: range, families: Sequence[str], deadline: float, shrink: bool, target: str = "") -> Tally:
    """Checks the programs of these numbers, the first of each kind of disagreement shrunk."""
    warnings.simplefilter("ignore")
    tally, workers = Tally(), _workers()
    checker = Checker(workers)
    parent = multiprocessing.parent_process()
    for seed in seeds:
        if time.time() > deadline or (parent is not None and not parent.is_alive()):
            break
        drawn = draw(seed, families, target=target)
        found = checker.check(drawn.program, drawn.arguments, drawn.plan)
        _note(tally, drawn, found)
        if found is not None and tally.kinds[found.kind] == 1:
            if shrink and found.kind not in _SHRUNK:
                found = Shrinker(Checker(workers), drawn.plan).shrink(found)
            _SHRUNK.add(found.kind)
            tally.found.append((seed, found))
    tally.compared, tally.reordered = checker.compared, checker.reordered
    tally.excused, tally.refused = checker.excused, checker.refused
    return tally


_SHRUNK: set[str] = set()  # kinds of disagreements that this process has shrunk


@functools.cache
def _workers() -> Workers:
    """Those of this process, for as long as it lives."""
    workers = Workers()
    atexit.register(workers.close)
    return workers


def _note(tally: Tally, drawn: Drawn, found: Disagreement | None) -> None:
    tally.programs += 1
    tally.operations += drawn.program.size
    tally.drawn.update(o for s in drawn.program.statements for o in s.operations)
    if found is not None:
        tally.kinds[found.kind] += 1


def check_all(
    seeds: range, families: Sequence[str], deadline: float, jobs: int, shrink: bool, target: str = ""
) -> Iterator[Tally]:
    """The tallies of all parts, as they come."""
    parts = (seeds[i : i + PART] for i in range(0, len(seeds), PART))
    if jobs == 1:
        for part in parts:
            if time.time() > deadline:
                return
            yield check_some(part, families, deadline, shrink, target)
        return
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = set()
        for part in parts:
            if time.time() > deadline:
                break
            waiting.add(pool.submit(check_some, part, families, deadline, shrink, target))
            if len(waiting) > jobs:
                done, waiting = concurrent.futures.wait(waiting, return_when=concurrent.futures.FIRST_COMPLETED)
                yield from (future.result() for future in done)
        yield from (future.result() for future in concurrent.futures.as_completed(waiting))
