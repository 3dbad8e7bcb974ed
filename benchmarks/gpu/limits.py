"""What a GPU does at best: bytes that its driver's own copy moves, and products by the library that PyTorch brings."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

import stablexla as sx
from benchmarks.programs.registry import Work

ROUNDS, CALLS = 5, 20
PRODUCTS = {"f32": "float32", "tf32": "float32", "bf16": "bfloat16", "f16": "float16"}


@dataclass(frozen=True)
class GpuLimits:
    """Of one device.

    Attributes:
        bandwidth: bytes a second, read and written together.
        peaks: operations a second by type; those that could be measured.
    """

    bandwidth: float
    peaks: dict[str, float]

    def of(self, work: Work) -> float:
        """The least seconds of a program."""
        moved = (work.read + work.written) / self.bandwidth
        peak = self.peaks.get(work.peak)
        return max(moved, work.operations / peak) if peak else moved

    def words(self) -> dict[str, str]:
        """For the page."""
        rates = ", ".join(f"{kind} {rate / 1e12:.0f} TFLOP/s" for kind, rate in self.peaks.items())
        told = {"copy": f"{self.bandwidth / 1e12:.2f} TB/s read and written, by the driver"}
        return told | ({"products": f"{rates}, by PyTorch"} if rates else {})


def measure_limits(small: bool = False) -> GpuLimits:
    """Takes about a second."""
    return GpuLimits(_bandwidth(1 << 16 if small else 1 << 30), _peaks(64 if small else 8192))


def _bandwidth(count: int) -> float:
    array = sx.gpu.put(np.zeros(count, np.uint8))

    def copy() -> None:
        for _ in range(CALLS):
            array.copy()
        sx.gpu.synchronize()

    copy()
    return 2.0 * count * CALLS / min(_seconds(copy) for _ in range(ROUNDS))


def _peaks(side: int) -> dict[str, float]:
    """Empty without PyTorch, and where it sees no device."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    return {kind: 2.0 * side**3 / _product(torch, kind, side) for kind in PRODUCTS}


def _product(torch: Any, kind: str, side: int) -> float:
    """Seconds of a product of random numbers: zeros take less power, and so less time."""
    torch.backends.cuda.matmul.allow_tf32 = kind == "tf32"
    a, b = (torch.randn(side, side, device="cuda", dtype=getattr(torch, PRODUCTS[kind])) for _ in range(2))

    def multiply() -> None:
        for _ in range(CALLS):
            torch.matmul(a, b)
        torch.cuda.synchronize()

    multiply()
    best = min(_seconds(multiply) for _ in range(ROUNDS)) / CALLS
    torch.backends.cuda.matmul.allow_tf32 = False
    return best


def _seconds(function: Any) -> float:
    start = perf_counter()
    function()
    return perf_counter() - start
