"""Tensors made from sizes and numbers: constants, sequences, triangles and windows."""

from __future__ import annotations

from collections.abc import Sequence

from torch._subclasses.fake_tensor import unset_fake_temporarily

import stablexla as sx
from stablexla.interop.torch.call import Call, Value, broadcast, convert, torch_type, zeros_like
from stablexla.interop.torch.registry import aten


@aten(
    "aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default", "aten.zero.default",
    "aten.empty.memory_format", "aten.empty_like.default", "aten.empty_permuted.default", "aten.empty_strided.default",
    "aten.new_empty.default", "aten.new_empty_strided.default", "prims.empty_strided.default",
    "prims.empty_permuted.default", "aten._efficientzerotensor.default",
)  # fmt: skip
def zeros(call: Call, *_: object) -> sx.XlaOp:
    return call.constant(0, call.type, call.dimensions)


@aten("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def ones(call: Call, *_: object) -> sx.XlaOp:
    return call.constant(1, call.type, call.dimensions)


@aten(
    "aten.full.default", "aten.full_like.default", "aten.fill.Scalar", "aten.fill.Tensor", "prims.fill.default",
    "prims.full.default", "prims.full_like.default",
)  # fmt: skip
def full(call: Call, sizes: object, value: Value) -> sx.XlaOp:
    return broadcast(call.op(value, call.type), call.dimensions)


@aten("aten.new_full.default")
def new_full(call: Call, x: sx.XlaOp, sizes: Sequence[int], value: Value) -> sx.XlaOp:
    return full(call, sizes, value)


@aten("aten.scalar_tensor.default", "prims.scalar_tensor.default")
def scalar_tensor(call: Call, value: Value) -> sx.XlaOp:
    return call.op(value, call.type)


# ---- sequences ----


@aten("aten.arange.start_step", "aten.range.step")
def arange(call: Call, start: float, end: Value, step: float) -> sx.XlaOp:
    # Floats are counted in f64, as PyTorch does.
    type_ = "s64" if call.type.is_integer or call.type.is_pred else "f64"
    if type_ == "s64":
        start, step = int(start), int(step)
    return sx.add(sx.mul(call.iota(type_, call.dimensions), call.op(step, type_)), call.op(start, type_))


@aten("aten.arange.start", "aten.range.default")
def arange_start(call: Call, start: float, end: Value) -> sx.XlaOp:
    return arange(call, start, end, 1)


@aten("aten.arange.default")
def arange_end(call: Call, end: Value) -> sx.XlaOp:
    return arange(call, 0, end, 1)


@aten("prims.iota.default")
def iota(call: Call, length: int, *, start: int, step: int) -> sx.XlaOp:
    return arange(call, start, length, step)


@aten(*(f"aten.linspace.{each}" for each in ("default", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")))
def linspace(call: Call, start: Value, end: Value, steps: int) -> sx.XlaOp:
    """Steps from the start up to the middle, and back from the end."""
    type_ = "c128" if call.type.is_complex else "f64"
    first, last = (convert(call.op(x, call.type), type_) for x in (start, end))
    if steps < 2:
        return broadcast(first, call.dimensions)
    step = broadcast(sx.div(sx.sub(last, first), call.constant(steps - 1, type_)), call.dimensions)
    first, last = broadcast(first, call.dimensions), broadcast(last, call.dimensions)
    number = call.iota("s64", call.dimensions)
    up = sx.add(first, sx.mul(step, convert(number, type_)))
    down = sx.sub(last, sx.mul(step, convert(sx.sub(steps - 1, number), type_)))
    return sx.select(sx.lt(number, steps // 2), up, down)


@aten(*(f"aten.logspace.{each}" for each in ("default", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")))
def logspace(call: Call, start: Value, end: Value, steps: int, base: float) -> sx.XlaOp:
    exponents = linspace(call, start, end, steps)
    root = convert(call.constant(base, call.type), exponents.element_type)
    return sx.pow(broadcast(root, call.dimensions), exponents)


@aten(
    "aten.bartlett_window.default", "aten.bartlett_window.periodic", "aten.blackman_window.default",
    "aten.blackman_window.periodic", "aten.hamming_window.default", "aten.hamming_window.periodic",
    "aten.hamming_window.periodic_alpha", "aten.hamming_window.periodic_alpha_beta", "aten.hann_window.default",
    "aten.hann_window.periodic", "aten.kaiser_window.default", "aten.kaiser_window.periodic", "aten.kaiser_window.beta",
    "aten.fft_fftfreq.default", "aten.fft_rfftfreq.default",
)  # fmt: skip
def made_by_pytorch(call: Call, *numbers: object) -> sx.XlaOp:
    """Short sequences of numbers that are known: PyTorch's own, as a constant."""
    with unset_fake_temporarily():
        return call.translator.tensor(call.operator(*numbers, dtype=torch_type(call.type)))


# ---- triangles ----


def _above(call: Call, sizes: Sequence[int], diagonal: int) -> sx.XlaOp:
    """Return where an element of a matrix is on or above a diagonal."""
    rows, columns = (call.iota("s64", sizes, d) for d in (0, 1))
    return sx.ge(columns, sx.add(rows, diagonal))


@aten("aten.eye.default", "aten.eye.m")
def eye(call: Call, *_: object) -> sx.XlaOp:
    rows, columns = (call.iota("s64", call.dimensions, d) for d in (0, 1))
    return sx.eq(rows, columns)


@aten("aten.triu.default")
def triu(call: Call, x: sx.XlaOp, diagonal: int) -> sx.XlaOp:
    return sx.select(broadcast(_above(call, x.shape.dimensions[-2:], diagonal), x.shape.dimensions), x, zeros_like(x))


@aten("aten.tril.default")
def tril(call: Call, x: sx.XlaOp, diagonal: int) -> sx.XlaOp:
    above = _above(call, x.shape.dimensions[-2:], diagonal + 1)
    return sx.select(broadcast(above, x.shape.dimensions), zeros_like(x), x)
