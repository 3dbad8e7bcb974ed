"""Tables of numbers that kernels give functions of the library: sizes, strides and places, on the caller's stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Self

import mlir.ir as ir

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value
from stablexla.targets.codegen.sizes import rounded_up

# Indices of a vector that all processors load and store whole, or in equal parts.
_IN_VECTOR = 8


def number_table(numbers: Sequence[int], before: int = 0) -> Value:
    """Return a buffer on the stack with indices, behind so many places for others."""
    count, index = rounded_up(len(numbers), _IN_VECTOR), ir.IndexType.get()
    table = cg.alloca(before + count, index)
    if numbers:
        padded = [*numbers, *[0] * (count - len(numbers))]
        cg.store(cg.integers(padded, cg.vector_of(count, index)), table, before)
    return table


class Numbers:
    """Base of frozen dataclasses of indices: integers where a table is filled, values where it is read."""

    # Its subclasses are dataclasses, which `fields` takes; it has none of its own.

    @property
    def values(self) -> list[Any]:
        """All of them, in order."""
        return [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]

    @classmethod
    def length(cls) -> int:
        """Return how many there are."""
        return len(fields(cls))  # type: ignore[arg-type]

    @classmethod
    def loaded(cls, table: Value) -> Self:
        """Load them from the beginning of a table."""
        return cls(*(cg.load(table, place) for place in range(cls.length())))


__all__ = ["Numbers", "number_table"]
