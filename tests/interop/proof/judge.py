"""Whether two results are the same, and when they are not the same bits, which of them is nearer to the exact one.

The unit is that of the result's last place. What is further apart is judged by the same function run by JAX in double
precision: sums in another order and other approximations of elementary functions are as near to that as JAX's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import ml_dtypes
import numpy as np

from tests.interop.proof.values import Array

State = Literal["equal", "differs", "unsupported", "died", "timeout", "JAX fails"]
How = Literal["bits", "ULP", "as near", "nearer", "as interpreted", ""]

JUDGED: tuple[How, ...] = ("as near", "as interpreted")
"""Those of the equal ones that took more than a look at the two results."""

CLOSE = 4.0
"""ULP between results that are called equal without looking further."""
CLOSE_SMALL = 1.0
"""The same for floats of 16 bits and less: they are computed in f32 and rounded."""
FACTOR = 2.0
"""How many times JAX's distance to the exact result a result may be from it."""
SLACK = 4.0
"""ULP of distance that are allowed in any case."""
FAR = 1e5
"""ULP of distance from which on the exact result is another one, and tells nothing; about 1 % in f32."""


@dataclass(frozen=True)
class Verdict:
    """What became of a comparison.

    Attributes:
        how: which kind of "equal" it is.
        ulp: the largest distance between the two, in units of the last place.
        ours, theirs: the distances of the two to the exact result, in the same unit, where that was looked at.
        note: what differs.
    """

    state: State
    how: How = ""
    ulp: float = 0.0
    ours: float = 0.0
    theirs: float = 0.0
    note: str = ""


def compare(ours: Sequence[Array], theirs: Sequence[Array]) -> Verdict:
    """The two results without an exact one: "equal" to the bit or within `CLOSE`, or "differs"."""
    if len(ours) != len(theirs):
        return Verdict("differs", note=f"{len(ours)} results, not {len(theirs)}")
    worst = Verdict("equal", "bits")
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.dtype != b.dtype or a.shape != b.shape:
            return Verdict("differs", note=f"result {number} is {a.dtype}{list(a.shape)}, not {b.dtype}{list(b.shape)}")
        found = _compare_arrays(a, b)
        if found.state == "differs" or (worst.state == "equal" and found.ulp >= worst.ulp and found.how != "bits"):
            worst = found if found.ulp >= worst.ulp or worst.state == "equal" else worst
    return worst


def _compare_arrays(a: Array, b: Array) -> Verdict:
    if not is_float(a.dtype):
        wrong = int(np.count_nonzero(a != b))
        return Verdict("equal", "bits") if not wrong else Verdict("differs", note=_first(a, b, a != b))
    if a.tobytes() == b.tobytes():
        return Verdict("equal", "bits")
    ulp = distances(a, b)
    largest = float(ulp.max(initial=0.0))
    close = CLOSE if real_of(a.dtype).itemsize >= 4 else CLOSE_SMALL
    if largest == 0:
        return Verdict("equal", "bits")  # bits of NaN, which mean nothing
    if largest <= close:
        return Verdict("equal", "ULP", largest)
    return Verdict("differs", "", largest, note=_first(a, b, ulp == largest))


def with_exact(found: Verdict, ours: Sequence[Array], theirs: Sequence[Array], exact: Sequence[Array]) -> Verdict:
    """Judges what "differs" anew, when the results in double precision are of use."""
    if found.state != "differs" or not len(ours) == len(theirs) == len(exact):
        return found
    worst = Verdict("equal", "ULP", found.ulp)
    whole = _largest(exact)
    for a, b, e in zip(ours, theirs, exact, strict=True):
        if not is_float(a.dtype):
            if not np.array_equal(a, b):
                return found
            continue
        if e.shape != a.shape or not is_float(e.dtype) or real_of(e.dtype).itemsize <= real_of(a.dtype).itemsize:
            return found
        judged = _judge(a, b, e, whole, found)
        if judged.state == "differs":
            return judged
        if _RANK.index(judged.how) > _RANK.index(worst.how):
            worst = judged
    return worst


