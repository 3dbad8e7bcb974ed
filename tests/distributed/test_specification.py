"""Every example with values of the two documents: XLA's operation semantics and StableHLO's specification.

The values are the documents'. The model has to give them too, and so have XLA:CPU and the reference interpreter, which
has no empty `replica_groups`; XLA:CPU has no collective_broadcast, and takes no all_to_all of several operands that are
split along a dimension.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import stablexla as sx
from tests.distributed import model
from tests.distributed.harness import BOTH, build, check, each, numbered, run, same
from tests.distributed.model import Grid

TWO = Grid(2)
ALONG_PARTITIONS = Grid(1, 2)


def s64(*values: Any) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, np.int64)


def f32(*values: Any) -> np.ndarray:
    return np.array(values, np.float32)


def module(operation: str, inputs: list[str], outputs: list[str]) -> str:
    """A module of one operation in MLIR's generic form, in which $x is the operands, $t its type."""
    names = ", ".join(f"%x{i}" for i in range(len(inputs)))
    kind = f"({', '.join(inputs)}) -> ({', '.join(outputs)})"
    results = ", ".join(f"%r#{i}" for i in range(len(outputs)))
    body = operation.replace("$x", names).replace("$t", kind)
    parameters = ", ".join(f"%x{i}: {t}" for i, t in enumerate(inputs))
    return f"""
    func.func @main({parameters}) -> ({", ".join(outputs)}) {{
      %r:{len(outputs)} = {body}
      func.return {results} : {", ".join(outputs)}
    }}"""


def adding(element: str) -> str:
    """A region that adds two scalars."""
    scalar = f"tensor<{element}>"
    return f"""({{
      ^bb0(%a: {scalar}, %b: {scalar}):
        %s = stablehlo.add %a, %b : {scalar}
        stablehlo.return %s : {scalar}
    }})"""


# ---- XLA's operation semantics ---------------------------------------------------------------------------------------


