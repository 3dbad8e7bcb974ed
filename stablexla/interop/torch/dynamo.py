"""The backend of `torch.compile`: graphs of Dynamo, by AOTAutograd forward and backward graphs, as executables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from functorch.compile import make_boxed_func, min_cut_rematerialization_partition
from torch._dynamo.backends.common import aot_autograd
from torch.fx import GraphModule

from stablexla.dialects.errors import StablexlaError
from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.decompositions import core_decompositions
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
        return lambda made, inputs: make_boxed_func(_Sized(made, inputs, name, chosen))

    aot = aot_autograd(
        fw_compiler=compiler("forward"),
        bw_compiler=compiler("backward"),
        inference_compiler=compiler("inference"),
        decompositions=core_decompositions(),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    return aot(graph, example_inputs)


class _Sized:
    """A graph of AOTAutograd's, compiled when it comes, or for each set of sizes where some are symbolic."""

    def __init__(self, graph: GraphModule, inputs: Sequence[Any], name: str, options: CompileOptions | None) -> None:
        self._graph, self._name, self._options = graph, name, options
        self._made: dict[Any, CompiledGraph] = {}
        self._only = None if _is_symbolic(graph) else self._compiled(inputs)

    def _compiled(self, inputs: Sequence[Any]) -> CompiledGraph:
        return CompiledGraph(self._graph, inputs, name=self._name, options=self._options)

    def __call__(self, *inputs: Any) -> list[Any]:
        if self._only is not None:
            return self._only(inputs)
        key = tuple((x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in inputs)
        if key not in self._made:
            self._made[key] = self._compiled(inputs)
        return self._made[key](inputs)


def _is_symbolic(graph: GraphModule) -> bool:
    """Return whether an input of a graph has a size that is not known."""
    values = [node.meta.get("val") for node in graph.graph.find_nodes(op="placeholder")]
    sizes = [size for x in values for size in (x.shape if isinstance(x, torch.Tensor) else (x,))]
    return any(isinstance(size, torch.SymInt) for size in sizes)
