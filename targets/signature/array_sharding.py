"""How a parameter or result of a sharded program lies on the devices; known without any MLIR, as saved programs are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ArraySharding:
    """How an array lies on the devices.

    Attributes:
        shape: of the whole array.
        parts: for each partition the range, from and to, that it holds of each dimension.
    """

    shape: tuple[int, ...]
    parts: tuple[tuple[tuple[int, int], ...], ...]

    @staticmethod
    def of_plain(shape: Sequence[int], parts: Sequence[Sequence[Sequence[int]]]) -> ArraySharding:
        """What `plain` gave, as a value again."""
        return ArraySharding(tuple(shape), tuple(tuple((low, high) for low, high in part) for part in parts))

    def plain(self) -> list[Any]:
        """Shape and parts, as a file holds them."""
        return [self.shape, self.parts]

    @property
    def is_replicated(self) -> bool:
        """Every partition holds all of it."""
        return len(set(self.parts)) == 1

    def index(self, partition: int) -> tuple[slice, ...]:
        """Where the part of a partition lies in the array."""
        return tuple(slice(start, stop) for start, stop in self.parts[partition])


Shardings = tuple[tuple[ArraySharding, ...], tuple[ArraySharding, ...]]
"""Those of the parameters, and those of the results."""
