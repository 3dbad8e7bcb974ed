"""PyTorch's exported programs, run by stablexla: torchax makes functions of JAX of them, whose StableHLO is compiled.

Tensors are passed without copies; docs/decisions/0014-pytorch.md has the reasons for this route.
"""

from __future__ import annotations

import ast
import builtins
import gc
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from functools import cache, partial
from inspect import Parameter, Signature
from linecache import getline
from operator import getitem, itemgetter
from threading import Timer
from types import CodeType, FunctionType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stablexla.compiling.compiler import compile as compile_program
from stablexla.dialects.errors import ExecutionError, SourceLine, StablexlaError, UnsupportedError
from stablexla.dialects.source_files import is_library
from stablexla.executable.executable import Executable
from stablexla.interop.arrays import to_dlpack
from stablexla.interop.jax.required import jax as jax_package
from stablexla.targets.pipeline.options import CompileOptions


class TorchProgram:
    """A compiled program of PyTorch. Call it like the exported module, with tensors on the CPU.

    Parameters and buffers are those of the exported program, read anew at each call; buffers that the module changes
    are changed.

    Attributes:
        executable: what runs it: parameters, buffers, constants and inputs in, changed buffers and results out.
        stablehlo: the program as it was compiled.
    """

    def __init__(self, program: Any, executable: Executable, stablehlo: str | bytes) -> None:
        self.executable = executable
        self.stablehlo = stablehlo
        self._in_spec, self._out_spec = program.call_spec.in_spec, program.call_spec.out_spec
        self._names = program.module_call_graph[0].signature.forward_arg_names
        self._inputs = _inputs(program)
        self._outputs = _outputs(program)
        changed = {} if program.range_constraints else dict(_changes(program))
        # Changed tensors are donated, if each takes its own change and none a result that the caller keeps.
        self._donates = bool(changed) and all(changed.get(made) == i for made, i in executable.aliases.items())
        self._donated = sorted(changed.values()) if self._donates else []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program.

        Raises:
            ExecutionError: arguments of another structure than it was exported for, or tensors that do not fit.
        """
        args, kwargs = self._as_exported(args, kwargs)
        leaves, spec = _torch().tree_flatten((args, kwargs))
        if spec != self._in_spec:
            raise ExecutionError(f"the program takes arguments of the structure {self._in_spec}, but {spec} came")
        given = [_detached(read(leaves)) for read in self._inputs]
        arguments = list(given)
        for place in self._donated:
            arguments[place] = _array(given[place])
        try:
            results = self.executable.execute(arguments, donate=self._donates)
        except ExecutionError as error:
            raise _with_tensors(error) from None
        made = [put(array, given) for put, array in zip(self._outputs, results, strict=True)]
        return _torch().tree_unflatten([r for r in made if r is not _WRITTEN], self._out_spec)

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
        return f"TorchProgram({self.executable!r})"


def _with_tensors(error: ExecutionError) -> ExecutionError:
    """Return the error with the way out of a tensor of another type or of other sizes in PyTorch's words."""
    dtype = re.fullmatch(r'\.astype\((?:ml_dtypes\.|")(\w+)"?\)', error.hint)
    if type(error) is not ExecutionError or not (dtype or (not error.hint and ", but an array of " in error.summary)):
        return error
    hint = f".to(torch.{dtype[1]})" if dtype else "dynamic_shapes=, as of torch.export, for sizes that may change"
    return ExecutionError(error.summary, hint=hint)


def from_exported(program: Any, *, options: CompileOptions | None = None) -> TorchProgram:
    """Compile the result of `torch.export.export`.

    Dimensions that were exported as dynamic may have any size; the program is compiled once for each set of shapes.

    Args:
        program: a `torch.export.ExportedProgram`, for inference or in training mode.
        options: how to compile.

    Raises:
        UnsupportedError: an operation that torchax or stablexla does not have.
        StablexlaError: torch or torchax is not installed.
    """
    torch = _torch()
    if not isinstance(program, torch.ExportedProgram):
        raise StablexlaError(
            f"a {type(program).__name__} is no exported program", hint="torch.export.export(module, example_inputs)"
        )
    with _announced("decomposing and lowering PyTorch's program"):
        program, stablehlo = _lowered(program)
    return TorchProgram(program, compile_program(stablehlo, options=options), stablehlo)


