"""Conversion of numbers to an element type that holds them: the one rule of constants, arguments and inputs of tools.

Precision may be lost. A number that is out of the type's range is an error.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from stablexla.dialects.element_types import FINITE_ONLY, ElementType
from stablexla.dialects.errors import ExecutionError, ShapeError

Array = npt.NDArray[Any]


MASKED = "a masked array, whose mask a program does not know"
FILLED = "array.filled(...), with the number for elements that are masked"


def is_masked(value: object) -> bool:
    """Return whether a value is one of numpy's masked arrays, or a list with one in it.

    >>> is_masked(np.ma.masked_array([1, 2], [True, False])), is_masked(np.ones(2)), is_masked([1, [np.ma.masked]])
    (True, False, True)
    """
    if isinstance(value, (list, tuple)):
        return any(map(is_masked, value))
    return isinstance(value, np.ndarray) and hasattr(value, "filled")  # without numpy.ma, which may not be imported


def keeps_kind(given: ElementType, wanted: ElementType) -> bool:
    """Return whether a conversion keeps all but precision: no fraction, imaginary part or truth value is dropped.

    >>> from stablexla.dialects.element_types import element_type
    >>> keeps_kind(element_type("s32"), element_type("f16")), keeps_kind(element_type("f32"), element_type("s8"))
    (True, False)
    """
    if wanted.is_integer:
        return given.is_integer
    if wanted.is_float:
        return given.is_integer or given.is_float
    return given.is_pred if wanted.is_pred else not given.is_pred


def converted(
    array: Array, wanted: ElementType, error: type[ShapeError | ExecutionError] = ShapeError, place: str = ""
) -> Array:
    """Return an array of numbers of the same kind (`keeps_kind`) in another element type.

    Args:
        array: of a dtype of an element type, or of Python's integers; integers 0 and 1 are taken for pred, too.
        wanted: the element type.
        error: the class of the error.
        place: what its message begins with, as "parameter 0 (x): ".

    Raises:
        ShapeError, ExecutionError: as `error` says; an integer that is out of range, a finite number that becomes
            infinite or NaN, or an infinity or NaN that the type lacks.

    >>> from stablexla.dialects.element_types import element_type
    >>> converted(np.array([1, 2]), element_type("u8"))
    array([1, 2], dtype=uint8)
    >>> converted(np.array([1.0, 70000.0]), element_type("f16"))
    Traceback (most recent call last):
    stablexla.dialects.errors.ShapeError: 70000.0 is out of the range of f16, -65504 to 65504
      try: np.inf, where infinity is meant
    """
    if wanted.is_integer or wanted.is_pred:
        return _integers(array, wanted, error, place)
    with np.errstate(all="ignore"):
        made = array.astype(wanted.dtype)
        lost = _lost(array, made, wanted)
    if lost.any():
        value = array[lost].flat[0]
        shown = value.item() if value.dtype.isbuiltin == 1 else float(value)
        if np.isnan(shown):
            raise error(f"{place}{wanted} has no NaN")
        is_meant = np.isfinite(shown) and np.isinf(np.array(np.inf).astype(wanted.part.dtype))
        way_out = [f"{name}, where infinity is meant" if is_meant else "" for name in ("np.inf", "inf")]
        message = f"{place}{shown} is out of the range of {range_of(wanted)}"
        raise error(message, hint=way_out[0], option=way_out[1])
    return made


def range_of(type_: ElementType) -> str:
    """Return the name of an element type and its smallest and largest finite numbers; of a complex one its parts'.

    >>> from stablexla.dialects.element_types import element_type
    >>> range_of(element_type("s8")), range_of(element_type("f32"))
    ('s8, -128 to 127', 'f32, -3.4028235e+38 to 3.4028235e+38')
    """
    if type_.is_integer or type_.is_pred:
        low, high = _limits(type_)
        return f"{type_}, {low} to {high}"
    limits = ml_dtypes.finfo(type_.part.dtype)  # type: ignore[no-untyped-call]
    return f"{type_}, {float(limits.min):.8g} to {float(limits.max):.8g}"


def _limits(type_: ElementType) -> tuple[int, int]:
    low = -(2 ** (type_.bits - 1)) if type_.is_signed else 0
    return low, low + 2**type_.bits - 1


def _integers(array: Array, wanted: ElementType, error: type[ShapeError | ExecutionError], place: str) -> Array:
    if array.size:
        low, high = _limits(wanted)
        wide = array if array.dtype.kind in "iuO" else array.astype(np.int64)  # ml_dtypes' integers have no min
        for value in (int(wide.min()), int(wide.max())):
            if not low <= value <= high:
                raise error(f"{place}{value} is out of the range of {range_of(wanted)}")
    return array.astype(wanted.dtype)


def _lost(array: Array, made: Array, wanted: ElementType) -> npt.NDArray[np.bool_]:
    """Return where a conversion to floats or complex numbers made another number than a rounded one."""
    if not wanted.is_complex and wanted.name in FINITE_ONLY:  # they end at their largest numbers
        limits = ml_dtypes.finfo(wanted.dtype)  # type: ignore[no-untyped-call]
        half_a_step = 2.0 ** (np.floor(np.log2(FINITE_ONLY[wanted.name])) - limits.nmant - 1)
        return np.asarray(~(np.abs(array.astype(np.float64)) <= FINITE_ONLY[wanted.name] + half_a_step))
    infinite = np.isinf(made) & np.isfinite(array)
    return np.asarray(infinite | (np.isnan(made) & ~np.isnan(array)))
