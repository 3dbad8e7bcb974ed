"""Known differences from the oracles: their faults, or freedoms of the specification, with the reasons.

Each excused difference is counted by its name, and reported.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes
import numpy as np

from stablexla.dialects.element_types import BY_DTYPE, FINITE_ONLY
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.op_traits import bare, operations
from stablexla.inspection.judging.tolerances import ALGORITHMS, Array, Case, largest, overflows, terms

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
    """

    name: str
    reason: str
    excuses: Excuse
    oracle: str = ""

    def explains(self, case: Case, wrong: Array) -> Array:
        """Return which of the differing elements it explains."""
        if self.oracle not in ("", case.oracle):
            return np.zeros(wrong.shape, bool)
        return np.asarray(np.broadcast_to(np.asarray(self.excuses(case, wrong)), wrong.shape) & wrong)


FAULTS: list[Fault] = []
COMPLEX_FUNCTIONS = frozenset(bare(name) for name in operations(lambda traits: traits.complex_ulp))


def fault(name: str, reason: str, oracle: str = "") -> Callable[[Excuse], Excuse]:
    def register(excuses: Excuse) -> Excuse:
        FAULTS.append(Fault(f"{oracle or 'open'}: {name}", reason, excuses, oracle))
        return excuses

    return register


def _right_by_mpmath(case: Case, wrong: Array) -> Array:
    """Return which elements are right by mpmath; none where it is not installed."""
    try:
        from stablexla.inspection.judging.exact_functions import right_by_mpmath
    except ImportError:
        return np.zeros(wrong.shape, bool)
    return right_by_mpmath(case, wrong)


def _is_denormal(array: Array) -> Array:
    if array.dtype.kind == "c":
        return np.asarray(_is_denormal(array.real) | _is_denormal(array.imag))
    tiny = {"float64": 2.0**-1022, "float16": 2.0**-14}.get(array.dtype.name, 2.0**-126)
    with np.errstate(all="ignore"):
        wide = np.abs(array.astype(np.float64))
        return np.asarray((wide > 0) & (wide < tiny))


def _is_inexact(array: Array) -> bool:
    type_ = BY_DTYPE[array.dtype]
    return type_.is_float or type_.is_complex


@fault("denormals are zeros", "XLA:CPU flushes denormal operands and results, StableHLO keeps them", "xla")
def denormals(case: Case, wrong: Array) -> Array | bool:
    floats = [a for a in (*case.operands, case.actual, case.wanted) if _is_inexact(a)]
    if any(a.shape != case.actual.shape for a in floats):
        return any(bool(_is_denormal(a).any()) for a in floats)
    found = np.zeros(wrong.shape, bool)
    for array in floats:
        found |= _is_denormal(array).reshape(-1)
    return found


@fault("sums that overflow", "whether a sum passes through infinity depends on its order, which is left open")
def overflowing(case: Case, wrong: Array) -> bool:
    return overflows(case)


@fault("functions", "further from the exact value (mpmath) than stablexla, which is within its bounds", "interpreter")
def functions_of_the_interpreter(case: Case, wrong: Array) -> Array:
    return _right_by_mpmath(case, wrong)


@fault("functions", "further from the exact value (mpmath) than stablexla, which is within its bounds", "xla")
def functions_of_xla(case: Case, wrong: Array) -> Array:
    return _right_by_mpmath(case, wrong)


@fault("complex functions of infinities, NaN and 0", "C99's Annex G; held by tests/ops/test_complex.py")
def complex_special_values(case: Case, wrong: Array) -> Array | bool:
    name = case.statement.operation
    if name not in COMPLEX_FUNCTIONS or case.operands[0].dtype.kind != "c":
        return False
    found = np.zeros(wrong.shape, bool)
    for operand in case.operands:
        if operand.size != wrong.size:
            return False
        with np.errstate(all="ignore"):
            found |= ~np.isfinite(operand.reshape(-1))
            found |= (operand.reshape(-1) == 0) & (name in ("power", "log", "rsqrt", "divide", "cbrt", "sign"))
    return found


@fault("conversions out of range", "of NaN, or of what an integer type cannot hold, to it: left to the implementation")
def conversions_out_of_range(case: Case, wrong: Array) -> Array | bool:
    if case.statement.operation != "convert" or not BY_DTYPE[case.actual.dtype].is_integer or not case.operands:
        return False
    (operand,) = case.operands[:1]
    if not _is_inexact(operand) or operand.size != wrong.size:
        return False
    bits, signed = BY_DTYPE[case.actual.dtype].bits, BY_DTYPE[case.actual.dtype].is_signed
    low, high = (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1)) if signed else (0.0, 2.0**bits)
    with np.errstate(all="ignore"):
        numbers = np.trunc(np.real(operand).astype(np.float64)).reshape(-1)
        return np.asarray(~((numbers >= low) & (numbers < high)))


