"""A function of tensors, compiled by the rules of PyTorch's operators, beside eager PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from stablexla.interop.torch.compiled import CompiledGraph
from tests.interop.torch_operators import traced


def compiled(function: Callable[..., Any], *tensors: torch.Tensor) -> list[torch.Tensor]:
    """The results of a function that is compiled for these tensors."""
    graph = traced(lambda *given: function(*given), tensors)
    return CompiledGraph(graph, tensors)(tensors)


def agrees(function: Callable[..., Any], *tensors: torch.Tensor, **tolerance: float) -> None:
    """Hold the results of a function against eager PyTorch's, NaNs and types too."""
    made, wanted = compiled(function, *tensors), pytree.tree_leaves(function(*tensors))
    assert len(made) == len(wanted)
    for ours, theirs in zip(made, wanted, strict=True):
        torch.testing.assert_close(ours, theirs, equal_nan=True, check_stride=False, **tolerance)
