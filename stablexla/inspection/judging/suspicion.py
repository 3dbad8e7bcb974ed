"""The order in which operations are judged: those first whose results are most often wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from stablexla.dialects.op_traits import TRAITS, OpTraits
from stablexla.inspection.program import ProgramOperation
from stablexla.lowering.support.types import tensor_type

Holds = Callable[[OpTraits, bool], object]
KINDS: tuple[tuple[str, Holds], ...] = (
    ("sums of numbers below 32 bits", lambda traits, is_narrow: traits.adds_up and is_narrow),
    ("algorithms with divisions", lambda traits, _: traits.algorithm_units),
    ("sums, whose emitters are specialised by shape", lambda traits, _: traits.adds_up),
    ("kernels of their own: loops, random numbers, composites", lambda traits, _: traits == OpTraits()),
    ("functions that are approximated", lambda traits, _: traits.is_elementwise and not traits.is_exact),
    ("arithmetic that is exact", lambda traits, _: traits.is_elementwise),
    ("movement of elements", lambda traits, _: True),
)
"""Kinds of operations, the most suspicious first; an operation is of the first kind that holds."""


def by_suspicion(units: Iterable[ProgramOperation], ruled: Collection[str]) -> list[ProgramOperation]:
    """Sort operations: those with a lowering rule of the user's, then by `KINDS`, and equal ones in program order.

    Args:
        ruled: the names of the operations with such rules.
    """

    def rank(unit: ProgramOperation) -> tuple[int, int]:
        if unit.name in ruled or unit.op.name in ruled:
            return -1, unit.number
        traits = TRAITS.get(unit.name, OpTraits())
        is_narrow = any(tensor_type(r.type).element.part.bits < 32 for r in unit.results)
        return next(i for i, (_, holds) in enumerate(KINDS) if holds(traits, is_narrow)), unit.number

    return sorted(units, key=rank)
