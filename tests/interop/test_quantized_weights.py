"""Linear layers on quantised weights as torch.ao, torchao, AQT and JAX write them: each is one kernel on the weight.

Oracles: PyTorch on its own modules, XLA:CPU on JAX's functions.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch
from torch import nn

import stablexla as sx
from stablexla.interop import torch as sx_torch

FEATURES, DEPTH, GROUP = 160, 512, 64


class WeightOnlyInt8(nn.Module):
    """int8 by output channel, the scale after the product: torchao's int8 weight-only linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (FEATURES, DEPTH), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(FEATURES) / 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, self.weight.to(dtype=x.dtype)) * self.scales


class WeightOnlyInt4(nn.Module):
    """uint4 packed two to a byte along k, with scales and zero points by group."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(0, 256, (FEATURES, DEPTH // 2), dtype=torch.uint8))
        self.register_buffer("scales", torch.rand(FEATURES, DEPTH // GROUP) / 100)
        self.register_buffer("zeros", torch.randint(0, 16, (FEATURES, DEPTH // GROUP)).float())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        low, high = self.weight & 0xF, self.weight >> 4
        q = torch.stack([low, high], dim=-1).reshape(FEATURES, -1, GROUP)
        w = (q.to(x.dtype) - self.zeros.unsqueeze(-1)) * self.scales.unsqueeze(-1)
        return torch.nn.functional.linear(x, w.reshape(FEATURES, DEPTH))


class DequantizedPerChannel(nn.Module):
    """torch.ao's dequantisation by channel: subtract zero points, then multiply by scales, before the product."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randint(-128, 128, (FEATURES, DEPTH), dtype=torch.int8))
        self.register_buffer("scales", torch.rand(FEATURES) / 100)
        self.register_buffer("zeros", torch.randint(-8, 8, (FEATURES,), dtype=torch.int32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w = (self.weight - self.zeros.view(-1, 1)).to(torch.float32) * self.scales.view(-1, 1)
        return x @ w.t()


@pytest.mark.parametrize("rows", [1, 4, 128])
@pytest.mark.parametrize("module", [WeightOnlyInt8, WeightOnlyInt4, DequantizedPerChannel])
def test_modules_of_torch(module: type[nn.Module], rows: int):
    torch.manual_seed(0)
    layer, x = module(), torch.randn(rows, DEPTH)
    program = sx_torch.from_exported(torch.export.export(layer, (x,)))
    assert [kernel.kind for kernel in program.executable.kernels] == ["contraction"]
    mine, theirs = program(x), layer(x)
    exact = layer.double()(x.double())
    assert (mine - exact).abs().max() <= 2 * (theirs - exact).abs().max() + 1e-6


def dynamic_int8(x: Any, weight: Any, scale: Any) -> Any:
    """AQT: activations are quantised by row, the products of int8 summed in int32."""
    own = jnp.max(jnp.abs(x), -1, keepdims=True) / 127.0
    q = jnp.clip(jnp.round(x / own), -127, 127).astype(jnp.int8)
    sums = jax.lax.dot_general(q, weight, (((1,), (0,)), ((), ())), preferred_element_type=jnp.int32)
    return sums.astype(jnp.float32) * own * scale


def dynamic_int8_in_int32(x: Any, weight: Any, scale: Any) -> Any:
    """The same, of integers that are extended before they are multiplied."""
    own = jnp.max(jnp.abs(x), -1, keepdims=True) / 127.0
    q = jnp.clip(jnp.round(x / own), -127, 127).astype(jnp.int8)
    return (q.astype(jnp.int32) @ weight.astype(jnp.int32)).astype(jnp.float32) * own * scale


def partial_sums_by_group(x: Any, weight: Any, scale: Any) -> Any:
    """AQT with sub-channels: the scale of a group multiplies its sums."""
    groups = (x.shape[1] // GROUP, GROUP)
    q = weight.reshape(*groups, -1).astype(x.dtype)
    return jnp.sum(jnp.einsum("mgk,gkn->gmn", x.reshape(-1, *groups), q) * scale[:, None, :], 0)


def stored(element: Any, rows: int, tokens: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(0)
    weight = rng.integers(-8, 8, (DEPTH, FEATURES)).astype(element)
    return rng.standard_normal((tokens, DEPTH), np.float32), weight, rng.random((rows, FEATURES), np.float32) / 100


@pytest.mark.parametrize(
    ("function", "element", "rows", "kinds"),
    [
        (dynamic_int8, np.int8, 1, {"row", "contraction"}),
        (dynamic_int8_in_int32, np.int8, 1, {"row", "contraction"}),
        (partial_sums_by_group, np.int8, DEPTH // GROUP, {"contraction", "reduce"}),
        (partial_sums_by_group, ml_dtypes.int4, DEPTH // GROUP, {"contraction", "reduce"}),
    ],
)
@pytest.mark.parametrize("tokens", [3, 128])
def test_functions_of_jax(function: Any, element: Any, rows: int, kinds: set[str], tokens: int):
    arguments = stored(element, rows, tokens)
    jitted = jax.jit(function)
    executable = sx.compile(jitted.lower(*arguments).as_text())
    assert {kernel.kind for kernel in executable.kernels} == kinds
    np.testing.assert_allclose(executable(*arguments), jitted(*arguments), rtol=1e-4, atol=1e-5)
    functions = [line for line in executable.ir("kernels").splitlines() if "func.func private" in line]
    assert not any(f"-> tensor<{DEPTH}x{FEATURES}" in line for line in functions)  # the weight is not stored again
