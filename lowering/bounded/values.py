"""Run-time sizes in StableHLO: arithmetic on them, and masks of the elements beyond them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jaxlib.mlir.ir as ir

from stablexla.dialects.dynamic_sizes import Size
from stablexla.dialects.hlo import (
    broadcast,
    compare,
    constant,
    convert,
    elementwise,
    emit,
    i64s,
    integer_tensor,
    iota,
    number,
    select,
    tensor,
)


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
        return Scalar(elementwise(name, self.value, Scalar.of(other).value))

    def __add__(self, other: Size | int) -> Scalar:
        return self if other == 0 else self._with("add", other)

    def __sub__(self, other: Size | int) -> Scalar:
        return self if other == 0 else self._with("subtract", other)

    def __mul__(self, other: Size | int) -> Scalar:
        return self if other == 1 else self._with("multiply", other)

    def __floordiv__(self, other: int) -> Scalar:
        """Divide, rounding down, since sizes are never negative."""
        return self if other == 1 else self._with("divide", other)

    def least(self, other: Size | int) -> Scalar:
        same = isinstance(other, Scalar) and other.value == self.value
        return self if same else self._with("minimum", other)

    def most(self, other: Size | int) -> Scalar:
        return self._with("maximum", other)


def size_type() -> ir.Type:
    """Return the type of sizes."""
    return integer_tensor(32)


def within(extents: Sequence[int], sizes: Mapping[int, Size]) -> Any:
    """Return a mask of these extents: which elements are within the sizes."""
    found: Any = None
    for place, size in sizes.items():
        seen = compare(iota(integer_tensor(32, extents), place), broadcast(Scalar.of(size).value, extents))
        found = seen if found is None else elementwise("and", found, seen)
    return found


def masked(value: Any, sizes: Mapping[int, Size], fill: Any) -> Any:
    """Replace the elements of `value` beyond the sizes by `fill`, a scalar or an array of its extents."""
    if not sizes:
        return value
    extents = list(value.type.shape)
    if not fill.type.rank and extents:
        fill = broadcast(fill, extents)
    return select(within(extents, sizes), value, fill)


def wide_enough(index: Any) -> Any:
    """Extend integers to at least 32 bits, which every size fits in."""
    is_wide = index.type.element_type.width >= 32
    return index if is_wide else convert(index, ir.IntegerType.get_signless(32))


def as_type_of(like: Any, size: Size) -> Any:
    """Convert a size to the element type of `like`, integers of at least 32 bits."""
    return convert(Scalar.of(size).value, like.type.element_type)


def resized(x: Any, extents: Sequence[int]) -> Any:
    """Pad or truncate an array at the ends."""
    high = [new - old for new, old in zip(extents, x.type.shape, strict=True)]
    zeros = i64s([0] * len(high))
    attributes = {
        "edge_padding_low": zeros,
        "edge_padding_high": i64s(high),
        "interior_padding": zeros,
    }
    return emit("stablehlo.pad", [x, number(x.type, "0")], [tensor(x.type, extents)], attributes)
