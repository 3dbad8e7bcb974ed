"""Worker processes that compile: started on demand, kept for the next program, ended with this process."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any

from stablexla.dialects.errors import CompileError
from stablexla.processes import wire
from stablexla.processes.process import Process, how_it_ended, last_words
from stablexla.processes.wire import Message

KEPT = 2
"""How many idle processes are kept."""
PROGRAMS = 200
"""After how many programs a process is replaced: MLIR's contexts keep every constant that they saw."""


class WorkerEnded(Exception):
    """The process ended before it answered.

    Attributes:
        how: by which signal, or with which exit code.
        words: its last lines on standard error.
    """

    def __init__(self, how: str, words: list[str]) -> None:
        super().__init__(how)
        self.how, self.words = how, words


class Worker(Process):
    """A process for one program at a time.

    Raises:
        CompileError: no process can be started.
    """

    def __init__(self) -> None:
        self.programs = 0
        try:
            code = "from stablexla.processes.child import main; main()"
            super().__init__(["-c", code])
        except (OSError, ValueError) as error:
            raise CompileError(f"no process can be started to compile in: {error}") from None

    @property
    def is_usable(self) -> bool:
        """Whether it can take another program."""
        return self.programs < PROGRAMS and self.is_alive

    def ask(
        self,
        values: Mapping[str, Any],
        data: bytes,
        told: Callable[[Message], None],
        seconds: float | None,
    ) -> tuple[Message, str]:
        """Send a request, and pass progress to `told` until there is an answer.

        Returns:
            The answer, and the output on standard error meanwhile.

        Raises:
            WorkerEnded: the process ended first.
            TimeoutError: it took more than `seconds`.
        """
        try:
            if not self.programs:
                self.receive()  # that it is ready
            self.programs += 1
            until = None if seconds is None else monotonic() + seconds
            self.send(wire.ASK, values, data)
            while True:
                message = self.receive(until)
                if message.kind in (wire.DONE, wire.ERROR):
                    return message, self.log()
                told(message)
        except wire.Closed:
            raise WorkerEnded(how_it_ended(self.exit_code()), last_words(self.log())) from None


# ---- those that are kept ---------------------------------------------------------------------------------------------

_lock = threading.Lock()
_idle: list[Worker] = []
_busy: set[Worker] = set()


@contextmanager
def worker() -> Iterator[Worker]:
    """Provide a process inside a `with` block; an exception inside ends the process."""
    taken = _take()
    try:
        yield taken
    except BaseException:  # also Ctrl-C, which leaves a program half done
        _end(taken)
        raise
    with _lock:
        _busy.discard(taken)
        if taken.is_usable and len(_idle) < KEPT:
            _idle.append(taken)
            return
    taken.close()


def _take() -> Worker:
    with _lock:
        while _idle:
            found = _idle.pop()
            if found.is_usable:
                _busy.add(found)
                return found
            found.close()
    made = Worker()
    with _lock:
        _busy.add(made)
    return made


def _end(taken: Worker) -> None:
    with _lock:
        _busy.discard(taken)
    taken.close()


@atexit.register
def close_all() -> None:
    """End all processes."""
    with _lock:
        found = [*_idle, *_busy]
        _idle.clear()
        _busy.clear()
    for each in found:
        each.close()
