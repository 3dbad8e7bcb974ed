"""Python functions that programs call: exceptions, threads, memory, and programs inside of programs."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets import runtime
from stablexla.targets.runtime import ArraySpec, CompiledFunction
from tests.threads import in_threads

X = np.arange(4, dtype=np.float32)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stablexla.compiling.custom_calls.TARGETS", targets := {})
    monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)


def calling(function: Callable[..., Any], *, flush: bool = False) -> sx.Executable:
    """A program that calls it on its argument plus one, and adds one."""
    sx.register_custom_call("function", function)
    b = sx.XlaBuilder("program")
    x = b.parameter(0, sx.f32[4])
    root = sx.custom_call("function", x + 1, sx.f32[4]) + 1
    return sx.compile(b.build(root), options=sx.CompileOptions(flush_denormals=flush))


# ---- exceptions ------------------------------------------------------------------------------------------------------


class Special(Exception):
    pass


@pytest.mark.parametrize("kind", [Special, KeyboardInterrupt, SystemExit, MemoryError, sx.ExecutionError])
def test_exceptions_reach_the_caller_whole(kind: type[BaseException]) -> None:
    raised = []

    def fail(x: np.ndarray) -> np.ndarray:
        raised.append(kind("what I say"))
        raise raised[-1]

    run = calling(fail)
    for _ in range(3):
        with pytest.raises(kind) as caught:
            run(X)
        assert caught.value is raised[-1]
        assert "fail" in [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]


def test_the_program_stops_where_it_fails_and_the_next_run_works() -> None:
    steps: list[str] = []

    def step(x: np.ndarray, opaque: str) -> np.ndarray:
        steps.append(opaque)
        if opaque == "second" and len(steps) == 2:
            raise Special
        return x

    sx.register_custom_call("step", step)
    b = sx.XlaBuilder("program")
    x = b.parameter(0, sx.f32[4])
    for name in ("first", "second", "third"):
        x = sx.custom_call("step", x * 2, sx.f32[4], name, has_side_effect=True)
    run = sx.compile(b.build(x))
    with pytest.raises(Special):
        run(X)
    assert steps == ["first", "second"]
    assert run(X).tolist() == (X * 8).tolist()
    assert steps[2:] == ["first", "second", "third"]


def test_out_of_a_loop_inside_a_branch() -> None:
    def stop(x: np.ndarray) -> np.ndarray:
        if x[0] >= 3:
            raise StopIteration(x[0].item())
        return x + 1

    sx.register_custom_call("stop", stop)
    b = sx.XlaBuilder("program")
    x, p = b.parameter(0, sx.f32[4]), b.parameter(1, sx.pred[()])

    def forever(x: sx.XlaOp) -> sx.XlaOp:
        return sx.while_(lambda x: x[0] >= 0, lambda x: sx.custom_call("stop", x, sx.f32[4]), x)

    run = sx.compile(b.build(sx.conditional(p, x, forever, x, lambda x: x)))
    with pytest.raises(StopIteration, match="3"):
        run(X, True)
    assert run(X, False).tolist() == X.tolist()


def test_buffers_are_given_back() -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise Special

    run, good = calling(fail), calling(lambda x: x)
    gc.collect()
    before = runtime.pool_stats()["in_use_blocks"]
    for _ in range(100):
        with pytest.raises(Special):
            run(X)
        good(X)
    gc.collect()
    assert runtime.pool_stats()["in_use_blocks"] == before


def test_exceptions_of_threads_stay_in_their_threads() -> None:
    def fail(x: np.ndarray) -> np.ndarray:
        raise Special(int(x[0]))

    run = calling(fail)
    seen: dict[int, list[int]] = {}

    def work(number: int) -> None:
        seen[number] = []
        for _ in range(50):
            try:
                run(np.full(4, number, np.float32))
            except Special as error:
                seen[number].append(error.args[0])

    in_threads(work, range(6))
    assert seen == {i: [i + 1] * 50 for i in range(6)}


# ---- threads and nesting ---------------------------------------------------------------------------------------------


def test_two_calls_are_inside_at_once() -> None:
    """Each waits for the other inside of its function: the GIL is free, and nobody holds a lock."""
    barrier = threading.Barrier(2, timeout=30)

    def meet(x: np.ndarray) -> np.ndarray:
        barrier.wait()
        return x

    run = calling(meet)
    results: list[Any] = []
    in_threads(lambda _: results.append(run(X)), range(2))
    assert [r.tolist() for r in results] == [(X + 2).tolist()] * 2


def test_it_runs_on_the_thread_of_its_caller() -> None:
    seen = []
    run = calling(lambda x: (seen.append(threading.get_ident()), x)[1])
    run(X)
    assert seen == [threading.get_ident()]


def test_programs_inside_of_programs() -> None:
    inner = calling(lambda x: x * 2)
    outer = calling(lambda x: inner(x))
    assert outer(X).tolist() == ((X + 2) * 2 + 2).tolist()

    def fail(x: np.ndarray) -> np.ndarray:
        raise Special

    failing = calling(fail)

    def rescue(x: np.ndarray) -> np.ndarray:
        with pytest.raises(Special):
            failing(x)
        return x

    assert calling(rescue)(X).tolist() == (X + 2).tolist()


def test_a_program_that_calls_itself_without_end() -> None:
    programs: list[sx.Executable] = []
    programs.append(calling(lambda x: programs[0](x)))
    with pytest.raises(RecursionError):
        programs[0](X)


def test_python_computes_with_denormals_in_any_program() -> None:
    seen: list[bool] = []

    def halve(x: np.ndarray) -> np.ndarray:
        seen.append(bool(np.float32(1e-38) / np.float32(2) > 0))
        return x

    calling(halve, flush=True)(X)
    assert seen == [True]


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_views_that_are_kept_stay_readable() -> None:
    """What they hold is not said; that they may be read is."""
    kept: list[np.ndarray] = []
    run = calling(lambda x: (kept.append(x[1:]), x)[1])
    for i in range(50):
        run(X + i)
    del run
    gc.collect()
    runtime.trim_pool()
    assert [len(view.tolist()) for view in kept] == [3] * 50
    before = runtime.pool_stats()["in_use_blocks"]
    kept.clear()
    gc.collect()
    assert runtime.pool_stats()["in_use_blocks"] < before


def test_views_of_scalar_arguments_stay_readable() -> None:
    kept: list[np.ndarray] = []
    sx.register_custom_call("keep", lambda x: (kept.append(x), x)[1])
    b = sx.XlaBuilder("program")
    run = sx.compile(b.build(sx.custom_call("keep", b.parameter(0, sx.f32[()]), sx.f32[()])))
    assert run(2.5) == 2.5
    gc.collect()
    assert kept[0] == 2.5


def test_executables_and_functions_are_collected() -> None:
    class Function:
        def __call__(self, x: np.ndarray) -> np.ndarray:
            return x

    function = Function()
    run = calling(function)
    function.program = run  # type: ignore[attr-defined]  # a circle
    alive = weakref.ref(function)
    run(X)
    sx.register_custom_call("function", lambda x: x)
    del function, run
    gc.collect()
    assert alive() is None


class Calls:
    """A host for the native runtime alone."""

    def __init__(self, *callbacks: Any) -> None:
        self.callbacks = callbacks


def test_a_host_with_callbacks_of_the_wrong_form_is_refused() -> None:
    spec = ArraySpec("float32", (2,))
    with pytest.raises((TypeError, RuntimeError, IndexError)):
        CompiledFunction("program", 1, [spec], [spec], host=Calls((print,)))
    with pytest.raises(AttributeError):
        CompiledFunction("program", 1, [spec], [spec], host=object())


AT_EXIT = """
import threading, time
import numpy as np
import stablexla as sx

def slow(x):
    inside.set()
    while True:
        time.sleep(0.001)

inside = threading.Event()
sx.register_custom_call("slow", slow)
sx.register_custom_call("fast", lambda x: x)
def program(name):
    b = sx.XlaBuilder(name)
    return sx.compile(b.build(sx.custom_call(name, b.parameter(0, sx.f32[4]), sx.f32[4])))
slow_program, fast_program = program("slow"), program("fast")
x = np.ones(4, np.float32)
def again():
    while True:
        fast_program(x)
for target in (lambda: slow_program(x), again, again):
    threading.Thread(target=target, daemon=True).start()
inside.wait()
print("end")
"""


def test_python_may_end_while_functions_run() -> None:
    done = subprocess.run([sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")


# ---- random keys -----------------------------------------------------------------------------------------------------


def test_seeds() -> None:
    """What a seed does to random numbers is tested with these; here, that there is a place for it."""
    run = calling(lambda x: x)
    run.seed(5)
    run.seed(-1)
    with pytest.raises(TypeError):
        run.seed("text")  # type: ignore[arg-type]
