"""Whole programs on several devices: control flow, messages, and many collectives in one program."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

import stablexla as sx
from tests.distributed import model
from tests.distributed.harness import check, each, numbered, run
from tests.distributed.model import Grid


def device_number(b: sx.XlaBuilder) -> sx.XlaOp:
    """Of a grid without partitions, as s32."""
    return sx.convert_element_type(b.replica_id(), "s32")


# ---- control flow ----------------------------------------------------------------------------------------------------


def test_a_collective_in_a_loop() -> None:
    """Ten rounds of a ring: everybody's number comes by."""
    grid, ring = Grid(4), tuple((i, (i + 1) % 4) for i in range(4))
    x = numbered(grid, (5,), np.int32)

    def body(state: sx.XlaOp) -> sx.XlaOp:
        i, held, total = state
        held = sx.collective_permute(held, ring)
        return sx.tuple((i + 1, held, total + held * i))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        return list(sx.while_(lambda s: s[0] < 10, body, sx.tuple((b.constant(np.int32(0)), x, x))))

    held, total = list(x), list(x)
    for i in range(10):
        held = model.collective_permute(grid, held, ring)
        total = [t + h * np.int32(i) for t, h in zip(total, held, strict=True)]
    run(program, grid, x, expected=[[np.int32(10)] * 4, held, total], against=["xla"])


