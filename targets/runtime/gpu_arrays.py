"""Slow paths of GPU arrays: element types of DLPack and `__cuda_array_interface__`, copies, errors.

The native runtime calls these by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import ml_dtypes
import numpy as np
import numpy.typing as npt

from stablexla.dialects.errors import ExecutionError
from stablexla.targets.runtime._runtime import ArraySpec, DeviceArray, array_of_dlpack, dlpack_of_array
from stablexla.targets.runtime.arguments import DLPACK_TYPES

Array = npt.NDArray[Any]

_TYPES: dict[tuple[int, int], np.dtype[Any]] = {key: np.dtype(dtype) for key, dtype in DLPACK_TYPES.items()}
_CODES = {dtype: key for key, dtype in _TYPES.items()}
_CPU = 1


def dlpack_type(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return DLPack's type code and bits.

    Raises:
        ExecutionError: DLPack has no such elements.
    """
    if dtype not in _CODES:
        raise ExecutionError(f"DLPack has no arrays of {dtype.name}", hint="array.copy_to_host()")
    code, width = _CODES[dtype]
    return code, 8 * width


def dtype_of_dlpack(code: int, bits: int, lanes: int) -> np.dtype[Any]:
    """Return the dtype of a foreign array's DLPack type."""
    if lanes != 1 or bits % 8 or (code, bits // 8) not in _TYPES:
        raise ExecutionError(f"an array of DLPack's type code {code} with {bits} bits, {lanes} lanes, cannot be taken")
    return _TYPES[code, bits // 8]


def dtype_of_interface(text: str) -> np.dtype[Any]:
    """Return the dtype that `__cuda_array_interface__` spells."""
    return np.dtype(getattr(ml_dtypes, text, text)).newbyteorder("=")


def bytes_of(constant: Array) -> Array:
    """Return a constant's elements as bytes, read-only."""
    data = np.frombuffer(np.ascontiguousarray(constant).tobytes(), np.uint8)
    data.flags.writeable = False
    return data


def host_array(value: object) -> Array:
    """Return a host value as an array that can be copied as it is."""
    if hasattr(value, "__dlpack__") and not isinstance(value, np.ndarray | np.generic):
        bits, code = array_of_dlpack(value)  # numpy does not know all of DLPack's types
        array = np.asarray(bits.view(dtype_of_dlpack(code, 8 * bits.dtype.itemsize, 1)), order="C")
    else:
        array = np.asarray(value, order="C")
    if array.dtype.hasobject or array.dtype.kind in "USmM":
        raise ExecutionError(f"arrays of {array.dtype} cannot be put on a GPU")
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def as_numpy(array: DeviceArray, dtype: npt.DTypeLike | None, copy: bool | None) -> Array:
    """Copy to the host, for numpy's `__array__`."""
    if copy is False:
        raise ValueError("an array on a GPU is not read by numpy without a copy")
    made = array.copy_to_host()
    return made if dtype is None else made.astype(dtype, copy=False)


def to_dlpack(
    array: DeviceArray,
    stream: int | None,
    max_version: tuple[int, int] | None,
    dl_device: tuple[int, int] | None,
    copy: bool | None,
) -> Any:
    """Return a DLPack capsule over the array's memory, or over a copy on the host when that is requested."""
    if dl_device is not None and tuple(dl_device) != (2, array.device):
        if dl_device[0] != _CPU or copy is False:
            raise BufferError(f"the array is on GPU {array.device}, and goes to no device {tuple(dl_device)}")
        return dlpack_of_array(array.copy_to_host(), dlpack_type(array.dtype)[0]).__dlpack__()
    if copy:
        raise BufferError("an array on a GPU is given without a copy")
    return array._capsule(stream, max_version is not None and max_version[0] >= 1)


def interface_of(array: DeviceArray) -> dict[str, Any]:
    """Return `__cuda_array_interface__`, version 3, after synchronizing: not all its consumers do."""
    if array.dtype.kind == "V" or array.dtype.isbuiltin != 1:
        raise AttributeError(f"__cuda_array_interface__ has no arrays of {array.dtype.name}; DLPack may")
    array.block_until_ready()
    return {
        "shape": array.shape,
        "typestr": array.dtype.str,
        "data": (array.address if array.nbytes else 0, False),
        "strides": None,
        "stream": None,
        "version": 3,
    }


def raise_error(summary: str, hint: str) -> NoReturn:
    """Raise a failure of the driver or the runtime."""
    raise ExecutionError(summary, hint=hint)


def raise_bad_stream(number: int) -> NoReturn:
    """Refuse a stream number that DLPack does not have."""
    raise ExecutionError(f"DLPack's stream {number} is ambiguous", hint="1 is the default stream, 2 that of the thread")


def raise_other_device(place: str, came: int, wanted: int) -> NoReturn:
    """Refuse an array on another device than the rest."""
    raise ExecutionError(
        f"{place}: an array on GPU {came} came, where the program runs on GPU {wanted}",
        hint=f"sx.gpu.put(array.copy_to_host(), device={wanted})",
    )


def raise_unfit(place: str, spec: ArraySpec, dtype: np.dtype[Any], shape: Sequence[int]) -> NoReturn:
    """Refuse an array on the device of another type or shape than the program takes."""
    came = f"{dtype.name}[{','.join(map(str, shape))}]"
    raise ExecutionError(f"{place} takes {_text(spec)}, but an array of {came} came")


def raise_not_contiguous(place: str, spec: ArraySpec) -> NoReturn:
    """Refuse an array on the device that is not row-major."""
    raise ExecutionError(
        f"{place} takes {_text(spec)} in row-major order, but an array with other strides came",
        hint="tensor.contiguous() in torch, cupy.ascontiguousarray(array)",
    )


def raise_unreadable(place: str, value: object, problem: BaseException) -> NoReturn:
    """Refuse an array whose owner cannot export it."""
    if isinstance(problem, ExecutionError):
        raise problem
    hint = "tensor.detach()" if getattr(value, "requires_grad", False) else ""
    kind = type(value).__name__
    raise ExecutionError(
        f"{place}: the {kind} cannot be read as an array on the device: {problem}", hint=hint
    ) from problem


def _text(spec: ArraySpec) -> str:
    return f"{spec.dtype.name}[{','.join(map(str, spec.shape))}]"