def compile(
    module: Any, args: Sequence[Any], kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None
) -> TorchProgram:
    """Export a module for example arguments, and compile it; `from_exported` for more options.

    Args:
        module: a `torch.nn.Module` on the CPU.
        args, kwargs: example arguments.
        dynamic_shapes: as `torch.export.export` takes them.

    Raises:
        UnsupportedError: an operation that torchax or stablexla does not have.
        StablexlaError: torch or torchax is not installed; no module, or no tuple of arguments.
    """
    torch = _torch()
    if not isinstance(module, torch.Module):
        raise StablexlaError(f"module is no torch.nn.Module but {module!r}", hint="a Module, whose forward calls it")
    if not isinstance(args, tuple | list):
        raise StablexlaError(f"args is a {type(args).__name__}, and no tuple of example arguments", hint="(x,)")
    with _announced("torch.export"), _quiet():
        exported = torch.export(module, tuple(args), kwargs, dynamic_shapes=dynamic_shapes)
    return from_exported(exported)


@cache
def _torch() -> Any:
    """Import the parts of torch and torchax in use.

    Raises:
        StablexlaError: they are not installed, or do not fit together.
    """
    try:
        with _quiet():
            import torch
            import torchax
            import torchax.export
            from torch.fx.experimental.proxy_tensor import make_fx
            from torch.utils import _pytree
            from torchax.decompositions import DECOMPOSITIONS
            from torchax.ops import mappings, ops_registry

            jax = jax_package()
            torchax.default_env()  # registers its operations
    except (ImportError, AttributeError) as error:  # AttributeError: a torchax that is older than torch
        raise StablexlaError(f"torchax cannot be imported: {error}", hint="pip install 'stablexla[torch]'") from error
    return SimpleNamespace(
        ExportedProgram=torch.export.ExportedProgram,
        Tensor=torch.Tensor,
        Interpreter=torchax.export.JaxInterpreter,
        Module=torch.nn.Module,
        Node=torch.fx.Node,
        OpOverload=torch._ops.OpOverload,
        Tag=torch.Tag,
        as_tensor=torch.as_tensor,
        aten=torch.ops.aten,
        # One table, so that the graph is traced once; PyTorch's own entries win, as when they were applied first.
        decompositions={**DECOMPOSITIONS, **torch.export.default_decompositions().materialize()},
        dtype=mappings.t2j_dtype,
        export=torch.export.export,
        from_dlpack=torch.from_dlpack,
        integers={1: torch.uint8, 2: torch.int16},
        increment_version=torch.autograd.graph.increment_version,
        jax=jax,
        make_fx=make_fx,
        no_grad=torch.no_grad,
        operations=ops_registry.all_aten_ops,
        tree_flatten=_pytree.tree_flatten,
        tree_unflatten=_pytree.tree_unflatten,
    )


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence torch's warnings about its own deprecations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextmanager
def _uncollected() -> Iterator[None]:
    """Pause Python's garbage collector: a graph's many live objects are searched again and again for no cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def _announced(what: str) -> Iterator[None]:
    """Name on standard error, if that is a terminal, an activity that takes over two seconds."""
    timer = Timer(2, print, [f"stablexla: {what} ..."], {"file": sys.stderr})
    timer.daemon = True
    if sys.stderr is not None and sys.stderr.isatty():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


# ---- from torch's graph to StableHLO ---------------------------------------------------------------------------------


def _decomposed(program: Any) -> Any:
    """Decompose the program's operations into those that torchax has."""
    with _quiet(), _uncollected():
        return _with_constants_as_buffers(program).run_decompositions(_torch().decompositions)