class TestOperationSemantics:
    FIRST, SECOND = f32(1.0, 2.5), f32(3.0, 5.25)
    IN_FOURS = ((0, 2), (1, 3))

    def test_all_gather(self) -> None:
        joined = f32(1.0, 2.5, 3.0, 5.25)
        operand, expected = [self.FIRST, self.SECOND], [joined, joined]
        same([model.all_gather(TWO, operand, 0)], [expected], "the model")
        run(lambda b, x: sx.all_gather(x, 0, 2), TWO, operand, expected=[expected], against=["xla"])
        run(lambda b, x: sx.all_gather(x, 0, 2, ((0, 1),)), TWO, operand, expected=[expected])

    def test_all_gather_between_0_and_2_and_between_1_and_3(self) -> None:
        x = numbered(Grid(4), (2,))
        a, c = np.concatenate([x[0], x[2]]), np.concatenate([x[1], x[3]])
        run(lambda b, x: sx.all_gather(x, 0, 2, self.IN_FOURS), Grid(4), x, expected=[[a, c, a, c]])

    def test_all_reduce(self) -> None:
        expected = [f32(4.0, 7.75)] * 2
        operand = [self.FIRST, self.SECOND]
        same([model.all_reduce(TWO, operand, np.add)], [expected], "the model")
        run(lambda b, x: sx.all_reduce(x, sx.add), TWO, operand, expected=[expected], against=["xla"])
        run(lambda b, x: sx.all_reduce(x, sx.add, ((0, 1),)), TWO, operand, expected=[expected])

    def test_all_reduce_of_a_tuple(self) -> None:
        x, y = [self.FIRST, self.SECOND], [f32(1), f32(2)]
        run(
            lambda b, x, y: list(sx.all_reduce(sx.tuple((x, y)), sx.add)),
            TWO,
            x,
            y,
            expected=[[f32(4.0, 7.75)] * 2, [f32(3)] * 2],
            against=["xla"],
        )

    def test_all_reduce_between_0_and_2_and_between_1_and_3(self) -> None:
        x = numbered(Grid(4), (3,))
        expected = [x[0] + x[2], x[1] + x[3]] * 2
        run(lambda b, x: sx.all_reduce(x, sx.add, self.IN_FOURS), Grid(4), x, expected=[expected])

    def test_all_reduce_more_often_on_one_replica(self) -> None:
        """The others are waited for for ever, it says; here that is seen at once.

        The condition of a while depends on what is fed, which has it go round more often on one of them.
        """

        def body(state: sx.XlaOp) -> sx.XlaOp:
            return sx.all_reduce(state, sx.add)

        def again(state: sx.XlaOp) -> sx.XlaOp:
            return state.builder.infeed(sx.pred[()])

        program = build(lambda b, x: sx.while_(again, body, x), [f32(1)])
        executable = sx.compile(program, num_replicas=2)
        for fed in (True, True, False):
            executable.transfer_to_infeed(fed, device=0)
        for fed in (True, False):
            executable.transfer_to_infeed(fed, device=1)
        with pytest.raises(sx.CollectiveError, match="all_reduce"):
            executable.execute_replicated([[f32(1)], [f32(2)]])

    def test_all_to_all(self) -> None:
        """f32[4,16], in four parts along dimension 1, joined along dimension 0: f32[16,4]."""
        grid = Grid(4)
        x = numbered(grid, (4, 16))
        expected = each(grid, lambda d: np.concatenate([of_one[:, 4 * d : 4 * d + 4] for of_one in x], 0))
        assert expected[0].shape == (16, 4)
        run(lambda b, x: sx.all_to_all(x, 1, 0, split_count=4), grid, x, expected=[expected])

    def test_all_to_all_in_the_order_of_its_groups(self) -> None:
        """{1,2,3} and {4,5,0}: parts are joined in that order."""
        grid, groups = Grid(6), ((1, 2, 3), (4, 5, 0))
        x = numbered(grid, (2, 3))
        expected: list[Any] = [None] * 6
        for group in groups:
            for place, device in enumerate(group):
                expected[device] = np.concatenate([x[sender][:, place : place + 1] for sender in group], 0)
        run(lambda b, x: sx.all_to_all(x, 1, 0, 3, groups), grid, x, expected=[expected])

    def test_collective_permute(self) -> None:
        """Who is no target has zeros."""
        x = numbered(Grid(3), (2, 2))
        expected = [np.zeros((2, 2), np.float32), x[0], x[1]]
        run(lambda b, x: sx.collective_permute(x, ((0, 1), (1, 2))), Grid(3), x, expected=[expected])

    def test_cross_replica_sum(self) -> None:
        operand, expected = [self.FIRST, self.SECOND], [f32(4.0, 7.75)] * 2
        run(lambda b, x: sx.cross_replica_sum(x), TWO, operand, expected=[expected], against=["xla"])

    def test_reduce_scatter(self) -> None:
        operand = [f32(1.0, 2.25), f32(3.0, 5.25)]
        expected = [f32(4.0), f32(7.5)]
        same([model.reduce_scatter(TWO, operand, np.add, 0)], [expected], "the model")
        run(lambda b, x: sx.reduce_scatter(x, sx.add, 0, 2), TWO, operand, expected=[expected], against=["xla"])

    def test_reduce_scatter_between_0_and_2_and_between_1_and_3(self) -> None:
        x = numbered(Grid(4), (2,))
        a, c = x[0] + x[2], x[1] + x[3]
        expected = [a[:1], c[:1], a[1:], c[1:]]
        run(lambda b, x: sx.reduce_scatter(x, sx.add, 0, 2, self.IN_FOURS), Grid(4), x, expected=[expected])

    def test_replica_id(self) -> None:
        """Another number on each replica, from 0 to N - 1."""
        run(lambda b: b.replica_id(), Grid(5), expected=[[np.uint32(r) for r in range(5)]])

    def test_two_loops_of_infeeds_have_one_order(self) -> None:
        """On each device by itself; an empty tuple reads nothing."""

        def once_more(state: sx.XlaOp) -> sx.XlaOp:
            return state < 100

        def body(state: sx.XlaOp) -> sx.XlaOp:
            state.builder.infeed(sx.Shape.tuple(()))
            return state + state.builder.infeed(sx.s32[()])

        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> list[sx.XlaOp]:
            first = sx.while_(once_more, body, x)
            second = sx.while_(once_more, body, first - 100)
            return [first, second]

        executable = sx.compile(build(program, [np.int32(0)]), num_replicas=2)
        for fed in (60, 60, 30, 70):
            executable.transfer_to_infeed(np.int32(fed), device=0)
        for fed in (150, 10, 20, 30):
            executable.transfer_to_infeed(np.int32(fed), device=1)
        results = executable.execute_replicated([[np.int32(0)], [np.int32(0)]])
        assert [[int(r) for r in of_one] for of_one in results] == [[120, 120], [150, 110]]

    def test_recv_send_recv_done_send_done(self) -> None:
        """The order of a channel's four instructions, as HLO has them; the data of the sender arrives."""
        x = [f32(1, 2), f32(3, 4)]
        check(EXCHANGE, TWO, [[a] for a in x], [[x[1], x[0]]], against=[])

    def test_send_and_recv(self) -> None:
        """As the builder has them: one shape, one channel."""

        def program(b: sx.XlaBuilder, x: sx.XlaOp) -> sx.XlaOp:
            sx.send(x, 3, source_target_pairs=((0, 1), (1, 0)))
            return b.recv(sx.f32[2], 3, source_target_pairs=((0, 1), (1, 0)))

        x = [f32(1, 2), f32(3, 4)]
        run(program, TWO, x, expected=[[x[1], x[0]]], against=[])


