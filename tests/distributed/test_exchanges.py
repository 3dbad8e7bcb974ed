"""Exchanges that XLA's builder has and StableHLO has not: all_to_all_tuple, ragged_all_to_all, and sizes of 0.

Oracles: the model; XLA:CPU and the interpreter, the former on what a ragged exchange is written out as: it ends the
process at one, and the interpreter waits for itself there. JAX's documentation has an example.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import stablexla as sx
from stablexla.targets.cpu import pipeline  # noqa: F401  (it registers the pass)
from stablexla.targets.pipeline.driver import run_pipeline
from stablexla.targets.pipeline.pipelines import Pipeline, Step
from tests.distributed import model, xla_oracle
from tests.distributed.harness import BOTH, build, check, numbered, run, same
from tests.distributed.model import Grid

FORMS = [
    (Grid(3), (), None),
    (Grid(4), ((2, 0), (1, 3)), None),
    (Grid(2, 2), ((1, 0),), None),
    (Grid(2, 3), ((2, 0, 1),), 1),
    (Grid(1, 4), ((0, 2), (3, 1)), 2),
]


def group_size(grid: Grid, groups: Sequence[Sequence[int]], channel: int | None) -> int:
    return len(model.exchange_groups(grid, groups, channel or 0)[0])


# ---- all_to_all_tuple ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("grid", "groups", "channel"), FORMS, ids=str)
def test_all_to_all_tuple(grid: Grid, groups: tuple[tuple[int, ...], ...], channel: int | None) -> None:
    count = group_size(grid, groups, channel)
    xs = [[a + 1000 * i for a in numbered(grid, (2, 3))] for i in range(count)]
    run(
        lambda b, *xs: list(sx.all_to_all_tuple(xs, groups, channel)),
        grid,
        *xs,
        expected=model.all_to_all_tuple(grid, xs, groups, channel or 0),
        against=BOTH if groups else ["xla"],
    )


@pytest.mark.parametrize("name", ["pred", "s4", "u8", "bf16", "f64", "c64", "f8e5m2"])
def test_all_to_all_tuple_of_every_kind(name: str) -> None:
    grid, dtype = Grid(2), sx.element_type(name).dtype
    for shape in ((), (5,), (0, 2)):
        xs = [[(a % 2 + i).astype(dtype) for a in numbered(grid, shape, np.int64)] for i in range(2)]
        expected = model.all_to_all_tuple(grid, xs)
        run(lambda b, *xs: list(sx.all_to_all_tuple(sx.tuple(xs))), grid, *xs, expected=expected, against=[])


# ---- sizes of 0 ------------------------------------------------------------------------------------------------------


def test_nothing_is_exchanged_along_a_dimension_of_size_0() -> None:
    grid = Grid(2)
    x, y = numbered(grid, (0, 3)), numbered(grid, (2, 3))

    def program(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
        both = [sx.all_gather((x, y), 0, 2), sx.reduce_scatter((x, y), sx.add, 0, 2)]
        return [sx.all_gather(x, 0, 2), *(part for pair in both for part in pair)]

    gathered, scattered = model.all_gather(grid, y, 0), model.reduce_scatter(grid, y, np.add, 0)
    run(program, grid, x, y, expected=[x, x, gathered, x, scattered], against=["xla"])


# ---- ragged_all_to_all -----------------------------------------------------------------------------------------------


def i32(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def ragged(b: sx.XlaBuilder, x, y, begins, sizes, places, wanted, groups=(), channel=None) -> sx.XlaOp:  # type: ignore[no-untyped-def]
    return sx.ragged_all_to_all(x, begins, sizes, y, places, wanted, groups, channel)


def written_out(computation: sx.XlaComputation, grid: Grid) -> str:
    """The text without the custom call."""
    module = computation.copy_of_module()
    with module.context:
        for name, count in (("replicas", grid.replicas), ("partitions", grid.partitions)):
            module.operation.attributes[f"mhlo.num_{name}"] = sx.XlaBuilder("b").i32(count)
    return str(run_pipeline(module, Pipeline("test", [Step("test", "stablexla-expand-ragged-exchanges")])))


JAX_EXAMPLE = [
    [f32(1, 2, 2), f32(0, 0, 0, 0), i32(0, 1), i32(1, 2), i32(0, 0), i32(1, 1)],
    [f32(3, 4, 0), f32(0, 0, 0, 0), i32(0, 1), i32(1, 1), i32(1, 2), i32(2, 1)],
]
JAX_RESULT = [[f32(1, 3, 0, 0), f32(2, 2, 4, 0)]]


def test_jax_documentation() -> None:
    check(build(ragged, JAX_EXAMPLE[0]), Grid(2), JAX_EXAMPLE, JAX_RESULT, against=[])


def test_the_text_that_jax_writes() -> None:
    """It says the channel in the call's configuration, which may stand beside the call."""
    for config in ("api_version = 4 : i32, backend_config", "api_version = 1 : i32, mhlo.backend_config"):
        text = f"""
        func.func @main(%x: tensor<3xf32>, %y: tensor<4xf32>, %a: tensor<2xi32>, %b: tensor<2xi32>, %c: tensor<2xi32>,
                        %d: tensor<2xi32>) -> tensor<4xf32> {{
          %0 = stablehlo.custom_call @ragged_all_to_all(%x, %y, %a, %b, %c, %d) {{
            {config} = {{replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, channel_id = 1 : i64}}}}
            : (tensor<3xf32>, tensor<4xf32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>)
            -> tensor<4xf32>
          return %0 : tensor<4xf32>
        }}"""
        check(text, Grid(1, 2), JAX_EXAMPLE, JAX_RESULT, against=[])


