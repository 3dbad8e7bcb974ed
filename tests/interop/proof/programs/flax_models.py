"""Models of flax.linen: forward, and value and gradient of a loss."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tests.interop.proof import values as v
from tests.interop.proof.programs.registry import program, with_gradient

KEY = v.key_data()


def _both(model: Any, x: v.Array, name: str, about: str) -> None:
    """Registers two programs: the model, and the gradient of its results' squares by its parameters."""

    def parameters() -> Any:
        return model.init(jax.random.key(0), x)

    def forward() -> tuple[Any, ...]:
        return model.apply, parameters(), x

    def gradient() -> tuple[Any, ...]:
        return with_gradient(lambda p, x: jnp.mean(model.apply(p, x) ** 2)), parameters(), x

    forward.__name__, gradient.__name__ = name, f"{name}_gradient"
    program("flax", about)(forward)
    program("flax", f"{about}: value and gradient of a loss")(gradient)


def _linen() -> Any:
    from flax import linen

    return linen


nn = _linen()


class Mlp(nn.Module):  # type: ignore[name-defined,misc]
    features: tuple[int, ...] = (32, 16, 5)

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Any) -> Any:
        for width in self.features[:-1]:
            x = nn.gelu(nn.Dense(width)(x))
        return nn.Dense(self.features[-1])(x)


class Cnn(nn.Module):  # type: ignore[name-defined,misc]
    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Any) -> Any:
        x = nn.max_pool(nn.relu(nn.Conv(8, (3, 3))(x)), (2, 2), strides=(2, 2))
        x = nn.avg_pool(nn.relu(nn.Conv(12, (3, 3))(x)), (2, 2), strides=(2, 2))
        x = nn.relu(nn.Dense(32)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


class Residual(nn.Module):  # type: ignore[name-defined,misc]
    width: int
    stride: int
    train: bool

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Any) -> Any:
        def norm() -> Any:
            return nn.BatchNorm(use_running_average=not self.train, momentum=0.9)

        y = nn.Conv(self.width, (3, 3), strides=self.stride, use_bias=False)(x)
        y = nn.Conv(self.width, (3, 3), use_bias=False)(nn.relu(norm()(y)))
        y = norm()(y)
        if x.shape != y.shape:
            x = norm()(nn.Conv(self.width, (1, 1), strides=self.stride, use_bias=False)(x))
        return nn.relu(x + y)


class ResNet(nn.Module):  # type: ignore[name-defined,misc]
    train: bool = False

    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(8, (3, 3), use_bias=False)(x)
        x = nn.relu(nn.BatchNorm(use_running_average=not self.train)(x))
        for width, stride in ((8, 1), (16, 2), (32, 2)):
            x = Residual(width, stride, self.train)(x)
        return nn.Dense(10)(x.mean((1, 2)))


class Block(nn.Module):  # type: ignore[name-defined,misc]
    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Any, mask: Any) -> Any:
        x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x), mask=mask)
        y = nn.Dense(4 * x.shape[-1])(nn.LayerNorm()(x))
        return x + nn.Dense(x.shape[-1])(nn.gelu(y))


class Transformer(nn.Module):  # type: ignore[name-defined,misc]
    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, tokens: Any) -> Any:
        x = nn.Embed(17, 32)(tokens)
        x = x + self.param("positions", nn.initializers.normal(0.02), x.shape[1:])
        mask = nn.make_causal_mask(tokens)
        for _ in range(2):
            x = Block()(x, mask)
        return nn.Dense(17)(nn.RMSNorm()(x))


class Lstm(nn.Module):  # type: ignore[name-defined,misc]
    @nn.compact  # type: ignore[untyped-decorator]
    def __call__(self, x: Any) -> Any:
        x = nn.RNN(nn.OptimizedLSTMCell(12))(x)
        x = nn.Bidirectional(nn.RNN(nn.GRUCell(8)), nn.RNN(nn.GRUCell(8)))(x)
        return nn.Dense(3)(x[:, -1])


_IMAGES = v.reals(2, 16, 16, 3)
_both(Mlp(), v.reals(6, 10), "mlp", "linen: MLP with gelu")
_both(Cnn(), _IMAGES, "cnn", "linen: convolutions and pools")
_both(ResNet(), _IMAGES, "resnet", "linen: residual blocks with batch normalization")
_both(Transformer(), v.naturals(2, 9, below=17), "transformer", "linen: two causal blocks, embeddings, RMS norm")
_both(Lstm(), v.reals(2, 7, 5), "lstm", "linen: LSTM and a GRU in both directions")


@program("flax", "linen: residual blocks in training, with new averages")
def resnet_training() -> tuple[Any, ...]:
    model = ResNet(train=True)
    variables = model.init(jax.random.key(0), _IMAGES)

    def loss(parameters: Any, averages: Any, x: Any) -> Any:
        out, changed = model.apply({"params": parameters, "batch_stats": averages}, x, mutable=["batch_stats"])
        return jnp.mean(out**2), changed

    gradient: Callable[..., Any] = jax.value_and_grad(loss, has_aux=True)
    return gradient, variables["params"], variables["batch_stats"], _IMAGES


@program("flax", "linen: dropout, with a key that is traced")
def dropout() -> tuple[Any, ...]:
    model = nn.Sequential([nn.Dense(16), nn.Dropout(0.3, deterministic=False), nn.Dense(4)])
    x = v.reals(6, 10)
    variables = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, x)
    return lambda p, x, key: model.apply(p, x, rngs={"dropout": key}), variables, x, KEY


@program("flax", "linen: MLP in bf16 with parameters in f32, value and gradient")
def mixed_precision() -> tuple[Any, ...]:
    model = nn.Sequential([nn.Dense(16, dtype=jnp.bfloat16), nn.relu, nn.Dense(4, dtype=jnp.bfloat16)])
    x = v.reals(6, 10)
    return (
        with_gradient(lambda p, x: jnp.mean(model.apply(p, x).astype("float32") ** 2)),
        model.init(jax.random.key(0), x),
        x,
    )