def _with_constants_as_buffers(program: Any) -> Any:
    """Return the program with its constant tensors as buffers, which it may change; the given one stays as it is.

    `torch.export` makes a constant of a tensor that the module reaches as an attribute of a plain object, also when the
    same tensor is registered as a buffer, as the key-value cache of a language model often is. Decompositions are only
    traced when no constant is changed. A constant that is a registered tensor is replaced by that tensor's input, so
    that a change is seen under both names.
    """
    if not any(spec.kind.name == "CONSTANT_TENSOR" for spec in program.graph_signature.input_specs):
        return program
    signature = deepcopy(program.graph_signature)
    module, specs, constants = deepcopy(program.graph_module), [], dict(program.constants)
    inputs = {node.name: node for node in module.graph.nodes if node.op == "placeholder"}
    registered = {
        id(_state(program, spec)): inputs[spec.arg.name]
        for spec in signature.input_specs
        if spec.kind.name in ("BUFFER", "PARAMETER")
    }
    for spec in signature.input_specs:
        if spec.kind.name != "CONSTANT_TENSOR":
            specs.append(spec)
        elif (same := registered.get(id(_state(program, spec)))) is not None:
            constant = inputs[spec.arg.name]
            constant.replace_all_uses_with(same)
            signature.replace_all_uses(constant.name, same.name)
            module.graph.erase_node(constant)
            del constants[spec.target]
        else:
            specs.append(replace(spec, kind=type(spec.kind).BUFFER, persistent=False))
    module.recompile()
    return program._update(module, replace(signature, input_specs=specs), constants=constants)


def _stablehlo(program: Any) -> str | bytes:
    """Return the program as text, or as a portable artifact when it has dynamic dimensions."""
    torch = _torch()
    avals, is_static = _avals(program)
    types = [torch.dtype(v.dtype) if isinstance(v, torch.Tensor) else None for v in _output_values(program)]

    interpreter = _interpreter()(program.graph_module)

    def function(*values: Any) -> list[Any]:
        made = interpreter.run(*values, enable_io_processing=False)
        arrays = [torch.jax.numpy.asarray(value) for value in made]
        return [a if t is None else a.astype(t) for a, t in zip(arrays, types, strict=True)]

    # JAX names parameters after those of the function: as PyTorch names the inputs of its graph.
    names = [node.name for node in program.graph.find_nodes(op="placeholder")]
    function.__signature__ = Signature([Parameter(n, Parameter.POSITIONAL_ONLY) for n in names])  # type: ignore[attr-defined]
    # JAX pairs donated parameters with results of their type in order, which is that of torch's changes.
    donated = sorted(place for _, place in _changes(program)) if is_static else []
    jitted = torch.jax.jit(function, keep_unused=True, donate_argnums=donated)
    try:
        # Torch's integers have 64 bits by default.
        with _quiet(), torch.jax.enable_x64(True):
            if is_static:
                return str(jitted.lower(*avals).as_text(debug_info=True))
            return bytes(torch.jax.export.export(jitted)(*avals).mlir_module_serialized)
    except AssertionError as error:  # torchax's error for an unknown operation
        name = str(error).strip().split("\n")[0]
        raise UnsupportedError(f"torchax has no lowering for {name}", operation=name) from error
    except (torch.jax.errors.ConcretizationTypeError, torch.jax.errors.NonConcreteBooleanIndexError):
        raise UnsupportedError(
            "what it gives depends on a tensor's numbers, which are not known when the program is compiled",
            operation=str(interpreter.node.target),
            source=_line_of(interpreter.node),
            hint="torch.where in the place of a branch or a mask, x[:1] in the place of x[0].item()",
        ) from None


def _lowered(program: Any) -> tuple[Any, str | bytes]:
    """Return a program as StableHLO, and as it is then: decomposed where it had to be."""
    if _is_traced_again(program):
        program = _decomposed(program)
    return program, _stablehlo(program)


def _is_traced_again(program: Any) -> bool:
    """Whether the whole graph is decomposed first: it changes tensors, draws numbers, or has dynamic sizes or branches.

    That traces every operation, which takes longer than a compilation. Elsewhere operations are decomposed one by one,
    each once for its arguments' shapes.
    """
    changes = any(spec.kind.name != "USER_OUTPUT" for spec in program.graph_signature.output_specs)
    return changes or bool(program.range_constraints) or not all(map(_is_functional, program.graph.nodes))


