"""Static tensor types as plain values: an element type and extents."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from stablexla.dialects.element_types import ElementType
from stablexla.dialects.lazy_dataclass import dataclass


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of a dense row-major array, in elements; none of them 0 even if the array is empty."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(1, extent)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class TensorType:
    """Element type and extents of a StableHLO tensor; every extent is known."""

    element: ElementType
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def with_shape(self, shape: tuple[int, ...]) -> TensorType:
        """Return the same element type with another shape."""
        return TensorType(self.element, shape)

    def __str__(self) -> str:
        return f"{self.element}[{','.join(map(str, self.shape))}]"
