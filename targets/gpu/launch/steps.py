"""A GPU program as a list of steps: launches, copies and writes, whose operands are all known."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.gpu.threads import Launch

Base = Literal["parameter", "constant", "result", "arena"]


@dataclass(frozen=True)
class Place:
    """An address on the device: `offset` bytes from the begin of parameter, constant or result `number`, or the arena.

    Attributes:
        nbytes: the size of the array that begins there.
    """

    base: Base
    number: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Scalar:
    """A number passed by value: its element type as MLIR spells it, and its little-endian bytes."""

    type: str
    data: bytes


@dataclass(frozen=True)
class LaunchStep:
    """A launch of a kernel, with a value for each of its parameters."""

    kernel: str
    arguments: tuple[Place | Scalar, ...]


@dataclass(frozen=True)
class CopyStep:
    """A copy on the device, of as many bytes as both places have."""

    target: Place
    source: Place


@dataclass(frozen=True)
class WriteStep:
    """A number that the host writes to the device."""

    target: Place
    value: Scalar


Step = LaunchStep | CopyStep | WriteStep


@dataclass(frozen=True)
class Obstacle:
    """Why a program is no list of steps.

    Attributes:
        operation: the name of the operation of `main`, or of the function that it calls on the host.
        message: the reason.
        location: file and line in the source of the program, or "".
    """

    operation: str
    message: str
    location: str

    def __str__(self) -> str:
        return f"{self.operation}: {self.message}" + (f" (at {self.location})" if self.location else "")


@dataclass(frozen=True)
class GpuProgram:
    """All that it takes to run a program by a GPU's driver.

    Attributes:
        ptx: the kernels.
        launches: how each kernel is launched, by name; in the order of first use.
        constants: arrays of the program itself.
        arena_bytes: size of the memory for temporaries.
        aliases: for results the parameter whose memory each may take.
        steps: in order; none if there is an obstacle.
        obstacle: why there are no steps.
    """

    ptx: str
    launches: dict[str, Launch]
    constants: tuple[np.ndarray[Any, Any], ...]
    arena_bytes: int
    aliases: dict[int, int]
    steps: tuple[Step, ...] = ()
    obstacle: Obstacle | None = None
