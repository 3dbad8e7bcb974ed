"""Data exchange between the processes of a program: communicators before the first run, results after each.

The native runtime exchanges data between devices during a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.errors import CollectiveError
from stablexla.targets.runtime import _runtime

if TYPE_CHECKING:  # only programs of several processes import it
    from stablexla.distributed import World

Array = npt.NDArray[Any]


class Exchange:
    """The exchange between all processes, which must reach the same calls."""

    def __init__(self, world: World, local: int, time_limit: float | None) -> None:
        """Store the number of `local` devices of a process, and the timeout in seconds (None: no limit)."""
        self._world, self._local, self._time_limit = world, local, time_limit

    def prepare(self, collectives: Iterable[Mapping[str, Any]]) -> None:
        """Create the communicators of a program's groups before its first run.

        Args:
            collectives: as the compiler describes them.

        Raises:
            CollectiveError: processes that do not come.
        """
        sets = set()
        for collective in collectives:
            groups = collective.get("groups") or _connected_groups(collective.get("pairs", ()))
            sets |= {tuple(sorted({device // self._local for device in group})) for group in groups}
        everybody = tuple(range(self._world.size))
        wanted = sorted(processes for processes in sets if len(processes) > 1 and processes != everybody)
        if wanted:
            wrong = _runtime.prepare_mpi(self._local, wanted, self._time_limit)
            self._check(wrong, "not all processes have come to run the program")

    def gather(self, results: Sequence[Sequence[Array]], *, dynamic: bool = False) -> list[list[Array]]:
        """Gather the results of all devices in every process, directly from array to array.

        Args:
            results: those of this process's devices.
            dynamic: whether shapes may differ from device to device, so that they are exchanged first.

        Raises:
            CollectiveError: processes that do not come.
        """
        own = [np.asarray(array, order="C") for each in results for array in each]
        shapes = self._shapes(own) if dynamic else [tuple(array.shape for array in own)] * self._world.size
        parts = [
            own if rank == self._world.rank else [np.empty(s, array.dtype) for s, array in zip(of, own, strict=True)]
            for rank, of in enumerate(shapes)
        ]
        self._fill(own, parts)
        each = len(own) // self._local
        return [part[i * each : (i + 1) * each] for part in parts for i in range(self._local)]

    def _shapes(self, own: Sequence[Array]) -> list[tuple[tuple[int, ...], ...]]:
        """Return the shapes of each process's arrays, which have the rank of the local ones."""
        mine = np.array([size for array in own for size in array.shape], np.int64)
        rows = [mine if rank == self._world.rank else np.empty_like(mine) for rank in range(self._world.size)]
        self._fill([mine], [[row] for row in rows])
        ends = np.cumsum([array.ndim for array in own])[:-1]
        return [tuple(tuple(int(size) for size in part) for part in np.split(row, ends)) for row in rows]

    def _fill(self, own: Sequence[Array], parts: Sequence[Sequence[Array]]) -> None:
        """Send the arrays to all processes, and receive theirs into `parts`, by process."""
        places = [[(array.ctypes.data, array.nbytes) for array in part] for part in parts]
        mine, places[self._world.rank] = [(array.ctypes.data, array.nbytes) for array in own], []
        wrong = _runtime.gather_mpi(self._local, mine, places, self._time_limit)
        self._check(wrong, "the results of all devices could not be gathered")

    def _check(self, wrong: tuple[str, list[int], dict[int, str]] | None, what: str) -> None:
        """Raise CollectiveError when the native runtime reports a failure."""
        if wrong is None:
            return
        summary, arrived, missing = wrong
        raise CollectiveError(
            f"{what}: {summary}",
            operation="execute_replicated",
            group=tuple(range(self._local * self._world.size)),
            arrived=arrived,
            missing=missing,
        )


def _connected_groups(pairs: Iterable[tuple[int, int]]) -> list[set[int]]:
    """Return the connected components of devices under pairs, as groups."""
    groups: list[set[int]] = []
    for pair in pairs:
        touched = [group for group in groups if not group.isdisjoint(pair)]
        groups = [group for group in groups if group not in touched] + [set(pair).union(*touched)]
    return groups
