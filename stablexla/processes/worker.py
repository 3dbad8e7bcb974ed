"""Worker processes that compile: started on demand, kept for the next program, ended with this process."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import IO, Any

from stablexla.dialects.errors import CompileError
from stablexla.processes import wire
from stablexla.processes.pipes import READ, is_ready
from stablexla.processes.wire import Message

KEPT = 2
"""How many idle processes are kept."""
PROGRAMS = 200
"""After how many programs a process is replaced: MLIR's contexts keep every constant that they saw."""
_ABOVE_STANDARD = 3


class WorkerEnded(Exception):
    """The process ended before it answered.

    Attributes:
        how: by which signal, or with which exit code.
        words: its last lines on standard error.
    """

    def __init__(self, how: str, words: list[str]) -> None:
        super().__init__(how)
        self.how, self.words = how, words


class WorkerTimeout(Exception):
    """It did not answer in time, and was ended."""


class Worker:
    """One process, for one program at a time.

    Raises:
        CompileError: no process can be started.
    """

    def __init__(self) -> None:
        self.owner, self.programs = os.getpid(), 0
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._link, theirs = (_high(s) for s in socket.socketpair())
        lifeline, self._lifeline = map(_high_number, os.pipe())
        code = f"from stablexla.processes.child import main; main({theirs.fileno()}, {lifeline})"
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p or os.getcwd() for p in sys.path)},
                pass_fds=(theirs.fileno(), lifeline),
                start_new_session=True,  # Ctrl-C in a terminal is for this process alone
            )
        except (OSError, ValueError) as error:
            self._link.close()
            os.close(self._lifeline)
            self._log.close()
            raise CompileError(f"no process can be started to compile in: {error}") from None
        finally:
            theirs.close()
            os.close(lifeline)

    @property
    def is_usable(self) -> bool:
        """Whether it can take another program; one started before a fork belongs to the parent."""
        return self.owner == os.getpid() and self.programs < PROGRAMS and self._process.poll() is None

    def ask(
        self, values: Mapping[str, Any], data: bytes, told: Callable[[Message], None], seconds: float | None
    ) -> tuple[Message, str]:
        """Send a request, and pass progress to `told` until there is an answer.

        Returns:
            The answer, and the output on standard error meanwhile.

        Raises:
            Ended: the process ended first.
            TooLong: it took more than `seconds`.
        """
        try:
            if not self.programs:
                wire.receive(self._link)  # that it is ready
            self.programs += 1
            self._log.seek(0)
            self._log.truncate()
            until = None if seconds is None else monotonic() + seconds
            wire.send(self._link, wire.COMPILE, values, data)
            while True:
                message = wire.receive(self._link, lambda: self._wait(until))
                if message.kind in (wire.DONE, wire.ERROR):
                    return message, self._said()
                told(message)
        except wire.Closed:
            raise WorkerEnded(self._how(), last_words(self._said())) from None

    def close(self) -> None:
        """End the process, unless it belongs to the parent of a fork."""
        self._link.close()
        with contextlib.suppress(OSError):
            os.close(self._lifeline)
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
        self._log.close()

    def _wait(self, until: float | None) -> None:
        if not is_ready(self._link, READ, None if until is None else until - monotonic()):
            raise WorkerTimeout

    def _said(self) -> str:
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def _how(self) -> str:
        try:
            code = self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:  # it closed the link and still runs
            return "closed its link"
        return f"exit code {code}" if code >= 0 else signal_name(-code)


def signal_name(number: int) -> str:
    """Return a signal's name; those for real time have none.

    >>> signal_name(11), signal_name(40)
    ('SIGSEGV', 'signal 40')
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _high(link: socket.socket) -> socket.socket:
    """Return the socket under a number that is none of the standard streams', which may be closed."""
    number = _high_number(link.detach())
    return socket.socket(fileno=number)


def _high_number(number: int) -> int:
    if number >= _ABOVE_STANDARD:
        return number
    higher = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _ABOVE_STANDARD)
    os.close(number)
    return higher


_MARKS = ("assertion", "llvm error", "unreachable", "check failed", "terminate called", "what():", "fatal", "error:")
_NOISE = ("stack dump", "please submit a bug report", "#", "program arguments", "stack dump without symbol")


def last_words(text: str) -> list[str]:
    """Return the last lines of an ended process's standard error that give the reason.

    >>> last_words("python: Ops.cpp:12: int f(): Assertion `x > 0' failed.\\nPLEASE submit a bug report\\n #0 0x12 f()")
    ["python: Ops.cpp:12: int f(): Assertion `x > 0' failed."]
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    marked = [line for line in lines if any(mark in line.lower() for mark in _MARKS)]
    marked = [line for line in marked if not line.lower().startswith(_NOISE)]
    return [line[:2000] for line in (marked or [s for s in lines if not s.lower().startswith(_NOISE)])[-4:]]


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
