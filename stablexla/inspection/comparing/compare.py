"""`executable.compare`: runs a program in two ways, and finds the first wrong operation and its cause.

Values come from our own run, so that every operation is judged on its own operands (`operation_search.py`). Programs
that become right when they return more values are searched by prefixes (`prefix_search.py`). The finding is reduced to
a small program, judged by the same reference, and compiled by pipelines between others and ours (`bisection.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from math import inf
from time import monotonic, perf_counter
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
import numpy.typing as npt

from stablexla.compiling.compiler import compile_for_sizes
from stablexla.dialects.contexts import contexts_of_their_own
from stablexla.dialects.errors import ExecutionError, UnsupportedError
from stablexla.dialects.held_arrays import with_elements
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.rules import active
from stablexla.executable.executable import Executable
from stablexla.inspection.comparing.bisection import cause_of, minimal_way
from stablexla.inspection.comparing.comparison import Comparison
from stablexla.inspection.comparing.findings import Cause, Difference, Finding, NotJudged, SmallProgram
from stablexla.inspection.comparing.operation_search import Found, Progress, Search, no_progress
from stablexla.inspection.comparing.prefix_search import Prefixes, text_of_module
from stablexla.inspection.comparing.references import (
    Against,
    arrays_of,
    imported,
    other_way,
    overrides_note,
    rules_note,
    way_of,
)
from stablexla.inspection.comparing.ways import Compiled, Way, results_of
from stablexla.inspection.judging.costs import SECONDS, scalar_operations
from stablexla.inspection.judging.expected import Expected, exceeds_tolerance
from stablexla.inspection.judging.oracles import Oracle, shared_oracle
from stablexla.inspection.judging.verdicts import Judge
from stablexla.inspection.program import CONTROL, MOST_CONSTANT_ELEMENTS, SOURCES, FlatProgram, ProgramOperation
from stablexla.processes.questions import Refusal
from stablexla.targets.pipeline.driver import copy_of
from stablexla.targets.pipeline.knobs import knobs
from stablexla.targets.registry import find_target, pipeline_of

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CompareOptions:
    """Options of a comparison.

    Attributes:
        tolerance: how far values that several operations made may be apart, as a part of the largest; None is by the
            element type.
        ulp: units in the last place that each operation's result may be off; None is by operation and element type.
        byte_limit: bytes of values that are held at a time.
        cause: whether to look for the step, pass or kernel at fault.
        progress: a callback for the current activity and its progress.
        time_limit: seconds after which no more operations are judged; what is known by then is reported.
    """

    tolerance: float | None = None
    ulp: float | None = None
    byte_limit: int = 256 << 20
    cause: bool = True
    progress: Progress = no_progress
    time_limit: float | None = None


def compare(
    executable: Executable, arguments: Sequence[Any], against: Against, options: CompareOptions | None = None
) -> Comparison:
    """Like `Executable.compare`."""
    start = perf_counter()
    options = options or CompareOptions()
    if executable.num_devices > 1:
        raise UnsupportedError(
            f"{executable.name}: a program for {executable.num_devices} devices is not compared: what an operation "
            "gives depends on the others",
            hint="results of execute_replicated, of two executables",
        )
    notes: tuple[str, ...] = ()
    if not executable._signature.is_static:
        leaves: list[Any] = list(arguments) if executable._tree is None else executable._tree.arguments(list(arguments))
        with knobs.scoped(override=None):
            arguments, known = leaves, compile_for_sizes(executable, leaves)
        notes = (
            *overrides_note(executable),
            "its sizes are known at run time: operations are judged in the program for these sizes",
        )
        if not (made := _results_only(executable, known, [np.asarray(a) for a in arguments], options)).equal:
            return replace(made, notes=(*notes[:-1], "it gives other results than the program for these sizes"))
        executable = known
    with contexts_of_their_own(), knobs.scoped(override=None):
        given = arrays_of(executable, arguments)
        ours, source = imported(way_of(executable), copy_of(with_elements(executable._stablehlo), here=True))
        if isinstance(against, Executable) and _text(against._source) != _text(executable._source):
            made = _results_only(executable, against, given, options)
        else:
            other = other_way(ours, against)
            made = _ComparisonRun(executable, ours, other, source, given, options).run()
            notes = (*notes, *rules_note(ours, other))
    return replace(made, seconds=round(perf_counter() - start, 3), notes=(*made.notes, *notes))


def _text(module: ir.Module) -> str:
    return str(with_elements(module).operation.get_asm(enable_debug_info=False))


def _results_only(one: Executable, other: Executable, arguments: list[Array], options: CompareOptions) -> Comparison:
    """Compare the results of two programs that have no operations in common."""
    actual, wanted = ([np.asarray(r) for r in e.execute(arguments)] for e in (one, other))
    if [(a.dtype, a.shape) for a in actual] != [(w.dtype, w.shape) for w in wanted]:
        raise ExecutionError(f"{one.name} and {other.name} give results of other types")
    found = _differences(actual, wanted, options.tolerance)
    note = "the two are different programs: only their results are compared"
    return Comparison(one.name, other.name, not found, None, found, len(actual), 0, 0, notes=(note,))


def _differences(actual: list[Array], wanted: list[Array], tolerance: float | None) -> dict[int, Difference]:
    """Return the differing arrays with their differences."""
    masks = [exceeds_tolerance(a, w, tolerance) for a, w in zip(actual, wanted, strict=True)]
    return {i: Difference.of(actual[i], wanted[i], mask) for i, mask in enumerate(masks) if mask.any()}


MOST = 50_000
"""Scalar operations of an operation that StableHLO's interpreter judges as a whole: it takes 0.1 s for them."""
MOST_IN_ALL = 5_000_000
"""Of a program that it runs as a whole."""


