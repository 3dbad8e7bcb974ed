"""What every conversion between element types must give, worked out from the types' lists of values.

A second way to the same result: nothing here knows how the formats are laid out, only that ml_dtypes can say what
number each code stands for.
"""

from __future__ import annotations

import functools

import numpy as np

from stablexla.dialects.element_types import ElementType, element_type

SMALL_FLOATS = (
    "f4e2m1fn",
    "f6e2m3fn",
    "f6e3m2fn",
    "f8e3m4",
    "f8e4m3",
    "f8e4m3b11fnuz",
    "f8e4m3fn",
    "f8e4m3fnuz",
    "f8e5m2",
    "f8e5m2fnuz",
    "f8e8m0fnu",
    "bf16",
    "f16",
)


def codes(name: str) -> np.ndarray:
    """Every value of a type of at most 16 bits."""
    type_ = element_type(name)
    raw = np.arange(1 << type_.bits, dtype=f"u{type_.bytes}")
    if not type_.is_integer or type_.bits >= 8:
        return raw.astype(bool) if type_.is_pred else raw.view(type_.dtype)
    low = -(1 << (type_.bits - 1)) if type_.is_signed else 0
    return (np.arange(1 << type_.bits) + low).astype(type_.dtype)


def exactly(x: np.ndarray) -> np.ndarray:
    """The numbers in f64; casts of signalling NaN warn otherwise."""
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64)


@functools.cache
def boundaries(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The codes of the finite non-negative values in order, and the numbers half way between neighbours.

    The last number is where infinity begins, as if the values went on with the same spacing.
    """
    values = exactly(codes(name))
    chosen = np.flatnonzero(np.isfinite(values) & ~np.signbit(values))
    chosen = chosen[np.argsort(values[chosen], kind="stable")]
    values = values[chosen]
    beyond = 2 * values[-1] if name == "f8e8m0fnu" else 2 * values[-1] - values[-2]
    return chosen, (values + np.append(values[1:], beyond)) / 2


def round_to(x: np.ndarray, name: str) -> np.ndarray:
    """f64 numbers in a small float type: nearest, ties to even; the rules for what does not fit are the type's own."""
    everything, (chosen, middle) = codes(name), boundaries(name)
    values = exactly(everything)
    size = np.abs(x)
    nearest = np.searchsorted(middle, size)
    tie = size == middle[np.minimum(nearest, len(middle) - 1)]
    if name == "f8e8m0fnu":  # powers of two: no last bit that could be even, so the larger one is taken; no sign, no 0
        nearest += tie
        result = everything[chosen[np.minimum(nearest, len(chosen) - 1)]]
        result[(x <= 0) | (nearest >= len(chosen)) | np.isnan(x)] = np.nan
        return result
    nearest += tie & (nearest % 2 == 1)
    too_large = nearest >= len(chosen)
    result = np.copysign(values[chosen[np.minimum(nearest, len(chosen) - 1)]], x)
    if np.isinf(values).any():
        result[too_large] = np.copysign(np.inf, x[too_large])
    elif np.isnan(values).any():
        result[too_large] = np.nan
    result[np.isnan(x)] = np.nan if np.isnan(values).any() else -0.0
    return result.astype(everything.dtype)


def to_odd(x: np.ndarray) -> np.ndarray:
    """64-bit integers as f64 that rounds on to any small float as the integers would."""
    out = []
    for number in x.tolist():
        near = np.float64(number)
        if int(near) != number:
            if abs(int(near)) > abs(number):
                near = np.nextafter(near, 0.0)
            near = (near.view(np.uint64) | np.uint64(1)).view(np.float64)
        out.append(near)
    return np.array(out, np.float64)


def convert(x: np.ndarray, source: ElementType, target: ElementType) -> np.ndarray:
    """The elements of x, of the type `source`, in the type `target`."""
    if source.is_complex:
        if target.is_complex:
            with np.errstate(all="ignore"):
                return x.astype(target.dtype)
        return convert(x.real, source.part, target)
    if target.is_complex:
        return convert(x, source, target.part).astype(target.dtype)
    with np.errstate(all="ignore"):
        if target.is_pred:
            return x.astype(np.float64) != 0 if source.is_float else x.astype(bool)
        if target.is_integer:
            return _to_integer(x, source, target)
        if target.bits >= 32:
            return x.astype(np.float64).astype(target.dtype) if source.bits < 32 else x.astype(target.dtype)
        wide = to_odd(x) if source.is_integer and source.bits == 64 else x.astype(np.float64)
        return round_to(wide, target.name)


def _to_integer(x: np.ndarray, source: ElementType, target: ElementType) -> np.ndarray:
    low = -(1 << (target.bits - 1)) if target.is_signed else 0
    high = low + (1 << target.bits) - 1
    if source.is_float:
        number = np.trunc(x.astype(np.float64))
        number[np.isnan(number)] = 0
        held = [high if n >= high else low if n <= low else int(n) for n in number.tolist()]
    else:
        held = [(int(n) - low) % (1 << target.bits) + low for n in x.tolist()]
    return np.array(held, dtype=np.uint64 if target.name == "u64" else np.int64).astype(target.dtype)


def bits(x: np.ndarray) -> np.ndarray:
    """The codes of an array, with every NaN made the same."""
    raw = np.ascontiguousarray(x)
    if raw.dtype.kind == "c":
        part = np.dtype(f"f{raw.dtype.itemsize // 2}")
        return bits(raw.view(part))
    codes_ = raw.view(f"u{raw.dtype.itemsize}").copy()
    if raw.dtype.kind not in "biu" and "int" not in raw.dtype.name:
        codes_[np.isnan(exactly(raw))] = np.iinfo(codes_.dtype).max
    return codes_
