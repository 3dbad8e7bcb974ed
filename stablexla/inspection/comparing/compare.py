"""`executable.compare`: runs a program in two ways, and finds the first wrong operation and its cause.

Values come from our own run, so that every operation is judged on its own operands (`search.py`). Programs that become
right when they return more values are searched by prefixes (`prefixes.py`). The finding is reduced to a small program,
and compiled by pipelines between a plain one and ours (`changes.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
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
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.executable.executable import Executable
from stablexla.inspection.comparing.bisection import GoesWrong, cause_of, minimal_way
from stablexla.inspection.comparing.comparison import Comparison
from stablexla.inspection.comparing.findings import Cause, Difference, Finding, NotJudged, SmallProgram
from stablexla.inspection.comparing.operation_search import Found, Progress, Search, exceeds_rounding, no_progress
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
from stablexla.inspection.judging.oracles import Oracle, shared_oracle
from stablexla.inspection.judging.verdicts import Judge
from stablexla.inspection.program import SOURCES, FlatProgram, ProgramOperation
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
        ours, source = imported(way_of(executable), copy_of(executable._stablehlo, here=True))
        if isinstance(against, Executable) and _text(against._source) != _text(executable._source):
            made = _results_only(executable, against, given, options)
        else:
            other = other_way(ours, against)
            made = _ComparisonRun(executable, ours, other, source, given, options).run()
            notes = (*notes, *rules_note(ours, other))
    return replace(made, seconds=round(perf_counter() - start, 3), notes=(*made.notes, *notes))


def _text(module: ir.Module) -> str:
    return str(module.operation.get_asm(enable_debug_info=False))


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
    masks = [exceeds_rounding(a, w, tolerance) for a, w in zip(actual, wanted, strict=True)]
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


def _elements(program: SmallProgram) -> int:
    return sum(array.size for array in program.arguments)


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
    wanted: list[Array] | Refusal | None = None

    def run(self) -> Comparison:
        """Run both ways, and search for the wrong operation."""
        self.name = self.executable.name
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
            finding is None and not results and (self.whole or self.search.judged > 0),
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
        finding, results = None, {}
        search = self.search
        try:
            found = search.first_wrong(self.program, self.arguments)
            finding = self._of_operation(found) if found is not None else None
            if finding is None and not search.is_late():
                finding = self._of_prefix()
            if not search.is_late():
                results = self._results_apart()
            if finding is None and results:
                finding = self._of_rounding()
            if self.executable._overrides:
                results = self._with_overrides(results)
        except KeyboardInterrupt:
            search.stopped = "Ctrl-C"
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

    def _results_apart(self) -> dict[int, Difference]:
        """Return the results that differ from the reference, with the differences."""
        if self.whole_way is None:
            self.whole = False
            self.notes.append(f"{self.other.name} would take too long for the program as a whole")
            return {}
        self.options.progress(f"the program by {self.whole_way.name}", 0, 0)
        self.wanted = wanted = self.whole_way.run(self.source, self.arguments)
        if isinstance(wanted, Refusal):
            self.whole = False
            self.notes.append(f"{self.whole_way.name} does not run the program as a whole: {wanted}")
            return {}
        if self.whole_way is not self.other:
            self.notes.append(f"the program's results are compared with those of {self.whole_way.name}")
        return _differences(self.actual, wanted, self.options.tolerance)

    def _with_overrides(self, plain: dict[int, Difference]) -> dict[int, Difference]:
        """Return the differing results of the program with the user's texts of stages.

        Args:
            plain: the differing results without them: all that was judged before is the program without them.
        """
        files = self.executable._overrides
        known = None if isinstance(self.wanted, Refusal) else self.wanted
        name = self.whole_way.name if self.whole_way is not None and known is not None else "the program without them"
        self.notes += overrides_note(self.executable)
        actual = results_of(self.executable, self.arguments)
        found = _differences(actual, self.actual if known is None else known, self.options.tolerance)
        if found and not plain:  # the last text is the whole program, whatever was replaced before it
            self.notes.append(f"the difference is in {files[-1]}: without it the results are those of {name}")
        return found

    def _not_judged(self) -> tuple[NotJudged, ...]:
        return tuple(NotJudged(name, why, tuple(places)) for (name, why), places in self.search.refused.items())

    # ---- one operation ---------------------------------------------------------------------------------------------

    def _of_operation(self, found: Found) -> Finding:
        """Return a finding of the first search: an operation that is wrong on its own operands."""
        self.options.progress("the smallest program", 0, 0)
        unit = found.unit
        replay = found.program.apart([unit])
        known = dict(zip(unit.reads, found.operands, strict=True))
        arguments = [known[v] for v in replay.taken]
        other = found.by or self.other
        wanted = other.run(replay.module, arguments)
        right = None if isinstance(wanted, Refusal) else tuple(wanted)
        program = SmallProgram(
            text_of_module(replay.module), tuple(arguments), len(found.program.needed(unit.results, unit.reads)), right
        )

        def goes_wrong(way: Compiled) -> bool | None:
            made = way.run(replay.module, arguments)
            return None if isinstance(made, Refusal) else self._is_wrong(found, made)

        cause = None
        if not goes_wrong(self.ours):
            self.notes.append("the operation by itself is right; it is wrong among the others of this program")
            program, cause = self._in_context(found) or (program, None)
        elif self.options.cause:
            cause = self._cause(replay.module, goes_wrong, unit, program)
        return self._finding(found, "operation", program, cause)

    def _is_wrong(self, found: Found, made: list[Array]) -> bool:
        if found.turns and found.unit.op.name == "stablehlo.while":
            return bool(exceeds_rounding(made[found.result], found.wanted, self.options.tolerance).any())
        known = dict(zip(found.unit.reads, found.operands, strict=True))
        by_position = [known[v] for v in found.unit.op.operands]
        args = (found.program, found.unit, found.operands, found.result, made[found.result], found.wanted, by_position)
        quiet = self.quiet if found.by is None else Judge(found.by, self.options.ulp)
        return bool(quiet.verdict(*args).wrong.any())

    def _in_context(self, found: Found) -> tuple[SmallProgram, Cause | None] | None:
        """Return a larger failing program and its cause, where the operation alone is right."""
        trusted = minimal_way(self.ours) or self.other
        if found.context is None:
            return None
        module, arguments = found.context
        made = self._prefixes(trusted, FlatProgram(module), arguments).find()
        return None if made is None else (made[2], self._cause_of_program(made[2], found.unit))

    def _prefixes(self, trusted: Way, program: FlatProgram, arguments: list[Array]) -> Prefixes:
        options = self.options
        return Prefixes(self.ours, trusted, program, arguments, options.tolerance, options.byte_limit, options.progress)

    def _cause_of_program(self, program: SmallProgram, unit: ProgramOperation) -> Cause | None:
        """Return the cause of a wrong program whose right results are known."""
        if not self.options.cause or program.wanted is None:
            return None
        module, wanted = ir.Module.parse(program.text, self.program.module.context), program.wanted

        def goes_wrong(way: Compiled) -> bool | None:
            results = way.run(module, program.arguments)
            if isinstance(results, Refusal):
                return None
            return any(
                exceeds_rounding(a, w, self.options.tolerance).any() for a, w in zip(results, wanted, strict=True)
            )

        return self._cause(module, goes_wrong, unit, program)

    def _cause(
        self, module: ir.Module, goes_wrong: GoesWrong, unit: ProgramOperation, program: SmallProgram
    ) -> Cause | None:
        self.options.progress("steps and passes", 0, 0)
        base = self.other if isinstance(self.other, Compiled) else minimal_way(self.ours)
        if base is None:
            return None

        def right_after(changed: ir.Module) -> bool | None:
            quick = isinstance(self.other, Oracle) and _elements(program) <= MOST
            results = self.other.run(changed, program.arguments) if quick else None
            if results is None or isinstance(results, Refusal) or program.wanted is None:
                return None
            pairs = zip(results, program.wanted, strict=True)
            return not any(exceeds_rounding(a, w, self.options.tolerance).any() for a, w in pairs)

        return cause_of(self.ours, base, module, goes_wrong, str(unit.op.name), right_after)

    def _own_steps(self) -> str:
        """Return the pipeline's text, where it differs from the target's and text describes all of it."""
        usual = pipeline_of(find_target(self.ours.target), self.ours.options)
        own = self.ours.pipeline
        return str(own) if own.steps != usual.steps and own.is_text else ""

    def _finding(self, found: Found, method: str, program: SmallProgram, cause: Cause | None) -> Finding:
        known = dict(zip(found.unit.reads, found.operands, strict=True)) if found.operands else {}
        operands = [known[v] for v in found.unit.op.operands] if known else []
        return Finding(
            found.unit.name,
            found.unit.text,
            found.unit.number,
            found.unit.place,
            found.result,
            Difference.of(found.actual, found.wanted, found.wrong, operands),
            method,
            found.turns,
            "",
            cause,
            replace(program, pipeline=self._own_steps()),
        )

    # ---- only as the program is ------------------------------------------------------------------------------------

    def _of_prefix(self) -> Finding | None:
        """Return a finding of the second search: every operation is right, the program is wrong."""
        trusted = self._trusted()
        if trusted is None:
            return None
        made = self._prefixes(trusted, self.program, self.arguments).find()
        if made is None:
            return None
        found, after, program = made
        finding = self._finding(found, "prefix", program, self._cause_of_program(program, found.unit))
        return replace(finding, after=f"{after.name} at {after.place}" if after is not found.unit else "")

    def _trusted(self) -> Way | None:
        """Return a way with right values where ours is wrong; None when the unchanged program is right."""
        judged = self.search.returned
        different = [
            v
            for v, a in zip(self.program.returns, self.actual, strict=True)
            if v in judged and exceeds_rounding(a, judged[v], self.options.tolerance).any()
        ]
        candidates = [w for w in (minimal_way(self.ours), self.whole_way) if w is not None]
        if isinstance(self.other, Compiled):
            candidates.reverse()
        elif not different and judged.keys() >= {
            v for v in self.program.returns if v in self.program.unit_of and not self.program.is_constant(v)
        }:
            return None
        for way in candidates:
            made = way.run(self.source, self.arguments)
            if isinstance(made, Refusal):
                continue
            pairs = zip(self.program.returns, made, strict=True)
            if all(not exceeds_rounding(m, judged[v], self.options.tolerance).any() for v, m in pairs if v in judged):
                return way
        return None

    # ---- rounding --------------------------------------------------------------------------------------------------

    def _of_rounding(self) -> Finding | None:
        """Return the first value beyond the tolerance, where no operation is wrong: small errors may grow."""
        units = [u for u in self.program.units if u.is_judged and not self.program.is_constant(u.op.results[0])]
        low, high = 0, len(units)
        found: Found | None = None
        while high - low > 1:
            middle = (low + high) // 2
            at = self._accumulated(units[middle - 1])
            if at is None:
                low = middle
            else:
                found, high = at, middle
        if found is None:
            return None
        self.notes.append(
            "every operation is right on the operands that it had: rounding that was small before has grown here"
        )
        module = self.program.returning(found.unit.results)
        program = SmallProgram(text_of_module(module), tuple(self.arguments), found.unit.number + 1)
        return self._finding(found, "rounding", program, None)

    def _accumulated(self, unit: ProgramOperation) -> Found | None:
        module = self.program.returning(unit.results)
        ours, theirs = (way.run(module, self.arguments) for way in (self.ours, self.other))
        if isinstance(ours, Refusal) or isinstance(theirs, Refusal):
            return None
        for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            wrong = exceeds_rounding(a, b, self.options.tolerance)
            if wrong.any():
                return Found(self.program, unit, number, [], a, b, wrong)
        return None
