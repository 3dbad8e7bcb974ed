"""Checked runs: compiled programs with checks in them, and the search for what one of them found.

A program is compiled up to three times. The first looks at the fewest values that tell of every NaN or infinity. Only
where it sees one are the others run: the second knows the operation and the iteration, the third returns the operands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.contexts import contexts_of_their_own, stablehlo_context
from stablexla.dialects.errors import OutOfMemoryError, UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.places import place_of
from stablexla.dialects.value_checks import CONSTANTS, ERRORS, INF, NAN, WARNINGS
from stablexla.executable.devices import local_devices
from stablexla.inspection.checking.finding import CheckFinding, OperandValue, has, type_text
from stablexla.inspection.comparing.findings import RegionStep, SmallProgram, text_of
from stablexla.inspection.program import FlatProgram, alone
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.signature.signature import Signature, main_of, needs_shapes
from stablexla.targets.stablehlo.checks.conditions import on_elements
from stablexla.targets.stablehlo.checks.constants import constant_behind, from_constants, reached
from stablexla.targets.stablehlo.checks.instrument import RETURNED, Layout, captured_values, instrument
from stablexla.targets.stablehlo.checks.operations import (
    CONTROL,
    Checked,
    checked_operations,
    is_elementwise,
    maker_of,
    numbers_of,
    terminator,
)
from stablexla.targets.stablehlo.checks.sinks import sinks
from stablexla.targets.stablehlo.inlining import all_operations

if TYPE_CHECKING:
    import jaxlib.mlir.ir as hlo_ir

    from stablexla.executable.executable import Executable

Array = npt.NDArray[Any]
Devices = list[list[Array]]
Arguments = Sequence[Sequence[object]]
MOST_ALARMS = 3
"""Runs that are repeated for nothing, such as those of a program with infinite values that are meant."""
MOST_LOOKS = 4
"""Ways of looking at such a program: three of them look closer at some operations than the one before."""
UNKNOWN_SIZES = "checks of a program with sizes at run time"
SPECIALIZE = "compile the program for the shapes of the arguments"
QUICK, EXACT = "quick", "exact"
"""The programs that look at the fewest values, and at all; those for constants are named after the kind."""
_EFFECTS = ("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv", "stablehlo.rng")


@dataclass(frozen=True)
class Outcome:
    """The outcome of a checked run.

    Attributes:
        results: of each device.
        finding: what the run was checked for, if there was any.
        warning: the same of the kinds that are no errors.
    """

    results: Devices
    finding: CheckFinding | None = None
    warning: CheckFinding | None = None


@dataclass(frozen=True)
class _Mark:
    """A finding as the program tells it: the device, the operation's number, and the iterations."""

    device: int
    number: int
    iterations: tuple[int, ...] = ()


@dataclass(frozen=True)
class Subject:
    """The program that is checked.

    Attributes:
        source: the program in StableHLO.
        signature: its own, without further results.
        target: what it is compiled for.
        counts: replicas and partitions.
    """

    source: hlo_ir.Module
    signature: Signature
    target: str
    counts: tuple[int, int]

    @contextmanager
    def copied(self) -> Iterator[FlatProgram]:
        """Enter contexts in which copies can be made: the thread's own, if the program is in these. Yield a copy."""
        with nullcontext() if self.source.context == stablehlo_context() else contexts_of_their_own():
            yield FlatProgram.of(self.source)


