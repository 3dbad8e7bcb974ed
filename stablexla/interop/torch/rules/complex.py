"""Complex numbers: their parts, made from parts, conjugates, angles, and other types' views of the same bits."""

from __future__ import annotations

import math
from collections.abc import Sequence

import stablexla as sx
from stablexla.dialects.element_types import ElementType, element_type
from stablexla.interop.torch.call import Call, as_float, convert, full_like, wide, zeros_like
from stablexla.interop.torch.registry import aten


@aten("aten.complex.default")
def complex(call: Call, real: sx.XlaOp, imag: sx.XlaOp) -> sx.XlaOp:
    x, y = call.promoted(real, imag)
    return sx.complex(x, y)


@aten("aten.polar.default")
def polar(call: Call, size: sx.XlaOp, angle: sx.XlaOp) -> sx.XlaOp:
    r, t = call.promoted(size, angle)
    return sx.complex(sx.mul(r, sx.cos(t)), sx.mul(r, sx.sin(t)))


@aten("aten.real.default", "prims.real.default")
def real(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.real(x) if x.element_type.is_complex else x


@aten("aten.imag.default", "prims.imag.default")
def imag(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.imag(x)


@aten(
    "aten._conj.default", "aten.conj.default", "aten.conj_physical.default", "aten._conj_physical.default",
    "prims.conj.default", "prims.conj_physical.default",
)  # fmt: skip
def conj(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.conj(x) if x.element_type.is_complex else x


@aten("aten.resolve_conj.default", "aten.resolve_neg.default")
def resolved(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return x


@aten("aten.angle.default")
def angle(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    if x.element_type.is_complex:
        return sx.atan2(sx.imag(x), sx.real(x))
    x = wide(as_float(x))
    of_sign = sx.select(sx.lt(x, zeros_like(x)), full_like(x, math.pi), zeros_like(x))
    return sx.select(sx.is_nan(x), x, of_sign)


@aten("aten.view_as_real.default", "aten.view_as_real_copy.default")
def view_as_real(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    sizes = (*x.shape.dimensions, 1)
    return sx.concat_in_dim([sx.reshape(part, sizes) for part in (sx.real(x), sx.imag(x))], len(sizes) - 1)


@aten("aten.view_as_complex.default", "aten.view_as_complex_copy.default")
def view_as_complex(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    last = x.shape.rank - 1
    real, imag = (sx.reshape(sx.slice_in_dim(x, n, n + 1, 1, last), x.shape.dimensions[:-1]) for n in (0, 1))
    return sx.complex(real, imag)


@aten("aten.view.dtype", "aten.view_copy.dtype", "prims.view_of_dtype.default")
def view_dtype(call: Call, x: sx.XlaOp, dtype: object) -> sx.XlaOp:
    """Return the same bits as another type; the last size changes with the width."""
    if x.element_type == call.type:
        return x
    if x.element_type.is_complex:
        x = view_as_real(call, x)
    elif x.element_type.is_pred:
        x = convert(x, "u8")
    if call.type.is_complex:
        return view_as_complex(call, _recast(x, call.type.part, (*call.dimensions, 2)))
    if call.type.is_pred:
        return convert(_recast(x, element_type("u8"), call.dimensions), "pred")
    return _recast(x, call.type, call.dimensions)


def _recast(x: sx.XlaOp, type: ElementType, sizes: Sequence[int]) -> sx.XlaOp:
    count, parts = math.prod(sizes), type.bits // x.element_type.bits
    x = sx.reshape(x, (count, parts) if parts > 1 else (math.prod(x.shape.dimensions),))
    return sx.reshape(sx.bitcast_convert_type(x, type), sizes)
