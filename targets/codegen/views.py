"""Buffers of complex numbers seen as buffers of something else that lies in the same memory."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.targets.codegen.emission import Value, bits_of


def as_parts(buffer: ir.Value) -> Value:
    """A flat buffer of complex numbers as one of their parts, real and imaginary in turn; another one as it is."""
    type_ = ir.MemRefType(buffer.type)
    if not isinstance(type_.element_type, ir.ComplexType):
        return Value(buffer)
    return Value(_seen_as(buffer, 2 * type_.shape[0], type_.element_type.element_type))


def as_words(buffer: ir.Value) -> Value:
    """A flat buffer of complex numbers of 64 bits as one of integers; another one as it is.

    Integers of 128 bits would be taken to lie at multiples of 16 bytes.
    """
    type_ = ir.MemRefType(buffer.type)
    if not isinstance(type_.element_type, ir.ComplexType) or bits_of(type_.element_type) > 64:
        return Value(buffer)
    return Value(_seen_as(buffer, type_.shape[0], ir.IntegerType.get_signless(bits_of(type_.element_type))))


def _seen_as(buffer: ir.Value, size: int, element: ir.Type) -> ir.Value:
    # Both are the same pointer in LLVM's dialect, where nothing is left of the two casts.
    struct = ir.Type.parse("!llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>")
    return _cast(_cast(buffer, struct), ir.MemRefType.get([size], element))


def _cast(value: ir.Value, type_: ir.Type) -> ir.Value:
    return ir.Operation.create("builtin.unrealized_conversion_cast", results=[type_], operands=[value]).result
