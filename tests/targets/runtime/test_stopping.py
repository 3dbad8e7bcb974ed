"""Runs end at time limits, by cancellation and on Ctrl-C; what comes after works as before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.errors import ExecutionError
from stablexla.executable.executable import Executable
from stablexla.targets.runtime import get_num_threads, pool_stats, set_num_threads

# The value -2 goes round for ever, 0 comes back at once.
SCALAR = """
func.func @main(%x: tensor<i32>) -> tensor<i32> {
  %one = stablehlo.constant dense<1> : tensor<i32>
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r = stablehlo.while(%i = %x) : tensor<i32>
    cond {
      %p = stablehlo.compare LT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %j = stablehlo.xor %i, %one : tensor<i32>
      stablehlo.return %j : tensor<i32>
    }
  return %r : tensor<i32>
}
"""
# The same over arrays, whose kernels take the threads.
ARRAYS = """
func.func @main(%x: tensor<300x300xf32>, %n: tensor<i32>) -> tensor<300x300xf32> {
  %zero = stablehlo.constant dense<0> : tensor<i32>
  %r:2 = stablehlo.while(%i = %n, %a = %x) : tensor<i32>, tensor<300x300xf32>
    cond {
      %p = stablehlo.compare LT, %i, %zero : (tensor<i32>, tensor<i32>) -> tensor<i1>
      stablehlo.return %p : tensor<i1>
    } do {
      %b = stablehlo.dot %a, %x : (tensor<300x300xf32>, tensor<300x300xf32>) -> tensor<300x300xf32>
      %c = stablehlo.tanh %b : tensor<300x300xf32>
      stablehlo.return %i, %c : tensor<i32>, tensor<300x300xf32>
    }
  return %r#1 : tensor<300x300xf32>
}
"""
# A loop inside of a reduction's function, which is inside of a kernel.
IN_A_KERNEL = """
func.func @main(%x: tensor<64x4xf32>) -> tensor<64xf32> {
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %s = stablehlo.reduce(%x init: %zero) across dimensions = [1] : (tensor<64x4xf32>, tensor<f32>) -> tensor<64xf32>
    reducer(%a: tensor<f32>, %b: tensor<f32>) {
      %r:2 = stablehlo.while(%i = %a, %k = %b) : tensor<f32>, tensor<f32>
        cond {
          %p = stablehlo.compare LT, %i, %k : (tensor<f32>, tensor<f32>) -> tensor<i1>
          stablehlo.return %p : tensor<i1>
        } do {
          %j = stablehlo.negate %i : tensor<f32>
          stablehlo.return %j, %k : tensor<f32>, tensor<f32>
        }
      stablehlo.return %r#0 : tensor<f32>
    }
  return %s : tensor<64xf32>
}
"""
MATRIX = np.eye(300, dtype=np.float32)
CASES = {
    "scalar": (SCALAR, [np.int32(-2)], [np.int32(0)], "a loop at <text>:5"),
    "arrays": (ARRAYS, [MATRIX, np.int32(-1)], [MATRIX, np.int32(0)], "contraction_0 at <text>:10"),
    "in_a_kernel": (IN_A_KERNEL, [np.ones((64, 4), np.float32)], [np.zeros((64, 4), np.float32)], "general_0 at"),
}
Case = tuple[Executable, list[object], list[object], str]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    text, endless, short, place = CASES[request.param]
    return sx.compile(text), list(endless), list(short), place


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = get_num_threads()
    set_num_threads(request.param)
    yield request.param
    set_num_threads(before)


def works(executable: Executable, arguments: list[object]) -> None:
    """Check that a run which ends by itself does, and gives what the argument says."""
    (result,) = executable.execute(arguments)
    expected = np.asarray(arguments[0])
    np.testing.assert_array_equal(result, expected[:, 0] if expected.shape == (64, 4) else expected)


def test_a_time_limit_ends_a_run(case: Case, threads: int) -> None:
    executable, endless, short, place = case
    with pytest.raises(ExecutionError, match=r"main: the run has taken longer than its time limit of 0\.05 s") as error:
        executable.execute(endless, time_limit=0.05)
    assert f"\n  in {place}" in str(error.value)
    works(executable, short)
    assert len(executable.execute(short, time_limit=60)) == 1


def test_cancelling_from_another_thread(case: Case, threads: int) -> None:
    executable, endless, short, place = case
    run = executable.start(endless)
    with pytest.raises(TimeoutError, match=r"main: still running after 0\.01 s"):
        run.result(0.01)
    assert not run.done()
    assert repr(run) == "<Running main>"
    run.cancel()
    with pytest.raises(ExecutionError, match="main: the run was cancelled") as error:
        run.result(60)
    assert f"\n  in {place}" in str(error.value)
    assert run.done()
    assert repr(run) == "<Running main: main: the run was cancelled>"
    run.cancel()  # it has ended: nothing happens
    works(executable, short)


def test_other_runs_go_on(case: Case) -> None:
    executable, endless, short, _ = case
    first, second = executable.start(endless), executable.start(endless)
    first.cancel()
    with pytest.raises(ExecutionError, match="cancelled"):
        first.result(60)
    works(executable, short)
    assert not second.done()
    second.cancel()
    with pytest.raises(ExecutionError, match="cancelled"):
        second.result(60)


def test_memory_is_given_back(case: Case) -> None:
    executable, endless, short, _ = case
    works(executable, short)
    before = pool_stats()["in_use_bytes"]
    for _ in range(3):
        with pytest.raises(ExecutionError):
            executable.execute(endless, time_limit=0.01)
    assert pool_stats()["in_use_bytes"] == before


def test_a_run_cancelled_before_it_begins_does_not_run() -> None:
    executable = sx.compile(SCALAR)
    for _ in range(20):
        run = executable.start([np.int32(-2)])
        run.cancel()
        with pytest.raises(ExecutionError, match="cancelled"):
            run.result(60)


def test_what_has_ended_is_done() -> None:
    run = sx.compile(SCALAR).start([np.int32(3)], time_limit=60)
    assert run.result(60) == [np.int32(3)]
    run.cancel()
    assert run.result() == [np.int32(3)]
    assert repr(run) == "<Running main: done>"


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "1", True])
def test_what_is_no_time_limit(seconds: object) -> None:
    executable = sx.compile(SCALAR)
    for call in (executable.execute, executable.start):
        with pytest.raises(ExecutionError, match="time_limit is a number of seconds or None, not"):
            call([np.int32(0)], time_limit=seconds)  # type: ignore[operator]


def test_saved_programs_can_be_stopped(tmp_path: os.PathLike[str]) -> None:
    file = os.path.join(tmp_path, "loop.sxla")
    sx.compile(SCALAR).save(file)
    with pytest.raises(ExecutionError, match=r"time limit of 0\.05 s\n  in a loop at <text>:5"):
        sx.load_executable(file).execute([np.int32(-2)], time_limit=0.05)


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    """Send this process a SIGINT after a while; it raises KeyboardInterrupt, as on a terminal, if nobody handles it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:  # as in processes that a shell starts in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    try:
        yield
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_ctrl_c(case: Case, threads: int) -> None:
    executable, endless, short, _ = case
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), interrupted(0.05):
            executable.execute(endless, time_limit=60)
        works(executable, short)