@fault("conversions to small floats out of range", "gives 0; those types end at their largest number", "xla")
@fault("conversions to small floats out of range", "of infinities: 0 as well", "interpreter")
def conversions_to_small_floats(case: Case, wrong: Array) -> Array | bool:
    """Excuse differences of NaN, which those types lack, and where stablexla has the largest number of a sign."""
    target = BY_DTYPE[case.actual.dtype].name
    if case.statement.operation != "convert" or target not in FINITE_ONLY or not case.operands:
        return False
    with np.errstate(all="ignore"):
        numbers = np.real(case.operands[0]).astype(np.float64).reshape(-1)
        held = case.actual.astype(np.float64).reshape(-1) == np.copysign(FINITE_ONLY[target], numbers)
        return np.asarray(np.isnan(numbers) | held & (np.abs(numbers) > FINITE_ONLY[target]))


@fault("divisions by 0", "of integers, and of the smallest by -1: left to the implementation; here they never trap")
def divisions_by_zero(case: Case, wrong: Array) -> Array | bool:
    if case.statement.operation not in ("divide", "remainder") or _is_inexact(case.actual):
        return False
    dividend, divisor = ((case.operands * 2)[i].astype(object).reshape(-1) for i in (0, 1))
    smallest = -(2 ** (BY_DTYPE[case.actual.dtype].bits - 1))
    return np.asarray((divisor == 0) | ((divisor == -1) & (dividend == smallest)), bool)


@fault(
    "types without infinities",
    "what they make of these, of NaN and 0 is left open; here ml_dtypes decides",
    "interpreter",
)
def types_without_infinities(case: Case, wrong: Array) -> Array | bool:
    """Excuse where the result is the largest number, zero or NaN."""
    if BY_DTYPE[case.actual.dtype].mlir not in ("f4E2M1FN", "f6E2M3FN", "f6E3M2FN", "f8E8M0FNU"):
        return False
    finfo: Any = ml_dtypes.finfo
    with np.errstate(all="ignore"):
        found = np.abs(case.actual.astype(np.float64)).reshape(-1)
        return np.asarray((found == 0) | np.isnan(found) | (found == float(finfo(case.actual.dtype).max)))


@fault("unsigned indices", "reads those above the largest signed number as negative", "interpreter")
def unsigned_indices(case: Case, wrong: Array) -> bool:
    if case.statement.operation not in ("dynamic_slice", "dynamic_update_slice", "gather", "scatter"):
        return False
    unsigned = [o for o in case.operands if BY_DTYPE[o.dtype].is_integer and BY_DTYPE[o.dtype].is_unsigned]
    return any(bool((o.astype(object) >= 1 << (BY_DTYPE[o.dtype].bits - 1)).any()) for o in unsigned)


@fault("slices without elements", "reads 0 for a gather with slices of size 0 in dimensions that are left out", "xla")
def slices_without_elements(case: Case, wrong: Array) -> bool:
    sizes = re.findall(r"slice_sizes = array<i64: ([\d, ]+)>", case.statement.text)
    return case.statement.operation == "gather" and bool(sizes) and "0" in sizes[0].split(", ")


@fault("sorts of NaN", "a comparison that is no total order leaves their places open")
def sorts_of_nan(case: Case, wrong: Array) -> bool:
    if "sort" not in case.statement.operations or "TOTALORDER" in case.statement.text:
        return False
    with np.errstate(all="ignore"):
        return any(bool((o != o).any()) for o in case.operands if _is_inexact(o))


@fault("total order", "compares as FLOAT: NaN with nothing, -0 as +0; the specification orders them all", "interpreter")
def total_order(case: Case, wrong: Array) -> Array | bool:
    if "TOTALORDER" not in case.statement.text:
        return False
    if case.statement.operation == "sort":
        floats = [o.astype(np.float64) for o in case.operands if _is_inexact(o)]
        return any(bool(np.isnan(o).any() or len({*np.signbit(o[o == 0])}) > 1) for o in floats)
    a, b = (o.astype(np.float64).reshape(-1) for o in (case.operands * 2)[:2])
    return np.asarray(np.isnan(a) | np.isnan(b) | ((a == 0) & (b == 0)))


