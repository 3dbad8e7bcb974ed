"""Devices and their host: queues and callbacks of each device, and what becomes of the others when one fails."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.distributed.test_execute import X, compiled, values


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets of a test are gone after it."""
    monkeypatch.setattr("stablexla.compiling.custom_calls.TARGETS", targets := {})
    monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)


def register(name: str, function: Callable[..., Any]) -> None:
    sx.register_custom_call(name, function)


def asked(b: sx.XlaBuilder, name: str = "ask") -> sx.XlaOp:
    """What the Python function of that name makes of the device's number."""
    return sx.custom_call(name, b.replica_id(), sx.f32[2], has_side_effect=True)


class TestQueues:
    def test_infeed_and_outfeed_are_each_devices_own(self) -> None:
        def echo(b: sx.XlaBuilder) -> sx.XlaOp:
            x = b.infeed(sx.f32[2])
            sx.outfeed(x + 1)
            return x

        executable = compiled(echo, replicas=2, partitions=2)
        for device in (3, 1, 0, 2):
            executable.transfer_to_infeed(X * device, device=device)
        assert values(executable.execute_replicated([[]] * 4)) == [[[d, 2 * d]] for d in range(4)]
        for device in (2, 0, 3, 1):
            assert executable.transfer_from_outfeed(device).tolist() == [device + 1, 2 * device + 1]

    def test_channels_with_the_caller_are_each_devices_own(self) -> None:
        def make(b: sx.XlaBuilder) -> list[sx.XlaOp]:
            got = sx.recv_from_host(b.create_token(), sx.f32[2], 4)
            x, token = sx.get_tuple_element(got, 0), sx.get_tuple_element(got, 1)
            sx.send_to_host(x * 2, token, sx.f32[2], 5)
            return [x]

        executable = compiled(make)
        for device in (1, 0):
            executable.transfer_to_channel(4, X + device, device=device)
        assert values(executable.execute_replicated([[], []])) == [[[1, 2]], [[2, 3]]]
        assert [executable.transfer_from_channel(5, device=d).tolist() for d in (1, 0)] == [[4, 6], [2, 4]]

    def test_saved_queues(self, tmp_path: Path) -> None:
        executable = compiled(lambda b: b.infeed(sx.f32[2]))
        executable.save(tmp_path / "feed.sxe")
        loaded = sx.load_executable(tmp_path / "feed.sxe")
        for device in (0, 1):
            loaded.transfer_to_infeed(X * device, device=device)
        assert values(loaded.execute_replicated([[], []])) == [[[0, 0]], [[1, 2]]]

    def test_an_empty_infeed_names_the_device(self) -> None:
        executable = compiled(lambda b: sx.all_reduce(b.infeed(sx.f32[2]), sx.add))
        executable.transfer_timeout = 0.05
        executable.transfer_to_infeed(X, device=0)
        with pytest.raises(sx.ExecutionError, match="infeed: nothing came within") as raised:
            executable.execute_replicated([[], []])
        assert "try: executable.transfer_to_infeed(value, device=1)" in str(raised.value)
        assert raised.value.__notes__ == ["on device 1 of program"]
        for device in (0, 1):
            executable.transfer_to_infeed(X, device=device)
        assert values(executable.execute_replicated([[], []])) == [[[2, 4]]] * 2

    @pytest.mark.parametrize("device", [2, -1, True, "0"])
    def test_there_is_no_such_device(self, device: Any) -> None:
        executable = compiled(lambda b: b.infeed(sx.f32[2]))
        with pytest.raises(sx.ExecutionError, match=r"there is no device .*; it runs on 2"):
            executable.transfer_to_infeed(X, device=device)

    def test_values_that_do_not_fit_name_the_device(self) -> None:
        executable = compiled(lambda b: b.infeed(sx.f32[2]))
        with pytest.raises(sx.ExecutionError, match="the infeed of device 1 takes float32"):
            executable.transfer_to_infeed(X[:1], device=1)
        executable.transfer_timeout = 0.01
        with pytest.raises(sx.ExecutionError, match="the program has no outfeed"):
            executable.transfer_from_outfeed(1)


class Special(BaseException):
    """No Exception."""


