"""Samples of large operations: the same operation on slices of its operands gives slices of its results.

Which dimensions may be sliced is what the partitioner knows of the operation: those along which devices would compute
their parts by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
import numpy.typing as npt

from stablexla.dialects import hlo
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.inspection.judging.costs import scalar_operations
from stablexla.inspection.program import FlatProgram, ProgramOperation, make_module
from stablexla.targets.stablehlo.partition import factors_windows as factors_windows  # its rules
from stablexla.targets.stablehlo.partition.factors import Factors, factors_of
from stablexla.targets.stablehlo.partition.local import adapt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Sample:
    """An operation on slices.

    Attributes:
        program: of this operation alone.
        arguments: the slices of its operands, the arguments of `program`.
        results: the slices of the results that were computed on the whole arrays.
    """

    program: FlatProgram
    arguments: list[Array]
    results: list[Array]

    @property
    def unit(self) -> ProgramOperation:
        """The operation."""
        return self.program.units[0]


def sample_of(unit: ProgramOperation, values: Mapping[Any, Array], source: ir.Module, most: int) -> Sample | None:
    """Return a sample of at most so many scalar operations; None of what cannot be sliced so far.

    Args:
        values: the operands and results of the operation.
        source: its module.
    """
    op = unit.op
    if not len(op.operands) or set(unit.reads) != set(op.operands) or len(op.results) != len(unit.results):
        return None
    shapes: list[Sequence[int]] = [tuple(v.type.shape) for v in (*op.operands, *op.results)]
    operands, results = shapes[: len(op.operands)], shapes[len(op.operands) :]
    factors = factors_of(op, operands, results)
    if factors is None:
        return None
    places = _places(factors, operands, results, scalar_operations(unit) / most)
    if places is None:
        return None
    slices = [
        tuple(places.get(f, slice(0, n)) for f, n in zip(ids, shape, strict=True))
        for ids, shape in zip((*factors.operands, *factors.results), shapes, strict=True)
    ]
    arrays = [values[v][cut] for v, cut in zip((*op.operands, *op.results), slices, strict=True)]
    arguments, wanted = arrays[: len(operands)], arrays[len(operands) :]
    program = FlatProgram(_module(op, source, operands, [a.shape for a in arguments], [r.shape for r in wanted]))
    return Sample(program, [np.array(a, order="C") for a in arguments], [np.array(r, order="C") for r in wanted])


def _places(
    factors: Factors, operands: Sequence[Sequence[int]], results: Sequence[Sequence[int]], times: float
) -> dict[int | None, slice] | None:
    """Choose a slice of each factor that the results have, so that the operation is so many times less."""
    sizes: dict[int, int] = {}
    for ids, shape in zip((*factors.operands, *factors.results), (*operands, *results), strict=True):
        sizes |= {f: n for f, n in zip(ids, shape, strict=True) if f is not None and f not in factors.sums}
    kept = dict(sizes)
    while prod(sizes.values()) < times * prod(kept.values()):
        largest = max(kept, key=lambda f: kept[f], default=None)
        if largest is None or kept[largest] == 1:
            return None
        kept[largest] = (kept[largest] + 1) // 2
    draw = np.random.default_rng(len(kept))
    starts = {f: int(draw.integers(0, sizes[f] - kept[f] + 1)) for f in kept}
    return {f: slice(starts[f], starts[f] + kept[f]) for f in kept}


def _module(
    op: Any,
    source: ir.Module,
    shapes: Sequence[Sequence[int]],
    arguments: Sequence[Sequence[int]],
    results: Sequence[Sequence[int]],
) -> ir.Module:
    with source.context, ir.Location.unknown():
        types = [hlo.tensor(v.type, shape) for v, shape in zip(op.operands, arguments, strict=True)]

    def fill(parameters: list[Any]) -> list[Any]:
        copy = op.clone().operation
        for i, parameter in enumerate(parameters):
            copy.operands[i] = parameter
        adapt(copy, shapes, arguments)
        for result, shape in zip(copy.results, results, strict=True):
            result.set_type(hlo.tensor(result.type, shape))
        return list(copy.results)

    return make_module(source, types, fill)
