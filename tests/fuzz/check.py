"""Whether a program gives what it should.

Every value of the program is returned, and each operation is evaluated by the oracles on the very operands that
stablexla had, so that no error is carried on. Then the program as it stands, where more is fused, has to give the same
numbers. In whole programs everything is exact, and the program as it stands is compared with the oracles as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np

from stablexla.inspection.judging.known_faults import FAULTS
from stablexla.inspection.judging.tolerances import Case, differing
from tests.fuzz.program import NAME, Arrays, Program, Statement, Value, module_text
from tests.fuzz.workers import Failure, Workers
from tests.fuzz.writer import C64

# Operations without an operand; oracles evaluate them once for all that read them.
FREE = ("constant", "iota")


@dataclass(frozen=True)
class Disagreement:
    """What was found, with the program and the arguments that show it.

    Attributes:
        kind: in few words, the same for all programs with one cause: `emitters / interpreter: add`.
        ways: the implementations that take part: a way of stablexla, then an oracle or another way.
    """

    kind: str
    message: str
    program: Program
    arguments: Arrays
    ways: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}\n{self.message}"


@dataclass
class Plan:
    """How a program is checked.

    Attributes:
        whole: sums are exact.
        ways: ways of stablexla.
        oracles: what operations are compared with.
    """

    whole: bool
    ways: Sequence[str] = ("emitters",)
    oracles: Sequence[str] = ("interpreter",)


@dataclass
class Checker:
    """Checks programs, and counts what oracles refuse and which known faults were met."""

    workers: Workers
    excused: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    reordered: int = 0
    compared: int = 0

    def check(self, program: Program, arguments: Arrays, plan: Plan) -> Disagreement | None:
        """The first disagreement that is found."""
        return next(self._disagreements(program, arguments, plan), None)

    def _disagreements(self, program: Program, arguments: Arrays, plan: Plan) -> Iterator[Disagreement]:
        for way in plan.ways:
            plain = self.workers.run(way, program.text, arguments)
            if isinstance(plain, Failure):
                yield Disagreement(f"{way}: {_first_line(plain)}", str(plain), program, arguments, (way,))
                continue
            if way == "kernels":  # which were compared in the run; the results are those of "emitters"
                continue
            answered = True
            for oracle in plan.oracles if plan.whole else ():
                if oracle == "interpreter" and _overwrites(program):
                    answered = False
                    continue
                wanted = self._evaluate(oracle, program, arguments)
                if isinstance(wanted, Failure):
                    self.refused[f"{oracle}: {_first_line(wanted)}"] += 1
                    answered = False
                else:
                    yield from self._against(program, arguments, (way, oracle), plain, wanted)
            if not plan.whole or not answered:
                yield from self._operations(program, arguments, way, plain, plan)

    # ---- the program as it stands --------------------------------------------------------------------------------

    def _against(
        self, program: Program, arguments: Arrays, ways: tuple[str, str], results: Arrays, wanted: Arrays
    ) -> Iterator[Disagreement]:
        """Results against an oracle's, bit by bit."""
        for name, actual, right in zip(program.returns, results, wanted, strict=True):
            self.compared += 1
            made = Statement(f"{name} = stablehlo.whole", (program.values[name],))
            wrong = differing(Case(made, [], actual, right, ways[1]))
            if wrong.any():
                kind, excused = f"{ways[0]} / {ways[1]}: a whole program", sum(self.excused.values())
                plan = Plan(whole=True, ways=ways[:1], oracles=ways[1:])
                refused, self.refused = self.refused, Counter()  # it took the whole: each operation is tried again
                parts = list(self._operations(program, arguments, ways[0], results, plan))
                self.refused = refused + self.refused
                if parts or sum(self.excused.values()) > excused:  # an operation by itself, which may be a known fault
                    yield from parts[:1]
                    return
                yield Disagreement(kind, f"{name}: {_show(wrong, actual, right)}", program, arguments, ways)
                return

    def _evaluate(self, oracle: str, program: Program, arguments: Arrays) -> Arrays | Failure:
        """The oracle's results; complex ones come as their parts."""
        lines = [s.text for s in program.statements]
        returned: list[Value] = []
        for i, name in enumerate(program.returns):
            returned += _parts(program.values[name], lines, i)
        found = self.workers.run(oracle, module_text(program.parameters, lines, returned), arguments)
        return found if isinstance(found, Failure) else _joined(found, [program.values[n] for n in program.returns])

    # ---- operation by operation ----------------------------------------------------------------------------------

    def _operations(
        self, program: Program, arguments: Arrays, way: str, plain: Arrays, plan: Plan
    ) -> Iterator[Disagreement]:
        names = [r.name for s in program.statements for r in s.results]
        if not names:
            return
        everything = program.returning(names)
        found = self.workers.run(way, everything.text, arguments)
        if isinstance(found, Failure):
            yield Disagreement(f"{way}: {_first_line(found)}", str(found), everything, arguments, (way,))
            return
        values = dict(zip([p.name for p in program.parameters], arguments, strict=True))
        values |= dict(zip(names, found, strict=True))
        for oracle in plan.oracles:
            yield from self._each(program, values, way, oracle)
        yield from self._unfused(program, arguments, way, plain, values)

    def _each(self, program: Program, values: dict[str, np.ndarray], way: str, oracle: str) -> Iterator[Disagreement]:
        """Each operation on its own operands, all in one program; one by one where that one fails."""
        statements = [
            s for s in program.statements if s.operation not in FREE and not self._refuses(oracle, s, program)
        ]
        if oracle == "interpreter":
            for statement in filter(_scatters, statements):
                yield from self._each_alone(program, statement, values, way, oracle)
            statements = [s for s in statements if not _scatters(s)]
        if not statements:
            return
        replay = replayed(program, statements)
        arguments = [values[name] for name in replay.origins]
        found = self._evaluate(oracle, replay.program, arguments)
        if isinstance(found, Failure) and len(statements) > 1:
            for statement in statements:
                yield from self._each_alone(program, statement, values, way, oracle)
            return
        if isinstance(found, Failure):
            self._note_refusal(oracle, statements[0], program, found)
            return
        place = 0
        for statement in statements:
            results = found[place : place + len(statement.results)]
            place += len(statement.results)
            yield from self._judge(program, statement, values, results, way, oracle)

    def _each_alone(
        self, program: Program, statement: Statement, values: dict[str, np.ndarray], way: str, oracle: str
    ) -> Iterator[Disagreement]:
        replay = replayed(program, [statement])
        found = self._evaluate(oracle, replay.program, [values[name] for name in replay.origins])
        if isinstance(found, Failure):
            self._note_refusal(oracle, statement, program, found)
        else:
            yield from self._judge(program, statement, values, found, way, oracle)

    def _judge(
        self,
        program: Program,
        statement: Statement,
        values: dict[str, np.ndarray],
        results: Arrays,
        way: str,
        oracle: str,
    ) -> Iterator[Disagreement]:
        replay = replayed(program, [statement])
        arguments = [values[name] for name in replay.origins]
        operands = [values[name] for name in statement.operands if name in values]
        for value, wanted in zip(statement.results, results, strict=True):
            self.compared += 1
            case = Case(statement, operands, values[value.name], wanted, oracle)
            wrong = self._unexcused(case, differing(case))
            if wrong.any():
                kind = f"{way} / {oracle}: {statement.operation} {value.element}"
                message = f"{value.name}: {_show(wrong, case.actual, wanted)}\n{statement.text}"
                yield Disagreement(kind, message, replay.program, arguments, (way, oracle))
                return

    def _unexcused(self, case: Case, wrong: np.ndarray) -> np.ndarray:
        for known in FAULTS:
            if not wrong.any():
                break
            left = wrong & ~known.explains(case, wrong)
            if not np.array_equal(left, wrong):
                self.excused[known.name] += 1
            wrong = left
        return wrong

    def _refuses(self, oracle: str, statement: Statement, program: Program) -> bool:
        """Whether it is known to refuse such an operation; what regions hold is another thing each time."""
        if statement.operation in ("while", "if", "case"):
            return False
        return bool(self.refused[_refusal(oracle, statement, program)])

    def _note_refusal(self, oracle: str, statement: Statement, program: Program, failure: Failure) -> None:
        self.refused[_refusal(oracle, statement, program)] += 1

    # ---- more fused, the same numbers ----------------------------------------------------------------------------

    def _unfused(
        self, program: Program, arguments: Arrays, way: str, plain: Arrays, values: dict[str, np.ndarray]
    ) -> Iterator[Disagreement]:
        inexact = tainted(program)
        for name, actual in zip(program.returns, plain, strict=True):
            made = Statement(f"{name} = stablehlo.whole", (program.values[name],))
            wrong = differing(Case(made, [], actual, values[name], "fused"))
            if not wrong.any():
                continue
            if name in inexact:
                self.reordered += 1
                continue
            kind = f"{way}: fused and not"
            yield Disagreement(
                kind, f"{name}: {_show(wrong, actual, values[name])}", program, arguments, (way, "fused")
            )
            return


