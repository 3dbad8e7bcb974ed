"""The right results of a program, and how far rounding may carry other results from them.

Values of several operations have no tolerance that could be written down: what the first ones rounded, later ones may
magnify. Where results are further apart than usual, the reference runs again with the values perturbed by what each
operation may round, and shows how far that goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.element_types import BY_DTYPE
from stablexla.inspection.comparing.ways import Way
from stablexla.inspection.judging.tolerances import (
    SUMS,
    Array,
    distance_in_ulp,
    distances,
    largest,
    limits_of,
    rounding_units,
)
from stablexla.inspection.program import FlatProgram, ProgramOperation, copy_into, make_module
from stablexla.processes.questions import Refusal

# Relative to the largest: two implementations round, and sum in orders of their own.
TOLERANCES = {64: 1e-12, 32: 1e-5, 16: 1e-2, 8: 0.15, 6: 0.3, 4: 0.5}
FEW_ULP = 4.0
RUNS = 6
"""Of the reference with perturbed values."""
MARGIN = 8.0
"""How often further than in any of these runs rounding may carry a result."""


class Expected:
    """Expected results of a program for its arguments.

    Attributes:
        other: the reference.
        program, arguments: the program and its arguments.
        results: the reference's results, or why there are none.
    """

    def __init__(
        self,
        other: Way,
        program: FlatProgram,
        arguments: Sequence[Array],
        tolerance: float | None = None,
        results: Sequence[Array] | None = None,
    ) -> None:
        """Run the reference.

        Args:
            tolerance: how far results may be apart, as a part of the largest; None is by the element type, and by what
                rounding does in this program.
            results: the reference's results, where it ran before.
        """
        self.program, self.arguments = program, list(arguments)
        self.other, self._tolerance = other, tolerance
        self.results = list(results) if results is not None else other.run(program.module, arguments)

    def differing(self, actual: Sequence[Array]) -> list[Array]:
        """Return for each result which of its elements, flat, rounding does not explain; none where none are known."""
        if isinstance(self.results, Refusal):
            return [np.zeros(a.size, bool) for a in actual]
        pairs = list(zip(actual, self.results, strict=True))
        masks = [exceeds_tolerance(a, w, self._tolerance) for a, w in pairs]
        if self._tolerance is None and any(mask.any() for mask in masks):
            reach = self.reach
            masks = [m & ~(distances(a, w) <= MARGIN * r) for m, (a, w), r in zip(masks, pairs, reach, strict=True)]
        return masks

    def is_wrong(self, actual: Sequence[Array] | Refusal) -> bool | None:
        """Return whether results are wrong; None where either side has none."""
        if isinstance(actual, Refusal) or isinstance(self.results, Refusal):
            return None
        return any(mask.any() for mask in self.differing(actual))

    @cached_property
    def reach(self) -> list[Array]:
        """How far rounding may carry each element, flat."""
        assert not isinstance(self.results, Refusal)
        reach = [np.zeros(w.size) for w in self.results]
        if not (places := _places(self.program)):
            return reach
        module = _perturbed(self.program, places)
        draw = np.random.default_rng(len(places))
        for _ in range(RUNS):
            factors = [_factors(draw, self.program.type_of(v), units) for (_, v), units in places.items()]
            found = self.other.run(module, [*self.arguments, *factors])
            if isinstance(found, Refusal):
                break
            reach = [np.maximum(r, distances(a, w)) for r, a, w in zip(reach, found, self.results, strict=True)]
        return reach


def exceeds_tolerance(ours: Array, theirs: Array, tolerance: float | None = None) -> Array:
    """Return which elements, flat, of values of several operations are further apart than usual."""
    element = BY_DTYPE[ours.dtype]
    if not (element.is_float or element.is_complex):
        return np.asarray((ours != theirs).reshape(-1))
    part = TOLERANCES[element.part.bits] if tolerance is None else tolerance
    scale = largest([theirs]) / (np.sqrt(2) if element.is_complex else 1)  # of complex numbers each part is held to it
    wrong = distances(ours, theirs) > part * scale
    if tolerance is None and wrong.any():
        wrong &= distance_in_ulp(ours, theirs) > FEW_ULP
    return np.asarray(wrong)


# ---- perturbed programs ----------------------------------------------------------------------------------------------

Places = dict[tuple[int, Any], float]
"""Where values are multiplied by factors near 1: the operation that reads or makes them, and the ulps of the factor."""


def _places(program: FlatProgram) -> Places:
    """Return the places where implementations round: results, and operands of what adds up or holds operations."""
    found: Places = {}
    for unit in program.units:
        units = rounding_units(unit)
        adds = bool(units) and (unit.operation in SUMS or bool(len(unit.op.regions)))
        for value in (*(unit.reads if adds else ()), *unit.results):
            element = program.type_of(value).element
            if units and (element.is_float or element.is_complex):
                found[unit.number, value] = units
    return found


def _perturbed(program: FlatProgram, places: Places) -> ir.Module:
    """Return the program with these values multiplied by further parameters."""
    taken = list(program.block.arguments)

    def fill(parameters: list[Any]) -> list[Any]:
        mapping = dict(zip(taken, parameters, strict=False))
        factors = dict(zip(places, parameters[len(taken) :], strict=True))

        def perturb(unit: ProgramOperation, values: dict[Any, Any], which: Sequence[Any]) -> None:
            for value in which:
                if (factor := factors.get((unit.number, value))) is not None:
                    values[value] = stablehlo.multiply(values[value], factor)

        for unit in program.units:
            own = dict(mapping)
            perturb(unit, own, unit.reads)
            copy_into(parameters[0].owner, unit.op, own)
            mapping |= {value: own[value] for value in unit.op.results}
            perturb(unit, mapping, unit.results)
        return [mapping[v] for v in program.returns]

    return make_module(program.module, [v.type for v in (*taken, *(value for _, value in places))], fill)


def _factors(draw: np.random.Generator, type_: Any, units: float) -> Array:
    """Return factors near 1, off by up to so many ulps."""
    element = type_.element
    steps = draw.uniform(-units, units, type_.shape) * float(limits_of(element.part.dtype).eps)
    return np.asarray(1 + steps).astype(element.dtype)
