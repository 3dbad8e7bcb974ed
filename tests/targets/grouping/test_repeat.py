"""Cheap operations are repeated for each reader, and are one again inside a kernel. Oracle: numpy, and the kernels."""

from __future__ import annotations

import numpy as np

import stablexla as sx


def kernels_of(text: str) -> list[str]:
    return [line for line in sx.compile(text).ir("kernels").splitlines() if "call @" in line]


def normalised(n: int) -> str:
    """(x - mean) / variance of columns: the difference has two readers."""
    t, row = f"tensor<{n}x512xf32>", "tensor<512xf32>"
    total = f"applies stablehlo.add across dimensions = [0] : ({t}, tensor<f32>) -> {row}"
    spread = f"dims = [1] : ({row}) -> {t}"
    return f"""func.func public @main(%x: {t}) -> {t} {{
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.reduce(%x init: %zero) {total}
      %1 = stablehlo.broadcast_in_dim %0, {spread}
      %2 = stablehlo.subtract %x, %1 : {t}
      %3 = stablehlo.multiply %2, %2 : {t}
      %4 = stablehlo.reduce(%3 init: %zero) {total}
      %5 = stablehlo.broadcast_in_dim %4, {spread}
      %6 = stablehlo.divide %2, %5 : {t}
      return %6 : {t}
    }}"""


def test_a_difference_is_not_written_down() -> None:
    rows = 200
    x = np.random.default_rng(0).standard_normal((rows, 512)).astype(np.float32)
    y = x - x.sum(0)
    np.testing.assert_allclose(sx.compile(normalised(rows))(x), y / (y * y).sum(0), rtol=2e-5, atol=1e-7)
    assert sum(f"-> tensor<{rows}x512xf32>" in line for line in kernels_of(normalised(rows))) == 1


def test_copies_in_one_kernel_are_one() -> None:
    t = "tensor<400x512xf32>"
    text = f"""func.func public @main(%x: {t}, %y: {t}) -> {t} {{
      %0 = stablehlo.add %x, %x : {t}
      %1 = stablehlo.exponential %0 : {t}
      %2 = stablehlo.multiply %0, %y : {t}
      %3 = stablehlo.subtract %1, %2 : {t}
      return %3 : {t}
    }}"""
    assert sx.compile(text).ir("kernels").count("arith.addf") == 1


def test_copies_that_two_kernels_read_are_one_result() -> None:
    t, square = "tensor<400x512xf32>", "tensor<512x512xf32>"
    text = f"""func.func public @main(%x: {t}, %a: {square}, %b: {square}) -> ({t}, {t}) {{
      %0 = stablehlo.exponential %x : {t}
      %1 = stablehlo.add %0, %0 : {t}
      %2 = stablehlo.dot %1, %a : ({t}, {square}) -> {t}
      %3 = stablehlo.dot %1, %b : ({t}, {square}) -> {t}
      return %2, %3 : {t}, {t}
    }}"""
    (made,) = [line for line in kernels_of(text) if "call @loop" in line]
    assert made.split(" -> ")[1] == t
    rng = np.random.default_rng(0)
    x, *factors = (rng.standard_normal(s).astype(np.float32) for s in ((400, 512), (512, 512), (512, 512)))
    for got, factor in zip(sx.compile(text)(x, *factors), factors, strict=True):
        np.testing.assert_allclose(got, 2 * np.exp(x) @ factor, rtol=1e-4, atol=2e-3)


def test_a_reduction_over_one_element_joins_its_neighbours() -> None:
    text = """func.func public @main(%x: tensor<8x1xf32>) -> tensor<8xf32> {
      %zero = stablehlo.constant dense<0.0> : tensor<f32>
      %0 = stablehlo.exponential %x : tensor<8x1xf32>
      %1 = stablehlo.reduce(%0 init: %zero) applies stablehlo.add across dimensions = [1]
        : (tensor<8x1xf32>, tensor<f32>) -> tensor<8xf32>
      %2 = stablehlo.negate %1 : tensor<8xf32>
      return %2 : tensor<8xf32>
    }"""
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(8, 1)
    np.testing.assert_allclose(sx.compile(text)(x), -np.exp(x[:, 0]), rtol=1e-6)
    assert len(kernels_of(text)) == 1
