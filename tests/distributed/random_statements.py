"""The statements of random programs: local ones, collectives of every form and mode, loops and branches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.distributed import model
from tests.distributed.model import Process
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


# ---- collectives -----------------------------------------------------------------------------------------------------


def _rows(w: Writer, count: int, equal: bool) -> list[list[int]]:
    """Groups of all numbers below `count`, in any order; of equal sizes when they must be."""
    numbers = w.random.sample(range(count), count)
    sizes = [n for n in range(1, count + 1) if count % n == 0]
    if equal or w.chance(0.6):
        size = w.random.choice(sizes[-2:] if w.chance(0.7) else sizes)
        return [numbers[i : i + size] for i in range(0, count, size)]
    cut = w.random.randint(1, count)
    return [part for part in (numbers[:cut], numbers[cut:]) if part]


def _groups_text(rows: Sequence[Sequence[int]]) -> str:
    width = max((len(row) for row in rows), default=0)
    padded = [[*row, *[-1] * (width - len(row))] for row in rows]
    if not rows:
        return "dense<> : tensor<0x0xi64>"
    return f"dense<{padded}> : tensor<{len(rows)}x{width}xi64>"


def _channel(w: Writer, channel: int) -> str:
    return f", channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>"


def _reducing_groups(w: Writer, equal: bool) -> tuple[list[list[int]], int, bool, list[list[Process]], str] | None:
    """Rows, channel and mode of a gather or a reduction; None where they would not stay within classes."""
    mode = w.random.choice(["replica", "both", "flattened"])
    channel = 0 if mode == "replica" else w.random.randint(1, 3)
    count = w.grid.size if mode == "flattened" else w.grid.replicas
    rows = [] if mode != "flattened" and w.chance(0.2) else _rows(w, count, equal)
    groups = model.process_groups(w.grid, rows, channel, mode == "flattened")
    if not w.together([[w.grid.number(p) for p in group] for group in groups]):
        return None
    if mode == "both" and w.grid.replicas > 1 and w.grid.partitions > 1 and equal and not w.ours():
        return None  # there the order in a group is another one
    flag = ", use_global_device_ids" if mode == "flattened" else ""
    text = f"replica_groups = {_groups_text(rows)}{_channel(w, channel)}{flag}"
    return rows, channel, mode == "flattened", groups, text


def all_gather(w: Writer) -> None:
    x, found = w.pick(lambda v: len(v.shape) > 0 and size_of(v) < 2000), _reducing_groups(w, equal=True)
    if x is None or found is None:
        return
    rows, channel, flat, groups, text = found
    dim = w.random.randrange(len(x.shape))
    if not x.shape[dim]:
        return
    shape = tuple(n * len(groups[0]) if i == dim else n for i, n in enumerate(x.shape))
    _started_or_not(
        w,
        "all_gather",
        f"all_gather_dim = {dim} : i64, {text}",
        "",
        x,
        shape,
        lambda given: model.all_gather(w.grid, given, dim, rows, channel, flat),
    )


REDUCERS: dict[str, tuple[Callable[..., Any], float]] = {
    "add": (np.add, 16.0), "maximum": (np.maximum, 16.0), "minimum": (np.minimum, 16.0), "multiply": (np.multiply, 2.0),
}  # fmt: skip


def _region(w: Writer, element: str, name: str) -> str:
    scalar = tensor((), element)
    a, b, c = w.name(), w.name(), w.name()
    return (
        f"({{\n^bb0({a}: {scalar}, {b}: {scalar}):\n{c} = stablehlo.{name} {a}, {b} : {scalar}\n"
        f"stablehlo.return {c} : {scalar}\n}})"
    )


def all_reduce(w: Writer) -> None:
    found = _reducing_groups(w, equal=False)
    if found is None:
        return
    rows, channel, flat, _, text = found
    name = "subtract" if w.chance(0.2) and w.ours() else w.random.choice(list(REDUCERS))
    function, largest = REDUCERS.get(name, (np.subtract, 16.0))
    x = w.small(w.any(), largest)
    _started_or_not(
        w,
        "all_reduce",
        text,
        _region(w, x.element, name),
        x,
        x.shape,
        lambda given: model.all_reduce(w.grid, given, function, rows, channel, flat),
    )


def reduce_scatter(w: Writer) -> None:
    found = _reducing_groups(w, equal=True)
    if found is None:
        return
    rows, channel, flat, groups, text = found
    count = len(groups[0])
    x = w.pick(lambda v: any(n and n % count == 0 for n in v.shape))
    if x is None:
        return
    x = w.small(x)
    dim = w.random.choice([i for i, n in enumerate(x.shape) if n and n % count == 0])
    shape = tuple(n // count if i == dim else n for i, n in enumerate(x.shape))
    _started_or_not(
        w,
        "reduce_scatter",
        f"scatter_dimension = {dim} : i64, {text}",
        _region(w, x.element, "add"),
        x,
        shape,
        lambda given: model.reduce_scatter(w.grid, given, np.add, dim, rows, channel, flat),
    )


def _exchange(w: Writer) -> tuple[int, int]:
    """A channel, and how many there are to exchange between: partitions with a channel, replicas without."""
    channel = w.random.choice([0, 0, 1, 2]) if w.grid.partitions > 1 else 0
    channel = channel if w.grid.replicas > 1 else 1
    return channel, w.grid.partitions if channel else w.grid.replicas


def all_to_all(w: Writer) -> None:
    channel, among = _exchange(w)
    rows = _rows(w, among, equal=True)
    groups = model.exchange_groups(w.grid, rows, channel)
    count = len(rows[0])
    x = w.pick(lambda v: any(n and n % count == 0 for n in v.shape))
    if x is None or not w.together([[w.grid.number(p) for p in group] for group in groups]):
        return
    split = w.random.choice([i for i, n in enumerate(x.shape) if n and n % count == 0])
    concat = w.random.randrange(len(x.shape))
    sizes = list(x.shape)
    sizes[split] //= count
    sizes[concat] *= count
    text = (
        f"split_dimension = {split} : i64, concat_dimension = {concat} : i64, split_count = {count} : i64, "
        f"replica_groups = {_groups_text(rows)}{_channel(w, channel)}"
    )
    _started_or_not(
        w,
        "all_to_all",
        text,
        "",
        x,
        tuple(sizes),
        lambda given: model.all_to_all(w.grid, given, split, concat, count, rows, channel),
    )


def _pairs(w: Writer, among: int) -> list[list[int]]:
    count = w.random.randint(0, among)
    targets = w.random.sample(range(among), count)
    return [list(p) for p in zip(w.random.sample(range(among), count), targets, strict=True)]


def collective_permute(w: Writer) -> None:
    channel, among = _exchange(w)
    pairs = _pairs(w, among)
    groups = model.exchange_groups(w.grid, pairs, channel) if pairs else []
    if not w.together([[w.grid.number(p) for p in group] for group in groups]):
        return
    x = w.any()
    rows = f"dense<{pairs}>" if pairs else "dense<>"
    text = f"source_target_pairs = {rows} : tensor<{len(pairs)}x2xi64>{_channel(w, channel)}"
    _started_or_not(
        w,
        "collective_permute",
        text,
        "",
        x,
        x.shape,
        lambda given: model.collective_permute(w.grid, given, pairs, channel),
    )


def collective_broadcast(w: Writer) -> None:
    channel, among = _exchange(w)
    rows = _rows(w, among, equal=True)
    rows = rows[: w.random.randint(1, len(rows))]
    groups = model.exchange_groups(w.grid, rows, channel)
    if not w.together([[w.grid.number(p) for p in group] for group in groups]) or not w.ours():
        return
    x = w.any()
    text = f"replica_groups = {_groups_text(rows)}{_channel(w, channel)}"
    _started_or_not(
        w,
        "collective_broadcast",
        text,
        "",
        x,
        x.shape,
        lambda given: model.collective_broadcast(w.grid, given, rows, channel),
    )


def _started_or_not(
    w: Writer,
    name: str,
    attributes: str,
    region: str,
    x: Value,
    shape: Dims,
    function: Callable[[list[np.ndarray]], Any],
) -> None:
    """The operation as it is, or begun and waited for some statements later."""
    result = tensor(shape, x.element)
    text = f'"stablehlo.{name}"($x) {region} {{{attributes}}} : ({x.type}) -> {result}'
    if not w.chance(0.1) or w.depth or not w.ours():
        w.joint(text.replace("$x", x.name), [x], shape, x.element, function)
        return
    started, a, r = w.name(), w.name(), w.name()
    w.line(
        f'{started} = "stablehlo.async_start"({x.name}) ({{\n^bb0({a}: {x.type}):\n{r} = {text.replace("$x", a)}\n'
        f"stablehlo.return {r} : {result}\n}}) : ({x.type}) -> !stablehlo.future<{result}>"
    )
    w.statements(w.random.randint(0, 2))
    done = f'"stablehlo.async_done"({started}) : (!stablehlo.future<{result}>) -> {result}'
    w.joint(done, [x], shape, x.element, function)


def message(w: Writer) -> None:
    """A send and its recv, by pairs of one kind; zeros for who receives nothing."""
    if w.grid.partitions > 1 and w.grid.replicas > 1:
        return
    pairs = _pairs(w, w.grid.size)
    if not pairs or not w.together(pairs) or not w.ours():
        return
    w.channels += 1
    x = w.any()
    token, sent, got = w.name(), w.name(), w.name()
    rows = f"source_target_pairs = dense<{pairs}> : tensor<{len(pairs)}x2xi64>"
    handle = f"channel_handle = #stablehlo.channel_handle<handle = {w.channels + 100}, type = 1>"
    w.line(f"{token} = stablehlo.create_token : !stablehlo.token")
    w.line(
        f'{sent} = "stablehlo.send"({x.name}, {token}) {{{handle}, {rows}}} : ({x.type}, !stablehlo.token) '
        "-> !stablehlo.token"
    )
    w.line(
        f'{got}:2 = "stablehlo.recv"({sent}) {{{handle}, {rows}}} : (!stablehlo.token) -> ({x.type}, !stablehlo.token)'
    )

    def received(given: list[np.ndarray]) -> list[np.ndarray]:
        found = model.send_and_recv(w.grid, given, pairs)
        return [np.zeros_like(a) if b is None else b for a, b in zip(given, found, strict=True)]

    w.joint(f"stablehlo.optimization_barrier {got}#0 : {x.type}", [x], x.shape, x.element, received)


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
    message: 0.7, branch: 1, loop: 1,
}  # fmt: skip


def random_program(seed: int, size: int = 14) -> Program:
    """The program of that number."""
    return Writer(seed, size).write(list(STATEMENTS), list(STATEMENTS.values()))
