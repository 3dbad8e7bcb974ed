"""The CUDA driver that GPU programs run on, and its devices.

The library is opened at the first query, never at import.
"""

from __future__ import annotations

from stablexla.dialects.errors import ExecutionError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import _runtime

LIBRARY = "libcuda.so.1"


@dataclass(frozen=True)
class DeviceInfo:
    """A GPU.

    Attributes:
        number: the driver's ordinal, from 0.
        name: the maker's.
        chip: the architecture its kernels are compiled for, "sm_90".
        total_bytes: the size of its memory.
        multiprocessors: their number (SMs).
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
    """Return the driver's library: the knob's, else the system's."""
    return str(knobs.cuda_driver) if knobs.cuda_driver is not None else LIBRARY


def devices() -> list[DeviceInfo]:
    """Return all GPUs, without creating contexts.

    Raises:
        ExecutionError: there is no driver, or it is too old, or finds no device.
    """
    return [DeviceInfo(**_runtime.describe_gpu(number)) for number in range(_runtime.gpu_count())]


def device_chips() -> list[str]:
    """Return the chips of the GPUs; none where there is no driver or no device."""
    try:
        return [device.chip for device in devices()]
    except ExecutionError:
        return []
