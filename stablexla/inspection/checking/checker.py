"""Checked runs: compiled programs with checks in them, and the search for what one of them found.

A program is compiled up to three times. The first looks at the fewest values that tell of every NaN or infinity. Only
where it sees one are the others run: the second knows the operation and the iteration, the third returns the operands.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.contexts import contexts_of_their_own, stablehlo_context
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.value_checks import ERRORS, WARNINGS
from stablexla.executable.devices import local_devices
from stablexla.inspection.checking.finding import CheckFinding, OperandValue, elements_that_show, type_text
from stablexla.inspection.comparing.findings import RegionStep, SmallProgram, text_of
from stablexla.inspection.places import place_of
from stablexla.inspection.program import FlatProgram, alone
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.signature.signature import Signature, main_of, needs_shapes
from stablexla.targets.stablehlo.checks.instrument import Layout, captured_values, instrument
from stablexla.targets.stablehlo.checks.operations import Checked, checked_operations, is_elementwise
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
        self._subject, self._kinds = subject, kinds
        self._options = replace(options, check=None)
        self._lock = threading.Lock()
        self._made: dict[str, Executable] = {}
        name = subject.signature.name
        if needs_shapes(subject.source) or not subject.signature.is_static:
            raise UnsupportedError(f"{name}: {UNKNOWN_SIZES}", hint=SPECIALIZE)
        with subject.contexts():
            program = FlatProgram.of(subject.source)
            self._layout = Layout(checked_operations(main_of(program.module), kinds), kinds)
            self._is_repeatable = not _has_effects(program.module)
        self._results = len(subject.signature.results)
        self._numbers = [self._results + group * (1 + self._layout.depth) for group in range(len(self._layout.groups))]
        is_alone = len(local_devices(subject.num_devices)) == subject.num_devices
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
        made = self._execute(self._made.get(self._begins) or self.first, arguments, time_limit)
        if not any(int(own[at]) for own in made for at in self._numbers):
            return Outcome([own[: self._results] for own in made], None, None)
        marks = self._marks(made)
        if self._begins == "quick" and marks[0] is not None:  # of the warnings it tells the same
            alarm = marks[0]
            made = self._execute(self._program("exact"), arguments, time_limit)
            marks = self._marks(made)
            if marks[0] is None:
                self._count_alarm(alarm.number)
        found: list[CheckFinding | None] = [None, None]
        for group, mark in enumerate(marks):
            if mark is not None:
                is_error = self._layout.groups[group][0] not in WARNINGS
                found[0 if is_error else 1] = self._describe(mark, group, arguments)
        return Outcome([own[: self._results] for own in made], *found)

    def _count_alarm(self, number: int) -> None:
        """Look closer where a first look tells nothing: only there, or at all operations from now on.

        Operations at one place of the source, such as the layers of a network, are taken together.
        """
        self._alarms += 1
        if self._alarms % MOST_ALARMS or self._begins == "exact":
            return
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

    def _marks(self, made: Devices) -> list[_Mark | None]:
        """Read the further results: of each group the first mark in program order.

        Devices that receive a NaN of another one tell of the operation that received it, a later one.
        """
        width = 1 + self._layout.depth
        marks: list[_Mark | None] = []
        for at in self._numbers:
            seen = [[int(v) for v in own[at : at + width]] for own in made]
            own_marks = [_Mark(d, n, tuple(rest)) for d, (n, *rest) in enumerate(seen) if n]
            marks.append(min(own_marks, key=lambda mark: mark.number, default=None))
        return marks

    # ---- programs --------------------------------------------------------------------------------------------------

    def _program(self, way: str) -> Executable:
        with self._lock:
            if way not in self._made:
                self._made[way] = self._compile(lambda every: (self._fewest(every) if way == "quick" else every, None))
            return self._made[way]

    def _fewest(self, every: list[Checked]) -> list[Checked]:
        meant = [each.number for each in every if _where(each) in self._meant]
        return sinks(every, self._kinds, meant)

    def _compile(self, choose: Callable[[list[Checked]], tuple[list[Checked], Checked | None]]) -> Executable:
        """Compile the program with checks of some operations; of one of them values may be captured."""
        from stablexla.compiling.compiler import compile

        subject = self._subject
        with subject.contexts():
            module = FlatProgram.of(subject.source).module
            chosen, captured = choose(checked_operations(main_of(module), self._kinds))
            instrument(module, chosen, self._layout, captured=captured)
            return compile(
                module,
                target=subject.target,
                num_replicas=subject.counts[0],
                num_partitions=subject.counts[1],
                options=self._options,
            )

    # ---- findings --------------------------------------------------------------------------------------------------

    def _describe(self, mark: _Mark, group: int, arguments: Sequence[Sequence[object]]) -> CheckFinding:
        """Describe a finding; run the program once more for the values, if it may be."""
        subject = self._subject
        with subject.contexts():
            program = FlatProgram.of(subject.source)
            found = checked_operations(main_of(program.module), self._kinds)[mark.number - 1]
            kinds = [kind for kind in found.kinds if kind in self._layout.groups[group]]
            made = CheckFinding(
                kinds[0],
                found.op.name,
                str(found.op.get_asm(large_elements_limit=16, enable_debug_info=False)),
                mark.number,
                place_of(found.op.location),
                _steps(found, mark.iterations),
                device=mark.device if subject.num_devices > 1 else None,
            )
            if not self._is_repeatable:
                return replace(
                    made, note="values are not known: the program has effects, and is not run again for them"
                )
            values = self._values(mark, kinds, arguments, len(captured_values(found.op)))
            if values is None:
                return replace(made, note="values are not known: another run did not show it again")
            return _with_values(made, kinds, found, program, values)

    def _values(
        self, mark: _Mark, kinds: Sequence[str], arguments: Sequence[Sequence[object]], count: int
    ) -> list[Array] | None:
        """Return the operands and results at the finding, by a run of a program that returns them."""

        def choose(every: list[Checked]) -> tuple[list[Checked], Checked]:
            found = replace(every[mark.number - 1], kinds=tuple(kinds))
            return [found], found

        own = self._execute(self._compile(choose), arguments, None)[mark.device]
        values = own[self._results + self._layout.size :]
        return values[:count] if any(int(own[at]) for at in self._numbers) else None


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
    elementwise = is_elementwise(found.op)
    arrays = [np.asarray(v) for v in values]
    unique = list(dict.fromkeys(v for v in captured_values(found.op)))
    by_value = dict(zip(captured_values(found.op), arrays, strict=True))
    count = len(arrays) - len([r for r in captured_values(found.op) if r in list(found.op.results)])
    operands, results = arrays[:count], arrays[count:]
    small = alone(program.module, found.op)
    taken = tuple(by_value[v] for v in unique if v in list(found.op.operands))
    single = SmallProgram(str(small).rstrip(), taken, 1)
    for kind in kinds:
        for result in results:
            shows = elements_that_show(kind, operands, result, elementwise=elementwise)
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
