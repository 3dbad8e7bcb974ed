"""Compute a GEMM transposed: where only its transpose is used, as for gradients of weights in JAX; where it is narrow.

Users of the transpose can then be fused as an epilogue: an update of the weights, or the addition to a gradient that a
loop carries.
"""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import tensor

from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.erasing import erase
from stablexla.dialects.tensor_types import TensorType
from stablexla.lowering.support.generic import PARALLEL, Output, filled, generic
from stablexla.lowering.support.operations import defining, is_tensor, operations_named, program_of
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.drop_unused import drop_unused
from stablexla.targets.grouping.loops import Loops, is_generic, loops_of
from stablexla.targets.pipeline.passes import module_pass


@module_pass("stablexla-turn-products", "computes products of matrices transposed where only their transposes are read")
def turn_products(module: ir.Module) -> None:
    """Fold the transpose of a matrix product into the product's own loop order."""
    for function in program_of(module):
        candidates = [op for op in operations_named(function, "linalg.generic") if classify(op) is Kind.TRANSPOSE]
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
    with op.context, op.location, ir.InsertionPoint(op):
        made = _transposed(product, start, loops)
    op.results[0].replace_all_uses_with(made)
    erase(op)
    erase(product)
    return True


@module_pass("stablexla-turn-narrow-products", "computes products of few columns transposed")
def turn_narrow_products(module: ir.Module, *, vector_bits: int = 256) -> None:
    """Compute a narrow product with vectors along its rows, and transpose the result.

    A micro-kernel's tile is several vectors wide: of 2 columns it computes 16 or 64. Gradients of the weights of a last
    layer are such products, with the rows of the left operand contiguous in memory.
    """
    for function in program_of(module):
        operations = [view.operation for view in function.regions[0].blocks[0].operations]
        narrow = [op for op in operations if is_generic(op) and _is_narrow(op, vector_bits)]
        for product in narrow:
            type_ = product.results[0].type
            result = Output(TensorType(BY_NAME[str(type_.element_type)], tuple(type_.shape)))
            with product.context, product.location, ir.InsertionPoint(product):
                turned = _transposed(product, defining(product.operands[2]), loops_of(product))
                maps = [ir.AffineMap.get_permutation(order) for order in ([1, 0], [0, 1])]
                (back,) = generic([turned], [result], maps, [PARALLEL] * 2, lambda elements: elements[:1])
            product.results[0].replace_all_uses_with(back)
            erase(product)
        if narrow:
            drop_unused(function)


def _is_narrow(op: ir.Operation, vector_bits: int) -> bool:
    """Whether a product has at most two vectors of columns, more rows, and an operand whose rows lie side by side."""
    if classify(op) is not Kind.CONTRACTION or not all(is_tensor(v) and v.type.rank == 2 for v in op.operands):
        return False
    start, loops = defining(op.operands[2]), loops_of(op)
    elements = {v.type.element_type for v in op.operands}
    if start is None or start.name != "linalg.fill" or not _is_plain(loops) or len(elements) != 1:
        return False
    (element,) = elements
    rows, columns = op.results[0].type.shape
    if not isinstance(element, (ir.F32Type, ir.F64Type)) or columns * element.width > 2 * vector_bits:
        return False
    first = next(number for number, reduced in enumerate(loops.reduced) if not reduced)
    last = {ir.AffineDimExpr(map_.results[-1]).position for map_ in loops.maps[:2]}
    return bool(rows >= 2 * columns and first in last)


def _transposed(product: ir.Operation, start: ir.Operation, loops: Loops) -> ir.Value:
    """Emit the product with its two parallel loops exchanged."""
    first, second = (number for number, reduced in enumerate(loops.reduced) if not reduced)
    places = {first: second, second: first}
    maps = [_renamed(map_, places) for map_ in loops.maps[:2]]
    old = product.results[0].type
    zeros = filled(start.operands[0], tensor.empty(old.shape[::-1], old.element_type))
    made = product.clone().operation
    made.attributes["indexing_maps"] = ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in (*maps, loops.maps[2])])
    made.operands[2] = zeros
    made.results[0].set_type(zeros.type)
    return made.results[0]


def _is_plain(loops: Loops) -> bool:
    """Whether the result is a matrix whose dimensions are the parallel loops, in their order."""
    kept = [number for number, reduced in enumerate(loops.reduced) if not reduced]
    return len(kept) == 2 and [e.position for e in map(ir.AffineDimExpr, loops.maps[2].results)] == kept


def _renamed(map_: ir.AffineMap, places: dict[int, int]) -> ir.AffineMap:
    dims = [ir.AffineDimExpr(e).position for e in map_.results]
    return ir.AffineMap.get(map_.n_dims, 0, [ir.AffineDimExpr.get(places.get(d, d)) for d in dims])
