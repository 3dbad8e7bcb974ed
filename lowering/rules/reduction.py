"""Lowering of reduce and map: a combiner reduced over dimensions, or a computation applied to each element."""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import tensor

from stablexla.dialects.attributes.attributes import integers
from stablexla.dialects.element_types import ElementType
from stablexla.lowering.rules.conversion import convert_value
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import (
    PARALLEL,
    REDUCTION,
    Output,
    generic,
    identity,
    projection,
    read_all,
)
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.storage import from_storage, to_storage
from stablexla.lowering.support.unit_dimensions import without


@lowers("stablehlo.reduce")
def reduce(ctx: LoweringContext, *operands: ir.Value) -> list[ir.Value]:
    """Reduce each operand over `dimensions` with the region, from the initial values; the order is not defined."""
    count = len(operands) // 2
    dimensions = integers(ctx.attributes["dimensions"])
    source = ctx.operand_types[0]
    elements = [t.element for t in ctx.operand_types[:count]]
    # The accumulators are of the region's types, which may be wider than the operands'.
    sums = [t.element for t in ctx.result_types]
    firsts = _widened(operands[count:], [t.element for t in ctx.operand_types[count:]], sums)
    if not source.rank:
        return ctx.inline_region(0, [*firsts, *_widened(operands[:count], elements, sums)])

    def body(arguments: Sequence[ir.Value]) -> list[ir.Value]:
        values = [from_storage(a, e) for a, e in zip(arguments[:count], elements, strict=True)]
        values = _widened(values, elements, sums)
        totals = [from_storage(a, e) for a, e in zip(arguments[count : 2 * count], sums, strict=True)]
        results = ctx.inline_region(0, [*totals, *values])
        return [to_storage(v, e) for v, e in zip(results, sums, strict=True)]

    starts = [to_storage(v, t.element) for v, t in zip(firsts, ctx.result_types, strict=True)]
    if ctx.result_types[0].rank and all(source.shape[d] == 1 for d in dimensions):
        # No dimension is reduced: an element-wise operation with the initial value, which can be fused.
        rank = source.rank - len(dimensions)
        values = [without(v, dimensions) for v in operands[:count]]
        inputs, maps = read_all([*values, *starts], [*[identity(rank)] * count, *[projection(rank, [])] * count])
        outputs = [Output(t) for t in ctx.result_types]
        return generic(inputs, outputs, [*maps, *[identity(rank)] * count], [PARALLEL] * rank, body)
    inputs, input_maps = read_all(operands[:count], [identity(source.rank)] * count)
    kept = projection(source.rank, [d for d in range(source.rank) if d not in dimensions])
    iterators = [REDUCTION if d in dimensions else PARALLEL for d in range(source.rank)]
    outputs = [Output(t, v) for v, t in zip(starts, ctx.result_types, strict=True)]
    folded = generic(inputs, outputs, [*input_maps, *[kept] * count], iterators, body)
    if ctx.result_types[0].rank:
        return folded
    return [from_storage(tensor.extract(v, []), e) for v, e in zip(folded, sums, strict=True)]


def _widened(values: Sequence[ir.Value], given: Sequence[ElementType], to: Sequence[ElementType]) -> list[ir.Value]:
    """Promote scalars to other element types."""
    each = zip(values, given, to, strict=True)
    return [value if own is wide else convert_value(value, own, wide) for value, own, wide in each]


@lowers("stablehlo.map")
def map_(ctx: LoweringContext, *operands: ir.Value) -> list[ir.Value]:
    """The region applied to the elements of the operands at each index."""
    return ctx.elementwise(lambda *values: ctx.inline_region(0, values), *operands)
