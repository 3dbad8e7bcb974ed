"""Lowering of dot and dot_general: one linalg.generic over batch, free and contracted dimensions."""

from __future__ import annotations

from collections.abc import Container, Sequence

import mlir.ir as ir
from mlir.dialects import arith, tensor

from stablexla.dialects.attributes.attributes import DotDimensionNumbers
from stablexla.dialects.element_types import BY_NAME, ElementType
from stablexla.lowering.math.complex import arithmetic as complex_math
from stablexla.lowering.rules.conversion import convert_value, in_element_type
from stablexla.lowering.rules.elementwise import BINARY
from stablexla.lowering.rules.shape import broadcast, constant_value
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.dot_algorithm import IN_TF32, Part, contract_parts, is_plain
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
from stablexla.lowering.support.storage import entered, from_storage, to_storage
from stablexla.lowering.support.types import TensorType


@lowers("stablehlo.dot_general")
def dot_general(ctx: LoweringContext, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """Sum of products over the contracted dimensions; result dimensions are batch, then lhs free, then rhs free."""
    numbers = DotDimensionNumbers.read(ctx.attributes["dot_dimension_numbers"])
    if is_plain(ctx, accumulation_type(ctx.result.element)):
        return contract(ctx, lhs, rhs, numbers)
    return contract_parts(ctx, lhs, rhs, lambda part, x, y: contract(part, x, y, numbers))


@lowers("stablehlo.dot")
def dot(ctx: LoweringContext, lhs: ir.Value, rhs: ir.Value) -> ir.Value:
    """Contraction of the last dimension of lhs with the first of rhs."""
    last = ctx.operand_types[0].rank - 1
    return contract(ctx, lhs, rhs, DotDimensionNumbers((last,), (0,), (), ()))


def contract(ctx: LoweringContext | Part, lhs: ir.Value, rhs: ir.Value, numbers: DotDimensionNumbers) -> ir.Value:
    """Emit the contraction in its accumulation type, then round to the result's type."""
    maps, iterators = contraction_maps(numbers, ctx.operand_types[0].rank, ctx.operand_types[1].rank)
    return sum_products(ctx, lhs, rhs, maps, iterators)


def sum_products(
    ctx: LoweringContext | Part, lhs: ir.Value, rhs: ir.Value, maps: Sequence[ir.AffineMap], iterators: Sequence[str]
) -> ir.Value:
    """Emit the sum of products of lhs and rhs, indexed by the first two maps, into the result's elements."""
    types = [(v, t) for v, t in zip((lhs, rhs), ctx.operand_types, strict=True)]
    lhs, rhs = (_at_least_1d(v, t) for v, t in types)
    whole = TensorType(accumulation_type(ctx.result.element), ctx.result.shape)
    wide, elements = whole.element, [t.element for t in ctx.operand_types]
    reduced = {loop for loop, kind in enumerate(iterators) if kind == REDUCTION}
    inputs, read = read_all([lhs, rhs], maps[:2], transposes=True, needed=reduced)
    if not isinstance(ctx, Part) and not wide.is_float and not wide.is_complex:
        _sum_alone(inputs, read, elements, wide, reduced)
    for place, (value, map_) in enumerate(zip((lhs, rhs), maps, strict=False)):
        mine, other = (_loops(inputs[p], read[p]) for p in (place, 1 - place))
        if (other - mine) & reduced and not mine <= other:
            # Repeated along a contracted loop, and multiplied by each of the other's elements: a product of matrices.
            inputs[place], read[place] = value, map_
    used = [_loops(v, m) for v, m in zip(inputs, read, strict=True)]
    # Along the others the result is constant.
    dimensions = [d for d, n in enumerate(whole.shape) if n == 1 or d in used[0] | used[1]]

    def body(arguments: Sequence[ir.Value]) -> list[ir.Value]:
        x, y, total = (from_storage(a, element) for a, element in zip(arguments, [*elements, wide], strict=True))
        return [to_storage(add_product(x, y, total, elements, wide), wide)]

    accumulator = whole.with_shape(tuple(whole.shape[d] for d in dimensions))
    zero = to_storage(constant_value(0, wide), wide)
    made = projection(len(iterators), dimensions)
    accesses, kinds = _in_order_of_operand([*read, made], iterators)
    summed = generic(inputs, [Output(accumulator, zero)], accesses, kinds, body)[0]
    if isinstance(ctx, Part) and ctx.in_tf32:
        summed.owner.attributes[IN_TF32] = ir.UnitAttr.get()
    return rounded_sum(ctx, broadcast(summed, accumulator, whole, dimensions))


def _in_order_of_operand(
    maps: Sequence[ir.AffineMap], iterators: Sequence[str]
) -> tuple[Sequence[ir.AffineMap], Sequence[str]]:
    """Order the loops as an operand's dimensions, where the other one's are among them and the result's order stays.

    A batch of dot products along other than the last dimension is a sum of rows then, whose loads are contiguous; and
    so is a sum of scaled elements.
    """
    reduced = {loop for loop, kind in enumerate(iterators) if kind == REDUCTION}
    whole = next((m for m in maps[:2] if m.is_permutation), None)
    if whole is None or not all(m == whole or not reduced & _indices(m) for m in maps[:2]):
        return maps, iterators
    order = [e.position for e in whole.results]
    place = {loop: d for d, loop in enumerate(order)}
    kept = [place[e.position] for e in maps[2].results]
    summed = sorted(place[loop] for loop in reduced)
    if not summed or kept != sorted(kept) or summed[-1] - summed[0] >= len(summed):
        return maps, iterators
    renumbered = ir.AffineMap.get(len(order), 0, [ir.AffineDimExpr.get(place[d]) for d in range(len(order))])
    accesses = [ir.AffineMap.get(len(order), 0, [e.compose(renumbered) for e in m.results]) for m in maps]
    return accesses, [iterators[loop] for loop in order]


def _indices(map_: ir.AffineMap) -> set[int]:
    """Return the loops that index a dimension."""
    return {e.position for e in map_.results if isinstance(e, ir.AffineDimExpr)}


def _loops(value: ir.Value, map_: ir.AffineMap) -> set[int]:
    """Return the loops along which an operand varies."""
    shape = value.type.shape if isinstance(value.type, ir.RankedTensorType) else ()
    places = zip(map_.results, shape, strict=True)
    return {e.position for e, n in places if n != 1 and isinstance(e, ir.AffineDimExpr)}


def _sum_alone(
    inputs: list[ir.Value],
    maps: list[ir.AffineMap],
    elements: list[ElementType],
    wide: ElementType,
    reduced: Container[int],
) -> None:
    """Sum each operand, in place, over the contracted loops along which the other one is constant.

    w * x + w * y is w * (x + y) of integers, which wrap around: x + y of floats may overflow where w * x does not, and
    products may round to 0 or, by an infinite w, cancel.
    """
    used = [_loops(v, m) for v, m in zip(inputs, maps, strict=True)]
    for place, loops in enumerate(used):
        alone = {loop for loop in loops - used[1 - place] if loop in reduced}
        if alone:
            inputs[place], maps[place] = _summed(inputs[place], maps[place], alone, elements[place], wide)
            elements[place] = wide


def _summed(
    value: ir.Value, map_: ir.AffineMap, loops: Container[int], element: ElementType, wide: ElementType
) -> tuple[ir.Value, ir.AffineMap]:
    """Sum an operand over the loops along which the other one is constant; return the sums and their map."""
    shape, results = value.type.shape, list(map_.results)
    kept = [d for d, e in enumerate(results) if not (isinstance(e, ir.AffineDimExpr) and e.position in loops)]

    def body(arguments: Sequence[ir.Value]) -> list[ir.Value]:
        x = convert_value(from_storage(arguments[0], element), element, wide)
        return [to_storage(BINARY[wide.kind]["add"](from_storage(arguments[1], wide), x, wide), wide)]

    sums = Output(TensorType(wide, tuple(shape[d] for d in kept)), to_storage(constant_value(0, wide), wide))
    kinds = [PARALLEL if d in kept else REDUCTION for d in range(len(shape))]
    made = generic([value], [sums], [identity(len(shape)), projection(len(shape), kept)], kinds, body)[0]
    return made if kept else tensor.extract(made, []), ir.AffineMap.get(map_.n_dims, 0, [results[d] for d in kept])


def add_product(
    x: ir.Value, y: ir.Value, total: ir.Value, elements: Sequence[ElementType], wide: ElementType
) -> ir.Value:
    """Return total + x * y in the accumulation type; x and y are of the given types."""
    x, y = (convert_value(v, element, wide) for v, element in zip((x, y), elements, strict=True))
    return multiply_add(x, y, total, wide)


def rounded_sum(ctx: LoweringContext | Part, summed: ir.Value) -> ir.Value:
    """Round accumulated sums, an array even for a scalar result, to the operation's result."""
    element = ctx.result.element
    accumulator = TensorType(accumulation_type(element), ctx.result.shape)
    return in_element_type(entered(summed, accumulator), accumulator, element)


def _at_least_1d(value: ir.Value, type_: TensorType) -> ir.Value:
    """Convert a scalar operand to storage form, which the loop nest reads."""
    return value if type_.rank else to_storage(value, type_.element)


def accumulation_type(element: ElementType) -> ElementType:
    """Return the accumulation type: f32 for small floats, else the result's own type."""
    return BY_NAME["f32"] if element.is_float and element.bits < 32 else element


def multiply_add(x: ir.Value, y: ir.Value, total: ir.Value, element: ElementType) -> ir.Value:
    """Return total + x * y; for pred, total or (x and y)."""
    if element.is_complex:
        product = complex_math.BINARY["multiply"](x, y, element)
        return complex_math.BINARY["add"](total, product, element)
    if element.is_pred:
        return arith.ori(total, arith.andi(x, y))
    if element.is_integer:
        return arith.addi(total, arith.muli(x, y))
    return arith.addf(total, arith.mulf(x, y))


def contraction_maps(
    numbers: DotDimensionNumbers, lhs_rank: int, rhs_rank: int
) -> tuple[list[ir.AffineMap], list[str]]:
    """Return the indexing maps and loop kinds of a contraction: loops batch, lhs free, rhs free, contracted."""
    lhs_free = [d for d in range(lhs_rank) if d not in numbers.lhs_batch and d not in numbers.lhs_contracting]
    rhs_free = [d for d in range(rhs_rank) if d not in numbers.rhs_batch and d not in numbers.rhs_contracting]
    batch = len(numbers.lhs_batch)
    parallel = batch + len(lhs_free) + len(rhs_free)
    total = parallel + len(numbers.lhs_contracting)
    lhs_loops = _loops_of(lhs_rank, numbers.lhs_batch, lhs_free, numbers.lhs_contracting, batch, parallel)
    rhs_loops = _loops_of(
        rhs_rank, numbers.rhs_batch, rhs_free, numbers.rhs_contracting, batch + len(lhs_free), parallel
    )
    maps = [projection(total, lhs_loops), projection(total, rhs_loops), projection(total, range(parallel))]
    return maps, [PARALLEL] * parallel + [REDUCTION] * (total - parallel)


def _loops_of(
    rank: int, batch: Sequence[int], free: Sequence[int], contracted: Sequence[int], first_free: int, first_k: int
) -> list[int]:
    """Return the loop that indexes each dimension of an operand."""
    loops = [0] * rank
    for dimensions, first in ((batch, 0), (free, first_free), (contracted, first_k)):
        for i, d in enumerate(dimensions):
            loops[d] = first + i
    return loops
