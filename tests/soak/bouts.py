"""What happens to whole processes: forks of the one that soaks, and children that exit, are stopped or interrupted.

The children are this file, run as a program with the name of what they do.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable

import numpy as np

import stablexla as sx
from tests.soak.work import Work, X, equal
from tests.targets.runtime.test_stopping import ARRAYS, SCALAR

LIMIT = 120.0
"""Seconds for a child."""
MATRIX = np.eye(300, dtype=np.float32)


def fork(work: Work) -> None:
    """A fork runs a program and exits, while this process's threads go on."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of a process with threads
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(int(LIMIT))
            equal(work.small(X), X * 2)
            equal(work.large.execute([np.eye(512, dtype=np.float32)])[0][0, 1:], np.zeros(511, np.float32))
            os._exit(0)
        except BaseException:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code == 0, f"the fork ended with {code}"


def _start(name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.soak.bouts", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _ended(child: subprocess.Popen[str], code: int = 0) -> str:
    """What it printed after all that was read; checks its end."""
    out, err = child.communicate(timeout=LIMIT)
    assert (child.returncode, err) == (code, ""), f"exit code {child.returncode}: {err[-2000:]}"
    return out


def _line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def exit_in_the_middle(work: Work) -> None:
    """A process ends while its threads run programs."""
    child = _start("exits")
    assert _line(child) == "running"
    _ended(child, 3)


def suspended_and_continued(work: Work) -> None:
    """A process is stopped in the middle of a run, several times, and its results are right."""
    child = _start("counts")
    assert _line(child) == "running"
    for _ in range(10):
        os.kill(child.pid, signal.SIGSTOP)
        assert os.waitid(os.P_PID, child.pid, os.WSTOPPED) is not None
        os.kill(child.pid, signal.SIGCONT)
    assert _ended(child) == "right\n"


def bursts_of_interrupts(work: Work) -> None:
    """Each run of a process ends by a signal, of which several come at once."""
    child = _start("interrupted")
    for _ in range(10):
        assert _line(child) == "running"
        for _ in range(3):
            os.kill(child.pid, signal.SIGINT)
    assert _line(child) == "right"
    _ended(child)


BOUTS: tuple[Callable[[Work], None], ...] = (fork, exit_in_the_middle, suspended_and_continued, bursts_of_interrupts)


# ---- the children ----------------------------------------------------------------------------------------------------


def _exits() -> None:
    loop, kernels = sx.compile(SCALAR), sx.compile(ARRAYS)
    running = threading.Barrier(4)

    def run(number: int) -> None:
        running.wait()
        if number % 2:
            loop.execute([np.int32(-2)])
        else:
            kernels.execute([MATRIX, np.int32(-1)])

    for number in range(3):
        threading.Thread(target=run, args=(number,), daemon=True).start()
    running.wait()
    kernels.start([MATRIX, np.int32(-1)])
    print("running", flush=True)
    sys.exit(3)


def _counts() -> None:
    b = sx.XlaBuilder("counts")
    x = b.parameter(0, sx.f32[128, 128])
    state = sx.tuple([b.constant(np.int32(0)), x, x])
    step = lambda t: sx.tuple([t[0] + 1, sx.dot(t[1], t[2]), t[2]])  # noqa: E731
    program = sx.compile(b.build(sx.while_(lambda t: t[0] < 3000, step, state)))
    turn = np.roll(np.eye(128, dtype=np.float32), 1, 0)  # 128 of which are none
    print("running", flush=True)
    _, result, _ = program(turn)
    equal(result, np.linalg.matrix_power(turn, 3001 % 128))
    print("right", flush=True)


def _interrupted() -> None:
    """The first signal of a burst ends a run; the others, which may come between runs, are let go."""
    loop = sx.compile(SCALAR)
    is_running = threading.Event()

    def handle(number: int, frame: object) -> None:
        if is_running.is_set():
            is_running.clear()
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    for _ in range(10):
        try:
            is_running.set()
            print("running", flush=True)
            loop.execute([np.int32(-2)], time_limit=LIMIT)
        except KeyboardInterrupt:
            continue
    assert loop(np.int32(5)) == 5
    print("right", flush=True)


if __name__ == "__main__":
    {"exits": _exits, "counts": _counts, "interrupted": _interrupted}[sys.argv[1]]()
