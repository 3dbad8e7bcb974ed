"""Training steps: optimizers of optax on a small model, several steps in one program; JAX's own example libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from tests.interop.proof import values as v
from tests.interop.proof.programs.registry import program

_X, _Y = v.reals(12, 6), v.naturals(12, below=3)
_PARAMETERS = {"w1": v.reals(6, 16) * 0.3, "b1": v.reals(16) * 0.1, "w2": v.reals(16, 3) * 0.3}


def _loss(parameters: Any, x: Any, y: Any) -> Any:
    hidden = jnp.tanh(x @ parameters["w1"] + parameters["b1"])
    return optax.softmax_cross_entropy_with_integer_labels(hidden @ parameters["w2"], y).mean()


def _steps(optimizer: Any, count: int = 3) -> Callable[..., Any]:
    def step(state: Any, _: Any) -> Any:
        parameters, inner, x, y = state
        value, gradient = jax.value_and_grad(_loss)(parameters, x, y)
        updates, inner = optimizer.update(gradient, inner, parameters)
        return (optax.apply_updates(parameters, updates), inner, x, y), value

    def train(parameters: Any, inner: Any, x: Any, y: Any) -> Any:
        state, values = jax.lax.scan(step, (parameters, inner, x, y), None, length=count)
        return state[:2], values

    return train


_OPTIMIZERS: dict[str, Callable[[], Any]] = {
    "adabelief": lambda: optax.adabelief(1e-2),
    "adadelta": lambda: optax.adadelta(1e-1),
    "adafactor": lambda: optax.adafactor(1e-2),
    "adagrad": lambda: optax.adagrad(1e-1),
    "adam": lambda: optax.adam(1e-2),
    "adamax": lambda: optax.adamax(1e-2),
    "adamw": lambda: optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1e-2, 2, 10), weight_decay=1e-2),
    "amsgrad": lambda: optax.amsgrad(1e-2),
    "chain": lambda: optax.chain(
        optax.clip_by_global_norm(0.5), optax.add_decayed_weights(1e-3), optax.scale_by_adam(), optax.scale(-1e-2)
    ),
    "lamb": lambda: optax.lamb(1e-2),
    "lion": lambda: optax.lion(1e-3),
    "nadam": lambda: optax.nadam(1e-2),
    "noisy_sgd": lambda: optax.noisy_sgd(1e-2, key=0),
    "novograd": lambda: optax.novograd(1e-2),
    "rmsprop": lambda: optax.rmsprop(1e-2, centered=True, momentum=0.9),
    "sgd": lambda: optax.sgd(1e-1, momentum=0.9, nesterov=True),
    "yogi": lambda: optax.yogi(1e-2),
}


def _register(name: str, make: Callable[[], Any]) -> None:
    def made() -> tuple[Any, ...]:
        optimizer = make()
        return _steps(optimizer), _PARAMETERS, optimizer.init(_PARAMETERS), _X, _Y

    made.__name__ = name
    program("optax", f"three steps of {name} with value_and_grad, in a scan")(made)


for _name, _make in _OPTIMIZERS.items():
    _register(_name, _make)


@program("optax", "two steps of L-BFGS with its line search")
def lbfgs() -> tuple[Any, ...]:
    optimizer = optax.lbfgs()

    def train(parameters: Any, inner: Any) -> Any:
        def value(p: Any) -> Any:
            return _loss(p, _X, _Y)

        for _ in range(2):
            now, gradient = optax.value_and_grad_from_state(value)(parameters, state=inner)
            updates, inner = optimizer.update(gradient, inner, parameters, value=now, grad=gradient, value_fn=value)
            parameters = optax.apply_updates(parameters, updates)
        return parameters, now

    return train, _PARAMETERS, optimizer.init(_PARAMETERS)


@program("optax", "losses: CTC, sigmoid, Huber, cosine, KL")
def losses() -> tuple[Any, ...]:
    def all_losses(logits: Any, labels: Any, x: Any, y: Any) -> Any:
        padding = jnp.zeros(logits.shape[:2])
        return (
            optax.ctc_loss(logits, padding, labels, jnp.zeros(labels.shape)),
            optax.sigmoid_binary_cross_entropy(x, (y > 0).astype(x.dtype)),
            optax.huber_loss(x, y),
            optax.cosine_distance(x, y),
            optax.kl_divergence(jax.nn.log_softmax(x), jax.nn.softmax(y)),
        )

    return all_losses, v.reals(2, 8, 5), v.integers(2, 3, low=1, high=5), v.reals(4, 6), v.reals(4, 6, seed=1)


@program("example_libraries", "stax: a convolutional network, and a step of its Adam")
def stax() -> tuple[Any, ...]:
    from jax.example_libraries import optimizers
    from jax.example_libraries import stax as layers

    start, apply = layers.serial(
        layers.Conv(8, (3, 3), padding="SAME"),
        layers.BatchNorm(),
        layers.Relu,
        layers.MaxPool((2, 2)),
        layers.Flatten,
        layers.Dense(10),
        layers.LogSoftmax,
    )
    images = v.reals(4, 8, 8, 3)
    _, parameters = start(jax.random.key(0), images.shape)
    first, update, current = optimizers.adam(1e-2)

    def step(state: Any, x: Any) -> Any:
        value, gradient = jax.value_and_grad(lambda p: -apply(p, x)[:, 3].mean())(current(state))
        return value, current(update(0, gradient, state))

    return lambda p, x: step(first(p), x), parameters, images
