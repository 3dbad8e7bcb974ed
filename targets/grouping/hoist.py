"""Hoist matrix products of an array's slices, one per iteration of a scan loop, into one GEMM before the loop.

A skinny product is bandwidth-bound by its loop-invariant operand; all of them together are a product of many rows.
"""

from __future__ import annotations

from math import prod

import mlir.ir as ir
from mlir.dialects import tensor

from stablexla.dialects.choices import Gate
from stablexla.dialects.erasing import erase
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.support.generic import filled
from stablexla.lowering.support.operations import (
    constant_of,
    defining,
    is_inside,
    operations_named,
    program_of,
    terminator_of,
)
from stablexla.targets.grouping.classify import Kind, classify
from stablexla.targets.grouping.drop_unused import drop_unused
from stablexla.targets.grouping.loops import is_generic, loops_of
from stablexla.targets.pipeline.passes import module_pass

# From so many rows on, a product by itself is compute-bound: four times the rows of the widest register tile.
ENOUGH_ROWS = Gate("hoist.enough-rows", 64, eager=1)
# All products are live at once: no more memory than a large layer's own results take.
MOST_BYTES = Gate("hoist.most-bytes", 64 << 20, eager=4 << 10)


@module_pass("stablexla-hoist-products", "computes the products of a loop's slices by a fixed matrix before the loop")
def hoist_products(module: ir.Module) -> None:
    """Hoist out of loops whose trip count is the number of slices alone, so that the loop needs each product."""
    for function in program_of(module):
        hoisted = False
        for loop in [op for op in operations_named(function, "scf.while") if op.parent == function]:
            counter = _counter(loop)
            if counter is not None:
                for view in list(loop.regions[1].blocks[0].operations):
                    hoisted |= is_generic(view.operation) and _hoist(loop, counter, view.operation)
        if hoisted:
            drop_unused(function)


@dataclass(frozen=True)
class Counter:
    """A loop's induction variable in its body, and its trip count."""

    number: ir.Value
    rounds: int


def _counter(loop: ir.Operation) -> Counter | None:
    """Return the induction variable of a loop from 0 by step 1 to a constant trip count with no other exit."""
    before, after = (region.blocks[0] for region in loop.regions)
    go = terminator_of(before).operands[0]
    test = defining(go)
    if test is None or test.name != "arith.cmpi" or ir.IntegerAttr(test.attributes["predicate"]).value != SIGNED_LESS:
        return None
    rounds = constant_of(test.operands[1])
    if rounds is None:
        return None
    place = list(before.arguments).index(test.operands[0]) if test.operands[0] in list(before.arguments) else None
    if place is None or constant_of(loop.operands[place]) != 0:
        return None
    number = after.arguments[place]
    step = defining(terminator_of(after).operands[place])
    if step is None or step.name != "arith.addi" or step.operands[0] != number or constant_of(step.operands[1]) != 1:
        return None
    return Counter(number, rounds)


SIGNED_LESS = 2


def _is_number(value: ir.Value, counter: Counter) -> bool:
    """Whether a value is the induction variable, perhaps clamped to the first and the last slice."""
    while value != counter.number:
        op = defining(value)
        bounds = {"arith.maxsi": 0, "arith.minsi": counter.rounds - 1}
        if op is None or (op.name != "arith.index_cast" and op.name not in bounds):
            return False
        if op.name in bounds and constant_of(op.operands[1]) != bounds[op.name]:
            return False
        value = op.operands[0]
    return True


def _hoist(loop: ir.Operation, counter: Counter, product: ir.Operation) -> bool:
    """Hoist one product out of the loop if it multiplies a slice by a loop-invariant operand."""
    if classify(product) is not Kind.CONTRACTION:
        return False
    start, view = defining(product.operands[2]), defining(product.operands[0])
    if start is None or start.name != "linalg.fill" or is_inside(product.operands[1], loop):
        return False
    cut = _sliced(view, loop, counter)
    if cut is None or not _rows_come_first(product):
        return False
    source = cut.operands[0]
    (rows, _), (_, columns) = product.operands[0].type.shape, product.results[0].type.shape
    element = product.results[0].type.element_type
    all_rows = counter.rounds * rows
    if rows >= ENOUGH_ROWS() or all_rows * columns * element.width > 8 * MOST_BYTES():
        return False
    with loop.context, loop.location, ir.InsertionPoint(loop):
        flat = ir.RankedTensorType.get([all_rows, source.type.shape[2]], source.type.element_type)
        joined = tensor.CollapseShapeOp(flat, source, [[0, 1], [2]]).result
        zero = _copied(start.operands[0], loop)
        zeros = filled(zero, tensor.empty([all_rows, columns], element))
        large = product.clone().operation
        large.operands[0], large.operands[2] = joined, zeros
        large.results[0].set_type(ir.RankedTensorType.get([all_rows, columns], element))
        shape = [counter.rounds, rows, columns]
        whole = ir.RankedTensorType.get(shape, element)
        parts = tensor.ExpandShapeOp(whole, large.results[0], [[0, 1], [2]], [], shape).result
    with product.context, product.location, ir.InsertionPoint(product):
        slice_ = cut.clone().operation
        slice_.operands[0] = parts
        slice_.attributes["static_sizes"] = ir.DenseI64ArrayAttr.get([1, rows, columns])
        slice_.results[0].set_type(ir.RankedTensorType.get([1, rows, columns], element))
        result = tensor.CollapseShapeOp(product.results[0].type, slice_.results[0], [[0, 1], [2]]).result
    product.results[0].replace_all_uses_with(result)
    erase(product)
    return True


def _sliced(view: ir.Operation | None, loop: ir.Operation, counter: Counter) -> ir.Operation | None:
    """Return the operation that extracts the view, an iteration's slice, from a loop-invariant array of rank 3."""
    if view is None or view.name != "tensor.collapse_shape":
        return None
    slice_ = defining(view.operands[0])
    if slice_ is None or slice_.name != "tensor.extract_slice" or len(slice_.operands) != 2:
        return None
    source, shape = slice_.operands[0], slice_.operands[0].type.shape
    whole = [1, *shape[1:]] == list(slice_.results[0].type.shape)
    if len(shape) != 3 or shape[0] != counter.rounds or not whole or prod(shape) == 0:
        return None
    if list(view.results[0].type.shape) != list(shape[1:]) or is_inside(source, loop):
        return None
    first = ir.DenseI64ArrayAttr(slice_.attributes["static_offsets"])[0]
    moves = first == ir.ShapedType.get_dynamic_size() and _is_number(slice_.operands[1], counter)
    return slice_ if moves else None


def _rows_come_first(product: ir.Operation) -> bool:
    """Whether the result's rows are those of the first operand."""
    loops = loops_of(product)
    if len(loops.kept) != 2 or len(loops.extents) != 3:
        return False
    first, _, result = ([ir.AffineDimExpr(e).position for e in map_.results] for map_ in loops.maps)
    second = [ir.AffineDimExpr(e).position for e in loops.maps[1].results]
    return len(first) == 2 and first[0] == result[0] and first[0] not in second and loops.reduced[first[1]]


def _copied(scalar: ir.Value, loop: ir.Operation) -> ir.Value:
    """Return the scalar before the loop: itself, or a copy of a constant."""
    maker = defining(scalar)
    return maker.clone().operation.results[0] if maker is not None and is_inside(scalar, loop) else scalar
