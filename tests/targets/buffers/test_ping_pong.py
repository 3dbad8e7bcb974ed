"""Buffers that change places in loops: which ones, and that arrays are found where they went."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.buffers.buffer import Buffer
from stablexla.targets.buffers.ping_pong import copies_after_rotation, find_buffer_cycles
from stablexla.targets.pipeline.knobs import knobs

TURNS = (0, 1, 2, 3, 4, 5, 6, 13)


def circles(wanted: str, spare: str = "", sizes: str = "") -> list[str]:
    """Circles of buffers that are called by letters: "ab" says that the next value of a lies in b."""
    names = sorted({*wanted.replace(" ", ""), *spare})
    buffers = {name: Buffer("arena", 8 + (name in sizes)) for name in names}
    called = {buffer: name for name, buffer in buffers.items()}
    found = find_buffer_cycles({buffers[a]: buffers[b] for a, b in wanted.split()}, lambda b: called[b] in spare)
    return ["".join(called[buffer] for buffer in circle) for circle in found]


@pytest.mark.parametrize(
    ("wanted", "spare", "expected"),
    [
        ("as", "s", ["as"]),
        ("ab ba", "", ["ab"]),
        ("ab bc ca", "", ["abc"]),
        ("ab bs", "s", ["abs"]),
        ("bs ab ct", "st", ["abs", "ct"]),
        ("as bs", "s", ["as"]),  # b is given a copy
        ("ab ba cb", "", ["ab"]),
        ("ab", "", []),  # b stays where it is
        ("ab bc cd", "", []),
        ("ab bs cs", "s", ["abs"]),
    ],
)
def test_circles(wanted: str, spare: str, expected: list[str]):
    assert circles(wanted, spare) == expected


def test_buffers_of_another_size_do_not_change_places():
    assert circles("as bt", "st", sizes="s") == ["bt"]
    assert circles("ab ba", sizes="b") == []


@pytest.mark.parametrize("size", [2, 3, 5])
@pytest.mark.parametrize("turns", [1, 2, 4])
def test_settling_moves_everything_back(size: int, turns: int):
    circle = [Buffer("arena", 8) for _ in range(size)]
    places = dict(zip(circle, circle, strict=True))
    for _ in range(turns):
        places = {b: places[circle[(n + 1) % size]] for n, b in enumerate(circle)}
    assert copies_after_rotation(circle, turns % size) == [(places[b], b) for b in circle]


# ---- programs --------------------------------------------------------------------------------------------------------

Body = Callable[..., list[sx.XlaOp]]
Step = Callable[..., list[np.ndarray]]


def check(arrays: int, body: Body, step: Step, shape: tuple[int, ...] = (5, 7), copies: int = 0) -> None:
    """A loop that carries so many arrays, for every number of turns; `copies` are made in each of them."""
    b = sx.XlaBuilder("test")
    given = [b.parameter(i, sx.Shape("s32", shape)) for i in range(arrays)]
    count = b.parameter(arrays, sx.s32[()])

    def turn(state: sx.XlaOp) -> sx.XlaOp:
        return sx.tuple([state[0] + 1, state[1], *body(state[0], *(state[i + 2] for i in range(arrays)))])

    looped = sx.while_(lambda state: state[0] < state[1], turn, sx.tuple([b.constant(np.int32(0)), count, *given]))
    executable = sx.compile(b.build(sx.tuple([*(looped[i + 2] for i in range(arrays))])))
    inside = executable.ir("buffers").split(" do {")[1]
    assert inside.split("scf.yield")[0].count("memref.copy") == copies
    rng = np.random.default_rng(arrays)
    start = [rng.integers(-9, 9, shape).astype(np.int32) for _ in range(arrays)]
    for turns in TURNS:
        expected = list(start)
        for number in range(turns):
            expected = step(number, *expected)
        for got, wanted in zip(executable(*start, np.int32(turns)), expected, strict=True):
            np.testing.assert_array_equal(got, wanted, err_msg=f"after {turns} turns")


def test_one_array_and_its_next_value():
    check(1, lambda i, x: [sx.rev(x, (0,)) + i], lambda i, x: [x[::-1] + i])


def test_large_arrays():
    check(1, lambda i, x: [sx.rev(x, (0,)) + i], lambda i, x: [x[::-1] + i], shape=(401, 401))


def test_the_last_two_of_a_recurrence():
    check(2, lambda i, a, b: [b, sx.rev(a, (1,)) - b], lambda i, a, b: [b, a[:, ::-1] - b])
    check(2, lambda i, a, b: [b, 2 * b - a], lambda i, a, b: [b, 2 * b - a])


def test_the_last_three():
    check(3, lambda i, a, b, c: [b, c, sx.rev(a, (0,)) + c], lambda i, a, b, c: [b, c, a[::-1] + c])


@pytest.mark.parametrize("arrays", [4, 5])
def test_all_change_places(arrays: int):
    """Both sides of the gate from which arrays are moved back place by place."""
    check(arrays, lambda i, first, *others: [*others, first + i], lambda i, first, *others: [*others, first + i])


@pytest.mark.parametrize("arrays", [3, 4])
def test_a_longer_recurrence(arrays: int):
    """With the next value in a buffer of its own, which is spare after the loop."""
    check(arrays, lambda i, a, *xs: [*xs, sx.rev(a, (0,)) + xs[-1]], lambda i, a, *xs: [*xs, a[::-1] + xs[-1]])


def test_copies_of_many_arrays_are_as_many():
    b = sx.XlaBuilder("test")
    arrays = 12
    given = [b.parameter(i, sx.s32[3]) for i in range(arrays)]

    def turn(state: sx.XlaOp) -> sx.XlaOp:
        return sx.tuple([state[0] + 1, *(state[i + 2] for i in range(arrays - 1)), state[1]])

    looped = sx.while_(lambda state: state[0] < 100, turn, sx.tuple([b.constant(np.int32(0)), *given]))
    executable = sx.compile(b.build(sx.tuple([looped[i + 1] for i in range(arrays)])))
    assert executable.ir("buffers").count("memref.copy") == 2 * arrays + 1
    start = np.arange(3 * arrays, dtype=np.int32).reshape(arrays, 3)
    np.testing.assert_array_equal(np.stack(executable(*start)), np.roll(start, -100, axis=0))


def test_two_circles_and_one_array_in_place():
    check(
        5,
        lambda i, a, b, c, d, e: [b, a, sx.rev(c, (0,)), d + i, e],
        lambda i, a, b, c, d, e: [b, a, c[::-1], d + i, e],
    )


def test_an_array_that_two_carry_on():
    check(2, lambda i, a, b: [r := sx.rev(a, (0,)) + b, r], lambda i, a, b: [r := a[::-1] + b, r], copies=1)


def test_a_branch_inside():
    def body(i: sx.XlaOp, x: sx.XlaOp) -> list[sx.XlaOp]:
        return [sx.conditional(sx.eq(i % 3, 1), x, lambda x: sx.rev(x, (0,)), x, lambda x: x) + 1]

    # The branch that changes nothing makes a copy.
    check(1, body, lambda i, x: [(x[::-1] if i % 3 == 1 else x) + 1], copies=1)


def test_a_loop_inside():
    """Both swap buffers; the inner one turns as often as the outer one has turned."""

    def body(i: sx.XlaOp, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
        def turn(state: sx.XlaOp) -> sx.XlaOp:
            return sx.tuple([state[0] + 1, state[1], state[3], sx.rev(state[2], (1,)) + state[3]])

        start = sx.tuple([i - i, i, x, y])
        inner = sx.while_(lambda state: state[0] < state[1], turn, start)
        return [inner[3], sx.rev(inner[2], (0,))]

    def step(i: int, x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        for _ in range(i):
            x, y = y, x[:, ::-1] + y
        return [y, x[::-1]]

    b = sx.XlaBuilder("test")
    shape = sx.s32[4, 6]
    first, second, count = b.parameter(0, shape), b.parameter(1, shape), b.parameter(2, sx.s32[()])

    def turn(state: sx.XlaOp) -> sx.XlaOp:
        return sx.tuple([state[0] + 1, state[1], *body(state[0], state[2], state[3])])

    looped = sx.while_(
        lambda state: state[0] < state[1], turn, sx.tuple([b.constant(np.int32(0)), count, first, second])
    )
    executable = sx.compile(b.build(sx.tuple([looped[2], looped[3], looped[2] + looped[3]])))
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 9, (4, 6)).astype(np.int32) for _ in range(2))
    with np.errstate(over="ignore"):
        for turns in (0, 1, 2, 3, 4, 7):
            a, c = x, y
            for number in range(turns):
                a, c = step(number, a, c)
            for got, wanted in zip(executable(x, y, np.int32(turns)), (a, c, a + c), strict=True):
                np.testing.assert_array_equal(got, wanted, err_msg=f"after {turns} turns")


def test_a_condition_that_reads_the_array():
    b = sx.XlaBuilder("test")
    x = b.parameter(0, sx.s32[9])

    def go(state: sx.XlaOp) -> sx.XlaOp:
        return sx.reduce(state, state.builder.constant(np.int32(0)), sx.add, (0,)) < 100

    looped = sx.while_(go, lambda state: sx.rev(state, (0,)) + state.builder.iota(sx.s32[9], 0), x)
    executable = sx.compile(b.build(looped))
    for start in (0, 3, 5, 50):
        expected = np.full(9, start, np.int32)
        while expected.sum() < 100:
            expected = expected[::-1] + np.arange(9, dtype=np.int32)
        np.testing.assert_array_equal(executable(np.full(9, start, np.int32)), expected)


@pytest.mark.parametrize("arrays", [4, 5])
def test_a_longer_recurrence_beside_a_larger_array(arrays: int):
    """Copies of a circle have the size of its own arrays, on both sides of the gate; under guards none goes outside."""
    b = sx.XlaBuilder("test")
    given = [b.parameter(0, sx.f64[60]), *(b.parameter(i + 1, sx.s32[60]) for i in range(arrays))]
    count = b.parameter(arrays + 1, sx.s32[()])

    def turn(state: sx.XlaOp) -> sx.XlaOp:
        large, first, *others = (state[i + 2] for i in range(arrays + 1))
        made = [sx.rev(large, (0,)) + 1.0, *others, sx.rev(first, (0,)) * 3]
        return sx.tuple([state[0] + 1, state[1], *made])

    looped = sx.while_(lambda state: state[0] < state[1], turn, sx.tuple([b.constant(np.int32(0)), count, *given]))
    with knobs.scoped(guard="ends"):
        executable = sx.compile(b.build(sx.tuple([*(looped[i + 2] for i in range(arrays + 1))])))
        for turns in TURNS:
            expected = [np.arange(60.0), *(np.arange(60, dtype=np.int32) + i for i in range(arrays))]
            found = executable(*expected, np.int32(turns))
            for _ in range(turns):
                large, first, *others = expected
                expected = [large[::-1] + 1, *others, first[::-1] * 3]
            for got, wanted in zip(found, expected, strict=True):
                np.testing.assert_array_equal(got, wanted, err_msg=f"after {turns} turns")
