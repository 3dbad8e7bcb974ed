"""Lowering of conversions: convert, bitcast_convert, reduce_precision, and complex numbers to and from their parts.

Small floats are only widened and narrowed here; their formats are in `small_floats`.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlir.ir as ir
from mlir.dialects import arith, complex, tensor

from stablexla.dialects.element_types import ElementType
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.tensor_types import TensorType
from stablexla.lowering.math.complex.arithmetic import create as complex_of
from stablexla.lowering.math.small_floats import FORMATS, Special
from stablexla.lowering.support.context import LoweringContext
from stablexla.lowering.support.generic import PARALLEL, Output, elementwise, generic, identity, loop_index, projection
from stablexla.lowering.support.registry import lowers
from stablexla.lowering.support.scalars import cmpf, cmpi, minimum_of
from stablexla.lowering.support.storage import (
    WITHOUT_SIGN,
    constant,
    from_storage,
    normalise,
    rounded,
    to_storage,
    widen,
)
from stablexla.lowering.support.types import value_type

# ---- values of one type as values of another -----------------------------------------------------------------------


@lowers("stablehlo.convert")
def convert(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """Each element as the nearest one of another type."""
    source, target = ctx.operand_types[0].element, ctx.result.element
    return ctx.elementwise(lambda v: convert_value(v, source, target), x)


def in_element_type(x: ir.Value, given: TensorType, element: ElementType) -> ir.Value:
    """Convert each element of an array to another type; return the array itself where they have it."""
    if given.element == element:
        return x
    return elementwise(
        [x], [given], [TensorType(element, given.shape)], lambda v: convert_value(v, given.element, element)
    )[0]


def convert_value(x: ir.Value, source: ElementType, target: ElementType) -> ir.Value:
    """Convert one element to another type.

    Float to integer truncates and saturates, NaN to 0; integers wrap around; to pred compares with 0; complex to real
    drops the imaginary part. A conversion to a float rounds once, to nearest even.
    """
    if source == target:
        return x
    if source.is_complex:
        if target.is_complex:
            parts = (complex.re(x), complex.im(x))
            return complex_of(*(convert_value(p, source.part, target.part) for p in parts))
        return convert_value(complex.re(x), source.part, target)
    if target.is_complex:
        real = convert_value(x, source, target.part)
        return complex_of(real, constant(real.type, 0.0))
    if target.is_pred:
        return _to_pred(x, source)
    if source.is_float:
        return _float_to_float(x, source, target) if target.is_float else _float_to_integer(x, source, target)
    if target.is_float:
        return _integer_to_float(x, source, target)
    return normalise(_resize(x, value_type(target).width, signed=source.is_signed), target)


def _to_pred(x: ir.Value, source: ElementType) -> ir.Value:
    if source.is_float:
        wide = widen(x, source)
        return cmpf("UNE", wide, constant(wide.type, 0.0))
    return cmpi("ne", x, constant(x.type, 0))


def _resize(x: ir.Value, width: int, *, signed: bool) -> ir.Value:
    """Truncate an integer, or extend its sign or zeros, to another width."""
    type_ = ir.IntegerType.get_signless(width)
    if x.type.width == width:
        return x
    if x.type.width > width:
        return arith.trunci(type_, x)
    return arith.extsi(type_, x) if signed else arith.extui(type_, x)


def _float_to_float(x: ir.Value, source: ElementType, target: ElementType) -> ir.Value:
    """Convert through f32 where neither type holds all values of the other; one of the two steps is exact then."""
    wide = widen(x, source) if target.bits < 32 or source.bits < 16 else x
    type_ = value_type(target)
    if wide.type == type_:
        return wide
    return arith.extf(type_, wide) if wide.type.width < type_.width else rounded(wide, target)


def _integer_to_float(x: ir.Value, source: ElementType, target: ElementType) -> ir.Value:
    type_, convert = value_type(target), arith.sitofp if source.is_signed else arith.uitofp
    if target.name != WITHOUT_SIGN:
        return convert(type_, x)
    is_positive = cmpi("sgt" if source.is_signed else "ne", x, constant(x.type, 0))  # others it has no numbers for
    number = convert(type_, arith.select(is_positive, x, constant(x.type, 1)))
    return arith.select(is_positive, number, constant(type_, float("nan")))


def _float_to_integer(x: ir.Value, source: ElementType, target: ElementType) -> ir.Value:
    """Round toward zero and saturate at the target's bounds, NaN to 0."""
    x = widen(x, source)
    largest = (1 << (target.bits - target.is_signed)) - 1
    precision = 53 if source.bits == 64 else 24
    low = constant(x.type, float(minimum_of(target)))
    if target.bits <= precision:
        high = constant(x.type, float(largest))
        # Not above 0 is NaN as well.
        held = arith.select(cmpf("OGT", x, low), x, low)
        number = arith.select(cmpf("OLT", held, high), held, high)
        if not target.is_unsigned:
            number = arith.select(cmpf("UNO", x, x), constant(x.type, 0.0), number)
        return _resize(_to_integer(number, target), value_type(target).width, signed=True)
    x_or_low = arith.select(cmpf("OLT", x, low), low, x)
    inside = cmpf("OLT", x_or_low, constant(x.type, float(largest + 1)))
    number = _to_integer(arith.select(inside, x_or_low, constant(x.type, 0.0)), target)
    beyond = arith.select(cmpf("UNO", x, x), constant(number.type, 0), constant(number.type, largest))
    return arith.select(inside, number, beyond)


