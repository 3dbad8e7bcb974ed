"""Known differences from the oracles: their faults, or freedoms of the specification, with the reasons.

Each excused difference is counted by its name, and reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from stablexla.dialects.element_types import BY_DTYPE, FINITE_ONLY
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.op_traits import bare, operations
from stablexla.inspection.judging.tolerances import ALGORITHMS, Array, Case, largest, limits_of, overflows, terms

# The differing elements (flat) that a fault explains: a mask, or all or none.
Excuse = Callable[[Case, Array], "Array | bool"]


@dataclass(frozen=True)
class Fault:
    """A known difference.

    Attributes:
        name: its name in reports.
        reason: why it is not a mistake of stablexla.
        excuses: the differences that it explains.
        oracle: whose fault it is; empty for what the specification leaves open.
        operations: the operations that it is of; none stand for all.
    """

    name: str
    reason: str
    excuses: Excuse
    oracle: str = ""
    operations: frozenset[str] = frozenset()

    def explains(self, case: Case, wrong: Array) -> Array:
        """Return which of the differing elements it explains."""
        is_of = not self.operations or case.statement.operation in self.operations
        if not is_of or self.oracle not in ("", case.oracle):
            return np.zeros(wrong.shape, bool)
        with np.errstate(all="ignore"):
            return np.asarray(np.broadcast_to(np.asarray(self.excuses(case, wrong), bool), wrong.shape) & wrong)


FAULTS: list[Fault] = []
COMPLEX_FUNCTIONS = " ".join(bare(name) for name in operations(lambda traits: traits.complex_ulp))
Register = Callable[[Excuse], Excuse]


def fault(name: str, reason: str, oracle: str = "", of: str = "") -> Register:
    """Register what a function excuses; `of` names the operations, with blanks between them."""

    def register(excuses: Excuse) -> Excuse:
        FAULTS.append(Fault(f"{oracle or 'open'}: {name}", reason, excuses, oracle, frozenset(of.split())))
        return excuses

    return register


def _is_inexact(array: Array) -> bool:
    type_ = BY_DTYPE[array.dtype]
    return type_.is_float or type_.is_complex


def _floats(case: Case) -> list[Array]:
    """Return the operands that are no integers."""
    return [o for o in case.operands if _is_inexact(o)]


def _flat(array: Array) -> Array:
    """Return the real parts in f64, flat."""
    return np.real(array).astype(np.float64).reshape(-1)


# ---- numbers ---------------------------------------------------------------------------------------------------------


@fault("denormals are zeros", "XLA:CPU flushes denormal operands and results, StableHLO keeps them", "xla")
def denormals(case: Case, wrong: Array) -> Array | bool:
    floats = [*_floats(case), *(a for a in (case.actual, case.wanted) if _is_inexact(a))]
    if any(a.shape != case.actual.shape for a in floats):
        return any(bool(_is_denormal(a).any()) for a in floats)
    found = np.zeros(wrong.shape, bool)
    for array in floats:
        found |= _is_denormal(array).reshape(-1)
    return found


def _is_denormal(array: Array) -> Array:
    if array.dtype.kind == "c":
        return np.asarray(_is_denormal(array.real) | _is_denormal(array.imag))
    tiny = {"float64": 2.0**-1022, "float16": 2.0**-14}.get(array.dtype.name, 2.0**-126)
    wide = np.abs(array.astype(np.float64))
    return np.asarray((wide > 0) & (wide < tiny))


@fault("sums that overflow", "whether a sum passes through infinity depends on its order, which is left open")
def overflowing(case: Case, wrong: Array) -> bool:
    return overflows(case)


@fault("functions", "further from the exact value (mpmath) than stablexla, which is within its bounds", "interpreter")
@fault("functions", "further from the exact value (mpmath) than stablexla, which is within its bounds", "xla")
def functions(case: Case, wrong: Array) -> Array | bool:
    """Excuse what is right by mpmath; nothing where it is not installed."""
    try:
        from stablexla.inspection.judging.exact_functions import right_by_mpmath
    except ImportError:
        return False
    return right_by_mpmath(case, wrong)


@fault("complex functions of infinities, NaN and 0", "C99's Annex G; held by tests/ops/test_complex.py",
       of=COMPLEX_FUNCTIONS)  # fmt: skip
def complex_special_values(case: Case, wrong: Array) -> Array | bool:
    if case.operands[0].dtype.kind != "c" or any(o.size != wrong.size for o in case.operands):
        return False
    has_pole = case.statement.operation in ("power", "log", "rsqrt", "divide", "cbrt", "sign")
    found = np.zeros(wrong.shape, bool)
    for operand in (o.reshape(-1) for o in case.operands):
        found |= ~np.isfinite(operand) | ((operand == 0) & has_pole)
    return found


@fault("conversions out of range", "of NaN, or of what an integer type cannot hold, to it: left to the implementation",
       of="convert")  # fmt: skip
def conversions_out_of_range(case: Case, wrong: Array) -> Array | bool:
    target = BY_DTYPE[case.actual.dtype]
    if not target.is_integer or not _floats(case) or case.operands[0].size != wrong.size:
        return False
    low, high = (-(2.0 ** (target.bits - 1)), 2.0 ** (target.bits - 1)) if target.is_signed else (0.0, 2.0**target.bits)
    numbers = np.trunc(_flat(case.operands[0]))
    return np.asarray(~((numbers >= low) & (numbers < high)))


@fault("conversions to small floats out of range", "gives 0; those types end at their largest number", "xla", "convert")
@fault("conversions to small floats out of range", "of infinities: 0 as well", "interpreter", "convert")
def conversions_to_small_floats(case: Case, wrong: Array) -> Array | bool:
    """Excuse differences of NaN, which those types lack, and where stablexla has the largest number of a sign."""
    if not (most := FINITE_ONLY.get(BY_DTYPE[case.actual.dtype].name)) or not case.operands:
        return False
    numbers = _flat(case.operands[0])
    held = _flat(case.actual) == np.copysign(most, numbers)
    return np.asarray(np.isnan(numbers) | held & (np.abs(numbers) > most))


@fault("divisions by 0", "of integers, and of the smallest by -1: left to the implementation; here they never trap",
       of="divide remainder")  # fmt: skip
def divisions_by_zero(case: Case, wrong: Array) -> Array | bool:
    if _is_inexact(case.actual):
        return False
    dividend, divisor = ((case.operands * 2)[i].astype(object).reshape(-1) for i in (0, 1))
    smallest = -(2 ** (BY_DTYPE[case.actual.dtype].bits - 1))
    return np.asarray((divisor == 0) | ((divisor == -1) & (dividend == smallest)), bool)


@fault("types without infinities", "what they make of these, of NaN and 0 is left open; here ml_dtypes decides",
       "interpreter")  # fmt: skip
def types_without_infinities(case: Case, wrong: Array) -> Array | bool:
    """Excuse where the result is the largest number, zero or NaN."""
    if BY_DTYPE[case.actual.dtype].mlir not in ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E8M0FNU"):
        return False
    found = np.abs(_flat(case.actual))
    return np.asarray((found == 0) | np.isnan(found) | (found == float(limits_of(case.actual.dtype).max)))


@fault("NaN without a fraction", "reduce_precision to 0 bits of fraction makes NaN infinite; it has to stay",
       "interpreter", "reduce_precision")  # fmt: skip
def nan_without_fraction(case: Case, wrong: Array) -> Array | bool:
    return "m0 " in case.statement.text and np.isnan(_flat(case.operands[0]))


@fault("rounding in small types", "by way of a power of two that f8E3M4 and f6E2M3FN do not have: NaN", "interpreter",
       "ceil floor round_nearest_afz round_nearest_even")  # fmt: skip
def rounding_in_small_types(case: Case, wrong: Array) -> Array | bool:
    if BY_DTYPE[case.actual.dtype].mlir not in ("f8E3M4", "f6E2M3FN"):
        return False
    way = {"ceil": np.ceil, "floor": np.floor, "round_nearest_even": np.rint}.get(case.statement.operation, _away)
    return np.asarray(_flat(case.actual) == way(_flat(case.operands[0])))


def _away(numbers: Array) -> Array:
    return np.asarray(np.copysign(np.floor(np.abs(numbers) + 0.5), numbers))


@fault("powers of integers", "takes exponents by their six lowest bits", "xla", "power")
def powers_of_integers(case: Case, wrong: Array) -> Array | bool:
    """Excuse differences only where stablexla has the power, modulo the type's range."""
    if _is_inexact(case.actual):
        return False
    bits = BY_DTYPE[case.actual.dtype].bits
    rows = zip(*(map(int, a.reshape(-1)) for a in (*case.operands[:2], case.actual)), strict=True)
    return np.asarray([e > 63 and pow(base, e, 1 << bits) == found % (1 << bits) for base, e, found in rows], bool)


