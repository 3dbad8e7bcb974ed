"""Checked runs: compiled programs with checks in them, and the search for what one of them found.

A program is compiled up to three times. The first looks at the fewest values that tell of every NaN or infinity. Only
where it sees one are the others run: the second knows the operation and the iteration, the third returns the operands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.contexts import contexts_of_their_own, stablehlo_context
from stablexla.dialects.errors import OutOfMemoryError, UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.places import place_of
from stablexla.dialects.value_checks import CONSTANTS, ERRORS, INF, NAN, WARNINGS
from stablexla.executable.devices import spread
from stablexla.inspection.checking.finding import CheckFinding, OperandValue, elements_that_show, has, type_text
from stablexla.inspection.comparing.findings import RegionStep, SmallProgram, text_of
from stablexla.inspection.program import FlatProgram, alone
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.signature.signature import Signature, main_of, needs_shapes
from stablexla.targets.stablehlo.checks.constants import constant_behind, from_constants, reached
from stablexla.targets.stablehlo.checks.instrument import RETURNED, Layout, captured_values, instrument
from stablexla.targets.stablehlo.checks.operations import (
    CONTROL,
    Checked,
    checked_operations,
    is_elementwise,
    is_number,
    maker_of,
    terminator,
)
from stablexla.targets.stablehlo.checks.sinks import sinks
from stablexla.targets.stablehlo.inlining import all_operations

if TYPE_CHECKING:
    import jaxlib.mlir.ir as hlo_ir

    from stablexla.executable.executable import Executable

Array = npt.NDArray[Any]
Devices = list[list[Array]]
MOST_ALARMS = 3
"""Runs that are repeated for nothing, such as those of a program with infinite values that are meant."""
MOST_LOOKS = 4
"""Ways of looking at such a program: three of them look closer at some operations than the one before."""
UNKNOWN_SIZES = "checks of a program with sizes at run time"
SPECIALIZE = "compile the program for the shapes of the arguments"
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
    finding: CheckFinding | None
    warning: CheckFinding | None


@dataclass(frozen=True)
class _Mark:
    """A finding as the program tells it: the device, the operation's number, and the iterations."""

    device: int
    number: int
    iterations: tuple[int, ...]


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

    @property
    def num_devices(self) -> int:
        """How many devices run it together."""
        return self.counts[0] * self.counts[1]

    def contexts(self) -> AbstractContextManager[None]:
        """Enter contexts in which copies of the program can be made: the thread's own, if it is in these."""
        return nullcontext() if self.source.context == stablehlo_context() else contexts_of_their_own()


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
        self._kinds = kinds = tuple(k for k in kinds if k != CONSTANTS)
        self._options = replace(options, check=None)
        self._lock = threading.Lock()
        self._made: dict[str, Executable] = {}
        name = subject.signature.name
        if needs_shapes(subject.source) or not subject.signature.is_static:
            raise UnsupportedError(f"{name}: {UNKNOWN_SIZES}", hint=SPECIALIZE)
        with subject.contexts():
            program = FlatProgram.of(subject.source)
            main = main_of(program.module)
            self._all = _Listing(
                lambda main: checked_operations(main, kinds), Layout(checked_operations(main, kinds), kinds)
            )
            self._is_repeatable = not _has_effects(program.module)
        self._results = len(subject.signature.results)
        is_alone = len(set(spread(name, subject.num_devices, None))) == 1
        can_repeat = self._is_repeatable and is_alone and kinds[0] in ERRORS
        self._begins = "quick" if can_repeat else "exact"
        self._alarms = 0
        self._meant: set[tuple[str, str]] = set()

    @property
    def first(self) -> Executable:
        """The program that runs first."""
        return self._program(self._begins)

    def run(self, arguments: Sequence[Sequence[object]], time_limit: float | None = None) -> Outcome:
        """Run the program on the arguments of each device."""
        way = self._begins  # which another thread's run may change
        made = self._execute(self._made.get(way) or self._program(way), arguments, time_limit)
        layout = self._all.layout
        if not any(int(own[at]) for own in made for at in self._numbers(layout)):
            return Outcome([own[: self._results] for own in made], None, None)
        marks, alarm = self._marks(made, layout), None
        if way == "quick" and marks[0] is not None:  # of the warnings it tells the same
            alarm = marks[0]
            try:
                made = self._execute(self._program("exact"), arguments, time_limit)
            except OutOfMemoryError as error:
                error.add_note(self._told_by(alarm))
                raise
            marks = self._marks(made, layout)
        found: list[CheckFinding | None] = [None, None]
        for group, mark in enumerate(marks):
            if mark is not None:
                is_error = layout.groups[group][0] not in WARNINGS
                found[0 if is_error else 1] = (
                    self._from_constant(made, arguments, mark.device)
                    if mark.number == RETURNED
                    else self._describe(mark, self._all, layout.groups[group], arguments)
                )
        if alarm is not None and found[0] is None:
            self._count_alarm(alarm.number)
        return Outcome([own[: self._results] for own in made], *found)

    def _told_by(self, alarm: _Mark) -> str:
        """Return what the first look at values tells where there is no memory for all checks."""
        with self._subject.contexts():
            program = FlatProgram.of(self._subject.source)
            every = self._all.of(main_of(program.module))
            place = place_of(every[alarm.number - 1].op.location).brief if alarm.number <= len(every) else ""
            what = f"the result of {every[alarm.number - 1].op.name} at {place}" if place else "a result"
        return f"There was no memory for the run that finds the first operation; {what} is not finite."

    def _count_alarm(self, number: int) -> None:
        """Look closer where a first look tells nothing: only there, or at all operations from now on.

        Operations at one place of the source, such as the layers of a network, are taken together.
        """
        with self._lock:
            self._alarms += 1
            if not self._alarms % MOST_ALARMS and self._begins == "quick":
                self._look_closer(number)

    def _look_closer(self, number: int) -> None:
        with self._subject.contexts():
            program = FlatProgram.of(self._subject.source)
            every = checked_operations(main_of(program.module), self._kinds)
            told = number <= len(every) and self._alarms < MOST_LOOKS * MOST_ALARMS
            if told:
                self._meant.add(_where(every[number - 1]))
                told = 2 * sum(not each.is_alone for each in self._fewest(every)) <= len(every)
        if told:
            self._made.pop("quick", None)
        else:
            self._begins = "exact"

    def _execute(self, program: Executable, arguments: Sequence[Sequence[object]], limit: float | None) -> Devices:
        if len(arguments) == 1:
            return [program.execute(arguments[0], time_limit=limit)]
        return program.execute_replicated(arguments, time_limit=limit)

    def _numbers(self, layout: Layout) -> list[int]:
        """Return which of a program's results are the numbers of operations, one for each group."""
        return [self._results + group * (1 + layout.depth) for group in range(len(layout.groups))]

    def _marks(self, made: Devices, layout: Layout) -> list[_Mark | None]:
        """Read the further results: of each group the first mark in program order.

        Devices that receive a NaN of another one tell of the operation that received it, a later one.
        """
        width = 1 + layout.depth
        marks: list[_Mark | None] = []
        for at in self._numbers(layout):
            seen = [[int(v) for v in own[at : at + width]] for own in made]
            own_marks = [_Mark(d, n, tuple(rest)) for d, (n, *rest) in enumerate(seen) if n]
            marks.append(min(own_marks, key=lambda mark: mark.number, default=None))
        return marks

    # ---- programs --------------------------------------------------------------------------------------------------

    def _program(self, way: str) -> Executable:
        with self._lock:
            if way not in self._made:
                is_quick = way == "quick"
                self._made[way] = self._compile(
                    self._all, lambda every: (self._fewest(every) if is_quick else every, None), self._returned
                )
            return self._made[way]

    def _returned(self, main: Any, chosen: Sequence[Checked]) -> dict[int, list[str]]:
        """Return results that a constant may reach and that are not looked at already, and for what to look there."""
        alone = {each.op for each in chosen if each.is_alone}
        found: dict[int, list[str]] = {}
        for kind in self._constants:
            for i in reached(main, from_constants(main, kind)):
                value = terminator(main.regions[0].blocks[0]).operands[i]
                if is_number(value) and maker_of(value) not in alone:
                    found.setdefault(i, []).append(kind)
        return found

    def _fewest(self, every: list[Checked]) -> list[Checked]:
        meant = [each.number for each in every if _where(each) in self._meant]
        return sinks(every, self._kinds, meant)

    def _compile(
        self,
        listing: _Listing,
        choose: Callable[[list[Checked]], tuple[list[Checked], Checked | None]],
        returned: Callable[[Any, list[Checked]], dict[int, list[str]]] = lambda *_: {},
    ) -> Executable:
        """Compile the program with checks of some operations; of one of them values may be captured."""
        from stablexla.compiling.compiler import compile

        subject = self._subject
        with subject.contexts():
            module = FlatProgram.of(subject.source).module
            main = main_of(module)
            chosen, captured = choose(listing.of(main))
            instrument(module, chosen, listing.layout, captured=captured, returned=returned(main, chosen))
            return compile(
                module,
                target=subject.target,
                num_replicas=subject.counts[0],
                num_partitions=subject.counts[1],
                options=self._options,
            )

    # ---- findings --------------------------------------------------------------------------------------------------

    def _from_constant(self, made: Devices, arguments: Sequence[Sequence[object]], device: int) -> CheckFinding | None:
        """Describe where a result has a NaN from that no operation made, or an infinity; None if from arguments."""
        results = [array for own in made for array in own[: self._results]]
        taken = [np.asarray(argument) for own in arguments for argument in own]
        for kind in self._constants:
            given = any(has(NAN, array) or (kind == INF and has(INF, array)) for array in taken)
            if given or not any(has(kind, np.asarray(array)) for array in results):
                continue
            with self._subject.contexts():
                program = FlatProgram.of(self._subject.source)
                every = from_constants(main_of(program.module), kind)
                listing = _Listing(partial(from_constants, kind=kind), Layout(every, (kind,)))
            mark: _Mark | None = _Mark(device, 1, (-1,) * listing.layout.depth)
            if self._is_repeatable:
                with self._lock:
                    way = f"constants {kind}"
                    if way not in self._made:
                        self._made[way] = self._compile(listing, lambda every: (every, None))
                mark = self._marks(self._execute(self._made[way], arguments, None), listing.layout)[0]
            if mark is not None:
                found = self._describe(mark, listing, (kind,), arguments)
                is_known = self._is_repeatable or len(every) == 1
                return found if is_known else replace(found, note=f"or one of {len(every) - 1} others: {found.note}")
        return None

    def _describe(
        self, mark: _Mark, listing: _Listing, group: Sequence[str], arguments: Sequence[Sequence[object]]
    ) -> CheckFinding:
        """Describe a finding; run the program once more for the values, if it may be."""
        subject = self._subject
        with subject.contexts():
            program = FlatProgram.of(subject.source)
            found = listing.of(main_of(program.module))[mark.number - 1]
            kinds = [kind for kind in found.kinds if kind in group]
            made = CheckFinding(
                kinds[0],
                found.op.name,
                str(found.op.get_asm(large_elements_limit=16, enable_debug_info=False)),
                mark.number,
                place_of(found.op.location),
                _steps(found, mark.iterations),
                device=mark.device if subject.num_devices > 1 else None,
                constant=_constant_of(found, kinds[0]) if listing is not self._all else "",
            )
            if not self._is_repeatable:
                return replace(
                    made, note="values are not known: the program has effects, and is not run again for them"
                )
            if found.op.name in CONTROL:
                return replace(made, note="values are not known: they are those of a loop or branch")
            try:
                values = self._values(mark, listing, kinds, arguments, len(captured_values(found.op)))
            except OutOfMemoryError:
                return replace(
                    made, note="values are not known: the run that returns them needs more memory than there is"
                )
            if values is None:
                return replace(made, note="values are not known: another run did not show it again")
            return _with_values(made, kinds, found, program, values)

    def _values(
        self,
        mark: _Mark,
        listing: _Listing,
        kinds: Sequence[str],
        arguments: Sequence[Sequence[object]],
        count: int,
    ) -> list[Array] | None:
        """Return the operands and results at the finding, by a run of a program that returns them."""

        def choose(every: list[Checked]) -> tuple[list[Checked], Checked]:
            found = replace(every[mark.number - 1], kinds=tuple(kinds))
            return [found], found

        own = self._execute(self._compile(listing, choose), arguments, None)[mark.device]
        values = own[self._results + listing.layout.size :]
        return values[:count] if any(int(own[at]) for at in self._numbers(listing.layout)) else None


