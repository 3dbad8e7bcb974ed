"""Models of equinox: pytrees themselves, of which the arrays are arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from tests.interop.proof import values as v
from tests.interop.proof.programs.registry import program, with_gradient


def _register(name: str, about: str, model: Callable[[Any], Any], x: v.Array) -> None:
    """The model on a batch, and value and gradient of a loss."""

    def parts() -> tuple[Any, Any]:
        arrays, fixed = eqx.partition(model(jax.random.key(0)), eqx.is_array)
        return arrays, fixed

    def forward() -> tuple[Any, ...]:
        arrays, fixed = parts()
        return lambda a, x: jax.vmap(eqx.combine(a, fixed))(x), arrays, x

    def gradient() -> tuple[Any, ...]:
        arrays, fixed = parts()
        return with_gradient(lambda a, x: jnp.mean(jax.vmap(eqx.combine(a, fixed))(x) ** 2)), arrays, x

    forward.__name__, gradient.__name__ = name, f"{name}_gradient"
    program("equinox", about)(forward)
    program("equinox", f"{about}: value and gradient of a loss")(gradient)


def _cnn(key: Any) -> Any:
    a, b, c = jax.random.split(key, 3)
    return eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(3, 8, 3, padding=1, key=a),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.MaxPool2d(2, 2),
            eqx.nn.Conv2d(8, 12, 3, key=b),
            eqx.nn.Lambda(eqx.nn.PReLU()),
            eqx.nn.AdaptiveAvgPool2d(2),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(48, 10, key=c),
        ]
    )


class Residual(eqx.Module):  # type: ignore[misc]
    first: Any
    second: Any
    norm: Any

    def __init__(self, channels: int, key: Any) -> None:
        a, b = jax.random.split(key)
        self.first = eqx.nn.Conv2d(channels, channels, 3, padding=1, key=a)
        self.second = eqx.nn.Conv2d(channels, channels, 3, padding=1, key=b)
        self.norm = eqx.nn.GroupNorm(2, channels)

    def __call__(self, x: Any, *, key: Any = None) -> Any:
        return jax.nn.relu(x + self.second(jax.nn.relu(self.norm(self.first(x)))))


def _resnet(key: Any) -> Any:
    a, b, c, d = jax.random.split(key, 4)
    return eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(3, 8, 3, stride=2, key=a),
            Residual(8, b),
            Residual(8, c),
            eqx.nn.Lambda(lambda x: x.mean((1, 2))),
            eqx.nn.Linear(8, 10, key=d),
        ]
    )


class Attention(eqx.Module):  # type: ignore[misc]
    attention: Any
    norm: Any
    mlp: Any
    turn: Any

    def __init__(self, key: Any) -> None:
        a, b = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(4, 32, key=a)
        self.norm = eqx.nn.LayerNorm(32)
        self.mlp = eqx.nn.MLP(32, 32, 64, 1, activation=jax.nn.gelu, key=b)
        self.turn = eqx.nn.RotaryPositionalEmbedding(32)

    def __call__(self, x: Any) -> Any:
        y = self.turn(jax.vmap(self.norm)(x))
        x = x + self.attention(y, y, y, mask=jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool)))
        return x + jax.vmap(self.mlp)(x)


class Recurrent(eqx.Module):  # type: ignore[misc]
    cell: Any
    last: Any

    def __init__(self, key: Any) -> None:
        a, b = jax.random.split(key)
        self.cell = eqx.nn.LSTMCell(5, 12, key=a)
        self.last = eqx.nn.Linear(12, 3, key=b)

    def __call__(self, x: Any) -> Any:
        start = (jnp.zeros(12), jnp.zeros(12))
        (hidden, _), _ = jax.lax.scan(lambda state, x: (self.cell(x, state), None), start, x)
        return self.last(hidden)


_register("mlp", "MLP", lambda key: eqx.nn.MLP(10, 5, 32, 2, key=key), v.reals(6, 10))
_register("cnn", "convolutions and pools", _cnn, v.reals(2, 3, 16, 16))
_register("resnet", "residual blocks with group normalization", _resnet, v.reals(2, 3, 16, 16))
_register("transformer", "causal attention with rotary embeddings", Attention, v.reals(2, 9, 32))
_register("lstm", "LSTM cell in a scan", Recurrent, v.reals(2, 7, 5))
