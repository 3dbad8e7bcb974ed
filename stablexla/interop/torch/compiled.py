"""A graph of PyTorch's operators as an executable on tensors: once for all calls, or for each set of sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

import stablexla as sx
from stablexla.builder.op import XlaOp
from stablexla.compiling.compiler import compile as compile_program
from stablexla.dialects.errors import UnsupportedError
from stablexla.dialects.shapes import Shape
from stablexla.executable.executable import Executable
from stablexla.interop.torch.layouts import Layout, layout_of
from stablexla.interop.torch.tensors import Order, as_array, as_tensor, inverse, order_of
from stablexla.interop.torch.translate import Translator
from stablexla.interop.torch.types import xla_type
from stablexla.targets.pipeline.options import CompileOptions


class CompiledGraph:
    """A functional graph of PyTorch's operators, compiled for the inputs of one call, and others of their sizes.

    Args:
        graph: what `make_fx`, `torch.export` or AOTAutograd made; it may end with `aten.copy_` into its inputs.
        inputs: tensors and numbers, as of a call.
        name: of the computation.
        options: how to compile.
        names: of the inputs; those of the graph by default.
        frozen: which inputs are constants.
        changes: the outputs that are new values of inputs, by their numbers, with the inputs' numbers.
        compiles: whether it is to be compiled; else it is built alone.

    Attributes:
        computation: what was built.
        executable: what was compiled; None where no result is computed.
    """

    def __init__(
        self,
        graph: GraphModule,
        inputs: Sequence[Any],
        *,
        name: str = "graph",
        options: CompileOptions | None = None,
        names: Sequence[str] = (),
        frozen: Sequence[int] = (),
        changes: Mapping[int, int] | None = None,
        compiles: bool = True,
    ) -> None:
        names = names or [node.name for node in graph.graph.find_nodes(op="placeholder")]
        translator = Translator(name)
        self._orders: list[tuple[int, Order | None]] = []
        self._changed: list[tuple[int, int, Order | None]] = []
        self._outputs: list[Callable[[list[Any]], Any]] = []
        # Outputs that lie in another one's memory, by its place, or in that of an input, by -1 - its number.
        self._views: list[tuple[int, int, Layout | None]] = []
        ops = [
            self._input(translator, number, value, names[number], number in frozen)
            for number, value in enumerate(inputs)
        ]
        outputs, replaced = translator.run(graph, ops), changes or {}
        new = translator.changed | {number: outputs[place] for place, number in replaced.items()}
        roots = self._changes(translator, new)
        roots += self._results(translator, graph, outputs, replaced)
        self._draws = translator.state is not None
        self.computation = translator.builder.build(sx.tuple(roots)) if roots else None
        self.executable: Executable | None = None
        if self.computation is not None and compiles:
            self.executable = compile_program(self.computation, options=options)
        # Changed tensors are donated, if each takes its own change and none a result that the caller keeps.
        parameters = self._parameters
        taken = {place: parameters[number] for place, number, _ in self._changed}
        self._donates = bool(taken) and self.executable is not None and self.executable.aliases == taken

    @property
    def _parameters(self) -> dict[int, int]:
        """The parameters that inputs are, by the inputs' numbers."""
        return {number: place for place, (number, _) in enumerate(self._orders)}

    def _input(self, translator: Translator, number: int, value: Any, name: str, frozen: bool) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.device.type != "cpu" and value.device.type != "meta":
            raise UnsupportedError(f"the tensor {name} is on {value.device}", hint="tensor.cpu()")
        if value.layout is not torch.strided:
            raise UnsupportedError(f"the tensor {name} is {value.layout}", hint="tensor.to_dense()")
        if frozen:
            return translator.frozen(value)
        order = order_of(value.shape, value.stride())
        self._orders.append((number, order))
        sizes = value.shape if order is None else [value.shape[d] for d in order]
        made = translator.parameter(Shape(xla_type(value.dtype), sizes), name)
        return made if order is None else sx.transpose(made, inverse(order))

    def _changes(self, translator: Translator, new: Mapping[int, XlaOp]) -> list[XlaOp]:
        """Return the new values of inputs as results, each in the order of its input's dimensions in memory."""
        orders, parameters = dict(self._orders), self._parameters
        roots: list[XlaOp] = []
        for number, value in new.items():
            order = orders[number]
            translator.builder.set_up_alias((len(roots),), parameters[number])
            self._changed.append((len(roots), number, order))
            roots.append(value if order is None else sx.transpose(value, order))
        return roots

    def _results(
        self, translator: Translator, graph: GraphModule, outputs: Sequence[Any], replaced: Mapping[int, int]
    ) -> list[XlaOp]:
        """Return the results that outputs are made of, after those for changes, and note how each output is made."""
        wanted = _output_nodes(graph)
        layouts = [layout_of(node, translator.concrete) for node in wanted]
        own = [layout_of(node, translator.concrete) for node in graph.graph.find_nodes(op="placeholder")]
        whole = {x.memory: place for place, x in reversed(list(enumerate(layouts))) if x is not None and x.is_whole}
        changed = {number for _, number, _ in self._changed}
        kept = [number for number, _ in self._orders if number not in changed]
        roots: list[XlaOp] = []
        for place, (value, node, layout) in enumerate(zip(outputs, wanted, layouts, strict=True)):
            if place in replaced:
                self._outputs.append(_nothing)
                continue
            if not isinstance(value, XlaOp):
                self._outputs.append(partial(_constant, value))
                continue
            source = next((n for n in kept if layout is not None and layout.is_in(own[n])), None)
            base = whole.get(layout.memory, place) if layout is not None else place
            if source is not None or (base != place and base not in replaced):
                self._outputs.append(_nothing)
                is_same = source is not None and layout == own[source]
                self._views.append((place, base if source is None else -1 - source, None if is_same else layout))
                continue
            result, order = len(self._changed) + len(roots), layout.order if layout is not None else None
            roots.append(sx.transpose(value, order) if order else value)
            if isinstance(_meta(node), torch.SymInt | torch.SymFloat | torch.SymBool):
                self._outputs.append(partial(_item, result))
            else:
                # It is no part of a larger memory here, even if it was one in the graph.
                self._outputs.append(_result(result, replace(layout, offset=0) if layout and order else None))
        return roots

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the graph on inputs of the sizes and types that it was compiled for."""
        arrays = []
        for number, order in self._orders:
            tensor = inputs[number]
            if tensor.requires_grad:
                tensor = tensor.detach()
            if order is not None:
                tensor = tensor.permute(order)
            arrays.append(as_array(tensor if tensor.is_contiguous() else tensor.contiguous()))
        if self._draws:
            arrays.append(_drawn())
        if self.executable is None:
            results: list[Any] = []
        else:
            results = self.executable.execute(arrays, donate=self._donates)
        for place, number, order in self._changed:
            _write(inputs[number] if order is None else inputs[number].permute(order), results[place])
        made = [output(results) for output in self._outputs]
        for place, base, layout in self._views:
            tensor = made[base] if base >= 0 else inputs[-1 - base]
            made[place] = tensor if layout is None else layout.of(tensor)
        return made


def _result(place: int, layout: Layout | None) -> Callable[[list[Any]], torch.Tensor]:
    if layout is None:
        return lambda results: as_tensor(results[place])
    return lambda results: layout.of(as_tensor(results[place]))


def _nothing(results: list[Any]) -> None:
    """Return nothing in the place of an output that is a view, or the new value of an input."""


def _constant(value: Any, _: list[Any]) -> Any:
    return value


def _item(place: int, results: list[Any]) -> Any:
    return results[place].item()


def _output_nodes(graph: GraphModule) -> list[Any]:
    (node,) = graph.graph.find_nodes(op="output")
    return list(pytree.tree_leaves(node.args[0], is_leaf=lambda value: value is None))


def _meta(node: Any) -> Any:
    return getattr(node, "meta", {}).get("val")


def _drawn() -> Any:
    """Return the state for one run, drawn from PyTorch's generator, so that `torch.manual_seed` repeats it."""
    return np.array([torch.empty((), dtype=torch.int64).random_().item(), 0], np.uint64)


def _write(tensor: torch.Tensor, array: Any) -> None:
    """Change a tensor that the graph changes; it may have been given away, and lie there already."""
    if tensor.data_ptr() == array.ctypes.data:
        torch.autograd.graph.increment_version(tensor)
        return
    with torch.no_grad():
        tensor.copy_(as_tensor(array))
