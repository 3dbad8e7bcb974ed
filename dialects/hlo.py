"""The one builder of StableHLO for passes: operations at the insertion point, on types taken from their operands.

The functions are named after the operations; `emit` makes those that have none. Users' programs are built by
`stablexla.builder`, which checks every rule; here MLIR's verifier does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

Attributes = Mapping[str, ir.Attribute]


def operation(
    name: str,
    operands: Sequence[Any] = (),
    types: Sequence[Any] = (),
    attributes: Attributes | None = None,
    regions: int = 0,
) -> Any:
    """Create an operation at the insertion point."""
    return ir.Operation.create(
        name, results=list(types), operands=list(operands), attributes=dict(attributes or {}), regions=regions
    )


def emit(name: str, operands: Sequence[Any], types: Sequence[Any], attributes: Attributes | None = None) -> Any:
    """Create an operation at the insertion point; return its only result."""
    return operation(name, operands, types, attributes).results[0]


# --- types and attributes ---------------------------------------------------------------------------------------------


def tensor(type_: Any, extents: Sequence[int]) -> ir.RankedTensorType:
    """Return the static tensor type of these extents with the elements of another tensor type."""
    unknown = ir.Location.unknown(type_.context)  # types are also made where there is no insertion point
    return ir.RankedTensorType.get(list(extents), type_.element_type, loc=unknown)


def integer_tensor(width: int, extents: Sequence[int] = ()) -> ir.RankedTensorType:
    """Return the type of arrays of signless integers."""
    return ir.RankedTensorType.get(list(extents), ir.IntegerType.get_signless(width))


def i64(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def i64s(values: Iterable[int]) -> ir.Attribute:
    """Return an array of integers, as for extents and dimensions."""
    return ir.DenseI64ArrayAttr.get(list(values))


def table(rows: Iterable[Iterable[int]]) -> ir.Attribute:
    """Return an attribute of rows of integers, as for groups of devices."""
    return ir.DenseIntElementsAttr.get(np.array([list(row) for row in rows], np.int64))


# --- constants --------------------------------------------------------------------------------------------------------


def constant(type_: Any, value: float | str) -> Any:
    """Create a splat constant; of a number, or as MLIR spells it."""
    return emit("stablehlo.constant", [], [type_], {"value": ir.Attribute.parse(f"dense<{value}> : {type_}")})


def array(values: Any) -> Any:
    """Create a constant of an array of NumPy's."""
    value = ir.DenseElementsAttr.get(values)
    return emit("stablehlo.constant", [], [value.type], {"value": value})


def number(type_: Any, spelled: str) -> Any:
    """Create the scalar 0, -0 or 1 of a tensor type's elements."""
    element = type_.element_type
    text = spelled.lstrip("-")
    if str(element) == "i1":
        text = "true" if text == "1" else "false"
    elif isinstance(element, ir.ComplexType):
        part = ir.RankedTensorType.get([], element.element_type)  # the bindings parse no complex constants
        parts = [number(part, spelled), number(part, spelled if spelled == "-0" else "0")]
        return emit("stablehlo.complex", parts, [tensor(type_, [])])
    elif not isinstance(element, ir.IntegerType):
        text = f"{spelled}.0"
    return constant(tensor(type_, []), text)


def iota(type_: Any, dimension: int) -> Any:
    """Create an array of indices along a dimension."""
    return emit("stablehlo.iota", [], [type_], {"iota_dimension": i64(dimension)})


# --- elements ---------------------------------------------------------------------------------------------------------


def elementwise(name: str, *operands: Any) -> Any:
    """Emit an operation whose result has its first operand's type."""
    return emit(f"stablehlo.{name}", operands, [operands[0].type])


def compare(lhs: Any, rhs: Any, direction: str = "LT", kind: str | None = "SIGNED") -> Any:
    """Emit a comparison, of signed integers if not said otherwise."""
    type_ = ir.RankedTensorType.get(list(lhs.type.shape), ir.IntegerType.get_signless(1))
    attributes = {"comparison_direction": stablehlo.ComparisonDirectionAttr.get(direction)}
    if kind is not None:
        attributes["compare_type"] = stablehlo.ComparisonTypeAttr.get(kind)
    return emit("stablehlo.compare", [lhs, rhs], [type_], attributes)


def select(condition: Any, this: Any, that: Any) -> Any:
    """Select `this` where the condition holds, else `that`."""
    return emit("stablehlo.select", [condition, this, that], [this.type])


def convert(value: Any, element_type: Any) -> Any:
    """Convert an array or scalar to another element type, if it has not got it."""
    type_ = ir.RankedTensorType.get(list(value.type.shape), element_type, value.type.encoding)
    return value if value.type == type_ else emit("stablehlo.convert", [value], [type_])


# --- shapes -----------------------------------------------------------------------------------------------------------


def reshape(value: Any, extents: Sequence[int]) -> Any:
    """Reshape a value, elements in row-major order, if it has another shape."""
    type_ = tensor(value.type, extents)
    return value if value.type == type_ else emit("stablehlo.reshape", [value], [type_])


def broadcast(value: Any, extents: Sequence[int], places: Iterable[int] = ()) -> Any:
    """Broadcast an array to these extents; a scalar, when no places are given."""
    attributes = {"broadcast_dimensions": i64s(places)}
    return emit("stablehlo.broadcast_in_dim", [value], [tensor(value.type, extents)], attributes)


def dynamic_slice(value: Any, starts: Sequence[Any], sizes: Sequence[int]) -> Any:
    return emit("stablehlo.dynamic_slice", [value, *starts], [tensor(value.type, sizes)], {"slice_sizes": i64s(sizes)})


def dynamic_update(value: Any, part: Any, starts: Sequence[Any]) -> Any:
    return emit("stablehlo.dynamic_update_slice", [value, part, *starts], [value.type])


# --- regions ----------------------------------------------------------------------------------------------------------


@contextmanager
def block(region: Any, types: Sequence[Any] = ()) -> Iterator[list[Any]]:
    """Create a region's only block, insert at its end, and yield its arguments."""
    made = region.blocks.append(*types, arg_locs=[ir.Location.current] * len(types))
    with ir.InsertionPoint(made):
        yield list(made.arguments)


def return_(values: Sequence[Any]) -> Any:
    return operation("stablehlo.return", values)


def combiner(op: Any, type_: Any, combine: Callable[[Any, Any], Any]) -> None:
    """Add to an operation the computation that combines two elements of a type."""
    with block(op.regions[0], [tensor(type_, [])] * 2) as (this, that):
        return_([combine(this, that)])


def reduce(value: Any, start: Any, dimensions: Sequence[int], name: str) -> Any:
    """Reduce over dimensions by a binary operation."""
    extents = [n for d, n in enumerate(value.type.shape) if d not in dimensions]
    attributes = {"dimensions": i64s(dimensions)}
    made = operation("stablehlo.reduce", [value, start], [tensor(value.type, extents)], attributes, regions=1)
    combiner(made, value.type, lambda this, that: elementwise(name, this, that))
    return made.results[0]
