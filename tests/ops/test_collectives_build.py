"""How collectives are written down, and what is refused: their shapes for any number of devices."""

from __future__ import annotations

from typing import Any

import pytest

import stablexla as sx
from stablexla.dialects.builds.stablehlo_version import has_stablehlo
from tests.ops.building import build, refused
from tests.versions import needs_stablehlo

X = sx.f32[4, 16]
TWICE, TOO_FAR, NEGATIVE = ((0, 0),), ((0, 2),), ((0, -1),)


def wide(a, c):
    return sx.convert_element_type(a, "f64") + sx.convert_element_type(c, "f64")


def shape_of(make, *shapes):
    return str(build(make, *shapes).result_shape)


class TestExamples:
    """What the operation semantics say of shapes."""

    def test_all_gather_of_two(self):
        assert shape_of(lambda x: sx.all_gather(x, 0, 2), sx.f32[2]) == "f32[4]"
        groups = ((0, 2), (1, 3))
        made = build(lambda x: sx.all_gather(x, 0, 2, groups), sx.f32[2])
        assert str(made.result_shape) == "f32[4]"
        assert "dense<[[0, 2], [1, 3]]> : tensor<2x2xi64>" in str(made)

    def test_all_reduce_of_two(self):
        assert shape_of(lambda x: sx.all_reduce(x, sx.add, ((0, 1),)), sx.f32[2]) == "f32[2]"
        pair = sx.Shape.tuple((sx.f32[2], sx.f32[3]))
        assert shape_of(lambda x: sx.all_reduce(x, sx.add, ((0, 2), (1, 3))), pair) == "(f32[2], f32[3])"

    def test_all_to_all_of_four(self):
        b = sx.XlaBuilder("alltoall")
        x = b.parameter(0, sx.f32[4, 16], "x")
        made = sx.all_to_all(x, split_dimension=1, concat_dimension=0, split_count=4)
        assert str(made.shape) == "f32[16,4]"
        b.build(made)

    def test_all_to_all_groups_give_the_order(self):
        made = build(lambda x: sx.all_to_all(x, 1, 0, 3, ((1, 2, 3), (4, 5, 0))), sx.f32[4, 9])
        assert str(made.result_shape) == "f32[12,3]"
        assert "dense<[[1, 2, 3], [4, 5, 0]]>" in str(made)

    def test_reduce_scatter_of_two(self):
        assert shape_of(lambda x: sx.reduce_scatter(x, sx.add, 0, 2), sx.f32[2]) == "f32[1]"
        pair = sx.Shape.tuple((sx.f32[2], sx.f32[4]))
        assert shape_of(lambda x: sx.reduce_scatter(x, sx.add, 0, 2), pair) == "(f32[1], f32[2])"

    def test_the_rest(self):
        assert shape_of(lambda x: sx.collective_permute(x, ((0, 1), (1, 2))), X) == "f32[4,16]"
        assert shape_of(lambda x: sx.cross_replica_sum(x, ((0, 1),)), X) == "f32[4,16]"
        assert shape_of(lambda x: sx.collective_broadcast(x, ((3, 1),)), X) == "f32[4,16]"
        assert shape_of(lambda x: x.builder.replica_id(), X) == "u32[]"


