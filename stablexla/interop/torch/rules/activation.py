"""Activations of `torch.nn.functional`, and what their gradients are."""

from __future__ import annotations

import math
from collections.abc import Callable

import stablexla as sx
from stablexla.interop.torch.call import Call, Value, broadcast, convert, full_like, place, wide, zeros_like
from stablexla.interop.torch.registry import aten
from stablexla.interop.torch.types import Number


def _activation(name: str, function: Callable[..., sx.XlaOp]) -> None:
    """Register a rule that computes with halves in f32, and broadcasts; numbers stay as they are."""

    @aten(f"aten.{name}.default")
    def rule(call: Call, x: sx.XlaOp, *args: Value) -> sx.XlaOp:
        sizes = call.dimensions
        return function(*(broadcast(wide(y), sizes) if isinstance(y, sx.XlaOp) else y for y in (x, *args)))


def _zero_unless(test: sx.XlaOp, x: sx.XlaOp) -> sx.XlaOp:
    return sx.select(test, x, zeros_like(x))


def _between(low: float, x: sx.XlaOp, high: float) -> sx.XlaOp:
    """Return whether numbers lie between two others, and are neither of them."""
    return sx.and_(sx.gt(x, low), sx.lt(x, high))


# ---- by parts of the line ----


@aten("aten.relu.default")
def relu(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return sx.max(x, zeros_like(x))


@aten("aten.relu6.default")
def relu6(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return hardtanh(call, x, 0, 6)


@aten("aten.hardtanh.default")
def hardtanh(call: Call, x: sx.XlaOp, low: Number, high: Number) -> sx.XlaOp:
    return sx.min(sx.max(x, full_like(x, low)), full_like(x, high))


@aten("aten.threshold.default")
def threshold(call: Call, x: sx.XlaOp, bound: Number, value: Number) -> sx.XlaOp:
    return sx.select(sx.le(x, full_like(x, bound)), full_like(x, value), x)


@aten("aten.threshold_backward.default")
def threshold_backward(call: Call, grad: sx.XlaOp, x: sx.XlaOp, bound: Number) -> sx.XlaOp:
    grad, x = call.promoted(grad, x)
    return sx.select(sx.le(x, full_like(x, bound)), zeros_like(grad), grad)


def _hardtanh_backward(grad: sx.XlaOp, x: sx.XlaOp, low: float, high: float) -> sx.XlaOp:
    return _zero_unless(_between(low, x, high), grad)


def _leaky_relu(x: sx.XlaOp, slope: float) -> sx.XlaOp:
    return sx.select(sx.gt(x, 0), x, sx.mul(x, slope))


def _leaky_relu_backward(grad: sx.XlaOp, x: sx.XlaOp, slope: float, is_result: bool) -> sx.XlaOp:
    return sx.select(sx.gt(x, 0), grad, sx.mul(grad, slope))


def _hardsigmoid(x: sx.XlaOp) -> sx.XlaOp:
    return sx.div(sx.clamp(0.0, sx.add(x, 3), 6.0), 6)


def _hardsigmoid_backward(grad: sx.XlaOp, x: sx.XlaOp) -> sx.XlaOp:
    return _zero_unless(_between(-3, x, 3), sx.div(grad, 6))


def _hardswish(x: sx.XlaOp) -> sx.XlaOp:
    return sx.div(sx.mul(x, sx.clamp(0.0, sx.add(x, 3), 6.0)), 6)


def _hardswish_backward(grad: sx.XlaOp, x: sx.XlaOp) -> sx.XlaOp:
    inner = sx.mul(grad, sx.add(sx.div(x, 3), 0.5))
    return sx.select(sx.le(x, -3), zeros_like(grad), sx.select(sx.ge(x, 3), grad, inner))


def _softshrink(x: sx.XlaOp, bound: float) -> sx.XlaOp:
    inner = sx.mul(x, 0)  # NaN stays
    return sx.select(sx.gt(x, bound), sx.sub(x, bound), sx.select(sx.lt(x, -bound), sx.add(x, bound), inner))


def _hardshrink(x: sx.XlaOp, bound: float) -> sx.XlaOp:
    return sx.select(_within(x, bound), zeros_like(x), x)


def _shrink_backward(grad: sx.XlaOp, x: sx.XlaOp, bound: float) -> sx.XlaOp:
    return sx.select(_within(x, bound), zeros_like(grad), grad)


def _within(x: sx.XlaOp, bound: float) -> sx.XlaOp:
    return sx.and_(sx.ge(x, -bound), sx.le(x, bound))


@aten("aten._prelu_kernel.default")
def prelu(call: Call, x: sx.XlaOp, weight: sx.XlaOp) -> sx.XlaOp:
    x, weight = map(wide, call.promoted(x, weight))
    return sx.select(sx.gt(x, 0), x, sx.mul(weight, x))


@aten("aten._prelu_kernel_backward.default")
def prelu_backward(call: Call, grad: sx.XlaOp, x: sx.XlaOp, weight: sx.XlaOp) -> tuple[sx.XlaOp, sx.XlaOp]:
    grad, x, weight = map(wide, call.promoted(grad, x, weight))
    above = sx.gt(x, 0)
    return sx.select(above, grad, sx.mul(weight, grad)), sx.select(above, zeros_like(x), sx.mul(x, grad))


# ---- exponentials ----


def _elu(x: sx.XlaOp, alpha: float, scale: float, input_scale: float) -> sx.XlaOp:
    below = sx.mul(sx.expm1(sx.mul(x, input_scale)), alpha * scale)
    return sx.select(sx.le(x, 0), below, sx.mul(x, scale))


def _elu_backward(
    grad: sx.XlaOp, alpha: float, scale: float, input_scale: float, is_result: bool, x: sx.XlaOp
) -> sx.XlaOp:
    if is_result:
        below = sx.mul(sx.mul(grad, input_scale), sx.add(x, alpha * scale))
    else:
        below = sx.mul(grad, sx.mul(sx.exp(sx.mul(x, input_scale)), input_scale * alpha * scale))
    return sx.select(sx.le(x, 0), below, sx.mul(grad, scale))


def _celu(x: sx.XlaOp, alpha: float) -> sx.XlaOp:
    return _elu(x, alpha, 1.0, 1.0 / alpha)


def _selu(x: sx.XlaOp) -> sx.XlaOp:
    return _elu(x, 1.6732632423543772848170429916717, 1.0507009873554804934193349852946, 1.0)


def _silu(x: sx.XlaOp) -> sx.XlaOp:
    return sx.mul(x, sx.logistic(x))


def _silu_backward(grad: sx.XlaOp, x: sx.XlaOp) -> sx.XlaOp:
    s = sx.logistic(x)
    slope = sx.mul(s, sx.add(1, sx.mul(x, sx.sub(1, s))))
    return sx.mul(grad, sx.conj(slope) if slope.element_type.is_complex else slope)


def _sigmoid_backward(grad: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
    slope = sx.mul(sx.sub(1, y), y)
    return sx.mul(grad, sx.conj(slope) if slope.element_type.is_complex else slope)


def _tanh_backward(grad: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
    slope = sx.sub(1, sx.mul(y, y))
    return sx.mul(grad, sx.conj(slope) if slope.element_type.is_complex else slope)


def _softplus(x: sx.XlaOp, beta: float, bound: float) -> sx.XlaOp:
    scaled = sx.mul(x, beta)
    return sx.select(sx.gt(scaled, bound), x, sx.div(sx.log1p(sx.exp(scaled)), beta))


def _softplus_backward(grad: sx.XlaOp, x: sx.XlaOp, beta: float, bound: float) -> sx.XlaOp:
    scaled = sx.mul(x, beta)
    return sx.select(sx.gt(scaled, bound), grad, sx.mul(grad, sx.logistic(scaled)))


def _mish(x: sx.XlaOp) -> sx.XlaOp:
    return sx.mul(x, sx.tanh(_log1p_exp(x)))


def _mish_backward(grad: sx.XlaOp, x: sx.XlaOp) -> sx.XlaOp:
    t = sx.tanh(_log1p_exp(x))
    return sx.mul(grad, sx.add(t, sx.mul(sx.mul(x, sx.logistic(x)), sx.sub(1, sx.mul(t, t)))))


def _log1p_exp(x: sx.XlaOp) -> sx.XlaOp:
    """Return `log(1 + e**x)`, which for large x is x."""
    return sx.add(sx.max(x, zeros_like(x)), sx.log1p(sx.exp(sx.neg(sx.abs(x)))))


@aten("aten.log_sigmoid_forward.default")
def log_sigmoid(call: Call, x: sx.XlaOp) -> tuple[sx.XlaOp, sx.XlaOp]:
    x = wide(x)
    buffer = sx.exp(sx.neg(sx.abs(x)))
    sizes = call.shapes[1].dimensions if call.shapes[1] is not None else x.shape.dimensions
    kept = buffer if sizes == x.shape.dimensions else full_like(x, 0, sizes)
    return sx.sub(sx.min(x, zeros_like(x)), sx.log1p(buffer)), kept


@aten("aten.log_sigmoid_backward.default")
def log_sigmoid_backward(call: Call, grad: sx.XlaOp, x: sx.XlaOp, buffer: sx.XlaOp) -> sx.XlaOp:
    grad, x = map(wide, call.promoted(grad, x))
    return sx.mul(grad, sx.logistic(sx.neg(x)))


# ---- the error function's and the hyperbolic tangent's ----

_CUBIC = 0.044715


@aten("aten.gelu.default")
def gelu(call: Call, x: sx.XlaOp, *, approximate: str) -> sx.XlaOp:
    x = wide(x)
    if approximate == "none":
        return sx.mul(sx.mul(x, 0.5), sx.add(1, sx.erf(sx.mul(x, math.sqrt(0.5)))))
    return sx.mul(sx.mul(x, 0.5), sx.add(1, sx.tanh(_gelu_inner(x))))


def _gelu_inner(x: sx.XlaOp) -> sx.XlaOp:
    cube = sx.mul(sx.mul(x, x), x)
    return sx.mul(sx.add(x, sx.mul(cube, _CUBIC)), math.sqrt(2 / math.pi))


@aten("aten.gelu_backward.default")
def gelu_backward(call: Call, grad: sx.XlaOp, x: sx.XlaOp, *, approximate: str) -> sx.XlaOp:
    grad, x = map(wide, call.promoted(grad, x))
    if approximate == "none":
        below = sx.mul(sx.add(1, sx.erf(sx.mul(x, math.sqrt(0.5)))), 0.5)
        density = sx.mul(sx.exp(sx.mul(sx.mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
        return sx.mul(grad, sx.add(below, sx.mul(x, density)))
    t = sx.tanh(_gelu_inner(x))
    inner = sx.mul(sx.add(1, sx.mul(sx.mul(x, x), 3 * _CUBIC)), math.sqrt(2 / math.pi))
    slope = sx.mul(sx.mul(sx.mul(x, 0.5), sx.sub(1, sx.mul(t, t))), inner)
    return sx.mul(grad, sx.add(sx.mul(sx.add(1, t), 0.5), slope))


# ---- halves of a dimension ----


def _halves(x: sx.XlaOp, dim: int) -> tuple[sx.XlaOp, sx.XlaOp, int]:
    dim = place(dim, x.shape.rank)
    size = x.shape.dimensions[dim]
    return sx.slice_in_dim(x, 0, size // 2, 1, dim), sx.slice_in_dim(x, size // 2, size, 1, dim), dim


@aten("aten.glu.default")
def glu(call: Call, x: sx.XlaOp, dim: int) -> sx.XlaOp:
    a, b, _ = _halves(wide(x), dim)
    return sx.mul(a, sx.logistic(b))


@aten("aten.glu_backward.default")
def glu_backward(call: Call, grad: sx.XlaOp, x: sx.XlaOp, dim: int) -> sx.XlaOp:
    a, b, dim = _halves(wide(x), dim)
    s = sx.logistic(b)
    by_a = sx.mul(wide(grad), s)
    return sx.concat_in_dim([by_a, sx.mul(sx.mul(by_a, sx.sub(1, s)), a)], dim)


@aten("aten.glu_jvp.default")
def glu_jvp(call: Call, y: sx.XlaOp, x: sx.XlaOp, dx: sx.XlaOp, dim: int) -> sx.XlaOp:
    _, b, _ = _halves(wide(x), dim)
    da, db, _ = _halves(wide(dx), dim)
    s = sx.logistic(b)
    return sx.add(sx.mul(da, s), sx.mul(wide(y), sx.mul(db, sx.sub(1, s))))


# ---- slopes that are drawn ----


@aten("aten.rrelu_with_noise_functional.default")
def rrelu_with_noise(
    call: Call, x: sx.XlaOp, noise: sx.XlaOp, lower: float, upper: float, training: bool
) -> tuple[sx.XlaOp, sx.XlaOp]:
    """Return the leaky ReLU, in training with a slope for each element, and the slopes."""
    if not training:
        return _leaky_relu(wide(x), (lower + upper) / 2), noise
    drawn = call.apply("aten.uniform.default", convert(x, "f32"), lower, upper, shape=x.shape)
    slopes = sx.select(sx.le(x, zeros_like(x)), convert(drawn, x.element_type), full_like(x, 1))
    return sx.mul(x, slopes), slopes


@aten("aten.rrelu_with_noise_backward.default")
def rrelu_with_noise_backward(
    call: Call,
    grad: sx.XlaOp,
    x: sx.XlaOp,
    noise: sx.XlaOp,
    lower: float,
    upper: float,
    training: bool,
    is_result: bool,
) -> sx.XlaOp:
    if training and upper - lower > 1e-6:
        return sx.mul(wide(grad), wide(noise))
    return _leaky_relu_backward(wide(grad), wide(x), (lower + upper) / 2, is_result)


_ACTIVATIONS: dict[str, Callable[..., sx.XlaOp]] = {
    "celu": _celu,
    "elu": _elu,
    "elu_backward": _elu_backward,
    "hardshrink": _hardshrink,
    "hardshrink_backward": _shrink_backward,
    "hardsigmoid": _hardsigmoid,
    "hardsigmoid_backward": _hardsigmoid_backward,
    "hardswish": _hardswish,
    "hardswish_backward": _hardswish_backward,
    "hardtanh_backward": _hardtanh_backward,
    "leaky_relu": _leaky_relu,
    "leaky_relu_backward": _leaky_relu_backward,
    "mish": _mish,
    "mish_backward": _mish_backward,
    "selu": _selu,
    "sigmoid_backward": _sigmoid_backward,
    "silu": _silu,
    "silu_backward": _silu_backward,
    "softplus": _softplus,
    "softplus_backward": _softplus_backward,
    "softshrink": _softshrink,
    "softshrink_backward": _shrink_backward,
    "tanh_backward": _tanh_backward,
}
for _name, _function in _ACTIVATIONS.items():
    _activation(_name, _function)
