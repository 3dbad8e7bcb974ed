"""Constant folding: what frozen tensors alone make is computed by PyTorch while a graph is translated.

Weights that are normalized in each call of a module, tables of biases that are read by fixed indices.
"""

from __future__ import annotations

import operator as python
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from stablexla.builder.op import XlaOp

SMALL = 256 << 10
"""Bytes of a constant that may be computed from smaller ones, as a table of biases by its indices."""


class Folded:
    """A tensor that was computed; it becomes an op where one that is not folded reads it.

    Args:
        value: the tensor.
        make: returns the op.
    """

    def __init__(self, value: torch.Tensor, make: Callable[[], XlaOp]) -> None:
        self.value, self._make = value, make
        self._op: XlaOp | None = None

    @property
    def op(self) -> XlaOp:
        if self._op is None:
            self._op = self._make()
        return self._op


def with_ops(values: Any) -> Any:
    """Return arguments with ops for what was folded."""
    return pytree.tree_map(lambda leaf: leaf.op if isinstance(leaf, Folded) else leaf, values)


class ConstantFolding:
    """The frozen tensors of a computation, and what they alone make.

    Args:
        constant: returns a tensor as a constant of the computation.
    """

    def __init__(self, constant: Callable[[torch.Tensor], XlaOp]) -> None:
        self._constant = constant
        self._tensors: dict[int, tuple[XlaOp, torch.Tensor]] = {}  # by the ops' ids

    def add(self, op: XlaOp, value: torch.Tensor) -> None:
        """Note that an op is a frozen tensor."""
        self._tensors[id(op)] = op, value

    def fold(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any], build: Callable[[], Any]) -> Any:
        """Return a node's results if frozen tensors alone make them, else None.

        A view is built by its operator all the same, as its dimensions may be in another order than the weight's in
        memory. No large array is made that is larger than what it is made of, and no numbers of quantized weights.

        Args:
            args, kwargs: the node's arguments, with ops and what was folded for tensors.
            build: builds the node's ops.
        """
        leaves = pytree.tree_leaves((args, kwargs))
        if node.target is python.getitem:
            return args[0][args[1]] if any(isinstance(leaf, Folded) for leaf in leaves) else None
        tensors = [self._tensor(leaf) for leaf in leaves if isinstance(leaf, XlaOp | Folded)]
        known = [tensor for tensor in tensors if tensor is not None]
        if not known or len(known) < len(tensors) or any(isinstance(leaf, torch.SymInt) for leaf in leaves):
            return None
        made = _computed(node.target, *pytree.tree_map(self._with_tensor, (args, kwargs)))
        if made is None:
            return None
        results = made if isinstance(made, tuple | list) else [made]
        if any(result.alias_info is not None for result in node.target._schema.returns):
            built = cache(build)
            folded = [Folded(each, partial(_nth, built, n)) for n, each in enumerate(results)]
        else:
            if _is_dequantized(known, results):
                return None
            # An expanded tensor has fewer bytes in memory than elements.
            read = sum(min(each.nbytes, each.untyped_storage().nbytes()) for each in known)
            if max(each.nbytes for each in results) > max(SMALL, read):
                return None
            folded = [Folded(each, partial(self._constant, each)) for each in results]
        return folded if isinstance(made, tuple | list) else folded[0]

    def _tensor(self, value: Any) -> torch.Tensor | None:
        if isinstance(value, Folded):
            return value.value
        return self._tensors[id(value)][1] if id(value) in self._tensors else None

    def _with_tensor(self, leaf: Any) -> Any:
        tensor = self._tensor(leaf)
        return leaf if tensor is None else tensor


def _is_dequantized(known: list[torch.Tensor], results: Any) -> bool:
    """Whether bytes became floats: products read them as bytes."""
    is_of_bytes = any(each.dtype in (torch.int8, torch.uint8) for each in known)
    return is_of_bytes and any(each.is_floating_point() for each in results)


def _nth(build: Callable[[], Any], number: int) -> XlaOp:
    made = build()
    op: XlaOp = made[number] if isinstance(made, tuple | list) else made
    return op


def _computed(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what an operator without side effects makes: a tensor, or several; None where it is another one."""
    if not isinstance(operator, torch._ops.OpOverload) or operator._schema.is_mutable:
        return None
    if torch.Tag.nondeterministic_seeded in operator.tags:
        return None
    try:
        with torch.no_grad():
            made = operator(*args, **kwargs)
    except Exception:  # an operator that this build of PyTorch does not compute has a rule here, or its own error
        return None
    results = made if isinstance(made, tuple | list) else [made]
    is_dense = all(isinstance(each, torch.Tensor) and each.layout is torch.strided for each in results)
    return made if results and is_dense else None