class TestForms:
    def test_channels(self):
        text = str(build(lambda x: sx.all_reduce(x, sx.add, ((0,),), 7, True), X))
        assert "channel_handle = #stablehlo.channel_handle<handle = 7, type = 1>" in text
        assert "use_global_device_ids" in text
        assert "handle = 2" in str(build(lambda x: sx.all_to_all(x, 0, 0, 1, channel_id=2), X))
        assert "handle = 3" in str(build(lambda x: sx.collective_permute(x, ((0, 1),), 3), X))
        assert "handle = 4" in str(build(lambda x: sx.collective_broadcast(x, ((0, 1),), 4), X))

    @pytest.mark.parametrize("wrong", ["1", 1 << 63])
    def test_numbers_of_channels(self, wrong: Any) -> None:
        makes = (
            lambda x: sx.all_reduce(x, sx.add, (), wrong),
            lambda x: sx.all_to_all(x, 0, 0, 1, (), wrong),
            lambda x: sx.reduce_scatter(x, sx.add, 0, 1, (), wrong),
            lambda x: sx.collective_permute(x, ((0, 1),), wrong),
            lambda x: sx.collective_broadcast(x, ((0, 1),), wrong),
            lambda x: sx.send(x, wrong),
            lambda x: x.builder.recv(sx.f32[2], wrong),
        )
        for make in makes:
            assert refused("", make, X).summary.startswith("channel_")

    def test_groups_of_replicas_and_all_partitions(self):
        """shard_count counts the devices, of which there are more than replicas."""
        groups = ((0, 1), (2, 3))
        assert shape_of(lambda x: sx.all_gather(x, 0, 6, groups, 1), X) == "f32[24,16]"
        assert shape_of(lambda x: sx.reduce_scatter(x, sx.add, 0, 4, groups, 1), X) == "f32[1,16]"
        refused("C6", lambda x: sx.all_gather(x, 0, 3, groups, 1), X)
        error = refused("C6", lambda x: sx.all_gather(x, 0, 2, ((0,), (1, 2)), 1), X)
        assert error.operands["replica_groups"] == "((0,), (1, 2))"
        refused("C6", lambda x: sx.all_gather(x, 0, 4, groups, 1, True), X)

    def test_groups_of_different_sizes_are_filled_up(self):
        text = str(build(lambda x: sx.all_reduce(x, sx.add, ((0, 1), (2,))), X))
        assert "dense<[[0, 1], [2, -1]]>" in text

    def test_no_groups(self):
        assert "replica_groups = dense<> : tensor<0x0xi64>" in str(build(lambda x: sx.all_reduce(x, sx.add), X))
        assert "source_target_pairs = dense<> : tensor<0x2xi64>" in str(
            build(lambda x: sx.collective_permute(x, ()), X)
        )

    def test_wider_sums(self):
        assert shape_of(lambda x: sx.all_reduce(x, _widening()), X) == "f64[4,16]"
        assert shape_of(lambda x: sx.reduce_scatter(x, _widening(), 0, 4), X) == "f64[1,16]"

    def test_dimensions_of_size_0(self):
        """StableHLO has no such gathers and scatters: nothing is emitted but their results, and the rules hold."""
        for make in (lambda x: sx.all_gather(x, 0, 2), lambda x: sx.reduce_scatter(x, sx.add, 0, 2)):
            text = str(build(make, sx.f32[0, 3]))
            assert "all_gather" not in text
            assert "reduce_scatter" not in text
            assert "dense<> : tensor<0x3xf32>" in text
        refused("C6", lambda x: sx.all_gather(x, 0, 3, ((0, 1),)), sx.f32[0, 3])
        refused("C3", lambda x: sx.reduce_scatter(x, sx.add, 0, 2, TWICE), sx.f32[0, 3])
        assert shape_of(lambda x: sx.all_gather((x, x), 0, 2), sx.f32[0, 3]) == "(f32[0,3], f32[0,3])"
        assert shape_of(lambda x: sx.all_to_all(x, 0, 1, 2), sx.f32[0, 3]) == "f32[0,6]"

    def test_operands(self):
        refused("", lambda x: sx.all_gather((), 0, 1), X)
        refused("", lambda x: sx.all_gather(x.builder.create_token(), 0, 1), X)
        refused("", lambda x: sx.all_reduce(x, sx.add, ((0, "a"),)), X)
        refused("", lambda x: sx.all_reduce(x, sx.add, ((0,), ())), X)
        refused("", lambda x: sx.collective_permute(x, 5), X)
        refused("", lambda x: sx.cross_replica_sum(x), sx.pred[2])


def _widening() -> sx.XlaComputation:
    b = sx.XlaBuilder("wide")
    return b.build(b.parameter(0, sx.f64[()]) + b.parameter(1, sx.f64[()]))


