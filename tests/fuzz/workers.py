"""Implementations that run programs, each in a child process: what aborts, hangs or spoils its memory starts anew.

`Worker.run` gives the results, or says how it failed. The child is this file, run as a program.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Self

import numpy as np

from stablexla.processes.questions import Child, Refusal, serve

# The ways of stablexla, and the oracles; those of one process share what they have compiled and parsed.
# Any other way is a GPU's target, on the simulated driver.
PROCESS_OF = {"emitters": "stablexla", "general": "stablexla", "kernels": "stablexla", "interpreter": "interpreter"}
PROCESS_OF |= {"xla": "xla", "hlo": "xla"}


@dataclass(frozen=True)
class Failure:
    """A program that gave no results.

    Attributes:
        kind: the class of the exception, `died` or `timeout`.
        message: what was said last.
    """

    kind: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Worker:
    """A child process that runs programs by the implementations of one name of `PROCESS_OF`."""

    def __init__(self, name: str, timeout: float = 120.0) -> None:
        self._child = Child("tests.fuzz.workers", name, timeout)

    def run(self, way: str, text: str, arguments: Sequence[np.ndarray]) -> list[np.ndarray] | Failure:
        """The results of a module's @main."""
        found = self._child.ask((way, text, list(arguments)))
        return Failure(found.kind, found.message) if isinstance(found, Refusal) else found

    def close(self) -> None:
        """Ends the process."""
        self._child.close()


class Workers:
    """One worker for each process, started when first needed, and the seconds that each has run."""

    def __init__(self, timeout: float = 120.0) -> None:
        self._timeout = timeout
        self._workers: dict[str, Worker] = {}
        self.seconds: dict[str, float] = {}

    def run(self, way: str, text: str, arguments: Sequence[np.ndarray]) -> list[np.ndarray] | Failure:
        name = PROCESS_OF.get(way, "gpu")
        start = time.monotonic()
        found = self._workers.setdefault(name, Worker(name, self._timeout)).run(way, text, arguments)
        self.seconds[way] = self.seconds.get(way, 0.0) + time.monotonic() - start
        return found

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- the child -------------------------------------------------------------------------------------------------------


def _run(way: str, text: str, arguments: list[np.ndarray]) -> list[np.ndarray]:
    if way in ("emitters", "general"):
        import stablexla as sx
        from tests.programs import general_only

        options = general_only() if way == "general" else None
        return sx.compile(text, options=options).execute(arguments)
    if way == "kernels":
        from tests.kernels import execute

        return execute(text, arguments)
    if way == "hlo":
        return _after_passes(text, arguments)
    if way.startswith("gpu"):
        return _simulated(way, text, arguments)
    from tests import oracles

    return {"interpreter": oracles.interpreter, "xla": oracles.xla}[way](text, arguments)


def _after_passes(text: str, arguments: list[np.ndarray]) -> list[np.ndarray]:
    """By stablexla, from the HLO that XLA:CPU's passes make of the program."""
    import stablexla as sx
    from tests import oracles

    (module,) = oracles.xla_executable(text).hlo_modules()
    program = sx.load(module.as_serialized_hlo_module_proto(), trusted=True)
    return sx.compile(program).execute(arguments)


def _simulated(
    target: str, text: str, arguments: list[np.ndarray], time_limit: float | None = None
) -> list[np.ndarray]:
    """By the real runtime; what the simulator found wrong comes first in the error."""
    import stablexla as sx
    from tests.targets.gpu import simulated as simulator

    found = re.search(r"sm_(\d+)", target)
    with simulator.settings(chip=found[1] if found else 80), simulator.in_runtime():
        try:
            return sx.compile(text, target=target).execute(arguments, time_limit=time_limit)
        except sx.ExecutionError as error:
            raise sx.ExecutionError(f"{simulator.report()}\n{error}") from error


def _imports(name: str) -> None:
    """All that takes time before a first program, but threads, which a fork would lose; and tombstones."""
    from tests import tombstones

    tombstones.install()
    if name == "stablexla":
        import stablexla

        assert stablexla
    if name == "gpu":
        from tests.targets.gpu import simulated as simulator

        simulator.library()  # which is built once
    import tests.oracles
    import tests.programs

    assert tests.oracles
    assert tests.programs


def _answer(question: tuple[str, str, list[np.ndarray]]) -> list[np.ndarray]:
    return [np.asarray(r) for r in _run(*question)]


if __name__ == "__main__":
    serve(partial(_imports, sys.argv[1]), _answer)
