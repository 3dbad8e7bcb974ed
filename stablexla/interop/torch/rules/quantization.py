"""Quantized tensors as graphs of PyTorch have them: integers beside scales and zero points, by tensor and by channel.

PyTorch's quantization after training (`torchao.quantization.pt2e`) puts these operators around those that it quantizes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

import stablexla as sx
from stablexla.interop.torch.call import (
    Call,
    Value,
    constant_elements,
    convert,
    full_like,
    highest,
    lowest,
    reduced,
    wide,
)
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.types import xla_type


def _names(operator: str, overloads: Sequence[str] = ("default",)) -> list[str]:
    return [f"quantized_decomposed.{operator}.{each}" for each in overloads]


_BY_TENSOR = ("default", "tensor", "tensor2")
"""With numbers, with tensors of one element, and with such bounds as well."""


@aten(*_names("quantize_per_tensor", _BY_TENSOR))
def quantize_per_tensor(
    call: Call, x: sx.XlaOp, scale: Value, zero_point: Value, low: Value, high: Value, dtype: torch.dtype
) -> sx.XlaOp:
    """Return the nearest integer to x[...] times 1 / scale, plus the zero point, within bounds."""
    if isinstance(scale, sx.XlaOp):
        scale = sx.reshape(convert(scale, "f64"), ())
        inverse: Value = convert(sx.div(1.0, scale), "f32")
    else:
        inverse = 1.0 / scale
    return _quantized(x, inverse, zero_point, low, high, dtype)


@aten(*_names("quantize_per_channel"))
def quantize_per_channel(
    call: Call, x: sx.XlaOp, scales: sx.XlaOp, zero_points: sx.XlaOp, axis: int, low: int, high: int, dtype: torch.dtype
) -> sx.XlaOp:
    """The same with scales and zero points [C] along a dimension of x."""
    return _quantized(x, sx.div(1.0, scales), zero_points, low, high, dtype, (axis % x.shape.rank,))


def _quantized(
    x: sx.XlaOp,
    inverse: Value,
    zero_point: Value,
    low: Value,
    high: Value,
    dtype: torch.dtype,
    axis: tuple[int, ...] = (),
) -> sx.XlaOp:
    made = sx.round_nearest_even(sx.mul(wide(x), _along(wide(x), inverse, axis)))
    if not _is_zero(zero_point):
        made = sx.add(made, _along(made, zero_point, axis))
    type_ = xla_type(dtype)
    are_known = not isinstance(low, sx.XlaOp) and not isinstance(high, sx.XlaOp)
    if not are_known or (low, high) != (lowest(type_), highest(type_)):  # these the conversion keeps to
        made = sx.clamp(_along(made, low), made, _along(made, high))
    return sx.convert_element_type(made, type_)


@aten(*_names("dequantize_per_tensor", _BY_TENSOR))
def dequantize_per_tensor(
    call: Call, x: sx.XlaOp, scale: Value, zero_point: Value, low: Value, high: Value, dtype: torch.dtype,
    *, out_dtype: torch.dtype | None,
) -> sx.XlaOp:  # fmt: skip
    """Return (x[...] - zero point) * scale in f32, or in the type that is asked for."""
    made = convert(x, call.type)
    if not _is_zero(zero_point):
        made = convert(sx.sub(wide(made), _along(wide(made), zero_point)), call.type)
    return sx.mul(wide(made), _along(wide(made), scale))


@aten(*_names("dequantize_per_channel"))
def dequantize_per_channel(
    call: Call, x: sx.XlaOp, scales: sx.XlaOp, zero_points: sx.XlaOp | None, axis: int, low: int, high: int,
    dtype: torch.dtype, *, out_dtype: torch.dtype | None,
) -> sx.XlaOp:  # fmt: skip
    """The same with scales and zero points [C] along a dimension of x; the difference is one of integers."""
    along = (axis % x.shape.rank,)
    if zero_points is not None and not _is_zero(zero_points):
        integers = "s64" if x.element_type.bits > 16 else "s32"
        x = convert(x, zero_points.element_type if zero_points.element_type.is_float else integers)
        x = sx.sub(x, _along(x, zero_points, along))
    made = convert(x, scales.element_type)
    return sx.mul(made, _along(made, scales, along))


@aten(*_names("choose_qparams", ["tensor"]))
def choose_qparams(
    call: Call, x: sx.XlaOp, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[sx.XlaOp, sx.XlaOp]:
    """Return a scale f64[1] and a zero point s64[1] for the numbers of x and 0 to lie within bounds."""
    least, most = _range(x)
    scale = _scale(sx.div(sx.sub(most, least), float(high - low)), eps)
    zero_point = sx.sub(low, convert(sx.round_nearest_even(sx.div(least, scale)), "s32"))
    zero_point = sx.clamp(call.constant(low, "s32"), zero_point, call.constant(high, "s32"))
    return _of_one(scale, "f64"), _of_one(zero_point, "s64")


@aten(*_names("choose_qparams_symmetric", ["tensor"]))
def choose_qparams_symmetric(
    call: Call, x: sx.XlaOp, low: int, high: int, eps: float, dtype: torch.dtype
) -> tuple[sx.XlaOp, sx.XlaOp]:
    """The same for numbers of both signs alike: the zero point is in the middle of the type."""
    least, most = _range(x)
    scale = _scale(sx.div(sx.max(sx.neg(least), most), (high - low) / 2), eps)
    middle = 128 if dtype is torch.uint8 else 0
    return _of_one(scale, "f64"), call.constant(middle, "s64", (1,))


def _range(x: sx.XlaOp) -> list[sx.XlaOp]:
    dims = tuple(range(x.shape.rank))
    bounds = (reduced(x, highest(x.element_type), sx.min, dims), reduced(x, lowest(x.element_type), sx.max, dims))
    return [f(bound, full_like(bound, 0)) for f, bound in zip((sx.min, sx.max), bounds, strict=True)]


def _scale(scale: sx.XlaOp, eps: float) -> sx.XlaOp:
    """Return a scale of at least eps, which is a number of f32."""
    return sx.max(wide(scale), float(np.float32(eps)))


def _of_one(x: sx.XlaOp, type_: str) -> sx.XlaOp:
    return sx.reshape(convert(x, type_), (1,))


def _along(x: sx.XlaOp, value: Value, axis: tuple[int, ...] = ()) -> sx.XlaOp:
    """Return a number, or a tensor of one or of one for each place of a dimension, in x's type and sizes."""
    if not isinstance(value, sx.XlaOp):
        value = x.builder.constant(value, x.element_type.name)
    value, sizes = convert(value, x.element_type), tuple(x.shape.dimensions[d] for d in axis)
    return sx.broadcast_in_dim(
        value if value.shape.dimensions == sizes else sx.reshape(value, sizes), x.shape.dimensions, axis
    )


def _is_zero(zero_point: Value) -> bool:
    """Whether zero points are known, and all of them 0."""
    if not isinstance(zero_point, sx.XlaOp):
        return zero_point == 0
    elements = constant_elements(zero_point)
    return elements is not None and not elements.any()
