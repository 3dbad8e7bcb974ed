"""Calls of `jax.nn`, `jax.image` and `jax.ops`."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from tests.interop.proof import values as v
from tests.interop.proof.calls import Call, call, through

F, B = v.reals, v.booleans
_QUERY, _KEY, _VALUE = F(2, 5, 4, 8), F(2, 6, 2, 8), F(2, 6, 2, 8, seed=1)
_HEADS = (F(2, 6, 2, 8, seed=2), F(2, 6, 2, 8, seed=3), F(2, 6, 2, 8, seed=4))
_BF16_HEADS = tuple(head.astype(v.BF16) for head in _HEADS)
# bf16 is where softmax and its kind are used, beside f32
_NN: dict[str, list[Call]] = {
    "dot_product_attention": [
        call(_QUERY, _KEY, _VALUE),
        call(*_HEADS, is_causal=True),
        call(*_HEADS, bias=F(2, 2, 6, 6), mask=B(2, 2, 6, 6) | np.eye(6, dtype=bool)),
        call(*_BF16_HEADS, is_causal=True),
    ],
    "one_hot": [call(v.naturals(5, below=4), 4), call(v.integers(3, 2, low=-1, high=5), 4, axis=0)],
    "glu": [call(F(3, 8)), call(F(4, 3), axis=0)],
    "gelu": [call(F(3, 4)), call(F(3, 4), approximate=False), call(v.reals(9, of=v.BF16))],
    "logsumexp": [call(F(3, 4)), call(F(3, 4), axis=1, keepdims=True, where=B(3, 4)), call(v.complexes(9))],
    "softmax": [call(F(3, 40)), call(F(3, 4), axis=0, where=B(3, 4)), call(v.reals(3, 40, of=v.BF16))],
    "log_softmax": [call(F(3, 40)), call(F(3, 4), axis=0, where=B(3, 4)), call(v.reals(3, 40, of=v.BF16))],
    "standardize": [call(F(3, 40)), call(F(3, 4), axis=0, epsilon=0.1), call(v.reals(3, 40, of=v.BF16))],
    "relu": [call(F(3, 4)), call(v.integers(3, 4)), call(v.reals(9, of=v.BF16))],
}


def _made(*parameters: Any, shape: tuple[int, ...] = (6, 5), **keywords: Any) -> Call:
    """What an initializer draws."""
    return through(lambda f, key: f(*parameters, **keywords)(key, shape), v.key_data())


_SCALED = [_made(), _made(shape=(3, 3, 4, 5)), _made(dtype=v.BF16)]
_INITIALIZERS: dict[str, list[Call]] = {
    **{
        f"{who}_{how}": _SCALED
        for who in ("glorot", "he", "kaiming", "lecun", "xavier")
        for how in ("normal", "uniform")
    },
    "constant": [_made(2.5)],
    "delta_orthogonal": [_made(shape=(3, 3, 4, 4))],
    "normal": [_made(), _made(0.5)],
    "orthogonal": [_made(), _made(shape=(4, 6))],
    "truncated_normal": [_made()],
    "uniform": [_made()],
    "variance_scaling": [_made(2.0, "fan_avg", d) for d in ("truncated_normal", "normal", "uniform")],
    "ones": [call(v.key_data(), (2, 3))],
    "zeros": [call(v.key_data(), (2, 3))],
}
_IMAGE = F(6, 5, 3)
_METHODS = ("nearest", "linear", "cubic", "lanczos3", "lanczos5")
_SEGMENTS = [
    call(F(9, 2), v.naturals(9, below=4), 4),
    call(v.integers(9), np.sort(v.naturals(9, below=4)), 4, indices_are_sorted=True),
]
ENTRIES = {
    **{f"jax.nn.{name}": calls for name, calls in _NN.items()},
    **{
        f"jax.nn.initializers.{name}": calls
        for name, calls in _INITIALIZERS.items()
        if hasattr(jax.nn.initializers, name)
    },
    "jax.image.resize": [
        *[call(_IMAGE, (9, 11, 3), m) for m in _METHODS],
        *[call(_IMAGE, (4, 3, 3), m) for m in _METHODS],
        call(_IMAGE, (4, 3, 3), "linear", antialias=False),
    ],
    "jax.image.scale_and_translate": [
        call(_IMAGE, (9, 8, 3), (0, 1), v.positive(2), F(2), m) for m in ("linear", "cubic")
    ],
    **{f"jax.ops.segment_{name}": _SEGMENTS for name in ("max", "min", "prod", "sum")},
}
