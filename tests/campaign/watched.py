"""Child processes that run programs and are watched: their end, their time, their memory, what they print and leave.

`Watched` stands in the place of `tests.fuzz.workers.Workers`; oracles run in that one's processes. The child is this
file, run as a program.
"""

from __future__ import annotations

import gc
import os
import resource
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from stablexla.processes.process import last_words
from stablexla.processes.questions import Child, Refusal, serve
from tests.fuzz.workers import PROCESS_OF, Failure, Workers, _imports, _simulated
from tests.soak.samples import shared_memory

MEMORY = 6 << 30
"""Bytes of its own that a child may have; more is an endless allocation."""
GROWN = 4 << 20
"""Bytes that many runs of a small program may leave: more is a leak, as runs go on to show."""
RUNS = 100
LIMIT = 90.0
"""Seconds for one program, after which it counts as hanging."""
ORACLE = 20.0
"""Seconds for an oracle, which goes on with loops that never end, and whose results nothing reads."""
ENDLESS = 4.0
"""Seconds for one run, after which it is stopped: changed loops may go on for ever."""


@dataclass(frozen=True)
class Held:
    """What a process holds."""

    memory: int
    pool: int
    threads: int
    files: int
    shared: int

    @staticmethod
    def now() -> Held:
        """By this process."""
        from stablexla.targets.runtime import pool_stats

        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return Held(
            pages * resource.getpagesize(),
            pool_stats()["in_use_bytes"],
            len(os.listdir("/proc/self/task")),
            len(os.listdir("/proc/self/fd")),
            shared_memory(),
        )


class Watched(Workers):
    """Runs programs, those of stablexla in children that are watched.

    Attributes:
        noise: what they printed, by the way, until somebody empties it.
        memory: of the child after the last program, and `largest` after any.
        results: by the way, a text with arguments, and what they gave last.
    """

    def __init__(self) -> None:
        super().__init__(ORACLE)
        self._children: dict[str, Child] = {}
        self.noise: dict[str, str] = {}
        self.memory = 0
        self.largest = 0
        self.results: dict[str, tuple[str, list[np.ndarray], list[np.ndarray]]] = {}

    def run(self, way: str, text: str, arguments: Sequence[np.ndarray]) -> list[np.ndarray] | Failure:
        if way in PROCESS_OF and PROCESS_OF[way] != "stablexla":
            return super().run(way, text, arguments)
        name = "gpu" if way.startswith("gpu") else "stablexla"
        child = self._children.setdefault(name, Child(__name__, name, LIMIT))
        found = child.ask((way, text, list(arguments)))
        if isinstance(found, Refusal):
            words = last_words(child.printed) if found.kind == "died" else []
            return Failure(found.kind, "\n".join([found.message, *words]))
        if child.printed.strip():
            self.noise[way] = child.printed.strip()
        results, self.memory = found
        self.largest = max(self.largest, self.memory)
        self.results[way] = text, list(arguments), results
        return list(results)

    def close(self) -> None:
        super().close()
        for child in self._children.values():
            child.close()


# ---- the child -------------------------------------------------------------------------------------------------------


class LeftSomething(Exception):
    """Runs of a program have left memory, threads or files."""


def _prepare(name: str) -> None:
    if name != "gpu":  # the simulated device has more addresses than memory
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    _imports(name)


def _answer(question: tuple[str, str, list[np.ndarray]]) -> tuple[list[np.ndarray], int]:
    way, text, arguments = question
    form = way.removeprefix("form ")
    if form.startswith("devices "):
        from tests.distributed.random_campaign import check_program

        check_program(int(form.split()[1]), 6, oracle=False)
        return [], Held.now().memory
    if form == "again":
        return _many_runs(text, arguments), Held.now().memory
    if form.startswith("gpu"):
        results = _simulated(form, text, arguments, 5 * ENDLESS)
    elif form in ("emitters", "general"):
        import stablexla as sx
        from tests.programs import general_only

        executable = sx.compile(text, options=general_only() if form == "general" else None)
        results = executable.execute(arguments, time_limit=ENDLESS)
    else:
        from tests.campaign.forms import FORMS

        results = FORMS[form](text, arguments)
    return [np.array(r) for r in results], Held.now().memory


def _many_runs(text: str, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """The results of the last of many runs.

    Raises:
        LeftSomething: there is more of something after them.
    """
    import stablexla as sx

    executable: Any = sx.compile(text)
    results = [np.array(r) for r in executable.execute(arguments)]
    for _ in range(2):  # the first time memory may be got ready
        gc.collect()
        before = Held.now()
        for _ in range(RUNS):
            executable.execute(arguments)
        gc.collect()
        after = Held.now()
    if replace(after, memory=0) != replace(before, memory=0):
        raise LeftSomething(f"{RUNS} runs: {before}, then {after}")
    if after.memory - before.memory > GROWN:
        raise LeftSomething(f"{RUNS} runs took {after.memory - before.memory:,} bytes")
    return results


if __name__ == "__main__":
    serve(partial(_prepare, sys.argv[1]), _answer)
