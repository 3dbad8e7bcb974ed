"""Random numbers: Philox from the state of a run, by inversion where a distribution has an inverse.

Rejection samplers are in `rejection.py`. The numbers are others than eager PyTorch's of the same seed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

import stablexla as sx
from stablexla.dialects.element_types import ElementType, element_type
from stablexla.dialects.shapes import Shape
from stablexla.interop.torch.call import (
    Call,
    Value,
    broadcast,
    convert,
    full_like,
    torch_type,
    wide,
    xla_type,
    zeros_like,
)
from stablexla.interop.torch.registry import aten

# ---- bits as numbers ----


def bits(call: Call, type: str, dimensions: Sequence[int]) -> sx.XlaOp:
    """Return random bits of one draw."""
    _, made = sx.rng_bit_generator("rng_philox", call.seed(), Shape(element_type(type), dimensions))
    return made


def computed(type: ElementType) -> ElementType:
    """Return the type in which numbers of an element type are drawn: f64 for f64 and c128, else f32."""
    return element_type("f64" if type.name in ("f64", "c128") else "f32")


def uniform_01(call: Call, type: ElementType, dimensions: Sequence[int]) -> sx.XlaOp:
    """Return multiples of an epsilon in [0, 1), f32 or f64, that no rounding to the element type takes to 1."""
    drawn = computed(type)
    digits = {"bf16": 8, "f16": 11, "f64": 53, "c128": 53}.get(type.name, 24)
    places = sx.shift_right_logical(bits(call, f"u{drawn.bits}", dimensions), drawn.bits - digits)
    # Conversions from signed integers are one instruction of all processors.
    signed = sx.convert_element_type(places, f"s{drawn.bits}")
    return sx.mul(sx.convert_element_type(signed, drawn), 2.0**-digits)


def _odd(call: Call, type: ElementType, dimensions: Sequence[int], digits: int) -> sx.XlaOp:
    """Return odd integers of this many digits and a sign, as floats."""
    drawn = computed(type)
    signed = sx.convert_element_type(bits(call, f"u{drawn.bits}", dimensions), f"s{drawn.bits}")
    odd = sx.or_(sx.shift_right_arithmetic(signed, drawn.bits - 1 - digits), 1)
    return sx.convert_element_type(odd, drawn)


def uniform_open(call: Call, type: ElementType, dimensions: Sequence[int]) -> sx.XlaOp:
    """Return numbers in (0, 1), f32 or f64: neither bound is one, so that logarithms are finite."""
    digits = 53 if computed(type).name == "f64" else 24
    return sx.mul(sx.abs(_odd(call, type, dimensions, digits)), 2.0**-digits)


def normal_01(call: Call, type: ElementType, dimensions: Sequence[int]) -> sx.XlaOp:
    """Return numbers of the standard normal distribution, f32 or f64: the inverse of its distribution function."""
    digits = 53 if computed(type).name == "f64" else 24
    return sx.mul(sx.erf_inv(sx.mul(_odd(call, type, dimensions, digits), 2.0**-digits)), math.sqrt(2))


def _standard_normal(call: Call, dimensions: Sequence[int] | None = None) -> sx.XlaOp:
    """Return standard normal numbers in the result's type; of complex ones each part has half of the variance."""
    sizes = call.dimensions if dimensions is None else dimensions
    if not call.type.is_complex:
        return normal_01(call, call.type, sizes)
    real, imaginary = (sx.mul(normal_01(call, call.type, sizes), math.sqrt(0.5)) for _ in range(2))
    return sx.complex(real, imaginary)


# ---- continuous distributions ----


@aten("aten.rand.default", "aten.rand.generator", "aten.rand_like.default", "aten.rand_like.generator")
def rand(call: Call, *_: object) -> sx.XlaOp:
    if call.type.is_complex:
        real, imaginary = (uniform_01(call, call.type, call.dimensions) for _ in range(2))
        return sx.complex(real, imaginary)
    return uniform_01(call, call.type, call.dimensions)


@aten("aten.uniform.default")
def uniform(call: Call, x: sx.XlaOp, low: float, high: float) -> sx.XlaOp:
    return _between(uniform_01(call, call.type, call.dimensions), low, high)


def _between(drawn: sx.XlaOp, low: float, high: float) -> sx.XlaOp:
    return sx.add(sx.mul(drawn, high - low), low)


@aten("aten.randn.default", "aten.randn.generator", "aten.randn_like.default", "aten.randn_like.generator")
def randn(call: Call, *_: object) -> sx.XlaOp:
    return _standard_normal(call)


@aten("aten.normal_functional.default")
def normal_functional(call: Call, x: sx.XlaOp, mean: float, std: float) -> sx.XlaOp:
    return _normal(call, mean, std)


@aten("aten.normal.Tensor_float", "aten.normal.float_Tensor", "aten.normal.Tensor_Tensor", "aten.normal.float_float")
def normal(call: Call, mean: Value, std: Value, *_: object) -> sx.XlaOp:
    return _normal(call, mean, std)


