"""Doing something in several threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

LIMIT = 120.0
"""Seconds for a thread to end: a test that hangs fails."""


def in_threads(work: Callable[[int], object], numbers: Iterable[int]) -> None:
    """`work(n)` for each number, in a thread of its own; raises the first error when all have ended."""
    errors: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,), daemon=True) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    if errors:
        raise errors[0]
    assert not any(thread.is_alive() for thread in threads), "a thread has not come to its end"
