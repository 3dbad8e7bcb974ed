"""Array sizes in bytes, and sizes of equal blocks."""

from __future__ import annotations

from math import ceil, prod
from typing import Any

import mlir.ir as ir


def bytes_of(type_: Any) -> int:
    """Return the bytes of a tensor or a memref of static shape."""
    return int(prod(type_.shape)) * element_bytes(type_.element_type)


def element_bytes(type_: Any) -> int:
    """Return the bytes of one element in memory, at least one."""
    if isinstance(type_, ir.ComplexType):
        return 2 * element_bytes(type_.element_type)
    if isinstance(type_, ir.IndexType):
        return 8
    return max(1, int(type_.width) // 8)


def rounded_up(number: int, multiple: int) -> int:
    """Return the least multiple of `multiple` that is no less.

    >>> rounded_up(9, 8), rounded_up(16, 8)
    (16, 16)
    """
    return -(-number // multiple) * multiple


def balanced(extent: int, block: int, multiple: int) -> int:
    """Return the size of equal blocks of at most about `block`, a multiple of `multiple`."""
    blocks = max(1, ceil(extent / block))
    return max(1, ceil(extent / blocks / multiple)) * multiple
