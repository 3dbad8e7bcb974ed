"""Exported programs: `torch.export`'s graphs, compiled, or written as StableHLO."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.export import ExportedProgram
from torch.export._remove_effect_tokens_pass import _remove_effect_tokens
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind
from torch.utils import _pytree as pytree

from stablexla.dialects.errors import ExecutionError, ParseError, StablexlaError, UnsupportedError
from stablexla.executable.executable import Executable
from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.decompositions import core_decompositions, quiet
from stablexla.interop.torch.progress import announced, uncollected
from stablexla.interop.torch.types import xla_type
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.stablehlo.legalize_chlo import legalize_chlo

if TYPE_CHECKING:
    from stablexla.interop.torch.comparing import TorchComparison

_CHANGES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


class TorchProgram:
    """A compiled program of PyTorch. Call it like the exported module, with tensors on the CPU.

    Parameters and buffers are those of the exported program, read anew at each call, unless they were frozen; buffers
    that the module changes are changed. A result of what requires a gradient has none to give: `backward()` raises.

    Attributes:
        exported: PyTorch's program, in the operators that there are rules for.
    """

    def __init__(self, program: ExportedProgram, options: CompileOptions | None = None, freeze: bool = False) -> None:
        with announced("tracing PyTorch's program"):
            self.exported = _decomposed(program)
        self._options = options
        self._in_spec, self._out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        self._names = program.module_call_graph[0].signature.forward_arg_names
        signature = self.exported.graph_signature
        self._inputs = [_reader(self.exported, spec) for spec in signature.input_specs]
        self._input_names = [spec.arg.name if spec.target is None else spec.target for spec in signature.input_specs]
        held = [n for n, spec in enumerate(signature.input_specs) if spec.kind is not InputKind.USER_INPUT]
        changed = dict(_changes(self.exported))
        self._frozen = [n for n in held if n not in changed.values()] if freeze else []
        self._users = [
            (n, node.meta["val"])
            for n, node in enumerate(self.exported.graph.find_nodes(op="placeholder"))
            if n not in held
        ]
        self._changed = changed
        self._is_static = not self.exported.range_constraints
        self._made: dict[Any, CompiledGraph] = {}
        self._last = self._compiled([_example(node.meta["val"]) for node in self._placeholders()])

    def _placeholders(self) -> Any:
        return self.exported.graph.find_nodes(op="placeholder")

    def _compiled(self, inputs: Sequence[Any]) -> CompiledGraph:
        """Return the program for inputs of these sizes, compiled at the first time."""
        key = () if self._is_static else tuple(x.shape if isinstance(x, torch.Tensor) else x for x in inputs)
        if key not in self._made:
            if self._frozen:
                leaves = list(inputs)
                for number in self._frozen:
                    leaves[number] = self._inputs[number](())
                inputs = leaves
            self._made[key] = CompiledGraph(
                self.exported.graph_module, inputs, name="main", options=self._options, names=self._input_names,
                frozen=self._frozen, changes=self._changed,
            )  # fmt: skip
        return self._made[key]

    @property
    def executable(self) -> Executable:
        """What runs it: that of the last call where sizes are dynamic, parameters, buffers and inputs in.

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
        results = [x for n, x in enumerate(made) if n not in self._changed]
        if torch.is_grad_enabled() and any(isinstance(x, torch.Tensor) and x.requires_grad for x in given):
            results = _without_gradient(results)
        return pytree.tree_unflatten(results, self._out_spec)

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the inputs of the graph for the arguments of a call."""
        args, kwargs = self._as_exported(args, kwargs)
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec != self._in_spec:
            raise ExecutionError(f"the program takes arguments of the structure {self._in_spec}, but {spec} came")
        given, bounds = [read(leaves) for read in self._inputs], self.exported.range_constraints
        for number, wanted in self._users:
            given[number] = _fitting(given[number], wanted, self._input_names[number], bounds)
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
    program: ExportedProgram, *, options: CompileOptions | None = None, freeze: bool = False
) -> TorchProgram:
    """Compile the result of `torch.export.export`.

    Dimensions that were exported as dynamic may have any size; the program is compiled once for each set of sizes.

    Args:
        program: for inference or in training mode.
        options: how to compile.
        freeze: whether parameters and buffers that the program does not change are constants of the compiled program.

    Raises:
        UnsupportedError: an operator that there is no rule for.
        StablexlaError: torch is not installed; no exported program.
    """
    return TorchProgram(_checked(program), options, freeze)


def compile(
    module: torch.nn.Module,
    args: Any,
    kwargs: dict[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    options: CompileOptions | None = None,
    freeze: bool = False,
) -> TorchProgram:
    """Export a module for example arguments, and compile it; `from_exported` takes what was exported otherwise.

    Args:
        module: on the CPU.
        args, kwargs: example arguments; one tensor stands for a tuple of it.
        dynamic_shapes: as `torch.export.export` takes them.
        options, freeze: as `from_exported` takes them.

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
    return from_exported(exported, options=options, freeze=freeze)