def _xla() -> Way | None:
    from importlib.util import find_spec

    return shared_oracle("xla") if find_spec("jax") is not None else None


def _time(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds > 90 else f"{seconds:.0f} s"


@dataclass
class _ComparisonRun:
    """The state of one comparison."""

    executable: Executable
    ours: Compiled
    other: Way
    source: ir.Module
    arguments: list[Array]
    options: CompareOptions
    notes: list[str] = field(default_factory=list)
    whole: bool = True
    wanted: list[Array] | None = None
    is_right: bool = True

    def run(self) -> Comparison:
        """Run both ways, and search for the wrong operation."""
        self.name = self.executable.name
        with active(self.ours.pipeline.rules):  # composites with such a rule stay
            self.program = FlatProgram.of(self.source)
        waiting = next((u for u in self.program.units if {"infeed", "recv"} & u.operations), None)
        if waiting is not None:
            raise ExecutionError(
                f"{self.name} reads what the caller sends, and would be run many times: "
                f"{waiting.name} at {waiting.place}",
                hint="a parameter in its place",
            )
        self.actual = self._run()
        judge, self.quiet = (Judge(self.other, self.options.ulp) for _ in range(2))
        is_slow = isinstance(self.other, Oracle) and self.other.name == "interpreter"
        work = sum(map(scalar_operations, self.program.units)) if is_slow else 0
        instead = _xla() if work > MOST else None
        self.whole_way = self.other if work <= MOST_IN_ALL else instead
        self.quick_way = self.other if work <= MOST else instead or minimal_way(self.ours)  # for many runs
        if work > MOST_IN_ALL:
            time = _time(work * SECONDS)
            what = f"{len(self.program.units)} operations, {time} by {self.other.name}: large ones are sampled"
            self.options.progress(what, 0, 0)
        self.search = Search(
            self.ours,
            self.other,
            judge,
            self.options.byte_limit,
            self.options.tolerance,
            self.options.progress,
            most=MOST if is_slow else inf,
            instead=instead,
            deadline=inf if self.options.time_limit is None else monotonic() + self.options.time_limit,
        )
        finding, results = self._searched()
        if self.search.added_up:
            where = ", ".join(str(p) for p in dict.fromkeys(self.search.added_up))
            self.notes.append(f"rounding adds up in loops whose operations are right, at {where}")
        return Comparison(
            self.name,
            self.other.name,
            self.is_right and (self.whole or self.search.judged > 0),
            finding,
            results,
            len(self.actual),
            sum(unit.op.name not in SOURCES for unit in self.program.units),
            self.search.judged,
            self._not_judged(),
            self.whole,
            dict(judge.faults),
            tuple(self.notes),
            stopped=self.search.stopped,
        )

    def _searched(self) -> tuple[Finding | None, dict[int, Difference]]:
        """Return the first wrong operation, and the results that differ; what is known when it is stopped."""
        finding, results = None, dict[int, Difference]()
        search = self.search
        try:
            found = search.first_wrong(self.program, self.arguments)
            finding = self._of_operation(found) if found is not None else None
            if not search.is_late():
                results, is_wrong = self._results_apart()
                if finding is None:
                    finding = self._of_whole(results, is_wrong)
            if self.executable._overrides:
                results = self._with_overrides(results)
        except KeyboardInterrupt:
            search.stopped = "Ctrl-C"
        if finding is not None:
            self.is_right = False
        if search.stopped:
            self.whole = False
            self.notes.append(f"stopped by {search.stopped}: this is a part of the report")
        if search.sampled:
            self.notes.append(
                f"{search.sampled} large operations were judged by {self.other.name} on slices of their operands"
            )
        if search.by_other and search.instead is not None:
            self.notes.append(f"{search.by_other} large operations were judged as a whole by {search.instead.name}")
        return finding, results

    def _run(self) -> list[Array]:
        """Return the results of the unchanged program."""
        actual = self.ours.run(self.source, self.arguments)
        if isinstance(actual, Refusal):
            raise ExecutionError(f"{self.name} does not run: {actual.message}")
        return actual

    # ---- whole programs --------------------------------------------------------------------------------------------

    def _results_apart(self) -> tuple[dict[int, Difference], bool]:
        """Return the results further from the reference's than usual, and whether that is more than rounding does: what
        the operations, each judged right, gave in another run is no more."""
        if self.whole_way is None:
            self.whole = False
            self.notes.append(f"{self.other.name} would take too long for the program as a whole")
            return {}, False
        self.options.progress(f"the program by {self.whole_way.name}", 0, 0)
        expected = Expected(self.whole_way, self.program, self.arguments, self.options.tolerance)
        if isinstance(expected.results, Refusal):
            self.whole = False
            self.notes.append(f"{self.whole_way.name} does not run the program as a whole: {expected.results}")
            return {}, False
        self.wanted = expected.results
        if self.whole_way is not self.other:
            self.notes.append(f"the program's results are compared with those of {self.whole_way.name}")
        found = _differences(self.actual, self.wanted, self.options.tolerance)
        return found, bool(found) and not self._is_as_judged() and bool(expected.is_wrong(self.actual))

    def _of_whole(self, results: dict[int, Difference], is_wrong: bool) -> Finding | None:
        """Return a finding where every operation is right: the program as it is, or rounding that grows."""
        is_known = self.wanted is not None
        if is_wrong or (not is_known and not self._is_as_judged()):
            self.is_right = not is_wrong
            return self._of_prefix(self.quick_way if is_known or not self.whole_way else minimal_way(self.ours))
        found = self._first_apart() if results else None
        if found is None:
            return None
        note = "every operation is right on the operands that it had: rounding that was small before has grown here"
        if self.options.tolerance is None:
            self.notes.append(f"{note}, at {found.unit.name} at {found.unit.place}")
            return None
        self.notes.append(note)
        program = Expected(self.other, FlatProgram(self.program.returning(found.unit.results)), self.arguments)
        return self._finding(found, "rounding", program, None)

    def _is_as_judged(self) -> bool:
        """Return whether the results are those of the run whose operations were judged, each of them as a whole."""
        search, program = self.search, self.program
        values = {v: a for v, a in zip(program.returns, self.actual, strict=True) if v in program.unit_of}
        judged = {v: search.returned.get(v, a if program.is_constant(v) else None) for v, a in values.items()}
        is_whole = not search.refused and not search.stopped and search.sampled <= search.by_other
        return is_whole and all(
            j is not None and not exceeds_tolerance(values[v], j, self.options.tolerance).any()
            for v, j in judged.items()
        )

    def _with_overrides(self, plain: dict[int, Difference]) -> dict[int, Difference]:
        """Return the differing results of the program with the user's texts of stages.

        Args:
            plain: the differing results without them: all that was judged before is the program without them.
        """
        files = self.executable._overrides
        name = self.whole_way.name if self.whole_way and self.wanted is not None else "the program without them"
        self.notes += overrides_note(self.executable)
        actual = results_of(self.executable, self.arguments)
        found = _differences(actual, self.wanted or self.actual, self.options.tolerance)
        if found and not plain:  # the last text is the whole program, whatever was replaced before it
            self.notes.append(f"the difference is in {files[-1]}: without it the results are those of {name}")
            self.is_right = False
        return found

    def _not_judged(self) -> tuple[NotJudged, ...]:
        return tuple(NotJudged(name, why, tuple(places)) for (name, why), places in self.search.refused.items())

    # ---- one operation ---------------------------------------------------------------------------------------------

    def _of_operation(self, found: Found) -> Finding:
        """Return a finding of the first search: an operation that is wrong on its own operands."""
        self.options.progress("the smallest program", 0, 0)
        unit, other = found.unit, found.by or self.other
        known = dict(zip(unit.reads, found.operands, strict=True))
        for most in (MOST_CONSTANT_ELEMENTS, inf):  # it may be wrong for constants alone
            replay = found.program.apart([unit], constants=most)
            program = FlatProgram(replay.module)
            arguments = [known[v] for v in replay.taken]
            if self._is_wrong(found, self.ours.run(program.module, arguments)):
                small = Expected(other, program, arguments, self.options.tolerance)
                cause = self._cause(small, unit, lambda results: self._is_wrong(found, results))
                return self._finding(found, "operation", small, cause)
        self.notes.append("the operation by itself is right; it is wrong among the others of this program")
        is_slice = not found.turns and found.program is not self.program  # all of it takes the interpreter long
        by = (found.by or self.search.instead) if is_slice else other
        made = None
        if found.context is not None and by is not None:
            module, arguments = found.context
            made = self._prefixes(by, FlatProgram(module), arguments).find()
        if made is None:
            return self._finding(found, "operation", None, None)
        return self._finding(found, "operation", made[2], self._cause(made[2], unit, made[2].is_wrong))

    def _is_wrong(self, found: Found, made: list[Array] | Refusal) -> bool | None:
        """Return whether the operation's result is wrong in the results of a program of its own."""
        if isinstance(made, Refusal):
            return None
        if found.unit.op.name in CONTROL:
            return bool(exceeds_tolerance(made[found.result], found.wanted, self.options.tolerance).any())
        quiet = self.quiet if found.by is None else Judge(found.by, self.options.ulp)
        where = (found.program, found.unit, found.operands, found.result)
        return bool(quiet.wrong(*where, made[found.result], found.wanted).any())

    def _cause(self, small: Expected, unit: ProgramOperation, is_wrong: Callable[[Any], bool | None]) -> Cause | None:
        """Return what breaks a small program."""
        if not self.options.cause:
            return None
        self.options.progress("steps and passes", 0, 0)
        is_quick = isinstance(self.other, Oracle) and sum(a.size for a in small.arguments) <= MOST

        def goes_wrong(way: Way) -> bool | None:
            return is_wrong(way.run(small.program.module, small.arguments))

        def right_after(changed: ir.Module) -> bool | None:
            answer = small.is_wrong(small.other.run(changed, small.arguments)) if is_quick else None
            return None if answer is None else not answer

        alone = len([u for u in small.program.units if u.op.name not in SOURCES]) == 1
        operation = unit.name if alone else ""
        return cause_of(self.ours, self.other, small.program.module, goes_wrong, operation, right_after)

    def _finding(self, found: Found, method: str, small: Expected | None, cause: Cause | None) -> Finding:
        known = dict(zip(found.unit.reads, found.operands, strict=True)) if found.operands else {}
        operands = [known[v] for v in found.unit.op.operands] if known else []
        program = None
        if small is not None:
            wanted = None if isinstance(small.results, Refusal) or method == "rounding" else tuple(small.results)
            text = text_of_module(small.program.module)
            program = SmallProgram(text, tuple(small.arguments), len(small.program.units), wanted, self._own_steps())
        difference = Difference.of(found.actual, found.wanted, found.wrong, operands)
        where = (found.unit.name, found.unit.text, found.unit.number, found.unit.place, found.result)
        return Finding(*where, difference, method, found.turns, "", cause, program)

    def _own_steps(self) -> str:
        """Return the pipeline's text, where it differs from the target's and text describes all of it."""
        usual = pipeline_of(find_target(self.ours.target), self.ours.options)
        own = self.ours.pipeline
        return str(own) if own.steps != usual.steps and own.is_text else ""

    # ---- only as the program is ------------------------------------------------------------------------------------

    def _prefixes(self, other: Way, program: FlatProgram, arguments: list[Array]) -> Prefixes:
        options = self.options
        return Prefixes(self.ours, other, program, arguments, options.tolerance, options.byte_limit, options.progress)

    def _of_prefix(self, other: Way | None) -> Finding | None:
        """Return a finding of the second search: every operation is right, the program is wrong."""
        made = None if other is None else self._prefixes(other, self.program, self.arguments).find()
        if made is None:
            return None
        found, after, small = made
        finding = self._finding(found, "prefix", small, self._cause(small, found.unit, small.is_wrong))
        return replace(finding, after=f"{after.name} at {after.place}" if after is not found.unit else "")

    # ---- rounding --------------------------------------------------------------------------------------------------

    def _first_apart(self) -> Found | None:
        """Return the first value beyond the tolerance, where no operation is wrong: small errors may grow."""
        units = [u for u in self.program.units if u.is_judged and not self.program.is_constant(u.op.results[0])]
        low, high = 0, len(units)
        found: Found | None = None
        while high - low > 1:
            middle = (low + high) // 2
            at = self._accumulated(units[middle - 1])
            low, high, found = (middle, high, found) if at is None else (low, middle, at)
        return found or (self._accumulated(units[high - 1]) if units else None)

    def _accumulated(self, unit: ProgramOperation) -> Found | None:
        module = self.program.returning(unit.results)
        ours, theirs = (way.run(module, self.arguments) for way in (self.ours, self.whole_way or self.other))
        if isinstance(ours, Refusal) or isinstance(theirs, Refusal):
            return None
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            wrong = exceeds_tolerance(a, b, self.options.tolerance)
            if wrong.any():
                return Found(self.program, unit, number, [], a, b, wrong)
        return None
