"""The child's end of `process.py`: its socket, and its own end with the process that started it.

It ends also in an endless loop of MLIR's: it is killed when the lifeline's other end is closed.
"""

from __future__ import annotations

import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress

from stablexla.dialects.system import end_group_with
from stablexla.processes import wire
from stablexla.processes.wire import Message


def connect() -> socket.socket:
    """Return the socket that the last two arguments of this program name with the lifeline."""
    link, lifeline = map(int, sys.argv[-2:])
    end_group_with(lifeline)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return socket.socket(fileno=link)


def answer_all(link: socket.socket, answer: Callable[[Message], None]) -> None:
    """Answer requests until the connection is closed."""
    with suppress(wire.Closed):
        while True:
            answer(wire.receive(link))