def to_stablehlo(program: ExportedProgram, *, version: str = "current", weights: str = "parameters") -> bytes:
    """Write an exported program as a StableHLO portable artifact.

    The parameters of `main` are the module's parameters and buffers under their names (`0.weight`), then the inputs of
    `forward`; its results are the new values of buffers that the module changes, then its results.

    Args:
        program: of `torch.export.export`; a dimension that it has as dynamic gets the size of its example.
        version: the oldest StableHLO that is to read it: a number, "current", "minimum", "week-4", "week-12".
        weights: "parameters", or "constants", which are in the artifact.

    Raises:
        UnsupportedError: an operator that there is no rule for; an unknown version.
        StablexlaError: no exported program, or other `weights`.

    >>> import torch
    >>> exported = torch.export.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> artifact = to_stablehlo(exported, version="1.9.0")
    >>> sx.compile(artifact)
    Executable('main', (f32[2,3], f32[2], f32[4,3]) -> (f32[4,2]), target='cpu')
    """
    from stablexla.interop.encodings.formats import Format
    from stablexla.interop.encodings.writers import write

    if weights not in ("parameters", "constants"):
        raise StablexlaError(f"weights is {weights!r}", hint='"parameters" or "constants"')
    module = portable_module(program, constants=weights == "constants")
    return bytes(write(module, Format.ARTIFACT, target=version))


def portable_module(program: ExportedProgram, *, constants: bool = False) -> Any:
    """Return the module of an exported program without CHLO's operations, which no artifact may hold.

    Raises:
        UnsupportedError: an operator that there is no rule for; nothing is computed.
    """
    from stablexla.interop.loading import load

    module = load(stablehlo_of(program, constants))
    legalize_chlo(module)
    return module


def stablehlo_of(program: ExportedProgram, constants: bool = False) -> Any:
    """Return the computation of an exported program; nothing is compiled.

    Raises:
        UnsupportedError: an operator that there is no rule for; nothing is computed.
    """
    exported = _decomposed(_checked(program))
    specs = exported.graph_signature.input_specs
    changes = dict(_changes(exported))
    inputs = [_example(node.meta["val"]) for node in exported.graph.find_nodes(op="placeholder")]
    frozen = []
    for number, spec in enumerate(specs):
        if constants and spec.kind is not InputKind.USER_INPUT and number not in changes.values():
            frozen.append(number)
            inputs[number] = _state(exported, spec)
    graph = CompiledGraph(
        exported.graph_module, inputs, name="main", changes=changes, frozen=frozen, compiles=False,
        names=[spec.arg.name if spec.target is None else spec.target for spec in specs],
    )  # fmt: skip
    if graph.computation is None:
        raise UnsupportedError("the program computes nothing")
    return graph.computation


def load_exported(file: str) -> ExportedProgram:
    """Read a file of `torch.export.save`.

    Raises:
        ParseError: it is none.
    """
    try:
        with quiet(), _unlogged():
            return torch.export.load(file)
    except Exception as error:
        raise ParseError(f"torch.export.load cannot read it: {error}", file=file) from None


@contextmanager
def _unlogged() -> Iterator[None]:
    """Keep what PyTorch logs of a file that it cannot read: the error says it."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(before)


def save_state(program: ExportedProgram, file: str) -> None:
    """Write a program's parameters and buffers as safetensors, under the names that `main`'s parameters have.

    Raises:
        StablexlaError: safetensors is not installed.
    """
    try:
        from safetensors.torch import save_file
    except ImportError as error:
        raise StablexlaError(f"safetensors cannot be imported: {error}", hint="pip install safetensors") from None
    # Tensors that share memory, such as tied weights, are written each for itself.
    save_file({name: tensor.detach().contiguous().clone() for name, tensor in held_by(program).items()}, file)


def held_by(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Return parameters, buffers and constants by their names, in the order of the first parameters of `main`."""
    decomposed = _decomposed(program)
    specs = decomposed.graph_signature.input_specs
    return {spec.target: _state(decomposed, spec) for spec in specs if spec.kind is not InputKind.USER_INPUT}


def _checked(program: Any) -> ExportedProgram:
    if not isinstance(program, ExportedProgram):
        raise StablexlaError(
            f"a {type(program).__name__} is no exported program", hint="torch.export.export(module, example_inputs)"
        )
    return program


# ---- the graph -------------------------------------------------------------------------------------------------------