@dataclass(frozen=True)
class Replay:
    """A program of operations that read nothing but parameters, and which values those were."""

    program: Program
    origins: tuple[str, ...]


def replayed(program: Program, statements: Sequence[Statement]) -> Replay:
    """Each of the statements by itself, on operands that are parameters; constants stay."""
    known = list(program.values)
    free = {r.name: s for s in program.statements if s.operation in FREE for r in s.results}
    read = {name for s in statements for name in s.reads(known)}
    held = [s for s in program.statements if s.operation in FREE and s.results[0].name in read]
    origins = [name for name in known if name in read and name not in free]
    given = {p.name for p in program.parameters}
    renamed = {name: name if name in given else f"%in_{name[1:].replace('#', '_')}" for name in origins}
    parameters = tuple(Value(renamed[n], program.values[n].shape, program.values[n].element) for n in origins)

    def moved(statement: Statement) -> Statement:
        own = {r.name.partition("#")[0] for r in statement.results}

        def rename(found: re.Match[str]) -> str:
            name = found[0]
            return name if name in own else renamed.get(name, name)

        return Statement(NAME.sub(rename, statement.text), statement.results)

    kept = (*held, *(moved(s) for s in statements))
    return Replay(Program(parameters, kept, tuple(r.name for s in statements for r in s.results)), tuple(origins))