class TestAllGather:
    def test_all_gather_c1(self):
        refused("C1", lambda x: sx.all_gather(x, 2, 1), X)

    def test_all_gather_c2(self):
        refused("C2", lambda x: sx.all_gather(x, 0, 2, TWICE), X)

    def test_all_gather_c4(self):
        refused("C4", lambda x: sx.all_gather(x, 0, 2, TOO_FAR), X)
        refused("C4", lambda x: sx.all_gather(x, 0, 2, NEGATIVE), X)

    def test_all_gather_c5(self):
        refused("C5", lambda x: sx.all_gather(x, 0, 1, ((0,),), None, True), X)
        refused("C5", lambda x: sx.all_gather(x, 0, 1, ((0,),), 0, True), X)

    def test_all_gather_c6(self):
        error = refused("C6", lambda x: sx.all_gather(x, 0, 3, ((0, 1),)), X)
        assert "each of replica_groups must have shard_count, 3, members" in str(error)
        assert error.hint == "shard_count=2"
        assert sx.all_gather(sx.XlaBuilder("b").parameter(0, X), 0, 2, ((0, 1),)).shape.dimensions[0] == 8
        refused("C6", lambda x: sx.all_gather(x, 0, 0), X)


class TestAllReduce:
    def test_all_reduce_c1(self):
        refused("C1", lambda x: sx.all_reduce(x, sx.add, TWICE), X)

    def test_all_reduce_c3(self):
        refused("C3", lambda x: sx.all_reduce(x, sx.add, TOO_FAR), X)

    def test_all_reduce_c4(self):
        refused("C4", lambda x: sx.all_reduce(x, sx.add, ((0,),), use_global_device_ids=True), X)

    def test_all_reduce_c5(self):
        refused("C5", lambda x: sx.all_reduce(x, lambda a, c: a > c), X)
        refused("C5", lambda x: sx.all_reduce(x, wide), X)
        refused("C5", lambda x: sx.all_reduce((x, sx.convert_element_type(x, "s32")), sx.add), X)


class TestAllToAll:
    def test_all_to_all_c1(self):
        refused("C1", lambda x: sx.all_to_all(x, 2, 0, 1), X)

    def test_all_to_all_c2(self):
        assert "dimension 1 of size 16 can't be split into 3 equal blocks" in str(
            refused("C2", lambda x: sx.all_to_all(x, 1, 0, 3), X)
        )

    def test_all_to_all_c3(self):
        refused("C3", lambda x: sx.all_to_all(x, 0, -1, 1), X)

    def test_all_to_all_c4(self):
        refused("C4", lambda x: sx.all_to_all(x, 0, 0, 0), X)

    def test_all_to_all_c5(self):
        refused("C5", lambda x: sx.all_to_all(x, 0, 0, 2, TWICE), X)

    def test_all_to_all_c7(self):
        refused("C7", lambda x: sx.all_to_all(x, 0, 0, 2, TOO_FAR), X)

    def test_all_to_all_c8(self):
        refused("C8", lambda x: sx.all_to_all(x, 0, 0, 4, ((0, 1),)), X)

    def test_of_a_tuple(self):
        """XLA's AllToAll takes an array; its AllToAllTuple means something else than StableHLO's variadic form."""
        for make in (lambda x: sx.all_to_all(sx.tuple((x, x)), 0, 0, 2), lambda x: sx.all_to_all((x, x), 0, 0, 2)):
            refused("", make, X)
        assert "all_to_all_tuple" in str(refused("", lambda x: sx.all_to_all(sx.tuple((x, x)), 0, 0, 2), X))


class TestAllToAllTuple:
    def test_shapes(self):
        assert shape_of(lambda x: sx.all_to_all_tuple((x, x + 1)), X) == "(f32[4,16], f32[4,16])"
        refused("", lambda x: sx.all_to_all_tuple((x, sx.slice_in_dim(x, 0, 2, 1, 0))), X)
        refused("", lambda x: sx.all_to_all_tuple((x, sx.convert_element_type(x, "f64"))), X)
        refused("", lambda x: sx.all_to_all_tuple(()), X)
        refused("", lambda x: sx.all_to_all_tuple(((x, x),)), X)

    def test_all_to_all_tuple_c5(self):
        refused("C5", lambda x: sx.all_to_all_tuple((x, x), TWICE), X)

    def test_all_to_all_tuple_c7(self):
        refused("C7", lambda x: sx.all_to_all_tuple((x, x), TOO_FAR), X)

    def test_all_to_all_tuple_c8(self):
        refused("C8", lambda x: sx.all_to_all_tuple((x, x), ((0, 1, 2),)), X)


