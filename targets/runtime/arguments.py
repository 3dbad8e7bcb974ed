"""Slow path of arguments: conversion of those that machine code cannot read in place, and errors of wrong ones.

The native runtime's fast path takes plain contiguous arrays and the commonest numbers; everything else comes here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import ml_dtypes
import numpy as np
import numpy.typing as npt

from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.element_types import BY_DTYPE, BY_NAME
from stablexla.dialects.errors import ExecutionError
from stablexla.dialects.value_ranges import FILLED, MASKED, converted, is_masked, keeps_kind, range_of
from stablexla.targets.runtime._runtime import ArraySpec, array_of_dlpack
from stablexla.targets.runtime.available_memory import copied
from stablexla.targets.runtime.host_devices import current_device

Array = npt.NDArray[Any]

# numpy cannot hold these under their DLPack type codes; the native side hands their bits over as unsigned integers.
DLPACK_TYPES: dict[tuple[int, int], npt.DTypeLike] = {
    (0, 1): np.int8,
    (0, 2): np.int16,
    (0, 4): np.int32,
    (0, 8): np.int64,
    (1, 1): np.uint8,
    (1, 2): np.uint16,
    (1, 4): np.uint32,
    (1, 8): np.uint64,
    (2, 2): np.float16,
    (2, 4): np.float32,
    (2, 8): np.float64,
    (4, 2): ml_dtypes.bfloat16,
    (5, 8): np.complex64,
    (5, 16): np.complex128,
    (6, 1): np.bool_,
    (7, 1): ml_dtypes.float8_e3m4,
    (8, 1): ml_dtypes.float8_e4m3,
    (9, 1): ml_dtypes.float8_e4m3b11fnuz,
    (10, 1): ml_dtypes.float8_e4m3fn,
    (11, 1): ml_dtypes.float8_e4m3fnuz,
    (12, 1): ml_dtypes.float8_e5m2,
    (13, 1): ml_dtypes.float8_e5m2fnuz,
    (14, 1): ml_dtypes.float8_e8m0fnu,
}


def parameter_place(number: int, name: str) -> str:
    """Return what errors call a parameter.

    >>> parameter_place(0, "x"), parameter_place(1, "")
    ('parameter 0 (x)', 'parameter 1')
    """
    return f"parameter {number}" + (f" ({name})" if name else "")


def fit(value: object, spec: ArraySpec, program: str, index: int) -> Array:
    """Return `value` as an array with the parameter's dtype and shape, contiguous and aligned.

    Python numbers, and for a scalar numpy's, take the parameter's dtype when it can hold them; arrays must have it.

    Raises:
        ExecutionError: the value is no array or number, or one that does not fit.
    """
    return fit_at(value, spec, f"{program}: {parameter_place(index, spec.name)}")


def fit_at(value: object, spec: ArraySpec, place: str) -> Array:
    """Convert as `fit`, for a place that is no parameter; `place` is what takes the value, for errors."""
    if isinstance(value, np.generic) and not spec.shape and value.dtype.kind in "biufc" and value.dtype in BY_DTYPE:
        value = value.item() if value.dtype != spec.dtype else value
    if isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic):
        return _fit_number(value, spec, place)
    array = _as_array(value, spec, place)
    if array.dtype != spec.dtype and array.dtype.newbyteorder("=") != spec.dtype:
        raise ExecutionError(
            f"{place} takes {_text(spec.dtype, spec.shape)}, but an array of {_text(array.dtype, array.shape)} came",
            hint=_dtype_hint(array, spec),
        )
    if array.shape != spec.shape:
        raise ExecutionError(
            f"{place} takes {_text(spec.dtype, spec.shape)}, but an array of {_text(array.dtype, array.shape)} came",
            hint=_shape_hint(array, spec),
        )
    if array.dtype == spec.dtype and array.flags.c_contiguous and array.flags.aligned:
        return np.asarray(array)
    what = f"a copy of {place}"
    return copied(lambda: np.array(array, dtype=spec.dtype, order="C", copy=True, subok=False), spec.nbytes, what)


def raise_wrong_count(program: str, parameters: Sequence[ArraySpec], count: int) -> NoReturn:
    """Refuse a call with `count` arguments."""
    wanted = ", ".join((f"{spec.name}: " if spec.name else "") + str(spec) for spec in parameters)
    takes = f"{len(parameters)} argument" + ("s" if len(parameters) != 1 else "")
    raise ExecutionError(f"{program}: takes {takes} ({wanted}), but {count} came")


def _as_array(value: object, spec: ArraySpec, place: str) -> Array:
    """Return the value as an array, without a copy where its protocol allows that."""
    if is_masked(value):
        raise ExecutionError(f"{place}: {MASKED}, came", hint=FILLED)
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    if getattr(value, "requires_grad", False):
        raise ExecutionError(
            f"{place}: a {type(value).__name__} that requires a gradient came, and the program would not pass it on",
            hint="tensor.detach()",
        )
    problem: Exception | None = None
    for read in _readers(value, spec):
        try:
            return read(value)
        except Exception as error:
            problem = error
    kind = type(value).__name__
    if problem is not None:
        raise ExecutionError(f"{place}: the {kind} cannot be read as an array on the CPU: {problem}") from problem
    hint = f"np.asarray(value, {_dtype_name(spec.dtype)})" if isinstance(value, (list, tuple)) else ""
    raise ExecutionError(
        f"{place} takes {_text(spec.dtype, spec.shape)}, but a {kind} came, which is neither an array nor a number",
        hint=hint,
    )


def _from_dlpack(value: object) -> Array:
    """Return a view of any CPU object with DLPack, in the types of numpy and ml_dtypes."""
    bits, code = array_of_dlpack(value)
    dtype = DLPACK_TYPES.get((code, bits.dtype.itemsize))
    if dtype is None:
        raise TypeError(f"DLPack type code {code} with {8 * bits.dtype.itemsize} bits")
    return bits.view(dtype)


def _readers(value: object, spec: ArraySpec) -> list[Callable[[Any], Array]]:
    """Return the ways to read a value that its type offers, the cheapest first."""
    readers: list[Callable[[Any], Array]] = []
    if hasattr(value, "__dlpack__"):
        readers.append(_from_dlpack)
    # some scalars of ml_dtypes have neither __array__ nor a buffer, but numpy knows them
    if hasattr(value, "__array__") or type(value) is spec.dtype.type or _has_buffer(value):
        readers.append(np.asarray)
    return readers


def _has_buffer(value: object) -> bool:
    try:
        memoryview(value).release()  # type: ignore[arg-type]
    except TypeError:
        return False
    return True


def _fit_number(value: complex, spec: ArraySpec, place: str) -> Array:
    """Convert a Python number to the dtype of a parameter of rank 0, where the dtype can hold it."""
    kind, dtype = type(value).__name__, spec.dtype
    if spec.shape:
        raise ExecutionError(
            f"{place} takes {_text(dtype, spec.shape)}, but a single {kind} came",
            hint=f"np.full({spec.shape}, {value!r}, {_dtype_name(dtype)})",
        )
    element = BY_DTYPE[dtype]
    is_integer = isinstance(value, int) and not (element.is_pred and isinstance(value, bool))
    given = "s64" if is_integer else "pred" if isinstance(value, int) else "f64" if isinstance(value, float) else "c128"
    if not keeps_kind(BY_NAME[given], element):
        raise ExecutionError(
            f"{place} takes {_text(dtype, ())}, which a Python {kind} is not converted to",
            hint=f"np.array({value!r}).astype({_dtype_name(dtype)})",
        )
    try:
        # ml_dtypes takes no integer beyond 64 bits for a float, which the float may well reach
        number: Array = np.asarray(float(value.real) if is_integer and not element.is_integer else value)
    except OverflowError:
        raise ExecutionError(f"{place}: {told(value)} is out of the range of {range_of(element)}") from None
    return converted(number, element, ExecutionError, f"{place}: ")


def _text(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    return f"{dtype.name}[{','.join(map(str, shape))}]"


def _dtype_name(dtype: np.dtype[Any]) -> str:
    """Return a dtype's name as a user writes it."""
    return f"ml_dtypes.{dtype.name}" if hasattr(ml_dtypes, dtype.name) else f'"{dtype.name}"'


def _dtype_hint(array: Array, spec: ArraySpec) -> str:
    return f".astype({_dtype_name(spec.dtype)})" if array.shape == spec.shape else ""


def _shape_hint(array: Array, spec: ArraySpec) -> str:
    """Say how the same numbers are meant, where that is clear: flat ones, dimensions of size 1, a transposed matrix."""
    given, wanted = ([size for size in shape if size != 1] for shape in (array.shape, spec.shape))
    if array.size == math.prod(spec.shape) and (given == wanted or min(len(given), len(wanted)) < 2):
        return f".reshape({spec.shape})"
    return ".T" if array.shape == spec.shape[::-1] else ""


def raise_ffi_failure(name: str, message: str) -> None:
    """Raise the error of a handler of XLA's foreign function interface."""
    error = ExecutionError(f"custom call {name!r} failed: {message}")
    if current_device() >= 0:
        error.add_note(f"on device {current_device()}")
    raise error
