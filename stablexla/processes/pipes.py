"""Waiting for another process: for data to read, or for room to write."""

from __future__ import annotations

import math
import select
from typing import Any

READ, WRITE = select.POLLIN, select.POLLOUT
_LONGEST = 1_000_000


def is_ready(file: Any, what: int, seconds: float | None = None) -> bool:
    """Return whether a file can be read or written, or was closed at the other end, within some seconds.

    `select.select` takes no file of a number above 1023.
    """
    poll = select.poll()
    poll.register(file, what)
    return bool(poll.poll(None if seconds is None else math.ceil(1000 * min(max(0.0, seconds), _LONGEST))))
