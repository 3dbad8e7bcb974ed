"""The first search: each operation is judged on the values of our own run.

Values are computed in batches, each by a program that returns them, to bound memory. Inside a batch the operations that
are most often wrong come first (`judging/suspicion.py`), so that a time limit finds them; the first one of the program
is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, replace
from math import inf
from time import monotonic
from typing import Any

import jaxlib.mlir.ir as ir
import numpy.typing as npt

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.places import Place
from stablexla.inspection.comparing.findings import RegionStep
from stablexla.inspection.comparing.runs import Run
from stablexla.inspection.comparing.sampling import sample_of
from stablexla.inspection.comparing.ways import Compiled, Way
from stablexla.inspection.judging.costs import SECONDS, scalar_operations
from stablexla.inspection.judging.expected import exceeds_tolerance
from stablexla.inspection.judging.suspicion import by_suspicion
from stablexla.inspection.judging.verdicts import Judge
from stablexla.inspection.program import CONTROL, SOURCES, FlatProgram, ProgramOperation
from stablexla.processes.questions import Refusal

Array = npt.NDArray[Any]
Values = dict[Any, Array]


@dataclass(frozen=True)
class Found:
    """An operation whose result is wrong, and the values that show it.

    Attributes:
        program: where the operation stands.
        unit: the operation.
        result: which of its results.
        operands: the values of `unit.reads`.
        actual, wanted: the result here and as it should be.
        wrong: which elements are wrong, flat.
        turns: loops and branches around it.
        context: the program that returned the wrong result, and its arguments.
        by: what judged it, where that was not the search's reference.
    """

    program: FlatProgram
    unit: ProgramOperation
    result: int
    operands: list[Array]
    actual: Array
    wanted: Array
    wrong: Array
    turns: tuple[RegionStep, ...] = ()
    context: tuple[ir.Module, list[Array]] | None = None
    by: Way | None = None


@dataclass(frozen=True)
class Subject:
    """An operation that is judged, and its values in our run.

    Attributes:
        program: where it stands.
        unit: the operation.
        values: its operands, the captured ones among them, and its results, by value.
        turns: loops and branches around it.
    """

    program: FlatProgram
    unit: ProgramOperation
    values: Values
    turns: tuple[RegionStep, ...] = ()

    @property
    def actual(self) -> list[Array]:
        """Its results."""
        return [self.values[v] for v in self.unit.results]

    def first_wrong(self, wanted: Sequence[Array], masks: Iterable[Array]) -> Found | None:
        """Return the first result with wrong elements; the masks say which they are."""
        for number, (value, right, wrong) in enumerate(zip(self.unit.results, wanted, masks, strict=False)):
            if wrong.any():
                operands = [self.values[v] for v in self.unit.reads]
                return Found(self.program, self.unit, number, operands, self.values[value], right, wrong, self.turns)
        return None


Progress = Callable[[str, int, int], None]


def no_progress(what: str, done: int, of: int) -> None:
    """Ignore progress."""


@dataclass
class Search:
    """The search for the first wrong operation, in a program and in regions.

    Attributes:
        ours: the way under test.
        other: the reference.
        judge: decides which results are wrong.
        byte_limit: bytes of values that are held at a time.
        tolerance: how far values may be apart that several operations made, as a part of the largest.
        progress: is told how many operations are done.
        refused: operations that were not judged: name and reason, and where they stand.
        judged: how many operations were.
        added_up: loops and branches whose results differ though each of their operations is right.
        returned: those values among the program's results that were had on the way.
        most: scalar operations above which the reference judges a sample of an operation, or `instead` all of it.
        instead: what judges large operations that cannot be sliced.
        deadline: of `monotonic`, after which nothing more is judged.
        sampled, by_other: how many operations were judged by a sample, and by `instead`.
        slowest: seconds, and the operation that took them.
        stopped: why not all operations were judged.
    """

    ours: Compiled
    other: Way
    judge: Judge
    byte_limit: int = 256 << 20
    tolerance: float | None = None
    progress: Progress = no_progress
    refused: dict[tuple[str, str], list[Place]] = field(default_factory=dict)
    judged: int = 0
    added_up: list[Place] = field(default_factory=list)
    returned: Values = field(default_factory=dict)
    most: float = inf
    instead: Way | None = None
    deadline: float = inf
    sampled: int = 0
    by_other: int = 0
    slowest: tuple[float, str] = (0.0, "")
    stopped: str = ""

    def __post_init__(self) -> None:
        self._other_judge = Judge(self.instead, self.judge.ulp) if self.instead is not None else None

    def first_wrong(
        self, program: FlatProgram, arguments: Sequence[Array], turns: tuple[RegionStep, ...] = ()
    ) -> Found | None:
        """Return the first wrong operation of a program, in program order."""
        run = Run(self.ours, program, arguments)
        for unit in program.units:
            if not unit.is_judged and unit.results and unit.op.name not in SOURCES:
                self._refuse(unit, unit.why_not)
        for batch in run.batches(self.byte_limit):
            if self.is_late():
                break
            if not turns:
                self._tell(batch[0].number, len(program.units))
            found = self._judge_batch(run, batch, turns)
            if found is not None:
                return found
        return None

    def is_late(self) -> bool:
        """Whether the time is over."""
        if monotonic() > self.deadline:
            self.stopped = self.stopped or "the time limit"
        return bool(self.stopped)

    def _tell(self, done: int, of: int) -> None:
        seconds, name = self.slowest
        slowest = f" (slowest: {name}, {seconds:.1f} s)" if seconds > 1 else ""
        self.progress(f"operations judged{slowest}", done, of)

    def _judge_batch(self, run: Run, batch: list[ProgramOperation], turns: tuple[RegionStep, ...]) -> Found | None:
        values = run.values(batch)
        if isinstance(values, Refusal):
            return self._in_halves(run, batch, turns, f"stablexla: {values}")
        program = run.program
        if not turns:
            self.returned |= {v: values[v] for v in program.returns if v in values}
        large = [unit for unit in batch if scalar_operations(unit) > self.most]
        wanted = self._wanted(self.other, program, [unit for unit in batch if unit not in large], values)
        others = {} if self.instead is None else self._wanted(self.instead, program, large, values)
        first: tuple[int, Found] | None = None
        for unit in by_suspicion(batch, {rule.name for rule in self.ours.pipeline.rules}):
            if self.is_late():
                break
            if first is not None and unit.number > first[0]:
                continue  # only an earlier one can still be the first
            subject = Subject(program, unit, values, turns)
            if unit in large:
                found = self._judge_large(subject, others.get(unit.number))
            elif isinstance(right := wanted[unit.number], Refusal):
                self._refuse(unit, f"{self.other.name}: {right}")
                continue
            else:
                self.judged += 1
                found = self._judge(subject, right, self.judge)
            if found is not None:
                first = unit.number, found if unit.op.name in CONTROL else replace(found, context=run.last)
        return None if first is None else first[1]

    def _in_halves(
        self, run: Run, batch: list[ProgramOperation], turns: tuple[RegionStep, ...], reason: str
    ) -> Found | None:
        if len(batch) == 1:
            self._refuse(batch[0], reason)
            return None
        middle = len(batch) // 2
        first = self._judge_batch(run, batch[:middle], turns)
        return first or self._judge_batch(run, batch[middle:], turns)

    def _wanted(
        self, way: Way, program: FlatProgram, units: list[ProgramOperation], values: Values
    ) -> dict[int, list[Array] | Refusal]:
        """Return a reference's results for the same operands, by operation; batches that it refuses are halved."""
        if not units:
            return {}
        replay = program.apart(units)
        found = way.run(replay.module, [values[v] for v in replay.taken])
        if isinstance(found, Refusal):
            if len(units) == 1:
                return {units[0].number: found}
            middle = len(units) // 2
            parts = (units[:middle], units[middle:])
            return self._wanted(way, program, parts[0], values) | self._wanted(way, program, parts[1], values)
        results: dict[int, list[Array] | Refusal] = {}
        for unit in units:
            results[unit.number], found = found[: len(unit.results)], found[len(unit.results) :]
        return results

    def _judge_large(self, subject: Subject, others: list[Array] | Refusal | None) -> Found | None:
        """Judge an operation that the reference would take long for: slices of it, and by `instead` all of it."""
        start, unit, program = monotonic(), subject.unit, subject.program
        if not subject.turns:
            self._tell(unit.number, len(program.units))
        is_sliced = unit.op.name not in CONTROL
        sample = sample_of(unit, subject.values, program.module, int(self.most)) if is_sliced else None
        wanted = Refusal("large", "") if sample is None else self.other.run(sample.program.module, sample.arguments)
        self.slowest = max(self.slowest, (monotonic() - start, unit.name))
        if sample is not None and not isinstance(wanted, Refusal):
            self.sampled += 1
            known = dict(zip(sample.program.arguments, sample.arguments, strict=True))
            known |= dict(zip(sample.unit.results, sample.results, strict=True))
            part = Subject(sample.program, sample.unit, known, subject.turns)
            if (found := self._judge(part, wanted, self.judge)) is not None:
                return found
        if self._other_judge is not None and others is not None and not isinstance(others, Refusal):
            self.by_other += 1
            found = self._judge(subject, others, self._other_judge)
            if found is not None:
                return replace(found, by=found.by or self.instead)
        elif isinstance(wanted, Refusal):
            reason = f"{self.other.name}: it would take about {scalar_operations(unit) * SECONDS:.0f} s"
            said = f"; {self.instead.name}: {others}" if self.instead is not None and others is not None else ""
            self._refuse(unit, reason + said)
            return None
        self.judged += 1
        return None

    def _judge(self, subject: Subject, wanted: list[Array], judge: Judge) -> Found | None:
        unit, actual = subject.unit, subject.actual
        if unit.op.name not in CONTROL:
            reads = [subject.values[v] for v in unit.reads]
            pairs = enumerate(zip(actual, wanted, strict=True))
            return subject.first_wrong(
                wanted, (judge.wrong(subject.program, unit, reads, number, *pair) for number, pair in pairs)
            )
        if all(not exceeds_tolerance(a, w, self.tolerance).any() for a, w in zip(actual, wanted, strict=True)):
            return None
        from stablexla.inspection.comparing.region_search import look_inside  # which searches again

        found = look_inside(self, subject, wanted)
        if found is None:
            self.added_up.append(unit.place)
        return found

    def _refuse(self, unit: ProgramOperation, reason: str) -> None:
        self.refused.setdefault((unit.name, reason), []).append(unit.place)
