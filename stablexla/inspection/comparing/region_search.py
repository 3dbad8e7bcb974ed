"""The search inside loops and branches: the first wrong iteration, and the wrong operation in it.

A loop that also stops after n iterations gives the state after each of them, as in our own loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
import numpy.typing as npt
from jaxlib.mlir.dialects import stablehlo

from stablexla.inspection.comparing.findings import RegionStep
from stablexla.inspection.comparing.operation_search import Found, Search, Subject
from stablexla.inspection.judging.expected import Expected, exceeds_tolerance
from stablexla.inspection.program import FlatProgram, ProgramOperation, copy_into, make_module
from stablexla.processes.questions import Refusal

Array = npt.NDArray[Any]
EVERY = np.int64(1 << 62)
MOST_TURNS_ONE_BY_ONE = 200


def look_inside(search: Search, subject: Subject, wanted: list[Array]) -> Found | None:
    """The first wrong operation in the regions of one whose results differ; the operation itself where all in it are
    right, and yet its result differs; None where only rounding accumulates."""
    inner = _RegionSearch(search, subject)
    found = inner.loop() if subject.unit.op.name == "stablehlo.while" else inner.branch()
    return found or inner.alone(wanted)


class _RegionSearch:
    """The regions of one operation, whose operands are known."""

    def __init__(self, search: Search, subject: Subject) -> None:
        self._search, self._subject = search, subject
        self._program, self._unit, self._turns = subject.program, subject.unit, subject.turns
        self._values = subject.values
        own = list(self._unit.op.operands)
        self._outside = [v for v in self._unit.reads if v not in own or _is_captured(self._unit, v)]

    # ---- branches --------------------------------------------------------------------------------------------------

    def branch(self) -> Found | None:
        """Search the branch that was taken."""
        number = self._branch_number()
        place = RegionStep(self._unit.name, self._unit.place, f"branch {number}")
        region = FlatProgram.of_region(self._unit.op.regions[number], self._outside, self._program)
        return self._search.first_wrong(region, self._captured(), (*self._turns, place))

    def _branch_number(self) -> int:
        index = self._values[self._unit.op.operands[0]]
        count = len(self._unit.op.regions)
        if self._unit.op.name == "stablehlo.if":
            return 0 if bool(index) else 1
        return int(index) if 0 <= int(index) < count else count - 1

    # ---- loops -----------------------------------------------------------------------------------------------------

    def loop(self) -> Found | None:
        """Find the first wrong iteration, and search it."""
        self._loop = self._stopping()
        self._ours, self._other = (_runner(way, self._loop.module) for way in (self._search.ours, self._search.other))
        start = [self._values[v] for v in self._unit.op.operands]
        last = self._ours(self._given(start, EVERY))
        if isinstance(last, Refusal):
            return None
        turn = self._first_turn(start, int(last[-1]))
        return None if turn is None else self._in_turn(turn, start)

    def _first_turn(self, start: list[Array], count: int) -> int | None:
        """Return the number of the first iteration, from 0, that is wrong for the same state."""
        low, high = 0, count + 1  # after `low` iterations both agree, after `high` they do not
        while high - low > 1:
            middle = (low + high) // 2
            self._search.progress("turns of a loop", middle, count)
            states = [run(self._given(start, np.int64(middle))) for run in (self._ours, self._other)]
            same = not any(isinstance(s, Refusal) for s in states) and not _apart(self._search, *states)
            low, high = (middle, high) if same else (low, middle)
        few = (low, *range(min(count + 1, MOST_TURNS_ONE_BY_ONE)))
        return next((turn for turn in few if self._wrong_turn(turn, start) is not None), None)

    def _wrong_turn(self, turn: int, start: list[Array]) -> tuple[list[Array], list[Array], list[Array]] | None:
        """Return the state before an iteration that is wrong, our next one, and the right one."""
        before, after = (self._ours(self._given(start, np.int64(n))) for n in (turn, turn + 1))
        if isinstance(before, Refusal) or isinstance(after, Refusal):
            return None
        wanted = self._other(self._given(before[:-1], np.int64(1)))
        made = [*after[:-1], after[-1] - before[-1]]
        if isinstance(wanted, Refusal) or not _apart(self._search, made, wanted):
            return None
        return before[:-1], made, wanted

    def _in_turn(self, turn: int, start: list[Array]) -> Found | None:
        turns = (*self._turns, RegionStep(self._unit.name, self._unit.place, f"turn {turn}"))
        wrong = self._wrong_turn(turn, start)
        assert wrong is not None
        state, made, wanted = wrong
        for region in self._unit.op.regions:
            inner = FlatProgram.of_region(region, self._outside, self._program)
            found = self._search.first_wrong(inner, [*state, *self._captured()], turns)
            if found is not None:
                return found
        arguments = self._given(state, np.int64(1))
        expected = Expected(self._search.other, self._loop, arguments, self._search.tolerance, wanted)
        values = dict(zip((*self._unit.op.operands, *self._unit.results), (*state, *made), strict=False))
        return Subject(self._program, self._unit, {**self._values, **values}, turns).first_wrong(
            wanted, expected.differing(made)
        )

    def _stopping(self) -> FlatProgram:
        """Return the loop with one more parameter, the largest number of iterations, and one more
        result, the number of iterations."""
        op = self._unit.op
        with self._program.module.context, ir.Location.unknown():
            i64 = ir.RankedTensorType.get([], ir.IntegerType.get_signless(64))
            taken = [*op.operands, *self._outside]

            def fill(arguments: list[Any]) -> list[Any]:
                count = len(op.operands)
                mapping = dict(zip(self._outside, arguments[count:-1], strict=True))
                zero, one = (_scalar(n, i64) for n in (0, 1))
                loop = ir.Operation.create(
                    "stablehlo.while",
                    results=[*(r.type for r in op.results), i64],
                    operands=[*arguments[:count], zero],
                    regions=2,
                )
                types = [r.type for r in loop.results]
                blocks = [r.blocks.append(*types, arg_locs=[ir.Location.unknown()] * len(types)) for r in loop.regions]
                _fill_condition(blocks[0], op.regions[0].blocks[0], mapping, arguments[-1])
                _fill_body(blocks[1], op.regions[1].blocks[0], mapping, one)
                return list(loop.results)

            return FlatProgram(make_module(self._program.module, [*(v.type for v in taken), i64], fill))

    def _given(self, state: Sequence[Array], turns: np.int64) -> list[Array]:
        return [*state, *self._captured(), np.asarray(turns)]

    def _captured(self) -> list[Array]:
        return [self._values[v] for v in self._outside]

    def alone(self, wanted: list[Array]) -> Found | None:
        """Return the operation itself as the wrong one, if it gives other results as a program of its own, and rounding
        does not explain its results."""
        replay, search, actual = self._program.apart([self._unit]), self._search, self._subject.actual
        arguments = [self._values[v] for v in replay.taken]
        here = search.ours.run(replay.module, arguments)
        if isinstance(here, Refusal) or not _apart(search, actual, here):
            return None
        expected = Expected(search.other, FlatProgram(replay.module), arguments, search.tolerance, wanted)
        return self._subject.first_wrong(wanted, expected.differing(actual))


def _fill_condition(block: Any, source: Any, outside: dict[Any, Any], limit: Any) -> None:
    """Write the loop's own condition, and a limit of iterations."""
    (holds,) = _copied(block, source, outside)
    counter = block.arguments[len(block.arguments) - 1]
    with ir.InsertionPoint(block):
        less, signed = stablehlo.ComparisonDirectionAttr.get("LT"), stablehlo.ComparisonTypeAttr.get("SIGNED")
        stablehlo.return_([stablehlo.and_(holds, stablehlo.compare(counter, limit, less, compare_type=signed))])


