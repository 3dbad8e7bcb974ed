"""Collectives with a root: who gives, who gets, and zeros everywhere else.

Oracles: the model, which is the text of the specification; the reference interpreter, bit for bit. XLA:CPU has neither
operation.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.distributed import model
from tests.distributed.harness import build, check, each, numbered, run
from tests.distributed.model import Grid, Groups
from tests.distributed.test_element_types import draw
from tests.distributed.test_specification import adding, module, s64
from tests.versions import needs_stablehlo

BROADCASTS, REDUCES = needs_stablehlo("1.20"), needs_stablehlo("1.19")
FOUR = Grid(4)
X = [s64([[1, 2]]), s64([[3, 4]]), s64([[5, 6]]), s64([[7, 8]])]
NONE = s64([[0, 0]])
checked = partial(run, against=["interpreter"])


# ---- the examples of the specification -------------------------------------------------------------------------------


@REDUCES
@pytest.mark.parametrize(
    ("root", "expected"), [(None, [s64([[16, 20]]), *[NONE] * 3]), (3, [*[NONE] * 3, s64([[16, 20]])])]
)
def test_example_of_collective_reduce(root: int | None, expected: list[np.ndarray]) -> None:
    checked(lambda b, x: sx.collective_reduce(x, sx.add, ((0, 1, 2, 3),), root=root), FOUR, X, expected=[expected])


# ---- groups ----------------------------------------------------------------------------------------------------------

CASES: list[tuple[Grid, Groups, int, int]] = [
    (Grid(4), ((2, 0), (1, 3)), 0, 1),
    (Grid(4), ((1, 0, 2),), 0, 2),  # replica 3 is in no group
    (Grid(1, 4), ((3, 2), (0, 1)), 5, 1),
    (Grid(2, 3), ((1, 0),), 0, 1),
    (Grid(2, 3), ((2, 0, 1),), 7, 2),
    (Grid(5), ((4, 2, 0, 3, 1),), 0, 3),
]


@REDUCES
@pytest.mark.parametrize(("grid", "groups", "channel", "root"), CASES, ids=str)
def test_reduced_in_groups(grid: Grid, groups: Groups, channel: int, root: int) -> None:
    x = numbered(grid, (3, 2), np.int64)
    expected = [model.collective_reduce(grid, x, np.add, groups, channel, root=r) for r in (0, root)]

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        return [sx.collective_reduce(x, sx.add, groups, channel or None, root=r) for r in (None, root)]

    # The interpreter aborts on groups of partitions.
    run(program, grid, x, expected=expected, against=[] if channel else ["interpreter"])


@BROADCASTS
@pytest.mark.parametrize(("grid", "groups", "channel", "root"), CASES, ids=str)
def test_broadcast_in_groups(grid: Grid, groups: Groups, channel: int, root: int) -> None:
    x = numbered(grid, (3, 2))
    expected = [model.collective_broadcast(grid, x, groups, channel, root)]
    checked(lambda b, x: sx.collective_broadcast(x, groups, channel or None, root=root), grid, x, expected=expected)


@REDUCES
def test_numbers_of_all_devices() -> None:
    """Which the specification's text of collective_reduce does not have, and the operation has."""
    grid, groups = Grid(2, 2), ((3, 0), (1, 2))
    x = numbered(grid, (5,))
    expected = [model.collective_reduce(grid, x, np.maximum, groups, 1, True, root=r) for r in (0, 1)]

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        return [sx.collective_reduce(x, sx.max, groups, 1, True, root=r) for r in (None, 1)]

    run(program, grid, x, expected=expected, against=[])


@REDUCES
def test_no_groups_are_one_of_all() -> None:
    x = numbered(FOUR, (2,))
    expected = [model.collective_reduce(FOUR, x, np.add, (), root=r) for r in (0, 2)]
    run(
        lambda b, x: [sx.collective_reduce(x, sx.add, root=r) for r in (None, 2)],
        *(FOUR, x),
        expected=expected,
        against=[],  # the interpreter takes no empty replica_groups
    )


# ---- operands --------------------------------------------------------------------------------------------------------


