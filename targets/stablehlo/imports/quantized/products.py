"""Quantized dot products and convolutions with integer accumulation: no rounding before the result is scaled.

8-bit matrices are multiplied as they are stored, and the contribution of lhs's zero point is subtracted afterwards:
the sum of (a - p) * b is sum(a * b) - p * sum(b); rhs has none. In convolutions, whose padding stands for zeros, zero
points are subtracted before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.attributes.attributes import DotDimensionNumbers
from stablexla.dialects.dynamic_sizes import extents_of
from stablexla.dialects.hlo import broadcast, emit, reduce
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.quantized_types import QuantizedType, is_quantized, quantized_type
from stablexla.targets.stablehlo.imports.quantized.arithmetic import centered, convert, splat, spread

EXACT = ("stablehlo.dot_general", "stablehlo.convolution")
"""Operations that accumulate in integers."""


@dataclass(frozen=True)
class _Factor:
    """An operand: its integers, the type that they had, and its reduced dimensions.

    Attributes:
        summed: the dimensions that are reduced.
        places: for each other dimension, that of the result.
    """

    value: Any
    quantized: QuantizedType
    summed: tuple[int, ...]
    places: tuple[int, ...]

    @property
    def terms(self) -> int:
        """The largest number of products in a sum."""
        extents = extents_of(self.value.type)[0]
        return prod(extents[i] for i in self.summed)

    @property
    def reach(self) -> int:
        """The largest distance of an integer of the type from its zero point."""
        q = self.quantized
        return max(max(z - q.low, q.high - z) for z in q.zero_points)

    @property
    def place(self) -> int | None:
        """The result's dimension for the axis of scales; None without an axis, and where it is reduced."""
        axis = self.quantized.axis
        if axis is None or axis in self.summed:
            return None
        return self.places[axis - sum(i < axis for i in self.summed)]

    @property
    def is_static(self) -> bool:
        """Whether all extents are known, and none is only bounded."""
        return self.value.type.has_static_shape and self.value.type.encoding is None


def exact_product(op: Any, operands: Sequence[Any], results: Sequence[Any]) -> list[Any] | None:
    """Compute a product's real numbers from integer sums; None for other operations, or where 32 bits may overflow.

    Args:
        op: a dot_general or a convolution of integers.
        operands, results: the types that it had.
    """
    rules = dict(zip(EXACT, (_dot, _convolution), strict=True))
    if op.name not in EXACT or not all(is_quantized(t) for t in (*operands, *results)):
        return None
    types = [quantized_type(t.element_type) for t in operands]
    if any(q.expressed != "f32" for q in types):
        return None
    left, right = rules[op.name](op, *types)
    largest = right.terms * left.reach * right.reach
    if largest >= 1 << 31 or types[0].axis is not None or (types[1].axis is not None and right.place is None):
        return None
    total = convert(_sum(op, left, right, largest, results[0]), "f32")
    scales = [types[0].scales[0] * scale for scale in types[1].scales]
    return [emit("stablehlo.multiply", [total, spread(scales, right.place, total.type)], [total.type])]


def _dot(op: Any, left: QuantizedType, right: QuantizedType) -> tuple[_Factor, _Factor]:
    numbers = DotDimensionNumbers.read(op.attributes["dot_dimension_numbers"])
    sides = [(numbers.lhs_batch, numbers.lhs_contracting), (numbers.rhs_batch, numbers.rhs_contracting)]
    made, free = [], len(numbers.lhs_batch)
    for value, quantized, (batch, summed) in zip(op.operands, (left, right), sides, strict=True):
        places = []
        for i in (i for i in range(len(value.type.shape)) if i not in summed):
            places.append(batch.index(i) if i in batch else free)
            free += i not in batch
        made.append(_Factor(value, quantized, tuple(summed), tuple(places)))
    return made[0], made[1]


def _convolution(op: Any, left: QuantizedType, right: QuantizedType) -> tuple[_Factor, _Factor]:
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    outputs = numbers.kernel_output_feature_dimension
    window = tuple(i for i in range(len(op.operands[1].type.shape)) if i != outputs)
    weights = _Factor(op.operands[1], right, window, (numbers.output_feature_dimension,))
    return _Factor(op.operands[0], left, (), tuple(range(len(window) + 1))), weights


def _sum(op: Any, left: _Factor, right: _Factor, largest: int, result: Any) -> Any:
    """Compute the sums of products of integers minus their zero points, in a type that cannot overflow."""
    factors = (left, right)
    stored = {str(f.value.type.element_type) for f in factors}
    in_bytes = stored in ({"i8"}, {"ui8"}) and not any(right.quantized.zero_points)
    if op.name == "stablehlo.dot_general" and in_bytes and all(f.is_static for f in factors):
        return _product_of_bytes(op, left, right, result)
    if not _has_single_channels(op) and all(f.reach < 1 << 15 for f in factors):
        as_stored = stored in ({"i8"}, {"ui8"}) and not any(any(f.quantized.zero_points) for f in factors)
        numbers = [f.value if as_stored else centered(f.value, f.quantized, "i16") for f in factors]
        return _product(op, numbers, "i32", result)
    carrier = "f32" if largest <= 1 << 24 else "i32"
    return _product(op, [centered(f.value, f.quantized, carrier) for f in factors], carrier, result)


def _has_single_channels(op: Any) -> bool:
    """Whether each sum of a convolution is over few features: there are no pairs for integer dot-product instructions,
    and floats are fastest otherwise."""
    if op.name != "stablehlo.convolution":
        return False
    features = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"]).kernel_input_feature_dimension
    return int(op.operands[1].type.shape[features]) < 2


def _product(op: Any, operands: Sequence[Any], element: str, result: Any) -> Any:
    attributes = {name: value for name, value in op.attributes.items() if name not in ("precision_config", "algorithm")}
    summed = ir.RankedTensorType.get(list(result.shape), ir.Type.parse(element), result.encoding)
    return emit(op.name, operands, [summed], attributes)


def _product_of_bytes(op: Any, left: _Factor, right: _Factor, result: Any) -> Any:
    """Multiply stored integers, and subtract the zero-point correction of lhs; wrap-around of both cancels.

    The correction is computed first: a kernel's epilogue takes operands that are defined before it.
    """
    zero = left.quantized.zero_points[0]
    type_ = ir.RankedTensorType.get(list(result.shape), ir.Type.parse("i32"))
    added = None
    if zero:
        columns = _sums(convert(right.value, "i32"), right.summed)
        columns = emit("stablehlo.multiply", [columns, splat(zero, columns.type, columns.type.shape)], [columns.type])
        added = _along(columns, right.places, type_)
    total = _product(op, [left.value, right.value], "i32", result)
    return total if added is None else emit("stablehlo.subtract", [total, added], [type_])


def _along(value: Any, places: Sequence[int], type_: Any) -> Any:
    """Broadcast a value along some dimensions of a type to the others."""
    return broadcast(value, type_.shape, places)


def _sums(value: Any, dimensions: Sequence[int]) -> Any:
    """Reduce integers by addition over some dimensions."""
    return reduce(value, splat(0, value.type, ()), dimensions, "add")