PAIRS = 'frontend_attributes={_xla_send_recv_source_target_pairs="{{0,1},{1,0}}"}'
EXCHANGE = f"""
HloModule exchange, replica_count=2, entry_computation_layout={{(f32[2]{{0}})->f32[2]{{0}}}}

ENTRY main {{
  x = f32[2]{{0}} parameter(0)
  t = token[] after-all()
  r = (f32[2]{{0}}, u32[], token[]) recv(t), channel_id=1, {PAIRS}
  s = (f32[2]{{0}}, u32[], token[]) send(x, t), channel_id=1, {PAIRS}
  rd = (f32[2]{{0}}, token[]) recv-done(r), channel_id=1
  sd = token[] send-done(s), channel_id=1
  ROOT y = f32[2]{{0}} get-tuple-element(rd), index=0
}}
"""


# ---- StableHLO's specification ---------------------------------------------------------------------------------------


class TestGroups:
    """The examples of section "Collective ops"."""

    def test_cross_replica(self) -> None:
        made = model.cross_replica(Grid(4, 2), [[0, 1], [2, 3]])
        assert made == [[(0, 0), (1, 0)], [(0, 1), (1, 1)], [(2, 0), (3, 0)], [(2, 1), (3, 1)]]

    def test_cross_partition(self) -> None:
        made = model.cross_partition(Grid(4, 2), [[0, 1]])
        assert made == [[(0, 0), (0, 1)], [(1, 0), (1, 1)], [(2, 0), (2, 1)], [(3, 0), (3, 1)]]

    def test_cross_replica_and_partition(self) -> None:
        made = model.cross_replica_and_partition(Grid(4, 2), [[0, 1], [2, 3]])
        assert made == [[(0, 0), (1, 0), (0, 1), (1, 1)], [(2, 0), (3, 0), (2, 1), (3, 1)]]

    def test_flattened_ids(self) -> None:
        made = model.flattened_ids(Grid(4, 2), [[0, 1, 2, 3], [4, 5, 6, 7]])
        assert made == [[(0, 0), (0, 1), (1, 0), (1, 1)], [(2, 0), (2, 1), (3, 0), (3, 1)]]

    @pytest.mark.parametrize(
        ("channel", "ids", "groups", "members"),
        [
            (0, "", [[0, 1], [2, 3]], 2),
            (1, "", [[0, 1], [2, 3]], 4),
            (1, "use_global_device_ids,", [[0, 1, 2, 3], [4, 5, 6, 7]], 4),
        ],
    )
    def test_as_all_gather_forms_them(self, channel: int, ids: str, groups: list[list[int]], members: int) -> None:
        """On a grid of 4 by 2. XLA:CPU has another order where replicas and partitions are mixed."""
        grid = Grid(4, 2)
        x = [s64([d]) for d in range(8)]
        rows = f"dense<{groups}> : tensor<2x{len(groups[0])}xi64>"
        text = module(
            f"""
            "stablehlo.all_gather"($x) {{
              all_gather_dim = 0 : i64, replica_groups = {rows}, {ids}
              channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 1>
            }} : $t""",
            ["tensor<1xi64>"],
            [f"tensor<{members}xi64>"],
        )
        expected = model.all_gather(grid, x, 0, groups, channel, bool(ids))
        if channel and not ids:
            assert expected[0].tolist() == [0, 2, 1, 3]
        against = ["interpreter"] if channel and not ids else BOTH
        check(text, grid, [[a] for a in x], [expected], against=against)


