"""Collectives: operations that replicas and partitions do together.

Groups are lists of device numbers; no groups stand for one with all devices. How many devices there are is known when
a program is compiled: `sx.compile(..., num_replicas=, num_partitions=)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.builder.checking import Operands, Rules, checking
from stablexla.builder.computation import Computation, XlaComputation
from stablexla.builder.device_pairs import PAIRS, Pairs, channel_number, checked_pairs, table_attribute
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import NUMBER, operation
from stablexla.dialects.attributes.device_groups import Mode, mode_of
from stablexla.dialects.shapes import Shape
from stablexla.ops import elementwise
from stablexla.ops.devices.effects import DEVICE_TO_DEVICE

__all__ = ["all_gather", "all_reduce", "all_to_all", "collective_permute", "cross_replica_sum", "reduce_scatter"]

if TYPE_CHECKING:
    from stablexla.builder.builder import XlaBuilder

#: Lists of the devices that do something together.
Groups = Sequence[Sequence[int]]


@operation("stablehlo.all_gather")
def all_gather(
    operand: Operands,
    all_gather_dim: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: int | None = None,
    use_global_device_ids: bool = False,
    *,
    layout: Sequence[int] | None = None,
) -> XlaOp:
    """The operands of all devices of a group, one after another along a dimension, on each of them.

    An array of size 0 along that dimension is not exchanged: StableHLO has no such operation, and the result is known.

    Args:
        operand: an array, or several as a tuple or a sequence.
        all_gather_dim: the dimension.
        shard_count: the number of devices in a group.
        replica_groups: the groups, of replicas; their order is the order of the operands in the result.
        channel_id: with one above 0 all partitions of a group's replicas take part.
        use_global_device_ids: the numbers in the groups count replicas and partitions through.
        layout: the result's dimensions from the fastest on, as XLA would force it; checked, and of no effect here,
            where arrays between operations are row-major.

    Returns:
        As many arrays as there are operands.

    Raises:
        ShapeError: (C1) no such dimension; (C2) a device twice; (C4) numbers that are not 0 to N - 1; (C5) global
            numbers without a channel; (C6) groups of another size than `shard_count`.

    Source: `AllGather` of XLA's operation semantics; StableHLO `all_gather`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2])
    >>> sx.all_gather(x, 0, 2)
    XlaOp(stablehlo.all_gather, f32[4])
    """
    given = {"all_gather_dim": all_gather_dim, "shard_count": shard_count, "replica_groups": replica_groups}
    with checking("all_gather", operand=operand, **given) as rule:
        xs = arrays_of(rule, "operand", operand)
        place = rule.integer("all_gather_dim", all_gather_dim)
        for x in xs:
            rule.place("C1", place, x.shape.rank, f"all_gather_dim: {place} is no dimension of {x.shape}")
            check_layout(rule, layout, x.shape)
        check_global(rule, "C5", channel_id, use_global_device_ids)
        mode = mode_of(channel_id or 0, use_global_device_ids)
        groups = checked_groups(rule, "C2", "C4", replica_groups, xs[0].builder, mode)
        count = rule.integer("shard_count", shard_count)
        rule("C6", count > 0, "shard_count must be positive")
        _check_count(rule, "C6", groups, count, channel_id, use_global_device_ids)
    if _has_empty(xs, place):
        again = lambda x: all_gather(x, place, count, replica_groups, channel_id, use_global_device_ids)  # noqa: E731
        return _one_by_one(operand, xs, place, again)
    attributes = {
        "all_gather_dim": place,
        **group_attributes(xs[0], groups, channel_id),
        **global_attribute(xs[0], use_global_device_ids),
    }
    return _emit("stablehlo.all_gather", operand, xs, [_scaled(x.shape, place, count, 1) for x in xs], attributes)


@operation("stablehlo.all_reduce")
def all_reduce(
    operand: Operands,
    computation: Computation,
    replica_groups: Groups = (),
    channel_id: int | None = None,
    use_global_device_ids: bool = False,
    *,
    shape_with_layout: Shape | None = None,
) -> XlaOp:
    """The operands of all devices of a group, reduced by a computation, on each of them.

    Args:
        operand: an array, or several as a tuple or a sequence; each is reduced by itself.
        computation: of two scalars of the element type.
        replica_groups: the groups, of replicas.
        channel_id: with one above 0 all partitions of a group's replicas take part.
        use_global_device_ids: the numbers in the groups count replicas and partitions through.
        shape_with_layout: the result's shape, as XLA would force its layout; checked, and of no effect here, where
            arrays between operations are row-major.

    Raises:
        ShapeError: (C1) a device twice; (C3) numbers that are not 0 to N - 1; (C4) global numbers without a channel;
            (C5) a computation of other types; a `shape_with_layout` that is not the result's.

    Source: `AllReduce` of XLA's operation semantics; StableHLO `all_reduce`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2])
    >>> sx.all_reduce(x, sx.add, replica_groups=((0, 2), (1, 3)))
    XlaOp(stablehlo.all_reduce, f32[2])
    """
    with checking("all_reduce", operand=operand, replica_groups=replica_groups) as rule:
        xs = arrays_of(rule, "operand", operand)
        return _all_reduce(
            *(rule, operand, xs, computation, replica_groups),
            *(channel_id, use_global_device_ids, shape_with_layout),
        )


def _all_reduce(
    rule: Rules,
    operand: Operands,
    xs: Sequence[XlaOp],
    computation: Computation,
    replica_groups: Groups,
    channel_id: int | None = None,
    use_global_device_ids: bool = False,
    shape_with_layout: Shape | None = None,
) -> XlaOp:
    check_global(rule, "C4", channel_id, use_global_device_ids)
    mode = mode_of(channel_id or 0, use_global_device_ids)
    groups = checked_groups(rule, "C1", "C3", replica_groups, xs[0].builder, mode)
    listed = len(groups) > 0 or not use_global_device_ids
    rule("", listed, "use_global_device_ids needs replica_groups: the numbers of all devices", "[[0, 1, 2, 3]]")
    body = reducer(rule, "C5", xs, computation)
    shapes = [x.shape.with_element_type(body.result_shape.element_type) for x in xs]
    made = shapes[0] if is_one(operand) else Shape.tuple(shapes)
    if shape_with_layout is not None:
        rule("", rule.shape("shape_with_layout", shape_with_layout) == made, f"shape_with_layout must be {made}")
    attributes = {**group_attributes(xs[0], groups, channel_id), **global_attribute(xs[0], use_global_device_ids)}
    return _emit("stablehlo.all_reduce", operand, xs, shapes, attributes, [body])


@operation("stablehlo.all_reduce", NUMBER)
def cross_replica_sum(operand: Operands, replica_groups: Groups = ()) -> XlaOp:
    """The sum over all devices of a group: `all_reduce` by addition.

    Raises:
        ShapeError: an operand of pred; as `all_reduce`.

    Source: `CrossReplicaSum` of XLA's operation semantics.

    >>> sx.cross_replica_sum(sx.XlaBuilder("example").parameter(0, sx.f32[2]))
    XlaOp(stablehlo.all_reduce, f32[2])
    """
    with checking("cross_replica_sum", operand=operand) as rule:
        xs = arrays_of(rule, "operand", operand)
        for x in xs:
            rule("", x.shape.element_type.kind in NUMBER, f"operand must be of numbers, not {x.shape.element_type}")
        return _all_reduce(rule, operand, xs, elementwise.add, replica_groups)


@operation("stablehlo.all_to_all")
def all_to_all(
    operand: XlaOp,
    split_dimension: int,
    concat_dimension: int,
    split_count: int,
    replica_groups: Groups = (),
    channel_id: int | None = None,
    *,
    layout: Sequence[int] | None = None,
) -> XlaOp:
    """Each device splits its operand, sends block i to device i of its group, and joins the blocks that it gets.

    Args:
        operand: an array; `sx.all_to_all_tuple` sends arrays that are apart already.
        split_dimension: the dimension along which it is split.
        concat_dimension: the one along which the blocks are joined.
        split_count: the number of blocks, and of devices in a group.
        replica_groups: the groups, of replicas, which give the order of the blocks.
        channel_id: with one above 0 the groups are of partitions.
        layout: as for `all_gather`.

    Raises:
        ShapeError: a tuple; (C1), (C3) no such dimension; (C2) a size that `split_count` does not divide; (C4) a
            count below 1; (C5) a device twice; (C7) numbers that are not 0 to N - 1; (C8) groups of another size than
            `split_count`.

    Source: `AllToAll` of XLA's operation semantics; StableHLO `all_to_all`.

    >>> x = sx.XlaBuilder("alltoall").parameter(0, sx.f32[4, 16], "x")
    >>> sx.all_to_all(x, split_dimension=1, concat_dimension=0, split_count=4)
    XlaOp(stablehlo.all_to_all, f32[16,4])
    """
    with checking("all_to_all", operand=operand, replica_groups=replica_groups) as rule:
        x = rule.op("operand", operand)
        rule("", x.shape.is_array, f"operand must be an array, not {x.shape}", "sx.all_to_all_tuple(operands)")
        split = rule.integer("split_dimension", split_dimension)
        joined = rule.integer("concat_dimension", concat_dimension)
        count = rule.integer("split_count", split_count)
        rule.operands.update(split_dimension=split, concat_dimension=joined, split_count=count)
        rule("C4", count > 0, "split_count must be positive")
        rule.place("C1", split, x.shape.rank, f"split_dimension: {split} is no dimension of {x.shape}")
        rule.place("C3", joined, x.shape.rank, f"concat_dimension: {joined} is no dimension of {x.shape}")
        size = x.shape.dimensions[split]
        rule("C2", size % count == 0, f"dimension {split} of size {size} can't be split into {count} equal blocks")
        check_layout(rule, layout, x.shape)
        check_channel(rule, channel_id)
        groups = checked_groups(rule, "C5", "C7", replica_groups, x.builder, mode_of(channel_id or 0, None))
        fits = all(len(group) == count for group in groups)
        rule("C8", fits, f"each of replica_groups must have split_count, {count}, members")
    # StableHLO's verifier divides by the size of a group, also where there is none.
    groups = groups or [tuple(range(count))]
    attributes = {
        "split_dimension": split,
        "concat_dimension": joined,
        "split_count": count,
        **group_attributes(x, groups, channel_id),
    }
    shape = _scaled(_scaled(x.shape, split, 1, count), joined, count, 1)
    return x.builder.emit("stablehlo.all_to_all", [x], shape, attributes)


@operation("stablehlo.collective_permute")
def collective_permute(operand: XlaOp, source_target_pairs: Pairs, channel_id: int | None = None) -> XlaOp:
    """The operand of the device that is the source in a pair with this one, zeros where there is no such pair.

    Args:
        operand: an array.
        source_target_pairs: pairs of numbers of replicas.
        channel_id: with one above 0 the numbers are those of partitions.

    Raises:
        ShapeError: (C1) not pairs; (C2) a source twice; (C3) a target twice; (C4) a negative number.

    Source: `CollectivePermute` of XLA's operation semantics; StableHLO `collective_permute`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2])
    >>> sx.collective_permute(x, ((0, 1), (1, 0)))
    XlaOp(stablehlo.collective_permute, f32[2])
    """
    with checking("collective_permute", operand=operand, source_target_pairs=source_target_pairs) as rule:
        x = rule.op("operand", operand)
        rule("", x.shape.is_array, f"operand must be an array, not {x.shape}", "sx.multi_collective_permute(operands)")
        check_channel(rule, channel_id)
        pairs = checked_pairs(rule, source_target_pairs)
    return permuted(x, pairs, channel_id)


def permuted(x: XlaOp, pairs: Sequence[Sequence[int]], channel_id: int | None) -> XlaOp:
    """`collective_permute` whose rules are kept."""
    attributes = {PAIRS: table_attribute(pairs, 2, x.builder.context), **_channel(x, channel_id)}
    return x.builder.emit("stablehlo.collective_permute", [x], x.shape, attributes)


@operation("stablehlo.reduce_scatter")
def reduce_scatter(
    operand: Operands,
    computation: Computation,
    scatter_dimension: int,
    shard_count: int,
    replica_groups: Groups = (),
    channel_id: int | None = None,
    use_global_device_ids: bool = False,
    *,
    layout: Sequence[int] | None = None,
) -> XlaOp:
    """`all_reduce`, of whose result each device of a group gets one block along a dimension: device i the i-th.

    An array of size 0 along that dimension is not exchanged: StableHLO has no such operation, and the result is known.

    Args:
        operand: an array, or several as a tuple or a sequence; each by itself.
        computation: of two scalars of the element type.
        scatter_dimension: the dimension.
        shard_count: the number of devices in a group, and of blocks.
        replica_groups: the groups, of replicas, which give the order of the blocks.
        channel_id: with one above 0 all partitions of a group's replicas take part.
        use_global_device_ids: the numbers in the groups count replicas and partitions through.
        layout: as for `all_gather`.

    Raises:
        ShapeError: (C1) a size that the group's size does not divide, or groups of another size than `shard_count`;
            (C2) no such dimension; (C3) a device twice; (C5) numbers that are not 0 to N - 1; (C6) global numbers
            without a channel; (C7) a computation of other types.

    Source: `ReduceScatter` of XLA's operation semantics; StableHLO `reduce_scatter`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2])
    >>> sx.reduce_scatter(x, sx.add, 0, 2)
    XlaOp(stablehlo.reduce_scatter, f32[1])
    """
    given = {"scatter_dimension": scatter_dimension, "replica_groups": replica_groups}
    with checking("reduce_scatter", operand=operand, **given) as rule:
        xs = arrays_of(rule, "operand", operand)
        place, count = rule.integer("scatter_dimension", scatter_dimension), rule.integer("shard_count", shard_count)
        rule.operands.update(shard_count=count)
        rule("C1", count > 0, "shard_count must be positive")
        for x in xs:
            rule.place("C2", place, x.shape.rank, f"scatter_dimension: {place} is no dimension of {x.shape}")
            size = x.shape.dimensions[place]
            check_layout(rule, layout, x.shape)
            rule("C1", size % count == 0, f"dimension {place} of size {size} can't be split into {count} equal blocks")
        check_global(rule, "C6", channel_id, use_global_device_ids)
        mode = mode_of(channel_id or 0, use_global_device_ids)
        groups = checked_groups(rule, "C3", "C5", replica_groups, xs[0].builder, mode)
        _check_count(rule, "C1", groups, count, channel_id, use_global_device_ids)
        bodies = [reducer(rule, "C7", [x], computation) for x in xs]
    attributes = {
        "scatter_dimension": place,
        **group_attributes(xs[0], groups, channel_id),
        **global_attribute(xs[0], use_global_device_ids),
    }
    made = []
    for x, body in zip(xs, bodies):
        shape = _scaled(x.shape, place, 1, count).with_element_type(body.result_shape.element_type)
        if x.shape.dimensions[place]:
            made.append(x.builder.emit("stablehlo.reduce_scatter", [x], shape, attributes, [body]))
        else:
            made.append(_empty(x.builder, shape))
    return made[0] if is_one(operand) else as_tuple(made)


# ---- common checks and attributes ------------------------------------------------------------------------------------


def is_one(operand: Operands) -> bool:
    """Whether an operand is an array by itself, and so the result."""
    return isinstance(operand, XlaOp) and operand.shape.is_array


def as_tuple(ops: Sequence[XlaOp], name: str = "") -> XlaOp:
    """The ops as a tuple under the name of the operation that made them, by default the first one's."""
    values = (value for op in ops for value in op.values)
    return ops[0].builder.wrap(Shape.tuple(op.shape for op in ops), (*values,), name or ops[0].name)


