"""Implementations that run programs, each in a child process: what aborts, hangs or spoils its memory starts anew.

`Worker.run` gives the results, or says how it failed. The child is this file, run as a program: it imports what it
needs once, and runs the programs in forks of itself, so that one that died is soon replaced.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

# The ways of stablexla, and the oracles; those of one process share what they have compiled and parsed.
PROCESS_OF = {"emitters": "stablexla", "general": "stablexla", "interpreter": "interpreter", "xla": "xla"}


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
        self._name = name
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None

    def run(self, way: str, text: str, arguments: Sequence[np.ndarray]) -> list[np.ndarray] | Failure:
        """The results of a module's @main."""
        process = self._started()
        assert process.stdin is not None
        try:
            _send(process.stdin, (way, text, list(arguments)))
            answer = self._receive(process)
        except (BrokenPipeError, EOFError):
            code = process.wait(10)
            self.close()
            return Failure("died", f"exit code {code}")
        if answer is None:
            self.close()
            return Failure("timeout", f"{self._timeout:.0f} seconds")
        results: list[np.ndarray] | Failure = answer
        return results

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.workers", self._name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,  # the child and its forks are one group
            )
        return self._process

    def _receive(self, process: subprocess.Popen[bytes]) -> Any:
        assert process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(self._timeout):
                return None
        return _receive(process.stdout)

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None


class Workers:
    """One worker for each process, started when first needed, and the seconds that each has run."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}
        self.seconds: dict[str, float] = {}

    def run(self, way: str, text: str, arguments: Sequence[np.ndarray]) -> list[np.ndarray] | Failure:
        name = PROCESS_OF[way]
        start = time.monotonic()
        found = self._workers.setdefault(name, Worker(name)).run(way, text, arguments)
        self.seconds[way] = self.seconds.get(way, 0.0) + time.monotonic() - start
        return found

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _send(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message)
    pipe.write(struct.pack("<q", len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    (size,) = struct.unpack("<q", _read(pipe, 8))
    return pickle.loads(_read(pipe, size))


def _read(pipe: IO[bytes], size: int) -> bytes:
    """So many bytes: an unbuffered pipe gives what is there."""
    parts = []
    while size:
        parts.append(pipe.read(size))
        if not parts[-1]:
            raise EOFError
        size -= len(parts[-1])
    return b"".join(parts)


# ---- the child -------------------------------------------------------------------------------------------------------


def _run(way: str, text: str, arguments: list[np.ndarray]) -> list[np.ndarray]:
    if way in ("emitters", "general"):
        import stablexla as sx
        from tests.programs import general_only

        options = general_only() if way == "general" else None
        return sx.compile(text, options=options).execute(arguments)
    from tests import oracles

    return {"interpreter": oracles.interpreter, "xla": oracles.xla}[way](text, arguments)


def _imports(name: str) -> None:
    """All that takes time before a first program, but threads, which a fork would lose."""
    if name == "stablexla":
        import stablexla

        assert stablexla
    import tests.oracles
    import tests.programs

    assert tests.oracles
    assert tests.programs


def _replace_the_dead(answers: IO[bytes]) -> None:
    """Returns in a fork, which is to serve; when it dies, says so and makes another."""
    while True:
        child = os.fork()
        if child == 0:
            return
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            sys.exit(0)
        _send(answers, Failure("died", f"exit code {os.waitstatus_to_exitcode(status)}"))


def _serve(name: str) -> None:
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what others print must not mix with the answers
    questions = os.fdopen(0, "rb", buffering=0)  # a fork must not read ahead of what it answers
    _imports(name)
    _replace_the_dead(answers)
    while True:
        try:
            way, text, arguments = _receive(questions)
        except EOFError:
            os._exit(0)
        try:
            answer: Any = [np.asarray(r) for r in _run(way, text, arguments)]
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            answer = Failure(type(error).__name__, "\n".join(lines[:6])[:1500])
        _send(answers, answer)


if __name__ == "__main__":
    sys.modules["tests.fuzz.workers"] = sys.modules["__main__"]  # one class Failure for both names
    Failure.__module__ = "tests.fuzz.workers"
    _serve(sys.argv[1])
