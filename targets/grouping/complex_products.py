"""Products of complex arrays as products of real ones, which the emitters of contractions take.

An array of complex numbers is one of real numbers with a last dimension of two, in the same memory. Read so, the larger
factor and the result stay where they are; the smaller one is written out, as the 2x2 matrices by which complex numbers
multiply, or as its two parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.choices import Gate
from stablexla.dialects.element_types import BY_NAME
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.lowering.math.complex.arithmetic import create
from stablexla.lowering.support.generic import PARALLEL, REDUCTION, Output, generic, identity, loop_index, projection
from stablexla.lowering.support.operations import is_tensor
from stablexla.lowering.support.types import TensorType
from stablexla.targets.grouping.loops import loops_of
from stablexla.targets.grouping.matchers import COMPLEX_PRODUCT, GENERIC, formula_of, starts_at_zero
from stablexla.targets.grouping.patterns import pattern_pass
from stablexla.targets.pipeline.steps import CAST

# Multiplications of complex numbers below which one kernel is quicker than two.
LEAST_WORK = Gate("complex-products.least-work", 4096, eager=1)


@pattern_pass(
    "stablexla-split-complex-products", "computes products of complex arrays as products of real ones", GENERIC
)
def split_complex_products(op: ir.Operation) -> Sequence[ir.Value] | None:
    """Compute products of complex arrays as products of real ones; a factor may be the result of one split before."""
    element = op.results[0].type.element_type
    if not isinstance(element, ir.ComplexType) or len(op.operands) != 3:
        return None
    if any(not is_tensor(v) or v.type.element_type != element for v in op.operands):
        return None
    loops = loops_of(op)
    if not any(loops.reduced) or prod(loops.extents) < LEAST_WORK() or not loops.is_plain:
        return None
    if formula_of(op) != COMPLEX_PRODUCT or not starts_at_zero(op):
        return None
    a, b = (_Factor(value, dims) for value, dims in zip(op.operands, loops.dims[:2], strict=False))
    result = loops.dims[2]
    if result and result[-1] not in b.loops:
        a, b = b, a
    return [_split(_Product(op, loops.extents, loops.reduced, a, b, result))]


@dataclass(frozen=True)
class _Factor:
    """An array, and the loop of each of its dimensions."""

    value: ir.Value
    loops: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.type.shape)

    @property
    def size(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class _Product:
    """A sum of products: `extents` and `reduced` for each loop, two factors, and the loops of the result's dimensions.

    The result's last dimension is one of `right`, if it has any.
    """

    operation: ir.Operation
    extents: tuple[int, ...]
    reduced: tuple[bool, ...]
    left: _Factor
    right: _Factor
    result: tuple[int, ...]

    @property
    def element(self) -> ir.Type:
        """The type of the parts."""
        return self.operation.results[0].type.element_type.element_type


# --- rewriting ----------------------------------------------------------------------------------------------


def _split(product: _Product) -> ir.Value:
    left, right, size = product.left, product.right, prod(product.operation.results[0].type.shape)
    if right.size > left.size + 2 * size and right.loops:
        if right.loops[-1] not in left.loops:
            return _by_parts(product)
        if left.loops and all(product.reduced[loop] for loop in left.loops):
            return _by_matrices(product, right, left)
    return _by_matrices(product, left, right)


def _by_matrices(product: _Product, seen: _Factor, written: _Factor) -> ir.Value:
    """Read one factor and the result as real, and write the other out as 2x2 matrices.

    The loop `part` is over the parts of the first factor's numbers, and reduced; `half` is over the result's.
    """
    seen = _reduced_last(product, seen)
    part, half = len(product.extents), len(product.extents) + 1
    # The dimension before the last one of what is written: neighbours in memory stay neighbours in the product.
    outer, last = written.loops[:-1], written.loops[-1:]
    along = bool(last) and product.reduced[last[0]]

    def above(number: ir.Value) -> ir.Value:
        return _conjugate(number) if along else number

    matrices = _written(written, len(outer), above, lambda number: _times_i(above(number)))
    loops = (*outer, half, *last, part) if along else (*outer, part, *last, half)
    return _real_product(
        product,
        _Factor(_parts_of(seen.value), (*seen.loops, part)),
        _Factor(_parts_of(matrices), loops),
        (*product.result, half),
        (REDUCTION, PARALLEL),
    )


def _by_parts(product: _Product) -> ir.Value:
    """Read the right factor as real, and multiply it by the real and the imaginary parts of the left one."""
    side, half = len(product.extents), len(product.extents) + 1
    left, right = product.left, product.right
    planes = _written(left, 0, lambda x: _re_im(x)[0], lambda x: _re_im(x)[1], product.element)
    both = _real_product(
        product,
        _Factor(planes, (side, *left.loops)),
        _Factor(_parts_of(right.value), (*right.loops, half)),
        (side, *product.result, half),
        (PARALLEL, PARALLEL),
    )
    rank = len(product.result)
    loops = [ir.AffineDimExpr.get(d) for d in range(rank)]
    maps = [ir.AffineMap.get(rank, 0, [ir.AffineConstantExpr.get(number), *loops]) for number in (0, 1)]

    def add(numbers: Sequence[ir.Value]) -> list[ir.Value]:
        (re, im), (turned_re, turned_im) = (_re_im(number) for number in numbers[:2])
        return [create(arith.subf(re, turned_im), arith.addf(im, turned_re))]

    type_ = product.operation.results[0].type
    out = Output(_type_of(type_.element_type, type_.shape))
    return generic([both] * 2, [out], [*maps, identity(rank)], [PARALLEL] * rank, add)[0]


def _real_product(
    product: _Product, left: _Factor, right: _Factor, result: tuple[int, ...], iterators: tuple[str, str]
) -> ir.Value:
    """Emit a sum of products of real numbers; the result is read as complex again."""
    extents = (*product.extents, 2, 2)
    maps = [projection(len(extents), loops) for loops in (left.loops, right.loops, result)]
    zero = arith.constant(product.element, ir.FloatAttr.get(product.element, 0.0))
    out = Output(_type_of(product.element, [extents[d] for d in result]), zero)
    kinds = [REDUCTION if reduced else PARALLEL for reduced in product.reduced]

    def add(numbers: Sequence[ir.Value]) -> list[ir.Value]:
        x, y, total = numbers
        return [arith.addf(total, arith.mulf(x, y))]

    (made,) = generic([left.value, right.value], [out], maps, [*kinds, *iterators], add)
    number = ir.ComplexType.get(product.element)
    return _seen_as(made, ir.RankedTensorType.get(made.type.shape[:-1], number))


def _reduced_last(product: _Product, factor: _Factor) -> _Factor:
    """Return a factor whose last dimension is summed over: itself, or a transposed copy."""
    if not factor.loops or product.reduced[factor.loops[-1]]:
        return factor
    order = sorted(range(len(factor.loops)), key=lambda d: product.reduced[factor.loops[d]])
    loops = tuple(factor.loops[d] for d in order)
    rank = len(order)
    out = Output(_type_of(factor.value.type.element_type, [factor.shape[d] for d in order]))
    maps = [projection(rank, [order.index(d) for d in range(rank)]), identity(rank)]
    (made,) = generic([factor.value], [out], maps, [PARALLEL] * rank, lambda numbers: numbers[:1])
    return _Factor(made, loops)


def _written(
    factor: _Factor,
    place: int,
    first: Callable[[ir.Value], ir.Value],
    second: Callable[[ir.Value], ir.Value],
    element: ir.Type | None = None,
) -> ir.Value:
    """Write an array in two ways, along a new dimension `place`."""
    shape = (*factor.shape[:place], 2, *factor.shape[place:])
    rank = len(shape)
    maps = [projection(rank, [d for d in range(rank) if d != place]), identity(rank)]

    def choose(numbers: Sequence[ir.Value]) -> list[ir.Value]:
        at = loop_index(place)
        zero = arith.constant(at.type, ir.IntegerAttr.get(at.type, 0))
        is_first = arith.cmpi(arith.CmpIPredicate.eq, at, zero)
        return [arith.select(is_first, first(numbers[0]), second(numbers[0]))]

    out = Output(_type_of(element or factor.value.type.element_type, shape))
    return generic([factor.value], [out], maps, [PARALLEL] * rank, choose)[0]


def _re_im(number: ir.Value) -> tuple[ir.Value, ir.Value]:
    part = number.type.element_type
    re, im = (ir.Operation.create(f"complex.{p}", results=[part], operands=[number]).result for p in ("re", "im"))
    return re, im


def _conjugate(number: ir.Value) -> ir.Value:
    re, im = _re_im(number)
    return create(re, arith.negf(im))


def _times_i(number: ir.Value) -> ir.Value:
    re, im = _re_im(number)
    return create(arith.negf(im), re)


def _type_of(element: ir.Type, shape: Sequence[int]) -> TensorType:
    name = f"c{2 * element.element_type.width}" if isinstance(element, ir.ComplexType) else str(element)
    return TensorType(BY_NAME[name], tuple(shape))


def _parts_of(value: ir.Value) -> ir.Value:
    """Read an array of complex numbers as one of real numbers, with one more dimension of two."""
    element = value.type.element_type.element_type
    return _seen_as(value, ir.RankedTensorType.get([*value.type.shape, 2], element))


def _seen_as(value: ir.Value, type_: ir.Type) -> ir.Value:
    # Buffer assignment takes it as the same memory.
    return ir.Operation.create(CAST, results=[type_], operands=[value]).result