ORDERED = {
    *("dot_general", "reduce", "convolution", "reduce_window", "scatter", "select_and_scatter", "fft", "map"),
    *("batch_norm_training", "batch_norm_grad", "cholesky", "triangular_solve"),
}


def tainted(program: Program) -> set[str]:
    """Values that depend on a sum of floats, whose order may be another when it is fused with something else."""
    found: set[str] = set()
    for statement in program.statements:
        sums = bool(statement.operations & ORDERED) and any(r.is_float or r.is_complex for r in statement.results)
        if sums or any(name in found for name in statement.names):
            found |= {r.name for r in statement.results}
    return found


def _scatters(statement: Statement) -> bool:
    return "scatter" in statement.operations


def _overwrites(program: Program) -> bool:
    """Whether the interpreter would write over the operand of a scatter, which others may read later."""
    return any(_scatters(s) for s in program.statements)


def _parts(value: Value, lines: list[str], place: int) -> list[Value]:
    """The value, or what is added to the lines to have the parts of a complex one."""
    if not value.is_complex:
        return [value]
    element = "f32" if value.element == C64 else "f64"
    made = [Value(f"%{part}_{place}", value.shape, element) for part in ("real", "imag")]
    for part, name in zip(made, ("real", "imag"), strict=True):
        lines.append(f"{part.name} = stablehlo.{name} {value.name} : ({value.type}) -> {part.type}")
    return made


def _joined(results: Arrays, values: Sequence[Value]) -> Arrays:
    left, made = iter(results), []
    for value in values:
        first = next(left)
        if value.is_complex:
            whole = np.empty(first.shape, value.element_type.dtype)
            whole.real, whole.imag = first, next(left)
            first = whole
        made.append(first)
    return made


def _refusal(oracle: str, statement: Statement, program: Program) -> str:
    types = {program.values[n].element for n in statement.reads(program.values)} | {
        r.element for r in statement.results
    }
    empty = any(not prod(program.values[n].shape) for n in statement.reads(program.values))
    return f"{oracle}: {statement.operation} of {'nothing in ' if empty else ''}{', '.join(sorted(types))}"


def _first_line(failure: Failure) -> str:
    lines = [line for line in str(failure).splitlines() if line.strip()]
    return re.sub(r"%[\w#]+|\d{3,}|0x[0-9a-f]+", "_", lines[0])[:110] if lines else failure.kind


def _show(wrong: np.ndarray, actual: np.ndarray, wanted: np.ndarray) -> str:
    places = np.flatnonzero(wrong)
    rows = [f"[{i}] {actual.reshape(-1)[i]!r}, not {wanted.reshape(-1)[i]!r}" for i in places[:3]]
    return f"{places.size} of {wrong.size} differ: {'; '.join(rows)}"
