"""PyTorch's own decompositions: of all operators that have no rule here, as a table for tracing, and one by one."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._library.custom_ops import OPDEFS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from stablexla.builder.op import XlaOp
from stablexla.interop.torch.registry import load_rules
from stablexla.interop.torch.types import torch_type


@contextmanager
def quiet() -> Iterator[None]:
    """Silence PyTorch's warnings about its own deprecations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@cache
def core_decompositions() -> dict[Any, Any]:
    """Return the table for tracing: PyTorch's for core ATen, without the operators that have a rule."""
    rules = load_rules()
    with quiet():
        table = torch.export.default_decompositions().materialize()
    return {op: made for op, made in table.items() if str(op) not in rules}


@cache
def _all_decompositions() -> dict[Any, Any]:
    """Return the table for one operator without a rule: everything that PyTorch can decompose."""
    rules = load_rules()
    return {op: made for op, made in {**decomposition_table, **core_decompositions()}.items() if str(op) not in rules}


_graphs: dict[Any, Any] = {}


def decomposed(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the graph of an operator without a rule, whose inputs are its tensors in order; None where there is none.

    Args:
        operator: an `OpOverload`.
        args, kwargs: its arguments, tensors as ops.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, XlaOp)]
    types = tuple((leaves[i].shape.dimensions, torch_type(leaves[i].element_type)) for i in at)
    key = operator, str(spec), tuple(at), types, str([leaf for leaf in leaves if not isinstance(leaf, XlaOp)])
    if key not in _graphs:
        _graphs[key] = traced(operator, args, kwargs)
    return _graphs[key]


def _function_of(operator: Any) -> Any:
    """Return an operator, or the Python function that it is, which is as good as a decomposition.

    Those of `torch.library.custom_op` are such, and PyTorch's own of quantized tensors.
    """
    if not isinstance(operator, torch._ops.OpOverload):
        return operator
    if operator.namespace == "quantized_decomposed":
        from torch.ao.quantization.fx import _decomposed

        name = operator._schema.name.rpartition("::")[2]
        return getattr(_decomposed, "_".join(filter(None, (name, operator._schema.overload_name))), operator)
    custom = OPDEFS.get(operator._schema.name)
    return operator if custom is None else custom._init_fn


def traced(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the graph of a call whose tensors are ops, as `decomposed` does; of any function of PyTorch's."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, XlaOp)]
    types = [(leaves[i].shape.dimensions, torch_type(leaves[i].element_type)) for i in at]

    def run(*given: Any) -> Any:
        filled = list(leaves)
        for place, tensor in zip(at, given, strict=True):
            filled[place] = tensor
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return body(*args, **kwargs)

    body = _function_of(operator)

    with quiet(), torch.no_grad():
        with FakeTensorMode(allow_non_fake_inputs=True):
            tensors = [torch.empty(sizes, dtype=dtype) for sizes, dtype in types]
        made = make_fx(torch.func.functionalize(run), decomposition_table=_all_decompositions())(*tensors)
    calls = [node.target for node in made.graph.nodes if node.op == "call_function"]
    return None if operator in calls else made
