"""Views, indexing, sorting and searching of PyTorch beside eager, where its own samples are small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from stablexla.dialects.errors import UnsupportedError
from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.dynamo import backend

Function = Callable[..., Any]


def same(function: Function, *inputs: Any, **tolerance: float) -> None:
    """Compile a function, and check that it gives what eager PyTorch gives."""
    torch.compiler.reset()
    made = torch.compile(function, backend=backend, dynamic=False, fullgraph=True)(*inputs)
    for ours, theirs in zip(pytree.tree_leaves(made), pytree.tree_leaves(function(*inputs)), strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True, **tolerance)


def odd(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Return numbers without order, among them NaN of both signs, infinities, zeros of both signs and equals."""
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(3)).mul(4).round().div(4).to(dtype)
    flat = x.view(-1)
    for place, value in enumerate((float("nan"), -float("nan"), float("inf"), -float("inf"), 0.0, -0.0)):
        flat[place * 7 + 3 :: 53] = value
    return x


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("size", [50, 3000])
def test_orders(size: int, dtype: torch.dtype) -> None:
    x = odd(4, size, dtype=dtype)
    for descending in (False, True):
        same(lambda x, d=descending: torch.sort(x, stable=True, descending=d), x)
        same(lambda x, d=descending: torch.sort(x, 0, stable=True, descending=d), x)
        # Which of equals it takes is not said.
        same(lambda x, d=descending: torch.topk(x, 7, largest=d)[0], x)
        same(lambda x, d=descending: torch.topk(x, size - 3, largest=d)[0], x)
        same(lambda x, d=descending: torch.topk(x, 2, 0, largest=d)[0], x)
    same(lambda x: (x.kthvalue(size // 3)[0], x.nanmedian(1)[0], x.nanmedian(), x.median(1)[0]), x)
    same(lambda x: x.nan_to_num().median(1)[0], x)
    same(lambda x: torch.mode(x.nan_to_num()), x)


def test_indices_of_medians_point_at_them() -> None:
    x = odd(6, 40)

    def medians(x: torch.Tensor) -> list[torch.Tensor]:
        found = (x.median(1), x.nanmedian(1), x.kthvalue(9), x.topk(9), x.nan_to_num().mode(1))
        return [y for pair in found for y in pair]

    made = torch.compile(medians, backend=backend)(x)
    for number, (values, places) in enumerate(zip(made[::2], made[1::2], strict=True)):
        source, columns = (x.nan_to_num() if number == 4 else x), places.reshape(6, -1)
        torch.testing.assert_close(source.gather(1, columns), values.reshape(6, -1), equal_nan=True)


@pytest.mark.parametrize("right", [False, True])
def test_searches(right: bool) -> None:
    numbers = odd(5, 90).sort(1)[0]
    x = odd(5, 300)
    same(lambda n, x: torch.searchsorted(n, x, right=right), numbers, x)
    same(lambda n, x: torch.bucketize(x, n[2], right=right, out_int32=True), numbers, x)
    same(lambda n, x: torch.searchsorted(n[0], x[0, 3], right=right), numbers, x)
    shuffled = numbers.flip(1)
    same(lambda n, x: torch.searchsorted(n, x, right=right, sorter=torch.argsort(n)), shuffled, x)
    same(lambda n, x: torch.isin(x, n, invert=right), numbers[:, :40], x)


def test_elements_by_several_indices() -> None:
    x = torch.arange(5 * 6 * 7 * 8.0).reshape(5, 6, 7, 8)
    i, j = torch.tensor([[0, -1, 3]]), torch.tensor([[-6], [5]])
    same(lambda x, i, j: (x[i, j], x[:, i, :, j], x[:, j, i], x[i], x[..., i, j], x[1, :, i]), x, i, j)
    same(lambda x, i, j: (x.mT[i, j], x[::2, :, 1:][:, j], x[:, [1, 1]], x[None, i]), x, i, j)

    def written(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> list[torch.Tensor]:
        made = [x.clone() for _ in range(4)]
        made[0][i, j] = -1.0
        made[1][:, i, :, j] = torch.arange(8 - 1.0)
        made[2].index_put_((j, i), torch.ones(7, 8), accumulate=True)
        made[3].mT[:, :, i] += 2.0
        return made

    same(written, x, i, j)


def test_masks_of_static_results() -> None:
    x = torch.arange(60.0).reshape(3, 4, 5)
    mask, rows = x % 3 == 0, torch.tensor([True, False, True, True])

    same(lambda x, mask: x.masked_fill(mask, 2.0).masked_scatter(~mask, x.flip(0)), x, mask)

    def put(x: torch.Tensor, mask: torch.Tensor, rows: torch.Tensor) -> list[torch.Tensor]:
        made = [x.clone() for _ in range(4)]
        made[0][mask] = -1.0
        made[1][:, rows] = torch.arange(5.0)
        made[2].index_put_((mask,), torch.arange(20.0))
        made[3].index_put_((mask,), torch.tensor(2.0), accumulate=True)
        return made

    same(put, x, mask, rows)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_many_updates_of_few_elements(dtype: torch.dtype) -> None:
    index = torch.arange(20_000) * 7919 % 97
    source = (torch.arange(20_000) % 13 + 1).to(dtype)
    zero = torch.zeros(97, dtype=dtype)
    exact = torch.zeros(97, dtype=torch.float64).index_add(0, index, source.double())
    for function in (torch.scatter_add, torch.index_add):
        made = torch.compile(function, backend=backend)(zero, 0, index, source)
        torch.testing.assert_close(made.double(), exact, rtol=2**-8 if dtype is torch.bfloat16 else 0, atol=0)
    for reduce in ("amax", "amin", "mean"):
        for include_self in (False, True):
            same(
                lambda z, i, s, r=reduce, own=include_self: z.scatter_reduce(0, i, s, r, include_self=own),
                zero, index % 90, source, rtol=1e-2 if dtype is torch.bfloat16 else 1e-5, atol=0,
            )  # fmt: skip


STRIDES = [
    ((4, 3), (1, 8), 0),
    ((3, 2, 2), (8, 1, 3), 5),
    ((5, 4), (2, 1), 3),
    ((2, 3), (0, 5), 1),
    ((3,), (9,), 2),
    ((), (), 7),
    ((2, 0), (1, 1), 0),
    ((4, 4), (3, 2), 0),
]


@pytest.mark.parametrize("transposed", [False, True])
def test_memory_by_strides(transposed: bool) -> None:
    x = torch.arange(48.0).reshape(8, 6)
    x = x.t() if transposed else x
    for size, stride, offset in STRIDES:
        same(lambda x, *where: torch.as_strided(x, *where), x, size, stride, offset)
    same(lambda x: torch.as_strided_scatter(x, -torch.ones(3, 2), (3, 2), (8, 1), 5), x)


def test_memory_with_gaps_is_refused() -> None:
    made = torch.compile(lambda x: torch.as_strided(x, (2, 2), (2, 1)), backend=backend)
    with pytest.raises(Exception, match=r"do not lie one behind another.*\n?.*contiguous"):
        made(torch.arange(24.0).reshape(4, 6)[:, ::2])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.nonzero(x),
        lambda x: x[x > 0],
        lambda x: torch.masked_select(x, x > 0),
        lambda x: torch.unique(x),
        lambda x: torch.bincount(x.long()),
        lambda x: x.long().repeat_interleave(x.long()),
    ],
    ids=["nonzero", "mask", "masked_select", "unique", "bincount", "repeat_interleave"],
)
def test_results_of_unknown_size_are_refused(function: Function) -> None:
    x = torch.tensor([1.0, 2.0, 0.0])
    graph = make_fx(function)(x)
    with pytest.raises(UnsupportedError, match="depends on a tensor's numbers"):
        CompiledGraph(graph, [x])
