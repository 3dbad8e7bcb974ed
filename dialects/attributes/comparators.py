"""Matching of comparators of top-k custom calls: descending or ascending order."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir


def direction_of(function: Any) -> str | None:
    """Match a comparator: "GT" puts the larger of its first two arguments first, "LT" the smaller one.

    None for any other computation.

    XLA's passes write the total order of floats as one of integers: both sides may be computed from the bits of one
    argument each. Any other computation, such as a negation, could reverse the order, and is not matched.
    """
    block = function.regions[0].blocks[0]
    compare: Any = block.operations[len(block.operations) - 1].operands[0].owner
    if isinstance(compare, ir.Block) or compare.operation.name != "stablehlo.compare":
        return None
    said = str(compare.operation.attributes["comparison_direction"])
    direction = next((word for word in ("GT", "LT") if word in said), None)
    sides = [_argument(side) or _arguments_of_bits(side) for side in compare.operation.operands]
    if direction is None or sides not in ([{0}, {1}], [{1}, {0}]):
        return None
    return direction if sides[0] == {0} else {"GT": "LT", "LT": "GT"}[direction]


def _argument(value: Any) -> set[int] | None:
    """Return the number of a block argument, as a set."""
    return {ir.BlockArgument(value).arg_number} if isinstance(value.owner, ir.Block) else None


def _arguments_of_bits(value: Any) -> set[int]:
    """Return the arguments that a value is computed from; -1 stands for a use other than of an argument's bits."""
    op = value.owner.operation
    found: set[int] = set()
    for operand in op.operands:
        own = _argument(_reshaped(operand))
        if own is None:
            found |= _arguments_of_bits(operand)
        else:
            found |= own if op.name == "stablehlo.bitcast_convert" else {-1}
    return found


def _reshaped(value: Any) -> Any:
    """Skip reshapes of a value: texts of HLO hold bitcasts as reshapes on both sides."""
    op = value.owner
    return op.operation.operands[0] if not isinstance(op, ir.Block) and op.name == "stablehlo.reshape" else value
