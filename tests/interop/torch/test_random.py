"""Random numbers of PyTorch's operators: distributions, seeds and loops. Numbers are not eager PyTorch's."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, inf, pi, sqrt, tan
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.decompositions import core_decompositions
from stablexla.interop.torch.dynamo import backend

aten = torch.ops.aten
COUNT = 40_000


def compiled(function: Callable[..., Any], *inputs: torch.Tensor) -> Callable[[], torch.Tensor]:
    """Return what draws: the first result of a function's executable."""
    functional = torch.func.functionalize(function)
    graph = make_fx(functional, decomposition_table=core_decompositions(), tracing_mode="fake")(*inputs)
    made = CompiledGraph(graph, inputs)
    return lambda: made(inputs)[0]


def x(value: float = 0.0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full((COUNT,), value, dtype=dtype)


def is_drawn(call: Callable[[], torch.Tensor], mean: float, variance: float, low: float, high: float) -> torch.Tensor:
    """Check moments within five standard errors (of the variance, 10%), bounds, and seeds; return the numbers."""
    torch.manual_seed(11)
    first, second = call(), call()
    torch.manual_seed(11)
    assert torch.equal(first, call())
    assert not torch.equal(first, second)
    numbers = first.double()
    assert abs(numbers.mean() - mean) < 5 * sqrt(variance / COUNT) + 1e-12
    assert abs(numbers.var() - variance) < 0.1 * variance
    assert numbers.min() >= low
    assert numbers.max() <= high
    return first


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_uniform_and_normal_numbers(dtype: torch.dtype) -> None:
    drawn = is_drawn(compiled(lambda: torch.rand(COUNT, dtype=dtype)), 0.5 - torch.finfo(dtype).eps / 4, 1 / 12, 0, 1)
    assert drawn.dtype is dtype
    assert drawn.max() < 1
    normal = is_drawn(compiled(lambda: torch.randn(COUNT, dtype=dtype)), 0, 1, -9, 9)
    assert abs((normal.abs() > 1.96).double().mean() - 0.05) < 0.006
    assert abs((normal.double() ** 3).mean()) < 0.1


@pytest.mark.parametrize(
    ("draw", "mean", "variance", "low", "high"),
    [
        (lambda: x().uniform_(-1, 3), 1, 16 / 12, -1, 3),
        (lambda: x().normal_(2, 3), 2, 9, -30, 30),
        (lambda: torch.normal(x(1), x(2)), 1, 4, -20, 20),
        (lambda: torch.normal(x(1), 2.0), 1, 4, -20, 20),
        (lambda: torch.normal(1.0, x(2)), 1, 4, -20, 20),
        (lambda: torch.normal(1.0, 2.0, (COUNT,)), 1, 4, -20, 20),
        (lambda: x().exponential_(2), 1 / 2, 1 / 4, 1e-9, 10),
        (lambda: x().log_normal_(0, 0.5), exp(0.125), (exp(0.25) - 1) * exp(0.25), 0, 20),
        (lambda: x().geometric_(0.25), 4, 12, 1, 100),
        (lambda: x(0, torch.int32).geometric_(0.25), 4, 12, 1, 100),
        (lambda: torch.randint(3, 7, (COUNT,)), 4.5, 15 / 12, 3, 6),
        (lambda: torch.randint_like(x(), 5), 2, 2, 0, 4),
        (lambda: torch.randint_like(x(), -2, 3), 0, 2, -2, 2),
        (lambda: torch.randint(-(2**40), 2**40, (COUNT,)), 0, 2**80 / 3, -(2**40), 2**40),
        (lambda: x(0, torch.uint8).random_(), 127.5, 256**2 / 12, 0, 255),
        (lambda: x(0, torch.int64).random_(10), 4.5, 99 / 12, 0, 9),
        (lambda: torch.bernoulli(x(0.3)), 0.3, 0.21, 0, 1),
        (lambda: x().bernoulli_(0.3), 0.3, 0.21, 0, 1),
        (lambda: x().bernoulli_(x(0.3, torch.float64)), 0.3, 0.21, 0, 1),
        (lambda: aten.native_dropout(x(1), 0.2, True)[0], 1, 0.25, 0, 1.25),
        (lambda: torch.randperm(COUNT), (COUNT - 1) / 2, COUNT**2 / 12, 0, COUNT - 1),
        (lambda: torch.poisson(x(3)), 3, 3, 0, 30),
        (lambda: torch.poisson(x(1000, torch.float64)), 1000, 1000, 700, 1300),
        (lambda: torch.binomial(x(5), x(0.7)), 3.5, 1.05, 0, 5),
        (lambda: torch.binomial(x(400), x(0.7)), 280, 84, 200, 360),
        (lambda: torch._standard_gamma(x(0.5)), 0.5, 0.5, 1e-38, 20),
        (lambda: torch._standard_gamma(x(8)), 8, 8, 0, 40),
        (lambda: torch.multinomial(torch.tensor([0, 1, 3.0, 0]), COUNT, True), 1.75, 0.1875, 1, 2),
    ],
)
def test_moments(draw: Callable[[], torch.Tensor], mean: float, variance: float, low: float, high: float) -> None:
    is_drawn(compiled(draw), mean, variance, low, high)


def test_cauchy_numbers_have_quartiles() -> None:
    numbers = compiled(lambda: x().cauchy_(1, 2))()
    for part in (0.1, 0.25, 0.5, 0.75):
        assert abs((numbers < 1 + 2 * tan(pi * (part - 0.5))).double().mean() - part) < 0.013


def test_certain_and_impossible_events() -> None:
    p = torch.tensor([0.0, 1.0, float("nan")]).repeat(1000)
    assert compiled(lambda p: torch.bernoulli(p), p)().reshape(-1, 3)[:, :2].unique(dim=0).tolist() == [[0, 1]]
    rates = torch.tensor([0.0, float("nan")])
    assert torch.equal(compiled(torch.poisson, rates)().isnan(), torch.tensor([False, True]))
    ones = torch.ones(3)
    assert compiled(lambda v: aten.native_dropout(v, 1.0, True)[0], ones)().tolist() == [0, 0, 0]
    assert compiled(lambda v: aten.native_dropout(v, 0.5, False)[0], ones)().tolist() == [1, 1, 1]
    exact = torch.binomial(ones * 7, torch.tensor([0, 1, 1.0]))
    assert torch.equal(compiled(torch.binomial, ones * 7, torch.tensor([0, 1, 1.0]))(), exact)


def test_dropout_scales_its_gradient_by_the_same_mask() -> None:
    def both(value: torch.Tensor) -> torch.Tensor:
        made, mask = aten.native_dropout(value, 0.75, True)
        return torch.stack([made, aten.native_dropout_backward(value, mask, 4.0)])

    made = compiled(both, torch.tensor([1.0, inf, -2.0]).repeat(100))()
    assert torch.equal(made[0].nan_to_num(7), made[1].nan_to_num(7))
    assert made[0][::3].unique().tolist() == [0, 4]


def test_choices_without_replacement_and_permutations_are_all_different() -> None:
    weights = torch.tensor([[1, 0, 2, 4.0], [0, 5, 5, 5]])
    call = compiled(lambda w: torch.multinomial(w, 3), weights)
    first = []
    for _ in range(200):
        drawn = call()
        assert drawn.sort(1).values.tolist() == [[0, 2, 3], [1, 2, 3]]
        first.append(drawn[0, 0].item())
    assert abs(first.count(3) / 200 - 4 / 7) < 0.15
    assert torch.equal(compiled(lambda: torch.randperm(5000, dtype=torch.int32))().sort().values, torch.arange(5000))
    assert compiled(lambda: torch.randperm(1))().tolist() == [0]
    assert compiled(lambda: torch.rand(0, 3))().shape == (0, 3)


def test_dirichlet_numbers_sum_to_1() -> None:
    drawn = compiled(torch._sample_dirichlet, torch.tensor([1.0, 2, 3]).expand(COUNT, 3).contiguous())()
    torch.testing.assert_close(drawn.sum(1), torch.ones(COUNT))
    torch.testing.assert_close(drawn.mean(0), torch.tensor([1, 2, 3.0]) / 6, atol=0.01, rtol=0)


def test_draws_of_a_graph_differ() -> None:
    drawn = compiled(lambda: torch.stack([torch.rand(1000), torch.rand(1000), torch.rand(1000)]))()
    assert drawn.unique().numel() > 2990
    assert abs(torch.corrcoef(drawn)[0, 1]) < 0.15


def test_draws_in_loops_differ_by_iteration() -> None:
    """A scan in a scan: each of the six iterations of the inner one draws other numbers."""
    from torch._higher_order_ops.scan import scan

    def outer(carry: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return scan(lambda c, y: (c + y, torch.rand_like(c)), carry, row)

    rows, init = torch.ones(3, 2, 50), torch.zeros(50)
    made = torch.compile(lambda c, v: scan(outer, c, v)[1], backend=backend, fullgraph=True)
    torch.manual_seed(5)
    first = made(init, rows)
    assert first.shape == (3, 2, 50)
    assert first.unique().numel() > 295
    torch.manual_seed(5)
    assert torch.equal(first, made(init, rows))
