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
from stablexla.interop.torch.decompositions import core_decompositions

Function = Callable[..., Any]


def compiled(function: Function, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Return what a function gives when it is compiled."""
    functional = torch.func.functionalize(function)
    graph = make_fx(functional, decomposition_table=core_decompositions(), tracing_mode="fake")(*inputs)
    return CompiledGraph(graph, inputs)(list(inputs))


def same(function: Function, *inputs: torch.Tensor, **tolerance: float) -> None:
    """Check that a function gives, compiled, what eager PyTorch gives."""
    wanted = pytree.tree_leaves(function(*inputs))
    for number, (ours, theirs) in enumerate(zip(compiled(function, *inputs), wanted, strict=True)):
        torch.testing.assert_close(ours, theirs, equal_nan=True, msg=lambda m, n=number: f"{n}: {m}", **tolerance)


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

    def orders(x: torch.Tensor) -> list[Any]:
        made: list[Any] = [x.kthvalue(size // 3)[0], x.nanmedian(1)[0], x.nanmedian(), x.median(1)[0]]
        for largest in (False, True):
            made += [torch.sort(x, dim=dim, stable=True, descending=largest) for dim in (0, 1)]
            # Which of equals it takes is not said.
            made += [torch.topk(x, k, dim, largest)[0] for k, dim in ((7, 1), (size - 3, 1), (2, 0))]
        x = x.nan_to_num()
        return [*made, x.median(1)[0], torch.mode(x)[0]]

    same(orders, x)


def test_indices_of_medians_point_at_them() -> None:
    x = odd(6, 40)

    def medians(x: torch.Tensor) -> list[torch.Tensor]:
        found = (x.median(1), x.nanmedian(1), x.kthvalue(9), x.topk(9), x.nan_to_num().mode(1))
        return [y for pair in found for y in pair]

    made = compiled(medians, x)
    for number, (values, places) in enumerate(zip(made[::2], made[1::2], strict=True)):
        source, columns = (x.nan_to_num() if number == 4 else x), places.reshape(6, -1)
        torch.testing.assert_close(source.gather(1, columns), values.reshape(6, -1), equal_nan=True)


@pytest.mark.parametrize("right", [False, True])
def test_searches(right: bool) -> None:
    numbers = odd(5, 90).sort(1)[0]
    x = odd(5, 300)
    shuffled = numbers.flip(1)

    def found(n: torch.Tensor, x: torch.Tensor, shuffled: torch.Tensor) -> list[torch.Tensor]:
        return [
            torch.searchsorted(n, x, right=right),
            torch.searchsorted(n[0], x[0, 3], right=right),
            torch.searchsorted(shuffled, x, right=right, sorter=torch.argsort(shuffled, stable=True)),
            torch.bucketize(x, n[2], right=right, out_int32=True),
            torch.isin(x, n[:, :40], invert=right),
        ]

    same(found, numbers, x, shuffled)


def test_elements_by_several_indices() -> None:
    x = torch.arange(5 * 6 * 7 * 8.0).reshape(5, 6, 7, 8)
    i, j = torch.tensor([[0, -1, 3]]), torch.tensor([[-6], [5]])
    same(lambda x, i, j: (x[i, j], x[:, i, :, j], x[:, j, i], x[i], x[..., i, j], x[1, :, i]), x, i, j)
    same(lambda x, i, j: (x.mT[i, j], x[::2, :, 1:][:, j], x[:, [1, 1]], x[None, i]), x, i, j)

    def written(x: torch.Tensor, i: torch.Tensor, j: torch.Tensor) -> list[torch.Tensor]:
        made = [x.clone() for _ in range(4)]
        made[0][i, j] = -1.0
        made[1][:, i, :, j] = torch.arange(8 - 1.0)
        made[2].index_put_((i, j), torch.ones(7, 8), accumulate=True)
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

    def summed(zero: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> list[torch.Tensor]:
        return [f(zero, 0, index, source) for f in (torch.scatter_add, torch.index_add)]

    for made in compiled(summed, zero, index, source):
        torch.testing.assert_close(made.double(), exact, rtol=2**-8 if dtype is torch.bfloat16 else 0, atol=0)

    def reduced(zero: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> list[torch.Tensor]:
        kinds = [(reduce, own) for reduce in ("amax", "amin") for own in (False, True)]
        return [zero.scatter_reduce(0, index, source, reduce, include_self=own) for reduce, own in kinds]

    same(reduced, zero, index % 90, source)


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

    def views(x: torch.Tensor) -> list[torch.Tensor]:
        made = [torch.as_strided(x, *where) for where in STRIDES]
        return [*made, torch.as_strided_scatter(x, -torch.ones(3, 2), (3, 2), (8, 1), 5)]

    same(views, x)


def test_memory_with_gaps_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"do not lie one behind another(.|\n)*try: x.contiguous"):
        compiled(lambda x: torch.as_strided(x, (2, 2), (2, 1)), torch.arange(24.0).reshape(4, 6)[:, ::2])


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
