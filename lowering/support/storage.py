"""Conversions between storage type, value type and computing type of an element."""

from __future__ import annotations

import mlir.ir as ir
from mlir.dialects import arith, tensor

from stablexla.dialects.element_types import BY_NAME, FINITE_ONLY, ElementType
from stablexla.lowering.support.types import TensorType, storage_type, value_type


def entered(array: ir.Value, type_: TensorType) -> ir.Value:
    """Return an array as rules take it: the value of its element if it has rank 0."""
    return array if type_.rank else from_storage(tensor.extract(array, []), type_.element)


def from_storage(stored: ir.Value, element: ElementType) -> ir.Value:
    """Convert an element from storage to its value; the bits above a small element are not trusted."""
    if element.bits >= 8:
        return stored
    if element.is_pred:
        return arith.cmpi(arith.CmpIPredicate.ne, stored, constant(stored.type, 0))
    if element.is_integer:
        return normalise(stored, element)
    bits = arith.trunci(ir.IntegerType.get_signless(element.bits), stored)
    return arith.bitcast(value_type(element), bits)


def to_storage(value: ir.Value, element: ElementType) -> ir.Value:
    """Convert a value to storage: an element below a byte is zero-extended, as in ml_dtypes' arrays."""
    if element.bits >= 8:
        return value
    if element.is_integer:
        return arith.andi(value, constant(value.type, (1 << element.bits) - 1))
    if element.is_pred:
        return arith.extui(storage_type(element), value)
    return arith.extui(storage_type(element), arith.bitcast(ir.IntegerType.get_signless(element.bits), value))


def normalise(value: ir.Value, element: ElementType) -> ir.Value:
    """Wrap an integer that is kept in a wider type around at its own width; others are unchanged."""
    if not element.is_integer or element.bits >= 8:
        return value
    if element.is_unsigned:
        return arith.andi(value, constant(value.type, (1 << element.bits) - 1))
    gap = constant(value.type, 8 - element.bits)
    return arith.shrsi(arith.shli(value, gap), gap)


def constant(type_: ir.Type, value: int | float) -> ir.Value:
    """Return a constant number, or one in all lanes of a vector; integers are taken modulo their width."""
    if isinstance(type_, ir.VectorType):
        number = constant(type_.element_type, value).owner
        splat = ir.DenseElementsAttr.get_splat(type_, number.attributes["value"])
        return arith.constant(type_, splat)
    if isinstance(type_, ir.IndexType):
        return arith.constant(type_, int(value))
    if isinstance(type_, ir.IntegerType):
        width = type_.width
        wrapped = int(value) & ((1 << width) - 1)
        signed = wrapped - (1 << width) if width > 1 and wrapped >> (width - 1) else wrapped
        return arith.constant(type_, signed)
    return arith.constant(type_, float(value))


def compute_type(element: ElementType) -> ElementType | None:
    """Return the computing type of a float below 32 bits, f32; None when the type is computed in itself.

    f32 holds enough digits that double rounding is innocuous for +, -, *, / and square root.
    """
    return BY_NAME["f32"] if element.is_float and element.bits < 32 else None


def widen(value: ir.Value, element: ElementType) -> ir.Value:
    """Promote a value to its computing type."""
    wide = compute_type(element)
    return arith.extf(value_type(wide), value) if wide else value


def narrow(value: ir.Value, element: ElementType) -> ir.Value:
    """Round a value from its computing type to its own."""
    return rounded(value, element) if compute_type(element) else normalise(value, element)


def rounded(value: ir.Value, element: ElementType) -> ir.Value:
    """Round a float to a narrower type."""
    return arith.truncf(value_type(element), _saturated(value, element))


WITHOUT_SIGN = "f8e8m0fnu"


def _saturated(value: ir.Value, element: ElementType) -> ir.Value:
    """Replace what a type lacks: MLIR's folding of constants ends the process there, or makes a number of 0.

    Types without infinities saturate; NaN is -0 in them, as in ml_dtypes. In a type of positive numbers all others are
    NaN.
    """
    if element.name == WITHOUT_SIGN:
        is_positive = arith.cmpf(arith.CmpFPredicate.OGT, value, constant(value.type, 0.0))
        return arith.select(is_positive, value, constant(value.type, float("nan")))
    if element.name not in FINITE_ONLY:
        return value
    largest = FINITE_ONLY[element.name]
    for predicate, number in ((arith.CmpFPredicate.OGT, largest), (arith.CmpFPredicate.OLT, -largest)):
        bound = constant(value.type, number)
        value = arith.select(arith.cmpf(predicate, value, bound), bound, value)
    is_nan = arith.cmpf(arith.CmpFPredicate.UNO, value, value)
    return arith.select(is_nan, constant(value.type, -0.0), value)