def _fill_body(block: Any, source: Any, outside: dict[Any, Any], one: Any) -> None:
    """Write the loop's own body, with a counter of iterations."""
    results = _copied(block, source, outside)
    counter = block.arguments[len(block.arguments) - 1]
    with ir.InsertionPoint(block):
        stablehlo.return_([*results, stablehlo.add(counter, one)])


def _copied(block: Any, source: Any, outside: dict[Any, Any]) -> list[Any]:
    """Copy a block's operations but the terminator; return the terminator's operands."""
    mapping = dict(outside) | dict(zip(source.arguments, list(block.arguments)[:-1], strict=True))
    *operations, terminator = (view.operation for view in source.operations)
    for op in operations:
        copy_into(block, op, mapping)
    return [mapping[v] for v in terminator.operands]


def _scalar(number: int, type_: Any) -> Any:
    value = ir.DenseElementsAttr.get(np.asarray(np.int64(number)), type=type_)
    return ir.Operation.create("stablehlo.constant", results=[type_], attributes={"value": value}).result


def _is_captured(unit: ProgramOperation, value: Any) -> bool:
    """Return whether the regions of an operation read a value that is also an operand."""
    return any(use.owner.operation != unit.op for use in value.uses if _within(use.owner.operation, unit.op))


def _within(op: Any, holder: Any) -> bool:
    found: Any = op
    while found is not None and found != holder:
        found = found.parent.operation if found.parent is not None else None
    return found is not None


def _runner(way: Any, module: ir.Module) -> Callable[[Sequence[Array]], Any]:
    prepared = way.prepare(module) if hasattr(way, "prepare") else None
    if prepared is None:
        return lambda arguments: way.run(module, arguments)
    if isinstance(prepared, Refusal):
        return lambda arguments: prepared
    made: Callable[[Sequence[Array]], Any] = prepared
    return made


def _apart(search: Search, ours: Any, theirs: Any) -> bool:
    return any(exceeds_tolerance(a, b, search.tolerance).any() for a, b in zip(ours, theirs, strict=True))
