"""The statements of random programs: local ones, loops and branches, and with those of the collectives all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stablexla.dialects.builds.stablehlo_version import has_stablehlo
from tests.distributed.random_collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    collective_broadcast,
    collective_permute,
    message,
    ragged_all_to_all,
    reduce_scatter,
    rooted,
)
from tests.distributed.random_writer import Dims, Program, Step, Value, Writer, evaluate, keep, size_of, tensor

# ---- local ones ------------------------------------------------------------------------------------------------------

BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum,
}  # fmt: skip


def binary(w: Writer) -> None:
    x = w.small(w.any())
    y = w.small(w.like(x))
    name = w.random.choice(list(BINARY))
    w.local(f"stablehlo.{name} {x.name}, {y.name} : {x.type}", [x, y], x.shape, x.element, BINARY[name])


def choose(w: Writer) -> None:
    x = w.any()
    y = w.like(x)
    flags = tensor(x.shape, "i1")
    kind = "FLOAT" if x.is_float else "UNSIGNED" if x.element == "ui8" else "SIGNED"
    text = f"stablehlo.compare GT, {x.name}, {y.name}, {kind} : ({x.type}, {y.type}) -> {flags}"
    p = w.local(text, [x, y], x.shape, "i1", np.greater)
    w.values.remove(p)
    w.local(
        f"stablehlo.select {p.name}, {y.name}, {x.name} : {flags}, {x.type}", [p, y, x], x.shape, x.element, np.where
    )


def scale_by_number(w: Writer) -> None:
    """Makes devices differ."""
    x = w.small(w.any())
    n = w.number(w.random.choice(["replica", "partition"]))
    m = w.local(
        f"stablehlo.convert {n.name} : (tensor<i32>) -> {tensor((), x.element)}", [n], (), x.element, lambda a: a
    )
    text = f"stablehlo.broadcast_in_dim {m.name}, dims = [] : ({m.type}) -> {x.type}"
    wide = w.local(text, [m], x.shape, x.element, lambda a: np.full(x.shape, a))
    w.local(f"stablehlo.add {x.name}, {wide.name} : {x.type}", [x, wide], x.shape, x.element, np.add)


def transpose(w: Writer) -> None:
    x = w.any()
    order = w.random.sample(range(len(x.shape)), len(x.shape))
    shape = tuple(x.shape[i] for i in order)
    text = f"stablehlo.transpose {x.name}, dims = {order} : ({x.type}) -> {tensor(shape, x.element)}"
    w.local(text, [x], shape, x.element, lambda a: np.transpose(a, order))


def reshape(w: Writer) -> None:
    x = w.any()
    size = size_of(x)
    forms: list[Dims] = [(size,), *((n, size // n) for n in (2, 3, 4, 6, 8) if size and size % n == 0)]
    shape = w.random.choice(forms)
    text = f"stablehlo.reshape {x.name} : ({x.type}) -> {tensor(shape, x.element)}"
    w.local(text, [x], shape, x.element, lambda a: a.reshape(shape))


def total(w: Writer) -> None:
    x = w.pick(lambda v: len(v.shape) > 0)
    if x is None:
        return
    x = w.small(x)
    dims = sorted(w.random.sample(range(len(x.shape)), w.random.randint(1, len(x.shape))))
    shape = tuple(n for i, n in enumerate(x.shape) if i not in dims)
    zero = w.constant(0, (), x.element)
    text = (
        f"stablehlo.reduce({x.name} init: {zero.name}) applies stablehlo.add across dimensions = {dims} : "
        f"({x.type}, {zero.type}) -> {tensor(shape, x.element)}"
    )
    w.local(text, [x], shape, x.element, lambda a: a.sum(tuple(dims), dtype=a.dtype))


def matmul(w: Writer) -> None:
    x = w.pick(lambda v: len(v.shape) == 2)
    if x is None:
        return
    x = w.small(x)
    y = w.small(w.like(x))
    shape = (x.shape[0], y.shape[0])
    text = (
        f"stablehlo.dot_general {x.name}, {y.name}, contracting_dims = [1] x [1] : "
        f"({x.type}, {y.type}) -> {tensor(shape, x.element)}"
    )
    w.local(text, [x, y], shape, x.element, lambda a, b: a @ b.T)


# ---- control flow ----------------------------------------------------------------------------------------------------


def _by_device(w: Writer, limit: int) -> tuple[Value, list[int]]:
    """A number from 0 to `limit` as i32: the same for all, or by the device's; and what it is on each."""
    if w.chance(0.4) or not w.ours():
        number = w.random.randint(0, limit)
        return w.constant(number, (), "i32"), [number] * w.grid.size
    kind = w.random.choice(["replica", "partition"])
    n, by = w.number(kind), w.constant(limit + 1, (), "i32")
    made = w.local(f"stablehlo.remainder {n.name}, {by.name} : tensor<i32>", [n, by], (), "i32", np.remainder)
    place = ("replica", "partition").index(kind)
    return made, [p[place] % (limit + 1) for p in w.grid.processes]


