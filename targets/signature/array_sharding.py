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
        summands: where a part is the sum of what several partitions hold, for each partition which summand it has.
    """

    shape: tuple[int, ...]
    parts: tuple[tuple[tuple[int, int], ...], ...]
    summands: tuple[int, ...] = ()

    @staticmethod
    def of_plain(
        shape: Sequence[int], parts: Sequence[Sequence[Sequence[int]]], summands: Sequence[int] = ()
    ) -> ArraySharding:
        """Deserialize the result of `plain`."""
        ranges = tuple(tuple((low, high) for low, high in part) for part in parts)
        return ArraySharding(tuple(shape), ranges, tuple(summands))

    def plain(self) -> list[Any]:
        """Serialize shape, parts and summands as lists, for a file."""
        return [self.shape, self.parts, self.summands]

    @property
    def is_replicated(self) -> bool:
        """Whether every partition holds the whole array."""
        return len(set(self.parts)) == 1 and not self.summands

    def index(self, partition: int) -> tuple[slice, ...]:
        """Return a partition's part as slices of the array."""
        return tuple(slice(start, stop) for start, stop in self.parts[partition])


Shardings = tuple[tuple[ArraySharding, ...], tuple[ArraySharding, ...]]
"""Shardings of the parameters, and of the results."""
