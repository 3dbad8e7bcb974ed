"""A child process that answers requests one by one; its crash or timeout is an answer as well.

The child imports its modules once and answers in a fork of itself, so that a crashed one is replaced at once. Messages
are pickled: both ends are this program.
"""

from __future__ import annotations

import os
import pickle
import selectors
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any


@dataclass(frozen=True)
class Refusal:
    """A request without an answer.

    Attributes:
        kind: the class of the exception, `died` or `timeout`.
        message: what was said.
    """

    kind: str
    message: str

    def __str__(self) -> str:
        if self.kind == "died":
            return f"it crashed ({self.message})"
        if self.kind == "timeout":
            return f"no answer in {self.message}"
        return self.message.strip().splitlines()[0] if self.message.strip() else self.kind


class Child:
    """A process that runs a module's `serve`, started by the first request."""

    def __init__(self, module: str, name: str, timeout: float) -> None:
        self._command = [sys.executable, "-m", module, name]
        self._timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline = -1

    def start(self) -> None:
        """Start the process ahead of time: it takes a second."""
        if self._process is None:
            lifeline, self._lifeline = os.pipe()
            self._process = subprocess.Popen(
                [*self._command, str(lifeline)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"},
                start_new_session=True,  # the child and its forks are one group
                pass_fds=(lifeline,),
            )
            os.close(lifeline)

    @property
    def pid(self) -> int:
        """The process id; the process must have been started."""
        assert self._process is not None
        return self._process.pid

    def ask(self, question: Any) -> Any:
        """Return the child's answer, or a `Refusal`; after a crash or timeout the next request starts a new process."""
        self.start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _send(process.stdin, question)
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                if not selector.select(self._timeout):
                    self.close()
                    return Refusal("timeout", f"{self._timeout:.0f} seconds")
            return _receive(process.stdout)
        except (BrokenPipeError, EOFError):
            code = process.wait(10)
            self.close()
            return Refusal("died", f"exit code {code}")
        except BaseException:  # the answer would come to the next question
            self.close()
            raise

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()
            os.close(self._lifeline)
            self._process = None


def _send(pipe: IO[bytes], message: Any) -> None:
    data = pickle.dumps(message)
    pipe.write(struct.pack("<q", len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> Any:
    (size,) = struct.unpack("<q", _read(pipe, 8))
    return pickle.loads(_read(pipe, size))


def _read(pipe: IO[bytes], size: int) -> bytes:
    """Read exactly so many bytes: an unbuffered pipe returns what it has."""
    parts = []
    while size:
        parts.append(pipe.read(size))
        if not parts[-1]:
            raise EOFError
        size -= len(parts[-1])
    return b"".join(parts)


# ---- in the child ----------------------------------------------------------------------------------------------------


def serve(
    lifeline: int,
    prepare: Callable[[], None],
    answer: Callable[[Any], Any],
    told: Callable[[Exception], str] = lambda error: first_lines(error),
) -> None:
    """Answer requests until the pipe is closed.

    Args:
        lifeline: the pipe whose end is the end of this process and of its forks.
        prepare: imports all that takes time before a first question, but threads, which a fork would lose.
        answer: answers a question.
        told: what is told of an exception.
    """
    from stablexla.processes.child import end_with_parent

    # It may be deep in a long computation when its parent ends.
    end_with_parent(lifeline, whole_group=True)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # other output must not mix with the answers
    questions = os.fdopen(0, "rb", buffering=0)  # a fork must not read beyond its request
    prepare()
    _replace_the_dead(answers)
    while True:
        try:
            question = _receive(questions)
        except EOFError:
            os._exit(0)
        try:
            made = answer(question)
        except Exception as error:
            made = Refusal(type(error).__name__, told(error))
        _send(answers, made)


def _replace_the_dead(answers: IO[bytes]) -> None:
    """Fork, and return in the child, which serves; when it dies, report that and fork another one."""
    while True:
        child = os.fork()
        if child == 0:
            return
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            sys.exit(0)
        _send(answers, Refusal("died", f"exit code {os.waitstatus_to_exitcode(status)}"))


def first_lines(error: Exception) -> str:
    """Return the beginning of an exception's message."""
    lines = str(error).strip().splitlines() or [""]
    return "\n".join(lines[:6])[:1500]
