"""The programs that are measured on a GPU, by name, at their full size or at one that a simulated GPU can take.

Inputs and results are much larger than the caches of a GPU, so that what is bound by memory is measured at its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from math import prod

import numpy as np

import stablexla as sx
from benchmarks.programs.registry import Array, Built, Program, Work, size

NARROW = {"bf16": 2e-2, "f16": 5e-3}
"""Of the largest magnitude: results are rounded to so few bits, and sums made in another order."""


@dataclass(frozen=True)
class Written(Program):
    """A program that is given as StableHLO.

    Attributes:
        module: the text.
        shapes: of its parameters.
        result: of its result.
    """

    module: str
    shapes: tuple[sx.Shape, ...]
    result: sx.Shape
    _: KW_ONLY

    def text(self) -> str:
        return self.module

    def arguments(self, seed: int = 0) -> list[Array]:
        rng = np.random.default_rng(seed)
        return [rng.standard_normal(s.dimensions, np.float32).astype(s.element_type.dtype) for s in self.shapes]

    def work(self) -> Work:
        return Work(self.operations, float(sum(map(size, self.shapes))), float(size(self.result)), self.peak)


def programs(small: bool = False) -> dict[str, Program]:
    """All of them by name."""
    made: list[Program] = [*_memory(small), *_products(small), *_attention(small), *_convolutions(small)]
    return {program.name: program for program in made}


def _built(
    name: str,
    summary: str,
    shapes: list[sx.Shape],
    build: Callable[..., sx.XlaOp],
    family: str,
    *,
    operations: float = 0,
    peak: str = "f32",
    tolerance: float | None = None,
) -> Program:
    if tolerance is None:
        tolerance = NARROW.get(str(shapes[0].element_type), 1e-4)
    return Built(
        name,
        summary,
        tuple(shapes),
        build,
        operations=operations,
        peak=peak,
        tolerance=tolerance,
        family=family,
        group="gpu",
    )


# ---- bound by memory ------------------------------------------------------------------------------------------------


def _memory(small: bool) -> list[Program]:
    rows, columns = (64, 128) if small else (16384, 4096)
    side = 64 if small else 8192
    heads = (2, 16, 4, 8) if small else (32, 1024, 16, 128)
    matrix, half = sx.f32[rows, columns], sx.bf16[rows, columns]
    family = "bound by memory"
    text = f"{rows} x {columns}"
    return [
        _built("negate", f"of {text}, f32: a copy", [matrix], sx.neg, family),
        _built("chain", f"exp(-x^2) tanh(y) + x, {text}, f32", [matrix, matrix], _chain, family),
        _built("chain-bf16", f"the same, {text}, bf16", [half, half], _chain, family),
        _built("softmax", f"of the rows of {text}, f32", [matrix], _softmax, family),
        _built("softmax-bf16", f"of the rows of {text}, bf16, inside f32", [half], _in_f32(_softmax), family),
        _built("layer-norm", f"of the rows of {text}, f32", [matrix, *[sx.f32[columns]] * 2], _layer_norm, family),
        _built(
            "layer-norm-bf16",
            f"of the rows of {text}, bf16, inside f32",
            [half, *[sx.bf16[columns]] * 2],
            _in_f32(_layer_norm),
            family,
        ),
        _built("sum-rows", f"{text} along the last dimension, f32", [matrix], _sum(1), family),
        _built("sum-columns", f"{text} along the first dimension, f32", [matrix], _sum(0), family),
        _built("sum-all", f"of {text} numbers, f32", [matrix], _sum(0, 1), family, tolerance=1e-3),
        _built("transpose", f"of {side} x {side}, f32", [sx.f32[side, side]], _turn(1, 0), family),
        _built(
            "transpose-heads",
            f"{heads} with the middle ones exchanged, bf16",
            [sx.bf16[heads]],
            _turn(0, 2, 1, 3),
            family,
        ),
        _built("cumsum", f"along the rows of {text}, f32", [matrix], _cumsum, family, tolerance=1e-3),
    ]


def _chain(x: sx.XlaOp, y: sx.XlaOp) -> sx.XlaOp:
    return sx.exp(-(x * x)) * sx.tanh(y) + x


def _softmax(x: sx.XlaOp) -> sx.XlaOp:
    largest = sx.reduce(x, x.builder.constant(-np.inf, "f32"), sx.max, (1,))
    powers = sx.exp(sx.sub(x, largest, broadcast_dimensions=(0,)))
    return sx.div(powers, _sum(1)(powers), broadcast_dimensions=(0,))


def _layer_norm(x: sx.XlaOp, scale: sx.XlaOp, offset: sx.XlaOp) -> sx.XlaOp:
    count = float(x.shape.dimensions[1])
    centred = sx.sub(x, _sum(1)(x) / count, broadcast_dimensions=(0,))
    normal = sx.mul(centred, sx.rsqrt(_sum(1)(centred * centred) / count + 1e-5), broadcast_dimensions=(0,))
    return sx.add(sx.mul(normal, scale, broadcast_dimensions=(1,)), offset, broadcast_dimensions=(1,))


def _in_f32(function: Callable[..., sx.XlaOp]) -> Callable[..., sx.XlaOp]:
    """Computes on f32, and gives the first argument's type back."""

    def build(*arguments: sx.XlaOp) -> sx.XlaOp:
        wide = [sx.convert_element_type(x, sx.f32) for x in arguments]
        return sx.convert_element_type(function(*wide), arguments[0].shape.element_type)

    return build


