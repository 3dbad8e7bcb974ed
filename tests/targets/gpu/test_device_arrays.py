"""Arrays in a GPU's memory: what they say of themselves, and how they go to other libraries."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import stablexla as sx
from tests.targets.gpu import simulated as simulator
from tests.targets.gpu.runtime import Foreign, WithInterface, X, calls, simulated, twice


@pytest.fixture(autouse=True)
def driver() -> Iterator[Any]:
    with simulated(lazy=1) as found:
        yield found


class Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Versioned(ctypes.Structure):
    """DLPack's DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, ctypes.c_void_p)),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    )


def in_capsule(capsule: Any, name: bytes) -> int:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(pointer(capsule, name) or 0)


@pytest.mark.parametrize(
    ("dtype", "code", "bits"),
    [(np.float32, 2, 32), (np.int8, 0, 8), (np.bool_, 6, 8), (np.complex64, 5, 64), (ml_dtypes.bfloat16, 4, 16)],
)
def test_what_a_capsule_holds(dtype: Any, code: int, bits: int) -> None:
    array = sx.gpu.put(np.zeros((2, 3), dtype))
    capsule = array.__dlpack__(stream=1)
    tensor = Tensor.from_address(in_capsule(capsule, b"dltensor"))
    assert (tensor.data, tensor.byte_offset) == (array.address, 0)
    assert (tensor.device_type, tensor.device_id) == array.__dlpack_device__() == (2, 0)
    assert (tensor.code, tensor.bits, tensor.lanes) == (code, bits, 1)
    assert (tensor.ndim, tensor.shape[:2], tensor.strides[:2]) == (2, [2, 3], [3, 1])


def test_a_capsule_with_a_version() -> None:
    capsule = sx.gpu.put(X).__dlpack__(stream=1, max_version=(1, 2))
    held = Versioned.from_address(in_capsule(capsule, b"dltensor_versioned"))
    assert (held.major, held.flags, held.tensor.ndim) == (1, 0, 1)


def test_a_capsule_keeps_the_memory_and_gives_it_back() -> None:
    array = sx.gpu.put(X)
    capsule = array.__dlpack__(stream=1)
    del array
    assert simulator.allocated_bytes() >= X.nbytes
    del capsule
    sx.gpu.release_memory()
    assert simulator.allocated_bytes() == 0


@pytest.mark.parametrize("stream", ["default", "its own", "a foreign one"])
def test_the_consumer_gives_the_memory_back(stream: str) -> None:
    """As a library does that took the capsule: it is renamed, and its deleter called."""
    array = twice()(sx.gpu.put(X))
    other = sx.gpu.Stream()
    number = {"default": 1, "its own": sx.gpu.current_stream().handle, "a foreign one": other.handle}[stream]
    capsule = array.__dlpack__(stream=number, max_version=(1, 0))
    held = Versioned.from_address(in_capsule(capsule, b"dltensor_versioned"))
    ctypes.pythonapi.PyCapsule_SetName(ctypes.py_object(capsule), b"used_dltensor_versioned")
    del capsule, array
    sx.gpu.synchronize()
    assert simulator.allocated_bytes() >= X.nbytes
    held.deleter(ctypes.addressof(held))
    sx.gpu.release_memory()
    assert simulator.allocated_bytes() == 0


def test_the_consumers_stream_waits(driver: Any) -> None:
    array = twice()(sx.gpu.put(X))
    theirs = sx.gpu.Stream()
    before = calls(driver, "cuStreamWaitEvent")
    array.__dlpack__(stream=-1)
    assert calls(driver, "cuStreamWaitEvent") == before
    array.__dlpack__(stream=theirs.handle)
    assert calls(driver, "cuStreamWaitEvent") == before + 1
    theirs.synchronize()
    assert array.is_ready


def test_a_stream_that_dlpack_does_not_have() -> None:
    with pytest.raises(sx.ExecutionError, match="DLPack's stream 0 is ambiguous"):
        sx.gpu.put(X).__dlpack__(stream=0)


def test_a_copy_on_the_host_by_dlpack() -> None:
    array = sx.gpu.put(X)
    np.testing.assert_array_equal(np.from_dlpack(array, device="cpu"), X)
    with pytest.raises(BufferError, match="goes to no device"):
        array.__dlpack__(dl_device=(2, 1))
    with pytest.raises(BufferError, match="without a copy"):
        array.__dlpack__(copy=True)


def test_cuda_array_interface_waits() -> None:
    array = twice()(sx.gpu.put(X))
    told = array.__cuda_array_interface__
    assert told == {
        "shape": (40,), "typestr": "<f4", "data": (array.address, False), "strides": None, "stream": None, "version": 3,
    }  # fmt: skip
    assert array.is_ready
    assert not hasattr(sx.gpu.put(X.astype(ml_dtypes.bfloat16)), "__cuda_array_interface__")


def test_what_it_says() -> None:
    array = sx.gpu.put(np.zeros((2, 3), np.int16), device=1)
    assert (array.shape, array.dtype, array.ndim, array.nbytes, array.device) == ((2, 3), np.int16, 2, 12, 1)
    assert len(array) == 2
    assert repr(array) == "<DeviceArray int16[2,3] on GPU 1>"
    made = twice()(sx.gpu.put(X))
    assert repr(made) == "<DeviceArray float32[40] on GPU 0, pending>"
    assert repr(made.block_until_ready()) == "<DeviceArray float32[40] on GPU 0>"
    with pytest.raises(TypeError, match="rank 0"):
        len(sx.gpu.put(1.5))


@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.bool_, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_there_and_back(dtype: Any) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    put = sx.gpu.put(array)
    np.testing.assert_array_equal(put.copy_to_host(), array, strict=True)
    assert np.asarray(put, np.complex128).dtype == np.complex128
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(put, copy=False)
    strided = np.arange(12).reshape(3, 4).astype(dtype)[::2, 1::2]
    np.testing.assert_array_equal(np.asarray(sx.gpu.put(strided)), strided)


def test_without_elements() -> None:
    empty = sx.gpu.put(np.zeros((0, 2), np.float32))
    assert np.asarray(empty).shape == (0, 2)
    assert empty.__cuda_array_interface__["data"] == (0, False)
    assert np.asarray(empty.copy()).shape == (0, 2)


def test_what_cannot_be_put() -> None:
    with pytest.raises(sx.ExecutionError, match="arrays of <U1 cannot be put on a GPU"):
        sx.gpu.put(np.array(["a"]))
    with pytest.raises(sx.ExecutionError, match="an array on GPU 0 came, where the program runs on GPU 1"):
        sx.gpu.put(sx.gpu.put(X), device=1)


@pytest.mark.parametrize("kind", [Foreign, WithInterface])
def test_arrays_that_are_there_are_used_where_they_are(kind: Any) -> None:
    x = sx.gpu.put(X)
    assert sx.gpu.put(x) is x
    same = sx.gpu.put(kind(x))
    assert same.address == x.address
    made = twice()(same)
    del same
    np.testing.assert_array_equal(np.asarray(made), X * 2 + 1)
    del x, made
    gc.collect()
    sx.gpu.release_memory()
    assert simulator.allocated_bytes() == 0


def test_a_host_array_of_a_program_takes_a_device_array_as_well() -> None:
    """A program for the CPU reads it as any array that numpy can read."""
    b = sx.XlaBuilder("host")
    program = sx.compile(b.build(b.parameter(0, sx.f32[40]) + 1.0))
    np.testing.assert_array_equal(program(sx.gpu.put(X)), X + 1)
