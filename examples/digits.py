"""Trains a small network on images of handwritten digits; the whole epoch is one program made with XlaBuilder.

The images are the 1,797 of 8x8 pixels that scikit-learn ships. Gradients are written out by hand with the builder's
operations, and the loop over minibatches is a `while_` inside the program: one call of the executable is one epoch.
Run as `python examples/digits.py`; the exit code is 1 when too few of the images that it never saw are recognised.
"""

from __future__ import annotations

import argparse
import sys
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits

import stablexla as sx

Array = npt.NDArray[Any]

WIDTHS = (64, 128, 64, 10)  # pixels, two hidden layers, classes
BATCH = 32
MOMENTUM = 0.9
LAYER_SHAPES = tuple(sx.Shape.tuple((sx.f32[inputs, outputs], sx.f32[outputs])) for inputs, outputs in pairwise(WIDTHS))
NETWORK = sx.Shape.tuple(LAYER_SHAPES)


# ---- the network, in the builder's operations ----------------------------------------------------------------------


def sum_over(x: sx.XlaOp, dimension: int) -> sx.XlaOp:
    """Sums of a matrix along one dimension."""
    return sx.reduce(x, x.builder.constant(0.0), sx.add, (dimension,))


def dense(x: sx.XlaOp, layer: sx.XlaOp) -> sx.XlaOp:
    """x @ weights + bias; XLA wants to be told along which dimension the bias lies."""
    weights, bias = layer
    return sx.add(x @ weights, bias, broadcast_dimensions=(1,))


def dense_gradients(x: sx.XlaOp, upstream: sx.XlaOp) -> sx.XlaOp:
    """The loss's gradients by a layer's weights and bias, from its input and the gradient by its output."""
    return sx.tuple((sx.transpose(x, (1, 0)) @ upstream, sum_over(upstream, 0)))


def relu(x: sx.XlaOp) -> sx.XlaOp:
    """Zero for what is negative."""
    return sx.max(x, 0.0)


def softmax_cross_entropy(logits: sx.XlaOp, targets: sx.XlaOp) -> tuple[sx.XlaOp, sx.XlaOp]:
    """The batch's mean loss against one-hot targets, and its gradient by the logits."""
    largest = sx.reduce(logits, logits.builder.constant(-np.inf, "f32"), sx.max, (1,))
    shifted = sx.sub(logits, largest, broadcast_dimensions=(0,))
    exponentials = sx.exp(shifted)
    total = sum_over(exponentials, 1)
    log_probabilities = sx.sub(shifted, sx.log(total), broadcast_dimensions=(0,))
    loss = -sum_over(sum_over(log_probabilities * targets, 1), 0) / BATCH
    gradient = (sx.div(exponentials, total, broadcast_dimensions=(0,)) - targets) / BATCH
    return loss, gradient


def forward(network: sx.XlaOp, images: sx.XlaOp) -> list[sx.XlaOp]:
    """What goes into each layer, and at the end the logits."""
    values = [images]
    for number, layer in enumerate(network):
        x = dense(values[-1], layer)
        values.append(x if number == len(network) - 1 else relu(x))
    return values


def backward(network: sx.XlaOp, values: list[sx.XlaOp], gradient: sx.XlaOp) -> list[sx.XlaOp]:
    """The gradients of all layers, from that by the logits, last layer first and then turned round."""
    gradients = []
    for layer, x in zip(reversed(list(network)), reversed(values[:-1])):
        gradients.append(dense_gradients(x, gradient))
        weights, _ = layer
        # The derivative of relu is 1 where its result is positive; the first layer's input needs none.
        back = gradient @ sx.transpose(weights, (1, 0))
        gradient = sx.select(x > 0.0, back, sx.broadcast(x.builder.constant(0.0), back.shape.dimensions))
    return gradients[::-1]


def momentum_step(
    network: sx.XlaOp, velocity: sx.XlaOp, gradients: list[sx.XlaOp], rate: sx.XlaOp
) -> tuple[sx.XlaOp, sx.XlaOp]:
    """The network after one step of gradient descent, and the velocities of all its numbers."""
    speeds = [
        sx.tuple([v * MOMENTUM - g * rate for v, g in zip(layer_velocity, layer_gradient)])
        for layer_velocity, layer_gradient in zip(velocity, gradients)
    ]
    moved = [sx.tuple([w + v for w, v in zip(layer, speed)]) for layer, speed in zip(network, speeds)]
    return sx.tuple(moved), sx.tuple(speeds)


# ---- two programs: an epoch of training, and the logits -------------------------------------------------------------


