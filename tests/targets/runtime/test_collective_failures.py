"""Runs over devices that end before their time: deadlocks, time limits, exceptions, Ctrl-C; and the runs after them."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets import runtime
from stablexla.targets.runtime import ArraySpec, CompiledFunction
from stablexla.targets.runtime._runtime import current_device, idle_device_threads, run_stopped
from tests.targets.runtime.device_programs import (
    Step,
    collective,
    config,
    devices_program,
    host,
    mask,
    run,
    values,
)
from tests.threads import in_threads

SPEC = ArraySpec("float32", (30_000,))
ROWS = values(np.random.default_rng(0), 8, 30_000)
ALL4 = (0, 1, 2, 3)
SUM = config("all_reduce", ["f32[30000]"], groups=[ALL4])
OTHER = config("collective_permute", ["f32[30000]"], pairs=[(0, 1), (1, 2), (2, 3), (3, 0)])
ADD = collective(0, [2], [0], "add_f32")


class Host:
    """Handlers that take and fill nothing."""

    def __init__(self, *handlers: Callable[[], object]) -> None:
        self.callbacks = [(lambda given, wanted, h=h: h(), (), ()) for h in handlers]


def four(*steps: Step, handlers: tuple[Callable[[], object], ...] = (), **more: Any) -> CompiledFunction:
    given = {"host": Host(*handlers)} if handlers else {}
    return devices_program([SPEC], [SPEC], steps, [SUM, OTHER], 4, **given, **more)


def fails(function: CompiledFunction, count: int = 4, **options: Any) -> sx.CollectiveError:
    with pytest.raises(sx.CollectiveError) as caught:
        run(function, ROWS[:count], **options)
    return caught.value


@pytest.fixture(autouse=True)
def all_is_given_back(nothing_leaks: None) -> Iterator[None]:
    """Every thread of a run waits for the next one afterwards, and the next one works."""
    function = four(ADD)
    run(function, ROWS)
    before = _busy_threads()
    yield
    for _ in range(200):  # a thread that was joined may be there for a moment more
        if _busy_threads() <= before:
            break
        time.sleep(0.005)
    assert _busy_threads() <= before
    wanted = ROWS[0] + ROWS[1] + ROWS[2] + ROWS[3]
    for (result,) in run(function, ROWS):
        np.testing.assert_array_equal(result, wanted)


def _busy_threads() -> int:
    return len(os.listdir("/proc/self/task")) - idle_device_threads()


# ---- devices that do not come ----------------------------------------------------------------------------------------


def test_a_device_that_has_finished() -> None:
    error = fails(four(collective(0, [2], [0], "add_f32", devices=mask(0, 1, 3))))
    assert error.operation == "all_reduce"
    assert "wait for others which do not come any more" in str(error)
    assert "model.py:10 in step" in error.place
    assert error.group == ALL4
    assert error.arrived == (0, 1, 3)
    assert error.missing == {2: "has finished"}


@pytest.mark.parametrize("repeats", [1, 30])
def test_devices_that_disagree_on_the_order(repeats: int) -> None:
    move = collective(1, [2], [0])
    good = [ADD, move] * repeats
    swapped = [collective(*s, devices=m) for m, order in ((7, (0, 1)), (8, (1, 0))) for s in (_step(n) for n in order)]
    error = fails(four(*good, *swapped))
    where = {0: "all_reduce", 1: "collective_permute"}
    number = next(n for n, name in where.items() if name == error.operation)
    present, absent = ((0, 1, 2), (3,)) if number == 0 else ((3,), (0, 1, 2))
    assert error.arrived == present
    assert sorted(error.missing) == list(absent)
    for text in error.missing.values():
        assert text.startswith(f"waits at {where[1 - number]} from model.py:")


def _step(number: int) -> tuple[int, list[int], list[int], str | None]:
    return number, [2], [0], "add_f32" if number == 0 else None


def test_a_loop_that_is_longer_on_one_device() -> None:
    error = fails(four(collective(0, [2], [0], "add_f32", repeats=5, more=1)))
    assert error.arrived
    assert set(error.missing.values()) == {"has finished, last seen at all_reduce from model.py:10 in step"}


def test_groups_that_do_not_need_the_one_that_fails() -> None:
    """The pairs that meet go on; the one that waits for a device that has finished does not."""
    whats = [config("all_reduce", ["f32[30000]"], groups=[(0, 1), (2, 3)])]
    step = collective(0, [2], [0], "add_f32", devices=mask(0, 1, 2))
    error = fails(devices_program([SPEC], [SPEC], [step], whats, 4))
    assert error.group == (2, 3)
    assert error.arrived == (2,)


def test_devices_of_another_process() -> None:
    function = four(ADD)
    with pytest.raises(ValueError, match="a device in another process, and MPI was not started"):
        function.place([1, 0, 1, 0], 1)
    assert len(function.execute_replicated([[row] for row in ROWS[:4]])) == 4


def test_the_time_limit_names_who_is_late() -> None:
    gate = threading.Event()
    function = four(host(0, devices=mask(1)), ADD, handlers=(lambda: gate.wait(30),))
    opener = threading.Timer(0.5, gate.set)
    opener.start()
    error = fails(function, time_limit=0.05)
    opener.join()
    assert "has waited for 0.05 s" in str(error)
    assert set(error.arrived) <= {0, 2, 3}
    assert error.missing[1] == "has come to no collective yet"


def test_no_limit_and_a_long_one() -> None:
    for limit in (None, 1e12, 30):
        results = run(four(ADD), ROWS, time_limit=limit)
        assert len(results) == 4


# ---- exceptions ------------------------------------------------------------------------------------------------------


class Special(Exception):
    pass


@pytest.mark.parametrize("culprit", range(4))
@pytest.mark.parametrize("kind", [Special, KeyboardInterrupt, SystemExit])
def test_an_exception_stops_all_devices(culprit: int, kind: type[BaseException]) -> None:
    seen = []

    def fail() -> None:
        seen.append(current_device())
        assert not run_stopped()
        raise kind("what I say")

    step = host(0, devices=mask(culprit))
    function = four(ADD, step, ADD, handlers=(fail,))
    for _ in range(3):
        with pytest.raises(kind, match="what I say"):
            run(function, ROWS)
    assert seen == [culprit] * 3


def test_the_first_exception_is_the_callers() -> None:
    order: list[int] = []
    first = threading.Event()

    def fail() -> None:
        if current_device() == 2:
            order.append(2)
            first.set()
            raise Special("first")
        first.wait(30)
        while not run_stopped():
            time.sleep(0.001)
        raise Special("later")

    function = four(host(0, devices=mask(1, 2)), ADD, handlers=(fail,))
    with pytest.raises(Special, match="first"):
        run(function, ROWS)
    assert order == [2]


def test_exceptions_while_others_exchange_much() -> None:
    """Whoever is told to stop in the middle of a meeting must not leave those that read its arrays."""
    spec = ArraySpec("float32", (400_000,))
    pairs = config("all_reduce", ["f32[400000]"], groups=[(0, 1, 2)])
    calls = [0]

    def fail() -> None:
        calls[0] += 1
        time.sleep(0.0005 * (calls[0] % 20))
        raise Special

    steps = [collective(0, [2], [0], "add_f32", devices=7, repeats=200), host(0, devices=8)]
    function = devices_program([spec], [spec], steps, [pairs], 4, host=Host(fail))
    rows = values(np.random.default_rng(0), 4, 400_000)
    for _ in range(40):
        with pytest.raises(Special):
            run(function, rows)


def test_handlers_run_at_the_same_time() -> None:
    """Each waits for the others, so that they have to be on threads of their own."""
    barrier, seen = threading.Barrier(4), []

    def meet() -> None:
        barrier.wait(30)
        seen.append((current_device(), threading.get_ident()))

    function = four(host(0), handlers=(meet,))
    for _ in range(3):
        seen.clear()
        run(function, ROWS)
        assert sorted(d for d, _ in seen) == list(ALL4)
        assert len({ident for _, ident in seen}) == 4
        assert (0, threading.get_ident()) in seen


def test_a_run_inside_of_a_run() -> None:
    inner = four(ADD)
    seen = []

    def again() -> None:
        outer = current_device()
        results = run(inner, ROWS)
        seen.append((outer, current_device(), len(results)))

    run(four(ADD, host(0), ADD, handlers=(again,)), ROWS)
    assert sorted(seen) == [(d, d, 4) for d in range(4)]


def test_the_inner_run_stops_with_the_outer_one() -> None:
    waits, inside = threading.Event(), threading.Event()

    def stuck() -> None:
        inside.set()
        while not run_stopped():
            time.sleep(0.001)

    inner = four(host(0, devices=mask(3)), ADD, handlers=(stuck,))

    def nested() -> None:
        run(inner, ROWS)

    def fail() -> None:
        inside.wait(30)
        raise Special

    outer = four(host(0, devices=mask(1)), host(1, devices=mask(2)), ADD, handlers=(nested, fail))
    with pytest.raises(Special):
        run(outer, ROWS)
    waits.set()


def test_runs_of_several_threads_at_once() -> None:
    function, wanted = four(ADD, collective(1, [0], [2]), ADD), np.float32(4) * (ROWS[0] + ROWS[1] + ROWS[2] + ROWS[3])
    bad = four(collective(0, [2], [0], "add_f32", devices=mask(0)))

    def work(which: int) -> None:
        for _ in range(25):
            if which == 3:
                fails(bad)
                continue
            for (result,) in run(function, ROWS[:4].copy()):
                np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-3)

    in_threads(work, range(4))


# ---- signals, forks, and wrong calls ---------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["collective", "end"])
def test_ctrl_c_stops_all_devices(where: str) -> None:
    """The calling thread waits, at a collective or for the others to end, while a handler of device 3 runs on."""

    def stuck() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        while not run_stopped():
            time.sleep(0.001)

    steps = [host(0, devices=mask(3))] + ([ADD] if where == "collective" else [])
    function = four(*steps, handlers=(stuck,))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run(function, ROWS)
    finally:
        signal.signal(signal.SIGINT, before)


FORK = """
import os, sys
sys.path.insert(0, sys.argv[1])
from tests.targets.runtime.device_programs import *
spec = ArraySpec("float32", (5,))
what = config("all_reduce", ["f32[5]"], groups=[(0, 1, 2)])
function = devices_program([spec], [spec], [collective(0, [2], [0], "add_f32")], [what], 3)
rows = np.ones((3, 5), np.float32)
def check():
    assert [r.tolist() for (r,) in run(function, rows)] == [[3.0] * 5] * 3
