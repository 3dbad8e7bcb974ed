"""Attention of PyTorch: one kernel where nothing else reads the scores, and gradients beside eager PyTorch's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from operator import getitem
from typing import Any

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention as attention

from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.dynamo import backend

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
composite = torch.ops.aten.scaled_dot_product_attention.default
QUERY, SHARED = (2, 4, 40, 16), (2, 2, 40, 16)


def of_one_call(operator: Any, *args: Any, **kwargs: Any) -> tuple[CompiledGraph, list[torch.Tensor]]:
    """Return the executable of one call of an operator, and its results."""
    graph = torch.fx.Graph()
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
    nodes = {id(x): graph.placeholder(f"x{number}") for number, x in enumerate(tensors)}
    call = graph.call_function(
        operator, tuple(nodes.get(id(x), x) for x in args), {name: nodes.get(id(x), x) for name, x in kwargs.items()}
    )
    call.meta["val"] = made = operator(*args, **kwargs)
    parts = [call]
    if isinstance(made, tuple):
        parts = [graph.call_function(getitem, (call, number)) for number in range(len(made))]
        for part, value in zip(parts, made):
            part.meta["val"] = value
    graph.output(tuple(parts))
    compiled = CompiledGraph(torch.fx.GraphModule({}, graph), tensors)
    return compiled, compiled(tensors)


def kinds(compiled: CompiledGraph) -> list[str]:
    assert compiled.executable is not None
    return [kernel.kind for kernel in compiled.executable.kernels]


def randn(sizes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(sizes).to(dtype)


def masked_row(dtype: torch.dtype) -> torch.Tensor:
    mask = torch.rand(2, 1, 40, 40) > 0.5
    mask[:, :, 3] = False
    return mask if dtype is torch.bool else torch.zeros(mask.shape).masked_fill(~mask, -math.inf)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("shape", "options"),
    [
        (QUERY, {}),
        (QUERY, {"is_causal": True}),
        (QUERY, {"scale": 0.3}),
        (QUERY, {"attn_mask": masked_row(torch.float32)}),
        (SHARED, {"is_causal": True}),
        ((2, 4, 64, 16), {"is_causal": True}),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_attention_is_one_kernel(dtype: torch.dtype, shape: tuple[int, ...], options: dict[str, Any]) -> None:
    query, key, value = randn(QUERY, dtype), randn(shape, dtype), randn(shape, dtype)
    compiled, made = of_one_call(composite, query, key, value, enable_gqa=shape is SHARED, **options)
    assert kinds(compiled).count("attention") == 1
    assert "contraction" not in kinds(compiled)
    assert "attention" in str(compiled.executable.explain())  # type: ignore[union-attr]
    wanted = composite(query, key, value, enable_gqa=shape is SHARED, **options)
    torch.testing.assert_close(made[0], wanted, **({} if dtype is torch.float32 else {"atol": 2e-2, "rtol": 2e-2}))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"attn_mask": masked_row(torch.float32)}])
def test_sums_of_powers_are_eager_pytorchs(options: dict[str, Any]) -> None:
    inputs = [randn(QUERY) for _ in range(3)]
    _, (made, sums) = of_one_call(flash, *inputs, **options)
    wanted, wanted_sums = flash(*inputs, **options)
    torch.testing.assert_close((made, sums), (wanted, wanted_sums))
    assert sums.stride() == wanted_sums.stride()
    if "attn_mask" in options:
        assert not made[:, :, 3].any()
        assert not sums[:, :, 3].any()


@pytest.mark.parametrize(
    ("shapes", "options"),
    [
        ([(16, 8)] * 3, {}),
        ([(3, 16, 8)] * 3, {"is_causal": True}),
        ([(2, 3, 16, 8), (1, 3, 16, 8), (1, 3, 16, 8)], {}),
        ([(2, 4, 16, 8), (2, 2, 16, 8), (2, 1, 16, 8)], {"enable_gqa": True}),
        ([(2, 4, 5, 8), (2, 4, 16, 8), (2, 4, 16, 24)], {"is_causal": True}),
        ([(2, 4, 5, 8), (2, 4, 0, 8), (2, 4, 0, 8)], {}),
    ],
)
def test_ranks_broadcast_batches_and_heads_of_their_own(shapes: list[tuple[int, ...]], options: dict[str, Any]) -> None:
    inputs = [randn(shape) for shape in shapes]
    _, made = of_one_call(composite, *inputs, **options)
    torch.testing.assert_close(made[0], composite(*inputs, **options))


def with_mask(mask: torch.Tensor, **options: Any) -> Callable[..., torch.Tensor]:
    return lambda q, k, v: attention(q, k, v, mask, **options)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (attention, QUERY),
        (lambda q, k, v: attention(q, k, v, is_causal=True, scale=0.2), QUERY),
        (with_mask(masked_row(torch.bool)), QUERY),
        (with_mask(masked_row(torch.float32)), QUERY),
        (lambda q, k, v: attention(q, k, v, is_causal=True, enable_gqa=True), SHARED),
        (with_mask(masked_row(torch.bool)[:1], enable_gqa=True), SHARED),
        (lambda q, k, v: attention(*(x.transpose(1, 2) for x in (q, k, v))), QUERY),
    ],
)
def test_gradients(function: Callable[..., torch.Tensor], shape: tuple[int, ...]) -> None:
    ours = [randn(s).requires_grad_() for s in (QUERY, shape, shape)]
    theirs = [x.detach().clone().requires_grad_() for x in ours]
    wanted = function(*theirs)
    made = torch.compile(function, backend=backend, fullgraph=True)(*ours)
    torch.testing.assert_close(made, wanted)
    weights = torch.randn_like(wanted)
    made.backward(weights)
    wanted.backward(weights)
    for x, y in zip(ours, theirs):
        torch.testing.assert_close(x.grad, y.grad)


def test_functions_of_scores() -> None:
    """`flex_attention`: a function of scores that reads a tensor, a mask that hides whole rows, and shared heads."""
    query, key, value = randn(QUERY), randn(SHARED), randn(SHARED)
    bias = torch.randn(4, 40, 40)
    mask = create_block_mask(lambda b, h, m, n: m >= n + 2, None, None, 40, 40, device="cpu")

    def function(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> Any:
        def change(score: Any, b: Any, h: Any, m: Any, n: Any) -> Any:
            return score * 2 + bias[h, m, n] + (m - n) * 0.1

        return flex_attention(query, key, value, score_mod=change, block_mask=mask, enable_gqa=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = function(query, key, value)
    made = torch.compile(function, backend=backend, fullgraph=True)(query, key, value)
    torch.testing.assert_close(made, wanted)
    assert not made[:, :, :2].any()


def test_dropout_of_weights_keeps_the_mean() -> None:
    query, key, value = randn(QUERY), randn(QUERY), torch.ones(QUERY)
    _, made = of_one_call(composite, query, key, value, None, 0.5)
    assert made[0].std() > 0.1
    assert abs(made[0].mean() - 1) < 0.05
