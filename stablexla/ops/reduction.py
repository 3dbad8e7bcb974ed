"""Operations that apply a computation of scalars to whole arrays: reductions and map."""

from __future__ import annotations

from collections.abc import Sequence

from stablexla.builder.checking import InitValues, Operand, Operands, Rules, checking, same
from stablexla.builder.computation import Computation, XlaComputation
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.shapes import Shape
from stablexla.ops.composed.scan import scan
from stablexla.ops.shape import broadcast_in_dim, reshape
from stablexla.ops.support.combiners import check_reduction_operands, checked_combiner

__all__ = ["map", "reduce", "reduce_all"]


@operation("stablehlo.reduce")
def reduce(operands: Operands, init_values: InitValues, computation: Computation, dimensions: Sequence[int]) -> XlaOp:
    """The operands reduced over some dimensions by a computation, all operands at once.

    The order in which elements are combined is not fixed, so the computation should be associative, and the initial
    values its identity.

    Args:
        operands: N arrays of the same dimensions.
        init_values: N scalars of their element types; numbers take these.
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
        return _reduce(rule, rule.sequence("operands", operands), init_values, computation, dimensions)


def _reduce(
    rule: Rules, xs: Sequence[XlaOp], init_values: InitValues, computation: Computation, dimensions: Sequence[int]
) -> XlaOp:
    inits = rule.init_values("init_values", init_values, xs)
    types = check_reduction_operands(rule, xs, inits, count="C3", dimensions="C1", types="C2", scalars="I2")
    chosen = rule.integers("dimensions", dimensions)
    for place in chosen:
        rule.place("C4", place, xs[0].shape.rank, f"dimensions: {place} is no dimension of the operands")
    rule("C5", len(set(chosen)) == len(chosen), "dimensions must not repeat one")
    body = checked_combiner(rule, "C6", xs[0], computation, types)
    kept = [size for place, size in enumerate(xs[0].shape.dimensions) if place not in chosen]
    results = [Shape(leaf.element_type, kept) for leaf in body.result_shape.leaves]
    result = results[0] if len(results) == 1 else Shape.tuple(results)
    attributes = {"dimensions": tuple(sorted(chosen))}
    return xs[0].builder.emit("stablehlo.reduce", [*xs, *inits], result, attributes, [body])


@operation("stablehlo.reduce")
def reduce_all(operand: XlaOp, init_value: Operand, computation: Computation) -> XlaOp:
    """The whole of `operand` reduced to a scalar.

    Raises:
        ShapeError: as `reduce`.

    Source: XLA's builder.

    >>> b = sx.XlaBuilder("example")
    >>> sx.reduce_all(b.parameter(0, sx.f32[2, 3]), b.constant(1.0), sx.mul)
    XlaOp(stablehlo.reduce, f32[])
    """
    with checking("reduce_all", operand=operand, init_value=init_value) as rule:
        x = rule.op("operand", operand)
        return _reduce(rule, [x], init_value, computation, range(x.shape.rank))


@operation("stablehlo.map")
def map(
    operands: Operands,
    computation: Computation,
    dimensions: Sequence[int] | None = None,
    static_operands: Operands = (),
) -> XlaOp:
    """A computation of scalars, applied to the elements of arrays of the same dimensions.

    Args:
        operands: N arrays.
        computation: takes N scalars of their element types, and the static operands; returns a scalar of any type.
        dimensions: all dimensions in their order, which is the default.
        static_operands: what the computation takes whole for each element. Scalars are spread over all elements;
            with an array or a tuple among them, one element is computed after another. Values around the computation
            that it reads are further ones.

    Raises:
        ShapeError: (C1) dimensions of the operands differ; (C2) no operand; (C3) other `dimensions`; (C4) a computation
            of other types.

    Source: `Map` of XLA's operation semantics; StableHLO `map`.

    >>> b = sx.XlaBuilder("example")
    >>> x, y = b.parameter(0, sx.f32[2, 3]), b.parameter(1, sx.f32[2, 3])
    >>> sx.map((x, y), lambda a, c: sx.sin(a) > c)
    XlaOp(stablehlo.map, pred[2,3])
    >>> sx.map(x, lambda a, top: sx.min(a, top), static_operands=b.constant(6.0))
    XlaOp(stablehlo.map, f32[2,3])
    """
    with checking("map", operands=operands, dimensions=dimensions) as rule:
        xs = rule.sequence("operands", operands)
        statics = rule.sequence("static_operands", static_operands)
        rule.operands["static_operands"] = statics or None
        rule("C2", bool(xs), "there must be an operand")
        rule.one_builder([*xs, *statics])
        for number, x in enumerate(xs):
            rule("", x.shape.is_array, f"operands[{number}] must be an array")
        rule("C1", same(x.shape.dimensions for x in xs), "the operands must have the same dimensions")
        everything = tuple(range(xs[0].shape.rank))
        chosen = everything if dimensions is None else rule.integers("dimensions", dimensions)
        rule("C3", chosen == everything, f"dimensions must be {everything}, all of them in order")
        taken = [*(Shape(x.shape.element_type) for x in xs), *(static.shape for static in statics)]
        body = xs[0].builder.computation(rule, "computation", computation, taken, captures=True)
        fits = body.parameter_shapes == tuple(taken) and body.result_shape.is_scalar
        rule("C4", fits, f"computation {body!r} must take scalars of the operands' types and return one")
    shape = Shape(body.result_shape.element_type, xs[0].shape.dimensions)
    whole = [*statics, *body.captured]
    if not all(each.shape.is_scalar for each in whole):
        return _one_after_another(body, xs, statics, shape)
    xs = [*xs, *(broadcast_in_dim(each, shape.dimensions, ()) for each in whole)]
    return xs[0].builder.emit("stablehlo.map", xs, shape, {"dimensions": chosen}, [body])


def _one_after_another(body: XlaComputation, xs: Sequence[XlaOp], statics: Sequence[XlaOp], shape: Shape) -> XlaOp:
    """A map whose computation takes whole arrays: a scan over all elements that carries these on."""

    def element(*values: XlaOp) -> list[XlaOp]:
        return [values[0].builder.call(body, values), *values[len(xs) :]]

    flat = [reshape(x, (x.shape.size,)) for x in xs]
    return reshape(scan(flat, statics, element, 0)[0], shape.dimensions)
