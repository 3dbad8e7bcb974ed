"""Queues between a program and its surroundings: items go in at one end and are waited for at the other."""

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
"""Seconds between two looks at whether the run was stopped."""


class ItemQueue:
    """Items in the order in which they came, each one or several arrays; any number of threads on both ends."""

    def __init__(self) -> None:
        self._items: queue.SimpleQueue[Item] = queue.SimpleQueue()

    def put(self, arrays: Item) -> None:
        """Puts in copies of the arrays, which may be changed afterwards."""
        self._items.put(tuple(np.array(a, order="C") for a in arrays))

    def get(
        self,
        seconds: float | None,
        operation: str,
        what: str,
        hint: str,
        is_stopped: Callable[[], bool] | None = None,
    ) -> Item:
        """Waits for the next item, at most so long; with None for ever. Ctrl-C ends the waiting.

        Args:
            is_stopped: is asked again and again whether to go on waiting.

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
                    raise ExecutionError(f"another device stopped the run: {what}", operation=operation) from None


CHANNELS: dict[int, ItemQueue] = defaultdict(ItemQueue)
"""Between programs of this process, by the number of the channel."""


def text_of(arrays: Item) -> str:
    """Types and shapes, for errors."""
    texts = [f"{a.dtype.name}[{','.join(map(str, a.shape))}]" for a in arrays]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
