"""Lowering of collectives between replicas and partitions.

Which devices form a group is found here, for the replicas and partitions that the module says it is compiled for
("Process groups" of StableHLO's specification): operations that reduce or gather have groups of replicas without a
channel, of replicas times all partitions with one, and of devices numbered through with `use_global_device_ids`; those
that only move arrays have groups of replicas without a channel and of partitions with one. No groups stand for one of
all. A device that is alone in its group does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir

from stablexla.dialects.attributes.device_groups import (
    BrokenRule,
    GroupRules,
    Groups,
    PairRules,
    resolve_groups,
    resolve_pairs,
)
from stablexla.dialects.tensor_types import TensorType
from stablexla.lowering.rules.conversion import in_element_type
from stablexla.lowering.rules.devices.attributes import (
    HERE,
    PAIRS,
    SEVERAL,
    check_alone,
    counted,
    mode_for,
    refused,
    table_of,
)
from stablexla.lowering.rules.devices.devices import Fold, Layout, device_kernel, together
from stablexla.lowering.rules.devices.effects import zeros
from stablexla.lowering.rules.devices.roots import complete, from_roots, kept_on_roots, split_roots
from stablexla.lowering.rules.elementwise import BINARY
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.storage import constant, narrow, widen
from stablexla.lowering.support.types import value_type

RULES = {
    "stablehlo.all_gather": GroupRules("C2", "C3", "C4", "C6"),
    "stablehlo.all_reduce": GroupRules("C1", "C2", "C3"),
    "stablehlo.all_to_all": GroupRules("C5", "C6", "C7", "C8"),
    "stablehlo.collective_broadcast": GroupRules("C1", "", "C2"),
    "stablehlo.collective_reduce": GroupRules("C1", "", "C2"),
    "stablehlo.cross-replica-sum": GroupRules("C1", "C2", "C3"),
    "stablehlo.reduce_scatter": GroupRules("C3", "C4", "C5", "C1"),
}


@lowers("stablehlo.replica_id", "stablehlo.partition_id")
def device_number(ctx: LoweringContext) -> ir.Value:
    """The number of the replica or partition, which the runtime passes to the running program."""
    what = ctx.op_name.removeprefix("stablehlo.")
    grid, type_ = ctx.grid, ctx.result
    if (grid.replicas if what == "replica_id" else grid.partitions) == 1:
        return constant(value_type(type_.element), HERE)
    return device_kernel(ctx, what, grid.partitions, type_)


@lowers("stablehlo.all_gather")
def all_gather(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """The operands of the group's devices, concatenated along a dimension."""
    groups = _groups(ctx)
    if groups is None:
        return operands
    dimension = ctx.attributes["all_gather_dim"].value
    for type_, result in zip(ctx.operand_types, ctx.result_types, strict=True):
        _check_result(ctx, "C6", result, dimension, type_.shape[dimension] * len(groups[0]), len(groups[0]))
    layouts = [
        Layout.of(t.shape, t, r, joined=dimension) for t, r in zip(ctx.operand_types, ctx.result_types, strict=True)
    ]
    return _together(ctx, operands, ctx.operand_types, layouts, groups)


