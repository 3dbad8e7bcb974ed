"""What is said when the driver is not there, or refuses something; programs go on afterwards where that is possible."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.runtime import GpuFunction, _runtime, gpu_driver
from tests.targets.gpu import simulated as simulator
from tests.targets.gpu.runtime import WithInterface, X, compiled, native, plus, simulated, twice


@pytest.fixture
def driver() -> Iterator[Any]:
    with simulated() as found:
        yield found


def refused(program: Any, *arguments: object) -> str:
    with pytest.raises(sx.ExecutionError) as caught:
        program(*arguments)
    said = str(caught.value)
    del caught
    gc.collect()  # the error keeps its arguments
    return said


def test_no_driver(tmp_path: Path) -> None:
    _runtime.use_cuda_driver(None)
    with knobs.scoped(cuda_driver=tmp_path / "libcuda.so.1"):
        assert "no CUDA driver" in refused(twice(), X)
        assert not sx.gpu.is_available()
        assert gpu_driver.device_chips() == []
        with pytest.raises(sx.ExecutionError, match="no CUDA driver"):
            sx.gpu.devices()


def test_a_library_that_is_no_driver() -> None:
    with pytest.raises(sx.ExecutionError, match=r"the CUDA driver is too old: libm\.so\.6 has no cuInit"):
        _runtime.use_cuda_driver("libm.so.6")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"driver": 11010}, r"the CUDA driver is too old: it is of CUDA 11\.1\n  try: a driver of CUDA 11\.2 or newer"),
        ({"devices": 0}, "the CUDA driver finds no device"),
    ],
    ids=["too old", "no device"],
)
def test_a_driver_that_cannot_be_used(settings: dict[str, int], said: str) -> None:
    with simulator.settings(**settings), pytest.raises(sx.ExecutionError, match=said):
        _runtime.use_cuda_driver(str(simulator.library()))
    _runtime.use_cuda_driver(None)


def test_a_driver_that_does_not_start() -> None:
    with simulator.settings():
        simulator.fail("cuInit", 1, 803)
        with pytest.raises(sx.ExecutionError, match="cannot be started: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"):
            _runtime.use_cuda_driver(str(simulator.library()))
    _runtime.use_cuda_driver(None)


def test_devices(driver: Any) -> None:
    first, second = sx.gpu.devices()
    assert (first.number, second.number) == (0, 1)
    assert (first.chip, first.driver) == ("sm_90", "12.8")
    assert first.shared_bytes == 227 * 1024
    assert sx.gpu.is_available()
    with pytest.raises(sx.ExecutionError, match="there is no GPU 2; there are 2, counted from 0"):
        sx.gpu.put(X, device=2)


def test_arguments_that_do_not_fit(driver: Any) -> None:
    x = sx.gpu.put(X)
    assert "takes 1 argument (float32[40]), but 0 came" in refused(twice())
    assert "parameter 0 takes float32[40], but an array of float32[3] came" in refused(twice(), X[:3])
    wrong = sx.gpu.put(X.astype(np.int32))
    assert "parameter 1 takes float32[40], but an array of int32[40] came" in refused(plus(), x, wrong)
    short = sx.gpu.put(X[:3])
    assert "takes float32[40], but an array of float32[3] came" in refused(twice(), short)
    assert "takes float32[40], but an array of float32[3] came" in refused(twice(), WithInterface(short))
    assert "but an array of int32[40] came" in refused(twice(), WithInterface(wrong))
    assert "with other strides came" in refused(twice(), WithInterface(x, strides=(8,)))
    far = sx.gpu.put(X, device=1)
    assert "an array on GPU 1 came, where the program runs on GPU 0" in refused(plus(), x, far)
    assert "a str came, which is neither an array nor a number" in refused(twice(), "x")
    assert "programs for several devices do not run on GPUs" in refused(native(twice()).execute_replicated, [[X]])


class Stubborn:
    """Says that it is on the device, and does not let itself be read."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, **keywords: Any) -> Any:
        raise BufferError("not today")


def test_an_array_that_cannot_be_read(driver: Any) -> None:
    assert "parameter 0: the Stubborn cannot be read as an array on the device: not today" in refused(
        twice(), Stubborn()
    )