def _is_functional(node: Any) -> bool:
    """Whether a node of a graph computes its result from its operands alone."""
    torch, op = _torch(), node.target
    if node.op != "call_function" or op is getitem:
        return node.op in ("call_function", "output", "placeholder")
    if not isinstance(op, torch.OpOverload):
        return False
    given = {a.name: a.default_value for a in op._schema.arguments}
    given |= dict(zip(given, node.args, strict=False)) | node.kwargs
    in_training = given.get("training") or given.get("train")
    is_idle = given.get("dropout_p") == 0 or given.get("train") is False
    draws = torch.Tag.nondeterministic_seeded in op.tags and not is_idle
    return not (in_training or draws) and (not op._schema.is_mutable or _changes_its_own(node))


def _changes_its_own(node: Any) -> bool:
    """Whether a node changes a tensor in place that the program made, and that nothing else reads."""
    changed = node.args[0] if node.args else None
    maker = getattr(changed, "target", None)
    if changed is None or not isinstance(maker, _torch().OpOverload) or len(changed.users) != 1:
        return False
    is_view = any(made.alias_info is not None and not made.alias_info.is_write for made in maker._schema.returns)
    return not is_view and _out_of_place(node.target) is not None


def _out_of_place(op: Any) -> Any:
    """Return the operation of the same name that makes a new tensor; None where there is none."""
    overloads = getattr(_torch().aten, op._opname.removesuffix("_"), None) if op.namespace == "aten" else None
    found = getattr(overloads, op._overloadname, None)
    return None if found is None or found._schema.is_mutable else found


@cache
def _interpreter() -> Any:
    """Return torchax's interpreter of graphs, made to decompose operations that are none of ATen's core."""
    torch = _torch()

    class Drawing(torch.Interpreter):  # type: ignore[misc, name-defined]
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            return super().call_function(target, args, kwargs | _generator_of(target))

    class Interpreter(Drawing):
        graphs: ClassVar[dict[Any, Any]] = {}

        def run_node(self, n: Any) -> Any:
            self.node = n
            return _called_from(n.meta.get("stack_trace") or "", partial(super().run_node, n))

        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if isinstance(target, torch.OpOverload) and target._schema.is_mutable:
                target = _out_of_place(target)
            if not isinstance(target, torch.OpOverload) or _is_core(target):
                return super().call_function(target, args, kwargs)
            leaves, spec = torch.tree_flatten((self.node.args, self.node.kwargs))
            places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Node)]
            tensors = [leaves[i].meta["val"] for i in places]
            types = [(tuple(t.shape), t.dtype, t.stride()) for t in tensors]
            key = target, str(spec), str(types), str([leaf for leaf in leaves if not isinstance(leaf, torch.Node)])
            if key not in self.graphs:
                self.graphs[key] = _decomposition(target, leaves, spec, places, tensors)
            values = torch.tree_flatten((args, kwargs))[0]
            return Drawing(self.graphs[key]).run(*(values[i] for i in places), enable_io_processing=False)

    return Interpreter


def _called_from(trace: str, function: Callable[[], Any]) -> Any:
    """Call a function from the lines of a stack trace, the user's own: JAX takes an operation's place from its stack.

    Args:
        trace: as `torch.export` keeps it with a node, the innermost call last; "" for none.
    """
    for file, line, name in reversed(_users_lines(trace)):
        function = partial(_frame(file, line, name), function)
    return function()


def _users_lines(trace: str) -> list[tuple[str, int, str]]:
    return [(file, int(line), name) for file, line, name in _LINE.findall(trace) if not is_library(file)]


def _line_of(node: Any) -> SourceLine | None:
    """Return the user's line of a node of a graph."""
    lines = _users_lines(node.meta.get("stack_trace") or "")
    return SourceLine(*lines[-1], text=getline(*lines[-1][:2]).strip()) if lines else None