@dataclass(frozen=True)
class _Listing:
    """Operations of a program that are checked together.

    Attributes:
        of: lists those of a copy's `main`.
        layout: of the further results.
    """

    of: Callable[[Any], list[Checked]]
    layout: Layout


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
            iteration = f"iteration {next(rest)}"
            what = iteration if region else f"the condition before {iteration}"
        else:
            what = f"branch {region}"
        steps.append(RegionStep(op.name, place_of(op.location), what))
    return tuple(steps)


def _with_values(
    made: CheckFinding, kinds: Sequence[str], found: Checked, program: FlatProgram, values: Sequence[Array]
) -> CheckFinding:
    """Add the index, the element, the operands, and the operation alone."""
    elementwise, is_maker = is_elementwise(found.op), not made.constant
    arrays = [np.asarray(v) for v in values]
    unique = list(dict.fromkeys(v for v in captured_values(found.op)))
    by_value = dict(zip(captured_values(found.op), arrays, strict=True))
    count = len(arrays) - len([r for r in captured_values(found.op) if r in list(found.op.results)])
    operands, results = arrays[:count], arrays[count:]
    small = alone(program.module, found.op)
    taken = tuple(by_value[v] for v in unique if v in list(found.op.operands))
    single = SmallProgram(str(small).rstrip(), taken, 1) if is_maker else None  # the constant would be an argument
    for kind in kinds:
        for result in results:
            shows = elements_that_show(kind, operands, result, elementwise=elementwise and is_maker)
            if shows is not None and shows.any():
                index = tuple(int(i) for i in np.argwhere(shows)[0]) if shows.shape else ()
                return replace(
                    made,
                    kind=kind,
                    type=type_text(result),
                    index=index,
                    value=text_of(result[index]),
                    count=int(shows.sum()),
                    size=int(shows.size),
                    operands=tuple(OperandValue.of(o, index if elementwise else None) for o in operands),
                    program=single,
                )
    return replace(made, operands=tuple(OperandValue.of(o, None) for o in operands), program=single)


def _has_effects(module: Any) -> bool:
    """Return whether another run might differ: numbers drawn anew, queues, functions of the host with effects."""
    return any(
        op.name in _EFFECTS or ("has_side_effect" in op.attributes and str(op.attributes["has_side_effect"]) == "true")
        for op in all_operations(module.operation)
    )
