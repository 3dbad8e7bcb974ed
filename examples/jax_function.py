"""Trains a small network that is written in JAX; `stablexla.interop.jax.jit` stands where `jax.jit` would.

The task is to tell two spirals apart. JAX traces the training step, with its gradients, once; stablexla compiles and
runs it, and writes each new state over the old one, which is donated. Afterwards `jax.jit` runs the same steps, and the
two networks are compared. Run as `python examples/jax_function.py`; the exit code is 1 when they differ by too much.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import pairwise
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stablexla.interop.jax import jit

WIDTHS = (2, 48, 48, 2)  # a point in the plane, two hidden layers, two spirals
RATE, MOMENTUM = 0.2, 0.9


def spirals(points: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Points on two arms that wind around each other, and which arm each is on."""
    arm = rng.integers(0, 2, points)
    turn = np.sqrt(rng.random(points)) * 1.5 * np.pi
    place = turn[:, None] * np.stack([np.cos(turn + np.pi * arm), np.sin(turn + np.pi * arm)], 1) / (1.5 * np.pi)
    return (place + rng.normal(scale=0.02, size=place.shape)).astype(np.float32), arm.astype(np.int32)


def first_network(key: Any) -> list[dict[str, Any]]:
    """Weights drawn at random, biases of zero."""
    layers = []
    for inputs, outputs in pairwise(WIDTHS):
        key, used = jax.random.split(key)
        weights = jax.random.normal(used, (inputs, outputs)) * jnp.sqrt(2 / inputs)
        layers.append({"weights": weights, "bias": jnp.zeros(outputs)})
    return layers


def predict(network: list[dict[str, Any]], points: Any) -> Any:
    """For each point a number for either spiral; the larger one wins."""
    *hidden, last = network
    for layer in hidden:
        points = jnp.tanh(points @ layer["weights"] + layer["bias"])
    return points @ last["weights"] + last["bias"]


def loss_of(network: list[dict[str, Any]], points: Any, arm: Any) -> Any:
    """Cross entropy, the mean of all points."""
    logs = jax.nn.log_softmax(predict(network, points))
    return -jnp.mean(jnp.take_along_axis(logs, arm[:, None], axis=1))


def step(state: dict[str, Any], points: Any, arm: Any) -> tuple[dict[str, Any], Any]:
    """One step of gradient descent with momentum: the next state, and the loss before it."""
    loss, gradient = jax.value_and_grad(loss_of)(state["network"], points, arm)
    velocity = jax.tree.map(lambda v, g: MOMENTUM * v - RATE * g, state["velocity"], gradient)
    return {"network": jax.tree.map(jnp.add, state["network"], velocity), "velocity": velocity}, loss


def train(compiled: Callable[..., Any], steps: int, points: np.ndarray, arm: np.ndarray) -> tuple[Any, float]:
    """The network after so many steps, and the seconds of the fastest."""
    network = first_network(jax.random.key(0))
    state = {"network": network, "velocity": jax.tree.map(jnp.zeros_like, network)}
    times = []
    for number in range(steps):
        start = perf_counter()
        state, loss = compiled(state, points, arm)
        jax.block_until_ready(state)
        times.append(perf_counter() - start)
        if (number + 1) % (steps // 4 or 1) == 0:
            print(f"  step {number + 1:4}  loss {float(loss):.4f}")
    return state["network"], min(times)


def main(arguments: list[str] | None = None) -> int:
    """Trains by both, and compares."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--steps", type=int, default=300, help="how many steps to train (default 300)")
    parser.add_argument("--points", type=int, default=512, help="how many points to train with (default 512)")
    parser.add_argument("--ir", metavar="STAGE", help="print the training step at a stage, such as stablehlo, instead")
    options = parser.parse_args(arguments)

    points, arm = spirals(options.points, np.random.default_rng(0))
    ours = jit(step, donate_argnums=0)
    if options.ir:
        network = first_network(jax.random.key(0))
        print(ours.executable({"network": network, "velocity": network}, points, arm).ir(options.ir))
        return 0
    results = {}
    for name, compiled in (("stablexla", ours), ("jax.jit", jax.jit(step, donate_argnums=0))):
        print(f"{name}:")
        results[name], seconds = train(compiled, options.steps, points, arm)
        print(f"  {seconds * 1e6:.0f} us a step")
    known = np.mean(np.argmax(jit(predict)(results["stablexla"], points), 1) == arm)
    apart = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b))), results["stablexla"], results["jax.jit"])
    largest = max(jax.tree.leaves(apart))
    print(
        f"{known:.1%} of the points are on the right spiral; largest difference from jax.jit's network: {largest:.1e}"
    )
    return 0 if largest < 1e-2 else 1


if __name__ == "__main__":
    sys.exit(main())