def test_a_handler_that_returns_lets_the_run_go_on() -> None:
    executable = sx.compile(SCALAR)
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: seen.append(number))
    try:
        with interrupted(0.02), pytest.raises(ExecutionError, match="time limit"):
            executable.execute([np.int32(-2)], time_limit=0.5)
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == [signal.SIGINT]


def test_ctrl_c_in_another_thread_s_run_is_the_main_thread_s() -> None:
    run = sx.compile(SCALAR).start([np.int32(-2)])
    with pytest.raises(KeyboardInterrupt), interrupted(0.05):
        run.result(60)
    assert not run.done()
    run.cancel()
    with pytest.raises(ExecutionError, match="cancelled"):
        run.result(60)


REPLICAS = SCALAR.replace(
    "  return %r ",
    """  %s = "stablehlo.all_reduce"(%r) ({
    ^bb0(%a: tensor<i32>, %b: tensor<i32>):
      %t = stablehlo.add %a, %b : tensor<i32>
      stablehlo.return %t : tensor<i32>
  }) {replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>} : (tensor<i32>) -> tensor<i32>
  return %s """,
)


@pytest.fixture(scope="module")
def program() -> Executable:
    return sx.compile(REPLICAS, num_replicas=3)


class TestReplicas:
    """All devices end, wherever they are: in machine code, or waiting for the others."""

    # the endless device is the one of the calling thread, or another
    @pytest.mark.parametrize("values", [(-2, 0, 0), (0, -2, 0), (-2, -2, -2)])
    def test_a_time_limit(self, program: Executable, values: tuple[int, ...]) -> None:
        with pytest.raises(ExecutionError, match=r"main: the run has taken longer than its time limit of 0\.05 s"):
            program.execute_replicated([[np.int32(v)] for v in values], time_limit=0.05)
        assert program.execute_replicated([[np.int32(5)]] * 3) == [[15]] * 3

    @pytest.mark.parametrize("values", [(-2, 0, 0), (0, 0, -2)])
    def test_ctrl_c(self, program: Executable, values: tuple[int, ...]) -> None:
        with pytest.raises(KeyboardInterrupt), interrupted(0.05):
            program.execute_replicated([[np.int32(v)] for v in values], time_limit=60)
        assert program.execute_replicated([[np.int32(5)]] * 3) == [[15]] * 3

    def test_a_device_that_fails_ends_one_that_loops(self) -> None:
        def fail(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
            raise ValueError("no luck")

        sx.register_custom_call("test_stopping_fail", fail)
        b = sx.XlaBuilder("fails")
        x, is_first = b.parameter(0, sx.s32[()]), b.replica_id() == np.uint32(0)
        chosen = sx.conditional(
            is_first,
            x,
            lambda v: sx.custom_call("test_stopping_fail", [v], sx.s32[()]),
            x,
            lambda v: sx.while_(lambda i: i < 0, lambda i: i ^ 1, v),
        )
        program = sx.compile(b.build(chosen), num_replicas=2)
        with pytest.raises(ValueError, match="no luck"):
            program.execute_replicated([[np.int32(-2)], [np.int32(-2)]])


def test_a_limit_ends_programs_that_host_functions_run() -> None:
    inner = sx.compile(SCALAR)

    def run(x: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return inner(x)

    sx.register_custom_call("test_stopping_run", run)
    b = sx.XlaBuilder("outer")
    outer = sx.compile(b.build(sx.custom_call("test_stopping_run", [b.parameter(0, sx.s32[()])], sx.s32[()])))
    with pytest.raises(ExecutionError, match=r"time limit of 0\.05 s"):
        outer.execute([np.int32(-2)], time_limit=0.05)
    assert outer(np.int32(7)) == 7


def test_a_wait_for_the_infeed_ends() -> None:
    b = sx.XlaBuilder("waits")
    program = sx.compile(b.build(b.infeed(sx.f32[2]) * 2))
    with pytest.raises(ExecutionError, match=r"waits: the run has taken longer than its time limit of 0\.05 s"):
        program.execute([], time_limit=0.05)
    program.transfer_to_infeed(np.array([1, 2], np.float32))
    np.testing.assert_array_equal(program(), [2, 4])


CHILD = """
import os, signal, threading
import numpy as np
import stablexla as sx
from tests.targets.runtime.test_stopping import SCALAR
signal.signal(signal.SIGINT, signal.default_int_handler)
loop = sx.compile(SCALAR)
try:
    loop.execute([np.int32(-2)], time_limit=0.01)
except sx.ExecutionError:
    pass
child = os.fork()
threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
try:
    loop.execute([np.int32(-2)], time_limit=60)
except KeyboardInterrupt:
    if child == 0:
        os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_forked_child_can_be_stopped() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CHILD], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.stderr) == ("7\n", "")


ENDING = """
import numpy as np
import stablexla as sx
from tests.targets.runtime.test_stopping import SCALAR
loop = sx.compile(SCALAR)
runs = [loop.start([np.int32(-2)]) for _ in range(3)]
runs[0].cancel()
"""


def test_a_process_that_ends_ends_its_runs() -> None:
    done = subprocess.run([sys.executable, "-c", ENDING], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("change", [("%j :", "%i :"), ("return %r", "return %x")])
def test_loops_that_do_nothing_are_removed(change: tuple[str, str]) -> None:
    """Their values do not change, or are not read: as XLA:CPU does, though they would never end."""
    text = SCALAR.replace(*change)
    assert text != SCALAR
    assert sx.compile(text).execute([np.int32(-2)], time_limit=60) == [-2]
