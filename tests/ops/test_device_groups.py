"""Who forms a group with whom: the four readings of StableHLO's specification, axes of meshes, and what is refused."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from stablexla.dialects.attributes.device_groups import (
    Axis,
    BrokenRule,
    Grid,
    GroupRules,
    Mode,
    PairRules,
    axis_groups,
    mode_of,
    resolve_groups,
    resolve_pairs,
)

RULES, PAIRS = GroupRules("C1", "C2", "C3", "C4"), PairRules("C1", "C2", "C3", "C4")
UNEVEN = GroupRules("C1", "C2", "C3")


def devices(grid: Grid, *processes: tuple[int, int]) -> tuple[int, ...]:
    return tuple(grid.device(*process) for process in processes)


class TestSpecification:
    """The examples of "Process groups", whose processes are pairs (replica, partition)."""

    def test_cross_replica(self) -> None:
        grid = Grid(4, 2)
        assert resolve_groups([[0, 1], [2, 3]], Mode.CROSS_REPLICA, grid, RULES) == (
            devices(grid, (0, 0), (1, 0)),
            devices(grid, (0, 1), (1, 1)),
            devices(grid, (2, 0), (3, 0)),
            devices(grid, (2, 1), (3, 1)),
        )

    def test_cross_partition(self) -> None:
        grid = Grid(4, 2)
        wanted = tuple(devices(grid, (r, 0), (r, 1)) for r in range(4))
        assert resolve_groups([[0, 1]], Mode.CROSS_PARTITION, grid, RULES) == wanted

    def test_cross_replica_and_partition(self) -> None:
        grid = Grid(4, 2)
        assert resolve_groups([[0, 1], [2, 3]], Mode.CROSS_REPLICA_AND_PARTITION, grid, RULES) == (
            devices(grid, (0, 0), (1, 0), (0, 1), (1, 1)),
            devices(grid, (2, 0), (3, 0), (2, 1), (3, 1)),
        )

    def test_flattened_ids(self) -> None:
        grid = Grid(4, 2)
        assert resolve_groups([[0, 1, 2, 3], [4, 5, 6, 7]], Mode.FLATTENED_IDS, grid, RULES) == (
            devices(grid, (0, 0), (0, 1), (1, 0), (1, 1)),
            devices(grid, (2, 0), (2, 1), (3, 0), (3, 1)),
        )

    @pytest.mark.parametrize(
        ("channel", "flag", "mode"),
        [
            (0, False, Mode.CROSS_REPLICA),
            (-1, False, Mode.CROSS_REPLICA),
            (1, False, Mode.CROSS_REPLICA_AND_PARTITION),
            (1, True, Mode.FLATTENED_IDS),
            (0, None, Mode.CROSS_REPLICA),
            (3, None, Mode.CROSS_PARTITION),
        ],
    )
    def test_what_an_operation_asks_for(self, channel: int, flag: bool | None, mode: Mode) -> None:
        assert mode_of(channel, flag) is mode


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("grid", [Grid(1, 3), Grid(3, 1), Grid(2, 2), Grid(3, 2)], ids=str)
def test_no_groups_are_one_of_all(mode: Mode, grid: Grid) -> None:
    groups = resolve_groups([], mode, grid, RULES)
    assert groups == resolve_groups([list(range(mode.limit(grid)))], mode, grid, RULES)
    assert sorted(itertools.chain(*groups)) == list(range(grid.size))


def test_rows_are_filled_up() -> None:
    assert resolve_groups([[2, 0, -1], [1, -1, -1]], Mode.CROSS_REPLICA, Grid(3), UNEVEN) == ((2, 0), (1,))
    assert resolve_groups([[-1, -1]], Mode.CROSS_REPLICA, Grid(2), RULES) == ((0, 1),)


@pytest.mark.parametrize(
    ("table", "rule", "message"),
    [
        ([[0, 1], [1, 2]], "C1", "1 stands twice in replica_groups"),
        ([[0, 1]], "C2", "must name all 4 replicas (cross_replica), and 2, 3 are not there"),
        ([[0, 1, 2]], "C2", "and 3 is not there"),
        ([[0, 4], [1, 2]], "C3", "names replica 4, where there are 4"),
        ([[0, -2], [1, 2]], "C3", "names replica -2"),
        ([[0, 1, 2], [3, -1, -1]], "C4", "must have one size, and there are groups of 1 and 3"),
    ],
)
def test_tables_that_are_refused(table: list[list[int]], rule: str, message: str) -> None:
    with pytest.raises(BrokenRule) as raised:
        resolve_groups(table, Mode.CROSS_REPLICA, Grid(4, 2), RULES)
    assert raised.value.rule == rule
    assert message in raised.value.message


@pytest.mark.parametrize(
    ("table", "rule", "message"),
    [
        ([[0, 1, 2]], "C1", "must be pairs"),
        ([[0, 1], [0, 0]], "C2", "0 stands twice as a source"),
        ([[0, 1], [1, 1]], "C3", "1 stands twice as a target"),
        ([[0, 2]], "C4", "names partition 2, where there are 2 (cross_partition)"),
    ],
)
def test_pairs_that_are_refused(table: list[list[int]], rule: str, message: str) -> None:
    with pytest.raises(BrokenRule) as raised:
        resolve_pairs(table, Mode.CROSS_PARTITION, Grid(3, 2), PAIRS)
    assert raised.value.rule == rule
    assert message in raised.value.message


def test_pairs_of_each_replica_and_of_each_partition() -> None:
    assert resolve_pairs([[0, 1]], Mode.CROSS_REPLICA, Grid(2, 2), PAIRS) == ((0, 2), (1, 3))
    assert resolve_pairs([[0, 1]], Mode.CROSS_PARTITION, Grid(2, 2), PAIRS) == ((0, 1), (2, 3))


# ---- axes of a mesh --------------------------------------------------------------------------------------------------


def by_coordinates(sizes: dict[str, int], axes: list[str]) -> set[tuple[int, ...]]:
    """The groups as sets, found by comparing the coordinates of every two devices."""
    numbers = np.arange(int(np.prod(list(sizes.values())))).reshape(list(sizes.values()))
    others = [name for name in sizes if name not in axes]
    groups: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = {}
    for place in np.ndindex(numbers.shape):
        at = dict(zip(sizes, place, strict=True))
        key, inner = tuple(at[n] for n in others), tuple(at[n] for n in axes)
        groups.setdefault(key, []).append((inner, int(numbers[place])))
    return {tuple(number for _, number in sorted(group)) for group in groups.values()}


@pytest.mark.parametrize("axes", [list(p) for n in range(4) for p in itertools.permutations("xyz", n)], ids=str)
def test_axes(axes: list[str]) -> None:
    sizes = {"x": 2, "y": 3, "z": 2}
    assert set(axis_groups(sizes, [Axis(a) for a in axes])) == by_coordinates(sizes, axes)


def test_parts_of_axes() -> None:
    whole, split = {"x": 12}, {"a": 2, "b": 3, "c": 2}
    for part, name in ((Axis("x", 1, 2), "a"), (Axis("x", 2, 3), "b"), (Axis("x", 6, 2), "c")):
        assert axis_groups(whole, [part]) == axis_groups(split, [Axis(name)])
    assert axis_groups(whole, [Axis("x", 6, 2), Axis("x", 1, 2)]) == axis_groups(split, [Axis("c"), Axis("a")])
    assert axis_groups({"x": 1, "y": 2}, [Axis("x"), Axis("y", 1, 2)]) == ((0, 1),)


def test_a_mesh_with_its_devices_in_another_order() -> None:
    assert axis_groups({"x": 2, "y": 2}, [Axis("y")], [3, 1, 0, 2]) == ((3, 1), (0, 2))


def test_axes_that_are_refused() -> None:
    with pytest.raises(BrokenRule, match="no axis 'z': it has 'x'"):
        axis_groups({"x": 2}, [Axis("z")])
    with pytest.raises(BrokenRule, match="no part that begins after 4"):
        axis_groups({"x": 6}, [Axis("x", 2, 2)])


# ---- in programs -----------------------------------------------------------------------------------------------------

Make = Callable[[sx.XlaBuilder, sx.XlaOp], Any]


@pytest.mark.parametrize(
    ("make", "counts", "rule", "message"),
    [
        (lambda b, x: sx.all_reduce(x, sx.add, ((0, 1),)), (4, 1), "C2", "2, 3 are not there"),
        (lambda b, x: sx.all_reduce(x, sx.add, ((0, 1, 2),)), (2, 1), "C3", "names replica 2, where there are 2"),
        (lambda b, x: sx.all_reduce(x, sx.add, ((0, 1),), 1, True), (2, 2), "C2", "all 4 devices (flattened_ids)"),
        (lambda b, x: sx.all_gather(x, 0, 2), (4, 1), "C6", "the result must have size 16, not 8"),
        (lambda b, x: sx.all_gather(x, 0, 2, ((0, 1),), 1), (2, 2), "C6", "a group has 4 devices"),
        (lambda b, x: sx.all_gather(x, 0, 1, ((0,),)), (2, 1), "C3", "and 1 is not there"),
        (lambda b, x: sx.all_to_all(x, 0, 0, 2, ((0, 1),)), (4, 1), "C6", "2, 3 are not there"),
        (lambda b, x: sx.all_to_all(x, 0, 0, 4, channel_id=1), (4, 1), "C7", "partition 1, where there is 1"),
        (lambda b, x: sx.collective_permute(x, ((0, 4),)), (4, 1), "C4", "names replica 4"),
        (lambda b, x: sx.collective_broadcast(x, ((0, 4),)), (4, 1), "C2", "names replica 4"),
        (lambda b, x: sx.reduce_scatter(x, sx.add, 0, 2), (4, 1), "C8", "must have size 1, not 2"),
        (lambda b, x: sx.reduce_scatter(x, sx.add, 1, 2), (5, 1), "C1", "of size 8 can't be split into the 5 blocks"),
        (lambda b, x: sx.send(x, 1, ((0, 5),)), (2, 1), "C4", "names replica 5"),
        (lambda b, x: b.recv(sx.f32[2], 1, ((0, 5),)), (2, 2), "C4", "names partition 5"),
    ],
)
def test_groups_that_do_not_fit_the_devices(make: Make, counts: tuple[int, int], rule: str, message: str) -> None:
    b = sx.XlaBuilder("test")
    computation = b.build(make(b, b.parameter(0, sx.f32[4, 8])))
    with pytest.raises(sx.VerificationError) as raised:
        sx.compile(computation, num_replicas=counts[0], num_partitions=counts[1])
    assert raised.value.rule == rule
    assert message in str(raised.value)
    assert f"({rule})" in str(raised.value)
    assert "test_device_groups.py" in str(raised.value)
    assert "it is compiled for" in str(raised.value)


UNEVEN_TEXT = """
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = "stablehlo.all_reduce"(%x) ({
  ^bb0(%a: tensor<f32>, %b: tensor<f32>):
    %s = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %s : tensor<f32>
  }) {replica_groups = dense<[[0, 2], [1, -1]]> : tensor<2x2xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}"""


def test_groups_of_different_sizes() -> None:
    xs = [np.full(4, 10.0**d, np.float32) for d in range(3)]
    results = sx.compile(UNEVEN_TEXT, num_replicas=3).execute_replicated([[x] for x in xs])
    for (result,), wanted in zip(results, [xs[0] + xs[2], xs[1], xs[0] + xs[2]], strict=True):
        np.testing.assert_array_equal(result, wanted)


MESH = """
module @mesh attributes {mhlo.num_partitions = 8 : i32} {
  sdy.mesh @mesh = <["x"=2, "y"=4]DEVICES>
  func.func @main(%x: tensor<2xf32>) -> tensor<SIZExf32> {
    %0 = "stablehlo.all_gather"(%x) {
      all_gather_dim = 0 : i64, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
      replica_groups = #stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [AXES]>, use_global_device_ids
    } : (tensor<2xf32>) -> tensor<SIZExf32>
    return %0 : tensor<SIZExf32>
  }
}"""
X, LOW = '#stablehlo.axis_ref<name = "x">', '#stablehlo.axis_ref<name = "y", sub_axis_info = (2)2>'


@pytest.mark.parametrize(
    ("axes", "device_ids", "groups"),
    [
        ([X], "", [(0, 4), (1, 5), (2, 6), (3, 7)]),
        ([LOW, X], "", [(0, 4, 1, 5), (2, 6, 3, 7)]),
        ([X], ", device_ids=[7, 6, 5, 4, 3, 2, 1, 0]", [(7, 3), (6, 2), (5, 1), (4, 0)]),
    ],
)
def test_groups_that_are_axes_of_a_mesh(axes: list[str], device_ids: str, groups: list[tuple[int, ...]]) -> None:
    text = MESH.replace("DEVICES", device_ids).replace("AXES", ", ".join(axes))
    text = text.replace("SIZE", str(2 * len(groups[0])))
    xs = [np.array([d, -d], np.float32) for d in range(8)]
    results = sx.compile(text).execute_replicated([[x] for x in xs])
    for group in groups:
        for device in group:
            np.testing.assert_array_equal(results[device][0], np.concatenate([xs[d] for d in group]))


def test_errors_show_the_line_of_code_outside_of_functions(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text('x = sx.XlaBuilder("p").parameter(0, sx.f32[2])\ny = sx.all_reduce(x, sx.add, [[0, 1], [2]])\n')
    names: dict[str, Any] = {"sx": sx}
    exec(compile(file.read_text(), str(file), "exec"), names)
    with pytest.raises(sx.VerificationError) as raised:
        sx.compile(names["x"].builder.build(names["y"]), num_replicas=2)
    assert f"\n  from {file}:2:  y = sx.all_reduce(x, sx.add, [[0, 1], [2]])\n" in str(raised.value)
