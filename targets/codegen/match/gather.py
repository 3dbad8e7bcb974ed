"""Loops of a gather: extents, and the strides of indices, operand and result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GatherAxis:
    """A loop: its trip count, and its strides in the indices, the operand and the result, in elements."""

    extent: int
    index_step: int
    operand_step: int
    result_step: int