def _normal(call: Call, mean: Value, std: Value) -> sx.XlaOp:
    drawn = _standard_normal(call)
    mean, std = (broadcast(call.op(x, drawn.element_type), call.dimensions) for x in (mean, std))
    return sx.add(sx.mul(drawn, std), mean)


@aten("aten.log_normal.default")
def log_normal(call: Call, x: sx.XlaOp, mean: float, std: float) -> sx.XlaOp:
    return sx.exp(_normal(call, mean, std))


@aten("aten.exponential.default")
def exponential(call: Call, x: sx.XlaOp, lambd: float) -> sx.XlaOp:
    return sx.mul(sx.log(uniform_open(call, call.type, call.dimensions)), -1 / lambd if lambd else -math.inf)


@aten("aten.cauchy.default")
def cauchy(call: Call, x: sx.XlaOp, median: float, sigma: float) -> sx.XlaOp:
    angle = sx.mul(sx.sub(uniform_open(call, call.type, call.dimensions), 0.5), math.pi)
    return sx.add(sx.mul(sx.tan(angle), sigma), median)


# ---- integers ----


@aten("aten.randint.default", "aten.randint.generator")
def randint(call: Call, high: int, *_: object) -> sx.XlaOp:
    return _integers(call, 0, high)


@aten("aten.randint.low", "aten.randint.low_generator")
def randint_low(call: Call, low: int, high: int, *_: object) -> sx.XlaOp:
    return _integers(call, low, high)


@aten(
    "aten.randint_like.default", "aten.randint_like.generator", "aten.randint_like.Tensor",
    "aten.randint_like.Tensor_generator",
)  # fmt: skip
def randint_like(call: Call, x: sx.XlaOp, high: Value) -> sx.XlaOp:
    if isinstance(high, sx.XlaOp):
        return _below(bits(call, "u64", call.dimensions), broadcast(convert(high, "u64"), call.dimensions))
    return _integers(call, 0, int(high.real))


@aten("aten.randint_like.low_dtype", "aten.randint_like.low_generator_dtype", "aten.random.from")
def randint_like_low(call: Call, x: sx.XlaOp, low: int, high: int | None) -> sx.XlaOp:
    return _integers(call, low, _largest(call.type) + 1 if high is None else high)


@aten("aten.random.to")
def random_to(call: Call, x: sx.XlaOp, high: int) -> sx.XlaOp:
    return _integers(call, 0, high)


@aten("aten.random.default")
def random(call: Call, x: sx.XlaOp) -> sx.XlaOp:
    return _integers(call, 0, _largest(call.type) + 1)


def _largest(type: ElementType) -> int:
    """Return the largest number that `Tensor.random_` draws: floats have all integers up to it."""
    if type.is_float:
        return 1 << {"bf16": 8, "f16": 11, "f32": 24, "f64": 53}[type.name]
    return 1 if type.is_pred else int(np.iinfo(type.dtype).max)


def _integers(call: Call, low: int, high: int) -> sx.XlaOp:
    """Return integers from `low` up to but not including `high`."""
    count = (high - low) % (1 << 64)
    if count == 0:  # all that there are
        made = bits(call, "u64", call.dimensions)
    elif count < 1 << 32:
        made = sx.convert_element_type(bits(call, "u32", call.dimensions), "u64")
        made = sx.shift_right_logical(sx.mul(made, count), 32)
    else:
        drawn = bits(call, "u64", call.dimensions)
        made = _below(drawn, full_like(drawn, count))
    return sx.add(sx.convert_element_type(made, "s64"), low)


def _below(drawn: sx.XlaOp, count: sx.XlaOp) -> sx.XlaOp:
    """Return 64 random bits as integers below a count, which 128 bits of a product have in their upper half."""
    return sx.mulhi(drawn, count)


@aten("aten.geometric.default")
def geometric(call: Call, x: sx.XlaOp, p: float) -> sx.XlaOp:
    """The number of trials up to the first success, ceil(log u / log(1 - p)), of which there is one at least."""
    if p == 1:
        return full_like(x, 1)
    tries = sx.mul(sx.log(uniform_open(call, call.type, call.dimensions)), 1 / math.log1p(-p))
    return sx.max(sx.ceil(tries), 1.0)


@aten("aten.randperm.default", "aten.randperm.generator")
def randperm(call: Call, n: int) -> sx.XlaOp:
    """Numbers sorted by random bits above them, of which there are so many that no two are alike."""
    mask = (1 << max(n - 1, 1).bit_length()) - 1
    keys = sx.and_(bits(call, "u64", (n,)), ((1 << 64) - 1) ^ mask)
    keys = sx.or_(keys, call.iota("u64", (n,)))
    return sx.and_(sx.sort(keys, sx.lt, 0) if n > 1 else keys, mask)


# ---- choices ----


@aten("aten.bernoulli.default")
def bernoulli(call: Call, p: sx.XlaOp) -> sx.XlaOp:
    return _is_below(call, p, call.dimensions)


