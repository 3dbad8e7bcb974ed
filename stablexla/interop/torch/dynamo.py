"""The backend of `torch.compile`: graphs of Dynamo, by AOTAutograd forward and backward graphs, as executables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import Lock
from typing import Any

import torch
from functorch.compile import min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch._functorch import config
from torch._guards import tracing
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node

from stablexla.dialects.errors import StablexlaError
from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.decompositions import core_decompositions
from stablexla.interop.torch.progress import uncollected
from stablexla.targets.pipeline.options import CompileOptions


def backend(graph: GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Any:
    """Compile a graph of Dynamo: `torch.compile(model, backend="stablexla")`.

    Args:
        graph: Dynamo's, before AOTAutograd.
        example_inputs: the inputs that it was traced for.
        options: fields of `sx.CompileOptions` by name.

    Raises:
        StablexlaError: an option that there is not.
        UnsupportedError: an operator that there is no rule for.

    >>> import torch
    >>> f = torch.compile(lambda x: torch.relu(x) * 2, backend="stablexla")
    >>> f(torch.tensor([-1.0, 3.0]))
    tensor([0., 6.])
    """
    try:
        chosen = CompileOptions(**options) if options else None
    except TypeError as error:
        fields = ", ".join(CompileOptions.__dataclass_fields__)
        raise StablexlaError(f"options of torch.compile: {error}", hint=f"fields of CompileOptions: {fields}") from None

    def compiler(name: str) -> Callable[[GraphModule, Sequence[Any]], Any]:
        def compiled(made: GraphModule, inputs: Sequence[Any]) -> Any:
            inputs = [
                None if _is_token(node) else x for node, x in zip(made.graph.find_nodes(op="placeholder"), inputs)
            ]
            return _boxed((_Sized if _is_symbolic(made) else _compiled)(made, inputs, name, chosen))

        return compiled

    aot = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=core_decompositions(),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    # What the forward graph saves is not given to the backward graph, which may run again (`retain_graph=True`).
    with config.patch(donated_buffer=False):
        return aot(graph, example_inputs)


def _boxed(made: Callable[[list[Any]], list[Any]]) -> Callable[[list[Any]], list[Any]]:
    """Return a callable object as a function that AOTAutograd calls with a list."""

    def run(inputs: list[Any]) -> list[Any]:
        return made(inputs)

    run._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd looks for it on any function
    return run


def _compiled(graph: GraphModule, inputs: Sequence[Any], name: str, options: CompileOptions | None) -> CompiledGraph:
    # While AOTAutograd compiles, tensors without numbers take the place of all that are made.
    with tracing(None), unset_fake_temporarily(), uncollected():
        return CompiledGraph(graph, inputs, name=name, options=options)


class _Sized:
    """A graph with symbolic sizes or numbers, compiled at the first call with each set of them."""

    def __init__(self, graph: GraphModule, _: Sequence[Any], name: str, options: CompileOptions | None) -> None:
        self._compile = partial(_compiled, graph, name=name, options=options)
        self._made: dict[Any, CompiledGraph] = {}
        self._compiling = Lock()

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        key = tuple((x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in inputs)
        found = self._made.get(key)
        if found is None:
            with self._compiling:
                found = self._made.get(key)
                if found is None:
                    found = self._made[key] = self._compile(inputs)
        return found(inputs)


def _is_token(placeholder: Node) -> bool:
    """Return whether an input orders calls that check numbers, for which AOTAutograd gives None."""
    effects = torch.ops.higher_order.with_effects
    return any(user.target is effects and user.args[0] is placeholder for user in placeholder.users)


def _is_symbolic(graph: GraphModule) -> bool:
    """Return whether an input of a graph is a number, or has a size, that is not known."""
    values = [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]
    sizes = [size for x in values for size in (x.shape if isinstance(x, torch.Tensor) else (x,))]
    return any(isinstance(size, torch.SymInt | torch.SymFloat | torch.SymBool) for size in sizes)
