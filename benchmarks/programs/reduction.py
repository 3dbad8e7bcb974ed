"""Sums of a 256x256x256 array over each of its axes, and over all."""

from collections.abc import Sequence

import numpy as np

import stablexla as sx
from benchmarks.programs.registry import Array, add


def add_sum(name: str, summary: str, axes: Sequence[int]) -> None:
    """Enters the sum over some axes."""

    def build(x: sx.XlaOp) -> sx.XlaOp:
        return sx.reduce(x, x.builder.constant(0.0), sx.add, axes)

    def numpy(x: Array) -> Array:
        return np.asarray(x.sum(tuple(axes)))

    # Positive and negative numbers cancel, so that the order of a long sum shows.
    add(name, summary, [sx.f32[256, 256, 256]], build, numpy=numpy, tolerance=1e-3)


for axis, place in enumerate(("first", "middle", "last")):
    add_sum(f"sum-axis-{axis}", f"over the {place} axis of 256x256x256", [axis])
add_sum("sum-all", "of 256x256x256 numbers", [0, 1, 2])