@fault("powers of one", "NaN where the exponent is a signalling NaN, and 1 where it is a quiet one", "xla", "power")
def powers_of_one(case: Case, wrong: Array) -> Array | bool:
    """Excuse 1 for the power of 1 by NaN: StableHLO does not tell the two kinds apart."""
    if not BY_DTYPE[case.actual.dtype].is_float:
        return False
    base, exponent = map(_flat, case.operands[:2])
    return np.asarray((base == 1) & np.isnan(exponent) & (case.actual.reshape(-1) == 1))


@fault("bits of small integers", "counts the bits of the byte that holds an s4 or s2", "xla",
       "popcnt count_leading_zeros")  # fmt: skip
def bits_of_small_integers(case: Case, wrong: Array) -> bool:
    return case.actual.dtype.name in ("int4", "int2", "uint4", "uint2")


# ---- order and movement ----------------------------------------------------------------------------------------------


@fault("unsigned indices", "reads those above the largest signed number as negative", "interpreter",
       "dynamic_slice dynamic_update_slice gather scatter")  # fmt: skip
def unsigned_indices(case: Case, wrong: Array) -> bool:
    unsigned = [o for o in case.operands if BY_DTYPE[o.dtype].is_unsigned]
    return any(bool((o.astype(object) >= 1 << (BY_DTYPE[o.dtype].bits - 1)).any()) for o in unsigned)


