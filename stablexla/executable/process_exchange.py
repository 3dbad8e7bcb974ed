"""Results of all devices in every process of a program, after a run.

The native runtime exchanges data between devices during a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.errors import CollectiveError
from stablexla.targets.runtime import _runtime

Array = npt.NDArray[Any]


class Exchange:
    """The exchange between the processes that have a program's devices, which must reach the same calls."""

    def __init__(self, processes: Sequence[int], rank: int, time_limit: float | None) -> None:
        """Store the process of each device, this process's `rank`, and the timeout in seconds (None: no limit)."""
        self._processes, self._rank, self._time_limit = processes, rank, time_limit

    def gather(self, results: Sequence[Sequence[Array]], *, dynamic: bool = False) -> list[list[Array]]:
        """Gather the results of all devices in every process, directly from array to array.

        Args:
            results: those of this process's devices.
            dynamic: whether shapes may differ from device to device, so that they are exchanged first.

        Raises:
            CollectiveError: processes that do not come.
        """
        own = [[np.asarray(array, order="C") for array in each] for each in results]
        shapes = self._shapes(own) if dynamic else [[array.shape for array in own[0]]] * len(self._processes)
        mine = iter(own)
        rows = [
            next(mine) if process == self._rank else [np.empty(s, a.dtype) for s, a in zip(of, own[0], strict=True)]
            for process, of in zip(self._processes, shapes, strict=True)
        ]
        places: dict[int, list[tuple[int, int]]] = {process: [] for process in self._processes}
        for process, row in zip(self._processes, rows, strict=True):
            places[process] += [(array.ctypes.data, array.nbytes) for array in row]
        self._check(_runtime.gather_mpi(places, self._time_limit))
        return rows

    def _shapes(self, own: Sequence[Sequence[Array]]) -> list[list[tuple[int, ...]]]:
        """Return the shapes of each device's arrays, which have the ranks of the local ones."""
        sizes = [[np.array([size for array in each for size in array.shape], np.int64)] for each in own]
        ends = np.cumsum([array.ndim for array in own[0]])[:-1]
        return [[tuple(part.tolist()) for part in np.split(row, ends)] for (row,) in self.gather(sizes)]

    def _check(self, wrong: tuple[str, list[int], dict[int, str]] | None) -> None:
        """Raise CollectiveError when the native runtime reports a failure."""
        if wrong is None:
            return
        summary, arrived, missing = wrong
        raise CollectiveError(
            f"the results of all devices could not be gathered: {summary}",
            operation="execute_replicated",
            group=tuple(range(len(self._processes))),
            arrived=arrived,
            missing=missing,
        )
