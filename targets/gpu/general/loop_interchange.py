"""Loop interchange: put the parallel loops of linalg's operations before reductions, so that they become one nest."""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir

from stablexla.lowering.support.operations import walk
from stablexla.targets.grouping.loops import is_generic, loops_of


def interchange_loops(module: ir.Module) -> None:
    """Interchange the loops of every `linalg.generic` of the module where that is needed."""
    for op in walk(module.operation):
        if is_generic(op):
            loops = loops_of(op)
            reduced = loops.reduced
            order = sorted(range(len(reduced)), key=lambda loop: reduced[loop])
            if order != list(range(len(reduced))):
                _renumber(op, loops.maps, order)


def _renumber(op: ir.Operation, maps: Sequence[ir.AffineMap], order: list[int]) -> None:
    """Permute loops: loop number `order[i]` becomes number i."""
    place = {old: new for new, old in enumerate(order)}
    dims = [ir.AffineDimExpr.get(place[old]) for old in range(len(order))]
    renamed = [
        ir.AffineMap.get(
            len(order), 0, [ir.AffineExpr.compose(e, ir.AffineMap.get(len(order), 0, dims)) for e in m.results]
        )
        for m in maps
    ]
    kinds = list(op.attributes["iterator_types"])
    op.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in renamed])
    op.attributes["iterator_types"] = ir.ArrayAttr.get([kinds[old] for old in order])
    for inner in walk(op):
        if inner.name == "linalg.index":
            old = ir.IntegerAttr(inner.attributes["dim"]).value
            inner.attributes["dim"] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), place[old])