@fault("slices without elements", "reads 0 for a gather with slices of size 0 in dimensions that are left out", "xla",
       "gather")  # fmt: skip
def slices_without_elements(case: Case, wrong: Array) -> bool:
    sizes = re.findall(r"slice_sizes = array<i64: ([\d, ]+)>", case.statement.text)
    return bool(sizes) and "0" in sizes[0].split(", ")


@fault("sorts of NaN", "a comparison that is no total order leaves their places open")
def sorts_of_nan(case: Case, wrong: Array) -> bool:
    is_open = "sort" in case.statement.operations and "TOTALORDER" not in case.statement.text
    return is_open and any(bool((o != o).any()) for o in _floats(case))


@fault("total order", "compares as FLOAT: NaN with nothing, -0 as +0; the specification orders them all", "interpreter")
def total_order(case: Case, wrong: Array) -> Array | bool:
    if "TOTALORDER" not in case.statement.text:
        return False
    if case.statement.operation == "sort":
        floats = [o.astype(np.float64) for o in _floats(case)]
        return any(bool(np.isnan(o).any() or len({*np.signbit(o[o == 0])}) > 1) for o in floats)
    a, b = map(_flat, (case.operands * 2)[:2])
    return np.asarray(np.isnan(a) | np.isnan(b) | ((a == 0) & (b == 0)))


@fault("scatters of an array into itself", "its operand, which is overwritten, is also what updates it", "interpreter",
       "scatter")  # fmt: skip
def scatters_into_itself(case: Case, wrong: Array) -> bool:
    given = re.findall(r"%[\w#]+", case.statement.text.partition("stablehlo.scatter")[2].partition(")")[0])
    return len(set(given)) < len(given)


@fault("windows partly outside", "drops a scatter's whole window, where StableHLO drops elements out of bounds", "xla",
       "scatter")  # fmt: skip
def windows_partly_outside(case: Case, wrong: Array) -> bool:
    return "update_window_dims = []" not in case.statement.text


@fault("scatters in regions", "overwrites the operand of a scatter, which the rest of the region then reads",
       "interpreter", "while if case")  # fmt: skip
def scatters_in_regions(case: Case, wrong: Array) -> bool:
    return "scatter" in case.statement.operations


# ---- sums and algorithms ---------------------------------------------------------------------------------------------


@fault("initial values", "one that changes something is counted not once, but for each part of a sum or never", "xla",
       "reduce reduce_window")  # fmt: skip
def initial_values(case: Case, wrong: Array) -> bool:
    """XLA's semantics require an identity; StableHLO combines the initial value once into each result."""
    if len(case.operands) < 2:
        return False
    initial = [o for o in case.operands if o.shape == ()]
    if not COMBINERS & set(case.statement.operations):  # whose identity is not known: over one element it is forgotten
        return case.operands[0].size == case.actual.size
    return any(not _is_identity(value, case.statement.operations) for value in initial)


COMBINERS = frozenset({"add", "multiply", "maximum", "minimum"})


def _is_identity(value: Array, operations: Iterable[str]) -> bool:
    """Return whether this value is the identity of the reduction's combiners, of several of all."""
    found = {"add": value == 0, "multiply": value == 1}
    if value.dtype.kind in "fiu":
        ends: Any = np.iinfo(value.dtype) if value.dtype.kind in "iu" else np.array([-np.inf, np.inf])
        low, high = (ends.min, ends.max) if value.dtype.kind in "iu" else ends
        found |= {"maximum": value == low, "minimum": value == high}
    return all(bool(found[name]) for name in found if name in operations)


@fault("variance", "the mean of squares less the square of the mean, which loses digits; can be negative", "xla",
       "batch_norm_training")  # fmt: skip
