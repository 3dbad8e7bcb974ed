"""Which driver programs for GPUs run on, and which devices it has.

The library is opened when that is first asked, never when this is imported.
"""

from __future__ import annotations

from dataclasses import dataclass

from stablexla.dialects.errors import ExecutionError
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import _runtime

LIBRARY = "libcuda.so.1"


@dataclass(frozen=True)
class DeviceInfo:
    """A GPU.

    Attributes:
        number: how the driver counts it, from 0.
        name: as its maker calls it.
        chip: what its kernels are compiled for, "sm_90".
        total_bytes: the size of its memory.
        multiprocessors: how many parts run blocks of threads.
        shared_bytes: the most shared memory that a block can have.
        driver: the CUDA release of the driver.
    """

    number: int
    name: str
    chip: str
    total_bytes: int
    multiprocessors: int
    shared_bytes: int
    driver: str


def library() -> str:
    """The driver's library: the knob's, else where the system has it."""
    return str(knobs.cuda_driver) if knobs.cuda_driver is not None else LIBRARY


def devices() -> list[DeviceInfo]:
    """All GPUs; no context is made on them.

    Raises:
        ExecutionError: there is no driver, or it is too old, or finds no device.
    """
    return [DeviceInfo(**_runtime.describe_gpu(number)) for number in range(_runtime.gpu_count())]


def device_chips() -> list[str]:
    """The chips of the GPUs; none where there is no driver or no device."""
    try:
        return [device.chip for device in devices()]
    except ExecutionError:
        return []
