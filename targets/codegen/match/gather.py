"""Loops of a gather: extents, and the strides of indices, operand and result."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Axis:
    """A loop: its turns, and how many elements one turn moves on in the indices, the operand and the result."""

    extent: int
    index_step: int
    operand_step: int
    result_step: int