def with_interpreter(
    found: Verdict, ours: Sequence[Array], interpreted: Sequence[Array], exact: Sequence[Array]
) -> Verdict:
    """Judges what still "differs" by StableHLO's reference interpreter, which rounds each operation as written.

    Where JAX's compiler makes one operation of a product and a sum, numbers that cancel may come nearer to the exact
    ones, or further from them, than the program says. A result stands that is the interpreter's, or as near to the
    exact one as that.
    """
    if found.state == "differs" and interpreted:
        judged = with_exact(compare(ours, interpreted), ours, interpreted, exact)
        if judged.state == "equal":
            return replace(found, state="equal", how="as interpreted")
    return found


_RANK = ["bits", "ULP", *JUDGED]


def _judge(a: Array, b: Array, exact: Array, whole: float, found: Verdict) -> Verdict:
    """By the worst element; for sums that cancel, in units of the largest number of the array, then of all results."""
    if float(distances(a, b).max(initial=0.0)) <= CLOSE:
        return Verdict("equal", "ULP", found.ulp)
    dtype = real_of(a.dtype)
    scales = [None, units(np.asarray(_largest([exact])), dtype), units(np.asarray(whole), dtype)]
    pairs = [[float(distances_to(x, exact, scale).max(initial=0.0)) for x in (a, b)] for scale in scales]
    for ours, theirs in pairs:
        if np.isfinite(ours) and not np.isfinite(theirs):
            return Verdict("differs", "nearer", found.ulp, ours, theirs, found.note)
        if ours <= max(FACTOR * theirs, SLACK) and min(pairs[-1]) <= FAR:
            return Verdict("equal", "as near", found.ulp, ours, theirs)
    return Verdict("differs", "", found.ulp, *pairs[1], note=found.note)


def _largest(arrays: Sequence[Array]) -> float:
    """The largest finite number in arrays of floats."""
    found = 0.0
    for array in arrays:
        if is_float(array.dtype):
            parts = np.abs(_parts(array).astype(np.float64))
            found = max(found, float(np.max(parts[np.isfinite(parts)], initial=0.0)))
    return found


# ---- floats --------------------------------------------------------------------------------------------------------


def is_float(dtype: np.dtype[Any]) -> bool:
    if dtype.kind in "fc":
        return True
    if dtype.kind != "V" or dtype.name.startswith(("int", "uint")):
        return False
    return bool(ml_dtypes.finfo(dtype).bits)


def real_of(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}.get(dtype.name, dtype)


def units(at: Array, dtype: np.dtype[Any]) -> Array:
    """The unit in the last place of a type, at numbers in double precision."""
    info = ml_dtypes.finfo(dtype)
    smallest, eps = float(info.smallest_subnormal), float(info.eps)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(at.astype(np.float64)), float(info.smallest_normal))))
    return np.maximum(np.ldexp(1.0, np.nan_to_num(exponent).astype(int)) * eps, smallest)


def distances(a: Array, b: Array) -> Array:
    """ULP between two arrays of a type, element by element; infinite where one is NaN or infinite and the other not."""
    return _distances(_parts(a), _parts(b).astype(np.float64), None, real_of(a.dtype))


def distances_to(a: Array, exact: Array, scale: Array | None) -> Array:
    """ULP of the type of `a` between it and an array in double precision; or in units of `scale`."""
    return _distances(_parts(a), _parts(exact).astype(np.float64), scale, real_of(a.dtype))


def _distances(a: Array, exact: Array, scale: Array | None, dtype: np.dtype[Any]) -> Array:
    x = a.astype(np.float64)
    with np.errstate(all="ignore"):
        rounded = exact.astype(dtype).astype(np.float64)  # what is infinite in the smaller type may be so
        same = (x == exact) | (x == rounded) | (np.isnan(x) & np.isnan(exact))
        apart = np.abs(x - exact) / (units(exact, dtype) if scale is None else scale)
    apart = np.where(np.isnan(apart), np.inf, apart)
    return np.where(same, 0.0, apart)


def _parts(a: Array) -> Array:
    """Real numbers: of a complex array, both parts."""
    if a.dtype.kind != "c":
        return a.reshape(-1)
    return np.concatenate([a.real.reshape(-1), a.imag.reshape(-1)])


def _first(a: Array, b: Array, where: Array) -> str:
    place = int(np.argmax(where.reshape(-1))) % max(a.size, 1)
    return f"{a.reshape(-1)[place]} where JAX has {b.reshape(-1)[place]}"
