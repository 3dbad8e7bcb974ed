"""Tolerances of operations: exact bits where IEEE requires them, else a bound by rounding.

Operands have the same bits for both, so that errors do not propagate: the tolerance depends on the operation alone.
Functions have a bound in ulps; sums have the error bound of any order of summation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import ml_dtypes
import numpy as np
import numpy.typing as npt

from stablexla.dialects.element_types import BY_DTYPE
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.op_traits import TRAITS, bare, operations
from stablexla.inspection.judging.exact_sums import exact_sums, exceeds_error_bound

Array = npt.NDArray[Any]

# Units in the last place between results in f32 and f64. stablexla keeps to 2 and 3 (docs/numerics.md), the interpreter
# computes f32 in f64. XLA:CPU's own errors are those of that table; its column is added to ours.
FUNCTIONS = {bare(name): traits.xla_ulp for name, traits in TRAITS.items() if traits.xla_ulp}
OURS = (2, 3)
INTERPRETERS = (1, 1)
# Operations that add up, whose result depends on the order.
SUMS = frozenset(bare(name) for name in operations(lambda traits: traits.adds_up))
PRODUCTS = ("dot_general", "dot", "convolution")
"""Of these, those that add up products of two operands."""
# Correctly rounded by every implementation: any difference is a mistake.
EXACT = frozenset(bare(name) for name in operations(lambda traits: traits.is_exact))
# Algorithms with divisions, whose errors are those of the whole: relative to the largest number of the result.
ALGORITHMS = {bare(name): traits.algorithm_units for name, traits in TRAITS.items() if traits.algorithm_units}


_SIGNS_OF_ZERO = frozenset({"reduce", "reduce_window", "dot_general", "convolution", "scatter", "select_and_scatter"})
"""Sums and selections, in which the order of evaluation may decide the sign of a zero."""


class Described(Protocol):
    """An operation as described by its name and its text."""

    @property
    def operation(self) -> str:
        """Its name without the dialect: `add`, `while` ..."""

    @property
    def operations(self) -> frozenset[str]:
        """Names of all operations in it, its own among them."""

    @property
    def text(self) -> str:
        """MLIR's text of it."""


@dataclass(frozen=True)
class Case:
    """A result of an operation by stablexla and by an oracle, from the same operands."""

    statement: Described
    operands: list[Array]
    actual: Array
    wanted: Array
    oracle: str

    @property
    def is_inexact(self) -> bool:
        return self.actual.dtype.kind in "fcV" and BY_DTYPE[self.actual.dtype].kind.value in ("float", "complex")


def ulp_distance(actual: Array, expected: Array) -> Array:
    """Return the number of floats between the elements of two arrays of one type, flat; 0 where both are NaN."""
    assert actual.dtype == expected.dtype, (actual.dtype, expected.dtype)
    signed, unsigned = (np.dtype(f"{kind}{actual.dtype.itemsize}") for kind in "iu")
    lowest = np.iinfo(signed).min
    keys = []
    for array in (actual, expected):
        bits = np.ascontiguousarray(array).reshape(-1).view(signed)
        keys.append(np.where(bits < 0, lowest - bits, bits))
    above, below = np.maximum(*keys), np.minimum(*keys)
    nan = [np.isnan(a.astype(np.float64) if a.dtype.itemsize < 4 else a).reshape(-1) for a in (actual, expected)]
    distance = (above.view(unsigned) - below.view(unsigned)).astype(np.float64)  # which a signed integer may not hold
    return np.where(nan[0] & nan[1], 0.0, np.where(nan[0] | nan[1], np.inf, distance))


def distance_in_ulp(actual: Array, wanted: Array) -> Array:
    """Return the ulps between two arrays, flat; of complex numbers, the larger part's; integers' difference."""
    if actual.dtype.kind == "c":
        parts = [[np.ascontiguousarray(part(a)) for a in (actual, wanted)] for part in (np.real, np.imag)]
        return np.asarray(np.maximum(*(ulp_distance(*pair) for pair in parts)))
    if BY_DTYPE[actual.dtype].is_float:
        return ulp_distance(actual, wanted)
    ours, theirs = (a.reshape(-1).astype(np.float64) for a in (actual, wanted))
    # Integers beyond 2**53 may be different and have equal nearest floats.
    return np.asarray(np.abs(ours - theirs) + np.asarray(actual != wanted).reshape(-1) * 2.0**-60)