def arrays_of(rule: Rules, name: str, operand: Operands) -> list[XlaOp]:
    """The arrays of an operand, which may be one, a tuple of some, or a sequence."""
    given = rule.sequence(name, operand)
    if len(given) == 1 and given[0].shape.is_tuple:
        given = list(given[0])
    rule("", bool(given), "there must be an operand")
    rule.one_builder(given)
    for x in given:
        rule("", x.shape.is_array, f"{name} must be an array or a tuple of arrays, not {x.shape}")
    return given


def _has_empty(xs: Sequence[XlaOp], place: int) -> bool:
    return any(not x.shape.dimensions[place] for x in xs)


def _one_by_one(operand: Operands, xs: Sequence[XlaOp], place: int, make: Callable[[XlaOp], XlaOp]) -> XlaOp:
    """Each array by itself; those that are empty along a dimension, which stay so, are not exchanged."""
    made = [make(x) if x.shape.dimensions[place] else _empty(x.builder, x.shape) for x in xs]
    return made[0] if is_one(operand) else as_tuple(made)


def _empty(builder: XlaBuilder, shape: Shape) -> XlaOp:
    return builder.constant(np.zeros(shape.dimensions, shape.element_type.dtype))


def _emit(
    name: str,
    operand: Operands,
    xs: Sequence[XlaOp],
    shapes: Sequence[Shape],
    attributes: dict[str, Any],
    regions: Sequence[XlaComputation] = (),
) -> XlaOp:
    result = shapes[0] if is_one(operand) else Shape.tuple(shapes)
    return xs[0].builder.emit(name, xs, result, attributes, regions)


