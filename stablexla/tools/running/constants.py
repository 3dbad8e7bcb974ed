"""Arrays for parameters that become constants: the files of `--constants`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.errors import ExecutionError
from stablexla.tools.running.inputs import Array, read_arrays

# Of safetensors' format.
_NAMES = {"BOOL": "pred", "F8_E4M3": "f8E4M3FN", "F8_E5M2": "f8E5M2"} | {
    f"{theirs}{bits}": f"{ours}{bits}" for theirs, ours in (("I", "s"), ("U", "u"), ("F", "f"), ("BF", "bf"))
    for bits in (8, 16, 32, 64)
}  # fmt: skip


def read_constants(path: Path) -> dict[str, Array]:
    """Return the arrays of an .npz or .safetensors file by name.

    Raises:
        ExecutionError: it cannot be read, or has an array of an element type that XLA has not.
    """
    if path.suffix != ".safetensors":
        return read_arrays(path, ".npz")
    try:
        from safetensors import deserialize

        found: Any = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]  # its stub has no types
    except ImportError:
        raise ExecutionError(f"{path}: safetensors is not installed", hint="pip install safetensors") from None
    except Exception as error:  # safetensors has errors of its own for damaged files
        raise ExecutionError(f"{path} cannot be read as a .safetensors file: {error}") from None
    return {name: _array(path, name, tensor["dtype"], tensor["shape"], tensor["data"]) for name, tensor in found}


def _array(path: Path, name: str, type_: str, shape: list[int], data: bytes) -> Array:
    element = BY_NAME.get(_NAMES.get(type_, ""))
    if element is None:
        raise ExecutionError(f"{path}: {name} has elements {type_}, which XLA has not")
    return np.frombuffer(bytearray(data), element.dtype).reshape(shape)
