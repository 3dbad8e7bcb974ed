"""Let products read their weights packed: what dequantises a weight joins the kernel that multiplies it.

Stored dequantised, a weight would be written and read again in a wider type. A product of few rows computes it in
registers; one of more rows as it packs the operand, once for all of them.
"""

from __future__ import annotations

import math

import mlir.ir as ir

from stablexla.dialects.choices import Gate
from stablexla.lowering.support.operations import is_tensor, program_of
from stablexla.targets.grouping.classify import is_product
from stablexla.targets.grouping.factors import Factor, factor_of
from stablexla.targets.grouping.group import FACTOR, blocks_of
from stablexla.targets.grouping.loops import loops_of
from stablexla.targets.pipeline.passes import module_pass

# The least elements of such a weight, and the most rows that are multiplied by each of its elements in registers.
LEAST_ELEMENTS = Gate("join-factors.least-elements", 1 << 14, eager=1)
FEW_ROWS = Gate("join-factors.few-rows", 16, eager=1)


@module_pass("stablexla-join-factors", "labels what dequantises weights, to join the kernels of their products")
def join_factors(module: ir.Module) -> None:
    """Label each such product and the operations that its kernel will compute for it with one number."""
    number = 0
    for block in [block for function in program_of(module) for block in blocks_of(function)]:
        for view in block.operations:
            op = view.operation
            found = _factor(op) if is_product(op) else None
            if found is not None:
                with op.context:
                    label = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
                for member in (*found.members, op):
                    member.attributes[FACTOR] = label
                number += 1


def _factor(op: ir.Operation) -> Factor | None:
    """Return the weight of a product, if it is computed from less."""
    if not all(is_tensor(v) for v in op.operands) or not _is_wide(op.results[0].type.element_type):
        return None
    return next((found for n in (0, 1) if _is_weight(op, n) and (found := factor_of(op, n)) is not None), None)


def _is_wide(element: ir.Type) -> bool:
    return isinstance(element, ir.F32Type | ir.F64Type) or (isinstance(element, ir.IntegerType) and element.width >= 32)


def _is_weight(op: ir.Operation, number: int) -> bool:
    """Whether an operand is large, and the other one has few rows, or no more than it has columns.

    Of many rows narrow elements are left to the instructions that multiply them.
    """
    loops = loops_of(op)
    mine, other = set(loops.dims[number]), set(loops.dims[1 - number])
    rows = math.prod(loops.extents[d] for d in other - mine)
    columns = math.prod(loops.extents[d] for d in mine - other)
    weight = op.operands[number].type
    if math.prod(weight.shape) < LEAST_ELEMENTS():
        return False
    return rows <= FEW_ROWS() or (rows <= columns and bool(weight.element_type == op.results[0].type.element_type))
