"""A network of three dense layers, 784-512-512-10 with relu between, on 256 rows."""

from itertools import pairwise

import numpy as np

import stablexla as sx
from benchmarks.programs.registry import Array, add

ROWS = 256
WIDTHS = (784, 512, 512, 10)


def network(x: sx.XlaOp, *numbers: sx.XlaOp) -> sx.XlaOp:
    """The last layer's values; `numbers` are weights and bias of each layer in turn."""
    last = len(numbers) - 2
    for place in range(0, len(numbers), 2):
        x = sx.add(x @ numbers[place], numbers[place + 1], broadcast_dimensions=(1,))
        x = x if place == last else sx.max(x, 0.0)
    return x


def network_in_numpy(x: Array, *numbers: Array) -> Array:
    last = len(numbers) - 2
    for place in range(0, len(numbers), 2):
        x = x @ numbers[place] + numbers[place + 1]
        x = x if place == last else np.maximum(x, 0)
    return x


add(
    "mlp-256",
    "784-512-512-10 with relu, 256 rows",
    [sx.f32[ROWS, WIDTHS[0]], *(shape for m, n in pairwise(WIDTHS) for shape in (sx.f32[m, n], sx.f32[n]))],
    network,
    numpy=network_in_numpy,
    operations=2.0 * ROWS * sum(m * n for m, n in pairwise(WIDTHS)),
)
