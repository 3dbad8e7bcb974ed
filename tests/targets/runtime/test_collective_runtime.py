"""What devices do together in one process: whose bytes go where, for every operation, size and form of groups."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from stablexla.targets import runtime
from stablexla.targets.runtime import ArraySpec, CompiledFunction
from stablexla.targets.runtime._runtime import current_device, run_stopped
from tests.targets.runtime.device_programs import (
    Step,
    collective,
    config,
    device,
    devices_program,
    fold,
    key,
    mask,
    moved,
    parallel,
    run,
    values,
)

pytestmark = pytest.mark.usefixtures("nothing_leaks")

ALL4 = (0, 1, 2, 3)
TYPES = {"f32": np.float32, "f64": np.float64, "u8": np.uint8}
GROUPS = [[(0, 1)], [(1, 0)], [ALL4], [(2, 0), (3, 1)], [(0,), (3, 2, 1)], [tuple(range(8))], [(4, 1, 6), (0, 2)]]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def count_of(groups: Sequence[Sequence[int]]) -> int:
    return 1 + max(itertools.chain(*groups))


def text(dtype: str, shape: Sequence[int]) -> str:
    return f"{dtype}[{','.join(map(str, shape))}]"


def one(op: str, source: Any, target: Any, groups: Any, dtype: str = "f32", **more: Any) -> CompiledFunction:
    """A program of one collective, of arrays of the shape `source` that give such of the shape `target`."""
    combine = more.pop("combine", None)
    width = np.dtype(TYPES[dtype]).itemsize
    what = config(op, [text(dtype, source)], [text(dtype, target)], groups, width=width, **more)
    specs = [ArraySpec(TYPES[dtype], source)], [ArraySpec(TYPES[dtype], target)]
    devices = count_of([*groups, *more.get("pairs", ())])
    return devices_program(*specs, [collective(0, [2], [0], combine)], [what], devices)


def spread(rows: np.ndarray, groups: Any, of_group: Callable[[np.ndarray], Sequence[np.ndarray]]) -> dict[int, Any]:
    """For each device what its group gives it."""
    return {d: made for g in groups for d, made in zip(g, of_group(rows[list(g)]), strict=True)}


def check(function: CompiledFunction, rows: np.ndarray, wanted: dict[int, np.ndarray]) -> None:
    for _ in range(2):  # the second time the run's state is used again
        for d, (result,) in enumerate(run(function, rows)):
            if d in wanted:
                np.testing.assert_array_equal(result, wanted[d])


# ---- what is moved ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", GROUPS, ids=str)
@pytest.mark.parametrize("dtype", TYPES)
def test_all_reduce(rng: np.random.Generator, groups: Any, dtype: str) -> None:
    for size in (0, 1, 13, 2048, 5000):
        rows = values(rng, count_of(groups), size, dtype=TYPES[dtype])
        function = one("all_reduce", (size,), (size,), groups, dtype, combine=f"add_{dtype}")
        check(function, rows, spread(rows, groups, lambda g: [fold(g, np.add)] * len(g)))


@pytest.mark.parametrize("size", [100_000, 700_001, 3_000_001])
@pytest.mark.parametrize("groups", [[(0, 1)], [(2, 0, 1)]], ids=str)
def test_all_reduce_of_much_in_the_order_of_the_group(rng: np.random.Generator, groups: Any, size: int) -> None:
    rows = values(rng, count_of(groups), size)
    function = one("all_reduce", (size,), (size,), groups, combine="ordered")
    half = np.float32(0.5)
    check(function, rows, spread(rows, groups, lambda g: [fold(g, lambda a, b: a * half + b)] * len(g)))


def test_all_reduce_of_unaligned_arguments(rng: np.random.Generator) -> None:
    function = one("all_reduce", (500_000,), (500_000,), [(0, 1)], combine="add_f32")
    base = values(rng, 2, 500_001)
    check(function, base[:, 1:], dict.fromkeys((0, 1), base[0, 1:] + base[1, 1:]))


@pytest.mark.parametrize("groups", GROUPS, ids=str)
@pytest.mark.parametrize(
    ("shape", "axis"), [((3, 5), 0), ((3, 5), 1), ((2, 3, 4), 1), ((70, 300), 0), ((300, 70), 1), ((9000, 3), 1)]
)
def test_all_gather(rng: np.random.Generator, groups: Any, shape: tuple[int, ...], axis: int) -> None:
    members = len(groups[-1])
    groups = [g for g in groups if len(g) == members]
    target = tuple(n * members if i == axis else n for i, n in enumerate(shape))
    step = int(np.prod(shape[axis:]))
    copies = (moved(shape, shape, target, (0, step), 4),)
    rows = values(rng, count_of(groups), *shape)
    function = one("all_gather", shape, target, groups, copies=copies)
    check(function, rows, spread(rows, groups, lambda g: [np.concatenate(g, axis)] * len(g)))


@pytest.mark.parametrize("groups", GROUPS, ids=str)
@pytest.mark.parametrize(
    ("shape", "axis"), [((24, 5), 0), ((3, 24), 1), ((2, 24, 4), 1), ((240, 300), 0), ((9000, 24), 1)]
)
def test_reduce_scatter(rng: np.random.Generator, groups: Any, shape: tuple[int, ...], axis: int) -> None:
    members = len(groups[-1])
    groups = [g for g in groups if len(g) == members]
    part = tuple(n // members if i == axis else n for i, n in enumerate(shape))
    copies = (moved(part, shape, part, (int(np.prod(part[axis:])), 0), 4),)
    rows = values(rng, count_of(groups), *shape)
    function = one("reduce_scatter", shape, part, groups, copies=copies, combine="add_f32")
    check(function, rows, spread(rows, groups, lambda g: np.split(fold(g, np.add), members, axis)))


@pytest.mark.parametrize("groups", GROUPS, ids=str)
@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_all_to_all(rng: np.random.Generator, groups: Any, split: int, concat: int) -> None:
    members = len(groups[-1])
    groups = [g for g in groups if len(g) == members]
    source = (24, 48)
    part = tuple(n // members if i == split else n for i, n in enumerate(source))
    target = tuple(n * members if i == concat else n for i, n in enumerate(part))
    steps = (part[split] * (source[1] if split == 0 else 1), part[concat] * (target[1] if concat == 0 else 1))
    copies = (moved(part, source, target, steps, 4),)
    rows = values(rng, count_of(groups), *source)

    def of_group(g: np.ndarray) -> list[np.ndarray]:
        pieces = [np.split(row, members, split) for row in g]
        return [np.concatenate([piece[j] for piece in pieces], concat) for j in range(members)]

    function = one("all_to_all", source, target, groups, copies=copies)
    check(function, rows, spread(rows, groups, of_group))


@pytest.mark.parametrize("size", [3, 200_000])
@pytest.mark.parametrize(
    "pairs", [((0, 1), (1, 0)), ((0, 1), (1, 2), (2, 3)), ((0, 0), (2, 1)), ((0, 3), (4, 2), (2, 4))], ids=str
)
def test_collective_permute(rng: np.random.Generator, pairs: Any, size: int) -> None:
    function = one("collective_permute", (size,), (size,), (), pairs=pairs)
    rows = values(rng, function.num_devices, size)
    wanted = {d: np.zeros(size, np.float32) for d in range(function.num_devices)}
    check(function, rows, wanted | {target: rows[source] for source, target in pairs})


@pytest.mark.parametrize("groups", [[(1, 0)], [(2, 1), (3, 4)], [(3, 0, 1)]], ids=str)
def test_collective_broadcast(rng: np.random.Generator, groups: Any) -> None:
    function = one("collective_broadcast", (700,), (700,), groups)
    rows = values(rng, function.num_devices, 700)
    wanted = {d: np.zeros(700, np.float32) for d in range(function.num_devices)}
    check(function, rows, wanted | spread(rows, groups, lambda g: [g[0]] * len(g)))


def test_operands_of_several_types_and_sizes(rng: np.random.Generator) -> None:
    shapes, dtypes = [(3,), (5000,), (2, 2)], ["f32", "f64", "u8"]
    texts = [text(d, s) for d, s in zip(dtypes, shapes, strict=True)]
    pairs = ((0, 1), (1, 2), (2, 0))
    widths = [np.dtype(TYPES[d]).itemsize for d in dtypes]
    what = config("collective_permute", texts, pairs=pairs) | {"element_bytes": tuple(widths)}
    specs = [ArraySpec(TYPES[d], s) for d, s in zip(dtypes, shapes, strict=True)]
    function = devices_program(specs, specs, [collective(0, [4, 5, 6], [0, 1, 2])], [what], 3)
    rows = [values(rng, 3, *s, dtype=TYPES[d]) for d, s in zip(dtypes, shapes, strict=True)]
    for d, results in enumerate(run(function, *rows)):
        for result, row in zip(results, rows, strict=True):
            np.testing.assert_array_equal(result, row[(d - 1) % 3])


def test_several_sums_at_once(rng: np.random.Generator) -> None:
    sizes = (3, 100_000)
    specs = [ArraySpec("float32", (n,)) for n in sizes]
    what = config("all_reduce", [text("f32", (n,)) for n in sizes], groups=[(0, 1)])
    function = devices_program(specs, specs, [collective(0, [3, 4], [0, 1], "add_f32")], [what])
    rows = [values(rng, 2, n) for n in sizes]
    for results in run(function, *rows):
        for result, row in zip(results, rows, strict=True):
            np.testing.assert_array_equal(result, row[0] + row[1])


def test_steps_that_hang_on_each_other(rng: np.random.Generator) -> None:
    """Sums along rows and columns of a grid, and shifts, many times over: each step reads what the one before wrote."""
    spec = ArraySpec("float32", (40,))
    rows_and_columns = [[(0, 1, 2), (3, 4, 5)], [(0, 3), (1, 4), (2, 5)]]
    whats = [config("all_reduce", ["f32[40]"], groups=g) for g in rows_and_columns]
    whats.append(config("collective_permute", ["f32[40]"], pairs=[(i, (i + 1) % 6) for i in range(6)]))
    steps: list[Step] = []
    for _ in range(50):
        steps += [collective(0, [2], [0], "ordered"), collective(1, [3], [2], "ordered"), collective(2, [0], [3])]
    function = devices_program([spec], [spec, spec], steps, whats, 6)
    x = values(rng, 6, 40)
    wanted, half = x.copy(), np.float32(0.5)
    for _ in range(50):
        for groups in rows_and_columns:
            made = spread(wanted, groups, lambda g: [fold(g, lambda a, b: a * half + b)] * len(g))
            wanted = np.stack([made[d] for d in range(6)])
        wanted = np.roll(wanted, 1, axis=0)
    given = x.copy()
    run(function, given)
    np.testing.assert_array_equal(given, wanted)


def test_groups_of_one_and_devices_that_take_no_part(rng: np.random.Generator) -> None:
    rows = values(rng, 3, 10)
    what = config("all_reduce", ["f32[10]"], groups=[(0,), (2,)])
    spec = ArraySpec("float32", (10,))
    function = devices_program([spec], [spec], [collective(0, [2], [0], "add_f32", mask(0, 2))], [what], 3)
    results = run(function, rows)
    assert [results[d][0].tolist() for d in (0, 2)] == rows[[0, 2]].tolist()


# ---- devices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_every_device_knows_its_number(count: int) -> None:
    function = devices_program([], [ArraySpec("int64", ())], [device(outputs=[1])], (), count)
    assert [int(result) for (result,) in run(function)] == list(range(count))
    assert runtime.find_symbol("stablexla_device_id")
    assert current_device() == -1
    assert not run_stopped()


@pytest.mark.usefixtures("threads")
def test_kernels_on_other_threads_know_their_device() -> None:
    runtime.set_num_threads(4)
    function = devices_program([], [ArraySpec("int64", (64,))], [parallel(outputs=[1])], (), 3)
    for _ in range(5):
        assert [set(result.tolist()) for (result,) in run(function)] == [{0}, {1}, {2}]


class Nobody:
    callbacks = ()


def test_random_keys_are_repeatable_for_each_device() -> None:
    def keys(count: int) -> list[list[int]]:
        spec = ArraySpec("uint64", (3,))
        function = devices_program([], [spec], [key(outputs=[1], repeats=3)], (), count, host=Nobody())
        function.seed(7)
        first = [result.tolist() for (result,) in run(function)]
        second = [result.tolist() for (result,) in run(function)]
        function.seed(7)
        assert [result.tolist() for (result,) in run(function)] == first
        return [a + b for a, b in zip(first, second, strict=True)]

    four = keys(4)
    assert len(set(itertools.chain(*four))) == 24
    assert keys(1) == four[:1]
    assert keys(2) == four[:2]


def test_threads_are_kept_and_results_are_new(rng: np.random.Generator) -> None:
    function = one("all_reduce", (9,), (9,), [(0, 1, 2, 3)], combine="add_f32")
    rows = values(rng, 4, 9)
    first = run(function, rows)
    idle = runtime._runtime.idle_device_threads()
    assert idle >= 3
    second = run(function, rows * 2)
    assert runtime._runtime.idle_device_threads() == idle
    for (a,), (b,) in zip(first, second, strict=True):
        np.testing.assert_array_equal(a * 2, b)
    assert len({r[0].ctypes.data for r in first + second}) == 8


def test_donated_arguments_of_each_device(rng: np.random.Generator) -> None:
    spec = ArraySpec("float32", (16,))
    what = config("all_reduce", ["f32[16]"], groups=[(0, 1)])
    function = devices_program([spec], [spec], [collective(0, [2], [0], "add_f32")], [what], 2, aliases={0: 0})
    rows = [np.copy(r) for r in run(function, values(rng, 2, 16))]
    given = run(function, np.stack([r[0] for r in rows]))
    wanted = given[0][0] + given[1][0]
    addresses = [r[0].ctypes.data for r in given]
    results = function.execute_replicated(given, donate=True)
    for (result,), address in zip(results, addresses, strict=True):
        assert result.ctypes.data == address
        np.testing.assert_array_equal(result, wanted)
    shared = results[0][0]  # one array for both devices is not written over
    both = function.execute_replicated([[shared], [shared]], donate=True)
    assert len({shared.ctypes.data, *(r[0].ctypes.data for r in both)}) == 3
    np.testing.assert_array_equal(both[0][0], wanted + wanted)
