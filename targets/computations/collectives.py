"""AllReduce and ReduceScatter whose computations are loops: what all devices of a group have is folded on each."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.device_groups import BrokenRule, GroupRules, Groups, grid_of, mode_of, resolve_groups
from stablexla.dialects.errors import UnsupportedError
from stablexla.lowering.bounded_values import emit, tensor
from stablexla.lowering.context import place_of
from stablexla.lowering.device_attributes import channel_of, table_of
from stablexla.lowering.operations import erase
from stablexla.targets.computations.element_loops import (
    Values,
    add,
    apply,
    arithmetic,
    blank,
    converted,
    element,
    line,
    loop,
    replaced,
    reshape,
)
from stablexla.targets.computations.registry import expands

# Who takes part.
MEMBERS = ("replica_groups", "channel_handle", "use_global_device_ids")


@expands("stablehlo.all_reduce")
def all_reduce(op: Any) -> Values | None:
    """The operands of all are gathered, and folded in the group's order."""
    groups = _groups(op)
    if groups is None:
        return None
    copies = [op, *(op.clone().operation for _ in op.results[1:])]  # an operand each, with its own computation
    made = [
        _gathered_and_folded(copy, operand, result, len(groups[0]))
        for copy, operand, result in zip(copies, op.operands, op.results, strict=True)
    ]
    for copy in copies[1:]:
        erase(copy)
    return made


@expands("stablehlo.reduce_scatter")
def reduce_scatter(op: Any) -> Values | None:
    """All devices have the whole result; a computation that keeps one of two equal elements gives out its blocks."""
    groups = _groups(op)
    if groups is None:
        return None
    (operand,), (result,) = op.operands, op.results
    whole = _gathered_and_folded(op, operand, result, len(groups[0]))
    attributes = {name: op.attributes[name] for name in op.attributes}
    made = hlo_ir.Operation.create(
        "stablehlo.reduce_scatter", results=[result.type], operands=[whole], attributes=attributes, regions=1
    )
    scalar = tensor(result.type, [])
    block = made.regions[0].blocks.append(scalar, scalar, arg_locs=[op.location] * 2)
    with hlo_ir.InsertionPoint(block):
        hlo_ir.Operation.create("stablehlo.return", operands=[block.arguments[0]])
    return list(made.results)


def _gathered_and_folded(op: Any, operand: Any, result: Any, members: int) -> Any:
    """An operand's elements of all members, folded by the computation of `op`."""
    x = converted(operand, result.type.element_type)
    shape, size = list(x.type.shape), prod(x.type.shape)
    attributes = {name: op.attributes[name] for name in MEMBERS if name in op.attributes}
    attributes["all_gather_dim"] = hlo_ir.IntegerAttr.get(hlo_ir.IntegerType.get_signless(64), 0)
    rows = emit("stablehlo.all_gather", [reshape(x, [1, *shape])], [tensor(x.type, [members, *shape])], attributes)
    elements = line(rows)

    def turn(number: Any, made: Values) -> Values:
        def more(member: Any, totals: Values) -> Values:
            at = add(number, arithmetic("multiply", add(member, 1), size))
            return apply(op.regions[0], [*totals, element(elements, at)])

        (total,) = loop(members - 1, [element(elements, number)], more)
        return [replaced(made[0], number, total)]

    (made,) = loop(size, [blank(x.type)], turn)
    return reshape(made, shape)


def _groups(op: Any) -> Groups | None:
    """The groups as numbers of devices; None where the computation is not applied, or the groups break a rule.

    Raises:
        UnsupportedError: groups of several sizes.
    """
    module = op
    while module.parent is not None:
        module = module.parent.operation
    grid, flag = grid_of(module), "use_global_device_ids" in op.attributes
    try:
        table: Sequence[Sequence[int]] = table_of(op.attributes, "replica_groups")
        groups = resolve_groups(table, mode_of(channel_of(op.attributes), flag), grid, GroupRules("", "", ""))
    except (BrokenRule, TypeError, ValueError):  # the lowering says what is wrong
        return None
    if grid.size == 1 or all(len(group) == 1 for group in groups):
        return None
    if len({len(group) for group in groups}) > 1:
        what = "groups of several sizes whose computation holds arrays"
        raise UnsupportedError(what + place_of(op.location), operation=op.name)
    return groups