def _to_integer(x: ir.Value, target: ElementType) -> ir.Value:
    """Convert a float within the target's bounds to an integer of at least 32 bits, for which instructions exist."""
    type_ = ir.IntegerType.get_signless(max(32, target.bits))
    if target.is_unsigned and target.bits >= 32:
        return arith.fptoui(type_, x)
    return arith.fptosi(type_, x)


# ---- bit patterns ----------------------------------------------------------------------------------------------------


@lowers("stablehlo.bitcast_convert")
def bitcast_convert(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """The same bit pattern as elements of another type.

    Where the widths differ, the narrower elements lie along a last dimension, the one of the lowest bits first.
    """
    source, target = ctx.operand_types[0], ctx.result
    if source.element.bits < target.element.bits:
        return _join_bits(ctx, x)
    if source.element.bits > target.element.bits:
        return _split_bits(ctx, x)
    if source.shape != target.shape:
        raise ctx.unsupported("elements of one width keep their shape")
    return ctx.elementwise(lambda v: value_of_bits(bits_of_value(v, source.element), target.element), x)


def bits_of_value(x: ir.Value, element: ElementType) -> ir.Value:
    """Return the bit pattern of an element as an integer of the element's width."""
    if element.is_complex:
        half = element.bits // 2
        low, high = (bits_of_value(p, element.part) for p in (complex.re(x), complex.im(x)))
        wide = _resize(high, element.bits, signed=False)
        return arith.ori(_resize(low, element.bits, signed=False), arith.shli(wide, constant(wide.type, half)))
    if element.is_float:
        return arith.bitcast(ir.IntegerType.get_signless(element.bits), x)
    return _resize(x, element.bits, signed=False)


def value_of_bits(bits: ir.Value, element: ElementType) -> ir.Value:
    """Return the element of a bit pattern."""
    if element.is_complex:
        half = element.bits // 2
        high = arith.shrui(bits, constant(bits.type, half))
        return complex_of(*(value_of_bits(_resize(b, half, signed=False), element.part) for b in (bits, high)))
    if element.is_float:
        return arith.bitcast(value_type(element), bits)
    return _resize(bits, value_type(element).width, signed=element.is_signed)


def _join_bits(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """Bitcast several narrow elements to a wide one."""
    (source,), target = ctx.operand_types, ctx.result
    count, rank = source.shape[-1], target.rank

    def join(stored: Sequence[ir.Value]) -> ir.Value:
        values = [bits_of_value(from_storage(s, source.element), source.element) for s in stored]
        whole = _resize(values[0], target.element.bits, signed=False)
        for i, value in enumerate(values[1:], 1):
            wide = _resize(value, target.element.bits, signed=False)
            whole = arith.ori(whole, arith.shli(wide, constant(wide.type, i * source.element.bits)))
        return value_of_bits(whole, target.element)

    if not rank:
        return [join([tensor.extract(x, [constant(ir.IndexType.get(), i)]) for i in range(count)])]
    dimensions = [ir.AffineDimExpr.get(d) for d in range(rank)]
    maps = [ir.AffineMap.get(rank, 0, [*dimensions, ir.AffineConstantExpr.get(i)]) for i in range(count)]
    return generic(
        [x] * count,
        [Output(target)],
        [*maps, identity(rank)],
        [PARALLEL] * rank,
        lambda arguments: [to_storage(join(arguments[:count]), target.element)],
    )


def _split_bits(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """Bitcast a wide element to several narrow ones."""
    (source,), target = ctx.operand_types, ctx.result
    rank, width = target.rank, source.element.bits

    def split(arguments: Sequence[ir.Value]) -> list[ir.Value]:
        value = from_storage(arguments[0], source.element) if source.rank else arguments[0]
        bits = bits_of_value(value, source.element)
        position = arith.index_cast(ir.IntegerType.get_signless(64), loop_index(rank - 1))
        distance = arith.muli(position, constant(position.type, target.element.bits))
        shifted = arith.shrui(bits, _resize(distance, width, signed=False))
        narrow = _resize(shifted, target.element.bits, signed=False)
        return [to_storage(value_of_bits(narrow, target.element), target.element)]

    maps = [projection(rank, range(source.rank)), identity(rank)]
    return generic([x], [Output(target)], maps, [PARALLEL] * rank, split)


# ---- fewer bits of precision -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """Exponent and mantissa bits of a float format."""

    exponent: int
    mantissa: int


IEEE = {"bf16": Layout(8, 7), "f16": Layout(5, 10), "f32": Layout(8, 23), "f64": Layout(11, 52)} | {
    name.lower(): Layout(f.exponent, f.mantissa) for name, f in FORMATS.items() if f.special is Special.IEEE
}
OTHERS = {"f8e8m0fnu": Layout(8, 0)} | {
    name.lower(): Layout(f.exponent, f.mantissa) for name, f in FORMATS.items() if f.special is not Special.IEEE
}


@lowers("stablehlo.reduce_precision")
def reduce_precision(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """Each element rounded to a format of fewer exponent and mantissa bits; more bits change nothing."""
    element = ctx.result.element
    format = Layout(*(int(ctx.attributes[n]) for n in ("exponent_bits", "mantissa_bits")))
    own = IEEE.get(element.name) or OTHERS[element.name]
    if format.exponent >= own.exponent and format.mantissa >= own.mantissa:
        return [x]

    def body(value: ir.Value) -> ir.Value:
        if element.name in IEEE:
            return reduce_value(value, own, format)
        # No infinities in the type: computed in f32; narrowing replaces them by the type's overflow value.
        wide = Layout(format.exponent if format.exponent < own.exponent else 8, format.mantissa)
        return rounded(reduce_value(widen(value, element), IEEE["f32"], wide), element)

    return ctx.elementwise(body, x)


def reduce_value(x: ir.Value, own: Layout, format: Layout) -> ir.Value:
    """Round the mantissa to nearest even; overflow becomes infinite, underflow zero. NaN stays.

    Numbers that would be denormals of the smaller format become zero as well."""
    width = x.type.width
    type_ = ir.IntegerType.get_signless(width)
    bits = arith.bitcast(type_, x)
    infinity = constant(type_, ((1 << own.exponent) - 1) << own.mantissa)
    reduced = bits
    dropped = own.mantissa - format.mantissa
    if dropped > 0:
        odd = arith.andi(arith.shrui(bits, constant(type_, dropped)), constant(type_, 1))
        rounded = arith.addi(bits, arith.addi(odd, constant(type_, (1 << (dropped - 1)) - 1)))
        reduced = arith.andi(rounded, constant(type_, -1 << dropped))
    if format.exponent < own.exponent:
        bias, own_bias = (1 << (format.exponent - 1)) - 1, (1 << (own.exponent - 1)) - 1
        sign = arith.andi(bits, constant(type_, 1 << (width - 1)))
        field = arith.andi(reduced, infinity)
        overflows = cmpi("ugt", field, constant(type_, (own_bias + bias) << own.mantissa))
        underflows = cmpi("ule", field, constant(type_, (own_bias - bias) << own.mantissa))
        reduced = arith.select(overflows, arith.ori(sign, infinity), reduced)
        reduced = arith.select(underflows, sign, reduced)
    magnitude = arith.andi(bits, constant(type_, (1 << (width - 1)) - 1))
    return arith.bitcast(x.type, arith.select(cmpi("ugt", magnitude, infinity), bits, reduced))


# ---- complex numbers and their parts ---------------------------------------------------------------------------------


@lowers("stablehlo.complex")
def make_complex(ctx: LoweringContext, real: ir.Value, imaginary: ir.Value) -> list[ir.Value]:
    """The complex number of a real and an imaginary part."""
    return ctx.elementwise(complex_of, real, imaginary)


@lowers("stablehlo.real")
def real(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """The real part; that of a real number is the number."""
    element = ctx.operand_types[0].element
    return ctx.elementwise(lambda v: complex.re(v) if element.is_complex else v, x)


@lowers("stablehlo.imag")
def imag(ctx: LoweringContext, x: ir.Value) -> list[ir.Value]:
    """The imaginary part; that of a real number is 0."""
    element = ctx.operand_types[0].element

    def body(value: ir.Value) -> ir.Value:
        return complex.im(value) if element.is_complex else constant(value.type, 0.0)

    return ctx.elementwise(body, x)