@cache
def _frame(file: str, line: int, name: str) -> Callable[[Callable[[], Any]], Any]:
    """Return a function that calls another one, and whose frame on the stack is of this line."""
    tree = ast.parse("lambda function: function()", mode="eval")
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.arg):
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
    (code,) = (c for c in builtins.compile(tree, file, "eval").co_consts if isinstance(c, CodeType))
    return FunctionType(code.replace(co_name=name, co_qualname=name), {})


def _generator_of(op: Any) -> dict[str, Any]:
    """Return the argument by which one of torchax's operations draws random numbers: {} for those that draw none.

    Raises:
        AssertionError: `torch.normal`, of which torchax takes the mean for the tensor to be filled.
    """
    torch = _torch()
    if getattr(op, "overloadpacket", None) is torch.aten.normal:
        raise AssertionError(op)
    found = torch.operations.get(op) or torch.operations.get(getattr(op, "overloadpacket", None))
    return {"env": SimpleNamespace(get_and_rotate_prng_key=_drawn_key)} if found and found.needs_env else {}


def _drawn_key(_generator: Any = None) -> Any:
    """Return a key that the program draws at each run: one of the trace would give the same numbers at every call."""
    jax = _torch().jax
    return jax.lax.rng_uniform(jax.numpy.uint32(0), jax.numpy.uint32(0xFFFFFFFF), (2,))


_LINE = re.compile(r'File "([^"\n]+)", line (\d+), in (\S+)')


def _is_core(op: Any) -> bool:
    """Whether torchax takes an operation as it is; of others it may know the name, but not all forms."""
    return _torch().Tag.core in op.tags and op not in _torch().decompositions


def _decomposition(op: Any, leaves: Sequence[Any], spec: Any, places: Sequence[int], tensors: Sequence[Any]) -> Any:
    """Trace an operation as a graph of those that it decomposes into.

    Args:
        leaves, spec: its arguments, flattened.
        places: which of them are tensors.
        tensors: these tensors, without their numbers.
    """
    torch = _torch()

    def run(*given: Any) -> Any:
        filled = list(leaves)
        for place, tensor in zip(places, given, strict=True):
            filled[place] = tensor
        args, kwargs = torch.tree_unflatten(filled, spec)
        return op(*args, **kwargs)

    with _quiet(), torch.no_grad():
        made = torch.make_fx(run, decomposition_table=torch.decompositions)(*tensors)
    _drop_strides(made.graph)
    return made


def _drop_strides(graph: Any) -> None:
    """Take out what changes only strides of dimensions of size 1, as an average of images with channels last does."""
    for node in graph.find_nodes(op="call_function", target=_torch().aten.as_strided_.default):
        tensor, sizes, strides, *offset = node.args
        value = tensor.meta["val"]
        same = all(size == 1 or new == old for size, new, old in zip(sizes, strides, value.stride(), strict=False))
        if same and not offset and tuple(sizes) == tuple(value.shape):
            node.replace_all_uses_with(tensor)
            graph.erase_node(node)


def _avals(program: Any) -> tuple[list[Any], bool]:
    """Return the abstract value of each placeholder of the graph, and whether all shapes are known."""
    torch = _torch()
    sizes, avals = _sizes(program), []
    for node in program.graph.nodes:
        if node.op != "placeholder":
            continue
        value = node.meta["val"]
        if isinstance(value, torch.Tensor):
            avals.append(torch.jax.ShapeDtypeStruct(tuple(map(sizes, value.shape)), torch.dtype(value.dtype)))
        elif program.range_constraints and isinstance(value, bool | int | float):
            avals.append(torch.jax.ShapeDtypeStruct((), type(value)))
        else:
            raise UnsupportedError(f"input {node.name} is no tensor but a {type(value).__name__}")
    return avals, not program.range_constraints


