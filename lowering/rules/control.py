"""Lowering of control flow: while, conditional (if and case). Calls are inlined before lowering."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mlir.ir as ir
from mlir.dialects import scf

from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.scalars import cmpi
from stablexla.lowering.support.storage import constant
from stablexla.lowering.support.types import ssa_type
from stablexla.lowering.support.unrolling import unrolled_trip_count


@lowers("stablehlo.while")
def while_(ctx: LoweringContext, *inits: ir.Value) -> list[ir.Value]:
    """Repeat the body as long as the condition holds; scalars are carried as values, arrays as tensors."""
    trip_count = unrolled_trip_count(ctx.op)
    if trip_count is not None:
        values = list(inits)
        for _ in range(trip_count):
            values = ctx.inline_region(1, values)
        return values
    types = [ssa_type(t) for t in ctx.result_types]
    loop = scf.WhileOp(types, list(inits))
    location = [ir.Location.current] * len(types)
    before = loop.before.blocks.append(*types, arg_locs=location)
    with ir.InsertionPoint(before):
        (condition,) = ctx.inline_region(0, list(before.arguments))
        scf.ConditionOp(condition, list(before.arguments))
    after = loop.after.blocks.append(*types, arg_locs=location)
    with ir.InsertionPoint(after):
        scf.YieldOp(ctx.inline_region(1, list(after.arguments)))
    return list(loop.results)


@lowers("stablehlo.if")
def if_(ctx: LoweringContext, pred: ir.Value) -> list[ir.Value]:
    """The results of the first region where pred holds, else of the second."""
    return _branch(ctx, pred, lambda: ctx.inline_region(0, []), lambda: ctx.inline_region(1, []))


@lowers("stablehlo.case")
def case(ctx: LoweringContext, index: ir.Value) -> list[ir.Value]:
    """The results of the region of that index; an index out of range selects the last region."""
    return _case(ctx, index, range(len(ctx.op.regions)))


def _case(ctx: LoweringContext, index: ir.Value, regions: range) -> list[ir.Value]:
    """Select a region by bisection, so that many are not nested deep; as unsigned a negative index is a large one."""
    if len(regions) == 1:
        return ctx.inline_region(regions[0], [])
    below, above = regions[: len(regions) // 2], regions[len(regions) // 2 :]
    is_below = cmpi("ult", index, constant(index.type, above[0]))
    return _branch(ctx, is_below, lambda: _case(ctx, index, below), lambda: _case(ctx, index, above))


def _branch(
    ctx: LoweringContext,
    pred: ir.Value,
    then: Callable[[], Sequence[ir.Value]],
    other: Callable[[], Sequence[ir.Value]],
) -> list[ir.Value]:
    op = scf.IfOp(pred, [ssa_type(t) for t in ctx.result_types], has_else=True)
    for block, values in ((op.then_block, then), (op.else_block, other)):
        with ir.InsertionPoint(block):
            scf.YieldOp(list(values()))
    return list(op.results)
