"""Memory that two processes share for the arrays of a run: no file has its name, and neither can make it shorter."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stablexla.targets.runtime import ArraySpec

_ALIGNMENT = 64
_ADD_SEALS, _SEALS = 1033, 1 | 2 | 4  # no more seals; it neither shrinks nor grows

Array = npt.NDArray[Any]


class SharedArrays:
    """The arguments and results of each device, one after the other.

    Args:
        parameters, results: those of one device.
        devices: how many there are.
        number: of the file descriptor; without one the memory is made.

    Raises:
        OSError: there is not so much memory.
    """

    def __init__(
        self, parameters: Sequence[ArraySpec], results: Sequence[ArraySpec], devices: int, number: int | None = None
    ) -> None:
        self._specs, self._parameters = [*parameters, *results], len(parameters)
        sizes = [spec.nbytes + -spec.nbytes % _ALIGNMENT for spec in self._specs]
        self._offsets = [sum(sizes[:i]) for i in range(len(sizes))]
        self._device_bytes = sum(sizes)
        size = max(1, devices * self._device_bytes)
        self.number = _made(size) if number is None else number
        self._memory = mmap.mmap(self.number, size)

    def arguments(self, device: int) -> list[Array]:
        """Return the arrays in which a device finds its arguments."""
        return [self._array(device, i) for i in range(self._parameters)]

    def results(self, device: int) -> list[Array]:
        """Return the arrays in which a device leaves its results."""
        return [self._array(device, i) for i in range(self._parameters, len(self._specs))]

    def _array(self, device: int, index: int) -> Array:
        spec = self._specs[index]
        if not spec.nbytes:
            return np.empty(spec.shape, spec.dtype)
        return np.ndarray(spec.shape, spec.dtype, self._memory, device * self._device_bytes + self._offsets[index])

    def close(self) -> None:
        """Close the file; the memory lasts as long as arrays are in use."""
        os.close(self.number)


def _made(size: int) -> int:
    if size > _available():
        raise OSError(errno.ENOMEM, f"{os.strerror(errno.ENOMEM)}: {size} bytes")
    number = os.memfd_create("stablexla", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(number, size)
        fcntl.fcntl(number, _ADD_SEALS, _SEALS)
    except BaseException:
        os.close(number)
        raise
    return number


def _available() -> int:
    """Return how many bytes this machine could give: more would be an end of the process, and no error."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 62
