"""A child process at the other end of a socket: how it is started, asked within a time limit, and ended.

What it prints is kept in a log. It ends with this process, see `serving.py`, its own end. `wire.py` has the messages.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import IO, Any

from stablexla.processes import wire
from stablexla.processes.wire import Message

_ABOVE_STANDARD = 3


class Process:
    """One process, for one request at a time.

    Args:
        arguments: Python's, the program's first: the numbers of the socket and the lifeline come after them.
        environment: variables beside this process's.

    Raises:
        OSError, ValueError: it cannot be started.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if not sys.executable:
            raise OSError(errno.ENOENT, "this Python does not know where it is")
        self.owner = os.getpid()
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._link, theirs = (_high(s) for s in socket.socketpair())
        lifeline, self._lifeline = map(_high_number, os.pipe())
        path = os.pathsep.join(p or os.getcwd() for p in sys.path)
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", *arguments, str(theirs.fileno()), str(lifeline)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                env={**os.environ, **(environment or {}), "PYTHONPATH": path},
                pass_fds=(theirs.fileno(), lifeline),
                start_new_session=True,  # Ctrl-C in a terminal is for this process alone; its forks are of its group
            )
        except (OSError, ValueError):
            self._close_files()
            raise
        finally:
            theirs.close()
            os.close(lifeline)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it can be asked; one started before a fork belongs to the parent."""
        return self.owner == os.getpid() and self._process.poll() is None

    def send(self, kind: str, values: Mapping[str, Any], data: bytes = b"", until: float | None = None) -> None:
        """Send a request, with an empty log; raises as `wire.send` does."""
        self._log.seek(0)
        self._log.truncate()
        wire.send(self._link, kind, values, data, until)

    def receive(self, until: float | None = None) -> Message:
        """Receive a message; raises as `wire.receive` does."""
        return wire.receive(self._link, until)

    def log(self) -> str:
        """Return what it printed since the last request."""
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def exit_code(self) -> int | None:
        """Return the exit code of a process that has closed its link; negative for a signal, None if it still runs."""
        try:
            return self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End the process and its forks."""
        if self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the process, unless it belongs to the parent of a fork."""
        if self.owner == os.getpid():
            self.kill()
            self._process.wait()
        self._close_files()

    def _close_files(self) -> None:
        self._link.close()
        with contextlib.suppress(OSError):
            os.close(self._lifeline)
        self._log.close()


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


# ---- how it ended ----------------------------------------------------------------------------------------------------


def how_it_ended(code: int | None) -> str:
    """Return an exit code in words.

    >>> how_it_ended(3), how_it_ended(-11)
    ('exit code 3', 'SIGSEGV')
    """
    if code is None:
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
