"""Operations that apply a computation of scalars to whole arrays: reductions and map."""

from __future__ import annotations

from collections.abc import Sequence

from stablexla.checking import Operands, Rules, checking, same
from stablexla.computation import Computation, XlaComputation
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.shapes import Shape
from stablexla.op import XlaOp
from stablexla.ops.registry import operation


@operation("stablehlo.reduce")
def reduce(operands: Operands, init_values: Operands, computation: Computation, dimensions: Sequence[int]) -> XlaOp:
    """The operands with some dimensions folded away by a computation, all operands at once.

    The order in which elements are combined is not fixed, so the computation should be associative, and the initial
    values change nothing in it.

    Args:
        operands: N arrays of the same dimensions.
        init_values: N scalars of their element types.
        computation: takes N values reduced so far and N elements, and returns N values; for N above 1 as a tuple.
        dimensions: the dimensions that are reduced, in any order.

    Returns:
        An array for N = 1, else a tuple of N.

    Raises:
        ShapeError: (C1) dimensions of the operands differ; (C2) initial values of other types; (C3) not as many of them
            as operands, or none; (C4) no such dimension; (C5) a dimension twice; (C6) a computation of other types.

    Source: `Reduce` of XLA's operation semantics; StableHLO `reduce`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.reduce(b.parameter(0, sx.f32[2, 3]), b.constant(0.0), lambda a, c: a + c, (0,))
    XlaOp(stablehlo.reduce, f32[3])
    """
    with checking("reduce", operands=operands, init_values=init_values, dimensions=dimensions) as rule:
        xs = rule.sequence("operands", operands)
        inits = rule.sequence("init_values", init_values)
        types = _check_reduced(rule, xs, inits)
        chosen = rule.integers("dimensions", dimensions)
        for place in chosen:
            rule("C4", 0 <= place < xs[0].shape.rank, f"dimensions: {place} is no dimension of the operands")
        rule("C5", len(set(chosen)) == len(chosen), "dimensions must not repeat one")
        body = _reducer(rule, xs[0], computation, types)
    kept = [size for place, size in enumerate(xs[0].shape.dimensions) if place not in chosen]
    results = [Shape(leaf.element_type, kept) for leaf in body.result_shape.leaves]
    result = results[0] if len(results) == 1 else Shape.tuple(results)
    attributes = {"dimensions": tuple(sorted(chosen))}
    return xs[0].builder.emit("stablehlo.reduce", [*xs, *inits], result, attributes, [body])


def _check_reduced(rule: Rules, xs: Sequence[XlaOp], inits: Sequence[XlaOp]) -> list[ElementType]:
    """C1 to C3; the element types of the operands."""
    rule("C3", bool(xs), "there must be an operand")
    rule("C3", len(xs) == len(inits), f"there are {len(xs)} operands, and {len(inits)} init_values")
    rule.one_builder([*xs, *inits])
    for number, (x, init) in enumerate(zip(xs, inits)):
        rule("", x.shape.is_array, f"operands[{number}] must be an array")
        rule("I2", init.shape.is_scalar, f"init_values[{number}] must be a scalar, not {init.shape}")
        wanted, given = x.shape.element_type, init.shape.element_type
        rule("C2", given is wanted, f"init_values[{number}] must be of type {wanted} as its operand, not {given}")
    rule("C1", same(x.shape.dimensions for x in xs), "the operands must have the same dimensions")
    return [x.shape.element_type for x in xs]


def _reducer(rule: Rules, x: XlaOp, given: Computation, types: Sequence[ElementType]) -> XlaComputation:
    """C6: the computation, which folds N values and N elements into N values of the types it folds in.

    These may be wider than the operands' types, of the same kind, as sums of bf16 in f32.
    """
    body = x.builder.computation(rule, "computation", given, [Shape(t) for t in (*types, *types)])
    returned = list(body.result_shape.leaves)
    pretty = f"computation {body!r} must take and return scalars of the operands' types"
    rule("C6", body.parameter_shapes == (*returned, *returned), pretty)
    for leaf, wanted in zip(returned, types):
        same_kind = leaf.is_scalar and leaf.element_type.kind is wanted.kind
        rule("C6", same_kind and leaf.element_type.bits >= wanted.bits, pretty)
    return body


@operation("stablehlo.reduce")
def reduce_all(operand: XlaOp, init_value: XlaOp, computation: Computation) -> XlaOp:
    """The whole of `operand` folded into a scalar.

    Raises:
        ShapeError: as `reduce`.

    Source: XLA's builder.

    >>> b = sx.XlaBuilder("example")
    >>> sx.reduce_all(b.parameter(0, sx.f32[2, 3]), b.constant(1.0), sx.mul)
    XlaOp(stablehlo.reduce, f32[])
    """
    with checking("reduce_all", operand=operand, init_value=init_value) as rule:
        x = rule.op("operand", operand)
    return reduce(x, init_value, computation, range(x.shape.rank))


@operation("stablehlo.map")
def map(operands: Operands, computation: Computation, dimensions: Sequence[int] | None = None) -> XlaOp:
    """A computation of scalars, applied to the elements of arrays of the same dimensions.

    Args:
        operands: N arrays.
        computation: takes N scalars of their element types and returns a scalar of any type.
        dimensions: all dimensions in their order, which is the default.

    Raises:
        ShapeError: (C1) dimensions of the operands differ; (C2) no operand; (C3) other `dimensions`; (C4) a computation
            of other types.

    Source: `Map` of XLA's operation semantics; StableHLO `map`.

    >>> b = sx.XlaBuilder("example")
    >>> x, y = b.parameter(0, sx.f32[2, 3]), b.parameter(1, sx.f32[2, 3])
    >>> sx.map((x, y), lambda a, c: sx.sin(a) > c)
    XlaOp(stablehlo.map, pred[2,3])
    """
    with checking("map", operands=operands, dimensions=dimensions) as rule:
        xs = rule.sequence("operands", operands)
        rule("C2", bool(xs), "there must be an operand")
        rule.one_builder(xs)
        for number, x in enumerate(xs):
            rule("", x.shape.is_array, f"operands[{number}] must be an array")
        rule("C1", same(x.shape.dimensions for x in xs), "the operands must have the same dimensions")
        everything = tuple(range(xs[0].shape.rank))
        chosen = everything if dimensions is None else rule.integers("dimensions", dimensions)
        rule("C3", chosen == everything, f"dimensions must be {everything}, all of them in order")
        scalars = [Shape(x.shape.element_type) for x in xs]
        body = xs[0].builder.computation(rule, "computation", computation, scalars)
        fits = body.parameter_shapes == tuple(scalars) and body.result_shape.is_scalar
        rule("C4", fits, f"computation {body!r} must take scalars of the operands' types and return one")
    shape = Shape(body.result_shape.element_type, xs[0].shape.dimensions)
    return xs[0].builder.emit("stablehlo.map", xs, shape, {"dimensions": chosen}, [body])
