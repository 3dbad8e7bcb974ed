"""Builders of StableHLO for run-time sizes: arithmetic on them, and masks of the elements beyond them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.dynamic_sizes import Size


class Scalar:
    """A size: an s32 scalar of the program. Arithmetic is emitted at the insertion point."""

    def __init__(self, value: ir.Value) -> None:
        self.value = value

    @staticmethod
    def of(size: Size | int) -> Scalar:
        """Return a size as a scalar; a number becomes a constant."""
        if isinstance(size, int):
            return Scalar(constant(size_type(), str(size)))
        assert isinstance(size, Scalar)
        return size

    def _with(self, name: str, other: Size | int) -> Scalar:
        return Scalar(emit(name, [self.value, Scalar.of(other).value], [size_type()]))

    def __add__(self, other: Size | int) -> Scalar:
        return self if other == 0 else self._with("stablehlo.add", other)

    def __sub__(self, other: Size | int) -> Scalar:
        return self if other == 0 else self._with("stablehlo.subtract", other)

    def __mul__(self, other: Size | int) -> Scalar:
        return self if other == 1 else self._with("stablehlo.multiply", other)

    def __floordiv__(self, other: int) -> Scalar:
        """Divide, rounding down, since sizes are never negative."""
        return self if other == 1 else self._with("stablehlo.divide", other)

    def least(self, other: Size | int) -> Scalar:
        same = isinstance(other, Scalar) and other.value == self.value
        return self if same else self._with("stablehlo.minimum", other)

    def most(self, other: Size | int) -> Scalar:
        return self._with("stablehlo.maximum", other)


def emit(
    name: str,
    operands: Sequence[ir.Value],
    types: Sequence[ir.Type],
    attributes: Mapping[str, ir.Attribute] | None = None,
) -> Any:
    """Emit an operation at the insertion point; return its only result."""
    made = ir.Operation.create(name, results=list(types), operands=list(operands), attributes=dict(attributes or {}))
    return made.results[0]


def size_type() -> ir.Type:
    """Return the type of sizes."""
    return ir.RankedTensorType.get([], ir.IntegerType.get_signless(32))


def tensor(type_: Any, extents: Sequence[int]) -> ir.RankedTensorType:
    """Return the static tensor type of these extents with the elements of another tensor type."""
    return ir.RankedTensorType.get(list(extents), type_.element_type)


def constant(type_: Any, text: str) -> Any:
    """Return a splat constant."""
    return emit("stablehlo.constant", [], [type_], {"value": ir.Attribute.parse(f"dense<{text}> : {type_}")})


def number(type_: Any, spelled: str) -> Any:
    """Return the scalar 0, -0 or 1 of a tensor type's elements."""
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


def broadcast(value: Any, extents: Sequence[int], places: Sequence[int] = ()) -> Any:
    """Broadcast an array to these extents; a scalar, when no places are given."""
    places_attribute = ir.DenseI64ArrayAttr.get(list(places))
    type_ = tensor(value.type, extents)
    return emit("stablehlo.broadcast_in_dim", [value], [type_], {"broadcast_dimensions": places_attribute})


def compare(lhs: Any, rhs: Any, direction: str = "LT") -> Any:
    """Emit a comparison of signed integers."""
    type_ = ir.RankedTensorType.get(list(lhs.type.shape), ir.IntegerType.get_signless(1))
    attributes = {
        "comparison_direction": stablehlo.ComparisonDirectionAttr.get(direction),
        "compare_type": stablehlo.ComparisonTypeAttr.get("SIGNED"),
    }
    return emit("stablehlo.compare", [lhs, rhs], [type_], attributes)


def within(extents: Sequence[int], sizes: Mapping[int, Size]) -> Any:
    """Return a mask of these extents: which elements are within the sizes."""
    counting = ir.RankedTensorType.get(list(extents), ir.IntegerType.get_signless(32))
    place_type = ir.IntegerType.get_signless(64)
    found: Any = None
    for place, size in sizes.items():
        index = emit("stablehlo.iota", [], [counting], {"iota_dimension": ir.IntegerAttr.get(place_type, place)})
        seen = compare(index, broadcast(Scalar.of(size).value, extents))
        found = seen if found is None else emit("stablehlo.and", [found, seen], [seen.type])
    return found


def masked(value: Any, sizes: Mapping[int, Size], fill: Any) -> Any:
    """Replace the elements of `value` beyond the sizes by `fill`, a scalar or an array of its extents."""
    if not sizes:
        return value
    extents = list(value.type.shape)
    if not fill.type.rank and extents:
        fill = broadcast(fill, extents)
    return emit("stablehlo.select", [within(extents, sizes), value, fill], [value.type])


def wide_enough(index: Any) -> Any:
    """Extend integers to at least 32 bits, which every size fits in."""
    element = index.type.element_type
    if element.width >= 32:
        return index
    wide = ir.RankedTensorType.get(list(index.type.shape), ir.IntegerType.get_signless(32))
    return emit("stablehlo.convert", [index], [wide])


def as_type_of(like: Any, size: Size) -> Any:
    """Convert a size to the element type of `like`, integers of at least 32 bits."""
    value = Scalar.of(size).value
    wanted = tensor(like.type, [])
    return value if value.type == wanted else emit("stablehlo.convert", [value], [wanted])


def resized(x: Any, extents: Sequence[int]) -> Any:
    """Pad or truncate an array at the ends."""
    high = [new - old for new, old in zip(extents, x.type.shape, strict=True)]
    zeros = ir.DenseI64ArrayAttr.get([0] * len(high))
    attributes = {
        "edge_padding_low": zeros,
        "edge_padding_high": ir.DenseI64ArrayAttr.get(high),
        "interior_padding": zeros,
    }
    return emit("stablehlo.pad", [x, number(x.type, "0")], [tensor(x.type, extents)], attributes)
