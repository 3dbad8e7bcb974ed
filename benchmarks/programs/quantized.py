"""Products of quantised arrays: bytes that stand for numbers, with zero points, and weights with a scale each.

Other engines have no such types; the same sizes in f32 stand beside them in the table.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from math import prod

import numpy as np

from benchmarks.programs.registry import Array, Program, Work, enter

ACTIVATIONS = "!quant.uniform<i8:f32, 5.0e-2:-9>"
LAYOUT = "dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f]"


@dataclass(frozen=True)
class Quantized(Program):
    """A program of a text, all of whose arguments are bytes.

    Attributes:
        shapes: of its parameters.
        result: elements of its result.
        body: its text.
    """

    shapes: tuple[tuple[int, ...], ...]
    result: int
    body: str
    _: KW_ONLY

    def text(self) -> str:
        return self.body

    def arguments(self, seed: int = 0) -> list[Array]:
        rng = np.random.default_rng(seed)
        return [rng.integers(-127, 128, shape, np.int8) for shape in self.shapes]

    def work(self) -> Work:
        return Work(self.operations, float(sum(map(prod, self.shapes))), float(self.result), self.peak)


def weights(axis: int, count: int) -> str:
    """The type of weights with a scale for each output feature."""
    scales = ", ".join(f"{1e-3 * (1 + i % 7):.4e}:0" for i in range(count))
    return f"!quant.uniform<i8<-127:127>:f32:{axis}, {{{scales}}}>"


def tensor(shape: tuple[int, ...], element: str) -> str:
    return f"tensor<{'x'.join(map(str, shape))}x{element}>"


def add_product(size: int) -> None:
    x, w = tensor((size, size), ACTIVATIONS), tensor((size, size), weights(1, size))
    body = f"""func.func @main(%x: {x}, %w: {w}) -> {x} {{
      %y = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : ({x}, {w}) -> {x}
      return %y : {x}
    }}"""
    summary = f"{size}x{size} by {size}x{size}, bytes with a zero point by bytes with a scale for each column"
    shapes = ((size, size),) * 2
    enter(Quantized(f"quantized-matmul-{size}", summary, shapes, size**2, body, operations=2.0 * size**3, peak="int8"))


def add_network(name: str, size: int, features: tuple[int, ...], windows: tuple[int, ...]) -> None:
    """Convolutions with relu between them: of numbers with a zero point, that is a maximum."""
    lines, parameters, operations = [], [], 0.0
    types = [tensor((1, size, size, n), ACTIVATIONS) for n in features]
    shapes: list[tuple[int, ...]] = [(1, size, size, features[0])]
    zero = f"tensor<{ACTIVATIONS}>"
    for i, window in enumerate(windows):
        inputs, outputs = features[i : i + 2]
        shape = (window, window, inputs, outputs)
        w, pad = tensor(shape, weights(3, outputs)), [window // 2] * 2
        shapes.append(shape)
        parameters.append(f"%w{i}: {w}")
        lines += [
            f"%s{i} = stablehlo.convolution(%x{i}, %w{i}) {LAYOUT}, window = {{pad = [{pad}, {pad}]}} "
            f"{{batch_group_count = 1 : i64, feature_group_count = 1 : i64}} : ({types[i]}, {w}) -> {types[i + 1]}",
            f"%z{i} = stablehlo.broadcast_in_dim %zero, dims = [] : ({zero}) -> {types[i + 1]}",
            f"%x{i + 1} = stablehlo.maximum %s{i}, %z{i} : {types[i + 1]}",
        ]
        operations += 2.0 * size * size * prod(shape)
    last = len(windows)
    body = f"""func.func @main(%x0: {types[0]}, {", ".join(parameters)}) -> {types[last]} {{
      %zero = stablehlo.constant() <{{value = dense<-9> : tensor<i8>}}> : () -> {zero}
      {"".join(line + chr(10) for line in lines)}
      return %x{last} : {types[last]}
    }}"""
    enter(
        Quantized(
            name,
            f"{last} convolution(s) of bytes on {size}x{size}x{features[0]} with relu",
            tuple(shapes),
            size * size * features[-1],
            body,
            operations=operations,
            peak="int8",
        )
    )


add_product(1024)
add_network("quantized-conv-3x3-56", 56, (64, 64), (3,))
add_network("quantized-conv-net", 28, (64, 128, 128, 64, 10), (3, 3, 1, 1))