def _refined(w: Writer, numbers: Sequence[int]) -> list[int]:
    keys = list(zip(w.classes, numbers, strict=True))
    order = sorted(set(keys))
    return [order.index(key) for key in keys]


def branch(w: Writer) -> None:
    if w.depth >= 2:
        return
    index, numbers = _by_device(w, 1)
    like = w.any()

    def one() -> list[Value]:
        w.statements(w.random.randint(1, 4))
        return [w.like(like)]

    parts = [w.inside(_refined(w, numbers), one) for _ in range(2)]
    regions = ", ".join(f"{{\n{t}\nstablehlo.return {r[0].name} : {like.type}\n}}" for t, _, r in parts)
    made = Value(w.name(), like.shape, like.element)
    w.line(f'{made.name} = "stablehlo.case"({index.name}) ({regions}) : (tensor<i32>) -> {like.type}')

    def step(environment: dict[str, list[Any]], active: frozenset[int]) -> None:
        for choice, (_, steps, returned) in enumerate(parts):
            those = frozenset(d for d in active if min(int(environment[index.name][d]), 1) == choice)
            evaluate(steps, environment, those)
            if those:
                keep(environment, made.name, environment[returned[0].name], those)

    w.step(step)
    w.values.append(made)


def loop(w: Writer) -> None:
    if w.depth >= 2:
        return
    limit, numbers = _by_device(w, 2)
    carried = [w.any() for _ in range(w.random.randint(1, 2))]
    inner = [Value(w.name(), v.shape, v.element) for v in carried]
    i, end, name = Value(w.name(), (), "i32"), Value(w.name(), (), "i32"), w.name()
    zero = w.constant(0, (), "i32")

    def body() -> list[Value]:
        w.values += inner
        w.statements(w.random.randint(1, 4))
        return [w.small(w.like(v)) for v in inner]

    text, steps, returned = w.inside(_refined(w, numbers), body)
    integer = tensor((), "i32")
    types = ", ".join([integer, integer, *(v.type for v in carried)])
    header = f"^bb0({', '.join(f'{v.name}: {v.type}' for v in (i, end, *inner))}):"
    one, after, go = w.name(), w.name(), w.name()
    given = ", ".join(v.name for v in (zero, limit, *carried))
    kept = ", ".join([after, end.name, *(v.name for v in returned)])
    w.line(
        f"""{name}:{len(carried) + 2} = "stablehlo.while"({given}) ({{
        {header}
          {go} = stablehlo.compare LT, {i.name}, {end.name}, SIGNED : ({integer}, {integer}) -> tensor<i1>
          stablehlo.return {go} : tensor<i1>
        }}, {{
        {header}
          {text}
          {one} = stablehlo.constant dense<1> : {integer}
          {after} = stablehlo.add {i.name}, {one} : {integer}
          stablehlo.return {kept} : {types}
        }}) : ({types}) -> ({types})"""
    )
    w.step(_rounds(limit, carried, inner, returned, steps, name))
    w.values += [Value(f"{name}#{k + 2}", v.shape, v.element) for k, v in enumerate(carried)]


def _rounds(
    limit: Value,
    carried: Sequence[Value],
    inner: Sequence[Value],
    returned: Sequence[Value],
    steps: Sequence[Step],
    name: str,
) -> Step:
    def step(environment: dict[str, list[Any]], active: frozenset[int]) -> None:
        for before, value in zip(carried, inner, strict=True):
            keep(environment, value.name, environment[before.name], active)
        turn = 0
        while those := frozenset(d for d in active if turn < int(environment[limit.name][d])):
            evaluate(steps, environment, those)
            results = [list(environment[v.name]) for v in returned]
            for value, result in zip(inner, results, strict=True):
                keep(environment, value.name, result, those)
            turn += 1
        for k, value in enumerate(inner):
            keep(environment, f"{name}#{k + 2}", environment[value.name], active)

    return step


# ---- programs --------------------------------------------------------------------------------------------------------

STATEMENTS: dict[Callable[[Writer], None], float] = {
    binary: 4, choose: 1, scale_by_number: 3, transpose: 1, reshape: 2, total: 1, matmul: 1,
    all_gather: 2, all_reduce: 3, reduce_scatter: 2, all_to_all: 2, collective_permute: 2, collective_broadcast: 0.5,
    ragged_all_to_all: 0.5,
    message: 0.7, branch: 1, loop: 1,
}  # fmt: skip
if has_stablehlo("1.20"):
    STATEMENTS[rooted] = 0.7


def random_program(seed: int, size: int = 14) -> Program:
    """The program of that number."""
    return Writer(seed, size).write(list(STATEMENTS), list(STATEMENTS.values()))