def _sum(*axes: int) -> Callable[[sx.XlaOp], sx.XlaOp]:
    return lambda x: sx.reduce(x, x.builder.constant(0.0), sx.add, axes)


def _turn(*order: int) -> Callable[[sx.XlaOp], sx.XlaOp]:
    return lambda x: sx.transpose(x, order)


def _cumsum(x: sx.XlaOp) -> sx.XlaOp:
    columns = x.shape.dimensions[1]
    zero = x.builder.constant(0.0)
    return sx.reduce_window_with_general_padding(
        x, zero, sx.add, (1, columns), None, None, None, ((0, 0), (columns - 1, 0))
    )


# ---- products -------------------------------------------------------------------------------------------------------


def _products(small: bool) -> list[Program]:
    n = 64 if small else 4096
    made = [_product(f"matmul-{kind}", kind, (n, n, n)) for kind in ("f32", "tf32", "bf16", "f16")]
    large = 128 if small else 8192
    made.append(_product("matmul-bf16-large", "bf16", (large, large, large)))
    made.append(_product("matvec-bf16", "bf16", (1, large, large)))
    made.append(_product("matmul-skinny-bf16", "bf16", (8, large, large)))
    return [*made, _dense(n)]


def _product(name: str, kind: str, sizes: tuple[int, int, int]) -> Program:
    """One product, whose sums are in f32; `tf32` is f32 with factors rounded to 10 bits, as an algorithm asks."""
    m, n, k = sizes
    element = "f32" if kind == "tf32" else kind
    a, b, out = (f"tensor<{x}x{y}x{element}>" for x, y in ((m, k), (k, n), (m, n)))
    algorithm = (
        ", algorithm = #stablehlo.dot_algorithm<lhs_precision_type = tf32, rhs_precision_type = tf32, "
        "accumulation_type = f32, lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, "
        "allow_imprecise_accumulation = false>"
    )
    dims = "#stablehlo.dot<lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [0]>"
    precise = "precision_config = [#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]"
    text = f"""module @{name.replace("-", "_")} {{
  func.func public @main(%a: {a}, %b: {b}) -> {out} {{
    %0 = "stablehlo.dot_general"(%a, %b) {{dot_dimension_numbers = {dims},
      {precise if kind != "tf32" else algorithm[2:]}}} : ({a}, {b}) -> {out}
    return %0 : {out}
  }}
}}
"""
    kinds = sx.Shape(element, ()).element_type
    shapes = (sx.Shape(kinds, (m, k)), sx.Shape(kinds, (k, n)))
    tolerance = {"tf32": 2e-3, **NARROW}.get(kind, 1e-4)
    return Written(
        name,
        f"{m} x {k} by {k} x {n}, {kind}",
        text,
        shapes,
        sx.Shape(kinds, (m, n)),
        operations=2.0 * m * n * k,
        peak=kind,
        tolerance=tolerance,
        family="products",
        group="gpu",
    )


