"""Programs drawn at random from loops, branches, infeeds, outfeeds and custom calls: effects happen in the order of the
program. Oracle: the same program as Python."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import stablexla as sx

# A part of a program is one function twice: on ops, and on numbers with a log.
State = tuple[Any, Any]
Part = Callable[[State, "World"], State]


class World:
    """What the Python program sees and does; the built one has the queues and the function `note`."""

    def __init__(self, items: list[int]) -> None:
        self.items = iter(items)
        self.read = 0
        self.out: list[list[float]] = []
        self.notes: list[float] = []


def is_op(value: Any) -> bool:
    return isinstance(value, sx.XlaOp)


def reads(state: State, world: World) -> State:
    i, v = state
    if is_op(i):
        return i, v + i.builder.infeed(sx.f32[3])
    world.read += 1
    return i, v + next(world.items)


def writes(state: State, world: World) -> State:
    i, v = state
    if is_op(i):
        sx.outfeed(v * 2)
    else:
        world.out.append((v * 2).tolist())
    return state


def notes(state: State, world: World) -> State:
    i, v = state
    if is_op(i):
        return i, sx.custom_call("note", v, sx.f32[3], has_side_effect=True)
    world.notes.append(float(v[0]))
    return i, v + 1


def notes_and_forgets(state: State, world: World) -> State:
    notes(state, world)
    return state


def sequence(parts: list[Part]) -> Part:
    def run(state: State, world: World) -> State:
        for part in parts:
            state = part(state, world)
        return state

    return run


def loop(body: Part, test: Part, count: int) -> Part:
    """`test` runs before each turn, for what it does besides its result."""

    def condition(state: State, world: World) -> Any:
        test(state, world)
        return state[0] < count

    def step(state: State, world: World) -> State:
        _, v = body(state, world)
        return state[0] + 1, v

    def run(state: State, world: World) -> State:
        if is_op(state[0]):
            start = sx.tuple((state[0] * 0, state[1]))
            made = sx.while_(lambda s: condition((s[0], s[1]), world), lambda s: list(step((s[0], s[1]), world)), start)
            return state[0], made[1]
        inner: State = (0, state[1])
        while condition(inner, world):
            inner = step(inner, world)
        return state[0], inner[1]

    return run


def branch(one: Part, other: Part) -> Part:
    def run(state: State, world: World) -> State:
        i, v = state
        if is_op(i):
            both = sx.tuple((i, v))
            sides = [lambda s, part=part: list(part((s[0], s[1]), world)) for part in (one, other)]
            made = sx.conditional(v[0] > 5, both, sides[0], both, sides[1])
            return made[0], made[1]
        return (one if v[0] > 5 else other)((i, v), world)

    return run


def draw(rng: random.Random, depth: int) -> Part:
    parts: list[Part] = []
    for _ in range(rng.randint(0, 3)):
        kind = rng.randint(0, 6 if depth else 3)
        if kind < 4:
            parts.append((reads, writes, notes, notes_and_forgets)[kind])
        elif kind == 4:
            test = sequence([]) if rng.random() < 0.5 else draw(rng, 0)
            parts.append(loop(draw(rng, depth - 1), test, rng.randint(0, 3)))
        else:
            parts.append(branch(draw(rng, depth - 1), draw(rng, depth - 1)))
    return sequence(parts)


@pytest.mark.parametrize("seed", range(15))
def test_effects_in_programs_drawn_at_random(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stablexla.compiling.custom_calls.TARGETS", targets := {})
    monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)
    noted: list[float] = []
    sx.register_custom_call("note", lambda v: (noted.append(float(v[0])), v + 1)[1])
    rng = random.Random(seed)
    program = sequence([reads, draw(rng, 3), draw(rng, 3), writes])
    items = [rng.randint(-3, 5) for _ in range(2000)]
    world = World(items)
    wanted = program((0, np.zeros(3, np.float32)), world)

    b = sx.XlaBuilder("program")
    state = program((b.parameter(0, sx.s32[()]), b.parameter(1, sx.f32[3])), world)
    executable = sx.compile(b.build(state[1]))
    executable.transfer_timeout = 0.01
    for item in items[: world.read]:
        executable.transfer_to_infeed(np.full(3, item, np.float32))
    assert executable(0, np.zeros(3, np.float32)).tolist() == wanted[1].tolist()
    assert [executable.transfer_from_outfeed().tolist() for _ in world.out] == world.out
    assert noted == world.notes
    with pytest.raises(sx.ExecutionError):
        executable.transfer_from_outfeed()