class TestRaggedAllToAll:
    I = sx.s32[2]  # noqa: E741

    def make(self, *shapes, groups=(), channel=None):
        order = lambda x, y, *v: sx.ragged_all_to_all(x, v[0], v[1], y, *v[2:], groups, channel)  # noqa: E731
        return order, shapes

    def test_text(self):
        order, shapes = self.make(sx.f32[3, 5], sx.f32[7, 5], *[self.I] * 4, groups=((1, 0),), channel=3)
        made = build(order, *shapes)
        assert str(made.result_shape) == "f32[7,5]"
        config = "backend_config = {channel_id = 3 : i64, replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>}"
        assert config in str(made)

    @pytest.mark.parametrize(
        ("shapes", "groups", "message"),
        [
            ((sx.f32[()], sx.f32[3], I, I, I, I), (), "must be arrays of rank 1 or more"),
            ((sx.f32[3], sx.f64[3], I, I, I, I), (), "must have one element type"),
            ((sx.f32[3, 2], sx.f32[3, 3], I, I, I, I), (), "the same dimensions but the first"),
            ((sx.f32[3], sx.f32[3], I, sx.s32[3], I, I), (), "send_sizes must be like input_offsets"),
            ((sx.f32[3], sx.f32[3], I, I, sx.f32[2], I), (), "output_offsets must be a vector of integers"),
            ((sx.f32[3], sx.f32[3], I, I, I, sx.s32[2, 1]), (), "recv_sizes must be a vector of integers"),
            ((sx.f32[3], sx.f32[3], *[sx.s32[0]] * 4), (), "a piece for each device"),
            ((sx.f32[3], sx.f32[3], *[sx.s32[3]] * 4), ((0, 1),), "can't be shared evenly"),
            ((sx.f32[3], sx.f32[3], I, I, I, I), ((0, 1), (2,)), "must have one size"),
        ],
    )
    def test_refusals(self, shapes, groups, message):
        order, shapes = self.make(*shapes, groups=groups)
        assert message in str(refused("", order, *shapes))

    def test_ragged_all_to_all_c5(self):
        order, shapes = self.make(sx.f32[3], sx.f32[3], *[self.I] * 4, groups=TWICE)
        refused("C5", order, *shapes)

    def test_ragged_all_to_all_c7(self):
        order, shapes = self.make(sx.f32[3], sx.f32[3], *[self.I] * 4, groups=TOO_FAR)
        refused("C7", order, *shapes)


class TestLayouts:
    """XLA forces the result's layout; here it is checked, and the text is the same."""

    def test_they_say_nothing(self):
        forms = [
            (lambda x, **k: sx.all_gather(x, 0, 2, **k), {"layout": (0, 1)}),
            (lambda x, **k: sx.all_reduce(x, sx.add, **k), {"shape_with_layout": X}),
            (lambda x, **k: sx.reduce_scatter(x, sx.add, 0, 2, **k), {"layout": [1, 0]}),
            (lambda x, **k: sx.all_to_all(x, 0, 0, 2, **k), {"layout": (0, 1)}),
            (lambda x, **k: sx.all_to_all_tuple((x, x), **k), {"layout": (0, 1)}),
        ]
        for make, given in forms:
            assert str(build(lambda x, m=make: m(x), X)) == str(build(lambda x, m=make, g=given: m(x, **g), X))

    @pytest.mark.parametrize("layout", [(0,), (0, 0), (1, 2), 5, "01"])
    def test_wrong_ones(self, layout):
        refused("", lambda x: sx.all_gather(x, 0, 2, layout=layout), X)
        refused("", lambda x: sx.reduce_scatter(x, sx.add, 0, 2, layout=layout), X)
        refused("", lambda x: sx.all_to_all(x, 0, 0, 2, layout=layout), X)
        refused("", lambda x: sx.all_to_all_tuple((x, x), layout=layout), X)

    def test_wrong_shapes(self):
        refused("", lambda x: sx.all_reduce(x, sx.add, shape_with_layout=sx.f32[16, 4]), X)
        refused("", lambda x: sx.all_reduce((x, x), sx.add, shape_with_layout=X), X)


