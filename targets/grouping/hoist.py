"""Hoist matrix products of an array's slices, one per iteration of a scan loop, into one GEMM before the loop.

A skinny product is bandwidth-bound by its loop-invariant operand; all of them together are a product of many rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import mlir.ir as ir
from mlir.dialects import arith, tensor

from stablexla.dialects.choices import Gate
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.operations import constant_of, defining, is_inside, terminator_of
from stablexla.targets.grouping.classify import is_product
from stablexla.targets.grouping.loops import loops_of
from stablexla.targets.grouping.matchers import GENERIC, fill_of, made_by, product_like
from stablexla.targets.grouping.patterns import pattern_pass

# From so many rows on, a product by itself is compute-bound: four times the rows of the widest register tile.
ENOUGH_ROWS = Gate("hoist.enough-rows", 64, eager=1)
# All products are live at once: no more memory than a large layer's own results take.
MOST_BYTES = Gate("hoist.most-bytes", 64 << 20, eager=4 << 10)


@pattern_pass(
    "stablexla-hoist-products", "computes the products of a loop's slices by a fixed matrix before the loop", GENERIC
)
def hoist_products(product: ir.Operation) -> Sequence[ir.Value] | None:
    """Hoist out of loops whose trip count is the number of slices alone, so that the loop needs each product."""
    loop = product.parent.operation
    if loop.name != "scf.while" or loop.parent.name != "func.func" or not is_product(product):
        return None
    fill, counter = fill_of(product), _counter(loop)
    if fill is None or counter is None or is_inside(product.operands[1], loop) or not _rows_come_first(product):
        return None
    cut = _slice(product.operands[0], loop, counter)
    if cut is None:
        return None
    source, element = cut.operands[0], product.results[0].type.element_type
    (rows, _), (_, columns) = product.operands[0].type.shape, product.results[0].type.shape
    all_rows = counter.rounds * rows
    if rows >= ENOUGH_ROWS() or all_rows * columns * element.width > 8 * MOST_BYTES():
        return None
    with loop.location, ir.InsertionPoint(loop):
        flat = ir.RankedTensorType.get([all_rows, source.type.shape[2]], source.type.element_type)
        joined = tensor.CollapseShapeOp(flat, source, [[0, 1], [2]]).result
        zero = fill.operands[0]
        if is_inside(zero, loop):
            zero = defining(zero).clone().operation.results[0]
        large = product_like(product, [joined, product.operands[1]], [all_rows, columns], zero=zero)
        shape = [counter.rounds, rows, columns]
        parts = tensor.ExpandShapeOp(ir.RankedTensorType.get(shape, element), large, [[0, 1], [2]], [], shape).result
    mine = cut.clone().operation
    mine.operands[0] = parts
    mine.attributes["static_sizes"] = ir.DenseI64ArrayAttr.get([1, rows, columns])
    mine.results[0].set_type(ir.RankedTensorType.get([1, rows, columns], element))
    return [tensor.CollapseShapeOp(product.results[0].type, mine.results[0], [[0, 1], [2]]).result]


@dataclass(frozen=True)
class Counter:
    """A loop's induction variable in its body, and its trip count."""

    number: ir.Value
    rounds: int


def _counter(loop: ir.Operation) -> Counter | None:
    """Return the induction variable of a loop from 0 by step 1 to a constant trip count with no other exit."""
    before, after = (region.blocks[0] for region in loop.regions)
    test = made_by(terminator_of(before).operands[0], "arith.cmpi")
    if test is None or ir.IntegerAttr(test.attributes["predicate"]).value != arith.CmpIPredicate.slt:
        return None
    rounds, arguments = constant_of(test.operands[1]), list(before.arguments)
    if rounds is None or test.operands[0] not in arguments:
        return None
    place = arguments.index(test.operands[0])
    number, step = after.arguments[place], made_by(terminator_of(after).operands[place], "arith.addi")
    if step is None or step.operands[0] != number or constant_of(step.operands[1]) != 1:
        return None
    return Counter(number, rounds) if constant_of(loop.operands[place]) == 0 else None


def _is_number(value: ir.Value, counter: Counter) -> bool:
    """Whether a value is the induction variable, perhaps clamped to the first and the last slice."""
    bounds = {"arith.maxsi": 0, "arith.minsi": counter.rounds - 1}
    while value != counter.number:
        op = made_by(value, "arith.index_cast", *bounds)
        if op is None or (op.name in bounds and constant_of(op.operands[1]) != bounds[op.name]):
            return False
        value = op.operands[0]
    return True


def _slice(value: ir.Value, loop: ir.Operation, counter: Counter) -> ir.Operation | None:
    """Return the operation that extracts an iteration's slice from a loop-invariant array of rank 3."""
    view = made_by(value, "tensor.collapse_shape")
    cut = None if view is None else made_by(view.operands[0], "tensor.extract_slice")
    if cut is None or len(cut.operands) != 2 or is_inside(cut.operands[0], loop):
        return None
    shape = list(cut.operands[0].type.shape)
    if len(shape) != 3 or shape[0] != counter.rounds or prod(shape) == 0:
        return None
    if list(cut.results[0].type.shape) != [1, *shape[1:]] or list(value.type.shape) != shape[1:]:
        return None
    first = ir.DenseI64ArrayAttr(cut.attributes["static_offsets"])[0]
    moves = first == ir.ShapedType.get_dynamic_size() and _is_number(cut.operands[1], counter)
    return cut if moves else None


def _rows_come_first(product: ir.Operation) -> bool:
    """Whether the result's rows are those of the first operand."""
    loops = loops_of(product)
    if len(loops.kept) != 2 or len(loops.extents) != 3:
        return False
    first, second, result = loops.dims
    return len(first) == 2 and first[0] == result[0] and first[0] not in second and loops.reduced[first[1]]
