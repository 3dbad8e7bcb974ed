"""Compute a GEMM transposed: where only its transpose is used, as for gradients of weights in JAX; where it is narrow.

Users of the transpose can then be fused as an epilogue: an update of the weights, or the addition to a gradient that a
loop carries.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir

from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.erasing import erase
from stablexla.dialects.tensor_types import TensorType
from stablexla.lowering.support.generic import PARALLEL, Output, generic
from stablexla.lowering.support.operations import only_user
from stablexla.targets.grouping.classify import Kind, classify, is_product
from stablexla.targets.grouping.loops import loops_of
from stablexla.targets.grouping.matchers import GENERIC, fill_of, made_by, product_like
from stablexla.targets.grouping.patterns import pattern_pass


@pattern_pass(
    "stablexla-turn-products", "computes products of matrices transposed where only their transposes are read", GENERIC
)
def turn_products(op: ir.Operation) -> Sequence[ir.Value] | None:
    """Fold the transpose of a matrix product into the product's own loop order."""
    product = made_by(op.operands[0], GENERIC) if len(op.operands) == 2 else None
    if product is None or product.block != op.block or only_user(product.results[0]) is None:
        return None
    if classify(op) is not Kind.TRANSPOSE or not _is_plain_product(product):
        return None
    op.results[0].replace_all_uses_with(_transposed(product))
    erase(op)
    erase(product)
    return ()


@pattern_pass("stablexla-turn-narrow-products", "computes products of few columns transposed", GENERIC)
def turn_narrow_products(op: ir.Operation, *, vector_bits: int = 256) -> Sequence[ir.Value] | None:
    """Compute a narrow product with vectors along its rows, and transpose the result.

    A micro-kernel's tile is several vectors wide: of 2 columns it computes 16 or 64. Gradients of the weights of a last
    layer are such products, with the rows of the left operand contiguous in memory.
    """
    if op.parent.name != "func.func" or not _is_plain_product(op) or not _is_narrow(op, vector_bits):
        return None
    type_ = op.results[0].type
    result = Output(TensorType(BY_NAME[str(type_.element_type)], tuple(type_.shape)))
    maps = [ir.AffineMap.get_permutation(order) for order in ([1, 0], [0, 1])]
    return generic([_transposed(op)], [result], maps, [PARALLEL] * 2, lambda elements: elements[:1])


def _is_narrow(op: ir.Operation, vector_bits: int) -> bool:
    """Whether a product has at most two vectors of columns, more rows, and an operand whose rows lie side by side."""
    types = [v.type for v in op.operands]
    element, loops = types[2].element_type, loops_of(op)
    if any(type_.rank != 2 or type_.element_type != element for type_ in types):
        return False
    rows, columns = types[2].shape
    if not isinstance(element, (ir.F32Type, ir.F64Type)) or columns * element.width > 2 * vector_bits:
        return False
    first = loops.dims[2][0]
    return bool(rows >= 2 * columns and first in [dims[-1] for dims in loops.dims[:2]])


def _is_plain_product(op: ir.Operation) -> bool:
    """Whether an operation is a product that starts from a fill, and its parallel loops, in order, are a matrix's."""
    if not is_product(op) or fill_of(op) is None:
        return False
    loops = loops_of(op)
    return len(loops.dims[2]) == 2 and list(loops.dims[2]) == [d for d, r in enumerate(loops.reduced) if not r]


def _transposed(product: ir.Operation) -> ir.Value:
    """Emit the product with its two parallel loops exchanged."""
    loops = loops_of(product)
    order = list(range(len(loops.reduced)))
    first, second = loops.dims[2]
    order[first], order[second] = second, first
    exchange = ir.AffineMap.get_permutation(order)
    maps = [ir.AffineMap.get(m.n_dims, 0, [e.compose(exchange) for e in m.results]) for m in loops.maps[:2]]
    shape = product.results[0].type.shape[::-1]
    return product_like(product, list(product.operands)[:2], shape, [*maps, loops.maps[2]])
