"""Host callbacks of a program on several devices: queues per device, and errors that name the device.

Handlers run on the thread of their device; the native runtime knows which one that is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stablexla.targets.runtime import _runtime
from stablexla.targets.runtime.queues import ItemQueue


def current_device() -> int:
    """Return the number of the device that called the handler; -1 in a program for one device."""
    return _runtime.current_device()


def is_stopped() -> bool:
    """Return whether the run that called the handler is to end, since another of its devices failed."""
    return _runtime.run_stopped()


class DeviceQueues:
    """A queue for each device."""

    def __init__(self, count: int) -> None:
        self._queues = [ItemQueue() for _ in range(count)]

    def __getitem__(self, device: int) -> ItemQueue:
        return self._queues[device]

    def here(self) -> ItemQueue:
        """Return the queue of the device that called the handler."""
        return self._queues[0] if len(self._queues) == 1 else self._queues[current_device()]


def naming_device(handler: Callable[[Any, Any], None], program: str) -> Callable[[Any, Any], None]:
    """Wrap a handler so that its exceptions get a note with the device."""

    def call(given: Any, wanted: Any) -> None:
        try:
            handler(given, wanted)
        except BaseException as error:
            error.add_note(f"on device {current_device()} of {program}")
            raise

    return call
