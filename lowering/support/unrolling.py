"""Unrolling of loops with a small constant trip count, so that their bodies can be fused.

The rounds of a random generator, which JAX writes as a loop, so become one pass over the elements. The code grows by a
constant factor at most, however loops are nested: an operation is written out MOST_COPIES times in all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jaxlib.mlir.ir as hlo_ir

from stablexla.dialects.attributes.attributes import word
from stablexla.dialects.choices import Gate
from stablexla.dialects.constants import dense_values
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import defining, terminator_of
from stablexla.lowering.support.types import tensor_type

MOST_COPIES = Gate("unroll.most-copies", 8, eager=1)
MOST_OPERATIONS = Gate("unroll.most-operations", 500, eager=1)
# Rough sizes of the code of elementary functions, where one addition is 1.
WEIGHTS = {
    f"stablehlo.{name}": weight
    for weight, names in {
        4: ("atan2", "cbrt", "composite", "exponential", "exponential_minus_one", "log", "log_plus_one", "logistic"),
        5: ("power", "tanh"),
        16: ("cosine", "sine", "tan"),
    }.items()
    for name in names
}


def unrolled_trip_count(loop: Any) -> int | None:
    """Return the trip count of a `stablehlo.while` that is worth unrolling, else None.

    It must increment a scalar by one from a constant to a constant, in few and small iterations, and hold no loop that
    stays one.
    """
    unrolled = _unrolled(loop)
    return unrolled[0] if unrolled is not None else None


@dataclass(frozen=True)
class _Code:
    """The code that lowering makes of operations: its weight, and the most copies that it has of one of them."""

    weight: int
    copies: int

    @property
    def is_small(self) -> bool:
        return self.weight <= MOST_OPERATIONS() and self.copies <= MOST_COPIES()

    def times(self, count: int) -> _Code:
        return _Code(self.weight * count, self.copies * max(count, 1))


def _unrolled(loop: Any) -> tuple[int, _Code] | None:
    """Return the trip count of a loop that is worth unrolling and the code that it becomes, else None."""
    count = _trip_count(loop)
    if count is None or count > MOST_COPIES():
        return None
    code = _code(loop.regions[1])
    if code is None or not code.times(count).is_small:
        return None
    return count, code.times(count)


def _code(region: Any) -> _Code | None:
    """Return the code of a region with its loops unrolled, so that it is found out early when it is too much: None."""
    weight, copies = 0, 1
    for view in region.blocks[0].operations:
        for inner in _parts(view.operation):
            if inner is None:
                return None
            weight, copies = weight + inner.weight, max(copies, inner.copies)
        if weight > MOST_OPERATIONS():
            return None
    return _Code(weight, copies)


def _parts(op: Any) -> Iterator[_Code | None]:
    """Yield the code of an operation and of its regions; None for a loop that stays one."""
    if op.name == "stablehlo.while":
        unrolled = _unrolled(op)
        yield None if unrolled is None else unrolled[1]
        return
    yield _Code(WEIGHTS.get(op.name, 1), 1)
    for region in op.regions:
        yield _code(region)


def _trip_count(loop: Any) -> int | None:
    """Return the trip count of a loop over a counter from a constant to a constant, else None."""
    condition, body = (region.blocks[0] for region in loop.regions)
    end = _limit(condition)
    if end is None:
        return None
    place, limit = end
    start = _integer(loop.operands[place])
    if start is None or not _counts(body, place):
        return None
    return max(0, limit - start)


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
