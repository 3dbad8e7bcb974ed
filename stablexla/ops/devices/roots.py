"""Collectives with a root: the group member that sends to all, or that alone receives the reduced arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.builder.checking import Operands, Rules, checking, is_number
from stablexla.builder.computation import Computation, XlaComputation
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.attributes.device_groups import mode_of
from stablexla.dialects.builds.stablehlo_version import has_stablehlo, require_stablehlo
from stablexla.dialects.shapes import Shape
from stablexla.ops.devices.collectives import (
    Groups,
    arrays_of,
    as_tuple,
    check_channel,
    check_global,
    checked_groups,
    global_attribute,
    group_attributes,
    is_one,
    reducer,
)

__all__ = ["collective_broadcast", "collective_reduce"]

VARIADIC = "1.20"
"""The version of StableHLO whose `collective_broadcast` has several operands, and dynamic roots."""


@operation("stablehlo.collective_broadcast", family="collectives")
def collective_broadcast(
    operand: Operands,
    replica_groups: Groups,
    channel_id: int | None = None,
    *,
    root: XlaOp | int | Sequence[int] | None = None,
) -> XlaOp:
    """The operand of the root of each group, on all devices of the group; zeros on those of no group.

    Args:
        operand: an array, or several as a tuple or a sequence: one operation from StableHLO 1.20 on, several before.
        replica_groups: the groups, of replicas.
        channel_id: with one above 0 the groups are of partitions.
        root: the root's position in its group: a number, one for each array, or s32[N] for N arrays, which all
            devices of a group must give alike. By default the first device. It takes StableHLO 1.20.

    Returns:
        As many arrays as there are operands.

    Raises:
        ShapeError: (C1) a device twice; (C2) a negative number; (C4) a `root` of another type or length; (C6) a
            number that is no position in every group.
        UnsupportedError: a `root`, and the installed StableHLO is older than 1.20.

    Source: XLA's builder, whose `has_dynamic_root` is the `root` here; StableHLO `collective_broadcast`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2])
    >>> sx.collective_broadcast(x, ((2, 1),))
    XlaOp(stablehlo.collective_broadcast, f32[2])
    """
    with checking("collective_broadcast", operand=operand, replica_groups=replica_groups) as rule:
        xs = arrays_of(rule, "operand", operand)
        check_channel(rule, channel_id)
        mode = mode_of(channel_id or 0, None)
        groups = checked_groups(rule, "C1", "C2", replica_groups, xs[0].builder, mode, all_devices=False)
        roots = _roots(rule, ("C4", "C6"), xs, groups, root)
    attributes = group_attributes(xs[0], groups, channel_id)
    if root is None and not has_stablehlo(VARIADIC):
        made = [x.builder.emit("stablehlo.collective_broadcast", [x], x.shape, attributes) for x in xs]
        return made[0] if is_one(operand) else as_tuple(made)
    return _emit("stablehlo.collective_broadcast", operand, xs, roots, [x.shape for x in xs], attributes)


@operation("stablehlo.collective_reduce", family="collectives", since="1.19")
def collective_reduce(
    operand: Operands,
    computation: Computation,
    replica_groups: Groups = (),
    channel_id: int | None = None,
    use_global_device_ids: bool = False,
    *,
    root: XlaOp | int | Sequence[int] | None = None,
) -> XlaOp:
    """`all_reduce`, whose result only the root of each group receives; zeros on all other devices.

    Args:
        operand: an array, or several as a tuple or a sequence; each is reduced by itself.
        computation: of two scalars of the element type, or of a wider one of its kind.
        replica_groups: the groups, of replicas; no groups stand for one with all.
        channel_id: with one above 0 the groups are of partitions.
        use_global_device_ids: the numbers in the groups count replicas and partitions through.
        root: as for `collective_broadcast`, by default the first device.

    Returns:
        As many arrays as there are operands.

    Raises:
        ShapeError: (C1) a device twice; (C2) numbers that are not 0 to N - 1, as StableHLO's verifier wants them; (C3)
            a `root` of another type or length, or that is no position in every group; (C4) a computation of other
            types; global numbers without a channel.
        UnsupportedError: the installed StableHLO is older than 1.19.

    Source: StableHLO `collective_reduce`; XLA's builder has no such function.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[2])
    >>> sx.collective_reduce(x, sx.add, ((0, 2), (1, 3)))
    XlaOp(stablehlo.collective_reduce, f32[2])
    """
    with checking("collective_reduce", operand=operand, replica_groups=replica_groups) as rule:
        xs = arrays_of(rule, "operand", operand)
        check_global(rule, "", channel_id, use_global_device_ids)
        mode = mode_of(channel_id or 0, use_global_device_ids)
        groups = checked_groups(rule, "C1", "C2", replica_groups, xs[0].builder, mode)
        body = reducer(rule, "C4", xs, computation)
        roots = _roots(rule, ("C3", "C3"), xs, groups, root)
    shapes = [x.shape.with_element_type(body.result_shape.element_type) for x in xs]
    attributes = {**group_attributes(xs[0], groups, channel_id), **global_attribute(xs[0], use_global_device_ids)}
    return _emit("stablehlo.collective_reduce", operand, xs, roots, shapes, attributes, [body])


def _emit(
    name: str,
    operand: Operands,
    xs: Sequence[XlaOp],
    roots: Sequence[XlaOp],
    shapes: Sequence[Shape],
    attributes: dict[str, Any],
    regions: Sequence[XlaComputation] = (),
) -> XlaOp:
    rooted = {"has_dynamic_root": ir.UnitAttr.get(xs[0].builder.context)} if roots else {}
    result = shapes[0] if is_one(operand) else Shape.tuple(shapes)
    return xs[0].builder.emit(name, [*xs, *roots], result, {**attributes, **rooted}, regions)


def _roots(
    rule: Rules,
    numbers: tuple[str, str],
    xs: Sequence[XlaOp],
    groups: Sequence[Sequence[int]],
    root: XlaOp | int | Sequence[int] | None,
) -> list[XlaOp]:
    """The operand that says the root of each array, if there is one, by the rules of its type and its range."""
    if root is None:
        return []
    require_stablehlo(VARIADIC if rule.operation == "collective_broadcast" else "1.19", rule.operation, "root")
    wanted = Shape("s32", (len(xs),))
    rule.operands["root"] = root
    if isinstance(root, XlaOp):
        rule.one_builder([xs[0], root])
        rule(numbers[0], root.shape == wanted, f"root must be {wanted}, a position in the group for each operand")
        return [root]
    places = [rule.integer("root", root, 32)] * len(xs) if is_number(root) else list(rule.integers("root", root))
    rule(numbers[0], len(places) == len(xs), f"root must have a number for each operand: {len(xs)}, not {len(places)}")
    least = min(map(len, groups), default=None)
    fits = all(place >= 0 and (least is None or place < least) for place in places)
    rule(numbers[1], fits, f"root must be a position in each group: from 0 to {'N' if least is None else least} - 1")
    return [xs[0].builder.constant(np.array(places, np.int32))]
