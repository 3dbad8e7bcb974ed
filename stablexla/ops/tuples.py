"""Tuples: they group values, and nothing is emitted for them."""

from __future__ import annotations

from collections.abc import Sequence

from stablexla.builder.checking import checking
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.shapes import Shape

__all__ = ["get_tuple_element", "tuple"]


@operation()
def tuple(elements: Sequence[XlaOp]) -> XlaOp:
    """The elements as one op of tuple shape, which unpacks: `a, b = sx.tuple((a, b))`.

    Raises:
        ShapeError: no element, or elements of different builders.

    Source: `Tuple` of XLA's operation semantics.

    >>> b = sx.XlaBuilder("example")
    >>> sx.tuple((b.constant(1), b.constant([1.0, 2.0])))
    XlaOp(tuple, (s32[], f32[2]))
    """
    with checking("tuple", elements=elements) as rule:
        ops = rule.sequence("elements", elements)
        rule("", bool(ops), "a tuple needs an element that says whose it is", "b.empty_tuple()")
        builder = rule.one_builder(ops)
    shape = Shape.tuple(op.shape for op in ops)
    values = (value for op in ops for value in builder.lift(op).values)
    return builder.wrap(shape, (*values,), "tuple")


@operation()
def get_tuple_element(tuple_data: XlaOp, index: int) -> XlaOp:
    """The element of a tuple at a static position.

    Raises:
        ShapeError: (C1) an index beyond the tuple; an operand that is no tuple.

    Source: `GetTupleElement` of XLA's operation semantics; StableHLO `get_tuple_element`.

    >>> b = sx.XlaBuilder("example")
    >>> sx.get_tuple_element(b.parameter(0, sx.Shape.tuple((sx.s32[()], sx.f32[2]))), 1)
    XlaOp(get_tuple_element, f32[2])
    """
    with checking("get_tuple_element", tuple_data=tuple_data, index=index) as rule:
        op = rule.op("tuple_data", tuple_data)
        rule("", op.shape.is_tuple, "tuple_data must be a tuple")
        place = rule.integer("index", index)
        parts = op.shape.tuple_shapes
        rule("C1", 0 <= place < len(parts), f"index must be from 0 to {len(parts) - 1}")
    start = sum(part.leaf_count for part in parts[:place])
    values = op.values[start : start + parts[place].leaf_count]
    return op.builder.wrap(parts[place], values, "get_tuple_element")
