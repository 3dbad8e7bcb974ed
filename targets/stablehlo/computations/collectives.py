"""AllReduce and ReduceScatter with computations that need loops: all-gather, then a local reduction on each device."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jaxlib.mlir.ir as hlo_ir
import numpy as np

from stablexla.dialects import hlo
from stablexla.dialects.attributes.device_groups import (
    BrokenRule,
    Grid,
    GroupRules,
    Groups,
    grid_of,
    mode_of,
    resolve_groups,
)
from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.rules.devices.attributes import channel_of, table_of
from stablexla.lowering.rules.devices.roots import complete
from stablexla.targets.stablehlo.computations.element_loops import (
    Values,
    add,
    apply,
    arithmetic,
    below,
    blank,
    element,
    index,
    line,
    loop,
    replaced,
    where,
)
from stablexla.targets.stablehlo.computations.registry import expands

# Participating devices.
MEMBERS = ("replica_groups", "channel_handle", "use_global_device_ids")
NO_RULES = GroupRules("", "", "")


@expands("stablehlo.all_reduce")
def all_reduce(op: Any) -> Values | None:
    """All-gather the operands, and reduce them in the group's order."""
    members = _members(op)
    if members is None:
        return None
    copies = [op, *(op.clone().operation for _ in op.results[1:])]  # an operand each, with its own computation
    made = [
        _gathered_and_folded(copy, operand, result, members)
        for copy, operand, result in zip(copies, op.operands, op.results, strict=True)
    ]
    for copy in copies[1:]:
        erase(copy)
    return made


@expands("stablehlo.collective_reduce")
def collective_reduce(op: Any) -> Values | None:
    """Expand as `all_reduce` in these groups, and in groups of one for the other devices; the root keeps the result."""
    groups, kept = _groups(op), [*op.operands][len(op.results) :]
    if groups is None:
        return None
    rows = complete(groups, _grid(op))
    width = max(map(len, rows))
    table = np.array([[*row, *[-1] * (width - len(row))] for row in rows])
    handle = f"#stablehlo.channel_handle<handle = {channel_of(op.attributes) or 1}, type = 1>"
    attributes = {
        "replica_groups": hlo_ir.DenseElementsAttr.get(table),
        "channel_handle": hlo_ir.Attribute.parse(handle),
        "use_global_device_ids": hlo_ir.UnitAttr.get(),
    }
    types, arrays = [r.type for r in op.results], [*op.operands][: len(op.results)]
    reduced = hlo.operation("stablehlo.all_reduce", arrays, types, attributes, regions=1)
    op.regions[0].blocks[0].append_to(reduced.regions[0])
    whole = all_reduce(reduced)
    assert whole is not None, "there is a group of several"
    erase(reduced)
    made = hlo.operation(op.name, [*whole, *kept], types, dict(op.attributes.items()), regions=1)
    hlo.combiner(made, types[0], lambda first, second: first)
    return list(made.results)


@expands("stablehlo.reduce_scatter")
def reduce_scatter(op: Any) -> Values | None:
    """Compute the whole result on all devices; a reduce_scatter that keeps the first of two elements distributes it."""
    members = _members(op)
    if members is None:
        return None
    (operand,), (result,) = op.operands, op.results
    whole = _gathered_and_folded(op, operand, result, members)
    attributes = {name: op.attributes[name] for name in op.attributes}
    made = hlo.operation("stablehlo.reduce_scatter", [whole], [result.type], attributes, regions=1)
    hlo.combiner(made, result.type, lambda first, second: first)
    return list(made.results)


def _gathered_and_folded(op: Any, operand: Any, result: Any, members: _Members) -> Any:
    """Gather an operand from all members, and reduce it by the combiner of `op`."""
    x = hlo.convert(operand, result.type.element_type)
    shape, size = list(x.type.shape), prod(x.type.shape)
    rows = hlo.emit(
        "stablehlo.all_gather",
        [hlo.reshape(x, [1, *shape])],
        [hlo.tensor(x.type, [members.gathered, *shape])],
        members.attributes(op),
    )
    elements, find = line(rows), members.rows()

    def turn(number: Any, made: Values) -> Values:
        def at(member: Any) -> Any:
            row, takes_part = find(member)
            return element(elements, add(number, arithmetic("multiply", row, size))), takes_part

        def more(step: Any, totals: Values) -> Values:
            value, takes_part = at(add(step, 1))
            if takes_part is None:
                return apply(op.regions[0], [*totals, value])
            return where(takes_part, lambda: apply(op.regions[0], [*totals, value]), totals)

        (total,) = loop(members.most - 1, [at(index(0))[0]], more)
        return [replaced(made[0], number, total)]

    (made,) = loop(size, [blank(x.type)], turn)
    return hlo.reshape(made, shape)


