"""Conversion of Python and numpy values to the attribute of a StableHLO constant, a whole array at a time."""

from __future__ import annotations

from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np

from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.element_types import BY_DTYPE, BY_NAME, ElementType, element_type
from stablexla.dialects.errors import ShapeError
from stablexla.dialects.held_arrays import can_be_held, held_attribute, is_one_number
from stablexla.dialects.value_ranges import FILLED, MASKED, converted, is_masked, keeps_kind

# Python's own numbers have XLA's usual types; arrays and numpy scalars keep theirs.
_DEFAULTS = {np.dtype("int64"): "s32", np.dtype("float64"): "f32", np.dtype("complex128"): "c64"}


def as_array(value: object, wanted: object = None) -> np.ndarray[Any, Any]:
    """Return `value` as an array with the dtype of the element type `wanted`, or of the value's own type.

    A value is only converted where nothing but precision is lost: integers to integers that hold them, to floats and to
    complex, floats to floats and complex. A finite number stays finite.

    >>> as_array([1, 2]).dtype, as_array(1.5).dtype, as_array([1, 2], "bf16").dtype
    (dtype('int32'), dtype('float32'), dtype(bfloat16))

    Raises:
        ShapeError: a value that is no number or array of them, that the element type can't hold, or of a type that
            XLA lacks.
    """
    array = _plain_array(value)
    if wanted is not None:
        return _converted(array, element_type(wanted))
    if not isinstance(value, (np.ndarray, np.generic)) and array.dtype in _DEFAULTS:
        return _converted(array, BY_NAME[_DEFAULTS[array.dtype]])
    return _converted(array, _type_of(array))


def constant_attribute(array: np.ndarray[Any, Any], type_: ir.Type) -> ir.Attribute:
    """Return the attribute of a constant: a large array is held, as a copy if others may write it.

    Args:
        type_: the ranked tensor type with its element type.
    """
    if not can_be_held(array) or is_one_number(array):
        return dense_attribute(array, type_)
    is_shared = not array.flags.writeable
    return held_attribute(array if is_shared else array.copy(), type_, borrowed=is_shared)


def dense_attribute(array: np.ndarray[Any, Any], type_: ir.Type) -> ir.Attribute:
    """Return the dense attribute of `array`; `type_` is the ranked tensor type with its element type."""
    if array.dtype == np.bool_:
        return ir.DenseElementsAttr.get(array, type=type_.element_type, shape=type_.shape, context=type_.context)
    # MLIR takes raw bytes in its own layout, which is ml_dtypes' too: one element in at least one byte.
    if array.dtype not in _BUFFER_DTYPES:
        array = array.view(f"u{array.dtype.itemsize}")
    return ir.DenseElementsAttr.get(array, type=type_, context=type_.context)


# The types of Python's buffer protocol; ml_dtypes' types are not among them.
_BUFFER_DTYPES = {np.dtype(name) for name in ("f2", "f4", "f8", "c8", "c16")} | {
    np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)
}


_MOST_IN_A_RANGE = 2**31


def _plain_array(value: object) -> np.ndarray[Any, Any]:
    """Return `value` as a row-major array."""
    if is_masked(value):
        raise ShapeError(f"a constant can't be made of {MASKED}", hint=FILLED)
    try:
        if isinstance(value, range) and len(value) > _MOST_IN_A_RANGE:
            raise MemoryError  # before numpy asks for it: where memory is overcommitted, the process would end
        array = np.asarray(value, order="C")
    except ValueError as error:
        raise ShapeError(f"a constant's nested lists must be even: {error}") from None
    except Exception as error:  # more than fits into memory, and objects that raise when they are converted
        raise ShapeError(f"a constant can't be made of {told(value)}: {error or type(error).__name__}") from None
    if array.dtype.kind == "O" and _is_big(array):
        raise ShapeError("an integer of the constant needs more than 64 bits")
    return array


def _is_big(array: np.ndarray[Any, Any]) -> bool:
    return bool(array.size) and all(isinstance(item, int) for item in array.flat)


def _type_of(array: np.ndarray[Any, Any]) -> ElementType:
    found = BY_DTYPE.get(array.dtype)
    if found is None:
        raise ShapeError(f"a constant can't be made of values of type {array.dtype}")
    return found


def _converted(array: np.ndarray[Any, Any], wanted: ElementType) -> np.ndarray[Any, Any]:
    if array.dtype == wanted.dtype:
        return array
    if not array.size and array.dtype.kind != "O":
        return array.astype(wanted.dtype)  # an empty list says nothing of its type
    given = _type_of(array)
    if not keeps_kind(given, wanted):
        raise ShapeError(
            f"a {wanted} constant can't be made of {_of(array, given)}",
            hint=f"value.astype({wanted.dtype.name!r}), where that is meant" if array.ndim else "",
        )
    return converted(array, wanted)


def _of(array: np.ndarray[Any, Any], given: ElementType) -> str:
    return f"{array.item()!r}" if array.ndim == 0 and given.bits >= 8 else f"{given} values"
