"""NVIDIA GPUs at run time, as `sx.gpu`: devices, device arrays, streams and memory statistics.

Nothing here opens the driver when it is imported. Programs for GPUs are compiled by `sx.compile(..., target="gpu")`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from stablexla.dialects.errors import ExecutionError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.runtime import _runtime, gpu_driver
from stablexla.targets.runtime._runtime import DeviceArray
from stablexla.targets.runtime.gpu_driver import DeviceInfo

__all__ = [
    "DeviceArray",
    "DeviceInfo",
    "GpuMemory",
    "Stream",
    "current_stream",
    "devices",
    "is_available",
    "memory",
    "put",
    "release_memory",
    "stream",
    "synchronize",
    "target",
]


def target(chip: str | None = None, *, ptx: int | None = None) -> str:
    """Return the name of a target, as `sx.compile(target=...)` takes it.

    Args:
        chip: the chip PTX is generated for, as "sm_90" or "sm_90a"; the first GPU's, or sm_80, when it is not given.
        ptx: the version of PTX, 80 for 8.0; 78, or the oldest that knows the chip, when it is not given.

    Raises:
        CompileError: there is no such chip, or the version of PTX does not know it.

    >>> sx.gpu.target(chip="sm_90")
    'gpu:sm_90,ptx78'
    """
    from stablexla.targets.gpu.chips import GpuName

    return str(GpuName.of(chip, ptx))


def is_available() -> bool:
    """Return whether there is a usable driver and a device.

    >>> type(sx.gpu.is_available())
    <class 'bool'>
    """
    return bool(gpu_driver.device_chips())


def devices() -> list[DeviceInfo]:
    """Return the GPUs in the driver's order, from 0. Nothing is started on them.

    Raises:
        ExecutionError: there is no driver, or it is too old, or finds no device.

    >>> [gpu.number for gpu in sx.gpu.devices()]  # doctest: +SKIP
    [0]
    """
    return gpu_driver.devices()


def put(array: object, device: int = 0) -> DeviceArray:
    """Copy an array to a GPU's memory.

    Args:
        array: a numpy array, or anything that numpy reads, which is copied; or an array that is on that GPU already,
            of any library with DLPack or `__cuda_array_interface__`, which is used where it is.
        device: the GPU.

    Raises:
        ExecutionError: there is no such GPU, or no memory on it, or the array is on another one.

    >>> x = sx.gpu.put(np.ones((2, 3), np.float32))  # doctest: +SKIP
    >>> x.copy_to_host().sum()  # doctest: +SKIP
    np.float32(6.0)
    """
    return _runtime.put_on_gpu(array, device)


class Stream:
    """A queue of work on a GPU: work of one stream is in order, that of several streams concurrent.

    Programs run on the GPU's default stream unless they are called inside `with sx.gpu.stream(...)`. Streams may
    share arrays: a program waits, on the GPU, for the streams that its arguments come from.

    Args:
        device: the GPU.

    Attributes:
        handle: the driver's, for other libraries: `torch.cuda.ExternalStream(stream.handle)`.

    >>> with sx.gpu.stream(sx.gpu.Stream()):  # doctest: +SKIP
    ...     y = executable(x)
    """

    def __init__(self, device: int = 0) -> None:
        self._stream = _runtime.gpu_stream(device)

    @classmethod
    def _of(cls, stream: _runtime.GpuStream) -> Stream:
        made = cls.__new__(cls)
        made._stream = stream
        return made

    @property
    def device(self) -> int:
        """The number of its GPU."""
        return self._stream.device

    @property
    def handle(self) -> int:
        """The driver's handle."""
        return self._stream.handle

    @property
    def is_idle(self) -> bool:
        """Whether all queued work is done."""
        return self._stream.is_idle

    def synchronize(self) -> None:
        """Wait until all queued work is done.

        Raises:
            ExecutionError: something of it failed.
        """
        self._stream.synchronize()

    def wait_for(self, other: Stream) -> None:
        """Order later work of this stream after the queued work of another one. The host does not wait."""
        self._stream.wait_for(other._stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the handle for libraries that use this protocol."""
        return 0, self.handle

    def __repr__(self) -> str:
        return f"<Stream {self.handle:#x} on GPU {self.device}>"


@contextmanager
def stream(on: object, device: int = 0) -> Iterator[Stream]:
    """Select the stream of this thread's programs inside a `with` block.

    Args:
        on: a `Stream`; or one of torch (`torch.cuda.current_stream()`), CuPy, or anything with `__cuda_stream__`; or a
            handle as a number.
        device: the GPU of a stream that is no `Stream` and does not say it.

    Raises:
        ExecutionError: it is no stream.
    """
    chosen = on if isinstance(on, Stream) else Stream._of(_runtime.gpu_stream(*_foreign(on, device)))
    _runtime.push_gpu_stream(chosen._stream)
    try:
        yield chosen
    finally:
        _runtime.pop_gpu_stream()


def current_stream(device: int = 0) -> Stream:
    """Return the stream of a GPU on which this thread's programs run."""
    return Stream._of(_runtime.current_gpu_stream(device))


def _foreign(on: Any, device: int) -> tuple[int, int]:
    """Return the device and the handle of another library's stream."""
    if isinstance(on, int) and not isinstance(on, bool) and on >= 0:
        return device, on
    if hasattr(on, "cuda_stream"):
        return getattr(on, "device_index", device), int(on.cuda_stream)
    if hasattr(on, "__cuda_stream__"):
        return device, int(on.__cuda_stream__()[1])
    if hasattr(on, "ptr"):
        where = getattr(on, "device_id", -1)
        return where if where >= 0 else device, int(on.ptr)
    raise ExecutionError(f"a {type(on).__name__} is no stream", hint="sx.gpu.Stream(), or a handle as a number")


@dataclass(frozen=True)
class GpuMemory:
    """Memory statistics of a GPU, in bytes.

    Attributes:
        in_use: arrays that are alive, constants of programs, and what running calls need, of this process.
        blocks: how many there are.
        peak: the most that was in use at one time.
        held: free memory that the pool keeps for later calls.
        pinned: the same of the host's memory that copies go through.
        free: what the driver has left, for all processes.
        total: the size of the memory.
    """

    in_use: int
    blocks: int
    peak: int
    held: int
    pinned: int
    free: int
    total: int


def memory(device: int = 0) -> GpuMemory:
    """Return the memory statistics of a GPU.

    Raises:
        ExecutionError: there is no such GPU, or its context was lost.
    """
    return GpuMemory(**_runtime.gpu_memory(device))


def synchronize(device: int = 0) -> None:
    """Wait for all work on a GPU, on all streams.

    Raises:
        ExecutionError: there is no such GPU, or a program on it failed.
    """
    _runtime.synchronize_gpu(device)


def release_memory(device: int = 0) -> None:
    """Wait for all work on a GPU, and free the pool's unused memory.

    Raises:
        ExecutionError: there is no such GPU, or a program on it failed.
    """
    _runtime.release_gpu_memory(device)