class TestCollectiveBroadcast:
    def test_of_several(self):
        made = build(lambda x: sx.collective_broadcast((x, x > 0), ((1, 0),)), X)
        assert str(made.result_shape) == "(f32[4,16], pred[4,16])"
        assert str(made).count("collective_broadcast") == (1 if has_stablehlo("1.20") else 2)

    @needs_stablehlo("1.20")
    def test_roots(self):
        made = build(lambda x: sx.collective_broadcast((x, x > 0), ((1, 0),), root=(1, 0)), X)
        assert str(made.result_shape) == "(f32[4,16], pred[4,16])"
        assert "has_dynamic_root" in str(made)

    def test_roots_before_they_came(self):
        if not has_stablehlo("1.20"):
            with pytest.raises(sx.UnsupportedError, match=r"root takes StableHLO 1\.20 .* has 1\.17[^$]*jaxlib 0\.12"):
                build(lambda x: sx.collective_broadcast(x, ((1, 0),), root=1), X)

    @needs_stablehlo("1.20")
    @pytest.mark.parametrize("root", [(0, 1), ()])
    def test_collective_broadcast_c4(self, root):
        refused("C4", lambda x: sx.collective_broadcast(x, ((1, 0),), root=root), X)
        refused("C4", lambda x: sx.collective_broadcast(x, ((1, 0),), root=x), X)
        refused("C4", lambda x, r: sx.collective_broadcast(x, ((1, 0),), root=r), X, sx.s32[2])

    @needs_stablehlo("1.20")
    @pytest.mark.parametrize("root", [-1, 1])
    def test_collective_broadcast_c6(self, root):
        refused("C6", lambda x: sx.collective_broadcast(x, ((1, 0), (2,)), root=root), X)

    def test_collective_broadcast_c1(self):
        refused("C1", lambda x: sx.collective_broadcast(x, TWICE), X)

    def test_collective_broadcast_c2(self):
        refused("C2", lambda x: sx.collective_broadcast(x, NEGATIVE), X)


@needs_stablehlo("1.19")
class TestCollectiveReduce:
    def test_of_several(self):
        made = build(lambda x: sx.collective_reduce((x, x * 2), sx.add, ((1, 0),), root=1), X)
        assert str(made.result_shape) == "(f32[4,16], f32[4,16])"
        assert str(made).count('"stablehlo.collective_reduce"') == 1

    def test_collective_reduce_c1(self):
        refused("C1", lambda x: sx.collective_reduce(x, sx.add, TWICE), X)

    @pytest.mark.parametrize("groups", [NEGATIVE, TOO_FAR])
    def test_collective_reduce_c2(self, groups):
        refused("C2", lambda x: sx.collective_reduce(x, sx.add, groups), X)

    @pytest.mark.parametrize("root", [(0, 1), (), 2, -1])
    def test_collective_reduce_c3(self, root):
        refused("C3", lambda x: sx.collective_reduce(x, sx.add, ((1, 0),), root=root), X)
        refused("C3", lambda x, r: sx.collective_reduce(x, sx.add, ((1, 0),), root=r), X, sx.s64[1])

    def test_collective_reduce_c4(self):
        refused("C4", lambda x: sx.collective_reduce(x, wide), X)
        refused("C4", lambda x: sx.collective_reduce((x, x > 0), sx.add), X)

    def test_global_numbers_take_a_channel(self):
        refused("", lambda x: sx.collective_reduce(x, sx.add, use_global_device_ids=True), X)


def test_collective_reduce_before_it_came():
    if not has_stablehlo("1.19"):
        with pytest.raises(sx.UnsupportedError, match=r"collective_reduce: .* StableHLO 1\.19 [^$]*jaxlib 0\.12"):
            build(lambda x: sx.collective_reduce(x, sx.add), X)


class TestMultiCollectivePermute:
    def test_of_several(self):
        made = build(lambda x: sx.multi_collective_permute((x, x > 0), ((1, 0),)), X)
        assert str(made.result_shape) == "(f32[4,16], pred[4,16])"
        assert str(made).count("collective_permute") == 2
        assert "multi_collective_permute" in str(refused("", lambda x: sx.collective_permute(sx.tuple((x, x)), ()), X))

    @pytest.mark.parametrize(
        ("rule", "pairs"),
        [("C1", ((0, 1, 2),)), ("C2", ((0, 1), (0, 2))), ("C3", ((0, 1), (2, 1))), ("C4", ((0, -1),))],
    )
    def test_multi_collective_permute_c1_to_c4(self, rule, pairs):
        refused(rule, lambda x: sx.multi_collective_permute((x, x), pairs), X)


