"""Blocking FIFO queues between a program and its host: infeed, outfeed and channels."""

from __future__ import annotations

import queue
from collections import defaultdict
from collections.abc import Callable
from time import monotonic
from typing import Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.errors import ExecutionError

Item = tuple[npt.NDArray[Any], ...]
_LOOK = 0.02
"""Polling interval of the stop flag, in seconds."""


class ItemQueue:
    """FIFO queue of items, each one or several arrays; any number of producer and consumer threads."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()

    def put(self, arrays: Item) -> None:
        """Enqueue copies of the arrays, which may be changed afterwards."""
        self._items.put(tuple(np.array(a, order="C") for a in arrays))

    def get(
        self,
        seconds: float | None,
        operation: str,
        what: str,
        hint: str,
        is_stopped: Callable[[], bool] | None = None,
    ) -> Item:
        """Wait for the next item, at most so long; None waits for ever. Ctrl-C ends the wait.

        Args:
            is_stopped: polled; true ends the wait.

        Raises:
            ExecutionError: nothing came; it says that `operation` waited for `what`.
        """
        end = None if seconds is None else monotonic() + seconds
        while True:
            left = None if end is None else max(0.0, end - monotonic())
            try:
                return self._items.get(timeout=left if is_stopped is None else min(_LOOK, left or _LOOK))
            except queue.Empty:
                if end is not None and monotonic() >= end:
                    summary = f"nothing came within {seconds:g} s: {what}"
                    raise ExecutionError(summary, operation=operation, hint=hint) from None
                if is_stopped is not None and is_stopped():
                    raise ExecutionError(f"the run was stopped: {what}", operation=operation) from None


CHANNELS: dict[int, ItemQueue] = defaultdict(ItemQueue)
"""Queues between programs of this process, by channel number."""


def text_of(arrays: Item) -> str:
    """Return types and shapes, for errors."""
    texts = [f"{a.dtype.name}[{','.join(map(str, a.shape))}]" for a in arrays]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
