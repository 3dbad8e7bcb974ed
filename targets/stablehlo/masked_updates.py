"""Pass that takes selects by one condition, between an updated array and the old one, into the update.

Such a select needs the old array beside the new one, so that each update would begin with a copy. An update that is
masked instead leaves the array as it is where the condition does not hold, and may be done in place.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects import hlo
from stablexla.dialects.attributes.index_numbers import ScatterDimensionNumbers
from stablexla.dialects.erasing import erase
from stablexla.targets.pipeline.contents import Contents
from stablexla.targets.pipeline.passes import module_pass
from stablexla.targets.stablehlo.inlining import operations_of

SLICE, SCATTER = "stablehlo.dynamic_update_slice", "stablehlo.scatter"


def _may_select_updates(contents: Contents) -> bool:
    return contents.has("stablehlo.select") and contents.has(SLICE, SCATTER)


@module_pass(
    "stablexla-mask-updates",
    "masks the updates of an array that one condition selects or drops, so that they can be done in place",
    side="stablehlo",
    acts_on=_may_select_updates,
)
def mask_updates(module: ir.Module) -> None:
    """Rewrite select(p, update(x), x) to update(x) masked by p; both sides may be updates of x, one after the other."""
    for op in operations_of(module, "stablehlo.select"):
        condition = _one_condition(op.operands[0])
        if condition is None:
            continue
        (this, those), (other, others) = (_updates(op, number) for number in (1, 2))
        if this == other and (those or others):
            with op.location, ir.InsertionPoint(op):
                value, condition = this, hlo.reshape(condition, [])
                for update in those:
                    value = _masked(update, value, condition, holds=True)
                for update in others:
                    value = _masked(update, value, condition, holds=False)
            op.results[0].replace_all_uses_with(value)
            for old in (op, *reversed(those), *reversed(others)):
                erase(old)


def _one_condition(mask: Any) -> Any | None:
    """Return the only element, as an array, that a select's condition is for all elements; None if there are more."""
    maker = mask.owner
    if not isinstance(maker, ir.Block) and maker.name == "stablehlo.broadcast_in_dim":
        mask = maker.operands[0]
    return mask if all(extent == 1 for extent in mask.type.shape) else None


def _updates(select: Any, number: int) -> tuple[Any, list[Any]]:
    """Return the array at the root of updates that this operand of a select is, each of which has no other use."""
    value, found = select.operands[number], list[Any]()
    while not isinstance(value.owner, ir.Block):
        maker = value.owner.operation
        if maker.block != select.block or not _can_be_masked(maker) or len(list(value.uses)) != 1:
            break
        found.insert(0, maker)
        value = maker.operands[0]
    return value, found


def _can_be_masked(op: Any) -> bool:
    if op.name not in (SLICE, SCATTER) or not all(v.type.has_static_shape for v in (*op.operands, *op.results)):
        return False
    if op.name == SLICE:
        return True
    is_one = len(op.results) == 1 and op.operands[0].type == op.results[0].type
    return is_one and 0 < _outside(op) <= _largest(op.operands[1].type.element_type)


def _outside(scatter: Any) -> int:
    """Return an index at which a window has no element in the array; 0 if a scatter has no indices."""
    numbers = ScatterDimensionNumbers.read(scatter.attributes["scatter_dimension_numbers"])
    extents = scatter.operands[0].type.shape
    return max((extents[d] for d in numbers.scatter_dims_to_operand_dims), default=0)


def _largest(integer: Any) -> int:
    return int(2 ** (integer.width - (not integer.is_unsigned)) - 1)


def _masked(update: Any, array: Any, condition: Any, *, holds: bool) -> Any:
    """Emit an update of an array that changes nothing unless the condition holds, or does not hold."""

    def choose(this: Any, other: Any) -> Any:
        return hlo.select(condition, *((this, other) if holds else (other, this)))

    with update.location:
        if update.name == SLICE:
            _, part, *starts = update.operands
            old = hlo.dynamic_slice(array, starts, part.type.shape)
            return hlo.dynamic_update(array, choose(part, old), starts)
        indices = update.operands[1]
        indices = choose(indices, hlo.constant(indices.type, _outside(update)))
        made = update.clone(ip=ir.InsertionPoint.current)
        made.operands[0], made.operands[1] = array, indices
        return made.results[0]