@fault(
    "NaN without a fraction", "reduce_precision to 0 bits of fraction makes NaN infinite; it has to stay", "interpreter"
)
def nan_without_fraction(case: Case, wrong: Array) -> Array | bool:
    if case.statement.operation != "reduce_precision" or "m0 " not in case.statement.text:
        return False
    return np.isnan(case.operands[0].astype(np.float64)).reshape(-1)


@fault("rounding in small types", "by way of a power of two that f8E3M4 and f6E2M3FN do not have: NaN", "interpreter")
def rounding_in_small_types(case: Case, wrong: Array) -> Array | bool:
    if case.statement.operation not in ("ceil", "floor", "round_nearest_afz", "round_nearest_even"):
        return False
    if BY_DTYPE[case.actual.dtype].mlir not in ("f8E3M4", "f6E2M3FN"):
        return False
    numbers = case.operands[0].astype(np.float64).reshape(-1)
    way = {"ceil": np.ceil, "floor": np.floor, "round_nearest_even": np.rint}.get(case.statement.operation, _away)
    return np.asarray(case.actual.astype(np.float64).reshape(-1) == way(numbers))


def _away(numbers: Array) -> Array:
    return np.asarray(np.copysign(np.floor(np.abs(numbers) + 0.5), numbers))


@fault("powers of integers", "takes exponents by their six lowest bits", "xla")
def powers_of_integers(case: Case, wrong: Array) -> Array | bool:
    """Excuse differences only where stablexla has the power, modulo the type's range."""
    if case.statement.operation != "power" or _is_inexact(case.actual):
        return False
    bits = BY_DTYPE[case.actual.dtype].bits
    rows = zip(*(map(int, a.reshape(-1)) for a in (*case.operands[:2], case.actual)), strict=True)
    return np.asarray([e > 63 and pow(base, e, 1 << bits) == found % (1 << bits) for base, e, found in rows], bool)


@fault("powers of one", "NaN where the exponent is a signalling NaN, and 1 where it is a quiet one", "xla")
def powers_of_one(case: Case, wrong: Array) -> Array | bool:
    """Excuse 1 for the power of 1 by NaN: StableHLO does not tell the two kinds apart."""
    if case.statement.operation != "power" or not _is_inexact(case.actual) or case.actual.dtype.kind == "c":
        return False
    base, exponent = (a.astype(np.float64).reshape(-1) for a in case.operands[:2])
    return np.asarray((base == 1) & np.isnan(exponent) & (case.actual.reshape(-1) == 1))


@fault("bits of small integers", "counts the bits of the byte that holds an s4 or s2", "xla")
def bits_of_small_integers(case: Case, wrong: Array) -> bool:
    small = case.actual.dtype.name in ("int4", "int2", "uint4", "uint2")
    return small and case.statement.operation in ("popcnt", "count_leading_zeros")


@fault("initial values", "one that changes something is counted not once, but for each part of a sum or never", "xla")
def initial_values(case: Case, wrong: Array) -> bool:
    """XLA's semantics require an identity; StableHLO combines the initial value once into each result."""
    if case.statement.operation not in ("reduce", "reduce_window") or len(case.operands) < 2:
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
        ends = np.array([-np.inf, np.inf]) if value.dtype.kind == "f" else np.iinfo(value.dtype)
        low, high = (ends.min, ends.max) if isinstance(ends, np.iinfo) else ends
        found |= {"maximum": value == low, "minimum": value == high}
    return all(bool(found[name]) for name in found if name in operations)


@fault("variance", "the mean of squares less the square of the mean, which loses digits; can be negative", "xla")
def variance(case: Case, wrong: Array) -> Array | bool:
    """Excuse differences only where stablexla is nearer to the formula's value."""
    text = case.statement.text
    if case.statement.operation != "batch_norm_training" or case.actual.dtype.name not in ("float32", "float64"):
        return False
    operand, scale, offset = (o.astype(np.longdouble) for o in case.operands[:3])
    epsilon = np.longdouble(re.findall(r"epsilon = ([-+.\de]+)", text)[0])
    feature = int(re.findall(r"feature_index = (\d+)", text)[0])
    others = tuple(i for i in range(operand.ndim) if i != feature)
    mean, squares = operand.mean(others, keepdims=True), operand.var(others, keepdims=True)
    shape = mean.shape
    exact = (operand - mean) / np.sqrt(squares + epsilon) * scale.reshape(shape) + offset.reshape(shape)
    truth = exact if case.actual.ndim > 1 else squares
    if truth.size != case.actual.size:
        return False
    ours, theirs = (np.abs(a.reshape(-1) - truth.reshape(-1)) for a in (case.actual, case.wanted))
    return np.asarray(ours <= theirs)


