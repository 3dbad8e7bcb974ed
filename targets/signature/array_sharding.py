"""Shardings of parameters and results over the devices, independent of MLIR, as saved programs need them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stablexla.dialects.lazy_dataclass import dataclass


@dataclass(frozen=True)
class ArraySharding:
    """Sharding of an array: the slice of it that each partition holds.

    Attributes:
        shape: of the whole array.
        parts: for each partition the range, from and to, that it holds of each dimension.
    """

    shape: tuple[int, ...]
    parts: tuple[tuple[tuple[int, int], ...], ...]

    @staticmethod
    def of_plain(shape: Sequence[int], parts: Sequence[Sequence[Sequence[int]]]) -> ArraySharding:
        """Deserialize the result of `plain`."""
        return ArraySharding(tuple(shape), tuple(tuple((low, high) for low, high in part) for part in parts))

    def plain(self) -> list[Any]:
        """Serialize shape and parts as lists, for a file."""
        return [self.shape, self.parts]

    @property
    def is_replicated(self) -> bool:
        """Whether every partition holds the whole array."""
        return len(set(self.parts)) == 1

    def index(self, partition: int) -> tuple[slice, ...]:
        """Return a partition's part as slices of the array."""
        return tuple(slice(start, stop) for start, stop in self.parts[partition])


Shardings = tuple[tuple[ArraySharding, ...], tuple[ArraySharding, ...]]
"""Shardings of the parameters, and of the results."""