def pieces(grid: Grid, size: int, each: int, rows: int, seed: int) -> list[list[np.ndarray]]:
    """Random begins, sizes and places for each device, of pieces that do not overlap where they come."""
    random = np.random.default_rng(seed)
    found: list[list[np.ndarray]] = [[], [], []]
    for device in range(grid.size):
        sizes = random.integers(0, rows // 2, size * each)
        begins = [random.integers(0, rows - n + 1) for n in sizes]
        # Every device has a room of its own in the outputs of all.
        places = device * each * rows + np.tile(np.arange(each), size) * rows + random.integers(0, rows // 2)
        for of_one, values in zip(found, (begins, sizes, places), strict=True):
            of_one.append(np.array(values, np.int64))
    return found


@pytest.mark.parametrize("each", [1, 3])
@pytest.mark.parametrize(("grid", "groups", "channel"), FORMS, ids=str)
def test_random_pieces(grid: Grid, groups: tuple[tuple[int, ...], ...], channel: int | None, each: int) -> None:
    rows = 7
    x = numbered(grid, (rows, 2, 3))
    y = [-a for a in numbered(grid, (grid.size * each * rows, 2, 3))]
    begins, sizes, places = pieces(grid, group_size(grid, groups, channel), each, rows, seed=each)
    expected = model.ragged_all_to_all(grid, x, y, begins, sizes, places, groups, channel or 0)
    arguments = [list(of_one) for of_one in zip(x, y, begins, sizes, places, sizes, strict=True)]
    computation = build(lambda b, *ops: ragged(b, *ops, groups, channel), arguments[0])
    check(computation, grid, arguments, [expected], against=[])
    if each == 3:
        found = xla_oracle.xla(written_out(computation, grid), arguments, grid.replicas, grid.partitions)
        same(found, [[a] for a in expected], "XLA:CPU")


@pytest.mark.parametrize("name", ["pred", "s4", "u8", "bf16", "f64", "c64", "f8e5m2"])
def test_ragged_of_every_kind(name: str) -> None:
    dtype = sx.element_type(name).dtype
    arguments = [[of_one[0].astype(dtype), of_one[1].astype(dtype), *of_one[2:]] for of_one in JAX_EXAMPLE]
    check(build(ragged, arguments[0]), Grid(2), arguments, [[a.astype(dtype) for a in JAX_RESULT[0]]], against=[])


@pytest.mark.parametrize("name", ["s8", "u8", "s64", "u32"])
def test_offsets_of_every_type(name: str) -> None:
    """Sums of them may be larger than their type holds: 200 rows are there in all."""
    grid, dtype = Grid(2), sx.element_type(name).dtype
    x, y = numbered(grid, (100,)), [np.zeros(100, np.float32)] * 2
    begins, sizes, places = ([np.array(v, dtype)] * 2 for v in ([90, 80], [10, 10], [0, 50]))
    places[1] = places[0] + np.array(10, dtype)
    expected = model.ragged_all_to_all(grid, x, y, begins, sizes, places)
    run(ragged, grid, x, y, begins, sizes, places, sizes, expected=[expected], against=[])


def test_empty_inputs_and_outputs() -> None:
    grid = Grid(2)
    for rows, length in ((0, 3), (3, 0), (0, 0)):
        x, y = numbered(grid, (rows, 2)), numbered(grid, (length, 2))
        zeros = [i32(0, 0)] * 2
        run(ragged, grid, x, y, zeros, zeros, zeros, zeros, expected=[y], against=[])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (("dense<[[0, 1]]> : tensor<1x2xi64>", "dense<[[0, 1], [2, -1]]> : tensor<2x2xi64>"), "groups of different"),
        (("dense<[[0, 1]]> : tensor<1x2xi64>", "dense<[[0, 1, 2]]> : tensor<1x3xi64>"), "a multiple of 3 numbers"),
        (("tensor<4xf32>", "tensor<4xf64>"), "input, output and result do not fit"),
    ],
)
def test_text_that_does_not_fit(edit: tuple[str, str], message: str) -> None:
    text = str(build(lambda b, *ops: ragged(b, *ops, ((0, 1),)), JAX_EXAMPLE[0])).replace(*edit)
    with pytest.raises(sx.StablexlaError, match=message):
        sx.compile(text, num_replicas=2)


