"""A network of PyTorch, exported, compiled and compared: python examples/torch_module.py

Needs torch: pip install 'stablexla[torch]'.
"""

from __future__ import annotations

import argparse
from time import perf_counter

import torch
from torch import nn

from stablexla.interop import torch as sx_torch


class Block(nn.Module):
    """Two convolutions and a skip."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.skip = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.skip(x) + self.second_norm(self.second(y)))


def network() -> nn.Module:
    """A small residual network for images of 32 by 32."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Block(16, 16, 1),
        Block(16, 32, 2),
        Block(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Compiles a network of PyTorch and compares the two.")
    parser.add_argument("--batch", type=int, default=8, metavar="N", help="images at once (default: 8)")
    batch = parser.parse_args().batch
    torch.manual_seed(0)
    module = network().eval()
    images = torch.randn(batch, 3, 32, 32)
    start = perf_counter()
    program = sx_torch.compile(module, (images,))
    print(f"exported and compiled in {perf_counter() - start:.1f} s: {len(program.executable.kernels)} kernels")

    with torch.no_grad():
        wanted = module(images)
        result = program(images)
        print(f"largest difference from PyTorch: {(result - wanted).abs().max():.2e} in {wanted.abs().max():.2f}")
        for name, run in (("PyTorch", module), ("stablexla", program)):
            times = []
            for _ in range(20):
                start = perf_counter()
                run(images)
                times.append(perf_counter() - start)
            print(f"{name:>10}: {1e3 * min(times):.2f} ms")


if __name__ == "__main__":
    main()