def _dense(n: int) -> Program:
    def build(x: sx.XlaOp, w: sx.XlaOp, bias: sx.XlaOp) -> sx.XlaOp:
        product = sx.dot(x, w, preferred_element_type=sx.f32)
        moved = sx.add(product, sx.convert_element_type(bias, sx.f32), broadcast_dimensions=(1,))
        return sx.convert_element_type(sx.max(moved, 0.0), sx.bf16)

    shapes = [sx.bf16[n, n], sx.bf16[n, n], sx.bf16[n]]
    return _built(
        "dense-bf16", f"relu(x w + b), {n}, bf16", shapes, build, "products", operations=2.0 * n**3, peak="bf16"
    )


# ---- attention ------------------------------------------------------------------------------------------------------


def _attention(small: bool) -> list[Program]:
    sizes = (1, 2, 64, 32) if small else (4, 16, 2048, 64)
    return [_attend("attention-bf16", sizes, "bf16"), _attend("attention-f32", sizes, "f32")]


def _attend(name: str, sizes: tuple[int, int, int, int], kind: str) -> Program:
    """softmax(q k' / sqrt(d)) v, by batch and head."""
    *outer, length, depth = sizes
    shape = sx.Shape(sx.Shape(kind, ()).element_type, sizes)

    def build(q: sx.XlaOp, k: sx.XlaOp, v: sx.XlaOp) -> sx.XlaOp:
        batch = ((0, 1), (0, 1))
        scores = (
            sx.dot_general(q, k, sx.DotDimensionNumbers((3,), (3,), *batch), preferred_element_type=sx.f32) / depth**0.5
        )
        largest = sx.reduce(scores, q.builder.constant(-np.inf, "f32"), sx.max, (3,))
        powers = sx.exp(sx.sub(scores, largest, broadcast_dimensions=(0, 1, 2)))
        shares = sx.div(
            powers, sx.reduce(powers, q.builder.constant(0.0), sx.add, (3,)), broadcast_dimensions=(0, 1, 2)
        )
        shares = sx.convert_element_type(shares, shape.element_type)
        made = sx.dot_general(shares, v, sx.DotDimensionNumbers((3,), (2,), *batch), preferred_element_type=sx.f32)
        return sx.convert_element_type(made, shape.element_type)

    operations = 4.0 * prod(outer) * length * length * depth
    return _built(name, f"{sizes}, {kind}", [shape] * 3, build, "attention", operations=operations, peak=kind)


# ---- convolutions ---------------------------------------------------------------------------------------------------


def _convolutions(small: bool) -> list[Program]:
    images, side, channels = (1, 8, 16) if small else (64, 56, 128)
    return [
        _convolve("conv-3x3-f32", images, side, channels, "f32"),
        _convolve("conv-3x3-bf16", images, side, channels, "bf16"),
    ]


def _convolve(name: str, images: int, side: int, channels: int, kind: str) -> Program:
    """3 x 3 with the same size around it, channels last."""
    element = sx.Shape(kind, ()).element_type
    shapes = [sx.Shape(element, (images, side, side, channels)), sx.Shape(element, (3, 3, channels, channels))]
    numbers = sx.ConvDimensionNumbers.of("NHWC", "HWIO", "NHWC")

    def build(x: sx.XlaOp, w: sx.XlaOp) -> sx.XlaOp:
        return sx.conv_with_general_dimensions(x, w, (1, 1), "SAME", numbers)

    operations = 2.0 * images * side * side * 9 * channels * channels
    summary = f"{images} x {side} x {side} x {channels}, {kind}"
    return _built(name, summary, shapes, build, "convolutions", operations=operations, peak=kind)