def test_a_registered_function_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stablexla.compiling.custom_calls.TARGETS", targets := {})
    monkeypatch.setattr("stablexla.dialects.custom_calls.TARGETS", targets)
    sx.register_custom_call("ragged_all_to_all", lambda x, y, *_, **named: y + 1)
    check(build(ragged, JAX_EXAMPLE[0]), Grid(2), JAX_EXAMPLE, [[f32(1, 1, 1, 1)] * 2], against=[])


# ---- by hand between partitions --------------------------------------------------------------------------------------


def test_parts_of_a_sharded_program_by_hand() -> None:
    """Each partition turns its own rows over and adds what the next one has."""
    text = "{devices=[2,1]<=[2]}"
    b = sx.XlaBuilder("test")
    x = b.parameter(0, sx.f32[6, 2])
    b.set_instruction_sharding(x, text)
    part = sx.convert_spmd_full_to_shard_shape(sx.neg(x), -1, text)
    assert part.shape == sx.f32[3, 2]
    others = sx.collective_permute(part, ((0, 1), (1, 0)), 1)
    whole = sx.convert_spmd_shard_to_full_shape(sx.rev(part, (0,)) + others, sx.f32[6, 2], -1, text)
    computation = b.build(whole * 2)
    a = np.arange(12, dtype=np.float32).reshape(6, 2)
    first, second = -a[:3], -a[3:]
    wanted = np.concatenate([first[::-1] + second, second[::-1] + first]) * 2
    assert (sx.compile(computation, num_partitions=2)(a) == wanted).all()


@pytest.mark.parametrize(
    ("single", "sharding", "message"),
    [
        (0, "{devices=[2,1]<=[2]}", "single_dim must be -1"),
        (-1, "{replicated}", "must be a sharding in tiles"),
        (-1, 5, "must be a text"),
        (-1, "{devices=[4,1]<=[4]}", r"must cut \[6, 2\] into equal parts"),
        (-1, "{devices=[2]<=[2]}", "a number for each dimension"),
    ],
)
def test_refused_parts(single: int, sharding: str, message: str) -> None:
    x = sx.XlaBuilder("test").parameter(0, sx.f32[6, 2])
    with pytest.raises(sx.ShapeError, match=message):
        sx.convert_spmd_full_to_shard_shape(x, single, sharding)
    with pytest.raises(sx.ShapeError, match=message):
        sx.convert_spmd_shard_to_full_shape(x, sx.f32[6, 2], single, sharding)
    with pytest.raises(sx.ShapeError, match="input must be a part"):
        sx.convert_spmd_shard_to_full_shape(x, sx.f32[6, 2], -1, "{devices=[2,1]<=[2]}")