def _decomposed(program: ExportedProgram) -> ExportedProgram:
    """Return the program as a functional graph of operators that there are rules for."""
    with quiet(), uncollected():
        made = _with_constants_as_buffers(program).run_decompositions(dict(core_decompositions()))
        # Calls that check numbers, such as those of torch.linalg, are ordered by tokens, which are no tensors.
        return _remove_effect_tokens(made) if made.graph_signature.input_tokens else made


def _with_constants_as_buffers(program: ExportedProgram) -> ExportedProgram:
    """Return the program with its constant tensors as buffers, which it may change; the given one stays as it is.

    `torch.export` makes a constant of a tensor that the module reaches as an attribute of a plain object, also when the
    same tensor is registered as a buffer, as the key-value cache of a language model often is. Decompositions are only
    traced when no constant is changed. A constant that is a registered tensor is replaced by that tensor's input, so
    that a change is seen under both names.
    """
    if not any(spec.kind is InputKind.CONSTANT_TENSOR for spec in program.graph_signature.input_specs):
        return program
    signature = deepcopy(program.graph_signature)
    module, specs, constants = deepcopy(program.graph_module), [], dict(program.constants)
    inputs = {node.name: node for node in module.graph.nodes if node.op == "placeholder"}
    registered = {
        id(_state(program, spec)): inputs[spec.arg.name]
        for spec in signature.input_specs
        if spec.kind in (InputKind.BUFFER, InputKind.PARAMETER)
    }
    for spec in signature.input_specs:
        if spec.kind is not InputKind.CONSTANT_TENSOR:
            specs.append(spec)
        elif (same := registered.get(id(_state(program, spec)))) is not None:
            constant = inputs[spec.arg.name]
            constant.replace_all_uses_with(same)
            signature.replace_all_uses(constant.name, same.name)
            module.graph.erase_node(constant)
            del constants[spec.target]
        else:
            specs.append(replace(spec, kind=InputKind.BUFFER, persistent=False))
    module.recompile()
    return program._update(module, replace(signature, input_specs=specs), constants=constants)


def _changes(program: ExportedProgram) -> Iterator[tuple[int, int]]:
    """Yield the number of each result that is the new value of a parameter, buffer or input, and the number of that."""
    signature = program.graph_signature
    places = {spec.target: i for i, spec in enumerate(signature.input_specs) if spec.target is not None}
    inputs = {spec.arg.name: i for i, spec in enumerate(signature.input_specs)}
    for number, spec in enumerate(signature.output_specs):
        if spec.kind in _CHANGES:
            yield number, (inputs if spec.kind is OutputKind.USER_INPUT_MUTATION else places)[spec.target]
        elif spec.kind is not OutputKind.USER_OUTPUT:
            raise UnsupportedError(f"an exported program with a result of kind {spec.kind.name}")


# ---- tensors in and out ----------------------------------------------------------------------------------------------


def _reader(program: ExportedProgram, spec: Any) -> Callable[[Sequence[Any]], Any]:
    """Return how to find the tensor of an input of the graph, given the leaves of the arguments."""
    if spec.kind is not InputKind.USER_INPUT:
        held = _state(program, spec)
        return lambda leaves: held
    users = [s for s in program.graph_signature.input_specs if s.kind is InputKind.USER_INPUT]
    place = next(n for n, each in enumerate(users) if each is spec)
    if isinstance(spec.arg, ConstantArgument):
        return lambda leaves: _same(leaves[place], spec.arg.value, spec.arg.name)
    return lambda leaves: leaves[place]


def _same(value: Any, exported: Any, name: str) -> Any:
    if type(value) is not type(exported) or value != exported:
        raise ExecutionError(
            f"the program was exported for {name} = {exported!r}, and called with {value!r}", hint="another export"
        )
    return value


def _state(program: ExportedProgram, spec: Any) -> Any:
    """Return a parameter, buffer or constant of the program."""
    holders: list[Mapping[str, Any]] = [program.state_dict, program.constants]
    for holder in holders:
        if spec.target in holder:
            return holder[spec.target]
    raise UnsupportedError(f"{spec.kind.name.lower()} {spec.target} is no tensor of the program")


def _example(value: Any) -> Any:
    """Return an input as PyTorch has noted it, with the sizes of the example."""
    if isinstance(value, torch.SymInt):
        return value.node.hint
    if not isinstance(value, torch.Tensor):
        return value
    sizes, strides = ([int(s.node.hint if isinstance(s, torch.SymInt) else s) for s in each]
                      for each in (value.shape, value.stride()))  # fmt: skip
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device="meta")


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
    told = f"argument {name} takes a tensor of {_told(wanted)}, but one of {_told(value)} came"
    if value.dtype is not wanted.dtype:
        raise ExecutionError(told, hint=f".to({wanted.dtype})")
    sizes = list(wanted.shape)
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


class _NoGradient(torch.autograd.Function):  # type: ignore[misc]
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
