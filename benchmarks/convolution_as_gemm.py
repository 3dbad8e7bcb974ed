"""Whether convolutions on CPUs could go through the driver of packed GEMM: a lower bound of what that would cost.

    python -m benchmarks.convolution_as_gemm

Each layer is timed beside the `dot_general` of its implicit GEMM, [images * output pixels, window * input features] by
[window * input features, output features], whose lhs already lies in memory as a matrix (im2col, which is not timed).
Packing windows from the image reads the same numbers from more places, so that the driver could not be faster than
that. Ratios above 1: the convolution is faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import exp, log
from statistics import median

import numpy as np

import stablexla as sx

ROUNDS = 15


@dataclass(frozen=True)
class Layer:
    """A layer of ResNet-50: images of size * size, a square window, padded to `size / stride` outputs."""

    images: int
    size: int
    window: int
    stride: int
    inputs: int
    outputs: int

    @property
    def name(self) -> str:
        return (
            f"{self.images} x {self.size}x{self.size}x{self.inputs}, "
            f"{self.window}x{self.window} by {self.stride}, {self.outputs} features"
        )

    @property
    def gemm(self) -> tuple[int, int, int]:
        """M, N and K of the implicit GEMM."""
        pixels = self.images * (self.size // self.stride) ** 2
        return pixels, self.outputs, self.window * self.window * self.inputs


LAYERS = [
    Layer(images, *layer)
    for images in (1, 8)
    for layer in (
        (224, 7, 2, 3, 64),
        (56, 1, 1, 256, 64),
        (56, 3, 1, 64, 64),
        (28, 3, 1, 128, 128),
        (28, 3, 2, 256, 256),
        (14, 3, 1, 256, 256),
        (7, 3, 1, 512, 512),
    )
]


def convolution(layer: Layer) -> tuple[sx.XlaComputation, list[np.ndarray]]:
    """Return a layer in NHWC with weights in HWIO, and numbers for it."""
    b = sx.XlaBuilder("convolution")
    shapes = [
        (layer.images, layer.size, layer.size, layer.inputs),
        (layer.window, layer.window, layer.inputs, layer.outputs),
    ]
    x, weights = (b.parameter(i, sx.f32[shape]) for i, shape in enumerate(shapes))
    numbers = sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC")
    total = max((layer.size // layer.stride - 1) * layer.stride + layer.window - layer.size, 0)
    padding = [(total // 2, total - total // 2)] * 2
    sx.conv_general_dilated(x, weights, [layer.stride] * 2, padding, None, None, numbers)
    return b.build(), _numbers(shapes)


def matrix_product(layer: Layer) -> tuple[sx.XlaComputation, list[np.ndarray]]:
    """Return the layer's implicit GEMM, and numbers for it."""
    m, n, k = layer.gemm
    b = sx.XlaBuilder("gemm")
    x, weights = b.parameter(0, sx.f32[m, k]), b.parameter(1, sx.f32[k, n])
    sx.dot_general(x, weights, sx.DotDimensionNumbers((1,), (0,)))
    return b.build(), _numbers([(m, k), (k, n)])


def _numbers(shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


def _seconds(call: Callable[[], object], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def measure(layer: Layer) -> tuple[float, float]:
    """Return the seconds of a convolution and of its product, medians of rounds that take turns."""
    calls: list[Callable[[], object]] = []
    for computation, arguments in (convolution(layer), matrix_product(layer)):
        function = sx.compile(computation)
        calls.append(partial(function, *arguments))
    counts = [max(1, round(0.02 / _seconds(call, 2))) for call in calls]
    times = [[_seconds(call, count) for call, count in zip(calls, counts, strict=True)] for _ in range(ROUNDS)]
    return median(t for t, _ in times), median(t for _, t in times)


def main() -> None:
    """Print a table of layers, and the geometric mean."""
    print("| layer | convolution, ms | product, ms | product / convolution |\n|---|---:|---:|---:|")
    ratios = []
    for layer in LAYERS:
        own, product = measure(layer)
        ratios.append(product / own)
        print(f"| {layer.name} | {own * 1e3:.2f} | {product * 1e3:.2f} | {ratios[-1]:.2f} |", flush=True)
    print(f"| geometric mean | | | {exp(sum(map(log, ratios)) / len(ratios)):.2f} |")


if __name__ == "__main__":
    main()
