"""Quantized graphs as PyTorch's quantization after training makes them. Oracle: eager PyTorch's own arithmetic.

Catches another rounding than PyTorch's, zero points and scales along a wrong dimension, and networks whose products are
not sums of integers.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.ao.quantization.fx._decomposed  # registers the operators
from torch import nn

import stablexla as sx
from tests.interop.torch.running import agrees, compiled

quantized = torch.ops.quantized_decomposed
BOUNDS = {torch.uint8: (0, 255), torch.int8: (-128, 127), torch.int16: (-(2**15), 2**15 - 1), torch.int32: (-99, 99)}


def numbers(*sizes: int) -> torch.Tensor:
    """Return numbers among which are halves between integers, and some far outside of all bounds."""
    made = torch.randint(-700, 700, sizes) / 4
    made.view(-1)[:4] = torch.tensor([0.0, -0.0, 1e9, -1e9])
    return made


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("zero_point", [0, 5])
@pytest.mark.parametrize("narrow", [0, 1])
def test_by_tensor(dtype: torch.dtype, zero_point: int, narrow: int) -> None:
    low, high = BOUNDS[dtype]

    def function(x: torch.Tensor) -> Any:
        q = quantized.quantize_per_tensor(x, 0.7, zero_point, low + narrow, high, dtype)
        return q, quantized.dequantize_per_tensor(q, 0.7, zero_point, low + narrow, high, dtype)

    agrees(function, numbers(9, 37), rtol=0, atol=0)
    agrees(function, numbers(9, 37).bfloat16(), rtol=0, atol=0)


@pytest.mark.parametrize("type_", [torch.float32, torch.float64])
def test_by_tensor_with_parameters_that_are_tensors(type_: torch.dtype) -> None:
    scale, zero_point = torch.tensor([0.3], dtype=type_), torch.tensor([-4], dtype=torch.int64)

    def function(x: torch.Tensor, scale: torch.Tensor, zero_point: torch.Tensor) -> Any:
        q = quantized.quantize_per_tensor.tensor(x, scale, zero_point, -128, 127, torch.int8)
        return q, quantized.dequantize_per_tensor.tensor(q, scale, zero_point, -128, 127, torch.int8)

    agrees(function, numbers(50), scale, zero_point, rtol=0, atol=0)


def test_bounds_that_are_tensors() -> None:
    bounds = [torch.tensor(n) for n in (0.5, 3, -100, 100)]

    def function(x: torch.Tensor, *bounds: torch.Tensor) -> torch.Tensor:
        q: torch.Tensor = quantized.quantize_per_tensor.tensor2(x, *bounds, torch.int8)
        return q

    agrees(function, numbers(50), *bounds, rtol=0, atol=0)


def test_zero_points_that_are_no_integers() -> None:
    q, scales, zeros = torch.randint(-9, 9, (4, 5), dtype=torch.int8), torch.rand(5), torch.rand(5)
    agrees(lambda *x: quantized.dequantize_per_channel(*x, -1, -128, 127, torch.int8), q, scales, zeros)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int32])
def test_by_channel(axis: int, dtype: torch.dtype) -> None:
    low, high = BOUNDS[dtype]
    x = numbers(3, 4, 5)
    scales, zero_points = torch.rand(x.shape[axis]) + 0.1, torch.randint(-9, 9, (x.shape[axis],))

    def function(x: torch.Tensor, scales: torch.Tensor, zero_points: torch.Tensor) -> Any:
        q = quantized.quantize_per_channel(x, scales, zero_points, axis, low, high, dtype)
        without = quantized.dequantize_per_channel(q, scales, None, axis, low, high, dtype)
        halves = quantized.dequantize_per_channel(
            q, scales, zero_points, axis, low, high, dtype, out_dtype=torch.bfloat16
        )
        return q, quantized.dequantize_per_channel(q, scales, zero_points, axis, low, high, dtype), without, halves

    agrees(function, x, scales, zero_points, rtol=1e-6, atol=1e-6)


def test_parameters_that_are_chosen_in_each_call() -> None:
    """By tensor, and by token; the latter PyTorch decomposes."""

    def function(x: torch.Tensor) -> Any:
        scale, zero_point = quantized.choose_qparams.tensor(x, 0, 255, 1e-6, torch.uint8)
        q = quantized.quantize_per_tensor.tensor(x, scale, zero_point, 0, 255, torch.uint8)
        scales, zero_points = quantized.choose_qparams_per_token_asymmetric(x, torch.int8)
        by_token = quantized.quantize_per_token(x, scales, zero_points, -128, 127, torch.int8)
        back = quantized.dequantize_per_token(by_token, scales, zero_points, -128, 127, torch.int8, torch.float32)
        symmetric = [
            quantized.choose_qparams_symmetric.tensor(x, low, low + 255, 1e-6, dtype)
            for low, dtype in ((-128, torch.int8), (0, torch.uint8))
        ]
        return scale, zero_point, q, by_token, back, symmetric

    for x in (torch.randn(6, 40), torch.rand(6, 40) + 3, -torch.rand(6, 40) - 1, torch.zeros(6, 40)):
        agrees(function, x, rtol=1e-6, atol=1e-6)


class Quantized(nn.Module):
    """A product or convolution of bytes by bytes, as the quantizer of PyTorch for x86 leaves it in a graph.

    Args:
        layer: whose weights are quantized, by output feature.
        zero_point: of the input.
    """

    def __init__(self, layer: nn.Linear | nn.Conv2d, zero_point: int) -> None:
        super().__init__()
        weight = layer.weight.detach()
        scales = weight.abs().flatten(1).amax(1) / 127
        zeros = torch.zeros(len(scales), dtype=torch.int64)
        self.layer, self.zero_point = layer, zero_point
        self.register_buffer("scales", scales)
        self.register_buffer("zeros", zeros)
        self.register_buffer("weight", quantized.quantize_per_channel(weight, scales, zeros, 0, -128, 127, torch.int8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = quantized.quantize_per_tensor(x, 0.02, self.zero_point, 0, 255, torch.uint8)
        x = quantized.dequantize_per_tensor(x, 0.02, self.zero_point, 0, 255, torch.uint8)
        w = quantized.dequantize_per_channel(self.weight, self.scales, self.zeros, 0, -128, 127, torch.int8)
        if isinstance(self.layer, nn.Conv2d):
            c = self.layer
            return torch.relu(nn.functional.conv2d(x, w, c.bias, c.stride, c.padding, c.dilation, c.groups))
        return torch.relu(nn.functional.linear(x, w, self.layer.bias))


def sums(program: Any) -> list[str]:
    """Return the types in which the products of a program are summed."""
    text = program.executable.ir("stablehlo")
    return re.findall(r"stablehlo\.(?:dot_general|convolution).*-> tensor<(?:\d+x)*(\w+)>", text)


@pytest.mark.parametrize("zero_point", [0, 110])
@pytest.mark.parametrize("frozen", [False, True])
def test_networks_of_convolutions(zero_point: int, frozen: bool) -> None:
    """Residual sums, pooling, a depthwise one, and a product; small weights are no numbers in the program either."""
    torch.manual_seed(3)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = Quantized(nn.Conv2d(3, 16, 7, 2, 3), zero_point)
            self.second = Quantized(nn.Conv2d(16, 16, 3, 1, 1), 0)
            self.each = Quantized(nn.Conv2d(16, 16, 3, 1, 1, groups=16), zero_point)
            self.last = Quantized(nn.Linear(16, 10), zero_point)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = nn.functional.max_pool2d(self.first(x), 3, 2, 1)
            x = x + self.second(x)
            return self.last(self.each(x).mean((2, 3)))

    network, x = Network().eval(), torch.randn(2, 3, 64, 64)
    program = sx.interop.torch.from_exported(torch.export.export(network, (x,)), freeze=frozen)
    with torch.no_grad():
        torch.testing.assert_close(program(x), network(x), rtol=0.02, atol=0.02)  # another rounding is a quantum
    if frozen:  # else the zero points of weights are known to nobody
        assert sorted(sums(program)) == ["f32", "i32", "i32", "i32"]  # few products of one feature are exact in f32
        assert "-> tensor<16x3x7x7xf32>" not in program.executable.ir("stablehlo")


def test_rows_of_bytes() -> None:
    """A perceptron: nothing but bytes is stored between its layers."""
    torch.manual_seed(4)
    layers = nn.Sequential(*(Quantized(nn.Linear(64, 64), 0) for _ in range(3))).eval()
    x = torch.rand(300, 64) * 5
    program = sx.interop.torch.from_exported(torch.export.export(layers, (x,)), freeze=True)
    with torch.no_grad():
        torch.testing.assert_close(program(x), layers(x), rtol=0.02, atol=0.02)
    calls = re.findall(r"call @contraction.*-> tensor<300x64x(\w+)>", program.executable.ir("kernels"))
    assert calls == ["i8", "i8", "f32"]


def test_products_of_bytes_of_different_signs() -> None:
    x, w = torch.randint(0, 256, (40, 64), dtype=torch.uint8), torch.randint(-128, 128, (64, 24), dtype=torch.int8)
    agrees(lambda x, w: x.int() @ w.int(), x, w)
    (made,) = compiled(torch._int_mm, x, w)
    torch.testing.assert_close(made, x.int() @ w.int())


@pytest.mark.parametrize("config", ["Int8WeightOnlyConfig", "Int8DynamicActivationInt8WeightConfig"])
def test_models_that_torchao_quantized(config: str) -> None:
    torchao = pytest.importorskip("torchao.quantization")
    torch.manual_seed(5)
    model, x = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 32)).eval(), torch.randn(20, 64)
    torchao.quantize_(model, getattr(torchao, config)())
    program = sx.interop.torch.from_exported(torch.export.export(model, (x,), strict=False), freeze=True)
    with torch.no_grad():
        torch.testing.assert_close(program(x), model(x), rtol=1e-4, atol=1e-4)
    assert sums(program) == (["i32", "i32"] if "Dynamic" in config else ["f32", "f32"])
