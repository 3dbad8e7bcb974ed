"""Let products of few rows read their weights packed: what dequantises a weight joins the kernel that multiplies it.

A weight of such a product is read once; stored dequantised, it would be written and read again in a wider type.
"""

from __future__ import annotations

import math

import mlir.ir as ir

from stablexla.lowering.support.operations import is_tensor, program_of
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.factors import Factor, factor_of
from stablexla.targets.grouping.group import FACTOR, blocks_of
from stablexla.targets.grouping.loops import is_generic, loops_of
from stablexla.targets.pipeline.passes import module_pass

# The most rows of such a product, and the least elements of its weight.
MOST_ROWS, LEAST_ELEMENTS = 16, 1 << 14


@module_pass("stablexla-join-factors", "labels what dequantises weights, to join the kernels of their products")
def join_factors(module: ir.Module) -> None:
    """Label each such product and the operations that its kernel will compute for it with one number."""
    number = 0
    for block in [block for function in program_of(module) for block in blocks_of(function)]:
        for view in block.operations:
            op = view.operation
            if not is_generic(op) or classify(op) is not Kind.CONTRACTION:
                continue
            found = _factor(op)
            if found is not None:
                with op.context:
                    label = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number)
                for member in (*found.members, op):
                    member.attributes[FACTOR] = label
                number += 1


def _factor(op: ir.Operation) -> Factor | None:
    """Return the weight of a product, if it is computed from less and has few rows to multiply."""
    if not all(is_tensor(v) for v in op.operands) or not _is_wide(op.results[0].type.element_type):
        return None
    return next((found for n in (0, 1) if _is_weight(op, n) and (found := factor_of(op, n)) is not None), None)


def _is_wide(element: ir.Type) -> bool:
    return isinstance(element, ir.F32Type | ir.F64Type) or (isinstance(element, ir.IntegerType) and element.width >= 32)


def _is_weight(op: ir.Operation, number: int) -> bool:
    """Whether an operand is large, and the other one has few rows."""
    loops = loops_of(op)
    mine, other = (
        {e.position for e in loops.maps[n].results if isinstance(e, ir.AffineDimExpr)} for n in (number, 1 - number)
    )
    rows = math.prod(loops.extents[d] for d in other - mine)
    elements: int = math.prod(op.operands[number].type.shape)
    return rows <= MOST_ROWS and elements >= LEAST_ELEMENTS
