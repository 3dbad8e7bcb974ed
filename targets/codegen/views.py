"""Reinterpret buffers of complex numbers as buffers of another element type in the same memory."""

from __future__ import annotations

import mlir.ir as ir

from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Value


def as_parts(buffer: Value) -> Value:
    """View a flat buffer of complex numbers as real and imaginary parts in turn; return others unchanged."""
    type_ = ir.MemRefType(buffer.type)
    if not isinstance(type_.element_type, ir.ComplexType):
        return buffer
    return Value(_seen_as(buffer.ssa, 2 * type_.shape[0], type_.element_type.element_type))


def as_words(buffer: Value) -> Value:
    """View a flat buffer of 64-bit complex numbers as integers; return others unchanged.

    Integers of 128 bits would be assumed to be aligned to 16 bytes.
    """
    type_ = ir.MemRefType(buffer.type)
    if not isinstance(type_.element_type, ir.ComplexType) or cg.bits_of(type_.element_type) > 64:
        return buffer
    return Value(_seen_as(buffer.ssa, type_.shape[0], ir.IntegerType.get_signless(cg.bits_of(type_.element_type))))


def _seen_as(buffer: ir.Value, size: int, element: ir.Type) -> ir.Value:
    # Both are the same pointer in LLVM's dialect, where both casts fold away.
    struct = ir.Type.parse("!llvm.struct<(ptr, ptr, i64, array<1 x i64>, array<1 x i64>)>")
    return _cast(_cast(buffer, struct), ir.MemRefType.get([size], element))


def _cast(value: ir.Value, type_: ir.Type) -> ir.Value:
    return ir.Operation.create("builtin.unrealized_conversion_cast", results=[type_], operands=[value]).result