def _scaled(shape: Shape, dimension: int, factor: int, divisor: int) -> Shape:
    sizes = list(shape.dimensions)
    sizes[dimension] = sizes[dimension] * factor // divisor
    return shape.with_dimensions(sizes)


def reducer(rule: Rules, number: str, xs: Sequence[XlaOp], given: Computation) -> XlaComputation:
    """A computation of two scalars of the operands' one type; it may be of a wider one of the same kind."""
    types = {x.shape.element_type for x in xs}
    rule(number, len(types) == 1, "the operands must have one element type, which is the computation's")
    (element,) = types
    body = xs[0].builder.computation(rule, "computation", given, [Shape(element), Shape(element)])
    made = body.result_shape
    fits = made.is_scalar and body.parameter_shapes == (made, made)
    fits = fits and made.element_type.kind is element.kind and made.element_type.bits >= element.bits
    rule(number, fits, f"computation {body!r} must take two scalars of {element} and return one")
    return body


def checked_groups(
    rule: Rules,
    unique: str,
    in_range: str,
    given: Groups,
    builder: XlaBuilder,
    mode: Mode,
    *,
    all_devices: bool = True,
) -> list[tuple[int, ...]]:
    """The groups; together they have each of N devices once, or, without `all_devices`, some.

    N is the same in all operations of a program that count the same things.
    """
    groups = rule.rows("replica_groups", given)
    devices = [device for group in groups for device in group]
    rule("", all(groups), "a group of replica_groups must not be empty")
    rule(unique, len(set(devices)) == len(devices), "replica_groups must not name a device twice")
    count = len(devices)
    if not all_devices:
        rule(in_range, min(devices, default=0) >= 0, "the numbers in replica_groups must not be negative")
        return groups
    wanted = f"replica_groups list {count} devices, and so their numbers must be 0 to {count - 1}, each once"
    way_out = "a group for each of the other devices, too: [[0, 1], [2, 3]]"
    rule(in_range, all(0 <= device < count for device in devices), wanted, way_out)
    if devices:
        before = builder.device_counts.setdefault(mode.counts, count)
        differs = f"replica_groups list {count} {mode.counts}, and those of an operation before it {before}"
        rule("", before == count, differs, f"the numbers 0 to {before - 1}, each once")
    return groups


