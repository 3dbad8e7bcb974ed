"""Results for other libraries, without a copy: DLPack also for the element types that numpy's own refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stablexla.dialects.value_ranges import FILLED, MASKED, is_masked
from stablexla.targets.runtime._runtime import DeviceArray, dlpack_of_array
from stablexla.targets.runtime.arguments import DLPACK_TYPES

_CODES = {np.dtype(dtype): code for (code, _), dtype in DLPACK_TYPES.items()}


def to_dlpack(array: npt.NDArray[Any] | DeviceArray) -> Any:
    """Wrap an array's own memory in DLPack, for `torch.from_dlpack`, `jax.dlpack.from_dlpack` and others.

    numpy's arrays have DLPack themselves, but not those of bf16 and the 8-bit floats, nor those that are read-only for
    every reader. The consumer can write to the memory.

    Args:
        array: of any shape and strides, and of an element type of a byte or more. Arrays on a GPU have DLPack, and
            are given back.

    Raises:
        TypeError: DLPack has no such element type; or the array is masked.

    >>> import ml_dtypes
    >>> array = np.arange(3).astype(ml_dtypes.bfloat16)
    >>> np.from_dlpack(sx.to_dlpack(np.arange(3)))
    array([0, 1, 2])
    >>> sx.to_dlpack(array).__dlpack_device__()  # the CPU, device 0
    (1, 0)
    """
    if isinstance(array, DeviceArray):
        return array
    if is_masked(array):
        raise TypeError(f"DLPack cannot hold {MASKED}: {FILLED}")
    code = _CODES.get(array.dtype)
    if code is None:
        raise TypeError(f"DLPack has no element type {array.dtype}")
    return dlpack_of_array(array, code)
