"""How long it takes to make StableHLO of modules of PyTorch, step by step: `python -m benchmarks.torch_export`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from stablexla import compile as compile_program
from stablexla.interop import torch as sx_torch


class Bottleneck(nn.Module):
    """A block of ResNet-50."""

    def __init__(self, features: int) -> None:
        super().__init__()
        middle = features // 4
        self.layers = nn.Sequential(
            *(nn.Conv2d(features, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(inplace=True)),
            *(nn.Conv2d(middle, middle, 3, padding=1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(inplace=True)),
            *(nn.Conv2d(middle, features, 1, bias=False), nn.BatchNorm2d(features)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu_(self.layers(x) + x)


class Layer(nn.Module):
    """A layer of a transformer, as in GPT-2."""

    def __init__(self, features: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(features) for _ in range(2))
        self.project, self.out = nn.Linear(features, 3 * features), nn.Linear(features, features)
        self.wide = nn.Sequential(nn.Linear(features, 4 * features), nn.GELU(), nn.Linear(4 * features, features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.project(self.norms[0](x)).chunk(3, -1)
        )
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.wide(self.norms[1](x))


MODULES: dict[str, Callable[[], tuple[nn.Module, torch.Tensor]]] = {
    "16 blocks of a residual network": lambda: (
        nn.Sequential(*(Bottleneck(256) for _ in range(16))),
        torch.ones(1, 256, 14, 14),
    ),
    "12 layers of a transformer": lambda: (nn.Sequential(*(Layer(768, 12) for _ in range(12))), torch.ones(1, 64, 768)),
}


def timed(function: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """Return the function's result and its seconds."""
    start = time.perf_counter()
    result = function(*args)
    return result, time.perf_counter() - start


def row(name: str) -> str:
    """Return the table's row of a module."""
    module, x = MODULES[name]()
    exported, export = timed(torch.export.export, module.eval(), (x,))
    (_, text), lower = timed(sx_torch._lowered, exported)
    _, whole = timed(sx_torch._decomposed, exported)
    _, compiled = timed(compile_program, text)
    return f"| {name} | {export:.1f} | {lower:.1f} | {whole:.1f} | {compiled:.1f} |"


def main() -> None:
    """Print the table."""
    sx_torch.compile(nn.Linear(2, 2), (torch.ones(1, 2),))  # imports
    print("| module | `torch.export` | to StableHLO | one trace of the whole graph | compilation |")
    print("|---|---:|---:|---:|---:|")
    for name in MODULES:
        print(row(name), flush=True)


if __name__ == "__main__":
    main()