def differing(case: Case) -> Array:
    """Return which elements disagree, flat."""
    actual, wanted = case.actual.reshape(-1), case.wanted.reshape(-1)
    if not case.is_inexact:
        return np.asarray(actual != wanted)
    if actual.dtype.kind == "c":
        return _complex_differing(case, actual, wanted)
    ulp, absolute = allowed(case)
    wrong = ulp_distance(actual, wanted) > ulp
    if not ulp and wrong.any() and case.statement.operations & _SIGNS_OF_ZERO:
        wrong &= ~np.asarray((actual == 0) & (wanted == 0))
    if absolute and wrong.any():
        wrong &= distances(actual, wanted) > absolute
    sums = exact_sums(case.statement.text, case.operands) if _adds_up(case) else None
    # Another implementation may have lost the same digits; sums in a wider type have not.
    return wrong if sums is None else wrong | exceeds_error_bound(case.actual, sums)


def _complex_differing(case: Case, actual: Array, wanted: Array) -> Array:
    """Compare complex numbers by the error of the larger part; NaN and infinities must be in the same parts."""
    ulp, absolute = allowed(case)
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(wanted.real), np.abs(wanted.imag)).astype(np.float64)
        bound = np.where(np.isfinite(size), size, 0) * float(limits_of(actual.dtype).eps) * ulp + absolute
    return np.asarray(distances(actual, wanted) > bound)


def allowed(case: Case) -> tuple[float, float]:
    """Return the allowed error in ulps, and an absolute difference that is always allowed."""
    name, element = case.statement.operation, BY_DTYPE[case.actual.dtype]
    double = element.part.name == "f64"
    eps = (
        float(np.finfo(np.float64 if double else np.float32).eps)
        if element.bits >= 32
        else 2.0 ** -_fraction(element.name)
    )
    if name in FUNCTIONS or (element.is_complex and name in ("divide", "sign", "abs")) or _of_complex(case, "abs"):
        own = OURS[double] if element.bits >= 32 else 1
        other = INTERPRETERS[double] if case.oracle != "xla" else FUNCTIONS.get(name, (8, 8))[double]
        factor = 3 if element.is_complex or _of_complex(case, "abs") else 1
        return factor * (own + (other if element.bits >= 32 else 0)), 0.0
    if element.is_complex and name == "multiply":
        return 4, 0.0
    if _adds_up(case):
        return 1, _sum_bound(case, eps)
    for algorithm, units in ALGORITHMS.items():
        if algorithm in case.statement.operations:
            return units, units * eps * largest([case.wanted])
    return 0, 0.0


UNKNOWN_UNITS = 8.0
"""Ulps that an operation without a row in the table rounds, or one that is written out as several."""
_NO_ARITHMETIC = frozenset({"while", "if", "case", "map", "return", "constant", "call", "func", "optimization_barrier"})


def rounding_units(found: Described) -> float:
    """Return the ulps by which two implementations of an operation may differ in f32; 0 where it is exact."""
    names = found.operations - _NO_ARITHMETIC - EXACT
    if not names & {"add", "multiply", *PRODUCTS, "fft"} and not found.operations & {"add", "multiply"}:
        names -= SUMS  # of maxima and the like
    return max((FUNCTIONS[n][0] + OURS[0] if n in FUNCTIONS else UNKNOWN_UNITS for n in names), default=0.0)


def _of_complex(case: Case, name: str) -> bool:
    return case.statement.operation == name and bool(case.operands) and case.operands[0].dtype.kind == "c"


def _adds_up(case: Case) -> bool:
    found = case.statement
    if found.operation not in SUMS:
        return False
    return found.operation in (*PRODUCTS, "fft") or bool(found.operations & {"add", "multiply"})


def is_sum(case: Case) -> bool:
    """Return whether a result has an error bound by its terms."""
    found = case.statement
    adds = found.operation in PRODUCTS or "add" in found.operations
    return case.is_inexact and found.operation in SUMS and found.operation != "fft" and adds


def is_known(case: Case) -> bool:
    """Return whether the table has a row for an operation that is not exact."""
    name = case.statement.operation
    return name in FUNCTIONS or name in ALGORITHMS or name == "fft" or case.actual.dtype.kind == "c"


