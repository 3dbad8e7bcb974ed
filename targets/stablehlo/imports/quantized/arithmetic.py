"""Quantize and dequantize arithmetic, as StableHLO's specification defines it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jaxlib.mlir.ir as ir
import ml_dtypes  # noqa: F401  (numpy then knows the names of the small floats)
import numpy as np

from stablexla.dialects import hlo
from stablexla.dialects.constants import constant_array
from stablexla.dialects.dynamic_sizes import extents_of
from stablexla.dialects.element_types import BY_MLIR, ElementType
from stablexla.dialects.quantized_types import QuantizedType

_SMALL = 1 << 16
"""Elements of a constant of bytes that is converted once, when the program is compiled."""


def dequantize(value: Any, quantized: QuantizedType) -> Any:
    """Dequantize: (q - zero point) * scale, in the expressed type. The subtraction is exact."""
    numbers = centered(value, quantized, quantized.expressed)
    return hlo.emit("stablehlo.multiply", [numbers, _spread(quantized.scales, quantized, numbers.type)], [numbers.type])


def centered(value: Any, quantized: QuantizedType, element: str) -> Any:
    """Subtract the zero points from the integers, in that element type."""
    if any(quantized.zero_points):
        value = convert(value, "i32" if quantized.bits <= 16 else "i64")
        zeros = _spread(quantized.zero_points, quantized, value.type)
        value = hlo.emit("stablehlo.subtract", [value, zeros], [value.type])
    return convert(value, element)


def quantize(value: Any, quantized: QuantizedType, storage: Any) -> Any:
    """Quantize: number / scale + zero point, rounded to nearest even and clamped to the bounds of the type."""
    type_ = value.type
    value = hlo.elementwise("divide", value, _spread(quantized.scales, quantized, type_))
    if any(quantized.zero_points):
        value = hlo.elementwise("add", value, _spread(quantized.zero_points, quantized, type_))
    stored = BY_MLIR[str(storage.element_type)]
    if stored.bits > 8 or (quantized.low, quantized.high) != _bounds(stored):  # to these the conversion keeps
        value = _clamp(value, quantized.low, quantized.high)
    value = hlo.elementwise("round_nearest_even", value)
    if not _is_exact(quantized.high, type_) or not _is_exact(quantized.low, type_):
        # Converted to float, the bound exceeds the largest integer.
        value = _clamp(convert(value, "i64"), quantized.low, quantized.high)
    return hlo.emit("stablehlo.convert", [value], [storage])


def convert(value: Any, element: str) -> Any:
    """Convert a value to another element type; a small constant at once."""
    if element == "f32" and str(value.type.element_type) in ("i8", "ui8") and value.type.has_static_shape:
        stored = constant_array(value) if prod(value.type.shape) <= _SMALL else None
        if stored is not None:
            return hlo.array(stored.astype(np.float32))
    return hlo.convert(value, ir.Type.parse(element))


def splat(number: float, type_: Any, shape: Sequence[int]) -> Any:
    """Create a splat constant."""
    return _constant(np.full((), number), ir.RankedTensorType.get(list(shape), type_.element_type))


def spread(numbers: Sequence[float], place: int | None, type_: Any) -> Any:
    """Broadcast to the extents of a type: one number for all elements, or one per index of the dimension `place`."""
    extents = extents_of(type_)[0]
    if len(set(numbers)) == 1 or place is None:
        return splat(numbers[0], type_, extents)
    row = _constant(np.array(numbers), ir.RankedTensorType.get([len(numbers)], type_.element_type))
    return hlo.broadcast(row, extents, [place])


def _spread(numbers: Sequence[float], quantized: QuantizedType, type_: Any) -> Any:
    return spread(numbers, quantized.axis, type_)


def _clamp(value: Any, low: int, high: int) -> Any:
    bounds = [splat(bound, value.type, ()) for bound in (low, high)]
    return hlo.emit("stablehlo.clamp", [bounds[0], value, bounds[1]], [value.type])


def _bounds(element: ElementType) -> tuple[int, int]:
    low = -(1 << (element.bits - 1)) if element.is_signed else 0
    return low, low + (1 << element.bits) - 1


def _is_exact(number: int, type_: Any) -> bool:
    with np.errstate(over="ignore"):
        return bool(float(np.float64(number).astype(_dtype(type_))) == number)


def _dtype(type_: Any) -> Any:
    return BY_MLIR[str(type_.element_type)].dtype


def _constant(numbers: Any, type_: Any) -> Any:
    """Create a constant; a scalar is a splat."""
    values = numbers.astype(_dtype(type_))
    element = BY_MLIR[str(type_.element_type)]
    texts = [f"0x{int.from_bytes(v.tobytes(), 'little'):0{2 * element.bytes}X}" for v in values.reshape(-1)]
    if element.is_integer:
        texts = [str(int(v)) for v in values.reshape(-1)]
    text = texts[0] if not values.ndim else f"[{', '.join(texts)}]"
    return hlo.emit("stablehlo.constant", [], [type_], {"value": ir.Attribute.parse(f"dense<{text}> : {type_}")})


def _with_element(type_: Any, element: Any) -> Any:
    return ir.RankedTensorType.get(list(type_.shape), element, type_.encoding)