def check_layout(rule: Rules, layout: Sequence[int] | None, shape: Shape) -> None:
    """A layout names each dimension of the array once."""
    if layout is not None:
        order = rule.integers("layout", layout)
        rule("", sorted(order) == list(range(shape.rank)), f"layout must name each dimension of {shape} once")


def check_channel(rule: Rules, channel_id: int | None) -> None:
    """A channel's number, where there is one."""
    if channel_id is not None:
        channel_number(rule, "channel_id", channel_id)


def check_global(rule: Rules, number: str, channel_id: int | None, use_global_device_ids: bool) -> None:
    """Numbers of all devices in the groups, which take a channel."""
    check_channel(rule, channel_id)
    rule.truth("use_global_device_ids", use_global_device_ids)
    holds = not use_global_device_ids or (channel_id is not None and channel_id > 0)
    rule(number, holds, "use_global_device_ids needs a channel_id above 0", "channel_id=1")


def _check_count(
    rule: Rules,
    number: str,
    groups: Sequence[Sequence[int]],
    count: int,
    channel_id: int | None,
    use_global_device_ids: bool,
) -> None:
    """The groups have `shard_count` members; where they are of replicas times all partitions, a part of that."""
    sizes = {len(group) for group in groups}
    if channel_id is not None and channel_id > 0 and not use_global_device_ids:
        fits = all(count % size == 0 for size in sizes) and len(sizes) < 2
        rule(number, fits, f"each of replica_groups must have as many members, and shard_count, {count}, a multiple")
    else:
        way_out = f"shard_count={min(sizes)}" if len(sizes) == 1 else ""
        rule(number, sizes <= {count}, f"each of replica_groups must have shard_count, {count}, members", way_out)


def group_attributes(x: XlaOp, groups: Sequence[Sequence[int]], channel_id: int | None) -> dict[str, Any]:
    """The groups, and the channel where there is one, as an operation's attributes."""
    width = max((len(group) for group in groups), default=0)
    padded = [[*group, *[-1] * (width - len(group))] for group in groups]
    return {"replica_groups": table_attribute(padded, width, x.builder.context), **_channel(x, channel_id)}


def _channel(x: XlaOp, channel_id: int | None) -> dict[str, Any]:
    if channel_id is None:
        return {}
    return {"channel_handle": stablehlo.ChannelHandle.get(channel_id, DEVICE_TO_DEVICE, x.builder.context)}


def global_attribute(x: XlaOp, use_global_device_ids: bool) -> dict[str, Any]:
    """That the groups number all devices, where they do."""
    return {"use_global_device_ids": ir.UnitAttr.get(x.builder.context)} if use_global_device_ids else {}
