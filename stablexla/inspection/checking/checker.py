"""Checked runs: compiled programs with checks in them, and the search for what one of them found.

A program is compiled up to three times. The first looks at the fewest values that tell of every NaN or infinity. Only
where it sees one are the others run: the second knows the operation and the iteration, the third returns the operands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.contexts import contexts_of_their_own, stablehlo_context
from stablexla.dialects.errors import OutOfMemoryError, UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.places import place_of
from stablexla.dialects.value_checks import CONSTANTS, ERRORS, INF, NAN
from stablexla.executable.devices import spread
from stablexla.inspection.checking.finding import CheckFinding, OperandValue, has, type_text
from stablexla.inspection.comparing.findings import RegionStep, SmallProgram, text_of
from stablexla.inspection.program import FlatProgram, alone
from stablexla.lowering.support.operations import terminator_of
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.signature.signature import Signature, main_of, needs_shapes
from stablexla.targets.stablehlo.checks.conditions import on_elements
from stablexla.targets.stablehlo.checks.instrument import Layout, captured_values, instrument
from stablexla.targets.stablehlo.checks.operations import (
    CONTROL,
    ERROR,
    WARNING,
    Checked,
    Groups,
    checked_operations,
    constant_behind,
    from_constants,
    is_elementwise,
    numbers_of,
)
from stablexla.targets.stablehlo.checks.sinks import BEYOND, sinks
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
"""The programs that look at the fewest values, and at all."""
_EFFECTS = ("stablehlo.infeed", "stablehlo.outfeed", "stablehlo.send", "stablehlo.recv", "stablehlo.rng")


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
        is_alone = len(set(spread(subject.signature.name, count, None))) == 1
        can_repeat = self._is_repeatable and is_alone and self._kinds[0] in ERRORS
        self._begins = QUICK if can_repeat else EXACT
        self._alarms = 0
        self._meant: set[tuple[str, str]] = set()

    @property
    def first(self) -> Executable:
        """The program that runs first."""
        return self._program(self._begins)[0]

    def run(
        self, arguments: Arguments, time_limit: float | None = None
    ) -> tuple[Devices, CheckFinding | None, CheckFinding | None]:
        """Run the program on the arguments of each device.

        Returns:
            The results of each device, what the run was checked for, and the same of the kinds that are no errors.
        """
        way = self._begins  # which another thread's run may change
        made, marks = self._look(way, arguments, time_limit)
        alarm = marks.get(ERROR) if way == QUICK else None  # of the warnings it tells the same
        if alarm is not None:
            try:
                made, marks = self._look(EXACT, arguments, time_limit)
            except OutOfMemoryError as error:
                error.add_note(self._told_by(alarm))
                raise
        results = [own[: self._results] for own in made]
        name = ERROR if ERROR in marks else next(self._from_text(marks, results, arguments), "")
        found, warning = (self._finding(n, marks[n], arguments) if n in marks else None for n in (name, WARNING))
        if alarm is not None and found is None:
            self._count_alarm(alarm.number)
        return results, found, warning

    def _from_text(self, marks: Mapping[str, _Mark], results: Devices, arguments: Arguments) -> Iterator[str]:
        """Yield the kinds that an operation has from a constant, and a result, but no argument."""
        for kind in self._constants if marks else ():
            given = any(has(NAN, a) or (kind == INF and has(INF, a)) for own in arguments for a in own)
            if kind in marks and not given and any(has(kind, array) for own in results for array in own):
                yield kind

    def _look(self, way: str, arguments: Arguments, limit: float | None) -> tuple[Devices, dict[str, _Mark]]:
        """Run one of the programs; return what it returns, and for each group the first mark in program order.

        Devices that receive a NaN of another one tell of the operation that received it, a later one.
        """
        program, layout = self._made.get(way) or self._program(way)
        made, marks = self._execute(program, arguments, limit), {}
        for group, at in layout.places.items():
            place = self._results + at
            number, device = min(((n, d) for d, own in enumerate(made) if (n := int(own[place]))), default=(0, 0))
            if number:
                iterations = made[device][place + 1 : place + 1 + layout.depth]
                marks[group] = _Mark(device, number, tuple(map(int, iterations)))
        return made, marks

    def _execute(self, program: Executable, arguments: Arguments, limit: float | None) -> Devices:
        if len(arguments) == 1:
            return [program.execute(arguments[0], time_limit=limit)]
        return program.execute_replicated(arguments, time_limit=limit)

    # ---- programs --------------------------------------------------------------------------------------------------

    def _program(self, way: str) -> tuple[Executable, Layout]:
        """Return a compiled program with checks, and the layout of its further results."""
        with self._lock:
            if way not in self._made:
                self._made[way] = self._compile(self._fewest if way == QUICK else self._all)
            return self._made[way]

    def _compile(self, choose: Callable[[FlatProgram], Groups], *, captures: bool = False) -> tuple[Executable, Layout]:
        """Compile the program with checks; of a single operation values may be captured."""
        from stablexla.compiling.compiler import compile

        (replicas, partitions), target = self._subject.counts, self._subject.target
        with self._subject.copied() as program:
            module, options = program.module, self._options
            layout = instrument(module, choose(program), captures=captures)
            made = compile(module, target=target, num_replicas=replicas, num_partitions=partitions, options=options)
            return made, layout

    def _all(self, program: FlatProgram) -> Groups:
        """Return all operations that are checked, and those that have a constant as operand."""
        main = main_of(program.module)
        groups = checked_operations(main, self._kinds)
        return groups | {kind: own for kind in self._constants if (own := from_constants(main, kind))}

    def _fewest(self, program: FlatProgram) -> Groups:
        """Return the fewest operations that tell of all, and the results that a constant may reach besides."""
        groups = self._all(program)
        chosen = self._sinks(groups.get(ERROR, []))
        reached: dict[Any, tuple[str, ...]] = {}
        for kind in self._constants:
            inside = {each.path[0][0] if each.path else each.op for each in groups.pop(kind, ())}
            for value in numbers_of(program.returns) if inside else ():
                if any(unit.op in inside for unit in program.needed([value], ())):
                    reached[value] = (*reached.get(value, ()), kind)
        seen, last = {value for each in chosen for value in each.alone}, terminator_of(program.block)
        chosen += [Checked(BEYOND, last, own, (), (v,)) for v, own in reached.items() if v not in seen]
        return {**groups, ERROR: chosen}

    def _sinks(self, makers: Sequence[Checked]) -> list[Checked]:
        return sinks(makers, [each.number for each in makers if _where(each) in self._meant])

    # ---- alarms ----------------------------------------------------------------------------------------------------

    def _told_by(self, alarm: _Mark) -> str:
        """Return what the first look at values tells where there is no memory for all checks."""
        with self._subject.copied() as program:
            op = None if alarm.number == BEYOND else self._found(program, ERROR, alarm.number).op
            place = "" if op is None else place_of(op.location).brief
            what = f"the result of {op.name} at {place}" if op is not None and place else "a result"
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
                is_told = number != BEYOND and self._alarms < MOST_LOOKS * MOST_ALARMS
                if is_told:
                    self._meant.add(_where(self._found(program, ERROR, number)))
                makers = self._all(program).get(ERROR, [])
                if not is_told or 2 * sum(not each.alone for each in self._sinks(makers)) > len(makers):
                    self._begins = EXACT
            self._made.pop(QUICK, None)

    # ---- findings --------------------------------------------------------------------------------------------------

    def _finding(self, name: str, mark: _Mark, arguments: Arguments) -> CheckFinding:
        """Describe a finding; run the program once more for the values, if it may be."""
        with self._subject.copied() as program:
            found = self._found(program, name, mark.number)
            made = CheckFinding(
                found.kinds[0],
                found.op.name,
                str(found.op.get_asm(large_elements_limit=16, enable_debug_info=False)),
                mark.number,
                place_of(found.op.location),
                _steps(found, mark.iterations),
                device=mark.device if self._subject.counts != (1, 1) else None,
                constant=_constant_of(found, name) if name in self._constants else "",
            )
            if not self._is_repeatable:
                unknown = "the program has effects, and is not run again for them"
            elif found.op.name in CONTROL:
                unknown = "they are those of a loop or branch"
            else:
                try:
                    values = self._values(name, mark, arguments)
                    if values is not None:
                        return _with_values(made, found, program, values)
                    unknown = "another run did not show it again"
                except OutOfMemoryError:
                    unknown = "the run that returns them needs more memory than there is"
            return replace(made, note=f"values are not known: {unknown}")

    def _found(self, program: FlatProgram, name: str, number: int) -> Checked:
        """Return the operation of a group with a number."""
        return next(each for each in self._all(program)[name] if each.number == number)

    def _values(self, name: str, mark: _Mark, arguments: Arguments) -> list[Array] | None:
        """Return what is captured at the finding, by a run of a program that returns it."""

        program, layout = self._compile(lambda copy: {name: [self._found(copy, name, mark.number)]}, captures=True)
        own = self._execute(program, arguments, None)[mark.device][self._results :]
        return own[layout.size :] if int(own[0]) else None


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
    shows = zip(on_elements(found), values[len(names) :], strict=True)
    first = next(((kind, value, where) for (kind, value, _), where in shows if where.any()), None)
    if first is not None:
        kind, value, where = first
        result, index = by_value[value], tuple(map(int, np.argwhere(where)[0]))
        made = replace(made, kind=kind, type=type_text(result), index=index, value=text_of(result[index]))
        made = replace(made, count=int(where.sum()), size=int(where.size))
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
