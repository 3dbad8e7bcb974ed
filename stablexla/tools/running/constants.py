"""Arrays for parameters that become constants: the files of `--constants`."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.errors import ExecutionError
from stablexla.tools.running.inputs import Array, read_arrays

_LENGTH = struct.Struct("<Q")
# Of safetensors' format.
_NAMES = {"BOOL": "pred", "F8_E4M3": "f8E4M3FN", "F8_E5M2": "f8E5M2"} | {
    f"{theirs}{bits}": f"{ours}{bits}" for theirs, ours in (("I", "s"), ("U", "u"), ("F", "f"), ("BF", "bf"))
    for bits in (8, 16, 32, 64)
}  # fmt: skip


def read_constants(path: Path) -> dict[str, Array]:
    """Return the arrays of an .npz or .safetensors file by name; those of the latter are the file's memory, mapped.

    Raises:
        ExecutionError: it cannot be read, or has an array of an element type that XLA has not.

    Source: the format of safetensors: the length of a header, u64, the header in JSON, and the arrays' bytes.
    """
    if path.suffix != ".safetensors":
        return read_arrays(path, ".npz")
    try:
        with path.open("rb") as file:
            data = memoryview(mmap(file.fileno(), 0, access=ACCESS_READ))
        (length,) = _LENGTH.unpack_from(data)
        if length > len(data) - _LENGTH.size:
            raise ValueError("it ends before its header does")
        header = json.loads(bytes(data[_LENGTH.size : _LENGTH.size + length]))
        header.pop("__metadata__", None)
        body = data[_LENGTH.size + length :]
        if len(body) != max((about["data_offsets"][1] for about in header.values()), default=0):
            raise ValueError("it ends before its last array, or has bytes behind it")
        return {name: _array(path, name, about, body) for name, about in header.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise ExecutionError(f"{path} cannot be read as a .safetensors file: {error!r}") from None


def _array(path: Path, name: str, about: Mapping[str, Any], body: memoryview) -> Array:
    element = BY_NAME.get(_NAMES.get(about["dtype"], ""))
    if element is None:
        raise ExecutionError(f"{path}: {name} has elements {about['dtype']}, which XLA has not")
    (first, last), shape = about["data_offsets"], about["shape"]
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in (*shape, first, last)):
        raise ValueError(f"{name} has no shape or no place")
    if last > len(body) or last - first != prod(shape) * element.dtype.itemsize:
        raise ValueError(f"{name} has not as many bytes as its shape takes")
    array = np.frombuffer(body[first:last], np.uint8).view(element.dtype).reshape(shape)
    return array if array.flags.aligned else array.copy()
