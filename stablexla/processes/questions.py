"""A child process that answers requests one by one; its crash or timeout is an answer as well.

The child imports its modules once and answers in a fork of itself, so that a crashed one is replaced at once. Questions
and answers are pickled: both ends are this program.
"""

from __future__ import annotations

import mmap
import os
import pickle
import socket
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.processes import wire
from stablexla.processes.process import Process
from stablexla.processes.serving import answer_all, connect
from stablexla.processes.wire import Message


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
    """A process that runs a module's `serve`, started by the first request.

    Attributes:
        printed: what it printed while it answered the last question.
    """

    def __init__(self, module: str, name: str, timeout: float) -> None:
        self._arguments = ["-m", module, name]
        self._timeout = timeout
        self.printed = ""
        self._process: Process | None = None

    def start(self) -> Process:
        """Start the process ahead of time: it takes a second."""
        if self._process is None:
            self._process = Process(self._arguments, {"TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"})
        return self._process

    @property
    def pid(self) -> int:
        """The process id; the process must have been started."""
        assert self._process is not None
        return self._process.pid

    def ask(self, question: Any) -> Any:
        """Return the child's answer, or a `Refusal`; after a crash or timeout the next request starts a new process."""
        process, ended = self.start(), True
        try:
            process.send(wire.ASK, {}, pickle.dumps(question))
            answer = pickle.loads(process.receive(monotonic() + self._timeout).data)
            ended = False
        except TimeoutError:
            answer = Refusal("timeout", f"{self._timeout:.0f} seconds")
        except wire.Closed:
            answer = Refusal("died", f"exit code {process.exit_code()}")
        except BaseException:  # the answer would come to the next question
            self.close()
            raise
        self.printed = process.log()
        if ended:
            self.close()
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None


# ---- in the child ----------------------------------------------------------------------------------------------------


def serve(
    prepare: Callable[[], None],
    answer: Callable[[Any], Any],
    told: Callable[[Exception], str] = lambda error: first_lines(error),
) -> None:
    """Answer requests until the connection is closed.

    Args:
        prepare: imports all that takes time before a first question, but threads, which a fork would lose.
        answer: answers a question.
        told: what is told of an exception.
    """
    link = connect()
    prepare()
    is_asked = mmap.mmap(-1, 1)  # shared by all forks
    _replace_the_dead(link, is_asked)

    def answer_one(request: Message) -> None:
        is_asked[0] = 1
        try:
            made = answer(pickle.loads(request.data))
        except Exception as error:
            made = Refusal(type(error).__name__, told(error))
        data = pickle.dumps(made)
        is_asked[0] = 0
        wire.send(link, wire.DONE, {}, data)

    answer_all(link, answer_one)
    os._exit(0)


def _replace_the_dead(link: socket.socket, is_asked: mmap.mmap) -> None:
    """Fork, and return in the child, which serves; when it dies, report that and fork another one.

    One that dies between questions, by a thread or what it had to tidy up, has nothing to report: that would be the
    answer to the next question, and each answer from then on that of the question before.
    """
    while True:
        child = os.fork()
        if child == 0:
            return
        _, status = os.waitpid(child, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            sys.exit(0)
        if is_asked[0]:
            is_asked[0] = 0
            died = Refusal("died", f"exit code {os.waitstatus_to_exitcode(status)}")
            wire.send(link, wire.DONE, {}, pickle.dumps(died))


def first_lines(error: Exception) -> str:
    """Return the beginning of an exception's message."""
    lines = str(error).strip().splitlines() or [""]
    return "\n".join(lines[:6])[:1500]
