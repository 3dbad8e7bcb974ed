"""Models of flax.nnx, split into their structure and a pytree of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from tests.interop.proof import values as v
from tests.interop.proof.programs.registry import program

Module: Any = nnx.Module


class Mlp(Module):  # type: ignore[misc]
    def __init__(self, rngs: Any) -> None:
        self.first = nnx.Linear(10, 32, rngs=rngs)
        self.norm = nnx.LayerNorm(32, rngs=rngs)
        self.last = nnx.Linear(32, 5, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.last(nnx.silu(self.norm(self.first(x))))


class Cnn(Module):  # type: ignore[misc]
    def __init__(self, rngs: Any) -> None:
        self.conv = nnx.Conv(3, 8, (3, 3), rngs=rngs)
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.last = nnx.Linear(8 * 8 * 8, 10, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        x = nnx.max_pool(nnx.relu(self.norm(self.conv(x))), (2, 2), (2, 2))
        return self.last(x.reshape(x.shape[0], -1))


class Block(Module):  # type: ignore[misc]
    def __init__(self, rngs: Any) -> None:
        self.norm = nnx.LayerNorm(32, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(4, 32, decode=False, rngs=rngs)
        self.out = nnx.Linear(32, 32, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return x + self.out(nnx.gelu(self.attention(self.norm(x))))


class Lstm(Module):  # type: ignore[misc]
    def __init__(self, rngs: Any) -> None:
        self.cell = nnx.OptimizedLSTMCell(5, 12, rngs=rngs)
        self.last = nnx.Linear(12, 3, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        carry = (jnp.zeros((x.shape[0], 12)), jnp.zeros((x.shape[0], 12)))
        for step in range(x.shape[1]):
            carry, out = self.cell(carry, x[:, step])
        return self.last(out)


def _register(kind: Callable[[Any], Any], x: v.Array, name: str, about: str) -> None:
    """Value, gradient, and the state that a call in training leaves."""

    def made() -> tuple[Any, ...]:
        graph, parameters, rest = nnx.split(kind(nnx.Rngs(0)), nnx.Param, ...)

        def loss(parameters: Any, rest: Any, x: Any) -> Any:
            model = nnx.merge(graph, parameters, rest, copy=True)
            out = model(x)
            return jnp.mean(out**2), (out, nnx.state(model))

        return jax.value_and_grad(loss, has_aux=True), parameters, rest, x

    made.__name__ = name
    program("flax", about)(made)


_register(Mlp, v.reals(6, 10), "nnx_mlp", "nnx: MLP with layer normalization, value and gradient")
_register(
    Cnn, v.reals(2, 16, 16, 3), "nnx_cnn", "nnx: convolution, batch normalization in training, value and gradient"
)
_register(Block, v.reals(2, 9, 32), "nnx_transformer", "nnx: attention block, value and gradient")
_register(Lstm, v.reals(2, 7, 5), "nnx_lstm", "nnx: LSTM cell unrolled, value and gradient")