check()
child = os.fork()
check()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("good")
"""


def test_a_forked_child_has_threads_of_its_own() -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", FORK, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout == "good\n", done.stderr


def test_calls_that_do_not_fit() -> None:
    function = four(ADD)
    with pytest.raises(sx.ExecutionError, match=r"(?s)for 4 devices.*execute_replicated"):
        function(ROWS[0])
    with pytest.raises(sx.ExecutionError, match="program for 4 devices, but 5 rows"):
        function.execute_replicated([[r] for r in ROWS[:5]])
    with pytest.raises(sx.ExecutionError, match="0 rows"):
        function.execute_replicated([])
    with pytest.raises(ValueError, match="a process for each device"):
        function.place([0, 0, 0], 0)
    with pytest.raises(sx.ExecutionError, match="program: device 2: takes 1 argument"):
        function.execute_replicated([[ROWS[0]], [ROWS[0]], [], [ROWS[0]]])
    with pytest.raises(sx.ExecutionError, match="program: device 1: parameter 0 takes"):
        function.execute_replicated([[ROWS[0]], [ROWS[0][:3]], [ROWS[0]], [ROWS[0]]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op": "all_sum"}, "no collective all_sum"),
        ({"groups": ((0, 0),)}, "in two groups"),
        ({"groups": ((0, 9),)}, "a device that the program is not for"),
        ({"groups": ((0, -1),)}, "negative"),
        ({"groups": ((),)}, "without devices"),
        ({"inputs": ("f32",)}, "no type of an array"),
        ({"element_bytes": ()}, "not equally many"),
        ({"outputs": ("f32[29999]",)}, "reach outside"),
        ({"copies": (((30_000, 4), (4, 1), (4, 1), 4, 0),)}, "reach outside"),
        ({"copies": (((), (), (), 0, 0),)}, "no extents"),
    ],
)
def test_configurations_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        devices_program([SPEC], [SPEC], [ADD], [{**SUM, **changes}], 4)


def test_nothing_is_kept_alive() -> None:
    function = four(ADD)
    gc.collect()
    results = run(function, ROWS)
    before = runtime.pool_stats()["in_use_blocks"]
    del results
    gc.collect()
    assert runtime.pool_stats()["in_use_blocks"] == before - 4


END = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from tests.targets.runtime.device_programs import *
spec = ArraySpec("float32", (5,))
what = config("all_reduce", ["f32[5]"], groups=[(0, 1, 2)])
started = threading.Event()
class Host:
    callbacks = [(lambda given, wanted: started.set(), (), ())]
steps = [host(0), collective(0, [2], [0], "add_f32"), host(0)]
function = devices_program([spec], [spec], steps, [what], 3, host=Host())
def again():
    while True:
        run(function, np.ones((3, 5), np.float32))
for _ in range(3):
    threading.Thread(target=again, daemon=True).start()
started.wait(30)
print("good")
"""


@pytest.mark.parametrize("attempt", range(3))
def test_python_ends_while_devices_run(attempt: int) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-X", "faulthandler", "-c", END, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("good\n", 0), done.stderr
