"""Makes a program small that shows a disagreement, as long as it still shows the same one.

Statements are cut out by giving their results as arguments, what stands in regions is replaced by constants, arrays are
made shorter, arguments plainer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator

import numpy as np

from tests.fuzz.check import Checker, Disagreement, Plan
from tests.fuzz.program import Arrays, Program, Value
from tests.fuzz.workers import Failure
from tests.fuzz.writer import number_text

Candidate = tuple[Program, Arrays]
_LINE = re.compile(r"(%\w+) = (?!stablehlo\.constant).*?(tensor<[^>]*>+)$")


class Shrinker:
    """Shrinks one disagreement for a limited time."""

    def __init__(self, checker: Checker, plan: Plan, seconds: float = 60.0) -> None:
        self._checker = checker
        self._plan = plan
        self._deadline = time.monotonic() + seconds

    def shrink(self, found: Disagreement) -> Disagreement:
        """The smallest disagreement of the same kind that was come upon."""
        self._plan = self._plan_of(found)
        if self._still(found, found.program, found.arguments) is None:
            return found  # it needs more than one oracle or way, or does not come again
        ways = (_fewer_results, self._cut, _plainer_regions, _shorter, _plainer)
        progress = True
        while progress and time.monotonic() < self._deadline:
            progress = False
            for way in ways:
                smaller = self._first(found, way)
                while smaller is not None:
                    found, progress = smaller, True
                    smaller = self._first(found, way)
        return found

    def _plan_of(self, found: Disagreement) -> Plan:
        oracles = [w for w in found.ways[1:] if w != "fused"]
        return Plan(self._plan.whole, found.ways[:1], oracles)

    def _first(self, found: Disagreement, way: Callable[[Disagreement], Iterator[Candidate]]) -> Disagreement | None:
        for program, arguments in way(found):
            if time.monotonic() > self._deadline:
                return None
            smaller = self._still(found, program, arguments)
            if smaller is not None:
                return smaller
        return None

    def _still(self, found: Disagreement, program: Program, arguments: Arrays) -> Disagreement | None:
        try:
            program = Program.parse(program.text)
        except Exception:  # a change that made no program
            return None
        again = self._checker.check(program, arguments, self._plan)
        return again if again is not None and again.kind == found.kind else None

    def _cut(self, found: Disagreement) -> Iterator[Candidate]:
        """Without some of the statements, their results being arguments."""
        program = found.program
        names = [r.name for s in program.statements for r in s.results]
        values = self._values(program, names, found)
        if values is None:
            return
        size = len(program.statements)
        while size > 1:
            size = (size + 1) // 2
            for start in range(0, len(program.statements), size):
                yield _without(program, range(start, min(start + size, len(program.statements))), values, found)

    def _values(self, program: Program, names: list[str], found: Disagreement) -> dict[str, np.ndarray] | None:
        for way in ("emitters", "general"):
            if not names:
                return None
            results = self._checker.workers.run(way, program.returning(names).text, found.arguments)
            if not isinstance(results, Failure):
                return dict(zip(names, results, strict=True))
        return None


def _fewer_results(found: Disagreement) -> Iterator[Candidate]:
    program = found.program
    if len(program.returns) > 1:
        for name in reversed(program.returns):
            yield _pruned(program.returning([name]), found.arguments)
    for statement in program.statements:  # the first that shows it
        names = [r.name for r in statement.results]
        if not set(program.returns) & set(names):
            yield _pruned(program.returning(names), found.arguments)
    smaller = _pruned(program, found.arguments)
    if smaller[0] != found.program:
        yield smaller


def _pruned(program: Program, arguments: Arrays) -> Candidate:
    smaller = program.pruned()
    kept = {p.name for p in smaller.parameters}
    return smaller, [a for p, a in zip(program.parameters, arguments, strict=True) if p.name in kept]


def _without(program: Program, places: range, values: dict[str, np.ndarray], found: Disagreement) -> Candidate:
    cut = [r for i in places for r in program.statements[i].results]
    renamed = {r.name: f"%in_{r.name[1:].replace('#', '_')}" for r in cut}

    def rename(text: str) -> str:
        return re.sub(r"%\w+(?:#\d+)?", lambda m: renamed.get(m[0], m[0]), text)

    made = tuple(Value(renamed[r.name], r.shape, r.element) for r in cut)
    statements = tuple(type(s)(rename(s.text), s.results) for i, s in enumerate(program.statements) if i not in places)
    returns = tuple(renamed.get(n, n) for n in program.returns if n not in renamed) or tuple(
        renamed.get(n, n) for n in program.returns
    )
    whole = Program((*program.parameters, *made), statements, returns)
    return _pruned(whole, [*found.arguments, *(values[r.name] for r in cut)])


def _plainer_regions(found: Disagreement) -> Iterator[Candidate]:
    """With lines of regions replaced by constants, or left out."""
    program = found.program
    for i, statement in enumerate(program.statements):
        lines = statement.text.split("\n")
        for k in range(1, len(lines) - 1):
            match = _LINE.fullmatch(lines[k])
            if match is None and " = stablehlo.constant" not in lines[k]:
                continue
            others = [lines[:k] + lines[k + 1 :]]
            if match is not None:
                value = Value.of(match[1], match[2])
                constant = f"{match[1]} = stablehlo.constant dense<{number_text(1, value.element)}> : {match[2]}"
                others.append([*lines[:k], constant, *lines[k + 1 :]])
            for other in others:
                changed = type(statement)("\n".join(other), statement.results)
                statements = (*program.statements[:i], changed, *program.statements[i + 1 :])
                yield Program(program.parameters, statements, program.returns), found.arguments


def _shorter(found: Disagreement) -> Iterator[Candidate]:
    """With an extent replaced by a smaller one, wherever it stands."""
    program = found.program
    extents = sorted({d for v in program.values.values() for d in v.shape if d > 1}, reverse=True)
    for extent in extents:
        for smaller in sorted({1, 2, 3, extent // 2, extent - 1}):
            if not 0 < smaller < extent:
                continue
            text = with_extent(program.text, extent, smaller)
            for at_end in (False, True):
                try:
                    made = Program.parse(text)
                    pairs = zip(found.arguments, made.parameters, strict=True)
                    arguments = [_cut_down(a, p.shape, at_end) for a, p in pairs]
                except Exception:  # what came out is no program, or has arguments of other ranks
                    continue
                yield made, arguments


def with_extent(text: str, extent: int, other: int) -> str:
    """A program's text with another number wherever an extent stands, in types and in attributes."""
    return re.sub(rf"(?<=[<x ,\[:]){extent}(?=[x,\]:>\s])", str(other), text)


def _cut_down(array: np.ndarray, shape: tuple[int, ...], at_end: bool) -> np.ndarray:
    made = array[tuple(slice(n - d, n) if at_end else slice(0, d) for n, d in zip(array.shape, shape, strict=True))]
    assert made.shape == shape
    return np.ascontiguousarray(made)


def _plainer(found: Disagreement) -> Iterator[Candidate]:
    """With arguments, or some of their elements, that are 0 or 1."""
    for i, array in enumerate(found.arguments):
        for number in (0, 1):
            plain = np.full(array.shape, number).astype(array.dtype)
            few = bool(((array == 0) | (array == 1)).all())
            if array.any() and not (number == 1 and few):
                yield found.program, [*found.arguments[:i], plain, *found.arguments[i + 1 :]]
        flat = array.reshape(-1)
        for k in range(min(flat.size, 24)):
            if flat[k] == 0:
                continue
            changed = flat.copy()
            changed[k] = 0
            yield found.program, [*found.arguments[:i], changed.reshape(array.shape), *found.arguments[i + 1 :]]
