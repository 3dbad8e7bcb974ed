"""Arrays whose size is known only when the program runs: a dimension is given a size, up to the bound in its shape."""

from __future__ import annotations

import numpy as np

from stablexla.builder.checking import checking, is_number
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import operation
from stablexla.dialects.shapes import Shape

__all__ = ["set_dimension_size"]


@operation("stablehlo.set_dimension_size")
def set_dimension_size(operand: XlaOp, size: XlaOp | int, dimension: int) -> XlaOp:
    """`operand` with a dimension of another size, which is known only when the program runs; its bound stays.

    Later operations, and the program's caller, see the first `size` elements along the dimension. The others are
    hidden, not removed: they keep their positions and values until another operation than this one makes a new array,
    in which elements beyond the size have no meaning.

    Args:
        operand: an array.
        size: an s32 scalar. It is clamped to 0 and the bound. A constant equal to the bound makes
            the dimension static again.
        dimension: whose size it is.

    Raises:
        ShapeError: (C1) no such dimension; (I2) a size that is no s32 scalar, or a number that is not from 0 to the
            bound.

    Source: `SetDimensionSize` of XLA's operation semantics; StableHLO `set_dimension_size`.

    >>> b = sx.XlaBuilder("example")
    >>> x, n = b.parameter(0, sx.f32[10]), b.parameter(1, sx.s32[()])
    >>> some = sx.set_dimension_size(x, n, 0)
    >>> some
    XlaOp(stablehlo.set_dimension_size, f32[<=10])
    >>> sx.compile(b.build(some * 2))(np.arange(10, dtype=np.float32), 3)
    array([0., 2., 4.], dtype=float32)
    """
    with checking("set_dimension_size", operand=operand, size=size, dimension=dimension) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        place = rule.integer("dimension", dimension)
        rule.place("C1", place, x.shape.rank, f"dimension: {place} is no dimension of an array of rank {x.shape.rank}")
        bound = x.shape.dimensions[place]
        if is_number(size):
            number = rule.integer("size", size)
            rule("I2", 0 <= number <= bound, f"size must be from 0 to {bound}, the bound of dimension {place}")
            size = x.builder.constant(number, "s32")
        given = rule.op("size", size)
        rule.one_builder([x, given])
        rule("I2", given.shape == Shape("s32"), f"size must be an s32 scalar, not {given.shape}")
    others = {d for d in range(x.shape.rank) if x.shape.is_dynamic_dimension(d) and d != place}
    shape = x.shape.with_dynamic(others if _constant(given) == bound else {*others, place})
    return x.builder.emit("stablehlo.set_dimension_size", [x, given], shape, {"dimension": place})


def _constant(op: XlaOp) -> int | None:
    """The value of an s32 constant."""
    if op.name != "stablehlo.constant":
        return None
    return int(np.array(op.values[0].owner.attributes["value"]))