class Checker:
    """The checked programs of a program.

    Args:
        subject: the program.
        kinds: what is checked for.
        options: of the compilation.

    Raises:
        UnsupportedError: a program with sizes at run time.
    """

    def __init__(self, subject: Subject, kinds: tuple[str, ...], options: CompileOptions) -> None:
        self._subject = subject
        self._constants = tuple(k for k in kinds if k == NAN or (k == INF and CONSTANTS in kinds))
        self._kinds = tuple(k for k in kinds if k != CONSTANTS)
        self._options = replace(options, check=None)
        self._lock = threading.Lock()
        self._made: dict[str, tuple[Executable, Layout]] = {}
        if needs_shapes(subject.source) or not subject.signature.is_static:
            raise UnsupportedError(f"{subject.signature.name}: {UNKNOWN_SIZES}", hint=SPECIALIZE)
        with subject.copied() as program:
            self._is_repeatable = not _has_effects(program.module)
        self._results = len(subject.signature.results)
        count = subject.counts[0] * subject.counts[1]
        can_repeat = self._is_repeatable and len(local_devices(count)) == count and self._kinds[0] in ERRORS
        self._begins = QUICK if can_repeat else EXACT
        self._alarms = 0
        self._meant: set[tuple[str, str]] = set()

    @property
    def first(self) -> Executable:
        """The program that runs first."""
        return self._program(self._begins)[0]

    def run(self, arguments: Arguments, time_limit: float | None = None) -> Outcome:
        """Run the program on the arguments of each device."""
        way = self._begins  # which another thread's run may change
        made, marks = self._look(way, arguments, time_limit)
        alarm = marks.get(ERRORS) if way == QUICK else None  # of the warnings it tells the same
        if alarm is not None:
            try:
                made, marks = self._look(EXACT, arguments, time_limit)
            except OutOfMemoryError as error:
                error.add_note(self._told_by(alarm))
                raise
        found = {words: self._describe(mark, words, made, arguments) for words, mark in marks.items()}
        if alarm is not None and found.get(ERRORS) is None:
            self._count_alarm(alarm.number)
        return Outcome([own[: self._results] for own in made], found.get(ERRORS), found.get(WARNINGS))

    def _look(self, way: str, arguments: Arguments, limit: float | None) -> tuple[Devices, dict[Any, _Mark]]:
        """Run one of the programs; return what it returns, and the first mark in program order of errors and warnings.

        Devices that receive a NaN of another one tell of the operation that received it, a later one.
        """
        program, layout = self._program(way)
        made, marks = self._execute(program, arguments, limit), {}
        for words, at in layout.places.items():
            place = self._results + at
            number, device = min(((n, d) for d, own in enumerate(made) if (n := int(own[place]))), default=(0, 0))
            if number:
                iterations = made[device][place + 1 : place + 1 + layout.depth]
                marks[words] = _Mark(device, number, tuple(map(int, iterations)))
        return made, marks

    def _execute(self, program: Executable, arguments: Arguments, limit: float | None) -> Devices:
        if len(arguments) == 1:
            return [program.execute(arguments[0], time_limit=limit)]
        return program.execute_replicated(arguments, time_limit=limit)

    # ---- programs --------------------------------------------------------------------------------------------------

    def _program(self, way: str) -> tuple[Executable, Layout]:
        """Return a compiled program with checks, and the layout of its further results."""
        made = self._made.get(way)
        if made is not None:
            return made
        with self._lock:
            if way not in self._made:
                self._made[way] = self._compile(way, self._fewest if way == QUICK else list)
            return self._made[way]

    def _operations(self, way: str, main: Any) -> list[Checked]:
        """Return all operations of a copy of `main` that may be checked."""
        return checked_operations(main, self._kinds) if way in (QUICK, EXACT) else from_constants(main, way)

    def _fewest(self, every: list[Checked]) -> list[Checked]:
        meant = [each.number for each in every if _where(each) in self._meant]
        return sinks(every, self._kinds, meant)

    def _compile(
        self, way: str, choose: Callable[[list[Checked]], list[Checked]], *, captures: bool = False
    ) -> tuple[Executable, Layout]:
        """Compile the program with checks of some operations; of the only one of them values may be captured."""
        from stablexla.compiling.compiler import compile

        subject = self._subject
        with subject.copied() as program:
            main = main_of(program.module)
            chosen = choose(self._operations(way, main))
            looked_at = self._returned(main, chosen) if way in (QUICK, EXACT) and not captures else {}
            kinds = self._kinds if way in (QUICK, EXACT) else (way,)
            layout = instrument(program.module, chosen, kinds, captures=captures, returned=looked_at)
            replicas, partitions = subject.counts
            made = compile(
                program.module,
                target=subject.target,
                num_replicas=replicas,
                num_partitions=partitions,
                options=self._options,
            )
            return made, layout

    def _returned(self, main: Any, chosen: Sequence[Checked]) -> dict[int, list[str]]:
        """Return results that a constant may reach and that are not looked at already, and for what to look there."""
        alone = {each.op for each in chosen if each.is_alone}
        found: dict[int, list[str]] = {}
        for kind in self._constants:
            for i in reached(main, from_constants(main, kind)):
                value = terminator(main.regions[0].blocks[0]).operands[i]
                if numbers_of([value]) and maker_of(value) not in alone:
                    found.setdefault(i, []).append(kind)
        return found

    # ---- alarms ----------------------------------------------------------------------------------------------------

    def _told_by(self, alarm: _Mark) -> str:
        """Return what the first look at values tells where there is no memory for all checks."""
        with self._subject.copied() as program:
            every = self._operations(EXACT, main_of(program.module))
            place = place_of(every[alarm.number - 1].op.location).brief if alarm.number <= len(every) else ""
            what = f"the result of {every[alarm.number - 1].op.name} at {place}" if place else "a result"
        return f"There was no memory for the run that finds the first operation; {what} is not finite."

    def _count_alarm(self, number: int) -> None:
        """Look closer where a first look tells nothing: only there, or at all operations from now on.

        Operations at one place of the source, such as the layers of a network, are taken together.
        """
        with self._lock:
            self._alarms += 1
            if self._alarms % MOST_ALARMS or self._begins == EXACT:
                return
            with self._subject.copied() as program:
                every = self._operations(QUICK, main_of(program.module))
                is_told = number <= len(every) and self._alarms < MOST_LOOKS * MOST_ALARMS
                if is_told:
                    self._meant.add(_where(every[number - 1]))
                if not is_told or 2 * sum(not each.is_alone for each in self._fewest(every)) > len(every):
                    self._begins = EXACT
            self._made.pop(QUICK, None)

    # ---- findings --------------------------------------------------------------------------------------------------

    def _describe(self, mark: _Mark, words: Sequence[str], made: Devices, arguments: Arguments) -> CheckFinding | None:
        """Describe what a run found; None for a value of a constant that may be one of the arguments."""
        if mark.number != RETURNED:
            return self._finding(EXACT, mark, words, arguments)
        results = [array for own in made for array in own[: self._results]]
        given = [argument for own in arguments for argument in own]
        for kind in self._constants:
            is_given = any(has(NAN, array) or (kind == INF and has(INF, array)) for array in given)
            if is_given or not any(has(kind, array) for array in results):
                continue
            if not self._is_repeatable:
                with self._subject.copied() as program:
                    others = len(self._operations(kind, main_of(program.module))) - 1
                found = self._finding(kind, _Mark(mark.device, 1), (kind,), arguments)
                return replace(found, note=f"or one of {others} others: {found.note}") if others else found
            first = self._look(kind, arguments, None)[1].get(ERRORS)
            if first is not None:
                return self._finding(kind, first, (kind,), arguments)
        return None

    def _finding(self, way: str, mark: _Mark, kinds: Sequence[str], arguments: Arguments) -> CheckFinding:
        """Describe a finding; run the program once more for the values, if it may be."""
        with self._subject.copied() as program:
            found = self._operations(way, main_of(program.module))[mark.number - 1]
            found = replace(found, kinds=tuple(kind for kind in found.kinds if kind in kinds))
            made = CheckFinding(
                found.kinds[0],
                found.op.name,
                str(found.op.get_asm(large_elements_limit=16, enable_debug_info=False)),
                mark.number,
                place_of(found.op.location),
                _steps(found, mark.iterations),
                device=mark.device if self._subject.counts != (1, 1) else None,
                constant="" if way == EXACT else _constant_of(found, way),
            )
            if not self._is_repeatable:
                unknown = "the program has effects, and is not run again for them"
            elif found.op.name in CONTROL:
                unknown = "they are those of a loop or branch"
            else:
                try:
                    values = self._values(way, found, mark.device, arguments)
                    if values is not None:
                        return _with_values(made, found, program, values)
                    unknown = "another run did not show it again"
                except OutOfMemoryError:
                    unknown = "the run that returns them needs more memory than there is"
            return replace(made, note=f"values are not known: {unknown}")

    def _values(self, way: str, found: Checked, device: int, arguments: Arguments) -> list[Array] | None:
        """Return what is captured at the finding, by a run of a program that returns it."""

        def choose(every: list[Checked]) -> list[Checked]:
            return [replace(every[found.number - 1], kinds=found.kinds)]

        program, layout = self._compile(way, choose, captures=True)
        own = self._execute(program, arguments, None)[device][self._results :]
        return own[layout.size :] if any(int(own[at]) for at in layout.places.values()) else None


