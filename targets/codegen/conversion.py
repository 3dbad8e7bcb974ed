"""Operand conversion: the unary operations between an array's elements and the accumulator type, as a value."""

from __future__ import annotations

from collections.abc import Iterable

import mlir.ir as ir
from mlir.dialects import arith

from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.codegen import emission as cg
from stablexla.targets.codegen.emission import Index, Value


@dataclass(frozen=True)
class ConversionStep:
    """A unary operation on scalars: its name, result type and attributes."""

    name: str
    type: ir.Type
    attributes: ir.DictAttr

    @classmethod
    def of(cls, operation: ir.Operation) -> ConversionStep:
        """Return an operation as a step."""
        attributes = ir.DictAttr.get(dict(operation.attributes.items()), operation.context)
        return cls(operation.name, operation.results[0].type, attributes)

    def emit(self, value: Value) -> Value:
        """Emit the operation on a scalar or a vector."""
        made = ir.Operation.create(
            self.name,
            results=[cg.vector_of(value.lanes, self.type)],
            operands=[value.ssa],
            attributes={named.name: named.attr for named in self.attributes},
        )
        return Value(made.result)


Conversion = tuple[ConversionStep, ...]


def steps_of(operations: Iterable[ir.Operation]) -> Conversion:
    """Return a chain of unary operations as a value, without the program that it stands in."""
    return tuple(ConversionStep.of(operation) for operation in operations)


def convert(value: Value, conversion: Conversion, compute: ir.Type | None = None) -> Value:
    """Emit a conversion, and a sign extension where its result is narrower than the accumulator type `compute`."""
    for step in conversion:
        value = step.emit(value)
    if compute is not None and value.element != compute:
        value = Value(arith.extsi(cg.vector_of(value.lanes, compute), value.ssa))
    return value


def load_converted(
    buffer: Value,
    conversion: Conversion,
    compute: ir.Type | None,
    at: Index,
    lanes: int = 0,
    count: Index | None = None,
) -> Value:
    """Load elements of an operand as accumulator type; with a `count`, so many of `lanes`, the others are 0."""
    value = cg.load(buffer, at, lanes) if count is None else cg.load_lanes(buffer, at, lanes, count)
    return convert(value, conversion, compute)
