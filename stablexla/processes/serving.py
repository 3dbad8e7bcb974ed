"""The child's end of `process.py`: its socket, and its own end with the process that started it.

It ends also in an endless loop of MLIR's: the kernel sends a signal when the lifeline's other end is closed.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from stablexla.processes import wire
from stablexla.processes.wire import Message

_F_SETSIG = 10  # of Linux: which signal tells of a pipe


def connect() -> socket.socket:
    """Return the socket that the last two arguments of this program name with the lifeline."""
    link, lifeline = map(int, sys.argv[-2:])
    _end_with_parent(lifeline)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return socket.socket(fileno=link)


def _end_with_parent(lifeline: int) -> None:
    """End this process and its forks when the other end of a pipe is closed, at any time."""
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(lifeline, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)


def answer_all(link: socket.socket, answer: Callable[[Message], None]) -> None:
    """Answer requests until the connection is closed."""
    with suppress(wire.Closed):
        while True:
            answer(wire.receive(link))
