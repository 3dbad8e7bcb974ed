"""The second search: prefixes of programs that become right when they return more values.

Prefixes are compiled unchanged: the last right one and the first wrong one differ by one operation. The wrong one is
then reduced: it begins later, and operations in between are dropped, as long as it stays wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import islice
from typing import Any

import numpy.typing as npt

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.inspection.comparing.operation_search import Found, Progress, no_progress
from stablexla.inspection.comparing.ways import Compiled, Way
from stablexla.inspection.judging.expected import Expected
from stablexla.inspection.program import FlatProgram, ProgramOperation
from stablexla.processes.questions import Refusal

Array = npt.NDArray[Any]
MOST_TRIES = 60


@dataclass
class Prefixes:
    """Programs made of the first operations of a program.

    Attributes:
        ours: the way under test.
        other: the reference.
        program: the program.
        arguments: its arguments.
        tolerance: as for results.
        byte_limit: bytes of values that are held at a time.
    """

    ours: Compiled
    other: Way
    program: FlatProgram
    arguments: list[Array]
    tolerance: float | None = None
    byte_limit: int = 256 << 20
    progress: Progress = no_progress
    _right: dict[Any, Array] = field(default_factory=dict)

    def find(self) -> tuple[Found, ProgramOperation, Expected] | None:
        """Find the operation whose value becomes wrong, the operation that triggers it, and a small wrong program."""
        count = len(self.program.units)
        if self._wrong_among(self.program.returns, None) is None:
            return None
        low, high = 0, count  # with `low` operations it is right, with `high` it is wrong
        while high - low > 1:
            middle = (low + high) // 2
            self.progress("programs that end earlier", count - (high - low), count)
            wrong = self._wrong_among(self._ends(middle), None)
            low, high = (middle, high) if wrong is None else (low, middle)
        results = self._ends(high) if high < count else list(self.program.returns)
        wrong = self._wrong_among(*self._smallest(results, high))
        return None if wrong is None else (wrong[0], self.program.units[high - 1], wrong[1])

    def _ends(self, count: int) -> list[Any]:
        """Return the values of the prefix that later operations, or the caller, use."""
        made = self.program.unit_of
        return [v for v in self.program.live_at(count) if v in made and made[v].number < count]

    def _wrong_among(self, results: Sequence[Any], given: Sequence[Any] | None) -> tuple[Found, Expected] | None:
        """Return the first wrong result where the program returns these values, and that program; None where all are
        right.

        Args:
            given: values that are parameters, and right; None for the program's own.
        """
        made = self.program.unit_of
        values = [v for v in dict.fromkeys(results) if v in made and not self.program.is_constant(v)]
        arguments = self.arguments if given is None else self._right_values(given)
        wanted = self._right_values(values) if values else None
        if arguments is None or wanted is None:
            return None
        program = FlatProgram(self.program.returning(values, given=given))
        expected = Expected(self.other, program, arguments, self.tolerance, wanted)
        actual = self.ours.run(program.module, arguments)
        if isinstance(actual, Refusal):
            return None
        for value, ours, right, mask in zip(values, actual, wanted, expected.differing(actual), strict=True):
            if mask.any():
                unit = made[value]
                return Found(self.program, unit, unit.results.index(value), [], ours, right, mask), expected
        return None

    def _right_values(self, values: Sequence[Any]) -> list[Array] | None:
        """Return values by the reference, on the program's arguments."""
        known = dict(zip(self.program.arguments, self.arguments, strict=True))
        missing = [v for v in values if v not in known and v not in self._right]
        if missing and not self._right:
            missing = self._all_values() or missing  # one program in the place of many
        if missing:
            found = self.other.run(self.program.returning(missing), self.arguments)
            if isinstance(found, Refusal):
                return None
            self._right |= dict(zip(missing, found, strict=True))
        return [known[v] if v in known else self._right[v] for v in values]

    def _all_values(self) -> list[Any]:
        """Return every value of the program, if they are not too many bytes."""
        values = [r for u in self.program.units for r in u.results if not self.program.is_constant(r)]
        return values if sum(map(self.program.bytes_of, values)) <= self.byte_limit else []

    # ---- smaller ones ----------------------------------------------------------------------------------------------

    def _smallest(self, results: list[Any], end: int) -> tuple[list[Any], list[Any] | None]:
        """Reduce the program: one result, a later beginning, and intermediate values as parameters."""

        def goes_wrong(values: list[Any], given: list[Any]) -> bool:
            return self._wrong_among(values, given) is not None

        if not goes_wrong(results, self.program.used(results, [])):
            return results, None
        alone = ([value] for value in results[:MOST_TRIES])
        results = next((few for few in alone if goes_wrong(few, self.program.used(few, []))), results)
        low, high = 0, end  # beginning at `low` it is wrong
        while high - low > 1:
            middle = (low + high) // 2
            wrong = goes_wrong(results, self.program.used(results, self.program.live_at(middle)))
            low, high = (middle, high) if wrong else (low, middle)
        return results, self._with_gaps(results, self.program.used(results, self.program.live_at(low)), goes_wrong)

    def _with_gaps(
        self, results: list[Any], given: list[Any], goes_wrong: Callable[[list[Any], list[Any]], bool]
    ) -> list[Any]:
        """Replace further operations by given values, one by one, the latest first."""
        inner = (unit for unit in reversed(self.program.needed(results, given)) if not set(unit.results) & {*results})
        movable = (unit for unit in inner if not self.program.is_constant(unit.op.results[0]))
        for unit in islice(movable, MOST_TRIES):
            more = self.program.used(results, [*given, *unit.results])
            if any(r in more for r in unit.results) and goes_wrong(results, more):
                given = more
        return given


def text_of_module(module: Any) -> str:
    """Return MLIR's text with locations."""
    return str(module.operation.get_asm(enable_debug_info=True)).rstrip("\n") + "\n"