# For each function of the driver the error that it gives, and what is said of it. They are tried in a first call.
FAILURES = {
    "cuDevicePrimaryCtxRetain": (2, "CUDA_ERROR_OUT_OF_MEMORY (out of memory) while making its context"),
    "cuStreamCreate": (999, "CUDA_ERROR_UNKNOWN (unknown error) while making its context"),
    "cuCtxPushCurrent_v2": (201, "CUDA_ERROR_INVALID_CONTEXT (invalid device context) while making its context"),
    "cuModuleLoadDataEx": (218, "CUDA_ERROR_INVALID_PTX (a PTX JIT compilation failed) while loading the kernels of"),
    "cuModuleGetFunction": (500, "CUDA_ERROR_NOT_FOUND (named symbol not found) while looking for the kernel"),
    "cuFuncGetAttribute": (400, "CUDA_ERROR_INVALID_HANDLE (invalid resource handle) while asking what a kernel needs"),
    "cuMemAllocAsync": (801, "CUDA_ERROR_NOT_SUPPORTED (operation not supported) while asking for memory"),
    "cuMemHostAlloc": (999, "CUDA_ERROR_UNKNOWN (unknown error) while asking for host memory to copy through"),
    "cuMemcpyHtoDAsync_v2": (1, "CUDA_ERROR_INVALID_VALUE (invalid argument) while copying arguments"),
    "cuLaunchKernel": (701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES (too many resources requested for launch) while"),
    "cuMemcpyDtoHAsync_v2": (1, "CUDA_ERROR_INVALID_VALUE (invalid argument) while copying results"),
    "cuStreamSynchronize": (999, "CUDA_ERROR_UNKNOWN (unknown error) while waiting for a stream"),
}


@pytest.mark.parametrize("function", FAILURES)
def test_what_the_driver_refuses(driver: Any, function: str) -> None:
    code, said = FAILURES[function]
    simulator.fail(function, 1, code)
    assert f"GPU 0: {said}" in refused(lambda: twice()(X))
    np.testing.assert_array_equal(twice()(X), X * 2 + 1)
    sx.gpu.release_memory()
    assert simulator.allocated_bytes() == 0


def test_host_memory_is_asked_for_once_more(driver: Any) -> None:
    simulator.fail("cuMemHostAlloc", 1, 2)
    np.testing.assert_array_equal(twice()(X), X * 2 + 1)


@pytest.mark.parametrize(
    ("function", "doing"), [("cuEventCreate", "making an event"), ("cuEventRecord", "marking the end of a program")]
)
def test_a_failure_at_the_end_of_a_call_on_the_device(driver: Any, function: str, doing: str) -> None:
    x = sx.gpu.put(X)
    simulator.fail(function, 1, 999)
    assert f"CUDA_ERROR_UNKNOWN (unknown error) while {doing}" in refused(twice(), x)
    np.testing.assert_array_equal(np.asarray(twice()(x)), X * 2 + 1)
    del x
    gc.collect()
    sx.gpu.release_memory()
    assert simulator.allocated_bytes() == 0


def test_what_a_kernel_must_not_do(driver: Any) -> None:
    x = sx.gpu.put(X)
    made = twice()(x)
    simulator.fail("cuEventSynchronize", 1, 700)
    with pytest.raises(sx.ExecutionError) as caught:
        made.block_until_ready()
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in str(caught.value)
    assert "did what it must not, and the context is lost" in str(caught.value)
    for call in (lambda: twice()(x), lambda: twice()(X), lambda: sx.gpu.put(X), lambda: np.asarray(x), sx.gpu.memory):
        assert "the context was lost by an earlier error, CUDA_ERROR_ILLEGAL_ADDRESS" in refused(call)
    assert repr(x) == "<DeviceArray float32[40] on GPU 0>"
    np.testing.assert_array_equal(np.asarray(twice()(sx.gpu.put(X, device=1))), X * 2 + 1)


def test_an_array_that_is_read_too_far(driver: Any) -> None:
    x = sx.gpu.put(X[:20])
    said = refused(lambda: twice()(WithInterface(x, shape=(40,))).block_until_ready())
    assert "and the context is lost" in said


@pytest.mark.parametrize("pools", [1, 0], ids=["pool", "list"])
def test_out_of_memory(pools: int) -> None:
    with simulated(memory=1 << 20, pools=pools):
        kept = [sx.gpu.put(np.zeros(1 << 17, np.float32))]
        with pytest.raises(sx.ExecutionError) as caught:
            kept.append(sx.gpu.put(np.zeros(1 << 18, np.float32)))
        assert "no memory on GPU 0 for an array of float32[262144]: 1 MiB wanted; 524288 bytes are in use" in str(
            caught.value
        )
        large = np.zeros((1 << 17,), np.float32)
        program = compiled(lambda b, x: x + 1.0, large)
        with pytest.raises(sx.ExecutionError, match="no memory on GPU 0 for a"):
            program(large)
        kept.clear()
        np.testing.assert_array_equal(program(large[:]), large + 1)
        sx.gpu.release_memory()
        assert simulator.allocated_bytes() == 0


@pytest.mark.parametrize("pools", [1, 0], ids=["pool", "list"])
def test_memory_that_is_held_is_given_back_when_it_is_needed(pools: int) -> None:
    with simulated(memory=1 << 20, pools=pools):
        for size in (1 << 16, 1 << 17, (1 << 17) + (1 << 16)):
            x = sx.gpu.put(np.full(size, size, np.float32))
            assert x.copy_to_host()[-1] == size
            del x


def test_no_pools_of_the_driver() -> None:
    with simulated(pools=0, lazy=1):
        x = sx.gpu.put(X)
        with sx.gpu.stream(sx.gpu.Stream()):
            y = twice()(x)
        for _ in range(4):
            y = twice()(y)
        np.testing.assert_array_equal(np.asarray(y), X * 32 + 31)
        del x, y
        assert sx.gpu.memory().held > 0
        sx.gpu.release_memory()
        assert sx.gpu.memory().held == 0
        assert simulator.allocated_bytes() == 0


def function_of(image: bytes, shared: int = 0, name: str = "kernel") -> GpuFunction:
    """The machine code of a program with other kernels."""
    other = native(twice())
    return GpuFunction(
        "other", other.entry, other.parameters, other.results, kernels=[(name, shared)], image=lambda chip: image,
        chip="sm_80", keep_alive=other.keep_alive,
    )  # fmt: skip


PTX = b".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry kernel()\n{\n ret;\n}\n"


def test_more_shared_memory_than_there_is(driver: Any) -> None:
    said = refused(function_of(PTX, 300_000), X)
    assert "kernel kernel of other needs 300000 bytes of shared memory a block, and GPU 0" in said
    assert f"has {227 * 1024}" in said


def test_a_kernel_that_is_not_there(driver: Any) -> None:
    said = refused(function_of(PTX, name="absent"), X)
    assert "while looking for the kernel absent of other" in said


def test_a_driver_too_old_for_the_ptx(driver: Any) -> None:
    simulator.fail("cuModuleLoadDataEx", 1, 222)
    said = refused(function_of(PTX.replace(b"7.8", b"8.6")), X)
    assert "the CUDA driver is too old for other: it is of CUDA 12.8, and PTX 8.6 needs one of CUDA 12.7" in said


def test_kernels_for_another_chip(driver: Any) -> None:
    simulator.fail("cuModuleLoadDataEx", 1, 209)
    said = refused(function_of(PTX), X)
    assert "other, compiled for sm_80, cannot run on GPU 0" in said
    assert 'target="gpu:sm_90"' in said


def test_a_cubin_that_the_driver_does_not_take(driver: Any) -> None:
    asked = []

    def image(chip: str) -> bytes:
        asked.append(chip)
        return native(twice()).image(chip) if not chip else b"\x7fELF of a newer assembler"  # type: ignore[misc]

    other = native(twice())
    program = GpuFunction(
        "other", other.entry, other.parameters, other.results, other.arena_bytes, other.constants, {}, other.kernels,
        image, keep_alive=other.keep_alive,
    )  # fmt: skip
    np.testing.assert_array_equal(program(X), X * 2 + 1)
    assert asked == ["sm_90", ""]


def _in_a_child(queue: Any) -> None:
    try:
        twice()(X)
    except sx.ExecutionError as error:
        queue.put(str(error))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process(driver: Any) -> None:
    x = sx.gpu.put(X)
    twice()(x)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_a_child, args=(queue,))
    child.start()
    assert "was forked from one that had used a GPU" in queue.get(timeout=60)
    child.join()
    assert child.exitcode == 0
    np.testing.assert_array_equal(np.asarray(twice()(x)), X * 2 + 1)