def _sizes(program: Any) -> Callable[[Any], Any]:
    """Return what makes a size of JAX of one of PyTorch. All sizes of a program are of one scope, as JAX has it."""
    export = _torch().jax.export
    bounds = []
    for symbol, allowed in program.range_constraints.items():
        if symbol.is_symbol:
            # The least size of a `Dim` that names none is 2 to PyTorch, which takes size 1 all the same.
            bounds += [f"{symbol} >= {allowed.lower}"] if allowed.lower != 2 else []
            bounds += [f"{symbol} <= {allowed.upper}"] if allowed.upper.is_Integer else []
    scope = export.SymbolicScope(bounds)
    return lambda size: size if isinstance(size, int) else export.symbolic_shape(str(size), scope=scope)[0]


def _output_values(program: Any) -> list[Any]:
    node = next(n for n in program.graph.nodes if n.op == "output")
    return [getattr(n, "meta", {}).get("val") for n in node.args[0]]


# ---- tensors in and out ----------------------------------------------------------------------------------------------

_WRITTEN = object()  # stands for a result that went into a buffer


def _inputs(program: Any) -> list[Callable[[Sequence[Any]], Any]]:
    """Return for each parameter of the compiled program how to find its tensor among the arguments' leaves."""
    made: list[Callable[[Sequence[Any]], Any]] = []
    count = 0
    for spec in program.graph_signature.input_specs:
        if spec.kind.name == "USER_INPUT":
            made.append(itemgetter(count))
            count += 1
        else:
            made.append(partial(_held, _state(program, spec)))
    return made


def _state(program: Any, spec: Any) -> Any:
    """Return a parameter, buffer or constant of the program."""
    for holder in (program.state_dict, program.constants):
        if spec.target in holder:
            return holder[spec.target]
    raise UnsupportedError(f"{spec.kind.name.lower()} {spec.target} is no tensor of the program")


def _outputs(program: Any) -> list[Callable[[npt.NDArray[Any], Sequence[Any]], Any]]:
    """Return for each result of the compiled program its use, given the program's arguments."""
    changed = dict(_changes(program))
    made: list[Callable[[npt.NDArray[Any], Sequence[Any]], Any]] = []
    for number, spec in enumerate(program.graph_signature.output_specs):
        if number in changed:
            made.append(partial(_write, changed[number]))
        elif spec.kind.name == "USER_OUTPUT":
            made.append(_tensor)
        else:
            raise UnsupportedError(f"an exported program with a result of kind {spec.kind.name}")
    return made


def _changes(program: Any) -> Iterator[tuple[int, int]]:
    """Yield the number of each result that is the new value of a parameter, buffer or input, and the number of that."""
    signature = program.graph_signature
    places = {spec.target: i for i, spec in enumerate(signature.input_specs) if spec.target is not None}
    inputs = {spec.arg.name: i for i, spec in enumerate(signature.input_specs)}
    for number, spec in enumerate(signature.output_specs):
        if spec.kind.name in ("BUFFER_MUTATION", "PARAMETER_MUTATION"):
            yield number, places[spec.target]
        elif spec.kind.name == "USER_INPUT_MUTATION":
            yield number, inputs[spec.target]


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, _torch().Tensor) else value


def _array(tensor: Any) -> Any:
    """Return a tensor's memory as an array of numpy's, which can be donated; what is no tensor as it is."""
    torch = _torch()
    if not isinstance(tensor, torch.Tensor):
        return tensor
    dtype = np.dtype(torch.dtype(tensor.dtype))
    if dtype.kind == "V" or dtype.isbuiltin != 1:  # a type of ml_dtypes', which PyTorch does not give to numpy
        return tensor.view(torch.integers[dtype.itemsize]).numpy().view(dtype)
    return tensor.numpy()


def _held(tensor: Any, leaves: Sequence[Any]) -> Any:
    return tensor


def _tensor(array: npt.NDArray[Any], given: Sequence[Any] = ()) -> Any:
    return _torch().from_dlpack(to_dlpack(array))


def _write(place: int, array: npt.NDArray[Any], given: Sequence[Any]) -> Any:
    tensor = given[place]
    if tensor.data_ptr() == array.ctypes.data:  # it was donated
        _torch().increment_version(tensor)  # so that autograd sees the change
        return _WRITTEN
    with _torch().no_grad():
        tensor.copy_(_tensor(array))
    return _WRITTEN
