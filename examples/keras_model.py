"""A network of Keras, trained and run: python examples/keras_model.py

Needs TensorFlow: pip install 'stablexla[tensorflow]'.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from stablexla.interop.tensorflow import compile


def network() -> Any:
    """A small convolutional network for images of 16 by 16."""
    return keras.Sequential(
        [
            keras.Input((16, 16, 3)),
            keras.layers.Conv2D(8, 3, padding="same", activation="relu"),
            keras.layers.BatchNormalization(momentum=0.5),
            keras.layers.MaxPool2D(),
            keras.layers.Conv2D(16, 3, activation="relu"),
            keras.layers.GlobalAveragePooling2D(),
            keras.layers.Dense(4),
        ]
    )


def step_of(model: Any, optimizer: Any) -> Callable[[Any, Any], Any]:
    """Return a training step, which changes the variables of the model and of the optimizer."""
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    optimizer.build(model.trainable_variables)

    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(labels, model(images, training=True))
        weights = [variable.value for variable in model.trainable_variables]
        optimizer.apply(tape.gradient(value, weights), model.trainable_variables)
        return value

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains a network of Keras with stablexla, beside TensorFlow.")
    parser.add_argument("--steps", type=int, default=20, metavar="N", help="training steps (default: 20)")
    steps = parser.parse_args().steps
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 4, 64).astype(np.int32)
    images = (rng.standard_normal((64, 16, 16, 3)) + labels[:, None, None, None]).astype(np.float32)

    keras.utils.set_random_seed(0)
    model, twin = network(), network()
    twin.set_weights(model.get_weights())
    ours = compile(step_of(model, keras.optimizers.Adam(0.01)), images, labels)
    theirs = tf.function(step_of(twin, keras.optimizers.Adam(0.01)), jit_compile=True)
    losses = [(float(ours(images, labels)), float(theirs(images, labels))) for _ in range(steps)]
    print(
        f"{len(ours.changed)} of {len(ours.variables)} variables change; loss {losses[0][0]:.4f} to {losses[-1][0]:.4f}"
    )
    print(f"largest difference of a loss from TensorFlow's: {max(abs(a - b) for a, b in losses):.1e}")

    run = compile(model, images, freeze=True)
    error = np.abs(run(images) - model(images).numpy()).max()
    right = (run(images).argmax(1) == labels).mean()
    print(f"inference of {run.executable}")
    print(f"{right:.0%} of the images right; largest difference from TensorFlow's: {error:.1e}")


if __name__ == "__main__":
    main()
