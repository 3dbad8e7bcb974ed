"""Result shapes of operations on operands with dynamic dimensions, by the rules in `dialects/`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import stablexla.dialects.dynamic_rules  # noqa: F401  (fills the registry of rules)
from stablexla.builder.op import XlaOp
from stablexla.builder.operators import operator
from stablexla.builder.source import user_line
from stablexla.dialects.dynamic_sizes import Refusal, Size, Sizes, Use, result_sizes
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.shapes import Shape

# The shapes of their results are those of the computations in them, or are given.
_SAID_BY_THE_BUILDER = (
    "func.call",
    "stablehlo.case",
    "stablehlo.composite",
    "stablehlo.if",
    "stablehlo.set_dimension_size",
    "stablehlo.while",
)
# StableHLO gives their results at most one dynamic dimension.
_AT_MOST_ONE = ("stablehlo.broadcast_in_dim", "stablehlo.reshape")


@dataclass(frozen=True)
class _Size:
    """A size known by its origin at most: a dimension of the first operand, times a fraction."""

    dimension: int | None
    factor: int = 1
    divisor: int = 1

    def _unknown(self, other: Size | int) -> Size:
        return _Size(None)

    __add__ = __sub__ = least = most = _unknown

    def __mul__(self, other: Size | int) -> Size:
        return replace(self, factor=self.factor * other) if isinstance(other, int) else _Size(None)

    def __floordiv__(self, other: int) -> Size:
        return replace(self, divisor=self.divisor * other)


def dynamic_result(name: str, operands: Sequence[XlaOp], result: Shape, attributes: Mapping[str, Any]) -> Shape:
    """Return `result`, the shape for operands of full size, with its dynamic dimensions.

    Raises:
        UnsupportedError: the operation does not take these operands.
    """
    if name in _SAID_BY_THE_BUILDER:
        return result
    return _with(result, iter(_sizes(name, operands, result, attributes)))


def needs_steps(name: str, operands: Sequence[XlaOp]) -> bool:
    """Return whether StableHLO cannot type the result, so that `in_steps` has to build it."""
    return name in _AT_MOST_ONE and sum(operands[0].shape.dynamic_dimensions) > 1


def in_steps(name: str, x: XlaOp, result: Shape, attributes: Mapping[str, Any]) -> XlaOp:
    """Build the operation on an array of full size; sizes are read before and set again after it.

    Raises:
        UnsupportedError: the operation does not take this operand, or leaves a dynamic dimension out.
    """
    set_dimension_size, get_dimension_size = operator("set_dimension_size"), operator("get_dimension_size")
    (found,) = _sizes(name, [x], result, attributes)
    places = [place for place, dynamic in enumerate(x.shape.dynamic_dimensions) if dynamic]
    origins = {place: size for place, size in found.items() if isinstance(size, _Size)}
    if {size.dimension for size in origins.values()} != {*places}:
        raise _refused(name, [x], Refusal("a dynamic dimension is left out", "one dimension after another"))
    sizes = {place: get_dimension_size(x, place) for place in places}
    for place in places:
        x = set_dimension_size(x, x.shape.dimensions[place], place)
    made = x.builder.emit(name, [x], result, attributes)
    for place, origin in origins.items():
        size = sizes[origin.dimension or 0]
        if origin.factor != origin.divisor:
            size = size * origin.factor / origin.divisor
        made = set_dimension_size(made, size, place)
    return made


def _sizes(name: str, operands: Sequence[XlaOp], result: Shape, attributes: Mapping[str, Any]) -> Sequence[Sizes]:
    leaves = [leaf for operand in operands for leaf in operand.shape.leaves]
    sizes: list[dict[int, Size]] = [
        {place: _Size(place) for place, dynamic in enumerate(leaf.dynamic_dimensions) if dynamic} for leaf in leaves
    ]
    # Read as they will be read from the operation.
    named = {key: attribute.maybe_downcast() for key, attribute in attributes.items()}
    extents = [leaf.dimensions for leaf in leaves]
    try:
        return result_sizes(Use(name, extents, [leaf.dimensions for leaf in result.leaves], sizes, named))
    except Refusal as refusal:
        raise _refused(name, operands, refusal) from None


def _refused(name: str, operands: Sequence[XlaOp], refusal: Refusal) -> UnsupportedError:
    shown = {f"operand {number}": operand.shape for number, operand in enumerate(operands)}
    source, hint = user_line(), refusal.hint
    return UnsupportedError(refusal.summary, operation=name, operands=shown, source=source, hint=hint)


def _with(shape: Shape, found: Iterator[Mapping[int, Size]]) -> Shape:
    if shape.is_tuple:
        return Shape.tuple([_with(part, found) for part in shape.tuple_shapes])
    dynamic = next(found)
    return shape.with_dynamic(dynamic) if shape.is_array else shape
