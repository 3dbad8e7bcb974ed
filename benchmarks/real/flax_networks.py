"""Networks of flax, with optax where they are trained."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.real.registry import EPS, Made, of_jax


def training_step(model: Any, loss_of: Any, *data: Any) -> Made:
    """A step of AdamW on a network of nnx: parameters and the optimizer's state in and out.

    Args:
        loss_of: the loss, of the network and the data.
    """
    import optax
    from flax import nnx

    definition, weights = nnx.split(model)
    optimizer = optax.adamw(1e-3, eps=EPS)

    def step(weights: Any, state: Any, *data: Any) -> Any:
        loss, gradients = jax.value_and_grad(lambda w: loss_of(nnx.merge(definition, w), *data))(weights)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), state, loss

    return step, (weights, optimizer.init(weights), *data)


def cross_entropy(logits: Any, labels: Any) -> Any:
    import optax

    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@of_jax("flax-vit-step", "training step of a vision transformer, 8 images of 64x64", "flax", "optax", tolerance=1e-3)
def vision_transformer() -> Made:
    from flax import nnx

    width, patch, side, layers, heads, classes = 192, 8, 64, 6, 3, 10
    rngs = nnx.Rngs(0)

    class Layer(nnx.Module):
        def __init__(self) -> None:
            self.norms = nnx.List([nnx.LayerNorm(width, rngs=rngs) for _ in range(2)])
            self.attention = nnx.MultiHeadAttention(heads, width, decode=False, use_bias=False, rngs=rngs)
            self.wide, self.narrow = nnx.Linear(width, 4 * width, rngs=rngs), nnx.Linear(4 * width, width, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(self.norms[0](x))
            return x + self.narrow(nnx.gelu(self.wide(self.norms[1](x))))

    class Network(nnx.Module):
        def __init__(self) -> None:
            self.patches = nnx.Conv(3, width, (patch, patch), (patch, patch), rngs=rngs)
            self.places = nnx.Param(0.02 * jax.random.normal(rngs(), (1, (side // patch) ** 2, width)))
            self.layers = nnx.List([Layer() for _ in range(layers)])
            self.norm, self.head = nnx.LayerNorm(width, rngs=rngs), nnx.Linear(width, classes, rngs=rngs)

        def __call__(self, images: Any) -> Any:
            x = self.patches(images).reshape(len(images), -1, width) + self.places[...]
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x).mean(1))

    rng = np.random.default_rng(0)
    images = rng.standard_normal((8, side, side, 3), np.float32)
    labels = rng.integers(0, classes, 8).astype(np.int32)
    return training_step(Network(), lambda net, x, y: cross_entropy(net(x), y), images, labels)


@of_jax("flax-graph-step", "training step of message passing over 8,192 edges", "flax", "optax", tolerance=2e-2)
def graph_network() -> Made:
    from flax import nnx

    # Scattered gradients in another order of summation: XLA is 0.007 away from what f64 gives.
    nodes, edges, width, rounds = 1024, 8192, 64, 3
    rngs = nnx.Rngs(0)

    def dense(inputs: int) -> Any:
        return nnx.Sequential(
            nnx.Linear(inputs, width, rngs=rngs),
            nnx.relu,
            nnx.Linear(width, width, rngs=rngs),
            nnx.LayerNorm(width, rngs=rngs),
        )

    class Network(nnx.Module):
        def __init__(self) -> None:
            self.messages = nnx.List([dense(2 * width) for _ in range(rounds)])
            self.updates = nnx.List([dense(2 * width) for _ in range(rounds)])
            self.head = nnx.Linear(width, 1, rngs=rngs)

        def __call__(self, x: Any, senders: Any, receivers: Any) -> Any:
            for message, update in zip(self.messages, self.updates, strict=True):
                sent = message(jnp.concatenate([x[senders], x[receivers]], -1))
                x = x + update(jnp.concatenate([x, jax.ops.segment_sum(sent, receivers, nodes)], -1))
            return self.head(x)[:, 0]

    rng = np.random.default_rng(0)
    ends = rng.integers(0, nodes, (2, edges)).astype(np.int32)
    x, y = rng.standard_normal((nodes, width), np.float32), rng.standard_normal(nodes, np.float32)
    return training_step(Network(), lambda net, x, a, b, y: ((net(x, a, b) - y) ** 2).mean(), x, *ends, y)


@of_jax("flax-greedy-decode", "32 tokens in one program, by a decoder with its cache", "flax", tolerance=1e-4)
def greedy_decoding() -> Made:
    """A loop whose body is a step of the decoder: each chooses its own next token."""
    from flax import nnx

    width, heads, layers, words, tokens = 256, 8, 4, 4096, 32
    rngs = nnx.Rngs(0)

    class Layer(nnx.Module):
        def __init__(self) -> None:
            self.norms = nnx.List([nnx.RMSNorm(width, rngs=rngs) for _ in range(2)])
            self.attention = nnx.MultiHeadAttention(heads, width, decode=True, rngs=rngs)
            self.attention.init_cache((1, tokens, width))
            self.gate, self.up = (nnx.Linear(width, 3 * width, use_bias=False, rngs=rngs) for _ in range(2))
            self.down = nnx.Linear(3 * width, width, use_bias=False, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            x = x + self.attention(self.norms[0](x))
            x_normal = self.norms[1](x)
            return x + self.down(nnx.silu(self.gate(x_normal)) * self.up(x_normal))

    class Decoder(nnx.Module):
        def __init__(self) -> None:
            self.words = nnx.Embed(words, width, rngs=rngs)
            self.layers = nnx.List([Layer() for _ in range(layers)])
            self.norm = nnx.RMSNorm(width, rngs=rngs)

        def __call__(self, token: Any) -> Any:
            x = self.words(token)[:, None]
            for layer in self.layers:
                x = layer(x)
            return self.words.attend(self.norm(x))[:, 0]

    definition, weights, caches = nnx.split(Decoder(), nnx.Param, ...)

    def generate(weights: Any, caches: Any, first: Any) -> Any:
        def step(carried: Any, _: None) -> Any:
            caches, token = carried
            decoder = nnx.merge(definition, weights, caches)
            logits = decoder(token)
            token = jnp.argmax(logits, -1).astype(jnp.int32)
            return (nnx.split(decoder, nnx.Param, ...)[2], token), (token, logits.max(-1))

        return jax.lax.scan(step, (caches, first), None, tokens)[1]

    return generate, (weights, caches, np.array([1], np.int32))
