"""Calls of programs on the simulated driver: what goes in and comes out, donations, streams, threads, functions."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.runtime import _runtime
from tests.targets.gpu import simulated as simulator
from tests.targets.gpu.runtime import (
    Foreign,
    WithInterface,
    X,
    calls,
    compiled,
    donating,
    native,
    plus,
    simulated,
    twice,
)


@pytest.fixture(autouse=True, params=["at once", "when waited for"])
def driver(request: pytest.FixtureRequest) -> Iterator[Any]:
    with simulated(lazy=int(request.param != "at once")) as found:
        yield found


def same(array: object, wanted: Any) -> None:
    np.testing.assert_array_equal(np.asarray(array), wanted, strict=True)


def test_host_arrays_in_host_arrays_out() -> None:
    made = twice()(X)
    assert type(made) is np.ndarray
    same(made, X * 2 + 1)
    total, difference = plus()(X, X[::-1])
    same(total, X + X[::-1])
    same(difference, X - X[::-1])


def test_a_large_argument() -> None:
    large = np.arange(1 << 17, dtype=np.float32)
    same(compiled(lambda b, x: sx.slice(x, (5,), (45,), (1,)), large)(large), large[5:45])


def test_device_arrays_in_device_arrays_out(driver: Any) -> None:
    x = sx.gpu.put(X)
    before = calls(driver, "cuMemcpyDtoHAsync_v2")
    y = twice()(x)
    assert isinstance(y, sx.gpu.DeviceArray)
    total, difference = plus()(y, x)
    assert calls(driver, "cuMemcpyDtoHAsync_v2") == before
    same(total, X * 3 + 1)
    same(difference, X + 1)


def test_one_device_array_is_enough() -> None:
    total, _ = plus()(X, sx.gpu.put(X))
    assert isinstance(total, sx.gpu.DeviceArray)
    same(total, X + X)


def test_a_large_host_array_may_change_after_a_call_on_the_device() -> None:
    large, offset = np.arange(1 << 17, dtype=np.float32), np.float32(3)
    program = compiled(lambda b, x, y: (x + y, x), large, offset)
    given = large.copy()
    made, same_elements = program(given, sx.gpu.put(offset))
    given[:] = -1
    same(made, large + 3)
    same(same_elements, large)


def test_numbers_beside_device_arrays() -> None:
    scaled = compiled(lambda b, x, s: x * s, X, np.float32(2))
    same(scaled(sx.gpu.put(X), 3.0), X * 3)
    same(scaled(X, 0.5), X / 2)


def test_a_call_on_the_device_does_not_wait(driver: Any) -> None:
    x = sx.gpu.put(X)
    twice()(x)
    before = [calls(driver, f"cu{what}Synchronize") for what in ("Stream", "Ctx", "Event")]
    y = twice()(twice()(x))
    assert [calls(driver, f"cu{what}Synchronize") for what in ("Stream", "Ctx", "Event")] == before
    assert y.block_until_ready() is y
    assert y.is_ready


def test_arguments_of_calls_that_still_run_may_go() -> None:
    x = sx.gpu.put(X)
    made = twice()(x)
    del x
    for _ in range(3):
        made = twice()(made)
        sx.gpu.put(np.full(40, -1, np.float32))
    same(made, X * 16 + 15)


def test_without_elements() -> None:
    empty = np.zeros((0, 3), np.float32)
    program = compiled(lambda b, x, y: (x + 1.0, y + 1.0), empty, X)
    same(program(empty, X)[0], empty)
    same(program(sx.gpu.put(empty), X)[0], empty)


def test_constants() -> None:
    program = compiled(lambda b, x: x + b.constant(X * 10), X)
    same(program(X), X * 11)
    same(program(sx.gpu.put(X)), X * 11)
    assert program.constant_bytes == X.nbytes


def test_a_donated_argument_gives_its_memory() -> None:
    x, y = sx.gpu.put(X), sx.gpu.put(X)
    address = x.address
    (made,) = donating().execute([x, y], donate=True)
    assert made.address == address
    same(made, X * 3)
    (other,) = donating().execute([y, made])
    assert other.address not in (y.address, made.address)


def test_a_donated_argument_that_is_needed_elsewhere_does_not() -> None:
    x = sx.gpu.put(X)
    (made,) = donating().execute([x, x], donate=True)
    assert made.address != x.address
    same(made, X * 3)
    same(x, X)


def test_a_donated_argument_waits_for_what_reads_it_on_its_own_stream() -> None:
    x, y = sx.gpu.put(X), sx.gpu.put(X)
    first = twice()(x)
    with sx.gpu.stream(sx.gpu.Stream()):
        (made,) = donating().execute([x, y], donate=True)
        assert made.address == x.address
        same(made, X * 3)
    same(first, X * 2 + 1)


def test_a_donated_argument_that_others_may_still_read_does_not() -> None:
    x = sx.gpu.put(X)
    x.__dlpack__(stream=-1)  # dropped, by somebody whose stream is not known
    (made,) = donating().execute([x, X], donate=True)
    assert made.address != x.address
    same(made, X * 3)


def test_a_donated_argument_of_another_library_gives_its_memory() -> None:
    x = sx.gpu.put(X)
    (made,) = donating().execute([Foreign(x), X], donate=True)
    assert made.address == x.address
    del x
    same(made, X * 3)


@pytest.mark.parametrize("version", [True, False], ids=["DLPack 1", "older"])
def test_arrays_of_another_library(version: bool) -> None:
    foreign = Foreign(sx.gpu.put(X), version)
    same(twice()(foreign), X * 2 + 1)
    assert foreign.streams == [sx.gpu.current_stream().handle]


def test_arrays_by_cuda_array_interface() -> None:
    x = sx.gpu.put(X)
    same(twice()(WithInterface(x)), X * 2 + 1)
    same(twice()(WithInterface(x, stream=1, strides=(4,))), X * 2 + 1)


def test_an_array_of_another_library_lives_until_the_program_is_done() -> None:
    x = sx.gpu.put(np.concatenate([X, X]))
    foreign = WithInterface(x, shape=(40,))
    made = twice()(foreign)
    del foreign, x
    same(made, X * 2 + 1)


def test_an_array_at_an_odd_place_is_copied() -> None:
    x = sx.gpu.put(np.arange(48, dtype=np.float32))
    same(twice()(WithInterface(x, shape=(40,), data=(x.address + 4, False))), (X + 1) * 2 + 1)


def test_streams() -> None:
    x = sx.gpu.put(X)
    one, two = sx.gpu.Stream(), sx.gpu.Stream()
    with sx.gpu.stream(one) as inside:
        assert inside is one
        assert sx.gpu.current_stream().handle == one.handle
        y = twice()(x)
    with sx.gpu.stream(two):
        z, _ = plus()(y, x)
    same(plus()(z, y)[1], X)
    assert sx.gpu.current_stream().handle not in (one.handle, two.handle)


def test_memory_that_another_stream_reads_is_not_used_again() -> None:
    x = twice()(sx.gpu.put(X))
    with sx.gpu.stream(sx.gpu.Stream()):
        made = twice()(x)
        for _ in range(3):
            made = twice()(made)
    del x
    for _ in range(4):
        twice()(sx.gpu.put(np.zeros(40, np.float32)))
    same(made, (X * 2 + 1) * 16 + 15)


def test_streams_of_others() -> None:
    stream = sx.gpu.Stream()
    x = sx.gpu.put(X)
    with sx.gpu.stream(stream.handle) as inside:
        assert inside.handle == stream.handle
        made = twice()(twice()(x))
    del x
    same(made, X * 4 + 3)

    class Torch:
        cuda_stream, device_index = stream.handle, 0

    with sx.gpu.stream(Torch()):
        same(twice()(X), X * 2 + 1)
    with pytest.raises(sx.ExecutionError, match="a str is no stream"), sx.gpu.stream("default"):
        pass


def test_the_default_stream_of_others() -> None:
    """Torch knows it as 0, which DLPack refuses."""
    foreign = Foreign(sx.gpu.put(X))
    with sx.gpu.stream(0):
        same(twice()(foreign), X * 2 + 1)
    assert foreign.streams == [1]


def test_a_stream_waits_and_is_waited_for() -> None:
    one, two = sx.gpu.Stream(), sx.gpu.Stream()
    with sx.gpu.stream(one):
        made = twice()(sx.gpu.put(X))
    two.wait_for(one)
    two.synchronize()
    assert two.is_idle
    assert made.is_ready
    assert repr(one) == f"<Stream {one.handle:#x} on GPU 0>"


def test_another_device() -> None:
    x = sx.gpu.put(X, device=1)
    made = twice()(x)
    assert made.device == 1
    same(made, X * 2 + 1)
    with sx.gpu.stream(sx.gpu.Stream(device=1)):
        same(twice()(X), X * 2 + 1)


def test_several_threads() -> None:
    twice()(X)
    failed = []

    def work(start: float) -> None:
        try:
            x = sx.gpu.put(X + np.float32(start))
            for _ in range(5):
                same(twice()(twice()(x)), (X + np.float32(start)) * 4 + 3)
                same(twice()(X), X * 2 + 1)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_the_time_of_each_launch() -> None:
    times = native(twice()).launch_times([X])
    assert len(times) == 1
    assert times[0][0] in dict(native(twice()).kernels)
    assert times[0][1] >= 0


def test_a_copy_on_the_device(driver: Any) -> None:
    x = twice()(sx.gpu.put(X))
    copy = x.copy()
    assert copy.address != x.address
    del x
    same(copy, X * 2 + 1)


def test_a_function_of_the_host() -> None:
    kept: list[np.ndarray[Any, Any]] = []

    def half(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        kept.append(x)
        return x / 2

    sx.register_custom_call("test_runtime_calls_half", half)
    try:
        with pytest.warns(UserWarning, match="on the host"):
            program = compiled(lambda b, x: sx.custom_call("test_runtime_calls_half", [x + 1.0], x.shape) * 4.0, X)
        same(program(X), (X + 1) * 2)
        same(program(sx.gpu.put(X * 3)), (X * 3 + 1) * 2)
        same(kept[0], X + 1)
        same(kept[1], X * 3 + 1)
    finally:
        sx.unregister_custom_call("test_runtime_calls_half")


def test_functions_of_the_host_in_a_loop_use_the_same_memory(driver: Any) -> None:
    kept: list[np.ndarray[Any, Any]] = []

    def add_one(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        if x[0] == 5:
            kept.append(x)
        return x + 1

    def turn(state: sx.XlaOp) -> sx.XlaOp:
        return sx.tuple((state[0] + 1, sx.custom_call("test_runtime_calls_add", [state[1]], state[1].shape)))

    def loop(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        start = sx.tuple((b.constant(0, "s32"), x))
        return sx.while_(lambda state: sx.lt(state[0], state.builder.constant(40, "s32")), turn, start)[1]

    sx.register_custom_call("test_runtime_calls_add", add_one)
    try:
        with pytest.warns(UserWarning, match="on the host"):
            program = compiled(loop, X)
        same(program(sx.gpu.put(X)), X + 40)
        same(kept[0], X + 5)
        assert driver.simulator_host_bytes() < 40 * 4096
    finally:
        sx.unregister_custom_call("test_runtime_calls_add")


def test_what_a_function_of_the_host_raises() -> None:
    def fail(x: Any) -> Any:
        raise ZeroDivisionError("on purpose")

    sx.register_custom_call("test_runtime_calls_fail", fail)
    try:
        with pytest.warns(UserWarning, match="on the host"):
            program = compiled(lambda b, x: sx.custom_call("test_runtime_calls_fail", [x], x.shape), X)
        for given in (X, sx.gpu.put(X)):
            with pytest.raises(ZeroDivisionError, match="on purpose"):
                program(given)
    finally:
        sx.unregister_custom_call("test_runtime_calls_fail")
    same(twice()(X), X * 2 + 1)


def test_everything_is_given_back(driver: Any) -> None:
    program = compiled(lambda b, x, y: (x + y * b.constant(X), x - y), X, X)
    x = sx.gpu.put(X)
    with sx.gpu.stream(sx.gpu.Stream()):
        y = program(x, X)
    z = program(Foreign(y[0]), y[1])
    capsule = z[0].__dlpack__(stream=1)
    program(X, X)
    with pytest.raises(sx.ExecutionError):
        program(x, X[:3])
    del x, y, z, capsule, program
    sx.gpu.release_memory()
    assert simulator.allocated_bytes() == 0
    assert driver.simulator_host_bytes() == 0
    assert sx.gpu.memory().in_use == 0
    assert sx.gpu.memory().blocks == 0


def test_memory_is_counted() -> None:
    before = sx.gpu.memory()
    x = sx.gpu.put(X)
    now = sx.gpu.memory()
    assert (now.in_use - before.in_use, now.blocks - before.blocks) == (X.nbytes, 1)
    assert now.peak >= now.in_use
    assert now.total >= now.free > 0
    del x
    assert sx.gpu.memory().in_use == before.in_use


def test_a_fresh_driver_loads_programs_anew(driver: Any) -> None:
    twice()(X)
    _runtime.use_cuda_driver(str(simulator.library()))
    before = calls(driver, "cuModuleLoadDataEx")
    twice()(X)
    twice()(X)
    assert calls(driver, "cuModuleLoadDataEx") == before + 1
