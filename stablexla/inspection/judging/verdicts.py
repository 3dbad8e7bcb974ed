"""Decides whether an operation's result is right, given another implementation's result for the same operands.

First by the table of `tolerances.py`. In doubtful cases, and for all sums, the other implementation runs again in f64,
which gives the exact result and the error bound of its terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import cache
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.dialects.element_types import BY_DTYPE
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.inspection.comparing.ways import Way
from stablexla.inspection.judging.known_faults import FAULTS
from stablexla.inspection.judging.tolerances import (
    EXACT,
    Array,
    Case,
    differing,
    distance_in_ulp,
    distances,
    error_bound,
    is_known,
    is_sum,
)
from stablexla.inspection.program import FlatProgram, ProgramOperation
from stablexla.processes.questions import Refusal

_FLOATS = re.compile(r"(?<![A-Za-wyz\d_!%@#])(?:f16|f32|bf16|f8E\w+|f6E\w+|f4E\w+)(?!\w)")
# Difference of sums, in ulps, that is accepted without further evaluation.
NEAR = 4
# Functions of f64 that no table has are written out as several operations by the other implementations.
WRITTEN_OUT = 4096
InDoubles = Callable[[str], "Array | None"]
CHANGES: dict[str, Callable[[Array], Array]] = {"exact": np.asarray, "magnitude": np.abs, "terms": np.ones_like}
"""Element types of the float operands: for the right result, the sum of the magnitudes, and the number of terms."""


@dataclass
class Judge:
    """Judges results by one other implementation.

    Attributes:
        other: the reference for results.
        ulp: units in the last place that are allowed everywhere, in the place of the tables.
        faults: the excused differences so far, with their counts.
    """

    other: Way
    ulp: float | None = None
    faults: dict[str, int] = field(default_factory=dict)
    _doubles: tuple[tuple[Any, ...], InDoubles] | None = None

    def wrong(
        self,
        program: FlatProgram,
        unit: ProgramOperation,
        reads: Sequence[Array],
        number: int,
        actual: Array,
        wanted: Array,
    ) -> Array:
        """Return which elements, flat, of a result of an operation are wrong.

        Args:
            program: where the operation stands.
            unit: the operation.
            reads: its operands: the values of `unit.reads`.
            number: which of its results it is.
            actual, wanted: the result here, and by the other.
        """
        if self.ulp is not None:
            return np.asarray(distance_in_ulp(actual, wanted) > self.ulp)
        known = dict(zip(unit.reads, reads, strict=True))
        case = Case(unit, [known[v] for v in unit.op.operands], actual, wanted, self.other.name)
        wrong = np.asarray(distance_in_ulp(actual, wanted) > NEAR) if is_sum(case) else differing(case)
        for fault in FAULTS if wrong.any() else ():
            left = wrong & ~fault.explains(case, wrong)
            if not np.array_equal(left, wrong):
                self.faults[fault.name] = self.faults.get(fault.name, 0) + 1
            wrong = left
        is_exact = unit.operation in EXACT and actual.dtype.kind != "c"
        if wrong.any() and case.is_inexact and not is_exact:
            wrong = wrong & self._beyond_truth(program, unit, reads, number, case)
        return wrong

    def _beyond_truth(
        self, program: FlatProgram, unit: ProgramOperation, operands: Sequence[Array], number: int, case: Case
    ) -> Array:
        """Return the elements further from the f64 result than rounding allows, and than the other's."""
        is_double = BY_DTYPE[case.actual.dtype].part.bits == 64
        if is_double and not is_sum(case):
            return differing(case) if is_known(case) else distance_in_ulp(case.actual, case.wanted) > WRITTEN_OUT
        key = (unit, number, *map(id, operands))  # what was judged last may be judged again
        if self._doubles is None or self._doubles[0] != key:
            self._doubles = key, _in_doubles(self.other, program, unit, operands, number)
        doubles = self._doubles[1]
        exact = case.wanted if is_double else doubles("exact")
        if exact is None:
            return differing(case)
        sums = (doubles("terms"), doubles("magnitude")) if is_sum(case) else (None, None)
        error, others = distances(case.actual, exact), distances(case.wanted, exact)
        return np.asarray((error > error_bound(case, exact, *sums)) & (is_double | (error > others)))


def _in_doubles(
    other: Way, program: FlatProgram, unit: ProgramOperation, operands: Sequence[Array], number: int
) -> InDoubles:
    """Return a function that evaluates an operation with every float type replaced by f64, and with operands changed
    by one of `CHANGES`; it gives None where there is no result."""
    replay = program.apart([unit], constants=-1)
    text = str(replay.module.operation.get_asm(enable_debug_info=False, large_elements_limit=None))
    try:
        module = ir.Module.parse(_FLOATS.sub("f64", text), replay.module.context)
    except ir.MLIRError:  # a type that is part of the operation's meaning
        return lambda what: None

    def double(array: Array, change: Callable[[Array], Array]) -> Array:
        kind = BY_DTYPE[array.dtype]
        if not (kind.is_float or kind.is_complex):
            return array
        wide = np.complex128 if kind.is_complex else np.float64
        return np.asarray(change(array.astype(wide))).astype(wide)

    @cache
    def run(what: str) -> Array | None:
        found = other.run(module, [double(a, CHANGES[what]) for a in operands])
        result = None if isinstance(found, Refusal) else found[number]
        return result if result is not None and result.dtype.kind in "fc" else None

    return run