@aten("aten.bernoulli.p", "aten.bernoulli.Tensor")
def bernoulli_p(call: Call, x: sx.XlaOp, p: Value) -> sx.XlaOp:
    return _is_below(call, p, call.dimensions)


def _is_below(call: Call, p: Value, sizes: Sequence[int]) -> sx.XlaOp:
    """Return whether uniform numbers are below a probability: never for 0, always for 1."""
    type = element_type("f64" if isinstance(p, sx.XlaOp) and p.element_type.name == "f64" else "f32")
    return sx.lt(uniform_01(call, type, sizes), broadcast(call.op(p, type), sizes))


@aten("aten.native_dropout.default")
def native_dropout(call: Call, x: sx.XlaOp, p: float, train: bool | None) -> tuple[sx.XlaOp, sx.XlaOp]:
    if train is False:
        return x, call.constant(True, "pred", x.shape.dimensions)
    kept = _is_below(call, 1 - p, x.shape.dimensions)
    return _scaled(x, kept, 1 / (1 - p) if p < 1 else 0.0), kept


def scaled_at_random(call: Call, x: sx.XlaOp, p: float) -> sx.XlaOp:
    """Return a tensor of which elements of probability `p` are 0, the others scaled so that the mean stays."""
    return native_dropout(call, x, p, True)[0]


@aten("aten.native_dropout_backward.default")
def native_dropout_backward(call: Call, gradient: sx.XlaOp, mask: sx.XlaOp, scale: float) -> sx.XlaOp:
    return _scaled(gradient, convert(mask, "pred"), scale)


def _scaled(x: sx.XlaOp, kept: sx.XlaOp, scale: float) -> sx.XlaOp:
    """Return a tensor times a scale where it is kept, else times 0, so that NaN stays."""
    x = wide(x)
    return sx.mul(x, sx.select(kept, full_like(x, scale), zeros_like(x)))


@aten("aten.dropout.default")
def dropout(call: Call, x: sx.XlaOp, p: float, train: bool) -> sx.XlaOp:
    return scaled_at_random(call, x, p) if train and p else x


@aten("aten.multinomial.default")
def multinomial(call: Call, weights: sx.XlaOp, num_samples: int, replacement: bool) -> sx.XlaOp:
    """Draw with replacement by a search of running sums, without it by an exponential race (Efraimidis, Spirakis)."""
    weights = wide(weights)
    type, sizes = weights.element_type, weights.shape.dimensions
    if not replacement and num_samples > 1:
        race = sx.neg(sx.log(uniform_open(call, type, sizes)))
        _, places = sx.top_k(sx.div(weights, race), num_samples)
        return places
    sums = call.apply("aten.cumsum.default", weights, -1, shape=weights.shape)
    last = sx.slice_in_dim(sums, sizes[-1] - 1, sizes[-1], dimno=len(sizes) - 1)
    total = broadcast(last, call.dimensions)
    drawn = sx.mul(uniform_01(call, type, call.dimensions), total)
    # Below the total, however it was rounded, a later category of weight 0 is never taken.
    drawn = sx.min(drawn, sx.next_after(total, zeros_like(total)))
    shape = Shape(element_type("s64"), call.dimensions)
    found: sx.XlaOp = call.apply("aten.searchsorted.Tensor", sums, drawn, right=True, shape=shape)
    return found


# ---- draws that are repeated: of checkpoints, which compute again ----

_STATE_BYTES = 16


@aten("higher_order.run_and_save_rng_state")
def run_and_save_rng_state(call: Call, operator: Any, *operands: Any, **named: Any) -> list[Any]:
    """The state of a draw in the first bytes of what is as large as that of PyTorch's generator, and the draw."""
    state = call.seed()
    saved = sx.reshape(sx.bitcast_convert_type(state, "u8"), (_STATE_BYTES,))
    saved = sx.pad_in_dim(saved, full_like(saved, 0, ()), 0, 0, torch.get_rng_state().numel() - _STATE_BYTES)
    return [saved, _repeated(call, state, operator, operands, named)]


@aten("higher_order.run_with_rng_state")
def run_with_rng_state(call: Call, saved: sx.XlaOp, operator: Any, *operands: Any, **named: Any) -> Any:
    words = sx.reshape(sx.slice_in_dim(saved, 0, _STATE_BYTES), (2, _STATE_BYTES // 2))
    return _repeated(call, sx.bitcast_convert_type(words, "u64"), operator, operands, named)


def _repeated(call: Call, state: sx.XlaOp, operator: Any, operands: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """Return what an operator draws from a state; AOTAutograd does not say the shapes of its results."""

    def stand_in(x: Any) -> Any:
        return torch.empty(x.shape.dimensions, dtype=torch_type(x.element_type)) if isinstance(x, sx.XlaOp) else x

    with FakeTensorMode():
        like = operator(*pytree.tree_map(stand_in, operands), **pytree.tree_map(stand_in, named))
    shapes = [Shape(xla_type(x.dtype), x.shape) for x in pytree.tree_leaves(like)]
    with call.translator.drawing(state):
        return call.translator.apply(operator, operands, named, shapes)
