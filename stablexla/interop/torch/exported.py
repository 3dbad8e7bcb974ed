"""Exported programs: as graphs that there are rules for, as StableHLO, and in files."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export._remove_effect_tokens_pass import _remove_effect_tokens
from torch.export.graph_signature import InputKind, OutputKind

from stablexla.dialects.errors import ParseError, StablexlaError, UnsupportedError
from stablexla.interop.torch.compiled import CompiledGraph
from stablexla.interop.torch.decompositions import core_decompositions, quiet
from stablexla.interop.torch.progress import uncollected
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.stablehlo.legalize_chlo import legalize_chlo

_CHANGES = (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION, OutputKind.USER_INPUT_MUTATION)


class ExportedGraph:
    """An exported program as a functional graph of operators that there are rules for.

    Attributes:
        program: PyTorch's, decomposed.
        specs: what each input is.
        names: of the inputs: the module's names of parameters, buffers and constants, those of `forward`'s arguments.
        state: parameters, buffers and constants, by the numbers of their inputs.
        changes: which results are new values of inputs, by their numbers, with the inputs' numbers.

    Raises:
        StablexlaError: no exported program.
        UnsupportedError: a kind of result that nothing is done with.
    """

    def __init__(self, program: ExportedProgram) -> None:
        self.program = _decomposed(_checked(program))
        self.specs = self.program.graph_signature.input_specs
        self.names = [spec.arg.name if spec.target is None else spec.target for spec in self.specs]
        held = {n: spec for n, spec in enumerate(self.specs) if spec.kind is not InputKind.USER_INPUT}
        self.state = {number: _state(self.program, spec) for number, spec in held.items()}
        self.changes = dict(_changes(self.program))

    @property
    def constants(self) -> Mapping[int, Any]:
        """The state that the program does not change."""
        changed = set(self.changes.values())
        return {number: tensor for number, tensor in self.state.items() if number not in changed}

    @property
    def placeholders(self) -> list[Any]:
        """The values of the inputs as PyTorch has noted them, of symbolic sizes where these are dynamic."""
        return [node.meta["val"] for node in self.program.graph.find_nodes(op="placeholder")]

    def examples(self) -> list[Any]:
        """Return inputs of the sizes that the program was exported with."""
        return [_example(value) for value in self.placeholders]

    def built(
        self, inputs: Sequence[Any], *, frozen: bool, options: CompileOptions | None = None, compiles: bool = True
    ) -> CompiledGraph:
        """Build the graph for inputs of these sizes, and compile it unless it is to be built alone.

        Args:
            frozen: whether the state that the program does not change is constant.
        """
        constants = self.constants if frozen else {}
        return CompiledGraph(
            self.program.graph_module, [constants.get(n, value) for n, value in enumerate(inputs)], name="main",
            options=options, names=self.names, frozen=[*constants], changes=self.changes, compiles=compiles,
        )  # fmt: skip


def to_stablehlo(program: ExportedProgram, *, version: str = "current", weights: str = "parameters") -> bytes:
    """Write an exported program as a StableHLO portable artifact.

    The parameters of `main` are the module's parameters and buffers under their names (`0.weight`), then the inputs of
    `forward`; its results are the new values of buffers that the module changes, then its results. A program that draws
    random numbers has a last parameter more, `seed`, u64[2]: the state of a Philox generator.

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
    exported = ExportedGraph(program)
    graph = exported.built(exported.examples(), frozen=constants, compiles=False)
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
    log = logging.getLogger("torch.export")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


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
    exported = ExportedGraph(program)
    return {exported.names[number]: tensor for number, tensor in exported.state.items()}


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
