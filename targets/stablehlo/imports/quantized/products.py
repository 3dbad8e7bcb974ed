"""Quantized dot products and convolutions with integer accumulation: no rounding before the result is scaled.

8-bit matrices are multiplied as they are stored, and the contribution of lhs's zero point is subtracted afterwards:
the sum of (a - p) * b is sum(a * b) - p * sum(b), where rhs has none. The padding of convolutions, which stands for
zeros, is the zero point then. Other zero points are subtracted before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

import jaxlib.mlir.ir as ir
import numpy as np
from jaxlib.mlir.dialects import stablehlo

from stablexla.dialects.attributes.attributes import Convolution, DotDimensionNumbers, SpatialDimension
from stablexla.dialects.constants import constant_array
from stablexla.dialects.dynamic_sizes import extents_of
from stablexla.dialects.hlo import array, broadcast, emit, i64s, reduce, table, tensor
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.dialects.quantized_types import QuantizedType, is_quantized, quantized_type
from stablexla.targets.stablehlo.imports.quantized.arithmetic import centered, convert, splat, spread

EXACT = ("stablehlo.dot_general", "stablehlo.convolution")
"""Operations that accumulate in integers."""


@dataclass(frozen=True)
class Factor:
    """An operand: its integers, the quantized type of what they stand for, and its reduced dimensions.

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

    def place(self, axis: int) -> int | None:
        """The result's dimension for one of the operand's; None where it is reduced."""
        return None if axis in self.summed else self.places[axis - sum(i < axis for i in self.summed)]

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
    if op.name not in EXACT or not all(is_quantized(t) for t in (*operands, *results)):
        return None
    left, right = factors(op, op.operands, [quantized_type(t.element_type) for t in operands])
    axis = right.quantized.axis
    place = None if axis is None else right.place(axis)
    if left.quantized.axis is not None or (axis is not None and place is None):
        return None
    total = integer_sum(op, left, right, results[0])
    if total is None:
        return None
    scales = [left.quantized.scales[0] * scale for scale in right.quantized.scales]
    return [emit("stablehlo.multiply", [total, spread(scales, place, total.type)], [total.type])]


def factors(op: Any, values: Sequence[Any], types: Sequence[QuantizedType]) -> tuple[Factor, Factor]:
    """Return the operands of a dot_general or a convolution: integers, and what they stand for."""
    return (_dot if op.name == EXACT[0] else _convolution)(op, values, types)


def integer_sum(op: Any, left: Factor, right: Factor, result: Any) -> Any:
    """Emit the sums of products of integers minus their zero points, as f32; None where 32 bits may overflow.

    Args:
        op: the dot_general or convolution that has the dimensions.
        result: its type.
    """
    largest = right.terms * left.reach * right.reach
    if largest >= 1 << 31 or any(f.quantized.expressed != "f32" for f in (left, right)):
        return None
    return convert(_sum(op, left, right, largest, result), "f32")


def _dot(op: Any, values: Sequence[Any], types: Sequence[QuantizedType]) -> tuple[Factor, Factor]:
    numbers = DotDimensionNumbers.read(op.attributes["dot_dimension_numbers"])
    sides = [(numbers.lhs_batch, numbers.lhs_contracting), (numbers.rhs_batch, numbers.rhs_contracting)]
    made, free = [], len(numbers.lhs_batch)
    for value, quantized, (batch, summed) in zip(values, types, sides, strict=True):
        places = []
        for i in (i for i in range(len(value.type.shape)) if i not in summed):
            places.append(batch.index(i) if i in batch else free)
            free += i not in batch
        made.append(Factor(value, quantized, tuple(summed), tuple(places)))
    return made[0], made[1]


def _convolution(op: Any, values: Sequence[Any], types: Sequence[QuantizedType]) -> tuple[Factor, Factor]:
    """Only the kernel's output features, and the images, are dimensions of the result."""
    numbers = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    sides = (
        (numbers.input_batch_dimension, numbers.output_batch_dimension),
        (
            numbers.kernel_output_feature_dimension,
            numbers.output_feature_dimension,
        ),
    )
    made = []
    for value, quantized, (own, place) in zip(values, types, sides, strict=True):
        summed = tuple(i for i in range(len(value.type.shape)) if i != own)
        made.append(Factor(value, quantized, summed, (place,)))
    return made[0], made[1]


