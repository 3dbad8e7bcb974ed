"""while, conditional and call. Oracles: the reference interpreter, XLA:CPU and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.programs import run


def counted(b: sx.XlaBuilder, times: int, inits: list[sx.XlaOp], body: Any) -> list[sx.XlaOp]:
    """A loop that runs `times` times; `body` takes the counter and the carried values."""
    start = sx.tuple([b.constant(np.int32(0)), *inits])

    def step(state: Any) -> Any:
        i, *values = state
        following = body(i, *values)
        return sx.tuple([sx.add(i, i.builder.constant(np.int32(1))), *following])

    def goes_on(state: Any) -> Any:
        return sx.lt(state[0], state[0].builder.constant(np.int32(times)))

    return list(sx.while_(goes_on, step, start))[1:]


@pytest.mark.parametrize("times", [0, 1, 5])
def test_a_loop_of_scalars_and_arrays(times: int) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)

    def make(b: sx.XlaBuilder, v: sx.XlaOp) -> list[sx.XlaOp]:
        total = b.constant(np.float32(0))
        return counted(b, times, [v, total], lambda i, a, t: [sx.add(a, a), sx.add(t, sx.slice_one(a))])

    def slice_one(a: sx.XlaOp) -> sx.XlaOp:
        return sx.reshape(sx.slice(a, (1, 2), (2, 3), (1, 1)), ())

    sx.slice_one = slice_one  # type: ignore[attr-defined]
    try:
        run(
            make,
            x,
            against=["interpreter", "xla"],
            expected=[x * 2**times, np.float32(sum(5 * 2**k for k in range(times)))],
        )
    finally:
        del sx.slice_one  # type: ignore[attr-defined]


def test_carried_values_that_change_places() -> None:
    x, y, z = (np.full(5, k, np.int32) for k in (1, 2, 3))
    run(
        lambda b, *v: counted(b, 4, list(v), lambda i, p, q, r: [q, r, p]),
        x,
        y,
        z,
        against=["interpreter", "xla"],
        expected=[y, z, x],
    )


def test_an_array_is_updated_row_by_row() -> None:
    x = np.zeros((8, 3), np.float32)

    def body(i: sx.XlaOp, a: sx.XlaOp) -> list[sx.XlaOp]:
        zero = i.builder.constant(np.int32(0))
        row = sx.broadcast(sx.convert_element_type(i, "f32"), (1, 3))
        return [sx.dynamic_update_slice(a, row, [i, zero])]

    wanted = np.repeat(np.arange(8, dtype=np.float32)[:, None], 3, 1)
    executable_ir = run(lambda b, v: counted(b, 8, [v], body), x, against=["interpreter"], expected=[wanted])
    assert executable_ir[0].shape == (8, 3)


def test_loops_in_loops() -> None:
    x = np.ones(4, np.int32)

    def outer(i: sx.XlaOp, a: sx.XlaOp) -> list[sx.XlaOp]:
        return counted(i.builder, 3, [a], lambda j, c: [sx.add(c, sx.broadcast(j, (4,)))])

    run(lambda b, v: counted(b, 2, [v], outer), x, against=["interpreter", "xla"], expected=[x + 6])


@pytest.mark.parametrize("flag", [True, False])
def test_conditional_of_a_predicate(flag: bool) -> None:
    x, y = np.arange(4, dtype=np.float32), np.ones((2, 2), np.float32)
    run(
        lambda b, p, v, w: sx.conditional(
            p,
            v,
            lambda a: sx.reduce_all(a, a.builder.constant(np.float32(0)), sx.add),
            w,
            lambda a: sx.reduce_all(sx.neg(a), a.builder.constant(np.float32(0)), sx.add),
        ),
        np.array(flag),
        x,
        y,
        against=["interpreter", "xla"],
        expected=[np.float32(6 if flag else -4)],
    )


@pytest.mark.parametrize("index", [-1, 0, 1, 2, 3, 99])
def test_conditional_of_an_index(index: int) -> None:
    """An index out of range takes the last branch."""
    x = np.arange(3, dtype=np.float32)
    branches = [sx.neg, lambda a: sx.add(a, a), lambda a: sx.mul(a, a)]
    results = [-x, x + x, x * x]
    run(
        lambda b, i, v: sx.conditional(i, branches, [v, v, v]),
        np.int32(index),
        x,
        against=["interpreter", "xla"],
        expected=[results[index if 0 <= index < 3 else 2]],
    )


def test_conditionals_of_many_branches() -> None:
    """They are nested as deep as a tree of them is, in `main` and in a computation."""
    x, branches = np.arange(3, dtype=np.float32), 9
    factors = [np.float32(k + 1.5) for k in range(branches)]
    scaled = [lambda a, f=f: sx.mul(a, a.builder.constant(f)) for f in factors]  # type: ignore[misc]
    indices = np.array([-5, *range(branches), branches, 2**31 - 1], np.int32)
    wanted = [factors[i if 0 <= i < branches else branches - 1] for i in indices]
    b = sx.XlaBuilder("branches")
    outside = sx.compile(
        b.build(sx.conditional(b.parameter(0, sx.s32[()]), scaled, [b.parameter(1, sx.f32[3])] * branches))
    )
    for index, factor in zip(indices, wanted, strict=True):
        np.testing.assert_array_equal(outside(index, x), x * factor)
    text = outside.ir("tensor")
    assert text.count("scf.if") == branches - 1
    assert max(len(line) - len(line.lstrip()) for line in text.splitlines() if "scf.if" in line) == 2 * (2 + 3)
    run(
        lambda b, v: sx.map(
            [v], lambda i: sx.conditional(i, scaled, [i.builder.constant(np.float32(2))] * branches), (0,)
        ),
        indices,
        against=["interpreter"],
        expected=[2 * np.array(wanted)],
    )


def test_a_branch_that_returns_what_it_was_given() -> None:
    x = np.arange(3, dtype=np.float32)
    run(
        lambda b, p, v: sx.conditional(p, v, lambda a: a, v, sx.neg),
        np.array(True),
        x,
        against=["interpreter"],
        expected=[x],
    )


def test_call() -> None:
    inner = sx.XlaBuilder("inner")
    p, q = (inner.parameter(i, sx.f32[4]) for i in range(2))
    computation = inner.build(sx.sub(p, q))
    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    run(
        lambda b, v, w: sx.add(sx.call(computation, [v, w]), sx.call(computation, [w, v])),
        x,
        y,
        against=["interpreter"],
        expected=[np.zeros(4, np.float32)],
    )


def test_a_parameter_returned_twice_and_unused_parameters() -> None:
    x, y = np.arange(3, dtype=np.float32), np.zeros((2, 2), np.int8)
    results = run(lambda b, v, w: [v, v], x, y, against=["interpreter"], expected=[x, x])
    results[0][0] = 9
    assert (x[0], results[1][0]) == (0, 0)
