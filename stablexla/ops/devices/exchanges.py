"""Exchanges among devices for which StableHLO has no operation of its own.

They are composed of StableHLO's collectives where possible; `ragged_all_to_all` is XLA's and JAX's custom call.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.builder.checking import Operands, Rules, checking
from stablexla.builder.device_pairs import Pairs, checked_pairs
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import INTEGER, operation
from stablexla.dialects.attributes.device_groups import mode_of
from stablexla.ops.devices.collectives import (
    Groups,
    arrays_of,
    as_tuple,
    check_channel,
    check_layout,
    checked_groups,
    group_attributes,
    permuted,
)
from stablexla.ops.shape import concatenate, reshape, slice_in_dim

__all__ = ["all_to_all_tuple", "multi_collective_permute", "ragged_all_to_all"]

RAGGED = "ragged_all_to_all"
"""The target of the custom call."""
TYPED_FFI = 4


@operation("stablehlo.all_to_all", family="collectives")
def all_to_all_tuple(
    operands: Operands,
    replica_groups: Groups = (),
    channel_id: int | None = None,
    *,
    layout: Sequence[int] | None = None,
) -> XlaOp:
    """Each device sends operand i to device i of its group; result i is what device i sent to it.

    It is written as an `all_to_all` of the operands one behind another. Of an array that is yet to be split,
    `sx.all_to_all` does the same.

    Args:
        operands: as many arrays of one shape as there are devices in a group.
        replica_groups: the groups, of replicas; in their order the operands are sent.
        channel_id: with one above 0 the groups are of partitions.
        layout: as for `sx.all_gather`.

    Returns:
        A tuple of as many arrays as there are operands.

    Raises:
        ShapeError: arrays of different shapes; (C5) a device twice; (C7) numbers that are not 0 to N - 1; (C8) groups
            of another size than there are operands.

    Source: `AllToAllTuple` of XLA's builder; StableHLO `all_to_all`.

    >>> b = sx.XlaBuilder("example")
    >>> x, y = b.parameter(0, sx.f32[3]), b.parameter(1, sx.f32[3])
    >>> sx.all_to_all_tuple((x, y))
    XlaOp(stablehlo.all_to_all, (f32[3], f32[3]))
    """
    with checking("all_to_all_tuple", operands=operands, replica_groups=replica_groups) as rule:
        xs = arrays_of(rule, "operands", operands)
        shape, count = xs[0].shape, len(xs)
        rule("", all(x.shape == shape for x in xs), "operands must have one shape: each is sent to another device")
        check_layout(rule, layout, shape)
        check_channel(rule, channel_id)
        mode = mode_of(channel_id or 0, None)
        groups = checked_groups(rule, "C5", "C7", replica_groups, xs[0].builder, mode) or [tuple(range(count))]
        fits = all(len(group) == count for group in groups)
        rule("C8", fits, f"each of replica_groups must have as many members as there are operands, {count}")
    behind = concatenate([reshape(x, (1, *shape.dimensions)) for x in xs], 0)
    attributes = {"split_dimension": 0, "concat_dimension": 0, "split_count": count}
    attributes |= group_attributes(behind, groups, channel_id)
    sent = behind.builder.emit("stablehlo.all_to_all", [behind], behind.shape, attributes)
    made = [reshape(slice_in_dim(sent, i, i + 1, 1, 0), shape.dimensions) for i in range(count)]
    return as_tuple(made, sent.name)


@operation("stablehlo.collective_permute", family="collectives")
def multi_collective_permute(operands: Operands, source_target_pairs: Pairs, channel_id: int | None = None) -> XlaOp:
    """`collective_permute` of several arrays; each is an operation of its own.

    Args:
        operands: arrays, as a tuple or a sequence.
        source_target_pairs: pairs of numbers of replicas.
        channel_id: with one above 0 the numbers are those of partitions.

    Returns:
        A tuple of as many arrays as there are operands.

    Raises:
        ShapeError: (C1) not pairs; (C2) a source twice; (C3) a target twice; (C4) a negative number.

    Source: `MultiCollectivePermute` of XLA's builder; StableHLO `collective_permute`.

    >>> b = sx.XlaBuilder("example")
    >>> x, y = b.parameter(0, sx.f32[2]), b.parameter(1, sx.s8[3, 4])
    >>> sx.multi_collective_permute((x, y), ((0, 1), (1, 0)))
    XlaOp(stablehlo.collective_permute, (f32[2], s8[3,4]))
    """
    with checking("multi_collective_permute", operands=operands, source_target_pairs=source_target_pairs) as rule:
        xs = arrays_of(rule, "operands", operands)
        check_channel(rule, channel_id)
        pairs = checked_pairs(rule, source_target_pairs)
    return as_tuple([permuted(x, pairs, channel_id) for x in xs])


@operation("stablehlo.custom_call", family="collectives")
def ragged_all_to_all(
    input: XlaOp,
    input_offsets: XlaOp,
    send_sizes: XlaOp,
    output: XlaOp,
    output_offsets: XlaOp,
    recv_sizes: XlaOp,
    replica_groups: Groups = (),
    channel_id: int | None = None,
) -> XlaOp:
    """Each device sends rows of its input, as many as it says when it runs, to rows of the other devices' outputs.

    Piece i, which is rows `input_offsets[i]` to `input_offsets[i] + send_sizes[i]` of the input, goes to device
    i // k of the group, where each device has k pieces for each. There it replaces the rows of `output` from
    `output_offsets[i]` on: the offset is the sender's, in the receiver's array. All other rows of `output` stay.

    Args:
        input: the array whose rows are sent.
        input_offsets: the first row of each piece.
        send_sizes: how many rows each piece has.
        output: the array that the result starts from, of rows of the input's shape.
        output_offsets: where each piece begins in the output of the device that gets it.
        recv_sizes: the number of rows of each received piece: the others' `send_sizes`, which decide.
        replica_groups: the groups, of replicas; their order is that of the pieces.
        channel_id: with one above 0 the groups are of partitions.

    Returns:
        An array of the shape of `output`. Where pieces overlap, or exceed an array, its elements are unspecified.

    Raises:
        ShapeError: input and output of different element types or rows; offsets and sizes that are no vectors of
            integers of one length, or of one that the size of a group does not divide; groups of different sizes; (C5)
            a device twice; (C7) numbers that are not 0 to N - 1.

    Source: `RaggedAllToAll` of XLA's builder; the custom call of that name in JAX's programs.

    >>> b = sx.XlaBuilder("example")
    >>> rows, whole = b.parameter(0, sx.f32[6, 4]), b.parameter(1, sx.f32[9, 4])
    >>> begin, count, place, wanted = (b.parameter(i, sx.s32[2]) for i in range(2, 6))
    >>> sx.ragged_all_to_all(rows, begin, count, whole, place, wanted, ((0, 1),))
    XlaOp(stablehlo.custom_call, f32[9,4])
    """
    with checking("ragged_all_to_all", input=input, output=output) as rule:
        x, out = rule.op("input", input), rule.op("output", output)
        numbers = {
            "input_offsets": input_offsets,
            "send_sizes": send_sizes,
            "output_offsets": output_offsets,
            "recv_sizes": recv_sizes,
        }
        vectors = _vectors(rule, x, out, numbers)
        check_channel(rule, channel_id)
        groups = checked_groups(rule, "C5", "C7", replica_groups, x.builder, mode_of(channel_id or 0, None))
        sizes = {len(group) for group in groups}
        rule("", len(sizes) < 2, "all groups in replica_groups must have one size")
        count = vectors[0].shape.dimensions[0]
        fits = all(count % size == 0 for size in sizes)
        rule("", fits, f"{count} pieces can't be shared evenly by the devices of a group of replica_groups")
    attributes = {
        "call_target_name": RAGGED,
        "api_version": x.builder.i32(TYPED_FFI),
        "backend_config": ir.DictAttr.get(_config(x, groups, channel_id), x.builder.context),
    }
    return x.builder.emit("stablehlo.custom_call", [x, out, *vectors], out.shape, attributes)


def _vectors(rule: Rules, x: XlaOp, out: XlaOp, numbers: dict[str, XlaOp]) -> list[XlaOp]:
    """The offsets and sizes."""
    vectors = [rule.op(name, value) for name, value in numbers.items()]
    rule.operands.update(numbers)
    rule.one_builder([x, out, *vectors])
    fits = x.shape.is_array and out.shape.is_array and x.shape.rank > 0 and out.shape.rank > 0
    rule("", fits, "input and output must be arrays of rank 1 or more")
    same = x.shape.element_type == out.shape.element_type and x.shape.dimensions[1:] == out.shape.dimensions[1:]
    rule("", same, "input and output must have one element type, and the same dimensions but the first")
    shape = vectors[0].shape
    for name, vector in zip(numbers, vectors, strict=True):
        integers = vector.shape.is_array and vector.shape.element_type.kind in INTEGER
        rule("", integers and vector.shape.rank == 1, f"{name} must be a vector of integers, not {vector.shape}")
        rule("", vector.shape == shape, f"{name} must be like input_offsets, {shape}")
    rule("", shape.dimensions[0] > 0, "there must be a piece for each device")
    return vectors


def _config(x: XlaOp, groups: Sequence[Sequence[int]], channel_id: int | None) -> dict[str, Any]:
    config = {"replica_groups": group_attributes(x, groups, None)["replica_groups"]}
    if channel_id is not None:
        config["channel_id"] = x.builder.attribute(index(channel_id))
    return config