def _sum(op: Any, left: Factor, right: Factor, largest: int, result: Any) -> Any:
    """Compute the sums of products of integers minus their zero points, in a type that cannot overflow."""
    sides = (left, right)
    stored = tuple(str(f.value.type.element_type) for f in sides)
    in_bytes = set(stored) <= {"i8", "ui8"} and not any(right.quantized.zero_points)
    if op.name == "stablehlo.dot_general" and in_bytes and all(f.is_static for f in sides):
        return _product_of_bytes(op, left, right, result)
    if not _has_single_channels(op) and all(f.reach < 1 << 15 for f in sides):
        if in_bytes and not any(left.quantized.zero_points):
            return _product(op, _alike([left.value, right.value]), "i32", result)
        has_byte = left.quantized.low <= left.quantized.zero_points[0] <= left.quantized.high
        if in_bytes and stored == ("ui8", "i8") and has_byte and left.is_static and _may_pad(op):
            return _product_of_bytes(op, left, right, result, pads=True)
        return _product(op, [centered(f.value, f.quantized, "i16") for f in sides], "i32", result)
    carrier = "f32" if largest <= 1 << 24 else "i32"
    return _product(op, [centered(f.value, f.quantized, carrier) for f in sides], carrier, result)


def _has_single_channels(op: Any) -> bool:
    """Whether each sum of a convolution is over few features: there are no pairs for integer dot-product instructions,
    and floats are fastest otherwise."""
    if op.name != "stablehlo.convolution":
        return False
    features = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"]).kernel_input_feature_dimension
    return int(op.operands[1].type.shape[features]) < 2


def _product(
    op: Any, operands: Sequence[Any], element: str, result: Any, changed: Mapping[str, Any] = MappingProxyType({})
) -> Any:
    attributes = {name: value for name, value in op.attributes.items() if name not in ("precision_config", "algorithm")}
    attributes |= changed
    summed = ir.RankedTensorType.get(list(result.shape), ir.Type.parse(element), result.encoding)
    return emit(op.name, operands, [summed], attributes)


def _alike(values: Sequence[Any]) -> list[Any]:
    """Return two arrays of bytes in one type: as they are, or those of different signs as 32 bits.

    Kernels read through the conversions.
    """
    alike = values[0].type.element_type == values[1].type.element_type
    return list(values) if alike else [convert(value, "i32") for value in values]


def _product_of_bytes(op: Any, left: Factor, right: Factor, result: Any, pads: bool = False) -> Any:
    """Multiply stored integers, and subtract the zero-point correction of lhs; wrap-around of both cancels.

    The correction is computed first: a kernel's epilogue takes operands that are defined before it.

    Args:
        pads: whether this is a convolution whose padding has to be the zero point, in an array of its own.
    """
    zero, value = left.quantized.zero_points[0], left.value
    type_ = ir.RankedTensorType.get(list(result.shape), ir.Type.parse("i32"))
    added = _correction(zero, right, type_) if zero else None
    changed = {}
    if pads:
        spatial = Convolution.read(op.attributes).spatial
        value, changed = _padded(value, zero, spatial), {"padding": table([(0, 0)] * len(spatial))}
    total = _product(op, _alike([value, right.value]), "i32", result, changed)
    return total if added is None else emit("stablehlo.subtract", [total, added], [type_])


def _correction(zero: int, right: Factor, type_: Any) -> Any:
    """Emit the zero point times the sums of rhs, which sums of products of stored integers have too much."""
    stored = constant_array(right.value)
    if stored is not None:
        sums = zero * stored.astype(np.int64).sum(right.summed)
        columns = array(sums.astype(np.int32))
    else:
        columns = _sums(convert(right.value, "i32"), right.summed)
        columns = emit("stablehlo.multiply", [columns, splat(zero, columns.type, columns.type.shape)], [columns.type])
    return _along(columns, right.places, type_)


def _may_pad(op: Any) -> bool:
    """Whether a convolution's padding can be made of zero points: there are no holes between elements."""
    return all(s.lhs_dilation == 1 and min(s.low, s.high) >= 0 for s in Convolution.read(op.attributes).spatial)


def _padded(value: Any, zero: int, spatial: Sequence[SpatialDimension]) -> Any:
    """Pad the image of a convolution with its zero point."""
    low, high = [0] * value.type.rank, [0] * value.type.rank
    for s in spatial:
        low[s.input], high[s.input] = s.low, s.high
    if not any((*low, *high)):
        return value
    type_ = tensor(value.type, [n + a + b for n, a, b in zip(value.type.shape, low, high, strict=True)])
    sides = dict(zip(("edge_padding_low", "edge_padding_high"), map(i64s, (low, high)), strict=True))
    sides["interior_padding"] = i64s([0] * value.type.rank)
    return emit("stablehlo.pad", [value, splat(zero, value.type, ())], [type_], sides)


def _along(value: Any, places: Sequence[int], type_: Any) -> Any:
    """Broadcast a value along some dimensions of a type to the others."""
    return broadcast(value, type_.shape, places)


def _sums(value: Any, dimensions: Sequence[int]) -> Any:
    """Reduce integers by addition over some dimensions."""
    return reduce(value, splat(0, value.type, ()), dimensions, "add")
