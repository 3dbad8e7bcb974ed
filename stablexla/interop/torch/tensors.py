"""Tensors as arrays and back, without copies: an array's order in memory is a permutation of its dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from stablexla.interop.arrays import to_dlpack
from stablexla.interop.torch.types import xla_type

_BITS = {1: torch.uint8, 2: torch.int16}
_OF_NUMPY = {torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.float32,
             torch.float64, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64}  # fmt: skip

Order = tuple[int, ...]


def as_array(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """Return the memory of a tensor on the CPU, without a gradient, as an array.

    >>> as_array(torch.ones(2, dtype=torch.bfloat16))
    array([1, 1], dtype=bfloat16)
    """
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    if tensor.dtype in _OF_NUMPY:
        plain: npt.NDArray[Any] = tensor.numpy()
        return plain
    array: npt.NDArray[Any] = tensor.view(_BITS[tensor.itemsize]).numpy()
    return array.view(xla_type(tensor.dtype).dtype)


def as_tensor(array: npt.NDArray[Any]) -> torch.Tensor:
    """Return an array's memory as a tensor."""
    return torch.from_numpy(array) if array.dtype.isbuiltin == 1 and array.flags.writeable else _by_dlpack(array)


def _by_dlpack(array: npt.NDArray[Any]) -> torch.Tensor:
    if array.size == 0:  # DLPack's consumer may not like its address
        return torch.empty(array.shape, dtype=torch.from_dlpack(to_dlpack(np.zeros(1, array.dtype))).dtype)
    return torch.from_dlpack(to_dlpack(array))


def order_of(sizes: Sequence[int], strides: Sequence[int]) -> Order | None:
    """Return the permutation by which a tensor's dimensions lie in memory, or None: as they are, or not without gaps.

    >>> order_of((2, 3, 4, 5), torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last).stride())
    (0, 2, 3, 1)
    >>> order_of((2, 3), (3, 1))
    """
    order = tuple(sorted(range(len(sizes)), key=lambda d: (-strides[d], d)))
    if order == tuple(range(len(sizes))) or 0 in sizes:
        return None
    step = 1
    for dimension in reversed(order):
        if sizes[dimension] != 1 and strides[dimension] != step:
            return None
        step *= sizes[dimension]
    return order


def inverse(order: Order) -> Order:
    """Return the permutation that undoes one."""
    return tuple(sorted(range(len(order)), key=order.__getitem__))