def error_bound(case: Case, exact: Array, terms: Array | None = None, magnitude: Array | None = None) -> Array:
    """Return how far rounding may carry each element, flat, from the exact result.

    Args:
        exact: the result in f64.
        terms, magnitude: of a sum, the number of its terms and the sum of their magnitudes.
    """
    info = limits_of(case.actual.dtype)
    is_double, name = BY_DTYPE[case.actual.dtype].part.bits == 64, case.statement.operation
    with np.errstate(all="ignore"):
        size, unit = np.abs(_wide(exact)).reshape(-1), float(info.eps) / 2
        one = np.maximum(size * unit * 2, float(info.smallest_subnormal))
        if is_sum(case):
            if terms is None or magnitude is None:
                return np.full(size.shape, np.inf)
            sides = 2 if is_double else 1
            return np.asarray(one + sides * (np.abs(terms).reshape(-1) + 4) * unit * np.abs(magnitude).reshape(-1))
        if name == "fft":
            return np.asarray(one + 32 * unit * largest([exact]) * np.log2(max(case.operands[0].size, 2)))
        if name in ALGORITHMS:
            return np.asarray(one + 2 * ALGORITHMS[name] * unit * largest([exact]))
        factor = (3 if np.iscomplexobj(exact) else 1) * (1 if name in FUNCTIONS else 2)
        return np.asarray(one * OURS[is_double] * factor)


def distances(one: Array, other: Array) -> Array:
    """Return the distances of numbers, flat, of complex ones the larger part's; infinite where only one of the two is
    NaN or that infinity."""
    if np.iscomplexobj(one) or np.iscomplexobj(other):
        return np.asarray(np.maximum(*(distances(part(one), part(other)) for part in (np.real, np.imag))))
    with np.errstate(all="ignore"):
        a, b = _wide(one).reshape(-1), _wide(other).reshape(-1)
        apart = np.abs(a - b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def _sum_bound(case: Case, eps: float) -> float:
    """Return the bound n * n * m * eps between two orders of summation of n terms of magnitude m."""
    product = case.statement.operation in PRODUCTS
    count = terms(case)
    magnitude = (
        prod(largest([o]) for o in case.operands)
        if product
        else max(map(largest, ([o] for o in case.operands)), default=0.0)
    )
    return 2 * count * (count + 2) * eps * magnitude


def terms(case: Case) -> int:
    """Return the largest number of terms that are summed for one result."""
    shapes = [o.size for o in case.operands]
    if case.statement.operation in ("dot_general", "dot"):
        result = max(case.actual.size, 1)
        return max(1, round((shapes[0] * shapes[1] / result) ** 0.5)) if shapes[0] * shapes[1] else 1
    if case.statement.operation == "fft":
        return max(4, int(np.log2(max(shapes[0], 2))) * 4)
    return max(1, *shapes)


def largest(arrays: Sequence[Array]) -> float:
    found = 0.0
    for array in arrays:
        if BY_DTYPE[array.dtype].is_pred or array.dtype.kind in "iu":
            continue
        wide = np.abs(_wide(array))
        found = max(found, float(np.max(wide, initial=0.0, where=np.isfinite(wide))))
    return found


def _wide(array: Array) -> Array:
    with np.errstate(all="ignore"):
        return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _fraction(name: str) -> int:
    """Return the number of fraction bits of a float type."""
    found = re.search(r"m(\d)", name)
    return {"bf16": 7, "f16": 10}.get(name) or int(found[1] if found else 1)


def overflows(case: Case) -> bool:
    """Return whether sums may overflow: then the order decides between a number and an infinity."""
    if not (case.is_inexact and _adds_up(case)):
        return False
    if "multiply" in case.statement.operations and case.statement.operation not in PRODUCTS:
        return _products_overflow(case)
    top = float(limits_of(case.actual.dtype).max)
    m = [largest([o]) for o in case.operands]
    size = prod(m) if case.statement.operation in PRODUCTS else max(m, default=0.0)
    return terms(case) * size * 2 > top


def _products_overflow(case: Case) -> bool:
    """Return whether some of the numbers that are multiplied by one another may overflow, or be lost."""
    info = limits_of(case.actual.dtype)
    sizes = np.concatenate([np.abs(_wide(o)).reshape(-1) for o in case.operands if o.dtype == case.actual.dtype])
    with np.errstate(all="ignore"):
        digits = np.log2(sizes[np.isfinite(sizes) & (sizes > 0)])
    return bool(
        digits.clip(min=0).sum() > np.log2(float(info.max)) - 1
        or digits.clip(max=0).sum() < np.log2(float(info.smallest_normal)) + 1
    )


def limits_of(dtype: np.dtype[Any]) -> Any:
    """Return the limits of a type of floats or complex numbers: `eps`, `max` and the like."""
    finfo: Any = ml_dtypes.finfo
    return finfo(dtype)
