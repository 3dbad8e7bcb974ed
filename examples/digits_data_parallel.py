"""Trains the network of digits.py on several devices, each of which takes its part of every minibatch.

All devices run one program: the gradients of its part, summed over all devices by one all_reduce, and the same step
everywhere, so that the networks stay equal. The devices are threads of one process, or, under
`mpiexec -n 4 python examples/digits_data_parallel.py`, of four processes; the text and the results are the same. The
network after the first epoch is compared with that of one device; the exit code is 1 when it differs by more than
rounding, or when too few of the images that it never saw are recognised.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import digits
import numpy as np
from digits import LAYER_SHAPES, NETWORK, WIDTHS, Array
from rich.console import Console

import stablexla as sx

ROUNDING = 1e-4
"""Sums in another order change a weight by so much at most, relative to the largest of its array, in one epoch."""


# ---- the program of all devices --------------------------------------------------------------------------------------


def sum_over_devices(gradients: Sequence[sx.XlaOp]) -> list[sx.XlaOp]:
    """Every layer's gradients, summed over the devices: one operation for all arrays."""
    sums = sx.cross_replica_sum([numbers for layer in gradients for numbers in layer])
    return [sx.tuple((sums[2 * layer], sums[2 * layer + 1])) for layer in range(len(gradients))]


def parallel_epoch(batches: int, devices: int) -> sx.XlaComputation:
    """(network, velocity, images, targets, rate) -> (network, velocity, mean loss), of one device among several.

    Its images are its parts of the minibatches, one after another, and the loss is that of all devices.
    """
    part = digits.BATCH // devices

    def another(state: sx.XlaOp) -> sx.XlaOp:
        return state[0] < batches

    def train_on_part(state: sx.XlaOp) -> sx.XlaOp:
        step, network, velocity, loss_so_far, own_images, own_targets, rate = state
        images = sx.dynamic_slice(own_images, (step * part, 0), (part, WIDTHS[0]))
        targets = sx.dynamic_slice(own_targets, (step * part, 0), (part, WIDTHS[-1]))
        values = digits.forward(network, images)
        # A sum over the part, divided by the size of the whole batch: the devices' sum is the batch's mean.
        loss, gradient = digits.softmax_cross_entropy(values[-1], targets)
        gradients = sum_over_devices(digits.backward(network, values, gradient))
        network, velocity = digits.momentum_step(network, velocity, gradients, rate)
        return sx.tuple((step + 1, network, velocity, loss_so_far + loss, own_images, own_targets, rate))

    b = sx.XlaBuilder("parallel epoch")
    network, velocity = b.parameter(0, NETWORK, "network"), b.parameter(1, NETWORK, "velocity")
    images = b.parameter(2, sx.f32[batches * part, WIDTHS[0]], "images")
    targets = b.parameter(3, sx.f32[batches * part, WIDTHS[-1]], "targets")
    rate = b.parameter(4, sx.f32[()], "rate")
    first = sx.tuple((b.constant(0), network, velocity, b.constant(0.0), images, targets, rate))
    _, network, velocity, loss, *_ = sx.while_(another, train_on_part, first)
    return b.build(sx.tuple((network, velocity, sx.cross_replica_sum(loss) / batches)))


# ---- around it -------------------------------------------------------------------------------------------------------


class Trainer:
    """An epoch of images that are dealt out to the devices."""

    def __init__(self, images: int, devices: int) -> None:
        self.devices = devices
        starts = np.minimum(np.arange(-(-images // digits.BATCH)) * digits.BATCH, images - digits.BATCH)
        part = digits.BATCH // devices
        self._rows = [
            (starts[:, None] + device * part + np.arange(part)).ravel() for device in range(devices)
        ]  # as digits.py does it: the last batch shares rows with the one before
        self._executable = sx.compile(parallel_epoch(len(starts), devices), num_replicas=devices)

    def epoch(self, network: Any, velocity: Any, images: Array, targets: Array, rate: Array) -> tuple[Any, Any, Array]:
        """What `epoch_computation` gives, computed by all devices."""
        given = [(network, velocity, images[rows], targets[rows], rate) for rows in self._rows]
        results = self._executable.execute_replicated(given, gather=False)
        own = next(each for each in results if each is not None)  # they are equal
        half = 2 * len(LAYER_SHAPES)
        return _pairs(own[:half]), _pairs(own[half:-1]), own[-1]


def _pairs(leaves: Sequence[Array]) -> Any:
    return tuple((leaves[place], leaves[place + 1]) for place in range(0, len(leaves), 2))


def zeros_like(network: Any) -> Any:
    return tuple(tuple(np.zeros_like(numbers) for numbers in layer) for layer in network)


def apart(found: Any, wanted: Any) -> float:
    """The largest difference of two networks, relative to the largest number of each array."""
    pairs = [(f, w) for fs, ws in zip(found, wanted) for f, w in zip(fs, ws)]
    return max(float(np.abs(f - w).max() / np.abs(w).max()) for f, w in pairs)


def train(devices: int, epochs: int, seed: int, console: Console) -> tuple[float, float]:
    """Trains; the held-out images' accuracy, and how far the first epoch is from that of one device."""
    rng = np.random.default_rng(seed)
    images, classes, test_images, test_classes = digits.load_data(rng)
    targets = np.eye(WIDTHS[-1], dtype=np.float32)[classes]
    trainer, logits = Trainer(len(images), devices), sx.compile(digits.logits_computation(len(test_images)))
    network = digits.first_network(rng)
    velocity = zeros_like(network)
    seconds, difference, loss = [], 0.0, np.float32(0)
    for epoch in range(1, epochs + 1):
        order = rng.permutation(len(images))
        rate = np.float32(0.05 * 0.5 ** (epoch / 15))
        given = network, velocity, images[order], targets[order], rate
        start = perf_counter()
        network, velocity, loss = trainer.epoch(*given)
        seconds.append(perf_counter() - start)
        if epoch == 1:
            alone, _, _ = sx.compile(digits.epoch_computation(len(images)))(*given)
            difference = apart(network, alone)
            console.print(f"after one epoch the networks of {devices} devices and of one are {difference:.1e} apart")
        if epoch % 5 == 0:
            console.print(f"epoch {epoch:3}   loss {loss:.4f}")
    console.print(f"the last epoch's mean loss, to the last bit: {loss:.9g}")
    console.print(f"an epoch of {len(images)} images took {np.median(seconds) * 1e3:.1f} ms on {devices} devices")
    return float(np.mean(logits(network, test_images).argmax(1) == test_classes)), difference


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--devices", type=int, default=4, choices=(1, 2, 4, 8), help="how many (default 4)")
    parser.add_argument("--batch", type=int, default=digits.BATCH, help="images of a minibatch (default %(default)s)")
    parser.add_argument("--epochs", type=int, default=30, help="passes over the training images (default 30)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights and all shuffling (default 0)")
    parser.add_argument("--expect", type=float, default=0.96, help="accuracy asked for (default 0.96)")
    arguments = parser.parse_args()
    if arguments.batch % arguments.devices:
        parser.error(f"{arguments.devices} devices cannot share {arguments.batch} images equally")
    digits.BATCH = arguments.batch
    world = sx.distributed.initialize()
    console = Console(highlight=False, quiet=world.rank != 0)
    accuracy, difference = train(arguments.devices, arguments.epochs, arguments.seed, console)
    console.print(f"{accuracy:.1%} of the held-out images recognised")
    if difference > ROUNDING:
        console.print(f"{difference:.1e} is more than rounding does")
        return 1
    if accuracy < arguments.expect:
        console.print(f"that is less than the {arguments.expect:.0%} asked for")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
