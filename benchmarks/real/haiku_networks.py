"""Networks of haiku."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from benchmarks.real.registry import Made, of_jax


@of_jax("haiku-mobilenet-step", "training step of MobileNetV1, 8 images of 32x32", "haiku", "optax", tolerance=3e-2)
def mobilenet() -> Made:
    """Depthwise convolutions, and batch normalisation with its averages as a state.

    Normalising by few numbers magnifies rounding: either engine is a hundredth away from what f64 gives.
    """
    import haiku as hk
    import optax

    strides, widths = (1, 2, 1, 2, 1), (64, 128, 128, 256, 256)
    network = hk.transform_with_state(lambda x: hk.nets.MobileNetV1(strides, widths, num_classes=10)(x, True))
    rng = np.random.default_rng(0)
    images, labels = rng.standard_normal((8, 32, 32, 3), np.float32), rng.integers(0, 10, 8).astype(np.int32)
    weights, averages = network.init(jax.random.key(0), images)
    optimizer = optax.sgd(0.01, 0.9)

    def step(weights: Any, averages: Any, state: Any, images: Any, labels: Any) -> Any:
        def loss_of(weights: Any) -> Any:
            logits, moved = network.apply(weights, averages, None, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), moved

        (loss, moved), gradients = jax.value_and_grad(loss_of, has_aux=True)(weights)
        updates, state = optimizer.update(gradients, state, weights)
        return optax.apply_updates(weights, updates), moved, state, loss

    return step, (weights, averages, optimizer.init(weights), images, labels)
