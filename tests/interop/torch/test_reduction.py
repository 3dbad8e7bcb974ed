"""Reductions, running ones and softmax, in sizes and with numbers that PyTorch's own samples lack."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from typing import Any

import pytest
import torch

from tests.interop.torch.running import agrees, compiled

Function = Callable[[torch.Tensor], Any]
REDUCTIONS: dict[str, Function] = {
    "sum": lambda x: x.sum(0),
    "mean": lambda x: x.mean((0, 1), keepdim=True),
    "prod": lambda x: x.prod(1),
    "amax": lambda x: x.amax(0),
    "max": lambda x: x.max(1),
    "min": lambda x: x.min(0),
    "argmax": torch.argmax,
    "argmin": lambda x: x.argmin(1, keepdim=True),
    "norms": lambda x: [torch.linalg.vector_norm(x, p, 0) for p in (0, 0.5, 1, 2, 3, inf, -inf)],
    "logsumexp": lambda x: x.logsumexp(1),
    "softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x.cumprod(0),
    "cummax": lambda x: x.cummax(1),
    "cummin": lambda x: x.cummin(0),
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "trace": torch.trace,
    "nansum": lambda x: x.nansum(1),
    "count_nonzero": lambda x: x.count_nonzero(0),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_odd_numbers_in_transposed_rows(name: str) -> None:
    x = torch.randn(70, 37)
    x[3, 5], x[4, 5], x[40, 1], x[40, 2], x[7, 7], x[8] = nan, nan, inf, -inf, 0, -inf
    x[20] = x[19]
    agrees(REDUCTIONS[name], x.T, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", sorted(set(REDUCTIONS) - {"amax", "max", "min", "argmax", "argmin"}))
def test_no_elements(name: str) -> None:
    def function(x: torch.Tensor) -> Any:
        return torch.linalg.vector_norm(x, 2, 0) if name == "norms" else REDUCTIONS[name](x)

    agrees(function, torch.ones(0, 3))
    agrees(function, torch.ones(3, 0))


def test_tensors_without_dimensions() -> None:
    def function(x: torch.Tensor) -> Any:
        return [
            x.sum(0), x.max(0), x.argmin(), x.cummax(0), x.softmax(0), x.logsumexp(0), x.var(correction=0),
            x.cumsum(-1), torch.linalg.vector_norm(x, 3), x.any(), x.prod(), x.mean(),
        ]  # fmt: skip

    agrees(function, torch.tensor(-2.5))


@pytest.mark.parametrize("size", [7, 1_000, 100_003])
def test_long_rows(size: int) -> None:
    """Sums in f32 as exact as PyTorch's, in one block and in many."""

    def function(x: torch.Tensor) -> Any:
        return [x.sum(1), x.cumsum(1)[:, -1], x.softmax(1), x.logsumexp(1), x.var(1), x.cummax(1), x.argmax(1)]

    agrees(function, torch.rand(3, size) + 0.5, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore:var")
def test_moments_with_more_correction_than_elements() -> None:
    x = torch.randn(40, 3) + 1000
    agrees(
        lambda x: [*torch.std_mean(x, dim=0, correction=2), x.var(1, correction=3), x.var((0, 1), correction=200)], x
    )
    agrees(lambda x: [*torch.var_mean(x, dim=0), x.std()], torch.complex(x, x.flip(0)))


def test_halves_are_summed_in_f32() -> None:
    x = torch.rand(4000).bfloat16()
    total, middle, last = compiled(lambda x: [x.sum(), x.mean(), x.cumsum(0)[-1]], x)
    assert total == x.double().sum().bfloat16() == last
    assert middle == x.double().mean().bfloat16()


def test_integers_wrap_and_widen() -> None:
    x = torch.tensor([[2**31 - 1, 5, -(2**31)], [7, -9, 2**30]], dtype=torch.int32)
    agrees(lambda x: [x.sum(), x.prod(1), x.cumprod(1), x.sum(0, dtype=torch.int32), x.max(0), x.amin(), x.any(1)], x)


def test_a_row_of_minus_infinity_has_no_softmax() -> None:
    x = torch.tensor([[-inf, -inf], [0, -inf]])
    agrees(lambda x: [x.softmax(1), torch.ops.aten._safe_softmax(x, 1), x.logsumexp(1)], x)


def test_distances_of_many_rows() -> None:
    """More than 25 rows are multiplied, where the caller does not forbid it."""
    x, y = torch.randn(2, 30, 5), torch.randn(2, 40, 5)
    agrees(lambda x, y: [torch.cdist(x, y, p) for p in (0.5, 1.0, 2.0, inf)], x, y, rtol=1e-4, atol=1e-4)
    exact = compiled(lambda x: torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist"), x)[0]
    assert (exact.diagonal(dim1=1, dim2=2) == 0).all()


@pytest.mark.parametrize("rows", [2, 3, 150])
def test_distances_of_pairs(rows: int) -> None:
    x = torch.randn(rows, 3)
    agrees(torch.nn.functional.pdist, x, rtol=1e-5, atol=1e-5)

    def gradient(x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        return torch.autograd.grad(torch.nn.functional.pdist(x, 3).sum(), x)[0]

    agrees(gradient, x, rtol=1e-4, atol=1e-5)


def test_histograms_leave_out_nan_and_what_is_outside() -> None:
    x = torch.tensor([0.0, 1, 2, 3, 3.5, -1, nan, 1.5, 0.75, inf])
    agrees(lambda x: torch.histogram(x, 4, range=(0.0, 3.0), density=True), x)
    agrees(lambda x: torch.histc(x, 4, 0, 3), x)
    agrees(lambda x, e: torch.histogram(x, e), x, torch.tensor([0.0, 0.5, 3.0, 3.5]))
