"""Compiled programs of PyTorch: what `torch.export` made, called like the module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree

from stablexla.dialects.errors import ExecutionError, StablexlaError, UnsupportedError
from stablexla.executable.executable import Executable
from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.decompositions import quiet
from stablexla.interop.torch.exported import ExportedGraph
from stablexla.interop.torch.progress import announced
from stablexla.interop.torch.types import xla_type
from stablexla.targets.pipeline.options import CompileOptions

if TYPE_CHECKING:
    from stablexla.interop.torch.comparing import TorchComparison


class TorchProgram:
    """A compiled program of PyTorch. Call it like the exported module, with tensors on the CPU.

    Parameters and buffers are those of the exported program, read anew at each call, unless they were frozen; buffers
    that the module changes are changed. A result of what requires a gradient has none to give: `backward()` raises.

    Attributes:
        exported: PyTorch's program, in the operators that there are rules for.
    """

    def __init__(
        self,
        program: ExportedProgram,
        options: CompileOptions | None = None,
        freeze: bool = False,
        exact: bool = False,
    ) -> None:
        with announced("tracing PyTorch's program"):
            self._graph = ExportedGraph(program)
        self.exported = self._graph.program
        if freeze and not exact:
            options = replace(options or CompileOptions(), excess_precision=True, flush_denormals=True)
        self._options, self._freezes = options, freeze
        self._in_spec, self._out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        self._names = program.module_call_graph[0].signature.forward_arg_names
        self._readers = _readers(self._graph)
        wanted = enumerate(self._graph.placeholders)
        self._users = [(number, value) for number, value in wanted if number not in self._graph.state]
        self._flat = _flat(self._in_spec, self._names)
        self._result_is_leaf = self._out_spec.is_leaf()
        self._is_static = not self.exported.range_constraints
        self._made: dict[Any, CompiledGraph] = {}
        self._last = self._compiled(self._graph.examples())

    def _compiled(self, inputs: Sequence[Any]) -> CompiledGraph:
        """Return the program for inputs of these sizes, compiled at the first time."""
        key = () if self._is_static else tuple(x.shape if isinstance(x, torch.Tensor) else x for x in inputs)
        if key not in self._made:
            self._made[key] = self._graph.built(inputs, frozen=self._freezes, options=self._options)
        return self._made[key]

    @property
    def executable(self) -> Executable:
        """The executable of parameters, buffers and inputs; with dynamic sizes that of the last call.

        Raises:
            UnsupportedError: nothing is computed.
        """
        if self._last.executable is None:
            raise UnsupportedError("the program computes nothing")
        return self._last.executable

    @property
    def stablehlo(self) -> str:
        """The text of what was compiled, with PyTorch's lines."""
        return "" if self._last.computation is None else self._last.computation.text(locations=True)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program.

        Raises:
            ExecutionError: arguments of another structure than it was exported for, or tensors that do not fit.
        """
        given = self._given(args, kwargs)
        self._last = self._compiled(given)
        made = self._last(given)
        results = [x for n, x in enumerate(made) if n not in self._graph.changes]
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in given):
            results = _without_gradient(results)
        return results[0] if self._result_is_leaf else pytree.tree_unflatten(results, self._out_spec)

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the inputs of the graph for the arguments of a call."""
        leaves: Sequence[Any] = args
        if kwargs or len(args) != self._flat or not all(isinstance(x, torch.Tensor) for x in args):
            args, kwargs = self._as_exported(args, kwargs)
            leaves, spec = pytree.tree_flatten((args, kwargs))
            if spec != self._in_spec:
                raise ExecutionError(f"the program takes arguments of the structure {self._in_spec}, but {spec} came")
        given, bounds = [read(leaves) for read in self._readers], self.exported.range_constraints
        for number, wanted in self._users:
            given[number] = _fitting(given[number], wanted, self._graph.names[number], bounds)
        return given

    def compare(self, *args: Any, **kwargs: Any) -> TorchComparison:
        """Run the program with all results of its operators kept, and hold each against eager PyTorch's.

        Each operator is judged on its operands in this run, so that errors do not propagate. Parameters, buffers and
        arguments stay as they are.

        Returns:
            The differences by operator with the module's lines: true if all are right; printed as a table.

        Raises:
            ExecutionError: arguments that do not fit.

        >>> import torch
        >>> x = torch.linspace(-1, 1, 12).reshape(4, 3)
        >>> bool(compile(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.GELU()), x).compare(x))
        True
        """
        from stablexla.interop.torch.comparing import compare

        return compare(self.exported.graph_module, self._given(args, kwargs))

    def _as_exported(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments by position or by name as they were when it was exported.

        Raises:
            ExecutionError: other arguments than those of the export.
        """
        if self._names is None:  # of a program that was written without them
            return args, kwargs
        by_name = self._in_spec.child(1).context
        by_place = self._names[: len(self._names) - len(by_name)]
        given = dict(zip(by_place, args, strict=False)) | kwargs
        if len(args) > len(by_place) or len(args) + len(kwargs) != len(given) or {*by_place, *by_name} != set(given):
            call = ", ".join([*by_place, *(f"{name}=..." for name in by_name)])
            came = ", ".join(["..."] * len(args) + [f"{name}=..." for name in kwargs])
            raise ExecutionError(f"the program was exported as program({call}), and called as program({came})")
        return tuple(given[name] for name in by_place), {name: given[name] for name in by_name}

    def __repr__(self) -> str:
        return f"TorchProgram({self._last.executable!r})"


def from_exported(
    program: ExportedProgram, *, options: CompileOptions | None = None, freeze: bool = False, exact: bool = False
) -> TorchProgram:
    """Compile the result of `torch.export.export`.

    Dimensions that were exported as dynamic may have any size; the program is compiled once for each set of sizes.

    Args:
        program: for inference or in training mode.
        options: how to compile.
        freeze: whether parameters and buffers that the program does not change are constants of the compiled program.
        exact: whether a frozen program rounds halves wherever PyTorch's types ask for it, and products before sums,
            and keeps denormal numbers; otherwise `CompileOptions.excess_precision` and `flush_denormals` are on.

    Raises:
        UnsupportedError: an operator that there is no rule for.
        StablexlaError: torch is not installed; no exported program.
    """
    return TorchProgram(program, options, freeze, exact)


def compile(
    module: torch.nn.Module,
    args: Any,
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    options: CompileOptions | None = None,
    freeze: bool = False,
    exact: bool = False,
) -> TorchProgram:
    """Export a module for example arguments, and compile it; `from_exported` takes what was exported otherwise.

    Args:
        module: on the CPU.
        args, kwargs: example arguments; one tensor stands for a tuple of it.
        dynamic_shapes: as `torch.export.export` takes them.
        options, freeze, exact: as `from_exported` takes them.

    Raises:
        UnsupportedError: an operator that there is no rule for.
        StablexlaError: torch is not installed; no module, or no tuple of arguments.

    >>> import torch
    >>> layer = torch.nn.Linear(3, 2)
    >>> program = compile(layer, torch.ones(4, 3))
    >>> program(torch.ones(4, 3)).shape
    torch.Size([4, 2])
    """
    if not isinstance(module, torch.nn.Module):
        raise StablexlaError(f"module is no torch.nn.Module but {module!r}", hint="a Module, whose forward calls it")
    if isinstance(args, torch.Tensor):
        args = (args,)
    if not isinstance(args, tuple | list):
        raise StablexlaError(f"args is a {type(args).__name__}, and no tuple of example arguments", hint="(x,)")
    with announced("torch.export"), quiet():
        exported = torch.export.export(module, tuple(args), kwargs, dynamic_shapes=dynamic_shapes)
    return from_exported(exported, options=options, freeze=freeze, exact=exact)


def _flat(spec: Any, names: Sequence[str] | None) -> int:
    """Return how many arguments a program takes that are all by position and leaves; -1 where it takes others."""
    by_place, by_name = spec.child(0), spec.child(1)
    count = by_place.num_children
    is_flat = not by_name.num_children and all(by_place.child(n).is_leaf() for n in range(count))
    return count if is_flat and (names is None or len(names) == count) else -1


def _readers(graph: ExportedGraph) -> list[Callable[[Sequence[Any]], Any]]:
    """Return how to find each input of the graph, given the leaves of the arguments."""
    users = [number for number, spec in enumerate(graph.specs) if spec.kind is InputKind.USER_INPUT]
    place = {number: place for place, number in enumerate(users)}
    return [
        _leaf(place[number], spec.arg) if number in place else _held(graph.state[number])
        for number, spec in enumerate(graph.specs)
    ]


def _held(tensor: Any) -> Callable[[Sequence[Any]], Any]:
    return lambda leaves: tensor


def _leaf(place: int, argument: Any) -> Callable[[Sequence[Any]], Any]:
    if isinstance(argument, ConstantArgument):
        return lambda leaves: _same(leaves[place], argument.value, argument.name)
    return lambda leaves: leaves[place]


def _same(value: Any, exported: Any, name: str) -> Any:
    if type(value) is not type(exported) or value != exported:
        raise ExecutionError(
            f"the program was exported for {name} = {exported!r}, and called with {value!r}", hint="another export"
        )
    return value


def _fitting(value: Any, wanted: Any, name: str, bounds: Mapping[Any, Any]) -> Any:
    """Return an argument that fits what was exported.

    Args:
        bounds: the ranges of sizes that are open.

    Raises:
        ExecutionError: no tensor; another element type, rank or size.
    """
    if not isinstance(wanted, torch.Tensor):
        return value
    if not isinstance(value, torch.Tensor):
        raise ExecutionError(f"argument {name} is a {type(value).__name__}, and no tensor", hint="torch.as_tensor")
    sizes = list(wanted.shape)
    if not bounds and value.dtype is wanted.dtype and list(value.shape) == sizes:
        return value
    told = f"argument {name} takes a tensor of {_told(wanted)}, but one of {_told(value)} came"
    if value.dtype is not wanted.dtype:
        raise ExecutionError(told, hint=f".to({wanted.dtype})")
    if value.ndim != len(sizes) or not all(
        isinstance(want, torch.SymInt) or size == want for size, want in zip(value.shape, sizes, strict=True)
    ):
        hint = ".T" if value.shape[::-1] == wanted.shape else ""
        raise ExecutionError(told, hint=hint or "dynamic_shapes=, as of torch.export, for sizes that may change")
    for size, want in zip(value.shape, sizes, strict=True):
        allowed = bounds.get(want.node.expr) if isinstance(want, torch.SymInt) else None
        # The least size of a `Dim` that names none is 2 to PyTorch, which takes size 1 all the same.
        if allowed is not None and not (size <= allowed.upper and (size >= allowed.lower or allowed.lower == 2)):
            raise ExecutionError(f"{told}: {allowed.lower} <= {want} <= {allowed.upper}")
    return value


def _told(tensor: torch.Tensor) -> str:
    return f"{xla_type(tensor.dtype)}[{','.join(map(str, tensor.shape))}]"


class _NoGradient(torch.autograd.Function):  # type: ignore[misc]  # its class has no types
    """The results of a program that was exported, which has no backward pass."""

    @staticmethod
    def forward(context: Any, *results: Any) -> Any:
        return tuple(x.view_as(x) if isinstance(x, torch.Tensor) else x for x in results[1:])

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        raise UnsupportedError(
            "a program that was exported has no backward pass", hint='torch.compile(module, backend="stablexla")'
        )


def _without_gradient(results: Sequence[Any]) -> list[Any]:
    """Return results that raise when a gradient is asked of them."""
    return list(_NoGradient.apply(torch.ones((), requires_grad=True), *results))
