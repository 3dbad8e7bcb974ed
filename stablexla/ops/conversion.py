"""Operations from one element type to another, by value or by bits, and to a precision below the type's own."""

from __future__ import annotations

from stablexla.builder.checking import Rules, checking
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import FLOAT, operation
from stablexla.dialects.element_types import ElementType
from stablexla.dialects.shapes import Shape

__all__ = ["bitcast_convert_type", "convert_element_type", "reduce_precision"]


@operation("stablehlo.convert")
def convert_element_type(operand: XlaOp, new_element_type: str | ElementType) -> XlaOp:
    """Each element as the nearest value of another type.

    Floats are rounded toward zero for integers; the real part of a complex number is taken for reals; pred is whether
    the element differs from zero.

    Raises:
        ShapeError: no such element type, or an operand that is no array.

    Source: `ConvertElementType` of XLA's operation semantics; StableHLO `convert`.

    >>> sx.convert_element_type(sx.XlaBuilder("example").parameter(0, sx.s32[3]), "f32")
    XlaOp(stablehlo.convert, f32[3])
    """
    with checking("convert_element_type", operand=operand, new_element_type=new_element_type) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        wanted = rule.element_type("new_element_type", new_element_type)
    if wanted is x.shape.element_type:
        return x
    return x.builder.emit("stablehlo.convert", [x], x.shape.with_element_type(wanted))


@operation("stablehlo.bitcast_convert")
def bitcast_convert_type(operand: XlaOp, new_element_type: str | ElementType) -> XlaOp:
    """The bits of `operand` read as another type.

    From a wider type to a narrower one, a last dimension is added that counts the parts, lowest bits first; from a
    narrower to a wider one, the last dimension must have just that size and falls away.

    Raises:
        ShapeError: (C1) widths that do not divide, or a last dimension of another size; (C2) from complex to other
            types or back.

    Source: `BitcastConvertType` of XLA's operation semantics; StableHLO `bitcast_convert`.

    >>> x = sx.XlaBuilder("example").parameter(0, sx.f32[10])
    >>> sx.bitcast_convert_type(x, "f16")
    XlaOp(stablehlo.bitcast_convert, f16[10,2])
    """
    with checking("bitcast_convert_type", operand=operand, new_element_type=new_element_type) as rule:
        x = rule.op("operand", operand)
        rule.arrays(operand=x)
        wanted = rule.element_type("new_element_type", new_element_type)
        given = x.shape.element_type
        rule("C2", given.is_complex == wanted.is_complex, f"{given} can't be read as {wanted}: only one is complex")
        shape = Shape(wanted, _recast(rule, x.shape, wanted))
    return x.builder.emit("stablehlo.bitcast_convert", [x], shape)


def _recast(rule: Rules, shape: Shape, wanted: ElementType) -> tuple[int, ...]:
    """C1: the dimensions of the same bits in elements of another width."""
    old, new = shape.element_type.bits, wanted.bits
    wide, narrow = max(old, new), min(old, new)
    rule("C1", wide % narrow == 0, f"elements of {old} bits can't be read as elements of {new} bits")
    if old == new:
        return shape.dimensions
    if old > new:
        return (*shape.dimensions, old // new)
    parts = new // old
    rule(
        "C1",
        shape.rank > 0 and shape.dimensions[-1] == parts,
        f"the last dimension of operand must have size {parts}, the number of {shape.element_type} in a {wanted}",
    )
    return shape.dimensions[:-1]


@operation("stablehlo.reduce_precision", FLOAT)
def reduce_precision(operand: XlaOp, exponent_bits: int, mantissa_bits: int) -> XlaOp:
    """Each element rounded to a float of so many bits, and back in its own type.

    Raises:
        ShapeError: (C2) fewer than 1 bit of exponent; (C3) a negative number of mantissa bits.

    Source: `ReducePrecision` of XLA's operation semantics; StableHLO `reduce_precision`.

    >>> sx.reduce_precision(sx.XlaBuilder("example").parameter(0, sx.f32[3]), 5, 10)
    XlaOp(stablehlo.reduce_precision, f32[3])
    """
    with checking(
        "reduce_precision", operand=operand, exponent_bits=exponent_bits, mantissa_bits=mantissa_bits
    ) as rule:
        x = rule.op("operand", operand)
        rule.types(operand=x)
        exponent = rule.integer("exponent_bits", exponent_bits, bits=32)
        mantissa = rule.integer("mantissa_bits", mantissa_bits, bits=32)
        rule("C2", exponent >= 1, "exponent_bits must be at least 1")
        rule("C3", mantissa >= 0, "mantissa_bits must not be negative")
    attributes = {"exponent_bits": x.builder.i32(exponent), "mantissa_bits": x.builder.i32(mantissa)}
    return x.builder.emit("stablehlo.reduce_precision", [x], x.shape, attributes)