def _constant_of(found: Checked, kind: str) -> str:
    """Return the constant that an operation has as operand, or that it is, and its place."""
    values = [*found.op.operands, *found.op.results]
    maker = next(c for value in values if (c := constant_behind(value, kind)) is not None)
    text = str(maker.get_asm(large_elements_limit=16, enable_debug_info=False)).strip()
    place = place_of(maker.location)
    return f"{text} at {place.brief}" if place.is_known else text


def _where(checked: Checked) -> tuple[str, str]:
    """Return a name for an operation; operations at one place of the source have the same."""
    place = place_of(checked.op.location)
    return checked.op.name, place.brief if place.is_known else str(checked.number)


def _steps(found: Checked, iterations: Sequence[int]) -> tuple[RegionStep, ...]:
    """Return the loops and branches around an operation, with the iterations."""
    steps, rest = [], iter(iterations)
    for op, region in found.path:
        if op.name == "stablehlo.while":
            iteration = f"iteration {next(rest, -1)}"
            what = iteration if region else f"the condition before {iteration}"
        else:
            what = f"branch {region}"
        steps.append(RegionStep(op.name, place_of(op.location), what))
    return tuple(steps)


def _with_values(made: CheckFinding, found: Checked, program: FlatProgram, values: Sequence[Array]) -> CheckFinding:
    """Add the index, the element, the operands, and the operation alone."""
    op, names, index = found.op, captured_values(found.op), None
    by_value = dict(zip(names, map(np.asarray, values), strict=False))
    for (kind, value, _), where in zip(on_elements(found), values[len(names) :], strict=True):
        if where.any():
            result = by_value[value]
            index = tuple(int(i) for i in np.argwhere(where)[0])
            counted = {"count": int(where.sum()), "size": int(where.size)}
            made = replace(
                made, kind=kind, type=type_text(result), index=index, value=text_of(result[index]), **counted
            )
            break
    taken = tuple(array for value, array in by_value.items() if value in list(op.operands))
    small = None if made.constant else SmallProgram(str(alone(program.module, op)).rstrip(), taken, 1)
    at = index if is_elementwise(op) else None
    operands = tuple(OperandValue.of(by_value[value], at) for value in op.operands if value in by_value)
    return replace(made, operands=operands, program=small)  # a constant would be an argument of it


def _has_effects(module: Any) -> bool:
    """Return whether another run might differ: numbers drawn anew, queues, functions of the host with effects."""
    return any(
        op.name in _EFFECTS or ("has_side_effect" in op.attributes and str(op.attributes["has_side_effect"]) == "true")
        for op in all_operations(module.operation)
    )
