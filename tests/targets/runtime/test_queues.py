"""The queues of an executable: waiting with a limit and an end, many threads, what does not fit."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx

X = np.array([1, 2], np.float32)


def executable(make: Callable[[sx.XlaBuilder], Any]) -> sx.Executable:
    """It does not wait for long."""
    b = sx.XlaBuilder("program")
    root = make(b)
    made = sx.compile(b.build(sx.tuple(root) if isinstance(root, list | tuple) else root))
    made.transfer_timeout = 0.01
    return made


def echo(b: sx.XlaBuilder) -> sx.XlaOp:
    x = b.infeed(sx.f32[2])
    sx.outfeed(x + 1)
    return x


def test_an_empty_infeed_names_the_operation_and_its_line() -> None:
    made = executable(echo)
    with pytest.raises(sx.ExecutionError) as raised:
        made()
    message = str(raised.value)
    assert message.startswith("infeed: nothing came within 0.01 s: the infeed is empty\n  from ")
    assert "test_queues.py" in message
    assert "try: executable.transfer_to_infeed(value)" in message


def test_an_empty_outfeed() -> None:
    with pytest.raises(sx.ExecutionError, match=r"transfer_from_outfeed: nothing came within 0\.01 s"):
        executable(echo).transfer_from_outfeed()


def test_after_a_failure_the_next_run_works() -> None:
    made = executable(echo)
    for _ in range(3):
        with pytest.raises(sx.ExecutionError):
            made()
        made.transfer_to_infeed(X)
        assert made().tolist() == X.tolist()
        assert made.transfer_from_outfeed().tolist() == [2, 3]


def test_the_limit_is_a_property() -> None:
    made = executable(echo)
    assert made.transfer_timeout == 0.01
    made.transfer_timeout = None
    assert made.transfer_timeout is None
    assert executable(lambda b: b.constant(1)).transfer_timeout is not None


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("wait", ["infeed", "outfeed"])
def test_waiting_can_be_interrupted(wait: str) -> None:
    made = executable(echo)
    made.transfer_timeout = 60
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        made() if wait == "infeed" else made.transfer_from_outfeed()
    timer.join()
    made.transfer_to_infeed(X)
    assert made().tolist() == X.tolist()


def test_a_program_waits_for_data_and_its_caller_for_results() -> None:
    made = executable(echo)
    made.transfer_timeout = 30
    results = []
    thread = threading.Thread(target=lambda: results.append(made()))
    thread.start()
    made.transfer_to_infeed(X)
    assert made.transfer_from_outfeed().tolist() == [2, 3]
    thread.join()
    assert results[0].tolist() == X.tolist()


def test_many_threads_share_the_queues() -> None:
    made = executable(echo)
    made.transfer_timeout = 30
    seen: list[float] = []
    threads = [threading.Thread(target=lambda: seen.extend(made()[0] for _ in range(20))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for i in range(80):
        made.transfer_to_infeed(np.full(2, i, np.float32))
    came = sorted(made.transfer_from_outfeed()[0] for _ in range(80))
    for thread in threads:
        thread.join()
    assert sorted(seen) == list(range(80))
    assert came == [i + 1 for i in range(80)]


def test_items_are_copies() -> None:
    made = executable(echo)
    x = X.copy()
    made.transfer_to_infeed(x)
    x[:] = 9
    assert made().tolist() == X.tolist()
    first = made.transfer_from_outfeed()
    made.transfer_to_infeed(x)
    made()
    assert first.tolist() == [2, 3]
    assert first.flags.writeable


def test_numbers_and_other_arrays_are_taken() -> None:
    made = executable(lambda b: b.infeed(sx.f32[()]))
    for value in (2, 2.0, np.float32(2), np.array(2, np.float32), memoryview(np.array(2, np.float32))):
        made.transfer_to_infeed(value)
        assert made() == 2
    turned = executable(lambda b: b.infeed(sx.f32[2, 3]))
    x = np.arange(6, dtype=np.float32).reshape(3, 2).T
    turned.transfer_to_infeed(x)
    assert turned().tolist() == x.tolist()


PAIR = sx.Shape.tuple((sx.f32[2], sx.s32[()]))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (X.astype(np.float64), r"the infeed takes float32\[2\], but an array of float64\[2\] came"),
        (X[:1], r"the infeed takes float32\[2\], but an array of float32\[1\] came"),
        ((X, X), r"the infeed takes float32\[2\], but 2 arrays came"),
        (((X,),), "no nested tuples"),
        ("text", "a str came"),
    ],
)
def test_what_does_not_fit_is_refused_when_it_is_given(value: object, message: str) -> None:
    made = executable(echo)
    with pytest.raises(sx.ExecutionError, match=message):
        made.transfer_to_infeed(value)
    with pytest.raises(sx.ExecutionError, match="the infeed is empty"):
        made()


def test_tuples() -> None:
    made = executable(lambda b: b.infeed(PAIR))
    made.transfer_to_infeed((X, 3))
    x, number = made()
    assert (x.tolist(), int(number)) == ([1, 2], 3)
    with pytest.raises(sx.ExecutionError, match=r"takes \(float32\[2\],int32\[\]\)|takes \(float32\[2\], int32\[\]\)"):
        made.transfer_to_infeed(X)


def test_items_of_several_shapes() -> None:
    made = executable(lambda b: (b.infeed(sx.f32[2]), b.infeed(PAIR)))
    with pytest.raises(sx.ExecutionError, match=r"takes float32\[2\], or \(float32\[2\], int32\[\]\), and none"):
        made.transfer_to_infeed(X[:1])
    made.transfer_to_infeed((X, 3))
    with pytest.raises(sx.ExecutionError, match=r"the infeed holds \(float32\[2\], int32\[\]\), where float32\[2\]"):
        made()
    made.transfer_to_infeed(X)
    made.transfer_to_infeed((X, 3))
    assert made()[1][1] == 3


def test_programs_without_queues_and_devices_that_are_not_there() -> None:
    plain = executable(lambda b: b.constant(1))
    with pytest.raises(sx.ExecutionError, match="program: the program has no infeed"):
        plain.transfer_to_infeed(X)
    with pytest.raises(sx.ExecutionError, match="program: the program has no outfeed"):
        plain.transfer_from_outfeed()
    made = executable(echo)
    with pytest.raises(sx.ExecutionError, match="there is no device 1; it runs on 1"):
        made.transfer_to_infeed(X, device=1)
    with pytest.raises(sx.ExecutionError, match="there is no device -1"):
        made.transfer_from_outfeed(device=-1)


def test_each_executable_has_its_own() -> None:
    one, other = executable(echo), executable(echo)
    one.transfer_to_infeed(X)
    with pytest.raises(sx.ExecutionError):
        other()
    assert one().tolist() == X.tolist()
