"""Many runs of programs of several devices: the same bits each time, at the same time, and of donated arguments."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.distributed import model
from tests.distributed.harness import build, numbered, run, same
from tests.distributed.model import Grid

Results = list[list[np.ndarray]]


def floats(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
    """Sums whose result depends on their order."""
    total = sx.all_reduce(sx.exp(x), sx.add)
    return [
        total,
        sx.reduce_scatter(x * total, sx.add, 0, 8),
        sx.all_reduce(sx.reduce(x, b.constant(np.float32(0)), sx.add, (0, 1)), sx.add),
    ]


@pytest.fixture(scope="module")
def of_floats() -> tuple[sx.Executable, list[list[np.ndarray]]]:
    arguments = [[np.random.default_rng(d).standard_normal((8, 700)).astype(np.float32)] for d in range(8)]
    return sx.compile(build(floats, arguments[0]), num_replicas=8), arguments


def bits(results: Results) -> bytes:
    return b"".join(a.tobytes() for of_one in results for a in of_one)


def test_the_same_bits_every_time(of_floats: tuple[sx.Executable, Any]) -> None:
    executable, arguments = of_floats
    assert len({bits(executable.execute_replicated(arguments)) for _ in range(20)}) == 1


def test_the_order_of_the_sum_is_that_of_the_group(of_floats: tuple[sx.Executable, Any]) -> None:
    """Not only reproducible: what the model's fold gives, bit for bit."""
    x = [a for (a,) in of_floats[1]]
    run(lambda b, x: sx.all_reduce(x, sx.add), Grid(8), x, expected=[model.all_reduce(Grid(8), x, np.add)], against=[])


def test_runs_at_the_same_time(of_floats: tuple[sx.Executable, Any]) -> None:
    """Of one executable and of two, from several threads."""
    executable, arguments = of_floats
    x = numbered(Grid(3), (50,))
    other = sx.compile(build(lambda b, x: sx.all_gather(sx.all_reduce(x, sx.add), 0, 3), [x[0]]), num_replicas=3)
    right = bits(executable.execute_replicated(arguments))
    summed = np.concatenate([sum(x)] * 3)

    def one(i: int) -> None:
        if i % 3:
            assert bits(executable.execute_replicated(arguments)) == right
        else:
            same(other.execute_replicated([[a] for a in x]), [[summed]] * 3, "stablexla")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(one, range(60)))


def test_results_may_be_kept(of_floats: tuple[sx.Executable, Any]) -> None:
    """What one run gave is not changed by the next one."""
    executable, arguments = of_floats
    first = executable.execute_replicated(arguments)
    kept = bits(first)
    executable.execute_replicated([[a * 2] for (a,) in arguments])
    assert bits(first) == kept


def test_donated_arguments_are_read_by_others_first() -> None:
    """A result may take the memory of an argument only where no other device reads it any more."""
    grid, ring = Grid(4), ((0, 1), (1, 2), (2, 3), (3, 0))
    x = numbered(grid, (4, 3000))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        moved = sx.all_to_all(sx.collective_permute(x, ring), 0, 0, 4)
        state = sx.tuple((b.constant(np.int32(0)), moved))
        return sx.while_(
            lambda s: s[0] < 3, lambda s: sx.tuple((s[0] + 1, sx.all_reduce(s[1], lambda a, c: a - c))), state
        )[1]

    executable = sx.compile(build(program, [x[0]]), num_replicas=4)
    expected = model.all_to_all(grid, model.collective_permute(grid, x, ring), 0, 0, 4)
    for _ in range(3):
        expected = model.all_reduce(grid, expected, np.subtract)
    for _ in range(10):
        given = [[a.copy()] for a in x]
        same(executable.execute_replicated(given, donate=True), [[a] for a in expected], "stablexla")


def test_a_single_device_beside_many(of_floats: tuple[sx.Executable, Any]) -> None:
    """A program of one device runs in another thread meanwhile."""
    executable, arguments = of_floats
    b = sx.XlaBuilder("one")
    alone = sx.compile(b.build(sx.dot(b.parameter(0, sx.f32[64, 64]), b.constant(np.eye(64, dtype=np.float32)))))
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    right, wrong, done = bits(executable.execute_replicated(arguments)), [], threading.Event()

    def beside() -> None:
        while not done.is_set():
            if alone(x).tobytes() != x.tobytes():
                wrong.append("the single device's result")

    thread = threading.Thread(target=beside)
    thread.start()
    try:
        for _ in range(20):
            assert bits(executable.execute_replicated(arguments)) == right
    finally:
        done.set()
        thread.join(30)
    assert not wrong
