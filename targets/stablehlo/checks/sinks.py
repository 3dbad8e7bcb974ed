"""Where a NaN can be seen: the fewest operations whose results tell of all NaNs that a program makes.

A NaN passes through arithmetic, so that the end of a chain tells of the whole of it; a comparison, a selection or a
conversion to integers may hide it, and what these read is looked at itself. An infinity passes through sums and
products, as itself or as a NaN, but neither through a divisor nor through an exponential.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.value_checks import ERRORS, NAN
from stablexla.targets.stablehlo.checks.operations import (
    Checked,
    counts,
    element_of,
    has_nan,
    is_number,
    name_of,
    path_of,
)

_THROUGH = frozenset(
    [
        *("add", "subtract", "multiply", "divide", "remainder", "negate", "abs", "sign", "maximum", "minimum", "atan2"),
        *("exponential", "exponential_minus_one", "log", "log_plus_one", "sqrt", "rsqrt", "cbrt", "tanh", "logistic"),
        *("sine", "cosine", "tan", "floor", "ceil", "round_nearest_afz", "round_nearest_even", "reduce_precision"),
        *("erf", "erfc", "sinh", "cosh", "asin", "acos", "atan", "asinh", "acosh", "atanh", "square"),  # of CHLO
        *("convert", "dot", "dot_general"),
    ]
)
_THROUGH_IF_INFINITE = _THROUGH - {
    *("sign", "maximum", "minimum", "atan2", "exponential", "exponential_minus_one", "rsqrt", "tanh", "logistic"),
    *("erf", "erfc", "atan"),
}
_FIRST = ("divide", "remainder")  # an infinity passes through the first operand alone
_COMPLEX = frozenset(["add", "subtract", "negate"])  # C's rules make infinities of some NaNs
_ALL_ELEMENTS = frozenset(
    ["reshape", "transpose", "broadcast_in_dim", "reverse", "concatenate", "optimization_barrier"]
)
_SUMS = frozenset(["stablehlo.add", "stablehlo.multiply"])
_MOST = frozenset(["stablehlo.maximum", "stablehlo.minimum"])


def sinks(operations: Sequence[Checked], kinds: Sequence[str], meant: Collection[int] = ()) -> list[Checked]:
    """Return operations whose results have to be looked at, given that those in the list can show one of the kinds.

    Loops are among them: a NaN in a carried value that each iteration hands on is in the loop's result. What is checked
    for a warning is there as it was.

    Args:
        meant: numbers of operations whose results tell nothing, as infinite values are meant there: operations that no
            other result tells of are checked with their operands.
    """
    errors = tuple(kind for kind in kinds if kind in ERRORS)
    makers = [each for each in operations if any(kind in errors for kind in each.kinds)]
    search = _Search({each.op for each in makers}, nan_alone=errors == (NAN,))
    alone = [each for each in makers if not any(search.is_seen(r) for r in each.op.results)]
    exact: list[Checked] = []
    if meant:
        alone = [each for each in alone if each.number not in meant]
        search = _Search({each.op for each in alone}, nan_alone=errors == (NAN,))
        told = {each.op for each in alone}
        exact = [each for each in makers if each.op not in told and not any(search.is_seen(r) for r in each.op.results)]
    chosen = {each.op: replace(each, is_alone=True) for each in alone} | {each.op: each for each in exact}
    while search.loops:
        loop, places = search.loops.popitem()
        if not all(search.is_seen(loop.results[place]) for place in places):
            chosen[loop] = Checked(len(operations) + 1, loop, errors, path_of(loop), is_alone=True)
    for each in operations:
        others = tuple(kind for kind in each.kinds if kind not in errors)
        if others and each.op not in chosen:
            chosen[each.op] = replace(each, kinds=others)
    return list(chosen.values())


class _Search:
    """Which values are sure to be in a result that is looked at.

    Attributes:
        loops: loops of which results were counted on, and which.
    """

    def __init__(self, makers: set[Any], *, nan_alone: bool) -> None:
        self._nan_alone = nan_alone
        self.loops: dict[Any, set[int]] = {}
        self._makers = makers
        self._seen: dict[Any, bool] = {}
        self._handed_on: dict[Any, bool] = {}

    def is_seen(self, value: Any) -> bool:
        """Return whether a NaN in a value is sure to be in a result that is looked at."""
        waiting, seen = [value], self._seen
        while waiting:
            current = waiting[-1]
            if current in seen:
                waiting.pop()
                continue
            users = [use.owner.operation for use in current.uses if self._passes(current, use)]
            onwards = [r for user in users if user not in self._makers for r in user.results]
            if any(user in self._makers for user in users) or any(seen.get(r) for r in onwards):
                seen[current] = True
            elif unknown := [r for r in onwards if r not in seen]:
                waiting += unknown
            else:
                seen[current] = any(self._is_carried(current, use) for use in current.uses)
        return seen[value]

    def _is_carried(self, value: Any, use: Any) -> bool:
        """Return whether a counting loop hands a value on to its end, and note the loop."""
        last, place = use.owner.operation, use.operand_number
        loop = last.block.owner.operation
        if last.name != "stablehlo.return" or loop.name != "stablehlo.while" or _block_of(value) != last.block:
            return False
        condition, body = (region.blocks[0] for region in loop.regions)
        if last.block != body or not counts(condition) or not self._hands_on(body.arguments[place], place):
            return False
        self.loops.setdefault(loop, set()).add(place)
        return True

    def _hands_on(self, argument: Any, place: int) -> bool:
        """Return whether every NaN of a carried value is in the one of the next iteration."""
        if argument not in self._handed_on:
            waiting, met = [argument], {argument}
            found = False
            while waiting and not found:
                current = waiting.pop()
                for use in current.uses:
                    user = use.owner.operation
                    is_end = user.name == "stablehlo.return" and user.block == argument.owner
                    found |= is_end and use.operand_number == place
                    if self._passes(current, use) and user.results[0] not in met:
                        met.add(user.results[0])
                        waiting.append(user.results[0])
            self._handed_on[argument] = found
        return self._handed_on[argument]

    def _passes(self, value: Any, use: Any) -> bool:
        return passes(value, use, nan_alone=self._nan_alone)


def passes(value: Any, use: Any, *, nan_alone: bool) -> bool:
    """Return whether all that is looked for in an operand is in the result of its user, which is in its block."""
    user = use.owner.operation
    name = name_of(user).partition(".")[2]
    if user.block != _block_of(value) or len(user.results) != 1 or not is_number(user.results[0]):
        return False
    made, taken = element_of(user.results[0]), element_of(value)
    if made is None or taken is None or not has_nan(made.part) or not prod(user.results[0].type.shape):
        return False
    if name in _ALL_ELEMENTS:
        return True
    if name == "dynamic_update_slice":
        return bool(use.operand_number == 1)
    if taken.is_complex or made.is_complex:
        return name in _COMPLEX
    if name == "reduce":
        return bool(use.operand_number == 0) and _combines_by(user, _SUMS | _MOST if nan_alone else _SUMS)
    if nan_alone:
        return name in _THROUGH
    return name in _THROUGH_IF_INFINITE and (name not in _FIRST or use.operand_number == 0)


def _block_of(value: Any) -> Any:
    maker = value.owner
    return maker if isinstance(maker, ir.Block) else maker.operation.block


def _combines_by(op: Any, names: frozenset[str]) -> bool:
    *inner, _ = [view.operation.name for view in op.regions[0].blocks[0].operations]
    return len(inner) == 1 and inner[0] in names