class TestStablehlo:
    """The example of each operation's section; along partitions too, where a channel makes it go along those."""

    def test_all_gather(self) -> None:
        first = [s64([[1, 2], [3, 4]]), s64([[5, 6], [7, 8]])]
        second = [x + 10 for x in first]
        expected = [[s64([[1, 2, 5, 6], [3, 4, 7, 8]])] * 2, [s64([[11, 12, 15, 16], [13, 14, 17, 18]])] * 2]
        for grid, channel in ((TWO, 0), (ALONG_PARTITIONS, 1)):
            rows = "[0, 1]" if grid is TWO else "[0]"
            text = module(
                f"""
                "stablehlo.all_gather"($x) {{
                  all_gather_dim = 1 : i64, replica_groups = dense<[{rows}]> : tensor<1x{grid.replicas}xi64>,
                  channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 0>
                }} : $t""",
                ["tensor<2x2xi64>"] * 2,
                ["tensor<2x4xi64>"] * 2,
            )
            # XLA:CPU does not take several operands in a manual computation, which partitions are given it by.
            against = BOTH if grid is TWO else ["interpreter"]
            check(text, grid, [list(pair) for pair in zip(first, second, strict=True)], expected, against=against)

    def test_all_reduce(self) -> None:
        first, second = [s64(1, 2, 3, 4), s64(5, 6, 7, 8)], [s64(9, 10, 11, 12), s64(13, 14, 15, 16)]
        text = module(
            f"""
            "stablehlo.all_reduce"($x) {adding("i64")} {{
              replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
              channel_handle = #stablehlo.channel_handle<handle = 0, type = 0>
            }} : $t""",
            ["tensor<4xi64>"] * 2,
            ["tensor<4xi64>"] * 2,
        )
        expected = [[s64(6, 8, 10, 12)] * 2, [s64(22, 24, 26, 28)] * 2]
        check(text, TWO, [list(pair) for pair in zip(first, second, strict=True)], expected)

    @pytest.mark.parametrize(("grid", "channel"), [(TWO, 0), (ALONG_PARTITIONS, 1)], ids=str)
    def test_all_to_all(self, grid: Grid, channel: int) -> None:
        first = [s64([[1, 2, 3, 4], [5, 6, 7, 8]]), s64([[9, 10, 11, 12], [13, 14, 15, 16]])]
        second = [x + 16 for x in first]
        text = module(
            f"""
            "stablehlo.all_to_all"($x) {{
              split_dimension = 1 : i64, concat_dimension = 0 : i64, split_count = 2 : i64,
              replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>,
              channel_handle = #stablehlo.channel_handle<handle = {channel}, type = 0>
            }} : $t""",
            ["tensor<2x4xi64>"] * 2,
            ["tensor<4x2xi64>"] * 2,
        )
        made = [s64([[1, 2], [5, 6], [9, 10], [13, 14]]), s64([[3, 4], [7, 8], [11, 12], [15, 16]])]
        expected = [made, [x + 16 for x in made]]
        check(text, grid, [list(pair) for pair in zip(first, second, strict=True)], expected, against=["interpreter"])

    def test_all_to_all_in_reverse(self) -> None:
        """The group [1, 0]: parts go to, and are joined in, that order."""
        x = [s64([[1, 2, 3, 4], [5, 6, 7, 8]]), s64([[9, 10, 11, 12], [13, 14, 15, 16]])]
        expected = [s64([[11, 12], [15, 16], [3, 4], [7, 8]]), s64([[9, 10], [13, 14], [1, 2], [5, 6]])]
        run(lambda b, x: sx.all_to_all(x, 1, 0, 2, ((1, 0),)), TWO, x, expected=[expected])

    def test_all_to_all_along_one_dimension(self) -> None:
        x = [s64([[1, 2, 3, 4], [5, 6, 7, 8]]), s64([[9, 10, 11, 12], [13, 14, 15, 16]])]
        expected = [s64([[1, 2, 3, 4], [9, 10, 11, 12]]), s64([[5, 6, 7, 8], [13, 14, 15, 16]])]
        run(lambda b, x: sx.all_to_all(x, 0, 0, 2, ((0, 1),)), TWO, x, expected=[expected])

    @pytest.mark.parametrize(("grid", "channel"), [(Grid(4), None), (Grid(1, 4), 1)], ids=str)
    def test_collective_broadcast(self, grid: Grid, channel: int | None) -> None:
        x = [s64([[1, 2]]), s64([[3, 4]]), s64([[5, 6]]), s64([[7, 8]])]
        expected = [s64([[0, 0]]), s64([[5, 6]]), s64([[5, 6]]), s64([[0, 0]])]
        same([model.collective_broadcast(grid, x, ((2, 1),), channel or 0)], [expected], "the model")
        run(
            lambda b, x: sx.collective_broadcast(x, ((2, 1),), channel),
            grid,
            x,
            expected=[expected],
            against=["interpreter"],
        )

    @pytest.mark.parametrize("channel", [None, 1])
    def test_collective_permute(self, channel: int | None) -> None:
        x = [s64([[1, 2], [3, 4]]), s64([[5, 6], [7, 8]]), s64([[9, 10], [11, 12]])]
        expected = [s64([[0, 0], [0, 0]]), x[0], x[1]]
        grid = Grid(1, 3) if channel else Grid(3)
        run(lambda b, x: sx.collective_permute(x, ((0, 1), (1, 2)), channel), grid, x, expected=[expected])

    @pytest.mark.parametrize("channel", [None, 1])
    def test_collective_permute_to_itself(self, channel: int | None) -> None:
        x = [s64([[4 * d + 1, 4 * d + 2], [4 * d + 3, 4 * d + 4]]) for d in range(5)]
        expected = [x[0] * 0, x[0], x[1], x[3], x[4]]
        pairs = ((0, 1), (1, 2), (3, 3), (4, 4))
        run(
            lambda b, x: sx.collective_permute(x, pairs, channel),
            Grid(1, 5) if channel else Grid(5),
            x,
            expected=[expected],
            against=["xla"],  # this interpreter ends the process where a pair is of one device
        )

    def test_reduce_scatter(self) -> None:
        x = [s64([[1, 2, 3, 4], [5, 6, 7, 8]]), s64([[9, 10, 11, 12], [13, 14, 15, 16]])]
        expected = [s64([[10, 12], [18, 20]]), s64([[14, 16], [22, 24]])]
        run(lambda b, x: sx.reduce_scatter(x, sx.add, 1, 2, ((0, 1),)), TWO, x, expected=[expected])

    def test_replica_id_and_partition_id(self) -> None:
        grid = Grid(2, 3)
        expected = [model.replica_id(grid), model.partition_id(grid)]
        assert [int(r) for r in expected[0]] == [0, 0, 0, 1, 1, 1]
        run(lambda b: [b.replica_id(), b.partition_id()], grid, expected=expected)
