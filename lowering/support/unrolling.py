"""Unrolling of loops with a small constant trip count, so that their bodies can be fused.

The rounds of a random generator, which JAX writes as a loop, so become one pass over the elements.
"""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.attributes.attributes import word
from stablexla.dialects.constants import dense_values
from stablexla.lowering.support.operations import defining, terminator_of
from stablexla.lowering.support.types import tensor_type

MOST_TURNS, MOST_OPERATIONS = 8, 500


def known_turns(loop: Any) -> int | None:
    """Return the trip count of a `stablehlo.while` that is worth unrolling, else None.

    It must increment a scalar by one from a constant to a constant, in few and small iterations.
    """
    condition, body = (region.blocks[0] for region in loop.regions)
    end = _limit(condition)
    if end is None:
        return None
    place, limit = end
    start = _integer(loop.operands[place])
    if start is None or not _counts(body, place):
        return None
    turns = max(0, limit - start)
    small = turns <= MOST_TURNS and turns * _size(body) <= MOST_OPERATIONS
    return turns if small else None


def _limit(condition: Any) -> tuple[int, int] | None:
    """Match the condition `state[i] < n`; return i and n."""
    compare = defining(terminator_of(condition).operands[0])
    if compare is None or compare.name != "stablehlo.compare":
        return None
    place, limit = _argument(compare.operands[0], condition), _integer(compare.operands[1])
    is_less = word(compare.attributes["comparison_direction"]) == "LT"
    return (place, limit) if is_less and place is not None and limit is not None else None


def _counts(body: Any, place: int) -> bool:
    """Whether a part of the state is incremented by one in each iteration."""
    step = defining(terminator_of(body).operands[place])
    if step is None or step.name != "stablehlo.add":
        return False
    pairs = (step.operands, reversed(step.operands))
    return any(_argument(a, body) == place and _integer(b) == 1 for a, b in pairs)


def _size(block: Any) -> int:
    count = 0
    for view in block.operations:
        count += 1 + sum(_size(inner) for region in view.operation.regions for inner in region.blocks)
    return count


def _argument(value: Any, block: Any) -> int | None:
    """Return the number of a block's argument, else None."""
    if defining(value) is not None or value.owner != block:
        return None
    return int(hlo_ir.BlockArgument(value).arg_number)


def _integer(value: Any) -> int | None:
    """Return the value of an integer scalar constant, else None."""
    maker = defining(value)
    if maker is None or maker.name != "stablehlo.constant":
        return None
    type_ = tensor_type(value.type)
    if type_.rank or not type_.element.is_integer:
        return None
    return int(dense_values(maker.attributes["value"], type_.element, ())[()])