class TestCollectivePermute:
    def test_collective_permute_c1(self):
        refused("C1", lambda x: sx.collective_permute(x, ((0, 1, 2),)), X)

    def test_collective_permute_c2(self):
        refused("C2", lambda x: sx.collective_permute(x, ((0, 1), (0, 2))), X)

    def test_collective_permute_c3(self):
        refused("C3", lambda x: sx.collective_permute(x, ((0, 1), (2, 1))), X)

    def test_collective_permute_c4(self):
        refused("C4", lambda x: sx.collective_permute(x, ((0, -1),)), X)


class TestReduceScatter:
    def test_reduce_scatter_c1(self):
        refused("C1", lambda x: sx.reduce_scatter(x, sx.add, 0, 3), X)
        refused("C1", lambda x: sx.reduce_scatter(x, sx.add, 0, 4, ((0, 1),)), X)
        refused("C1", lambda x: sx.reduce_scatter(x, sx.add, 0, 0), X)

    def test_reduce_scatter_c2(self):
        refused("C2", lambda x: sx.reduce_scatter(x, sx.add, 2, 1), X)

    def test_reduce_scatter_c3(self):
        refused("C3", lambda x: sx.reduce_scatter(x, sx.add, 0, 2, TWICE), X)

    def test_reduce_scatter_c5(self):
        refused("C5", lambda x: sx.reduce_scatter(x, sx.add, 0, 2, TOO_FAR), X)

    def test_reduce_scatter_c6(self):
        refused("C6", lambda x: sx.reduce_scatter(x, sx.add, 0, 1, ((0,),), 0, True), X)

    def test_reduce_scatter_c7(self):
        refused("C7", lambda x: sx.reduce_scatter(x, lambda a, c: a > c, 0, 2), X)


def test_numbers_of_devices_that_differ() -> None:
    """All replica groups of a program, in its functions too, list one number of replicas; of partitions another one."""
    b = sx.XlaBuilder("counts")
    x = b.parameter(0, sx.f32[4])
    x = sx.all_reduce(x, sx.add, replica_groups=[[0, 1]])
    sx.all_to_all(x, 0, 0, 4, replica_groups=[[0, 1, 2, 3]], channel_id=1)
    sx.collective_broadcast(x, [[0, 2]])
    for differs in (
        lambda x: sx.all_gather(x, 0, 3, replica_groups=[[0, 1, 2]]),
        lambda x: sx.while_(
            lambda v: sx.reduce(v, 0.0, sx.add, (0,)) < 9.0,
            lambda v: sx.all_reduce(v, sx.add, replica_groups=[[0, 1, 2]]),
            x,
        ),
    ):
        with pytest.raises(sx.ShapeError, match="list 3 replicas, and those of an operation before it 2") as raised:
            differs(x)
        assert raised.value.hint == "the numbers 0 to 1, each once"
    other = sx.XlaBuilder("another")
    sx.all_reduce(other.parameter(0, sx.f32[4]), sx.add, replica_groups=[[0, 1, 2]])


@pytest.mark.parametrize(
    ("options", "counts", "way_out"),
    [
        ({}, {"num_replicas": 4}, "num_replicas=2"),
        ({}, {"num_replicas": 3, "num_partitions": 2}, "num_replicas=2, num_partitions=2"),
        ({"channel_id": 1, "use_global_device_ids": True}, {"num_replicas": 4}, "num_replicas=2"),
        ({"channel_id": 1, "use_global_device_ids": True}, {"num_partitions": 3}, ""),
    ],
)
def test_the_number_of_devices_that_the_groups_are_for(
    options: dict[str, object], counts: dict[str, int], way_out: str
) -> None:
    b = sx.XlaBuilder("pair")
    x = b.parameter(0, sx.f32[4])
    program = b.build(sx.all_gather(x, 0, 2, replica_groups=[[0, 1]], **options))
    with pytest.raises(sx.VerificationError, match="replica_groups must name all") as raised:
        sx.compile(program, **counts)
    assert raised.value.hint == (f"sx.compile(program, {way_out})" if way_out else "")
    assert raised.value.option == way_out.replace("num_", "--").replace("=", " ").replace(",", "")
