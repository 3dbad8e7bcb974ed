"""Compute a GEMM transposed where only its transpose is used, as for gradients of weights in JAX.

Users of the transpose, such as an update of the weights, can then be fused as an epilogue. A product in a loop is left
as it is: the sum that it is added to stays in cache from iteration to iteration, and reading that in the epilogue made
a step of LSTM training slower by a quarter (256x1024, f32), not faster.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import tensor

from stablexla.dialects.erasing import erase
from stablexla.lowering.support.generic import filled
from stablexla.lowering.support.operations import defining, program_of
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.drop_unused import drop_unused
from stablexla.targets.grouping.loops import Loops, is_generic, loops_of
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-turn-products", "computes products of matrices transposed where only their transposes are read")
def turn_products(module: ir.Module) -> None:
    """Fold the transpose of a matrix product into the product's own loop order."""
    for function in program_of(module):
        operations = [view.operation for view in function.regions[0].blocks[0].operations]
        candidates = [op for op in operations if is_generic(op) and classify(op) is Kind.TRANSPOSE]
        turned = [_turn(op) for op in candidates]
        if any(turned):
            drop_unused(function)


def _turn(op: ir.Operation) -> bool:
    product = defining(op.operands[0])
    if product is None or product.block != op.block or len(list(product.results[0].uses)) != 1:
        return False
    if not is_generic(product) or classify(product) is not Kind.CONTRACTION:
        return False
    start, loops = defining(product.operands[2]), loops_of(product)
    if start is None or start.name != "linalg.fill" or not _is_plain(loops):
        return False
    first, second = (number for number, reduced in enumerate(loops.reduced) if not reduced)
    places = {first: second, second: first}
    with op.context, op.location, ir.InsertionPoint(op):
        maps = [_renamed(map_, places) for map_ in loops.maps[:2]]
        result = op.results[0].type
        empty = tensor.empty(result.shape, result.element_type)
        zeros = filled(start.operands[0], empty)
        made = product.clone().operation
        made.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in (*maps, loops.maps[2])])
        made.operands[2] = zeros
        made.results[0].set_type(result)
    op.results[0].replace_all_uses_with(made.results[0])
    erase(op)
    erase(product)
    return True


def _is_plain(loops: Loops) -> bool:
    """Whether the result is a matrix whose dimensions are the parallel loops, in their order."""
    kept = [number for number, reduced in enumerate(loops.reduced) if not reduced]
    return len(kept) == 2 and [e.position for e in map(ir.AffineDimExpr, loops.maps[2].results)] == kept


def _renamed(map_: ir.AffineMap, places: dict[int, int]) -> ir.AffineMap:
    dims = [ir.AffineDimExpr(e).position for e in map_.results]
    return ir.AffineMap.get(map_.n_dims, 0, [ir.AffineDimExpr.get(places.get(d, d)) for d in dims])
