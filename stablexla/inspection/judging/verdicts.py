"""Decides whether an operation's result is right, given another implementation's result for the same operands.

First by the tables of `judgement.py`. In doubtful cases, and for all sums, the other implementation runs again in f64,
which gives the exact result and the error bound of its terms.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import jaxlib.mlir.ir as ir
import ml_dtypes
import numpy as np
import numpy.typing as npt

from stablexla.dialects.element_types import BY_DTYPE, ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.inspection.comparing.ways import Way
from stablexla.inspection.judging.known_faults import FAULTS
from stablexla.inspection.judging.tolerances import (
    ALGORITHMS,
    EXACT,
    FUNCTIONS,
    OURS,
    SUMS,
    Case,
    differing,
    distance_in_ulp,
)
from stablexla.inspection.program import FlatProgram, ProgramOperation
from stablexla.processes.questions import Refusal

Array = npt.NDArray[Any]
_FLOATS = re.compile(r"(?<![A-Za-wyz\d_!%@#])(?:f16|f32|bf16|f8E\w+|f6E\w+|f4E\w+)(?!\w)")
# Difference of sums, in ulps, that is accepted without further evaluation.
NEAR = 4
# Functions of f64 that no table has are written out as several operations by the other implementations.
WRITTEN_OUT = 4096


@dataclass(frozen=True)
class Verdict:
    """The judgement on a result.

    Attributes:
        wrong: which elements are wrong, flat.
        faults: known faults of the other implementation that explain differences, and what the standard leaves open.
    """

    wrong: Array
    faults: tuple[str, ...] = ()


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
    _doubles: tuple[tuple[int, ...], _InF64] | None = None

    def verdict(
        self,
        program: FlatProgram,
        unit: ProgramOperation,
        reads: Sequence[Array],
        number: int,
        actual: Array,
        wanted: Array,
        operands: Sequence[Array],
    ) -> Verdict:
        """Judge one result of an operation.

        Args:
            program: where the operation stands.
            unit: the operation.
            reads: its operands: the values of `unit.reads`.
            number: which of its results it is.
            actual, wanted: the result here, and by the other.
            operands: the values of its operands, one that is read twice twice.
        """
        case = Case(unit, list(operands), actual, wanted, self.other.name)
        if self.ulp is not None:
            return Verdict(_beyond(actual, wanted, self.ulp))
        wrong = _beyond(actual, wanted, NEAR) if _is_sum(case) else differing(case)
        if not wrong.any():
            return Verdict(wrong)
        found = []
        for fault in FAULTS:
            left = wrong & ~fault.explains(case, wrong)
            if not np.array_equal(left, wrong):
                found.append(fault.name)
                self.faults[fault.name] = self.faults.get(fault.name, 0) + 1
            wrong = left
        if wrong.any() and case.is_inexact and not self._is_exact(case):
            wrong = wrong & self._beyond_truth(program, unit, reads, number, case)
        return Verdict(wrong, tuple(found))

    @staticmethod
    def _is_exact(case: Case) -> bool:
        element = BY_DTYPE[case.actual.dtype]
        return case.statement.operation in EXACT and not element.is_complex and case.actual.dtype.kind != "c"

    # ---- in f64 ----------------------------------------------------------------------------------------------------

    def _beyond_truth(
        self, program: FlatProgram, unit: ProgramOperation, operands: Sequence[Array], number: int, case: Case
    ) -> Array:
        """Return the elements further from the f64 result than rounding allows, and than the other's."""
        is_double = BY_DTYPE[case.actual.dtype].part.bits == 64
        if is_double and not _is_sum(case):
            return _beyond_tables(case)
        doubles = self._in_doubles(program, unit, operands, number)
        exact = _wide(case.wanted) if is_double else doubles.run("exact")
        if exact is None:
            return differing(case)
        exact = exact.reshape(-1)
        bound = self._bound(case, doubles, exact)
        with np.errstate(all="ignore"):
            ours, theirs = (_wide(a).reshape(-1) for a in (case.actual, case.wanted))
            error, others = _distance(ours, exact), _distance(theirs, exact)
            return np.asarray((error > bound) & (is_double | (error > others)))

    def _in_doubles(
        self, program: FlatProgram, unit: ProgramOperation, operands: Sequence[Array], number: int
    ) -> _InF64:
        """Evaluate the operation in f64; the last one is cached, as it may be judged again."""
        key = (id(unit), number, *map(id, operands))
        if self._doubles is None or self._doubles[0] != key:
            self._doubles = key, _InF64(self.other, program, unit, operands, number)
        return self._doubles[1]

    def _bound(self, case: Case, doubles: _InF64, exact: Array) -> Array:
        """Return the error bound by rounding of each element."""
        unit_, least = _unit(BY_DTYPE[case.actual.dtype].part)
        with np.errstate(all="ignore"):
            size = np.abs(exact)
            one = np.maximum(size * unit_ * 2, least)
            largest = float(np.max(size, initial=0.0, where=np.isfinite(size)))
            if _is_sum(case):
                count, magnitude = doubles.run("terms"), doubles.run("magnitude")
                if count is None or magnitude is None:
                    return np.full(exact.shape, np.inf)
                sides = 2 if BY_DTYPE[case.actual.dtype].part.bits == 64 else 1
                terms = np.abs(count).reshape(-1) + 4
                return np.asarray(one + sides * terms * unit_ * np.abs(magnitude).reshape(-1))
            name = case.statement.operation
            if name == "fft":
                return np.asarray(one + 32 * unit_ * largest * np.log2(max(case.operands[0].size, 2)))
            if name in ALGORITHMS:
                return np.asarray(one + 2 * ALGORITHMS[name] * unit_ * largest)
            own = OURS[BY_DTYPE[case.actual.dtype].part.bits == 64]
            return np.asarray(one * (3 * own if np.iscomplexobj(exact) else own) * (1 if name in FUNCTIONS else 2))


