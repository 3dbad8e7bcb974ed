"""Functions of a program that functions of the library call back.

The library's function is given two addresses: the program's function, and a table for it, which has the addresses of
the kernel's buffers and the numbers that stood in its code. So kernels that differ in sizes alone share one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import mlir.ir as ir

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value
from stablexla.targets.cpu.number_table import number_table
from stablexla.targets.cpu.shared import EXTENT, SharedFunctions
from stablexla.targets.host.symbols import pointer_type, to_pointer


@dataclass(frozen=True)
class Callback:
    """A function of a program, and the table that it is given, both as addresses."""

    function: Index
    table: Index

    def call(self, numbers: Sequence[Index]) -> None:
        """Emit a call of it, in a function of the library."""
        given = [cg.cast_index(cg.index(n), _word()).ssa for n in (self.table, *numbers)]
        sizes = {
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([1 + len(given), 0]),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
        }
        ir.Operation.create("llvm.call", operands=[to_pointer(cg.index(self.function).ssa), *given], attributes=sizes)


def emit_callback(
    shared: SharedFunctions,
    name: str,
    key: Hashable,
    given: tuple[Sequence[Value], Sequence[int], int],
    emit: Callable[[list[Value], list[Value], list[Value]], None],
) -> Callback:
    """Emit a function of the program for calls by the library, unless there is one of its key.

    Args:
        name: the beginning of its symbol, for readers.
        key: what the code depends on, besides the types of buffers; None if it is not known.
        given: buffers and scalars of the function that is being emitted, numbers, and how many more numbers a call has.
        emit: emits the body, from what these are inside of it.
    """
    buffers, numbers, more = given

    def body(arguments: list[Value]) -> None:
        table = to_pointer(arguments[0].ssa)
        inside = [_loaded(table, place, buffer.type) for place, buffer in enumerate(buffers)]
        words = [_load(_entry(table, len(buffers) + place), _word()) for place in range(len(numbers))]
        emit(inside, [cg.cast_index(Value(word), ir.IndexType.get()) for word in words], arguments[1:])

    kinds = tuple(b.element if isinstance(b.type, ir.MemRefType) else (b.type,) for b in buffers)
    symbol = shared.define(name, None if key is None else (key, kinds), 1 + more, body)
    table = number_table(numbers, before=len(buffers))
    for place, buffer in enumerate(buffers):
        cg.store(cg.address(buffer if isinstance(buffer.type, ir.MemRefType) else _spilled(buffer)), table, place)
    return Callback(_address_of(symbol, 1 + more), cg.address(table))


def buffer_at(address: Value, element: ir.Type) -> Value:
    """Return the buffer that begins at an address."""
    return _buffer(to_pointer(address.ssa), element)


def _loaded(table: ir.Value, place: int, type_: ir.Type) -> Value:
    """Load a buffer or a scalar by the address in the table."""
    address = _load(_entry(table, place), pointer_type())
    if isinstance(type_, ir.MemRefType):
        return _buffer(address, type_.element_type)
    return cg.load(_buffer(address, type_), 0)


def _buffer(address: ir.Value, element: ir.Type) -> Value:
    return cg.addressed(address, element, EXTENT)


def _spilled(scalar: Value) -> Value:
    """Store a scalar on the stack."""
    place = cg.alloca(1, scalar.type)
    cg.store(scalar, place, 0)
    return place


def _entry(table: ir.Value, place: int) -> ir.Value:
    attributes = {
        "elem_type": ir.TypeAttr.get(_word()),
        "rawConstantIndices": ir.DenseI32ArrayAttr.get([place]),
    }
    return _create("llvm.getelementptr", pointer_type(), table, **attributes)


def _load(address: ir.Value, type_: ir.Type) -> ir.Value:
    return _create("llvm.load", type_, address)


def _address_of(symbol: str, count: int) -> Value:
    """Return the address of a function of so many indices."""
    index = ir.IndexType.get()
    name = {"value": ir.FlatSymbolRefAttr.get(symbol)}
    function = _create("func.constant", ir.FunctionType.get([index] * count, []), **name)
    # A pointer in LLVM's dialect, where the cast folds away.
    pointer = _create("builtin.unrealized_conversion_cast", pointer_type(), function)
    return cg.cast_index(Value(_create("llvm.ptrtoint", _word(), pointer)), index)


def _word() -> ir.Type:
    return ir.IntegerType.get_signless(64)


def _create(name: str, type_: ir.Type, *operands: ir.Value, **attributes: ir.Attribute) -> ir.Value:
    return ir.Operation.create(name, [type_], operands, attributes).result


__all__ = ["Callback", "buffer_at", "emit_callback"]