@lowers("stablehlo.all_reduce", "stablehlo.cross-replica-sum")
def all_reduce(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """The operands of the group's devices reduced in the group's order, ((a0 + a1) + a2) + ....

    This is one of the orders that the specification allows, and the same in every run.
    """
    groups = _groups(ctx)
    converted = _converted(ctx, operands)
    if groups is None:
        return converted
    types = ctx.result_types
    layouts = [Layout.of(t.shape, t, t) for t in types]
    return _together(ctx, converted, types, layouts, groups, _fold(ctx))


@lowers("stablehlo.reduce_scatter")
def reduce_scatter(ctx: LoweringContext, operand: ir.Value) -> Sequence[ir.Value]:
    """The block of `all_reduce`'s result at the device's position in its group."""
    groups = _groups(ctx)
    converted = _converted(ctx, [operand])
    if groups is None:
        return converted
    dimension = ctx.attributes["scatter_dimension"].value
    made = ctx.result
    source = TensorType(made.element, ctx.operand_types[0].shape)
    size, count = source.shape[dimension], len(groups[0])
    if size % count:
        message = f"dimension {dimension} of size {size} can't be split into the {count} blocks of a group"
        raise refused(ctx, BrokenRule("C1", message))
    _check_result(ctx, "C8", made, dimension, size // count, count)
    layout = Layout.of(made.shape, source, made, split=dimension)
    return _together(ctx, converted, [source], [layout], groups, _fold(ctx))


@lowers("stablehlo.all_to_all")
def all_to_all(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """Block i of each device's operand on the i-th device of the group, concatenated in the group's order."""
    groups = _groups(ctx)
    split, joined = (ctx.attributes[name].value for name in ("split_dimension", "concat_dimension"))
    count = ctx.attributes["split_count"].value
    size = 1 if groups is None else len(groups[0])
    if size != count and ctx.grid.size > 1:
        raise refused(ctx, BrokenRule("C8", f"split_count is {count}, and a group has {counted(size, 'device')}"))
    if groups is None:
        return operands
    layouts = []
    for type_, result in zip(ctx.operand_types, ctx.result_types, strict=True):
        part = [n // count if d == split else n for d, n in enumerate(type_.shape)]
        layouts.append(Layout.of(part, type_, result, split=split, joined=joined))
    return _together(ctx, operands, ctx.operand_types, layouts, groups)


@lowers("stablehlo.collective_broadcast")
def collective_broadcast(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """The operands of the group's root; zeros on a device of no group."""
    groups = _groups(ctx)
    arrays, roots = split_roots(ctx, operands)
    if groups is None:
        return arrays
    types = ctx.result_types
    if roots is not None:
        return from_roots(ctx, arrays, types, groups, roots)
    return _together(ctx, arrays, types, [Layout.of(t.shape, t, t) for t in types], groups)


@lowers("stablehlo.collective_reduce")
def collective_reduce(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """The result of `all_reduce` on the group's root; zeros on all other devices."""
    groups = _groups(ctx)
    arrays, roots = split_roots(ctx, operands)
    made = _converted(ctx, arrays)
    if groups is None:
        return made
    types, fold = ctx.result_types, _fold(ctx)
    for i, type_ in enumerate(types):
        layouts, every = [Layout.of(type_.shape, type_, type_)], complete(groups, ctx.grid)
        made[i : i + 1] = together(ctx, "all_reduce", [made[i]], [type_], [type_], layouts, groups=every, fold=fold)
    return kept_on_roots(ctx, made, types, groups, roots)


@lowers("stablehlo.collective_permute")
def collective_permute(ctx: LoweringContext, *operands: ir.Value) -> Sequence[ir.Value]:
    """The operands of the source device whose target this device is; zeros without such a pair."""
    table = table_of(ctx.attributes, PAIRS)
    types, grid = ctx.operand_types, ctx.grid
    if grid.size == 1:
        check_alone(ctx, PAIRS, [d for pair in table for d in pair])
        return operands if table else [zeros(t) for t in ctx.result_types]
    try:
        pairs = resolve_pairs(table, mode_for(ctx), grid, PairRules("C1", "C2", "C3", "C4"))
    except BrokenRule as broken:
        raise refused(ctx, broken) from None
    if not pairs:
        return [zeros(t) for t in ctx.result_types]
    if sorted(pairs) == [(d, d) for d in range(grid.size)]:
        return operands
    layouts = [Layout.of(t.shape, t, t) for t in types]
    return together(ctx, "collective_permute", operands, types, ctx.result_types, layouts, pairs=pairs)


# ---- shared helpers --------------------------------------------------------------------------------------------------


def _together(
    ctx: LoweringContext,
    operands: Sequence[ir.Value],
    types: Sequence[TensorType],
    layouts: Sequence[Layout],
    groups: Groups,
    fold: Fold | None = None,
) -> list[ir.Value]:
    name = ctx.op_name.removeprefix("stablehlo.").replace("cross-replica-sum", "all_reduce")
    return together(ctx, name, operands, types, ctx.result_types, layouts, groups=groups, fold=fold)


def _groups(ctx: LoweringContext) -> Groups | None:
    """Return the groups as device numbers; None where each device is alone in its group.

    Raises:
        VerificationError: the groups do not fit the devices that there are.
        UnsupportedError: the program is for one device, and the groups name more.
    """
    if ctx.grid.size == 1:
        _check_one_device(ctx)
        return None
    try:
        table = table_of(ctx.attributes, "replica_groups")
    except (TypeError, ValueError):
        raise ctx.unsupported("replica_groups are axes of a mesh that the module does not have") from None
    try:
        groups = resolve_groups(table, mode_for(ctx), ctx.grid, RULES[ctx.op_name])
    except BrokenRule as broken:
        raise refused(ctx, broken) from None
    alone = sorted(groups) == [(d,) for d in range(ctx.grid.size)]
    if alone and _changes_shapes(ctx):
        message = f"each device is alone in its group ({mode_for(ctx).value}), and the result is that of larger groups"
        raise refused(ctx, BrokenRule("", f"{message}: {ctx.result_types[0]}"))
    return None if alone else groups


def _check_one_device(ctx: LoweringContext) -> None:
    try:
        table = table_of(ctx.attributes, "replica_groups")
    except (TypeError, ValueError):  # axes of a mesh, which has one device
        table = []
    check_alone(ctx, "replica_groups", [d for row in table for d in row if d != -1])
    if _changes_shapes(ctx):
        raise ctx.unsupported("it is written for several devices, and this program is compiled for one", SEVERAL)


def _changes_shapes(ctx: LoweringContext) -> bool:
    """Whether the results have other shapes than the operands."""
    arrays, _ = split_roots(ctx, ctx.operand_types)
    return [t.shape for t in arrays] != [t.shape for t in ctx.result_types]


def _check_result(ctx: LoweringContext, rule: str, result: TensorType, dimension: int, wanted: int, count: int) -> None:
    """Check the extent of a dimension of the result for groups of `count` devices."""
    if result.shape[dimension] != wanted:
        message = f"dimension {dimension} of the result must have size {wanted}, not {result.shape[dimension]}"
        raise refused(ctx, BrokenRule(rule, f"a group has {counted(count, 'device')}, so that {message}"))


def _converted(ctx: LoweringContext, operands: Sequence[ir.Value]) -> list[ir.Value]:
    """Promote the operands to the element type of the results, which is the computation's and may be wider."""
    element = ctx.result_types[0].element
    types = split_roots(ctx, ctx.operand_types)[0]
    return [in_element_type(value, type_, element) for value, type_ in zip(operands, types, strict=True)]


def _fold(ctx: LoweringContext) -> Fold:
    """Return the combiner of the accumulator and the next device's element.

    Raises:
        UnsupportedError: it uses a value from outside that is no constant.
    """
    if not len(ctx.op.regions):  # the sum of cross-replica-sum
        element = ctx.result_types[0].element
        add = BINARY[element.kind]["add"]
        return lambda x, y: narrow(add(widen(x, element), widen(y, element), element), element)
    _check_captured(ctx)
    return lambda x, y: ctx.inline_region(0, [x, y])[0]


def _check_captured(ctx: LoweringContext) -> None:
    """Check that the combiner captures constants only: members of a group may be in other processes."""
    inside: list[Any] = []

    def note(op: Any) -> hlo_ir.WalkResult:
        inside.append(op.operation)
        return hlo_ir.WalkResult.ADVANCE

    ctx.op.walk(note)
    made = {value for op in inside[:-1] for value in op.results}  # the operation itself comes last
    made |= {a for op in inside for region in op.regions for block in region.blocks for a in block.arguments}
    for value in (value for op in inside[:-1] for value in op.operands):
        constant = not isinstance(value.owner, hlo_ir.Block) and value.owner.name == "stablehlo.constant"
        if value not in made and not constant:
            raise ctx.unsupported("its computation uses a value from outside of it")