def epoch_computation(images: int) -> sx.XlaComputation:
    """(network, velocity, images, targets, rate) -> (network, velocity, mean loss), after all the minibatches."""
    batches = -(-images // BATCH)

    def another(state: sx.XlaOp) -> sx.XlaOp:
        return state[0] < batches

    def train_on_batch(state: sx.XlaOp) -> sx.XlaOp:
        step, network, velocity, loss_so_far, all_images, all_targets, rate = state
        # A start too near the end is moved back by dynamic_slice: the last batch shares rows with the one before.
        start = (step * BATCH, 0)
        batch = sx.dynamic_slice(all_images, start, (BATCH, WIDTHS[0]))
        targets = sx.dynamic_slice(all_targets, start, (BATCH, WIDTHS[-1]))
        values = forward(network, batch)
        loss, gradient = softmax_cross_entropy(values[-1], targets)
        network, velocity = momentum_step(network, velocity, backward(network, values, gradient), rate)
        return sx.tuple((step + 1, network, velocity, loss_so_far + loss, all_images, all_targets, rate))

    b = sx.XlaBuilder("epoch")
    network, velocity = b.parameter(0, NETWORK, "network"), b.parameter(1, NETWORK, "velocity")
    data = b.parameter(2, sx.f32[images, WIDTHS[0]], "images"), b.parameter(3, sx.f32[images, WIDTHS[-1]], "targets")
    rate = b.parameter(4, sx.f32[()], "rate")
    first = sx.tuple((b.constant(0), network, velocity, b.constant(0.0), *data, rate))
    _, network, velocity, loss, *_ = sx.while_(another, train_on_batch, first)
    return b.build(sx.tuple((network, velocity, loss / batches)))


def logits_computation(images: int) -> sx.XlaComputation:
    """(network, images) -> a row of logits for each image."""
    b = sx.XlaBuilder("logits")
    network = b.parameter(0, NETWORK, "network")
    return b.build(forward(network, b.parameter(1, sx.f32[images, WIDTHS[0]], "images"))[-1])


# ---- around them ----------------------------------------------------------------------------------------------------


def load_data(rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    """Images and classes to train with (four fifths), and those held out; pixels are between 0 and 1."""
    images, classes = load_digits(return_X_y=True)
    order = rng.permutation(len(images))
    images, classes = (images[order] / 16).astype(np.float32), classes[order]
    held_out = len(images) // 5
    return images[held_out:], classes[held_out:], images[:held_out], classes[:held_out]


def first_network(rng: np.random.Generator) -> Any:
    """Random weights of a size that keeps the signal's, and no bias."""
    return tuple(
        (
            (rng.standard_normal((inputs, outputs)) * np.sqrt(2 / inputs)).astype(np.float32),
            np.zeros(outputs, np.float32),
        )
        for inputs, outputs in pairwise(WIDTHS)
    )


def compile_both(train: int, held_out: int, console: Console) -> tuple[sx.Executable, sx.Executable]:
    """The two programs, with a word on what became of them."""
    made = []
    for computation in (epoch_computation(train), logits_computation(held_out)):
        start = perf_counter()
        executable = sx.compile(computation)
        seconds = perf_counter() - start
        console.print(f"compiled {computation.name!r} in {seconds:.2f} s: {len(executable.kernels)} kernels")
        made.append(executable)
    return made[0], made[1]


def train(epochs: int, seed: int, console: Console) -> tuple[Array, Array]:
    """Trains, showing how it goes; the held-out images' classes, and what the network takes them for."""
    rng = np.random.default_rng(seed)
    images, classes, test_images, test_classes = load_data(rng)
    targets = np.eye(WIDTHS[-1], dtype=np.float32)[classes]
    run_epoch, logits = compile_both(len(images), len(test_images), console)
    network = first_network(rng)
    velocity = tuple(tuple(np.zeros_like(numbers) for numbers in layer) for layer in network)
    seconds, loss, accuracy = [], np.float32(0), 0.0
    columns = TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("epochs"), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for epoch in progress.track(range(1, epochs + 1)):
            order = rng.permutation(len(images))
            rate = np.float32(0.05 * 0.5 ** (epoch / 15))
            start = perf_counter()
            network, velocity, loss = run_epoch(network, velocity, images[order], targets[order], rate)
            seconds.append(perf_counter() - start)
            accuracy = np.mean(logits(network, test_images).argmax(1) == test_classes)
            if epoch % 5 == 0 or epoch == 1:
                progress.console.print(f"epoch {epoch:3}   loss {loss:.4f}   held out {accuracy:6.1%}")
    console.print(f"an epoch of {len(images)} images took {np.median(seconds) * 1e3:.1f} ms")
    return test_classes, logits(network, test_images).argmax(1)


def accuracy_table(classes: Array, found: Array) -> Table:
    """Accuracy by class, on the images held out."""
    table = Table(title="held-out digits", show_footer=True)
    table.add_column("digit", footer="all")
    table.add_column("images", footer=str(len(classes)), justify="right")
    table.add_column("right", footer=str(np.sum(classes == found)), justify="right")
    table.add_column("accuracy", footer=f"{np.mean(classes == found):.1%}", justify="right")
    table.add_column("most often taken for")
    for digit in range(WIDTHS[-1]):
        own = found[classes == digit]
        wrong = own[own != digit]
        other = str(np.bincount(wrong).argmax()) if len(wrong) else ""
        table.add_row(str(digit), str(len(own)), str(np.sum(own == digit)), f"{np.mean(own == digit):.1%}", other)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--epochs", type=int, default=30, help="passes over the training images (default 30)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and all shuffling (default 0)")
    parser.add_argument("--expect", type=float, default=0.96, help="accuracy asked for (default 0.96)")
    arguments = parser.parse_args()
    console = Console(highlight=False)
    start = perf_counter()
    classes, found = train(arguments.epochs, arguments.seed, console)
    console.print(accuracy_table(classes, found))
    accuracy = float(np.mean(classes == found))
    console.print(f"{accuracy:.1%} of the held-out images recognised, in {perf_counter() - start:.1f} s altogether")
    if accuracy < arguments.expect:
        console.print(f"that is less than the {arguments.expect:.0%} asked for")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
