"""The simulated driver's streams, events, pools and failures; and that work is done late where a program must wait."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys

import numpy as np
import pytest

if shutil.which("g++") is None:
    pytest.skip("no g++, with which the simulator is built", allow_module_level=True)

from tests.targets.gpu.ptx import kernel
from tests.targets.gpu.simulated import (
    Session,
    SimulatorError,
    allocated_bytes,
    driver,
    fail,
    run_ptx,
    settings,
    unwritten,
)

ADD = kernel("ld.global.u32 %r1, [%rd1]; add.u32 %r1, %r1, 1; st.global.u32 [%rd1], %r1;")


def pinned(count: int) -> tuple[ctypes.c_void_p, np.ndarray[tuple[int], np.dtype[np.uint32]]]:
    memory = ctypes.c_void_p()
    assert driver().cuMemHostAlloc(ctypes.byref(memory), ctypes.c_size_t(4 * count), 1) == 0
    assert memory.value is not None
    return memory, np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(memory.value))


def test_work_waits_until_it_is_waited_for() -> None:
    with settings(lazy=1) as found, Session() as session:
        memory, numbers = pinned(32)
        numbers[:] = 5
        stream, other, event = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        for made in (stream, other):
            assert found.cuStreamCreate(ctypes.byref(made), 1) == 0
        assert found.cuEventCreate(ctypes.byref(event), 2) == 0
        address = ctypes.c_uint64(session.allocate(128))
        assert found.cuMemcpyHtoDAsync_v2(address, memory, ctypes.c_size_t(128), stream) == 0
        numbers[:] = 7  # too early: the copy has not been waited for
        assert found.cuEventRecord(event, stream) == 0
        assert found.cuEventQuery(event) == 600
        assert found.cuStreamWaitEvent(other, event, 0) == 0
        assert found.cuMemcpyDtoHAsync_v2(memory, address, ctypes.c_size_t(128), other) == 0
        numbers[0] = 9
        assert found.cuStreamSynchronize(other) == 0
        assert (numbers == 7).all(), "the first copy was done at the question, the second one after the 9"
        for made in (stream, other):
            assert found.cuStreamDestroy_v2(made) == 0
        assert found.cuEventDestroy_v2(event) == 0
        assert found.cuMemFreeHost(memory) == 0
        session.free(address.value)
        assert found.simulator_handles() == found.simulator_host_bytes() == allocated_bytes() == 0


def test_the_host_cannot_touch_the_device() -> None:
    code = (
        "import ctypes; from tests.targets.gpu.simulated import Session\n"
        "with Session() as s: ctypes.string_at(s.allocate(64), 4)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -11


def test_out_of_memory() -> None:
    with settings(memory=1000), Session() as session:
        first = session.allocate(600)
        with pytest.raises(SimulatorError) as caught:
            session.allocate(600)
        assert caught.value.code == 2
        session.free(first)
        session.free(session.allocate(600))


def test_failures_on_request() -> None:
    with settings():
        fail("cuMemAlloc_v2", 2, 999)
        with Session() as session:
            session.allocate(8)
            with pytest.raises(SimulatorError) as caught:
                session.allocate(8)
            assert caught.value.code == 999
            session.allocate(8)


def test_a_fault_stays() -> None:
    with settings(), Session() as session:
        function = session.function(session.load(ADD), "test")
        with pytest.raises(SimulatorError) as caught:
            session.launch(function, (1,), (32,), [ctypes.c_uint64(64)])
        assert caught.value.code == 700
        with pytest.raises(SimulatorError) as caught:
            session.allocate(8)
        assert caught.value.code == 700


def test_devices_are_apart() -> None:
    with settings(devices=2) as found:
        with Session(0) as session:
            address = session.put(np.zeros(32, np.uint32))
            module = session.load(ADD)
        ordinal = ctypes.c_int(-1)
        assert found.cuPointerGetAttribute(ctypes.byref(ordinal), 9, ctypes.c_uint64(address)) == 0
        assert ordinal.value == 0
        with Session(1) as session, pytest.raises(SimulatorError):
            session.launch(session.function(module, "test"), (1,), (32,), [ctypes.c_uint64(address)])


def test_versions() -> None:
    with settings(driver=11080), pytest.raises(SimulatorError) as caught:
        run_ptx(ADD, "test", 1, 32, [np.zeros(32, np.uint32)])
    assert caught.value.code == 222
    with settings(chip=70), pytest.raises(SimulatorError, match="does not run on sm_70"):
        run_ptx(ADD, "test", 1, 32, [np.zeros(32, np.uint32)])


def test_launches() -> None:
    with pytest.raises(SimulatorError, match="threads in a block"):
        run_ptx(ADD, "test", 1, 2048, [unwritten(32, np.uint32)])
    with pytest.raises(SimulatorError) as caught:
        run_ptx(ADD, "other", 1, 32, [unwritten(32, np.uint32)])
    assert caught.value.code == 500