@dataclass(frozen=True)
class _Members:
    """The devices whose elements each device reduces.

    Attributes:
        grid: the devices.
        groups: of devices that reduce together.
        counted: how many replicas, partitions or devices the operation's table of groups counts.
        everyone: the groups of all of these.
    """

    grid: Grid
    groups: Groups
    counted: int
    everyone: Groups

    @property
    def even(self) -> bool:
        """Whether all groups have one size, so that only their members' elements need be gathered."""
        return len({len(group) for group in self.groups}) == 1

    @property
    def most(self) -> int:
        """The size of the largest group."""
        return max(map(len, self.groups))

    @property
    def gathered(self) -> int:
        """How many devices' elements each device gathers."""
        return len((self.groups if self.even else self.everyone)[0])

    def attributes(self, op: Any) -> dict[str, Any]:
        """Return the attributes of the all_gather."""
        found = {name: op.attributes[name] for name in MEMBERS if name in op.attributes}
        if not self.even:
            found["replica_groups"] = hlo_ir.DenseElementsAttr.get(np.arange(self.counted)[None])
        return found | {"all_gather_dim": hlo_ir.IntegerAttr.get(hlo_ir.IntegerType.get_signless(64), 0)}

    def rows(self) -> Any:
        """Return a function from a member's number to its gathered row, and whether that member exists; None where it
        always does."""
        if self.even:
            return lambda member: (member, None)
        places = {d: [self._place(m) for m in group] for group in self.groups for d in group}
        padded = [(places[d] + [0] * self.most)[: self.most] for d in range(self.grid.size)]
        counts = [len(places[d]) for d in range(self.grid.size)]
        table, sizes = (hlo.array(np.asarray(n, np.int64)) for n in (np.ravel(padded), counts))
        replica, partition = (hlo.convert(_number(name), table.type.element_type) for name in ("replica", "partition"))
        device = add(arithmetic("multiply", replica, self.grid.partitions), partition)
        size = element(sizes, device)

        def find(member: Any) -> tuple[Any, Any]:
            return element(table, add(arithmetic("multiply", device, self.most), member)), below(member, size)

        return find

    def _place(self, device: int) -> int:
        return next(group.index(device) for group in self.everyone if device in group)


def _number(what: str) -> Any:
    type_ = hlo_ir.RankedTensorType.get([], hlo_ir.IntegerType.get_unsigned(32))
    return hlo.emit(f"stablehlo.{what}_id", [], [type_])


def _grid(op: Any) -> Grid:
    module = op
    while module.parent is not None:
        module = module.parent.operation
    return grid_of(module)


def _groups(op: Any) -> Groups | None:
    """Return the groups of a collective_reduce; None where nothing is reduced, or where the lowering refuses them."""
    mode = mode_of(channel_of(op.attributes), "use_global_device_ids" in op.attributes or None)
    try:
        groups = resolve_groups(table_of(op.attributes, "replica_groups"), mode, _grid(op), NO_RULES)
    except (BrokenRule, TypeError, ValueError):
        return None
    return None if all(len(group) == 1 for group in groups) else groups


def _members(op: Any) -> _Members | None:
    """Return the participants; None where the combiner is not applied, or where the lowering will report an error."""
    grid, mode = _grid(op), mode_of(channel_of(op.attributes), "use_global_device_ids" in op.attributes)
    try:
        table: Sequence[Sequence[int]] = table_of(op.attributes, "replica_groups")
        groups = resolve_groups(table, mode, grid, NO_RULES)
    except (BrokenRule, TypeError, ValueError):
        return None
    if grid.size == 1 or all(len(group) == 1 for group in groups):
        return None
    return _Members(grid, groups, mode.limit(grid), resolve_groups([], mode, grid, NO_RULES))
