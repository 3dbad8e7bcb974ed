"""One process of many in which something goes wrong; each writes what it met into a file of its own.

A scenario is a function of the process's number and how many there are; what it returns is what the test reads.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx

X = np.ones(3, np.float32)
LIMIT = 3.0


def two_collectives(n: int) -> Any:
    """An all_reduce, and an all_gather behind it."""
    b = sx.XlaBuilder("two")
    summed = sx.all_reduce(b.parameter(0, sx.f32[3]), sx.add)
    return compiled(b.build(sx.all_gather(summed, 0, n)), n)


def after_a_host_call(n: int, function: Callable[..., Any]) -> Any:
    """An all_reduce of what a function of the host gives."""
    sx.register_custom_call("mpi_host", function)
    b = sx.XlaBuilder("host")
    given = b.custom_call("mpi_host", [b.parameter(0, sx.f32[3])], sx.f32[3])
    return compiled(b.build(sx.all_reduce(given, sx.add)), n)


def compiled(program: sx.XlaComputation, n: int) -> Any:
    executable = sx.compile(program, num_replicas=n)
    executable.collective_timeout = LIMIT
    return executable


def met(run: Callable[[], Any]) -> str:
    """The CollectiveError or other error that a run ends with, as text.

    The time is no measurement: it bounds a hang, and is far above what a process takes that waits for the limit.
    """
    begin = time.monotonic()
    try:
        run()
    except Exception as error:
        assert time.monotonic() - begin < LIMIT + 5, "it took too long"
        return f"{type(error).__name__}: {error}"
    return "no error"


def raises(rank: int, size: int) -> str:
    """One process raises in a function of the host; the next run, of another program, works."""

    def function(x: np.ndarray) -> np.ndarray:
        if rank == 1:
            raise ValueError("no luck")
        return x

    executable = after_a_host_call(size, function)
    text = met(lambda: executable.execute_replicated([[X]] * size))
    made = two_collectives(size).execute_replicated([[X]] * size)
    assert made[0][0].tolist() == [size] * 3 * size
    return text


def raises_last(rank: int, size: int) -> str:
    """One process raises behind the last collective, where the others are through; the program can run again."""
    luck = [False]

    def function(x: np.ndarray) -> np.ndarray:
        if rank == 1 and not luck[0]:
            raise ValueError("no luck")
        return x

    sx.register_custom_call("mpi_last", function)
    b = sx.XlaBuilder("last")
    summed = sx.all_reduce(b.parameter(0, sx.f32[3]), sx.add)
    executable = compiled(b.build(b.custom_call("mpi_last", [summed], sx.f32[3])), size)
    text = met(lambda: executable.execute_replicated([[X]] * size))
    luck[0] = True
    made = executable.execute_replicated([[X]] * size)
    assert made[0][0].tolist() == [size] * 3
    return text


def refused(rank: int, size: int) -> str:
    """The arguments of one process do not fit; the others hear of it at once, and the program can run again."""
    b = sx.XlaBuilder("refused")
    pair = b.parameter(0, sx.Shape.tuple((sx.f32[3], sx.f32[3])))
    executable = compiled(b.build(sx.all_reduce(pair[0] + pair[1], sx.add)), size)
    wrong: tuple[tuple[np.ndarray, ...], ...] = ((X, np.zeros(4, np.float32)), (X,))  # seen by the runtime, and before
    texts = []
    for arguments in wrong:
        given = arguments if rank == 1 else (X, X)
        texts.append(met(functools.partial(executable.execute_replicated, [[given]] * size)))
    made = executable.execute_replicated([[(X, X)]] * size)
    assert made[0][0].tolist() == [2 * size] * 3
    return "\n---\n".join(texts)


def overtaken(rank: int, size: int) -> str:
    """A sender has given up, and has other data where it had the array, when its receiver comes."""
    count = 1 << 22
    given_up = Path(sys.argv[1]) / "given_up"

    def function(x: np.ndarray) -> np.ndarray:
        end = time.monotonic() + 60
        while rank == 1 and not given_up.exists() and time.monotonic() < end:
            time.sleep(0.01)
        return x

    sx.register_custom_call("mpi_late", function)
    b = sx.XlaBuilder("overtaken")
    given = b.custom_call("mpi_late", [b.parameter(0, sx.f32[1])], sx.f32[1])
    big = sx.broadcast_in_dim(sx.reshape(given, []), (count,), [])
    executable = compiled(b.build(sx.collective_permute(big, [(0, 1)])), size)
    executable.collective_timeout = 0.3 if rank == 0 else 10.0
    b = sx.XlaBuilder("others")
    others = sx.compile(b.build(b.parameter(0, sx.f32[count]) + 1.0))
    found: list[Any] = []
    text = met(lambda: found.extend(executable.execute_replicated([[X[:1]]] * size, gather=False)))
    if rank == 1 and found:
        text = "the sender's numbers" if (found[1][0] == X[0]).all() else "other numbers"
    kept = [others(np.full(count, 98, np.float32)) for _ in range(4)] if rank == 0 else []
    if rank == 0:
        given_up.touch()
    two_collectives(size).execute_replicated([[X]] * size)
    return text if not kept or text != "no error" else "the sender has not waited"


def limited(rank: int, size: int) -> str:
    """One process is in a loop that does not end, and has a time limit."""
    b = sx.XlaBuilder("limited")
    looped = sx.while_(lambda i: i < 0, lambda i: i ^ 1, b.parameter(0, sx.s32[()]))
    executable = compiled(b.build(sx.all_reduce(looped, sx.add)), size)
    limit = 0.2 if rank == 1 else None
    text = met(lambda: executable.execute_replicated([[np.int32(-2 if rank == 1 else 1)]] * size, time_limit=limit))
    assert executable.execute_replicated([[np.int32(1)]] * size) == [[size]] * size
    return text


def killed(rank: int, size: int) -> str:
    """One process is killed in the middle of a run."""

    def function(x: np.ndarray) -> np.ndarray:
        if rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    executable = after_a_host_call(size, function)
    return met(lambda: executable.execute_replicated([[X]] * size))


def leaves(rank: int, size: int) -> str:
    """One process ends without having run the program."""
    executable = two_collectives(size)
    return "" if rank == 1 else met(lambda: executable.execute_replicated([[X]] * size))


def differ(rank: int, size: int) -> str:
    """One process has another constant in its program; the next run, of one program, works."""

    def executable(factor: float) -> sx.Executable:
        b = sx.XlaBuilder("scaled")
        return compiled(b.build(sx.all_reduce(b.parameter(0, sx.f32[3]) * factor, sx.add)), size)

    said = met(lambda: executable(2.0 if rank == 1 else 1.0).execute_replicated([[X]] * size))
    np.testing.assert_array_equal(executable(2.0).execute_replicated([[X]] * size)[0][0], 2 * size * X)
    return said


def disagrees(rank: int, size: int) -> str:
    """Processes come to two collectives in another order, by a condition that differs."""
    b = sx.XlaBuilder("order")
    x = b.parameter(0, sx.f32[3])

    def gather_first(y: sx.XlaOp) -> sx.XlaOp:
        return sx.all_reduce(sx.all_gather(y, 0, size), sx.add)

    def reduce_first(y: sx.XlaOp) -> sx.XlaOp:
        return sx.all_gather(sx.all_reduce(y, sx.add), 0, size)

    made = sx.conditional(sx.lt(sx.reshape(sx.slice(x, [0], [1], [1]), []), 1.0), x, gather_first, x, reduce_first)
    executable = compiled(b.build(made), size)
    executable.collective_timeout = 60.0  # it is found out long before
    return met(lambda: executable.execute_replicated([[X * device] for device in range(size)]))


def never(rank: int, size: int) -> str:
    """One process computes for longer than the others wait, and finds out when it comes."""

    def function(x: np.ndarray) -> np.ndarray:
        if rank == 1:
            time.sleep(1.5)
        return x

    executable = after_a_host_call(size, function)
    executable.collective_timeout = 0.5
    return met(lambda: executable.execute_replicated([[X]] * size))


def unreceived(rank: int, size: int) -> str:
    """What device 0 sends is not received by device 1, which does nothing."""
    b = sx.XlaBuilder("sends")
    x = b.parameter(0, sx.f32[3])
    token = sx.send_with_token(x, b.create_token(), 1, [(0, 1)])
    executable = compiled(b.build(x), size)
    assert token is not None
    return met(lambda: executable.execute_replicated([[X]] * size))


def unsent(rank: int, size: int) -> str:
    """Device 1 receives from device 0, which sends nothing."""
    b = sx.XlaBuilder("receives")
    executable = compiled(b.build(b.recv(sx.f32[3], 1, [(0, 1)])), size)
    return met(lambda: executable.execute_replicated([[]] * size))


def shares(rank: int, size: int) -> str:
    """Devices that cannot be shared equally."""
    return met(lambda: two_collectives(size + 1).execute_replicated([[X]] * (size + 1)))


def placed(rank: int, size: int) -> str:
    """Lists of processes that cannot be, and a process that runs what is not on it."""
    executable = two_collectives(2)
    b = sx.XlaBuilder("one")
    one = sx.compile(b.build(b.parameter(0, sx.f32[3]) + 1))
    wrong = ((executable, [0]), (executable, [0, size]), (executable, [0, -1]), (executable, [0, 1.0]), (one, [0]))
    texts = [met(functools.partial(setattr, each, "processes", processes)) for each, processes in wrong]
    executable.processes = [1, 0]
    texts.append(met(lambda: executable.execute_replicated([[X], [X]])) if rank == 2 else "")
    texts.append(met(lambda: executable.check([[X], [X]])) if rank < 2 else "")
    if rank < 2:
        assert executable.execute_replicated([[X], [X]])[1][0].tolist() == [2] * 6
        with_checks = two_collectives(2)
        with_checks.processes = [0, 1]
        assert (with_checks.processes, with_checks.local_devices) == ((0, 1), (rank,))
    return "\n---\n".join(texts)


def late_to_the_first(rank: int, size: int) -> str:
    """One process comes to the first run on two of them when the other has given it up; the next run works."""
    if rank == 1:
        two_collectives(size).execute_replicated([[X]] * size)
        return ""
    executable = two_collectives(2)
    executable.processes = [0, 2]
    executable.collective_timeout = 0.3 if rank == 0 else LIMIT
    if rank == 2:
        two_collectives(size).execute_replicated([[X]] * size)
    text = met(lambda: executable.execute_replicated([[X], [X]]))
    if rank == 0:
        two_collectives(size).execute_replicated([[X]] * size)
    executable.collective_timeout = LIMIT
    assert executable.execute_replicated([[X], [2 * X]])[0][0].tolist() == [3] * 6
    return text


def refuses_the_first(rank: int, size: int) -> str:
    """The arguments of one process do not fit in the first run on two of them; the next run works."""
    if rank == 1:
        return ""
    executable = two_collectives(2)
    executable.processes = [2, 0]
    text = met(lambda: executable.execute_replicated([[X[:2] if rank == 2 else X], [X]]))
    assert executable.execute_replicated([[X], [X]])[0][0].tolist() == [2] * 6
    return text


def ring(rank: int, size: int) -> str:
    """Every two processes run a program of their own, each in two threads: nobody can be first everywhere."""
    made = []

    def work(pair: list[int]) -> None:
        for other in (pair, pair[::-1]):
            executable = two_collectives(2)
            executable.processes = other
            for i in range(20):
                (result,) = executable.execute_replicated([[X * i], [X * pair[0]]])[0]
                assert result.tolist() == [i + pair[0]] * 6
        made.append(pair)

    pairs = [[i, (i + 1) % size] for i in range(size)]
    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(work, pair) for pair in pairs if rank in pair]:
            done.result()
    return str(sorted(made))


def sizes(rank: int, size: int) -> str:
    """Results whose sizes differ by the device, of devices that processes have not equally many of."""
    executable = sx.compile(
        """func.func @main(%x: tensor<?xf32, #stablehlo.bounds<4>>) -> tensor<?xf32, #stablehlo.bounds<4>> {
          %0 = stablehlo.add %x, %x : tensor<?xf32, #stablehlo.bounds<4>>
          return %0 : tensor<?xf32, #stablehlo.bounds<4>>
        }""",
        num_replicas=4,
    )
    executable.processes = [2, 0, 0, 1]
    made = executable.execute_replicated([[np.full(d + 1, d, np.float32)] for d in range(4)])
    shaped = sx.compile(
        """func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> {
          %0 = "stablehlo.collective_permute"(%x) {source_target_pairs = dense<[[0, 1]]> : tensor<1x2xi64>}
            : (tensor<?xf32>) -> tensor<?xf32>
          return %0 : tensor<?xf32>
        }""",
        num_replicas=2,
    )
    for processes in ([2, 0], [0, 2]):  # of a program that is compiled after, and of one that was before
        shaped.processes = processes
        assert shaped.local_devices == tuple(d for d, process in enumerate(processes) if process == rank)
        if rank != 1:
            assert shaped.execute_replicated([[X * 7], [X]])[1][0].tolist() == [7] * 3
    return str([own.tolist() for (own,) in made])


def interrupted(rank: int, size: int) -> str:
    """Ctrl-C ends the wait for the others before a first run; the next run works."""
    executable = two_collectives(2)
    executable.processes = [0, 1]
    if rank == 0:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            executable.execute_replicated([[X], [X]])
    two_collectives(size).execute_replicated([[X]] * size)
    text = met(lambda: executable.execute_replicated([[X], [X]])) if rank == 1 else ""
    if rank < 2:
        assert executable.execute_replicated([[X], [X]])[0][0].tolist() == [2] * 6
    return text


_ALL = (
    raises,
    raises_last,
    refused,
    overtaken,
    differ,
    limited,
    killed,
    leaves,
    disagrees,
    never,
    unreceived,
    unsent,
    shares,
    placed,
    late_to_the_first,
    refuses_the_first,
    interrupted,
    ring,
    sizes,
)
SCENARIOS = {s.__name__: s for s in _ALL}


def main() -> None:
    world = sx.distributed.initialize()
    for name in sys.argv[2:]:
        text = SCENARIOS[name](world.rank, world.size)
        (Path(sys.argv[1]) / f"{name}{world.rank}").write_text(text)


if __name__ == "__main__":
    main()
