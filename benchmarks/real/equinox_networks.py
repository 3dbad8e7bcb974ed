"""Networks of equinox: an MLP-Mixer, a physics-informed network, and a differential equation with diffrax."""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.real.registry import EPS, Made, of_jax

# Read when equinox is imported: its checks, as of diffrax's number of steps, call Python otherwise, which text cannot.
os.environ.setdefault("EQX_ON_ERROR", "nan")


def training_step(model: Any, loss_of: Any, *data: Any) -> Made:
    """A step of Adam on a module of equinox, whose arrays are the arguments."""
    import equinox as eqx
    import optax

    weights, rest = eqx.partition(model, eqx.is_inexact_array)
    optimizer = optax.adam(1e-3, eps=EPS)

    def step(weights: Any, state: Any, *data: Any) -> Any:
        loss, gradients = jax.value_and_grad(lambda w: loss_of(eqx.combine(w, rest), *data))(weights)
        updates, state = optimizer.update(gradients, state, weights)
        return eqx.apply_updates(weights, updates), state, loss

    return step, (weights, optimizer.init(weights), *data)


@of_jax("equinox-mixer-step", "training step of an MLP-Mixer, 16 images of 32x32", "equinox", "optax", tolerance=1e-3)
def mixer() -> Made:
    import equinox as eqx

    patches, width, classes = 64, 128, 10

    class Block(eqx.Module):
        across: eqx.nn.MLP
        within: eqx.nn.MLP
        norms: list[eqx.nn.LayerNorm]

        def __init__(self, key: Any) -> None:
            first, second = jax.random.split(key)
            self.across = eqx.nn.MLP(patches, patches, 4 * patches, 1, jax.nn.gelu, key=first)
            self.within = eqx.nn.MLP(width, width, 4 * width, 1, jax.nn.gelu, key=second)
            self.norms = [eqx.nn.LayerNorm((width, patches)) for _ in range(2)]

        def __call__(self, x: Any) -> Any:
            x = x + jax.vmap(self.across)(self.norms[0](x))
            return x + jax.vmap(self.within)(self.norms[1](x).T).T

    class Mixer(eqx.Module):
        first: eqx.nn.Conv2d
        blocks: list[Block]
        head: eqx.nn.Linear

        def __init__(self, key: Any) -> None:
            first, head, *rest = jax.random.split(key, 6)
            self.first = eqx.nn.Conv2d(3, width, 4, 4, key=first)
            self.blocks = [Block(each) for each in rest]
            self.head = eqx.nn.Linear(width, classes, key=head)

        def __call__(self, image: Any) -> Any:
            x = self.first(image).reshape(width, patches)
            for block in self.blocks:
                x = block(x)
            return self.head(x.mean(1))

    def loss(model: Any, images: Any, labels: Any) -> Any:
        logs = jax.nn.log_softmax(jax.vmap(model)(images))
        return -jnp.take_along_axis(logs, labels[:, None], 1).mean()

    rng = np.random.default_rng(0)
    images = rng.standard_normal((16, 3, 32, 32), np.float32)
    return training_step(Mixer(jax.random.key(0)), loss, images, rng.integers(0, classes, 16).astype(np.int32))


@of_jax("equinox-pinn-step", "training step for Burgers' equation at 1,024 points", "equinox", "optax", tolerance=1e-3)
def physics_informed() -> Made:
    """The loss has the network's first derivatives and a second one; its gradient has the third."""
    import equinox as eqx

    model = eqx.nn.MLP(2, "scalar", 64, 4, jnp.tanh, key=jax.random.key(0))

    def residual(model: Any, point: Any) -> Any:
        def along(place: Any) -> Any:
            return jax.grad(model)(jnp.stack([point[0], place]))[1]

        value, slopes = jax.value_and_grad(model)(point)
        return slopes[0] + value * slopes[1] - 0.01 / np.pi * jax.grad(along)(point[1])

    def loss(model: Any, points: Any) -> Any:
        inside = (jax.vmap(lambda p: residual(model, p))(points) ** 2).mean()
        start = points.at[:, 0].set(0.0)
        return inside + ((jax.vmap(model)(start) + jnp.sin(np.pi * points[:, 1])) ** 2).mean()

    points = np.random.default_rng(0).uniform([0, -1], [1, 1], (1024, 2)).astype(np.float32)
    return training_step(model, loss, points)


@of_jax(
    "diffrax-neural-ode-step", "training step through Tsit5, 32 paths", "diffrax", "equinox", "optax", tolerance=1e-3
)
def neural_ode() -> Made:
    import diffrax
    import equinox as eqx

    field = eqx.nn.MLP(2, 2, 64, 2, jax.nn.softplus, key=jax.random.key(0))
    times = jnp.linspace(0.0, 4.0, 20)

    def solve(field: Any, start: Any) -> Any:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, _: field(y)),
            diffrax.Tsit5(),
            t0=0.0,
            t1=4.0,
            dt0=0.1,
            y0=start,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=1e-3, atol=1e-4),
            max_steps=256,
        ).ys

    def loss(field: Any, starts: Any, paths: Any) -> Any:
        return ((jax.vmap(lambda start: solve(field, start))(starts) - paths) ** 2).mean()

    starts = np.random.default_rng(0).uniform(-1, 1, (32, 2)).astype(np.float32)
    turned = np.asarray(times)[:, None] + np.arctan2(starts[:, 1], starts[:, 0])
    paths = np.stack([np.cos(turned), np.sin(turned)], -1).swapaxes(0, 1).astype(np.float32)
    return training_step(field, loss, starts, paths)
