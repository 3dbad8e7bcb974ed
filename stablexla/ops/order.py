"""Sorting: `sort` by any comparator, and the first few elements of an order."""

from __future__ import annotations

from collections.abc import Sequence

from stablexla.builder.checking import Operands, Rules, checking, same
from stablexla.builder.computation import Computation, XlaComputation
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import FLOAT, INTEGER, PRED, operation
from stablexla.dialects.shapes import Shape
from stablexla.ops.control import composite_call
from stablexla.ops.elementwise import lt, lt_total_order
from stablexla.ops.shape import slice_in_dim

__all__ = ["sort", "top_k"]


@operation("stablehlo.sort")
def sort(operands: Operands, comparator: Computation, dimension: int = -1, is_stable: bool = False) -> XlaOp:
    """The operands with their elements along one dimension sorted, all operands permuted alike.

    The comparator decides the order of -0 and 0, and the position of NaN. One that contradicts itself gives some
    permutation of the elements.

    Args:
        operands: N arrays of the same dimensions.
        comparator: takes 2N scalars, the elements of operand k at two places as parameters 2k and 2k + 1, and returns
            whether the first place comes before the second.
        dimension: the dimension to sort along; negative ones count from the last.
        is_stable: whether elements of which neither comes first keep their order.

    Returns:
        An array for N = 1, else a tuple of N.

    Raises:
        ShapeError: (C1) no operand; (C3) dimensions of the operands differ; (C4) no such dimension; (C5) a comparator
            of other types.

    Source: `Sort` of XLA's operation semantics; StableHLO `sort`.

    >>> b = sx.XlaBuilder("example")
    >>> keys, values = b.parameter(0, sx.s32[5]), b.parameter(1, sx.f32[5])
    >>> print(sx.sort((keys, values), lambda k0, k1, v0, v1: k0 < k1).shape)
    (s32[5], f32[5])
    """
    with checking("sort", operands=operands, dimension=dimension) as rule:
        xs = rule.sequence("operands", operands)
        rule("C1", bool(xs), "there must be an operand")
        rule.one_builder(xs)
        for number, x in enumerate(xs):
            rule("", x.shape.is_array, f"operands[{number}] must be an array")
        rule("C3", same(x.shape.dimensions for x in xs), "the operands must have the same dimensions")
        place, rank = rule.integer("dimension", dimension), xs[0].shape.rank
        rule("C4", -rank <= place < rank, f"dimension must be from {-rank} to {rank - 1}, for operands of rank {rank}")
        stable = rule.truth("is_stable", is_stable)
        body = _comparator(rule, xs, comparator)
    result = xs[0].shape if len(xs) == 1 else Shape.tuple(x.shape for x in xs)
    attributes = {"dimension": place % rank, "is_stable": stable}
    return xs[0].builder.emit("stablehlo.sort", xs, result, attributes, [body])


def _comparator(rule: Rules, xs: Sequence[XlaOp], given: Computation) -> XlaComputation:
    """C5: the comparator, which takes two elements of each operand."""
    scalars = [Shape(x.shape.element_type) for x in xs for _ in range(2)]
    body = xs[0].builder.computation(rule, "comparator", given, scalars)
    taken = ", ".join(map(str, scalars))
    fits = body.parameter_shapes == tuple(scalars) and body.result_shape == Shape("pred")
    rule("C5", fits, f"comparator {body!r} must be of type ({taken}) -> pred[]")
    return body


@operation("chlo.top_k", PRED | INTEGER | FLOAT)
def top_k(operand: XlaOp, k: int, largest: bool = True) -> XlaOp:
    """The `k` largest, or smallest, elements of each row of `operand`, the best first, and their indices in the row.

    Floats are in the total order: NaN is above all, one with a sign below all, and 0 above -0. Of equal elements that
    with the lower index comes first.

    Args:
        operand: an array of one dimension or more; rows are along the last one.
        k: how many are wanted, at most a row's length.
        largest: whether the largest are wanted.

    Returns:
        The tuple of values and s32 indices, of the operand's dimensions but for the last one, which is `k`.

    Raises:
        ShapeError: (I1) another element type; an operand of rank 0; a `k` that is negative or above a row's length.

    Source: `TopK` of XLA's operation semantics; CHLO `top_k`.

    >>> values, indices = sx.top_k(sx.XlaBuilder("example").parameter(0, sx.f32[2, 50]), 3)
    >>> print(values.shape, indices.shape)
    f32[2,3] s32[2,3]
    """
    with checking("top_k", operand=operand, k=k) as rule:
        x = rule.op("operand", operand)
        rule.types(operand=x)
        rule("", x.shape.rank > 0, "operand must have a dimension")
        wanted = rule.integer("k", k)
        length = x.shape.dimensions[-1]
        rule("", 0 <= wanted <= length, f"k must be from 0 to {length}, the size of the last dimension")
        from_above = rule.truth("largest", largest)
    values = x.shape.with_dimensions((*x.shape.dimensions[:-1], wanted))
    if from_above:
        both = Shape.tuple((values, values.with_element_type("s32")))
        return x.builder.emit("chlo.top_k", [x], both, {"k": wanted})
    return composite_call(x, "stablexla.bottom_k", {"k": wanted}, lambda x: _smallest(x, wanted))


def _smallest(x: XlaOp, k: int) -> list[XlaOp]:
    """The smallest elements, by a sort of all."""
    last = x.shape.rank - 1
    places = x.builder.iota(x.shape.with_element_type("s32"), last)
    less = lt_total_order if x.shape.element_type.is_float else lt
    found = sort((x, places), lambda a, b, i, j: less(a, b), last, True)
    return [slice_in_dim(part, 0, k, 1, last) for part in found]
