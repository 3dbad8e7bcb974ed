"""Lowering of sort and top_k: rows are sorted by keys or a merge sort.

The dimension is transposed to the end, or where it lies before, columns are sorted, see `sorts_columns`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import jaxlib.mlir.ir as hlo_ir
import mlir.ir as ir
from mlir.dialects import arith, tensor

from stablexla.dialects.attributes.attributes import sort_dimension
from stablexla.dialects.choices import Gate
from stablexla.dialects.composites import composite_kernel
from stablexla.dialects.element_types import BY_NAME
from stablexla.lowering.kernels.sort.comparators import Order, has_keys, orders_of
from stablexla.lowering.kernels.sort.merging import Less, Rows, merge_sort
from stablexla.lowering.kernels.sort.radix import WIDE, is_in_parts, radix_sort, sorts_columns
from stablexla.lowering.kernels.sort.ranking import rank_sort
from stablexla.lowering.kernels.sort.selecting import select_first
from stablexla.lowering.kernels.sort.whole_sort import by_keys, sort_whole
from stablexla.lowering.rules.calls.custom_call import operation_call
from stablexla.lowering.rules.shape import reshaped, transposed
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import PARALLEL, Output, empty, generic, identity, loop_index
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.storage import from_storage
from stablexla.lowering.support.types import TensorType, tensor_storage

# Indices of longer rows do not fit 32 bits.
LONGEST = (1 << 31) - 1
# Rows up to this length are sorted by counting the elements that come before each, but for those of a single array with
# keys, which targets have kernels for.
RANKED_ROW = Gate("sort.ranked-row", 64, eager=1)
# Bytes of keys up to which rows that one thread sorts by itself are sorted by digits. Each byte is a pass with code
# of its own that moves all arrays; the code of a merge sort does not grow with its comparisons.
MOST_PASSES = Gate("sort.most-passes", 24, eager=1)
# A top-k of more than one element in so many sorts the whole row.
SELECTED_PART = Gate("top-k.selected-part", 16, eager=1)


@lowers("stablehlo.sort")
def sort(ctx: LoweringContext, *operands: ir.Value) -> list[ir.Value]:
    """The operands, permuted alike, sorted along the dimension by the comparator."""
    source = ctx.operand_types[0]
    dimension = sort_dimension(ctx.op)
    length = source.shape[dimension]
    if length < 2 or not source.size:
        return list(operands)
    orders = orders_of(ctx.op.regions[0].blocks[0])
    types = tuple(t.with_shape((t.size,)) for t in ctx.operand_types)
    rows = Rows(types, source.size // length, length, math.prod(source.shape[dimension + 1 :]))
    dimensions = list(range(source.rank))
    if orders is None or ctx.whole_sorts or length > LONGEST or not sorts_columns(rows, orders):
        rows = replace(rows, inner=1)
        dimensions = [*(d for d in dimensions if d != dimension), dimension]
    flat = [_rows(x, t, dimensions) for x, t in zip(operands, ctx.operand_types, strict=True)]
    if ctx.whole_sorts and length <= LONGEST:
        less = _comparator(ctx) if orders is None else by_keys(orders)
        sorted_ = sort_whole(ctx, flat, rows, less, length, by_keys=orders is not None)
    elif orders is None or length > LONGEST:
        sorted_ = merge_sort(ctx, flat, rows, _comparator(ctx))
    else:
        sorted_ = sort_by_keys(ctx, flat, rows, orders)
    return [_back(x, t, dimensions) for x, t in zip(sorted_, ctx.operand_types, strict=True)]


def sort_by_keys(
    ctx: LoweringContext, arrays: Sequence[ir.Value], rows: Rows, orders: tuple[Order, ...]
) -> list[ir.Value]:
    alone = len(arrays) == 1 and orders[0].bits in WIDE
    if rows.length <= RANKED_ROW() and not alone:
        return rank_sort(ctx, arrays, rows, orders)
    if sum(-(-order.bits // 8) for order in orders) > MOST_PASSES() and not is_in_parts(rows):
        return merge_sort(ctx, arrays, rows, by_keys(orders))
    return radix_sort(ctx, arrays, rows, orders)


def _rows(x: ir.Value, type_: TensorType, order: Sequence[int]) -> ir.Value:
    """Transpose an array to that order of dimensions, and flatten it."""
    moved = type_.with_shape(tuple(type_.shape[d] for d in order))
    return reshaped(transposed(x, type_, order), moved, type_.with_shape((type_.size,)))


def _back(x: ir.Value, type_: TensorType, order: Sequence[int]) -> ir.Value:
    moved = type_.with_shape(tuple(type_.shape[d] for d in order))
    return transposed(reshaped(x, type_.with_shape((type_.size,)), moved), moved, _inverse(order))


def _inverse(order: Sequence[int]) -> list[int]:
    return sorted(range(len(order)), key=lambda place: order[place])


def _comparator(ctx: LoweringContext) -> Less:
    """Return the comparator: the region, on elements in storage form."""
    elements = [t.element for t in ctx.operand_types]

    def less(these: Sequence[ir.Value], those: Sequence[ir.Value]) -> ir.Value:
        pairs = zip(these, those, elements, strict=True)
        (answer,) = ctx.inline_region(0, [from_storage(v, e) for x, y, e in pairs for v in (x, y)])
        return answer

    return less


@composite_kernel("chlo.top_k", "stablexla.bottom_k", accepts=has_keys)
def top_k(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """The k largest, or smallest, elements along the last dimension by the total order, and their indices."""
    largest = hlo_ir.StringAttr(ctx.attributes["name"]).value == "chlo.top_k"
    return best(ctx, x, ctx.operand_types[0], ctx.result_types, largest=largest)


@operation_call("mhlo.topk")
def mhlo_topk(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """top_k under its name in an older dialect."""
    attributes = hlo_ir.DictAttr(ctx.attributes["mhlo.attributes"]) if "mhlo.attributes" in ctx.attributes else {}
    if not has_keys(ctx.operand_types[0].element):
        raise ctx.unsupported("mhlo.topk of this element type")
    largest = "largest" not in attributes or bool(hlo_ir.BoolAttr(attributes["largest"]).value)
    return best(ctx, x, ctx.operand_types[0], ctx.result_types, largest=largest)


def best(
    ctx: LoweringContext, x: ir.Value, source: TensorType, results: Sequence[TensorType], *, largest: bool
) -> list[ir.Value]:
    """Emit top-k along the last dimension: the largest or smallest elements and their indices as s32.

    The extent of the results is k.
    """
    values = results[0]
    if not values.size:
        return [empty(t) for t in results]
    k, length = values.shape[-1], source.shape[-1]
    if length > LONGEST:
        raise ctx.unsupported(f"top-k of rows of {length} elements, whose indices are no s32")
    order = Order(0, source.element, descending=largest)
    flat = reshaped(x, source, source.with_shape((source.size,)))
    line, rows = source.with_shape((source.size,)), source.size // length
    if ctx.whole_sorts and length <= LONGEST:
        both, given = _with_places(ctx, flat, rows, line)
        found = sort_whole(ctx, given, both, by_keys((order,)), k, by_keys=True)
    else:
        is_large = k * SELECTED_PART() > length and k > RANKED_ROW()
        select = sort_first if is_large else select_first
        found = select(ctx, flat, rows, line, order, k)
    return [reshaped(v, t.with_shape((t.size,)), t) for v, t in zip(found, results, strict=True)]


def sort_first(
    ctx: LoweringContext, array: ir.Value, rows: int, type_: TensorType, order: Order, k: int
) -> list[ir.Value]:
    """Select the first k elements of each row by sorting whole rows: `select_first` for large k."""
    both, given = _with_places(ctx, array, rows, type_)
    found = sort_by_keys(ctx, given, both, (order,))
    return [_first(v, t, rows, k) for v, t in zip(found, both.types, strict=True)]


def _with_places(ctx: LoweringContext, array: ir.Value, rows: int, type_: TensorType) -> tuple[Rows, list[ir.Value]]:
    """Return rows of the elements and of their indices."""
    length = type_.size // rows
    counted = TensorType(BY_NAME["s32"], (rows, length))
    i32 = ir.IntegerType.get_signless(32)
    (places,) = generic(
        [], [Output(counted)], [identity(2)], [PARALLEL] * 2, lambda _: [arith.index_cast(i32, loop_index(1))]
    )
    flat = counted.with_shape((type_.size,))
    return Rows((type_, flat), rows, length), [array, reshaped(places, counted, flat)]


def _first(array: ir.Value, type_: TensorType, rows: int, k: int) -> ir.Value:
    """Slice the first `k` elements of each row."""
    shape = (rows, type_.size // rows)
    result = type_.with_shape((rows, k))
    whole = reshaped(array, type_, type_.with_shape(shape))
    cut = tensor.extract_slice(tensor_storage(result), whole, [], [], [], [0, 0], [rows, k], [1, 1])
    return reshaped(cut, result, type_.with_shape((rows * k,)))
