"""Where a NaN can be seen: the fewest operations whose results tell of all NaNs that a program makes.

A NaN passes through arithmetic, so that the end of a chain tells of the whole of it; a comparison, a selection or a
conversion to integers may hide it, and what these read is looked at itself. An infinity passes through sums and
products, as itself or as a NaN, but neither through a divisor nor through an exponential.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.op_traits import bare
from stablexla.dialects.value_checks import INF, NAN
from stablexla.lowering.support.operations import defining, terminator_of
from stablexla.targets.stablehlo.checks.operations import Checked, Path, counts, numbers_of, traits_of, widest

BEYOND = 1 << 30
"""The number of a value of which no operation in the list tells."""
_SUMS = ("stablehlo.add", "stablehlo.multiply")
_MOST = ("stablehlo.maximum", "stablehlo.minimum")


def sinks(makers: Sequence[Checked], meant: Collection[int] = ()) -> list[Checked]:
    """Return operations whose results have to be looked at, given that those in the list can make what is looked for.

    Loops are among them: a NaN in a carried value that each iteration hands on is in the loop's result.

    Args:
        meant: numbers of operations whose results tell nothing, as infinite values are meant there: operations that no
            other result tells of are checked with their operands.
    """
    kind = widest(makers)
    own = (NAN,) if kind == NAN else (NAN, INF)
    search = _Search(makers, kind)
    alone = [each for each in makers if not search.tells_of(each.op.results, each.path) and each.number not in meant]
    chosen: dict[Any, Checked] = {}
    if meant:
        search = _Search(alone, kind)
        chosen = {each.op: each for each in makers if not search.tells_of(each.op.results, each.path)}
    for each in alone:
        chosen[each.op] = replace(each, kinds=own, alone=tuple(numbers_of(each.op.results)))
    while search.loops:
        loop, (path, places) = search.loops.popitem()
        if not all(search.tells_of([loop.results[place]], path) for place in places):
            chosen[loop] = Checked(BEYOND, loop, own, path, tuple(numbers_of(loop.results)))
    return list(chosen.values())


class _Search:
    """Which values are sure to be in a result that is looked at.

    Attributes:
        loops: loops of which results were counted on: the regions around them, and which results.
    """

    def __init__(self, makers: Sequence[Checked], kind: str) -> None:
        self._kind, self._makers = kind, {each.op for each in makers}
        self.loops: dict[Any, tuple[Path, set[int]]] = {}

    def tells_of(self, values: Iterable[Any], path: Path) -> bool:
        """Return whether a NaN in one of the values is sure to be in a result that is looked at.

        Args:
            values: values of one block.
            path: the regions around it.
        """
        return any(self._is_seen(value) or self._is_carried(value, path) for value in values)

    def _is_seen(self, value: Any) -> bool:
        return any(u.owner.operation in self._makers and passes(u, self._kind) for u in self._uses(value))

    def _is_carried(self, value: Any, path: Path) -> bool:
        """Return whether a counting loop hands a value on to its end, and note the loop."""
        loop: Any
        *outer, (loop, region) = path or [(None, 0)]
        if not region or loop.name != "stablehlo.while" or not counts(loop.regions[0].blocks[0]):
            return False
        body = loop.regions[1].blocks[0]
        for place in self._returned(value, body):
            if place in self._returned(body.arguments[place], body):
                self.loops.setdefault(loop, (tuple(outer), set()))[1].add(place)
                return True
        return False

    def _returned(self, value: Any, block: Any) -> Iterator[int]:
        """Yield the places in what a block returns where a NaN of a value of it is sure to be."""
        last = terminator_of(block)
        return (use.operand_number for use in self._uses(value) if use.owner.operation == last)

    def _uses(self, value: Any) -> Iterator[Any]:
        """Yield the uses of a value, and of all values of its block in which a NaN of it is sure to be."""
        waiting, met = [value], {value}
        for current in waiting:
            for use in current.uses:
                yield use
                if passes(use, self._kind) and (made := use.owner.operation.results[0]) not in met:
                    met.add(made)
                    waiting.append(made)


def passes(use: Any, kind: str) -> bool:
    """Return whether a NaN, or for any other kind what is not finite, passes from an operand to its user's result."""
    user, place = use.owner.operation, use.operand_number
    value = user.operands[place]
    if user.block != _block_of(value) or len(user.results) != 1:
        return False
    if len(numbers_of([value, *user.results])) < 2 or not prod(user.results[0].type.shape):
        return False
    name, carries = bare(user.name), traits_of(user).carries.split()
    is_complex = any(isinstance(v.type.element_type, ir.ComplexType) for v in (value, *user.results))
    if is_complex and "complex" not in carries:
        return False
    if name == "reduce":
        return bool(place == 0) and _combines_by(user, (*_SUMS, *_MOST) if kind == NAN else _SUMS)
    if name == "dynamic_update_slice":
        return bool(place == 1)
    if name in ("divide", "remainder") and kind != NAN:  # an infinity passes through the first operand alone
        return bool(place == 0)
    return kind in carries


def _block_of(value: Any) -> Any:
    maker = defining(value)
    return value.owner if maker is None else maker.block


def _combines_by(op: Any, names: Sequence[str]) -> bool:
    *inner, _ = [view.operation.name for view in op.regions[0].blocks[0].operations]
    return len(inner) == 1 and inner[0] in names
