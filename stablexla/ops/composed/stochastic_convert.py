"""Conversion of floats to integers with stochastic rounding, composed of other operations."""

from __future__ import annotations

from stablexla.builder.checking import checking
from stablexla.builder.op import XlaOp
from stablexla.builder.registry import FLOAT, operation
from stablexla.dialects.element_types import ElementType
from stablexla.ops.conversion import convert_element_type
from stablexla.ops.elementwise import abs, floor, ge, le, lt, select

__all__ = ["stochastic_convert_type"]


@operation("stablehlo.convert", FLOAT, family="conversion")
def stochastic_convert_type(operand: XlaOp, random: XlaOp, new_element_type: str | ElementType) -> XlaOp:
    """Each element as an integer, rounded away from zero with the probability of its fraction.

    Values beyond the integer type become its smallest or largest number, and NaN becomes 0.

    Args:
        operand: an array of floats.
        random: random bits, an array of its dimensions of unsigned integers as wide as its elements. An element is
            rounded away from zero where these bits, as a number from 0 to 1, are below its fraction.
        new_element_type: a signed integer type.

    Raises:
        ShapeError: an operand that is no array of floats (I1); bits that are no unsigned integers of its width, or of
            other dimensions (I2); a type that is no signed integer.

    Source: `StochasticConvertType` of XLA's builder; its decomposition in XLA defines it.

    >>> b = sx.XlaBuilder("example")
    >>> sx.stochastic_convert_type(b.parameter(0, sx.f32[3]), b.parameter(1, sx.u32[3]), "s8")
    XlaOp(stablehlo.select, s8[3])
    """
    named = {"operand": operand, "random": random, "new_element_type": new_element_type}
    with checking("stochastic_convert_type", **named) as rule:
        x, bits = rule.ops(operand=rule.op("operand", operand), random=rule.op("random", random))
        rule.types(operand=x)
        rule.arrays(random=bits)
        wanted = rule.element_type("new_element_type", new_element_type)
        given, drawn = x.shape.element_type, bits.shape.element_type
        fits = drawn.is_unsigned and drawn.bits == given.bits
        rule("I2", fits, f"random must be of unsigned integers of {given.bits} bits, as wide as {given}, not {drawn}")
        rule("I2", bits.shape.dimensions == x.shape.dimensions, "random must have the dimensions of operand")
        rule("", wanted.is_signed, f"new_element_type must be a signed integer, not {wanted}", "convert_element_type")
    # Below 32 bits the fraction times 2^width may be beyond the largest number.
    wide = x if given.bits >= 32 else convert_element_type(x, "f32")
    size = abs(wide)
    whole = floor(size)
    threshold = convert_element_type((size - whole) * 2.0**drawn.bits, drawn)
    truncated = convert_element_type(whole, wanted)
    rounded = select(lt(bits, threshold), truncated + 1, truncated)
    signed = select(lt(wide, 0), -rounded, rounded)
    lowest, highest = -(1 << (wanted.bits - 1)), (1 << (wanted.bits - 1)) - 1
    held = select(le(wide, float(lowest)), lowest, signed)
    held = select(ge(wide, float(highest)), highest, held)
    return select(wide != wide, 0, held)