@fault("IRFFT of odd lengths", "reads past the operand; numpy and XLA:CPU agree with stablexla", "interpreter")
def odd_inverse_transforms(case: Case, wrong: Array) -> bool:
    text = case.statement.text
    return case.statement.operation == "fft" and "IRFFT" in text and case.actual.shape[-1] % 2 == 1


@fault(
    "transforms of what is not finite", "each number of a line is a sum with it: the order decides whether it is NaN"
)
def transforms_of_what_is_not_finite(case: Case, wrong: Array) -> Array | bool:
    """Excuse those of whole lines, planes or volumes in which an operand is not finite."""
    if case.statement.operation != "fft" or not case.operands[0].size or not wrong.size:
        return False
    count = len(re.findall(r"\d+", case.statement.text.partition("length = ")[2].partition("]")[0])) or 1
    lines = int(np.prod(case.actual.shape[:-count], dtype=np.int64))
    with np.errstate(all="ignore"):
        spoiled = ~np.isfinite(case.operands[0]).reshape(lines, -1).all(axis=1)
    return np.repeat(spoiled, wrong.size // lines)


@fault("algorithms of what is not finite", "their steps are left open, and with them where NaN and infinities go")
def algorithms_of_what_is_not_finite(case: Case, wrong: Array) -> bool:
    if case.statement.operation not in ALGORITHMS:
        return False
    with np.errstate(all="ignore"):
        return any(not np.isfinite(a).all() for a in (*case.operands, case.actual, case.wanted) if _is_inexact(a))


@fault("ties in windows", "goes through a window of several dimensions in another order than that of the index", "xla")
def ties_in_windows(case: Case, wrong: Array) -> bool:
    sizes = re.findall(r"window_dimensions = array<i64: ([\d, ]+)>", case.statement.text)
    several = bool(sizes) and sum(int(n) > 1 for n in sizes[0].split(",")) > 1
    return case.statement.operation == "select_and_scatter" and several


@fault("groups of features", "multiplies what is not finite with zeros of other groups; they are apart", "xla")
def groups_of_features(case: Case, wrong: Array) -> bool:
    grouped = re.search(r"(feature|batch)_group_count = ([2-9]|\d\d)", case.statement.text)
    finite = all(np.isfinite(o).all() for o in case.operands if _is_inexact(o))
    return case.statement.operation == "convolution" and bool(grouped) and not finite


@fault("holes of dilation", "multiplied as zeros with what is not finite, or left out, as XLA:CPU does")
def holes_of_dilation(case: Case, wrong: Array) -> Array | bool:
    """Excuse NaN on either side: the operation semantics speak of zeros, and of a value that does nothing."""
    dilated = re.search(r"(lhs|rhs)_dilate = \[[\d, ]*([2-9]|\d\d)", case.statement.text)
    if case.statement.operation != "convolution" or not dilated:
        return False
    with np.errstate(all="ignore"):
        ours, theirs = (np.isnan(a.astype(np.complex128)).reshape(-1) for a in (case.actual, case.wanted))
        return np.asarray(ours ^ theirs)


@fault("scatters of an array into itself", "its operand, which is overwritten, is also what updates it", "interpreter")
def scatters_into_itself(case: Case, wrong: Array) -> bool:
    given = re.findall(r"%[\w#]+", case.statement.text.partition("stablehlo.scatter")[2].partition(")")[0])
    return case.statement.operation == "scatter" and len(set(given)) < len(given)


@fault("windows partly outside", "drops a scatter's whole window, where StableHLO drops elements out of bounds", "xla")
def windows_partly_outside(case: Case, wrong: Array) -> bool:
    return case.statement.operation == "scatter" and "update_window_dims = []" not in case.statement.text


@fault(
    "scatters in regions", "overwrites the operand of a scatter, which the rest of the region then reads", "interpreter"
)
def scatters_in_regions(case: Case, wrong: Array) -> bool:
    return case.statement.operation in ("while", "if", "case") and "scatter" in case.statement.operations


@fault("algorithms of products", "does not round the operands of products that it computes as multiplications", "xla")
@fault("algorithms of products", "does not round the operands to the precision types of the algorithm", "interpreter")
def algorithms_of_products(case: Case, wrong: Array) -> Array | bool:
    """Excuse differences only within the rounding of the operands, to bf16 at the least."""
    if case.statement.operation != "dot_general" or "algorithm = <" not in case.statement.text:
        return False
    size = largest([case.operands[0]]) * largest([case.operands[1]])
    with np.errstate(all="ignore"):
        apart = np.abs(case.actual.astype(np.float64) - case.wanted.astype(np.float64)).reshape(-1)
    return np.asarray(apart <= 2.0**-7 * terms(case) * size)