class TestFailures:
    @pytest.mark.parametrize("kind", [ValueError, Special, KeyboardInterrupt, sx.ExecutionError])
    @pytest.mark.parametrize("device", [0, 2])
    def test_the_others_are_stopped(self, kind: type[BaseException], device: int) -> None:
        wrong = [device]

        def ask(number: np.ndarray) -> np.ndarray:
            if int(number) in wrong:
                raise kind("no answer")
            return X * np.float32(number)

        register("ask", ask)
        executable = compiled(lambda b: sx.all_reduce(asked(b), sx.add), replicas=3)
        with pytest.raises(kind, match="no answer") as raised:
            executable.execute_replicated([[]] * 3)
        assert raised.value.__notes__ == [f"on device {device} of program"]
        wrong.clear()
        assert values(executable.execute_replicated([[]] * 3)) == [[[3, 6]]] * 3

    def test_those_in_queues_are_stopped(self) -> None:
        def ask(number: np.ndarray) -> np.ndarray:
            raise ValueError("no answer")

        register("ask", ask)

        def make(b: sx.XlaBuilder) -> sx.XlaOp:
            is_first = sx.eq(b.replica_id(), b.constant(np.uint32(0)))
            feed, question = sx.XlaBuilder("feed"), sx.XlaBuilder("question")
            feed.parameter(0, sx.f32[2])
            question.parameter(0, sx.f32[2])
            fed, answered = feed.build(feed.infeed(sx.f32[2])), question.build(asked(question))
            x = b.constant(X)
            return sx.conditional(is_first, x, answered, x, fed)

        executable = compiled(make, replicas=3)
        with pytest.raises(ValueError, match="no answer"):
            executable.execute_replicated([[]] * 3)

    def test_what_a_foreign_handler_says_names_the_device(self) -> None:
        from stablexla.targets.runtime.arguments import raise_ffi_failure

        with pytest.raises(sx.ExecutionError, match="custom call 'f' failed: no") as raised:
            raise_ffi_failure("f", "no")
        assert not hasattr(raised.value, "__notes__")  # nothing runs here

    def test_programs_within_programs(self) -> None:
        """A callback on a device runs another program, for one device and for several."""
        single = compiled(lambda b, x: x + 1, sx.f32[2], replicas=1)
        double = compiled(lambda b, x: sx.all_reduce(x, sx.add), sx.f32[2])

        def ask(number: np.ndarray) -> Any:
            x = X * np.float32(number)
            return single(double.execute_replicated([[x], [x]])[1][0])

        register("ask", ask)
        executable = compiled(lambda b: sx.all_reduce(asked(b), sx.add), replicas=3)
        assert values(executable.execute_replicated([[]] * 3)) == [[[9, 15]]] * 3

    def test_a_device_that_is_late(self) -> None:
        executable = compiled(lambda b: sx.all_reduce(b.infeed(sx.f32[2]), sx.add))
        executable.collective_timeout = 0.05
        executable.transfer_to_infeed(X, device=0)
        with pytest.raises(sx.CollectiveError, match="all_reduce") as raised:
            executable.execute_replicated([[], []])
        error = raised.value
        assert (error.group, error.arrived) == ((0, 1), (0,))
        assert list(error.missing) == [1]
        assert "test_execute_host.py" in error.place
        assert isinstance(error, sx.ExecutionError)
        lines = [line.split() for line in str(error).splitlines()]
        assert ["group", "devices", "0,", "1"] in lines
        assert ["arrived", "device", "0"] in lines
        assert [line[:2] for line in lines].count(["device", "1"]) == 1
        for device in (0, 1):
            executable.transfer_to_infeed(X, device=device)
        assert values(executable.execute_replicated([[], []])) == [[[2, 4]]] * 2

    @pytest.mark.parametrize("wrong", [0, -1, True, "1", float("inf"), float("nan")])
    def test_limits_that_are_none(self, wrong: Any) -> None:
        executable = compiled(lambda b: b.replica_id())
        assert executable.collective_timeout == 60
        with pytest.raises(sx.ExecutionError, match="collective_timeout is a number of seconds or None"):
            executable.collective_timeout = wrong
        executable.collective_timeout = None
        assert executable.collective_timeout is None
        assert values(executable.execute_replicated([[], []])) == [[0], [1]]


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("fed", [None, 0, 1])
def test_ctrl_c_stops_all_devices(fed: int | None) -> None:
    """The calling thread waits in a queue, in a collective, or in a queue while another waits in the collective."""
    executable = compiled(lambda b: sx.all_reduce(b.infeed(sx.f32[2]), sx.add))
    if fed is not None:
        executable.transfer_to_infeed(X, device=fed)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        executable.execute_replicated([[], []])
    timer.join()
    for device in (0, 1):
        executable.transfer_to_infeed(X, device=device)
    assert values(executable.execute_replicated([[], []])) == [[[2, 4]]] * 2
