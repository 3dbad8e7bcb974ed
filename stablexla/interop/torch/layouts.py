"""How a graph's inputs and outputs lie in memory, as PyTorch has noted it, and which lie in each other's."""

from __future__ import annotations

import operator as python
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch._C._dynamo.guards import _reinterpret_tensor  # type: ignore[attr-defined]  # no stub has it
from torch.fx import Node

from stablexla.interop.torch.tensors import Order, order_of


@dataclass(frozen=True)
class Layout:
    """A tensor's sizes and strides.

    Attributes:
        memory: the node that made the memory, and the element type.
        is_whole: whether the tensor is all of the memory.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    memory: tuple[Node, torch.dtype]
    is_whole: bool

    @property
    def order(self) -> Order | None:
        """The order of the dimensions in memory, None where it is their own."""
        return order_of(self.sizes, self.strides)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor's memory in this layout: no view for autograd, which refuses to change views in place."""
        return _reinterpret_tensor(tensor, self.sizes, self.strides, self.offset)

    def is_in(self, other: Layout | None) -> bool:
        """Return whether the tensor is another one, or a part of its memory."""
        return other is not None and self.memory == other.memory and (self == other or other.is_whole)


def layout_of(node: Any, concrete: Callable[[Any], int | None]) -> Layout | None:
    """Return the layout of a node's tensor.

    Args:
        node: of a graph, or what else it returns.
        concrete: returns a size as a number, or None where it is not known.

    Returns:
        None for what is no tensor, has an unknown size, or is conjugated when it is read.
    """
    meta = _tensor_of(node)
    if meta is None or meta.is_conj() or meta.is_neg():
        return None
    storage = meta.untyped_storage()
    numbers = [concrete(size) for size in (*meta.shape, *meta.stride(), meta.storage_offset(), storage.nbytes())]
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        return None
    *both, offset, size = known
    sizes, strides = tuple(both[: meta.ndim]), tuple(both[meta.ndim :])
    is_whole = offset == 0 and prod(sizes) * meta.itemsize == size > 0
    return Layout(sizes, strides, offset, (_maker(node), meta.dtype), is_whole)


def _tensor_of(node: Any) -> torch.Tensor | None:
    meta = node.meta.get("val") if isinstance(node, Node) else None
    return meta if isinstance(meta, torch.Tensor) and meta.layout is torch.strided else None


def _maker(node: Node) -> Node:
    """Return the node that made a tensor's memory: through views, of which some copy where they have to."""
    while True:
        made = node.args[0] if node.target is python.getitem else node
        if not isinstance(made, Node) or not getattr(made.target, "is_view", False):
            return node
        source, view = made.args[0], _tensor_of(node)
        memory = _tensor_of(source)
        if not isinstance(source, Node) or view is None or memory is None:
            return node
        if memory.untyped_storage()._cdata != view.untyped_storage()._cdata:
            return node
        node = source
