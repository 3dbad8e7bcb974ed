"""Checks of reductions: the operands and the combiner.

Each operation passes the rule numbers of its own section of the specification.
"""

from __future__ import annotations

from collections.abc import Sequence

from stablexla.builder.checking import Rules, same
from stablexla.builder.computation import Computation, XlaComputation
from stablexla.builder.op import XlaOp
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.shapes import Shape


def check_reduction_operands(
    rule: Rules, xs: Sequence[XlaOp], inits: Sequence[XlaOp], *, count: str, dimensions: str, types: str, scalars: str
) -> list[ElementType]:
    """Check the operands: the same dimensions, and for each an initial scalar of its type; return element types."""
    rule(count, bool(xs), "there must be an operand")
    rule(count, len(xs) == len(inits), f"there are {len(xs)} operands, and {len(inits)} init_values")
    rule.one_builder([*xs, *inits])
    for number, (x, init) in enumerate(zip(xs, inits)):
        rule("", x.shape.is_array, f"operands[{number}] must be an array")
        rule(scalars, init.shape.is_scalar, f"init_values[{number}] must be a scalar, not {init.shape}")
        wanted, given = x.shape.element_type, init.shape.element_type
        rule(types, given is wanted, f"init_values[{number}] must be of type {wanted} as its operand, not {given}")
    rule(dimensions, same(x.shape.dimensions for x in xs), "the operands must have the same dimensions")
    return [x.shape.element_type for x in xs]


def checked_combiner(
    rule: Rules, number: str, x: XlaOp, given: Computation, types: Sequence[ElementType], name: str = "computation"
) -> XlaComputation:
    """The combiner, a computation of N accumulators and N elements with N results, of the accumulators' types.

    These may be wider than the operands' types, of the same kind, as sums of bf16 in f32.
    """
    body = x.builder.computation(rule, name, given, [Shape(t) for t in (*types, *types)])
    returned = list(body.result_shape.leaves)
    pretty = f"{name} {body!r} must take and return scalars of the operands' types"
    rule(number, body.parameter_shapes == (*returned, *returned) and len(returned) == len(types), pretty)
    for leaf, wanted in zip(returned, types):
        rule(number, leaf.is_scalar and accumulates_in(leaf.element_type, wanted), pretty)
    return body


def accumulates_in(wide: ElementType, narrow: ElementType) -> bool:
    """Whether the accumulator may have the type `wide`: of the same kind, and not narrower."""
    return wide.kind is narrow.kind and wide.bits >= narrow.bits