def _beyond_tables(case: Case) -> Array:
    name = case.statement.operation
    is_known = name in FUNCTIONS or name in ALGORITHMS or name == "fft" or case.actual.dtype.kind == "c"
    return differing(case) if is_known else _beyond(case.actual, case.wanted, WRITTEN_OUT)


class _InF64:
    """An operation evaluated by the other implementation, with every float type replaced by f64."""

    def __init__(
        self, other: Way, program: FlatProgram, unit: ProgramOperation, operands: Sequence[Array], number: int
    ) -> None:
        self._other, self._operands, self._number = other, operands, number
        self._unit = unit  # so that its number in memory is its own for as long as this is kept
        self._known: dict[str, Array | None] = {}
        replay = program.apart([unit], constants=-1)
        text = str(replay.module.operation.get_asm(enable_debug_info=False, large_elements_limit=None))
        try:
            self._module: Any = ir.Module.parse(_FLOATS.sub("f64", text), replay.module.context)
        except ir.MLIRError:  # a type that is part of the operation's meaning
            self._module = None

    def run(self, what: str) -> Array | None:
        """Return the result for operands changed by `CHANGES`; None where there is none."""
        if what not in self._known:
            self._known[what] = self._run(CHANGES[what])
        return self._known[what]

    def _run(self, change: Callable[[Array], Array]) -> Array | None:
        if self._module is None:
            return None
        found = self._other.run(self._module, [_double(a, change) for a in self._operands])
        if isinstance(found, Refusal):
            return None
        result = found[self._number]
        return result if result.dtype.kind in "fc" else None


CHANGES: dict[str, Callable[[Array], Array]] = {
    "exact": lambda a: a,
    "magnitude": lambda a: np.abs(a),
    "terms": lambda a: np.ones_like(a),
}
"""What every float operand is made for the right result, the sum of the magnitudes, and the number of the terms."""


def _double(array: Array, change: Callable[[Array], Array]) -> Array:
    kind = BY_DTYPE[array.dtype]
    if kind.is_complex:
        return np.asarray(change(array.astype(np.complex128))).astype(np.complex128)
    return np.asarray(change(array.astype(np.float64))) if kind.is_float else array


def _is_sum(case: Case) -> bool:
    name, names = case.statement.operation, case.statement.operations
    if not case.is_inexact or name not in SUMS or name == "fft":
        return False
    return name in ("dot_general", "dot", "convolution") or "add" in names


def _beyond(actual: Array, wanted: Array, ulp: float) -> Array:
    """Return the elements that differ by more than so many ulps."""
    return np.asarray(distance_in_ulp(actual, wanted) > ulp)


_PARTS = (np.real, np.imag)


def _wide(array: Array) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(array.astype(np.complex128 if array.dtype.kind == "c" else np.float64))


def _distance(one: Array, other: Array) -> Array:
    """Return the distances of numbers; infinities and NaN must be at the same positions."""
    if np.iscomplexobj(one):
        return np.asarray(np.maximum(*(_distance(p(one), p(other)) for p in _PARTS)))
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    apart = np.abs(one - other)
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _unit(element: ElementType) -> tuple[float, float]:
    """Return the unit roundoff of a float type, and its least number."""
    finfo: Any = ml_dtypes.finfo
    found = finfo(element.dtype)
    return float(found.eps) / 2, float(found.smallest_subnormal)
