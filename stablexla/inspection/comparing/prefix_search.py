"""The second search: prefixes of programs that become right when they return more values.

Prefixes are compiled unchanged: the last right one and the first wrong one differ by one operation. The wrong one is
then reduced: it begins later, and operations in between are dropped, as long as it stays wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import numpy.typing as npt

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.inspection.comparing.findings import SmallProgram
from stablexla.inspection.comparing.operation_search import Found, Progress, exceeds_rounding, no_progress
from stablexla.inspection.comparing.ways import Compiled, Way
from stablexla.inspection.program import FlatProgram, ProgramOperation
from stablexla.processes.questions import Refusal

Array = npt.NDArray[Any]
MOST_TRIES = 60


@dataclass
class Prefixes:
    """Programs made of the first operations of a program.

    Attributes:
        ours: the way under test.
        trusted: the way with the right values.
        program: the program.
        arguments: its arguments.
        tolerance: as for results.
        byte_limit: bytes of values that are held at a time.
        tried: how many programs were compiled.
    """

    ours: Compiled
    trusted: Way
    program: FlatProgram
    arguments: list[Array]
    tolerance: float | None = None
    byte_limit: int = 256 << 20
    progress: Progress = no_progress
    tried: int = 0
    _right: dict[Any, Array] = field(default_factory=dict)

    def find(self) -> tuple[Found, ProgramOperation, SmallProgram] | None:
        """Find the operation whose value becomes wrong, the operation that triggers it, and a small program."""
        count = len(self.program.units)
        if self._wrong_among(self.program.returns, None) is None:
            return None
        low, high = 0, count  # with `low` operations it is right, with `high` it is wrong
        while high - low > 1:
            middle = (low + high) // 2
            self.progress("programs that end earlier", count - (high - low), count)
            if self._wrong_among(self._ends(middle), None) is None:
                low = middle
            else:
                high = middle
        results = self._ends(high) if high < count else list(self.program.returns)
        results, given = self._smallest(results, high)
        wrong = self._wrong_among(results, given)
        if wrong is None:
            return None
        value, actual, wanted, mask = wrong
        unit = self.program.unit_of[value]
        found = Found(self.program, unit, unit.results.index(value), [], actual, wanted, mask)
        return found, self.program.units[high - 1], self._small_program(results, given)

    def _ends(self, count: int) -> list[Any]:
        """Return the values of the prefix that later operations, or the caller, use."""
        last = self.program.units[count - 1].number if count else -1
        return [v for v in self.program.live_at(count) if v in self.program.unit_of and self._made_by(v) <= last]

    def _made_by(self, value: Any) -> int:
        return self.program.unit_of[value].number

    # ---- whether a program is wrong ---------------------------------------------------------------------------------

    def _wrong_among(
        self, results: Sequence[Any], given: Sequence[Any] | None
    ) -> tuple[Any, Array, Array, Array] | None:
        """Return the first wrong result where the program returns all of them, given right values of `given`."""
        values = [v for v in dict.fromkeys(results) if v in self.program.unit_of and not self.program.is_constant(v)]
        if not values:
            return None
        self.tried += 1
        arguments = self.arguments if given is None else self._right_values(given)
        wanted = self._right_values(values)
        if arguments is None or wanted is None:
            return None
        actual = self.ours.run(self.program.returning(results, given=given), arguments)
        if isinstance(actual, Refusal):
            return None
        for value, right in zip(values, wanted, strict=True):
            ours = actual[list(results).index(value)]
            mask = exceeds_rounding(ours, right, self.tolerance)
            if mask.any():
                return value, ours, right, mask
        return None

    def _right_values(self, values: Sequence[Any]) -> list[Array] | None:
        """Return values by the trusted way, on the program's arguments."""
        known = dict(zip(self.program.arguments, self.arguments, strict=True))
        missing = [v for v in values if v not in known and v not in self._right]
        if missing and not self._right:
            missing = self._all_values() or missing  # one program in the place of many
        if missing:
            found = self.trusted.run(self.program.returning(missing), self.arguments)
            if isinstance(found, Refusal):
                return None
            self._right |= dict(zip(missing, found, strict=True))
        return [known[v] if v in known else self._right[v] for v in values]

    def _all_values(self) -> list[Any]:
        """Return every value of the program, if they are not too many bytes."""
        values = [r for u in self.program.units for r in u.results if not self.program.is_constant(r)]
        return values if sum(map(self.program.bytes_of, values)) <= self.byte_limit else []

    # ---- smaller ones ----------------------------------------------------------------------------------------------

    def _smallest(self, results: list[Any], end: int) -> tuple[list[Any], list[Any]]:
        """Reduce the program: fewer results, a later beginning, and intermediate values as parameters."""

        def goes_wrong(values: list[Any], given: list[Any]) -> bool:
            return self._wrong_among(values, given) is not None

        given = self.program.used(results, [])
        if not goes_wrong(results, given):
            return results, given
        results = _without(results, lambda fewer: goes_wrong(fewer, self.program.used(fewer, [])))
        low, high = 0, end  # beginning at `low` it is wrong
        while high - low > 1:
            middle = (low + high) // 2
            if goes_wrong(results, self.program.used(results, self.program.live_at(middle))):
                low = middle
            else:
                high = middle
        given = self.program.used(results, self.program.live_at(low))
        return results, self._with_gaps(results, given, goes_wrong)

    def _with_gaps(
        self, results: list[Any], given: list[Any], goes_wrong: Callable[[list[Any], list[Any]], bool]
    ) -> list[Any]:
        """Replace further operations by given values, one by one, the latest first."""
        tries = 0
        for unit in reversed(self._kept(results, given)):
            if tries == MOST_TRIES:
                break
            if any(r in results for r in unit.results) or self.program.is_constant(unit.op.results[0]):
                continue
            tries += 1
            more = self.program.used(results, [*given, *unit.results])
            if any(r in more for r in unit.results) and goes_wrong(results, more):
                given = more
        return given

    def _kept(self, results: list[Any], given: list[Any]) -> list[ProgramOperation]:
        return self.program.needed(results, given)

    def _small_program(self, results: list[Any], given: list[Any]) -> SmallProgram:
        module = self.program.returning(results, given=given)
        arguments = self._right_values(given) or []
        wanted = self.trusted.run(module, arguments)
        return SmallProgram(
            text_of_module(module),
            tuple(arguments),
            len(self._kept(results, given)),
            None if isinstance(wanted, Refusal) else tuple(wanted),
        )


def _without(values: list[Any], still: Callable[[list[Any]], bool]) -> list[Any]:
    """Return one of the values if it suffices, else all of them."""
    if len(values) == 1:
        return values
    for value in values[:MOST_TRIES]:
        if still([value]):
            return [value]
    return values


def text_of_module(module: Any) -> str:
    """Return MLIR's text with locations."""
    return str(module.operation.get_asm(enable_debug_info=True)).rstrip("\n") + "\n"