def variance(case: Case, wrong: Array) -> Array | bool:
    """Excuse differences only where stablexla is nearer to the formula's value."""
    text = case.statement.text
    if case.actual.dtype.name not in ("float32", "float64"):
        return False
    operand, scale, offset = (o.astype(np.longdouble) for o in case.operands[:3])
    epsilon = np.longdouble(re.findall(r"epsilon = ([-+.\de]+)", text)[0])
    feature = int(re.findall(r"feature_index = (\d+)", text)[0])
    others = tuple(i for i in range(operand.ndim) if i != feature)
    mean, squares = operand.mean(others, keepdims=True), operand.var(others, keepdims=True)
    exact = (operand - mean) / np.sqrt(squares + epsilon) * scale.reshape(mean.shape) + offset.reshape(mean.shape)
    truth = exact if case.actual.ndim > 1 else squares
    if truth.size != case.actual.size:
        return False
    ours, theirs = (np.abs(a.reshape(-1) - truth.reshape(-1)) for a in (case.actual, case.wanted))
    return np.asarray(ours <= theirs)


@fault("IRFFT of odd lengths", "reads past the operand; numpy and XLA:CPU agree with stablexla", "interpreter", "fft")
def odd_inverse_transforms(case: Case, wrong: Array) -> bool:
    return "IRFFT" in case.statement.text and case.actual.shape[-1] % 2 == 1


@fault("transforms of what is not finite", "each number of a line is a sum with it: the order decides if it is NaN",
       of="fft")  # fmt: skip
def transforms_of_what_is_not_finite(case: Case, wrong: Array) -> Array | bool:
    """Excuse those of whole lines, planes or volumes in which an operand is not finite."""
    if not case.operands[0].size or not wrong.size:
        return False
    count = len(re.findall(r"\d+", case.statement.text.partition("length = ")[2].partition("]")[0])) or 1
    lines = int(np.prod(case.actual.shape[:-count], dtype=np.int64))
    spoiled = ~np.isfinite(case.operands[0]).reshape(lines, -1).all(axis=1)
    return np.repeat(spoiled, wrong.size // lines)


@fault("algorithms of what is not finite", "their steps are left open, and with them where NaN and infinities go",
       of=" ".join(ALGORITHMS))  # fmt: skip
def algorithms_of_what_is_not_finite(case: Case, wrong: Array) -> bool:
    return any(not np.isfinite(a).all() for a in (*case.operands, case.actual, case.wanted) if _is_inexact(a))


@fault("ties in windows", "goes through a window of several dimensions in another order than that of the index", "xla",
       "select_and_scatter")  # fmt: skip
def ties_in_windows(case: Case, wrong: Array) -> bool:
    sizes = re.findall(r"window_dimensions = array<i64: ([\d, ]+)>", case.statement.text)
    return bool(sizes) and sum(int(n) > 1 for n in sizes[0].split(",")) > 1


@fault("groups of features", "multiplies what is not finite with zeros of other groups; they are apart", "xla",
       "convolution")  # fmt: skip
def groups_of_features(case: Case, wrong: Array) -> bool:
    grouped = re.search(r"(feature|batch)_group_count = ([2-9]|\d\d)", case.statement.text)
    return bool(grouped) and not all(np.isfinite(o).all() for o in _floats(case))


@fault("holes of dilation", "multiplied as zeros with what is not finite, or left out, as XLA:CPU does",
       of="convolution")  # fmt: skip
def holes_of_dilation(case: Case, wrong: Array) -> Array | bool:
    """Excuse NaN on either side: the operation semantics speak of zeros, and of a value that does nothing."""
    if not re.search(r"(lhs|rhs)_dilate = \[[\d, ]*([2-9]|\d\d)", case.statement.text):
        return False
    ours, theirs = (np.isnan(a.astype(np.complex128)).reshape(-1) for a in (case.actual, case.wanted))
    return np.asarray(ours ^ theirs)


@fault("algorithms of products", "does not round the operands of products that it computes as multiplications", "xla",
       "dot_general")  # fmt: skip
@fault("algorithms of products", "does not round the operands to the precision types of the algorithm", "interpreter",
       "dot_general")  # fmt: skip
def algorithms_of_products(case: Case, wrong: Array) -> Array | bool:
    """Excuse differences only within the rounding of the operands, to bf16 at the least."""
    if "algorithm = <" not in case.statement.text:
        return False
    size = largest([case.operands[0]]) * largest([case.operands[1]])
    apart = np.abs(case.actual.astype(np.float64) - case.wanted.astype(np.float64)).reshape(-1)
    return np.asarray(apart <= 2.0**-7 * terms(case) * size)
