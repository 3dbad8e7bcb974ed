"""Loops over a block's calls of one function, which then has one call of it: inlined, the function is there once.

Functions that each call the next one twice would be copied 2^n times, n levels down. In the loop a `case` of the number
of the call does what stands between it and the next one; values that are read later are carried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects import hlo
from stablexla.dialects.element_types import BY_MLIR
from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.symbols import callee_of

FREE = ("stablehlo.constant", "stablehlo.iota")
"""Operations that stand before the loop, wherever they stood."""


def loop_over_calls(calls: Sequence[Any], sizes: Mapping[str, int]) -> bool:
    """Make loops of calls, in each block of those of the function that makes most code; return whether there are any.

    Args:
        calls: those of a function, with all in its regions.
        sizes: how many operations each function has, with all that it calls inlined.
    """
    found = False
    for calls_of_block in _grouped(calls, lambda call: call.block):
        groups = _grouped(calls_of_block, callee_of)
        group = max(groups, key=lambda group: sizes[callee_of(group[0])] * (len(group) - 1))
        if len(group) > 1 and _CallLoop(group).write():
            found = True
    return found


def merge_equal_calls(calls: Sequence[Any]) -> None:
    """Replace a call by another one of its block of the same function without effects, with the same operands."""
    for group in _grouped(calls, lambda call: (call.block, callee_of(call), *call.operands)):
        first = next(op.operation for op in group[0].block.operations if op.operation in group)
        for call in group:
            if call != first:
                for old, new in zip(call.results, first.results, strict=True):
                    old.replace_all_uses_with(new)
                erase(call)


def _grouped(calls: Sequence[Any], key: Any) -> list[list[Any]]:
    groups: dict[Any, list[Any]] = {}
    for call in calls:
        groups.setdefault(key(call), []).append(call)
    return list(groups.values())


class _CallLoop:
    """The loop over calls of one function in a block; stage k is the k-th call, and what follows up to the next."""

    def __init__(self, calls: Sequence[Any]) -> None:
        self._block = calls[0].block
        *operations, self._end = (view.operation for view in self._block.operations)
        self._calls = [op for op in operations if op in calls]
        self._stages: list[list[Any]] = [[] for _ in range(len(calls) + 1)]
        self._made: dict[Any, int] = {}  # the stage of each value
        self._free: list[Any] = []
        places: dict[Any, int] = {self._end: len(calls)}
        number = 0
        for op in operations:
            if op in self._calls:
                places[op] = number  # of its operands
                number += 1
            elif op.name in FREE:
                self._free += [op] if number else []
                continue
            else:
                places[op] = number
                self._stages[number].append(op)
            if number:
                self._made.update(dict.fromkeys(op.results, number))
        # All are looked up before the first changes: an operation's hash is that of its operands.
        uses = [(value, use) for value in self._made for use in value.uses]
        self._uses = [_Use(value, u.owner, u.operand_number, _place(u.owner, places)) for value, u in uses]
        self._saved = list(dict.fromkeys(u.value for u in self._uses if self._made[u.value] < u.stage))

    def write(self) -> bool:
        """Write the loop in the place of the first call; False, with nothing changed, if it cannot carry a value."""
        first = self._calls[0]
        carried = [v.type for v in (*first.operands, *first.results, *self._saved)]
        if not all(map(_is_plain, carried)):
            return False
        for op in self._free:
            op.move_before(first)
        with first.context, first.location, ir.InsertionPoint(first):
            scalar = hlo.integer_tensor(32)
            zeros = [hlo.broadcast(hlo.number(t, "0"), t.shape) for t in carried[len(first.operands) :]]
            state = [hlo.constant(scalar, 0), *first.operands, *zeros]
            types = [value.type for value in state]
            loop = hlo.operation("stablehlo.while", state, types, regions=2)
            with hlo.block(loop.regions[0], types) as (count, *_):
                hlo.return_([hlo.compare(count, hlo.constant(scalar, len(self._calls)))])
            with hlo.block(loop.regions[1], types) as (count, *values):
                following = self._iteration(count, values)
                hlo.return_([hlo.elementwise("add", count, hlo.constant(scalar, 1)), *following])
        self._leave(list(loop.results)[1:])
        return True

    def _iteration(self, count: Any, values: list[Any]) -> list[Any]:
        """Write one call, and what follows each of the calls but the last; return the values of the next iteration."""
        first, last = self._calls[0], len(self._calls)
        arguments, saved = values[: len(first.operands)], values[len(values) - len(self._saved) :]
        attributes = {"callee": first.attributes["callee"]}
        results = list(hlo.operation("func.call", arguments, [r.type for r in first.results], attributes).results)
        self._replace_uses(range(1, last), results, saved)
        # What each stage hands on, in its own block by then.
        rows = []
        for stage in range(1, last):
            given = [self._stand_in(v, stage, results, saved) for v in self._calls[stage].operands]
            kept = [
                self._stand_in(value, stage, results, saved) if self._made[value] == stage else old
                for value, old in zip(self._saved, saved, strict=True)
            ]
            rows.append([*given, *kept])
        same = {n for n in range(len(arguments)) if self._is_same([row[n] for row in rows])}
        chosen = [n for n in range(len(rows[0])) if n not in same]
        rows.append([*arguments, *saved])
        if chosen or any(self._stages[1:last]):
            case = hlo.operation("stablehlo.case", [count], [rows[0][n].type for n in chosen], regions=last)
            for stage, (region, row) in enumerate(zip(case.regions, rows, strict=True), 1):
                with hlo.block(region):
                    end = hlo.return_([row[n] for n in chosen])
                for op in self._stages[stage] if stage < last else ():
                    op.move_before(end)
            made = dict(zip(chosen, case.results, strict=True))
        else:
            made = {}
        after = [made.get(n, rows[0][n]) for n in range(len(rows[0]))]
        return [*after[: len(arguments)], *results, *after[len(arguments) :]]

    def _is_same(self, values: Sequence[Any]) -> bool:
        """Whether all stages hand on one value, which none of them makes."""
        inside = any(value in self._made for value in values)
        return not inside and all(value == values[0] for value in values)

    def _leave(self, values: list[Any]) -> None:
        """Let what follows the last call read the loop's results, and erase the calls."""
        first, last = self._calls[0], len(self._calls)
        values = values[len(first.operands) :]
        results, saved = values[: len(first.results)], values[len(first.results) :]
        self._replace_uses([last], results, saved)
        for call in reversed(self._calls):
            erase(call)

    def _replace_uses(self, stages: Sequence[int], results: list[Any], saved: list[Any]) -> None:
        """Let the operations of stages read the results of the call before, and what was saved of earlier ones."""
        for use in self._uses:
            if use.stage in stages and use.owner not in self._calls:
                use.owner.operands[use.number] = self._stand_in(use.value, use.stage, results, saved)

    def _stand_in(self, value: Any, stage: int, results: list[Any], saved: list[Any]) -> Any:
        """Return what a value is at a stage, inside the loop or behind it."""
        made = self._made.get(value)
        if made is None:
            return value
        if made < stage:
            return saved[self._saved.index(value)]
        own = list(self._calls[made - 1].results)
        return results[own.index(value)] if value in own else value


@dataclass(frozen=True)
class _Use:
    """A use of a value by an operation, and the stage of that."""

    value: Any
    owner: Any
    number: int
    stage: int


def _place(op: Any, places: Mapping[Any, int]) -> int:
    """Return the stage of an operation, or of the one that it is in."""
    while op.operation not in places:
        op = op.parent
    return places[op.operation]


def _is_plain(type_: Any) -> bool:
    """Whether a loop can carry values of a type that are zero at first."""
    is_array = isinstance(type_, ir.RankedTensorType) and type_.has_static_shape and type_.encoding is None
    return is_array and str(type_.element_type) in BY_MLIR