@BROADCASTS
def test_several_arrays_have_roots_of_their_own() -> None:
    groups = ((2, 1, 0),)
    x, y = numbered(FOUR, (2, 3)), numbered(FOUR, (), np.int32)

    def program(b: sx.XlaBuilder, x: sx.XlaOp, y: sx.XlaOp) -> list[sx.XlaOp]:
        return [*sx.collective_broadcast((x, y), groups, root=(2, 1)), *sx.collective_broadcast((y, x), groups)]

    spread = partial(model.collective_broadcast, FOUR, groups=groups)
    # The interpreter aborts on several roots.
    run(program, FOUR, x, y, against=[], expected=[spread(x, root=2), spread(y, root=1), spread(y), spread(x)])


@REDUCES
def test_several_arrays_are_reduced_by_themselves() -> None:
    groups = ((2, 1), (0, 3))
    x, y = numbered(FOUR, (2, 3)), numbered(FOUR, (0, 4))
    fold = partial(model.collective_reduce, FOUR, computation=np.multiply, groups=groups)
    checked(
        lambda b, x, y: list(sx.collective_reduce((x, y), sx.mul, groups, root=[1, 0])),
        *(FOUR, x, y),
        expected=[fold(x, root=1), fold(y, root=0)],
    )


@REDUCES
def test_roots_computed_by_the_program() -> None:
    """In a loop, with another root in each round."""
    x = numbered(FOUR, (3,))

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
        def body(state: sx.XlaOp) -> list[sx.XlaOp]:
            i, given, total = state
            root = sx.reshape(i, (1,))
            return [i + 1, given, total * 3 + sx.collective_reduce(given, sx.add, ((0, 1, 2, 3),), root=root)]

        start = [b.constant(np.int32(0)), x, sx.broadcast(b.constant(np.float32(0)), (3,))]
        return sx.while_(lambda s: s[0] < 4, body, start)[2]

    total = sum(x)
    run(program, FOUR, x, expected=[[total * 3**d for d in (3, 2, 1, 0)]], against=[])


@REDUCES
@pytest.mark.parametrize(("narrow", "wide"), [("f16", "f32"), ("s8", "s32"), ("bf16", "bf16"), ("u4", "u4")])
def test_computed_in_a_wider_type(narrow: str, wide: str) -> None:
    grid, groups = Grid(3), ((1, 0, 2),)
    x = each(grid, lambda d: (np.arange(6) % 5 + d).astype(sx.element_type(narrow).dtype))

    inside = sx.XlaBuilder("add")
    add = inside.build(inside.parameter(0, sx.Shape(wide)) + inside.parameter(1, sx.Shape(wide)))
    expected = model.collective_reduce(grid, x, np.add, groups, root=1, dtype=sx.element_type(wide).dtype)
    run(lambda b, x: sx.collective_reduce(x, add, groups, root=1), grid, x, expected=[expected], against=[])


@BROADCASTS
@pytest.mark.parametrize("name", [t.name for t in sx.ELEMENT_TYPES])
def test_every_element_type_from_its_root(name: str) -> None:
    """The bits arrive, those of a NaN and of a negative zero too."""
    x = draw(FOUR, name, (4, 6))
    expected = model.collective_broadcast(FOUR, x, ((2, 0, 3),), root=1)
    results = run(lambda b, x: sx.collective_broadcast(x, ((2, 0, 3),), root=1), FOUR, x, against=[])
    for (made,), wanted in zip(results, expected, strict=True):
        assert made.tobytes() == np.ascontiguousarray(wanted).tobytes()


@REDUCES
@pytest.mark.parametrize("groups", [((1, 0, 2),), ((2, 3), (1, 0))], ids=str)
def test_a_computation_that_holds_arrays(groups: Groups) -> None:
    """Its elements are looped over before the roots keep them."""
    x = numbered(FOUR, (3,), np.int64)
    inside = sx.XlaBuilder("largest")
    both = sx.concatenate([sx.reshape(inside.parameter(i, sx.s64[()]), (1,)) for i in range(2)], 0)
    largest = inside.build(sx.reduce(both, inside.constant(np.int64(0)), sx.max, (0,)))
    expected = [model.collective_reduce(FOUR, x, np.maximum, groups, root=r) for r in (0, 1)]

    def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
        return [sx.collective_reduce(x, largest, groups, root=r) for r in (None, 1)]

    run(program, FOUR, x, expected=expected, against=[])


