"""Rank sort of short rows by keys: each element is scattered to its rank, the number of elements before it."""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.element_types import BY_NAME
from stablexla.lowering.kernels.sort.comparators import Order
from stablexla.lowering.kernels.sort.merging import Rows
from stablexla.lowering.rules.shape import reshaped
from stablexla.lowering.support import loops
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import PARALLEL, REDUCTION, Output, generic, identity, loop_index, projection
from stablexla.lowering.support.kernels import kernel
from stablexla.lowering.support.loops import add, as_index, count, get, mul, put
from stablexla.lowering.support.storage import constant
from stablexla.lowering.support.types import TensorType

Values = Sequence[ir.Value]


def rank_sort(ctx: LoweringContext, arrays: Values, rows: Rows, orders: tuple[Order, ...]) -> list[ir.Value]:
    """Emit a stable rank sort of the arrays' rows by the keys of one or more of them."""
    ranks = _ranks(arrays, rows, orders)
    return kernel(
        ctx,
        "sort",
        [*arrays, ranks],
        lambda *given: _scatter(given[:-1], given[-1], rows),
        result_types=list(rows.types),
        independent=True,
    )


def _ranks(arrays: Values, rows: Rows, orders: tuple[Order, ...]) -> ir.Value:
    """Count for each element those of its row before it: smaller ones, and equal ones on its left."""
    shape = (rows.rows, rows.length)
    i32 = ir.IntegerType.get_signless(32)
    keys = [_keys(arrays[o.operand], rows.types[o.operand], o, shape) for o in orders]

    def before(elements: Values) -> list[ir.Value]:
        *pairs, total = elements
        answer = arith.cmpi(arith.CmpIPredicate.slt, _position(2), _position(1))
        for other, own in reversed(list(zip(pairs[::2], pairs[1::2], strict=True))):
            equal = arith.cmpi(arith.CmpIPredicate.eq, other, own)
            less = arith.cmpi(arith.CmpIPredicate.ult, other, own)
            answer = arith.ori(less, arith.andi(equal, answer))
        return [arith.addi(total, arith.extui(i32, answer))]

    inputs = [key for key in keys for _ in range(2)]
    maps = [projection(3, (0, 2)), projection(3, (0, 1))] * len(keys)
    type_ = TensorType(BY_NAME["s32"], shape)
    output = Output(type_, constant(i32, 0))
    iterators = [PARALLEL, PARALLEL, REDUCTION]
    (ranks,) = generic(inputs, [output], [*maps, projection(3, (0, 1))], iterators, before)
    return reshaped(ranks, type_, type_.with_shape((type_.size,)))


def _position(loop: int) -> ir.Value:
    return arith.index_cast(ir.IntegerType.get_signless(32), loop_index(loop))


def _keys(array: ir.Value, type_: TensorType, order: Order, shape: tuple[int, int]) -> ir.Value:
    result = TensorType(BY_NAME[f"u{order.bits}"], shape)
    rows = reshaped(array, type_, type_.with_shape(shape))
    maps = [identity(2)] * 2
    return generic([rows], [Output(result)], maps, [PARALLEL] * 2, lambda given: [order.key(given[0])])[0]


def _scatter(arrays: Values, ranks: ir.Value, rows: Rows) -> list[ir.Value]:
    """Scatter each row's elements to their ranks."""
    results = loops.empty_like(arrays, rows.rows * rows.length)

    def row(r: ir.Value, *to: ir.Value) -> list[ir.Value]:
        base = mul(r, rows.length)

        def move(i: ir.Value, *to: ir.Value) -> list[ir.Value]:
            (rank,) = get([ranks], add(base, i))
            return put(get(arrays, add(base, i)), to, add(base, as_index(rank)))

        return count(0, rows.length, to, move)

    return count(0, rows.rows, results, row)
