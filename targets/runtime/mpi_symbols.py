"""MPI symbols for generated code that calls MPI itself: their addresses, and whether such code can run here.

Code from MLIR's `mpi` dialect has one implementation's handles in it, and uses MPI_COMM_WORLD.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from typing import Any

from stablexla.dialects.errors import LoadError
from stablexla.dialects.lazy_dataclass import dataclass

IMPLEMENTATION = "mpi"
"""Key in a collective's description, where generated code calls MPI itself: the implementation of its handles."""
IMPLEMENTATIONS = ("MPICH", "OpenMPI")
PREFIXES = ("MPI_", "ompi_")
_WORLD_OF_MPICH = 0x44000000


@dataclass(frozen=True)
class Library:
    """The MPI that this process uses.

    Attributes:
        path: its shared library.
        implementation: one of IMPLEMENTATIONS, or "" for one with other handles.
        processes: size of the world.
    """

    path: str
    implementation: str
    processes: int


_used: list[Library] = []


def use(path: str, vendor: str, world: int, processes: int) -> None:
    """Record the MPI library that `stablexla.distributed.initialize` found.

    Args:
        vendor: the implementation's own name.
        world: the handle of the communicator of all processes, by which those that follow MPICH are known.
    """
    implementation = "OpenMPI" if vendor == "Open MPI" else "MPICH" if world == _WORLD_OF_MPICH else ""
    _used[:] = [Library(path, implementation, processes)]


def addresses(names: Iterable[str]) -> dict[str, int]:
    """Return the addresses of MPI's symbols among the names; those the library lacks are left out."""
    wanted = [name for name in names if name.startswith(PREFIXES)]
    if not wanted or not _used:
        return {}
    library = ctypes.CDLL(_used[0].path)
    # Open MPI's sum is ompi_mpi_op_sum; MLIR calls it ompi_mpi_sum.
    spelled = {name: (name, name.replace("ompi_mpi_", "ompi_mpi_op_")) for name in wanted}
    found = {
        name: [getattr(library, each) for each in both if hasattr(library, each)] for name, both in spelled.items()
    }
    return {name: ctypes.cast(these[0], ctypes.c_void_p).value or 0 for name, these in found.items() if these}


def check_world(collectives: Iterable[Mapping[str, Any]], num_devices: int) -> None:
    """Check that a program whose collectives are calls of MPI can run in this process.

    Raises:
        LoadError: there is no MPI, another one, or not one process for each device.
    """
    wanted = {each[IMPLEMENTATION] for each in collectives if IMPLEMENTATION in each}
    if not wanted:
        return
    said = f"the program's collectives are calls of MPI ({', '.join(sorted(wanted))}), with a process for each device"
    if not _used:
        raise LoadError(
            f"{said}, and this process is alone",
            hint=f"mpiexec -n {num_devices}, with sx.distributed.initialize() before the program is compiled or loaded",
        )
    library = _used[0]
    if wanted != {library.implementation}:
        name = library.implementation or library.path
        raise LoadError(f"{said}, and mpi4py has loaded {name}", hint="compile it with the implementation at hand")
    if library.processes != num_devices:
        raise LoadError(
            f"{said}; it has {num_devices} devices, and there are {library.processes} processes",
            hint=f"mpiexec -n {num_devices}",
        )