@BROADCASTS
def test_quantised_arrays() -> None:
    """Zeros are the integers that stand for the number 0."""
    kind, scalar = "tensor<4x!quant.uniform<i8:f32, 0.5:3>>", "tensor<!quant.uniform<i8:f32, 0.5:3>>"
    attributes = "{has_dynamic_root, replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>}"
    text = f"""
    func.func @main(%x: {kind}) -> ({kind}, {kind}) {{
      %r = stablehlo.constant dense<1> : tensor<1xi32>
      %0 = "stablehlo.collective_reduce"(%x, %r) ({{
      ^bb0(%a: {scalar}, %b: {scalar}):
        %m = stablehlo.maximum %a, %b : {scalar}
        stablehlo.return %m : {scalar}
      }}) {attributes} : ({kind}, tensor<1xi32>) -> {kind}
      %1 = "stablehlo.collective_broadcast"(%x, %r) {attributes} : ({kind}, tensor<1xi32>) -> {kind}
      return %0, %1 : {kind}, {kind}
    }}"""
    x, y = np.array([-128, 0, 3, 127], np.int8), np.array([1, 2, 3, 4], np.int8)
    results = sx.compile(text, num_replicas=3).execute_replicated([[x], [y], [x]])
    none = np.full(4, 3, np.int8)
    wanted = [(none, y), (np.maximum(x, y), y), (none, none)]
    for found, right in zip(results, wanted, strict=True):
        for a, b in zip(found, right, strict=True):
            np.testing.assert_array_equal(a, b)


@BROADCASTS
def test_started_and_waited_for() -> None:
    attributes = "{has_dynamic_root, replica_groups = dense<[[1, 0, 2, 3]]> : tensor<1x4xi64>}"
    result, future = "tensor<1x2xi64>", "!stablehlo.future<tensor<1x2xi64>>"
    text = f"""
    func.func @main(%x: {result}, %r: tensor<1xi32>) -> {result} {{
      %f = "stablehlo.async_start"(%x, %r) ({{
      ^bb0(%a: {result}, %b: tensor<1xi32>):
        %1 = "stablehlo.collective_broadcast"(%a, %b) {attributes} : ({result}, tensor<1xi32>) -> {result}
        stablehlo.return %1 : {result}
      }}) : ({result}, tensor<1xi32>) -> {future}
      %d = "stablehlo.async_done"(%f) : ({future}) -> {result}
      return %d : {result}
    }}"""
    expected = model.collective_broadcast(FOUR, X, ((1, 0, 2, 3),), root=2)
    check(text, FOUR, [[x, np.array([2], np.int32)] for x in X], [expected], against=[])


@REDUCES
def test_groups_by_the_axes_of_a_mesh() -> None:
    groups = '#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = "b">]>'
    attributes = f"{{replica_groups = {groups}, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}}"
    operation = f'"stablehlo.collective_reduce"($x) {adding("i64")} {attributes} : $t'
    text = 'sdy.mesh @mesh = <["a"=2, "b"=2]>\n' + module(operation, ["tensor<1x2xi64>"], ["tensor<1x2xi64>"])
    expected = model.collective_reduce(Grid(1, 4), X, np.add, ((0, 1), (2, 3)), 1)
    check(text, Grid(1, 4), [[x] for x in X], [expected], against=[])


# ---- one device, and wrong ones --------------------------------------------------------------------------------------


@REDUCES
def test_alone() -> None:
    """A device that is alone in its group is its root."""
    x = numbered(Grid(2), (3,))
    alone = ((0,), (1,))
    run(lambda b, x: sx.collective_reduce(x, sx.add, alone), Grid(2), x, expected=[x], against=[])
    one = build(lambda b, x: [sx.collective_reduce(x, sx.add, ((0,),), root=0)], [x[0]])
    np.testing.assert_array_equal(sx.compile(one).execute([x[0]])[0], x[0])


@BROADCASTS
@pytest.mark.parametrize(
    "make",
    [
        lambda b, x: sx.collective_reduce(x, sx.add, ((0, 1, 2),)),
        lambda b, x: sx.collective_broadcast(x, ((0, 2),), root=1),
    ],
)
def test_devices_that_are_not_there(make: Any) -> None:
    with pytest.raises(sx.VerificationError, match=r"names replica 2, where there are 2 .*\(C2\)"):
        sx.compile(build(make, [X[0]]), num_replicas=2)