def test_rounds_that_differ_between_groups() -> None:
    """Pairs go round as often as their first member's number says: legal, as a pair always agrees."""
    grid, pairs = Grid(4), ((0, 1), (2, 3))
    x = numbered(grid, (3,), np.int32)

    def body(state: sx.XlaOp) -> sx.XlaOp:
        i, held, rounds = state
        return sx.tuple((i + 1, sx.all_reduce(held, sx.add, pairs) - 1, rounds))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        rounds = device_number(b) / 2 * 3 + 1
        state = sx.tuple((b.constant(np.int32(0)), x, rounds))
        return sx.while_(lambda s: s[0] < s[2], body, state)[1]

    expected = list(x)
    for first, second in pairs:
        for _ in range(first // 2 * 3 + 1):
            expected[first] = expected[second] = expected[first] + expected[second] - 1
    run(program, grid, x, expected=[expected], against=["xla"])


def test_a_condition_that_everybody_computes_together() -> None:
    """The loop goes on until the sum over all devices is large enough."""
    grid = Grid(3)
    x = each(grid, lambda d: np.int32(d + 1))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        return sx.while_(lambda v: sx.all_reduce(v, sx.add) < 1000, lambda v: v * 2 + device_number(v.builder), x)

    expected = list(x)
    while sum(expected) < 1000:
        expected = [v * 2 + np.int32(d) for d, v in enumerate(expected)]
    run(program, grid, x, expected=[expected], against=["xla"])


def test_branches_that_differ_between_groups() -> None:
    """Even devices sum, odd ones multiply: each branch has a collective of its own."""
    grid = Grid(4)
    x = numbered(grid, (4,))
    groups = ((0, 2), (1, 3))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        odd = sx.eq(device_number(b) % 2, 1)
        branches = [lambda v: sx.all_reduce(v, sx.add, groups), lambda v: sx.all_reduce(v, sx.mul, groups)]
        return sx.conditional(sx.convert_element_type(odd, "s32"), branches, [x, x]) + 1

    sums, products = (model.all_reduce(grid, x, f, groups) for f in (np.add, np.multiply))
    expected = [(products if d % 2 else sums)[d] + np.float32(1) for d in range(4)]
    run(program, grid, x, expected=[expected], against=[])


def test_one_device_does_more_than_the_others() -> None:
    """What is no collective may be done by some only, for as long as they like."""
    grid = Grid(2)
    x = numbered(grid, (8, 8))

    def busy(state: sx.XlaOp) -> sx.XlaOp:
        return sx.while_(lambda s: s[0] < 50, lambda s: sx.tuple((s[0] + 1, sx.dot(s[1], s[1]) * 0.001)), state)[1]

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        state = sx.tuple((b.constant(np.int32(0)), x))
        mine = sx.conditional(sx.eq(device_number(b), 1), state, busy, state, lambda s: s[1])
        return sx.all_gather(mine * 0 + x, 0, 2)

    run(program, grid, x, expected=[model.all_gather(grid, x, 0)], against=["xla"])


def test_many_in_sequence() -> None:
    """A hundred collectives, each of what the one before gave."""
    grid = Grid(4)
    x = numbered(grid, (4, 4), np.int32)
    steps: list[tuple[Callable[[sx.XlaOp], sx.XlaOp], Callable[[Sequence[np.ndarray]], list[np.ndarray]]]] = [
        (
            lambda v: sx.all_reduce(v, sx.add, ((0, 3), (2, 1))),
            lambda v: model.all_reduce(grid, v, np.add, ((0, 3), (2, 1))),
        ),
        (lambda v: sx.all_to_all(v, 0, 1, 4) * 3, lambda v: [a * 3 for a in model.all_to_all(grid, v, 0, 1, 4)]),
        (
            lambda v: sx.reshape(sx.all_to_all(v, 1, 0, 4), (4, 4)),
            lambda v: [a.reshape(4, 4) for a in model.all_to_all(grid, v, 1, 0, 4)],
        ),
        (
            lambda v: sx.collective_permute(v, ((0, 1), (1, 2), (2, 0), (3, 3))) - v,
            lambda v: [
                a - b
                for a, b in zip(model.collective_permute(grid, v, ((0, 1), (1, 2), (2, 0), (3, 3))), v, strict=True)
            ],
        ),
        (
            lambda v: sx.all_gather(sx.reduce_scatter(v, sx.max, 0, 4), 0, 4),
            lambda v: model.all_gather(grid, model.reduce_scatter(grid, v, np.maximum, 0), 0),
        ),
    ]

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        for i in range(100):
            x = steps[i % len(steps)][0](x) + i
        return x

    expected = list(x)
    for i in range(100):
        expected = [a + np.int32(i) for a in steps[i % len(steps)][1](expected)]
    run(program, grid, x, expected=[expected], against=[])


def test_equal_collectives_that_do_not_depend_on_one_another() -> None:
    """The same operation on other operands, several times: each with its own."""
    grid = Grid(3)
    x = numbered(grid, (40,))
    made = [np.float32(k) for k in range(8)]
    run(
        lambda b, x: [sx.all_reduce(x * b.constant(k), sx.add) for k in made],
        grid,
        x,
        expected=[model.all_reduce(grid, [a * k for a in x], np.add) for k in made],
        against=["xla"],
    )


def test_a_result_that_nobody_reads() -> None:
    """The others wait for it all the same, or nobody computes it: either is right, a mixture is not."""
    grid = Grid(3)
    x = numbered(grid, (40,))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        sx.all_reduce(x, sx.mul)
        return sx.all_gather(x, 0, 3)

    run(program, grid, x, expected=[model.all_gather(grid, x, 0)], against=["xla"])


def test_an_operand_is_read_again_later() -> None:
    """A collective must not overwrite what others read: here or on another device."""
    grid = Grid(4)
    x = numbered(grid, (4, 30))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        y = x * 2
        made = [sx.all_reduce(y, sx.add), sx.all_to_all(y, 0, 0, 4), sx.collective_permute(y, ((0, 1), (1, 0)))]
        return [*made, y + sx.all_gather(sx.reduce_scatter(y, sx.add, 0, 4), 0, 4), y, x]

    y = [a * np.float32(2) for a in x]
    total = model.all_reduce(grid, y, np.add)
    run(
        program,
        grid,
        x,
        expected=[
            total,
            model.all_to_all(grid, y, 0, 0, 4),
            model.collective_permute(grid, y, ((0, 1), (1, 0))),
            [a + t for a, t in zip(y, total, strict=True)],
            y,
            x,
        ],
        against=["xla"],
    )


def test_constants_and_numbers_as_operands() -> None:
    grid = Grid(2, 2)
    line = np.arange(4, dtype=np.int32)

    def program(b: sx.XlaBuilder) -> list[sx.XlaOp]:
        held = b.constant(line)
        number = sx.convert_element_type(b.replica_id() * 2 + b.partition_id(), "s32")
        mixed = held * number
        every = ((0, 1, 2, 3),)
        return [
            sx.all_reduce(held, sx.add, every, 1, True),
            sx.all_gather(sx.reshape(number, (1,)), 0, 4, every, 1, True),
            sx.collective_permute(mixed, ((0, 1),)),
            sx.collective_permute(mixed, ((1, 0),), 1),
        ]

    mixed = [line * np.int32(d) for d in range(4)]
    expected = [
        [line * 4] * 4,
        [np.arange(4, dtype=np.int32)] * 4,
        model.collective_permute(grid, mixed, ((0, 1),)),
        model.collective_permute(grid, mixed, ((1, 0),), 1),
    ]
    run(program, grid, expected=expected, against=["xla"])


def test_a_training_step() -> None:
    """Gradients of a linear model over a split batch equal those of the whole, in whole numbers."""
    grid, rng = Grid(4), np.random.default_rng(5)
    x = each(grid, lambda d: rng.integers(-3, 4, (6, 5)).astype(np.float32))
    y = each(grid, lambda d: rng.integers(-3, 4, (6, 2)).astype(np.float32))
    w = [rng.integers(-3, 4, (5, 2)).astype(np.float32)] * 4

    def program(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp, w: sx.XlaOp) -> list[sx.XlaOp]:
        error = sx.dot(x, w) - y
        loss = sx.all_reduce(sx.reduce(error * error, b.constant(np.float32(0)), sx.add, (0, 1)), sx.add)
        return [w - sx.all_reduce(sx.dot(sx.transpose(x, (1, 0)), error), sx.add), loss]

    whole, wanted = np.concatenate(x), np.concatenate(y)
    error = whole @ w[0] - wanted
    expected = [[w[0] - whole.T @ error] * 4, [np.float32((error * error).sum())] * 4]
    run(program, grid, x, y, w, expected=expected, against=["xla"])


# ---- messages between devices ----------------------------------------------------------------------------------------


def messages(pairs: Sequence[tuple[int, int]], loops: int = 1) -> str:
    """A program that sends its operand by the pairs, `loops` times in a row, and gives what it received last."""
    rows = f"dense<{[list(p) for p in pairs]}> : tensor<{len(pairs)}x2xi64>"
    lines, token, value = [], "%t", "%x"
    for i in range(loops):
        lines.append(f"""
          %s{i} = "stablehlo.send"({value}, {token}) {{
            channel_handle = #stablehlo.channel_handle<handle = {i % 2 + 1}, type = 1>, source_target_pairs = {rows}
          }} : (tensor<6xf32>, !stablehlo.token) -> !stablehlo.token
          %r{i}:2 = "stablehlo.recv"(%s{i}) {{
            channel_handle = #stablehlo.channel_handle<handle = {i % 2 + 1}, type = 1>, source_target_pairs = {rows}
          }} : (!stablehlo.token) -> (tensor<6xf32>, !stablehlo.token)""")
        token, value = f"%r{i}#1", f"%r{i}#0"
    return f"""
    func.func @main(%x: tensor<6xf32>) -> tensor<6xf32> {{
      %t = stablehlo.create_token : !stablehlo.token
      {"".join(lines)}
      func.return {value} : tensor<6xf32>
    }}"""


@pytest.mark.parametrize("loops", [1, 7])
@pytest.mark.parametrize("pairs", [((0, 1), (1, 2), (2, 3), (3, 0)), ((0, 3), (3, 0), (1, 1), (2, 2))], ids=str)
def test_messages(pairs: tuple[tuple[int, int], ...], loops: int) -> None:
    grid = Grid(4)
    x = numbered(grid, (6,))
    expected = list(x)
    for _ in range(loops):
        expected = [a for a in model.send_and_recv(grid, expected, pairs) if a is not None]
    check(messages(pairs, loops), grid, [[a] for a in x], [expected], against=[])


def test_started_and_waited_for() -> None:
    """Asynchronous forms, with work in between."""
    grid = Grid(3)
    x = numbered(grid, (6,))
    text = """
    func.func @main(%x: tensor<6xf32>) -> (tensor<6xf32>, tensor<18xf32>) {
      %0 = "stablehlo.async_start"(%x) ({
      ^bb0(%a: tensor<6xf32>):
        %g = "stablehlo.all_gather"(%a) {
          all_gather_dim = 0 : i64, replica_groups = dense<[[0, 1, 2]]> : tensor<1x3xi64>
        } : (tensor<6xf32>) -> tensor<18xf32>
        stablehlo.return %g : tensor<18xf32>
      }) : (tensor<6xf32>) -> !stablehlo.future<tensor<18xf32>>
      %1 = "stablehlo.collective_permute"(%x) {
        source_target_pairs = dense<[[0, 1], [1, 2], [2, 0]]> : tensor<3x2xi64>
      } : (tensor<6xf32>) -> tensor<6xf32>
      %2 = "stablehlo.async_done"(%0) : (!stablehlo.future<tensor<18xf32>>) -> tensor<18xf32>
      return %1, %2 : tensor<6xf32>, tensor<18xf32>
    }"""
    expected = [
        model.collective_permute(grid, x, ((0, 1), (1, 2), (2, 0))),
        model.all_gather(grid, x, 0),
    ]
    check(text, grid, [[a] for a in x], expected, against=[])
