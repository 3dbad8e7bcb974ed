"""The collectives of random programs: every operation, in every mode, form of groups, and order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.distributed import model
from tests.distributed.model import Process
from tests.distributed.random_writer import Dims, Value, Writer, size_of, tensor


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
    """A computation of two elements, at times by a detour over arrays."""
    scalar = tensor((), element)
    a, b, c = w.name(), w.name(), w.name()
    detours = [_detour(w, v, element) if w.chance(0.1) else (v, "") for v in (a, b)]
    (x, first), (y, second) = detours
    return (
        f"({{\n^bb0({a}: {scalar}, {b}: {scalar}):\n{first}{second}{c} = stablehlo.{name} {x}, {y} : {scalar}\n"
        f"stablehlo.return {c} : {scalar}\n}})"
    )


def _detour(w: Writer, value: str, element: str) -> tuple[str, str]:
    """The name of the same scalar, picked from an array of it, and the operations that make it."""
    scalar, three, one = (tensor(shape, element) for shape in ((), (3,), (1,)))
    array, part, made = w.name(), w.name(), w.name()
    return made, (
        f"{array} = stablehlo.broadcast_in_dim {value}, dims = [] : ({scalar}) -> {three}\n"
        f"{part} = stablehlo.slice {array} [1:2] : ({three}) -> {one}\n"
        f"{made} = stablehlo.reshape {part} : ({one}) -> {scalar}\n"
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


def ragged_all_to_all(w: Writer) -> None:
    """Pieces of random sizes. Each device writes into rows of its own of every output, so that none overlap."""
    channel, among = _exchange(w)
    rows = _rows(w, among, equal=True)
    groups = model.exchange_groups(w.grid, rows, channel)
    x = w.pick(lambda v: len(v.shape) > 0 and 0 < size_of(v) < 500)
    if x is None or not w.together([[w.grid.number(p) for p in group] for group in groups]) or not w.ours():
        return
    count, room = len(rows[0]), x.shape[0]
    sizes = [w.random.randint(0, room) for _ in range(count)]
    begins = [w.random.randint(0, room - n) for n in sizes]
    out = (among * room, *x.shape[1:])
    kind = f"tensor<{count}xi32>"
    n, m = w.number("partition" if channel else "replica"), w.constant(room, (), "i32")
    scaled = w.local(f"stablehlo.multiply {n.name}, {m.name} : tensor<i32>", [n, m], (), "i32", np.multiply)
    text = f"stablehlo.broadcast_in_dim {scaled.name}, dims = [] : (tensor<i32>) -> {kind}"
    place = w.local(text, [scaled], (count,), "i32", lambda a: np.full(count, a))
    begin, size, target = w.name(), w.name(), w.constant(1, out, x.element)
    w.line(f"{begin} = stablehlo.constant dense<{begins}> : {kind}")
    w.line(f"{size} = stablehlo.constant dense<{sizes}> : {kind}")
    config = f"replica_groups = {_groups_text(rows)}" + (f", channel_id = {channel} : i64" if channel else "")
    types = ", ".join([x.type, target.type, *[kind] * 4])
    text = (
        f"stablehlo.custom_call @ragged_all_to_all({x.name}, {target.name}, {begin}, {size}, {place.name}, {size}) "
        f"{{api_version = 4 : i32, backend_config = {{{config}}}}} : ({types}) -> {target.type}"
    )

    def function(given: list[np.ndarray]) -> list[np.ndarray]:
        numbers = [(p if channel else r) * room for r, p in w.grid.processes]
        every = [np.array(values) for values in (begins, sizes)]
        places = [np.full(count, n) for n in numbers]
        ones = [np.ones(out, a.dtype) for a in given]
        same = [[v] * w.grid.size for v in every]
        return model.ragged_all_to_all(w.grid, given, ones, same[0], same[1], places, rows, channel)

    w.joint(text, [x], out, x.element, function)


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


def rooted(w: Writer) -> None:
    """A collective whose root is an operand: it gives, or it alone gets what is reduced."""
    channel, among = _exchange(w)
    rows = _rows(w, among, equal=True)
    groups = model.exchange_groups(w.grid, rows, channel)
    if not w.together([[w.grid.number(p) for p in group] for group in groups]) or not w.ours():
        return
    x, root, reduces = w.any(), w.random.randrange(len(rows[0])), w.chance(0.5)
    name, number = w.random.choice(["add", "maximum", "minimum"]), w.name()
    x = w.small(x) if reduces else x
    w.line(f"{number} = stablehlo.constant dense<{root}> : tensor<1xi32>")
    config = f"has_dynamic_root, replica_groups = {_groups_text(rows)}{_channel(w, channel)}"
    what, region = ("reduce", _region(w, x.element, name)) if reduces else ("broadcast", "")
    kind = f"({x.type}, tensor<1xi32>) -> {x.type}"
    text = f'"stablehlo.collective_{what}"({x.name}, {number}) {region} {{{config}}} : {kind}'

    def function(given: list[np.ndarray]) -> list[np.ndarray]:
        if reduces:
            return model.collective_reduce(w.grid, given, REDUCERS[name][0], rows, channel, root=root)
        return model.collective_broadcast(w.grid, given, rows, channel, root)

    w.joint(text, [x], x.shape, x.element, function)


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
