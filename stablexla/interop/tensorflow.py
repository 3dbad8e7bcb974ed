"""Functions and models of TensorFlow, run by stablexla: traced and lowered by TensorFlow, compiled and run here."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import jaxlib.mlir.ir as ir

from stablexla.compiling.compiler import compile as compile_program
from stablexla.dialects.errors import ShapeError, StablexlaError, UnsupportedError
from stablexla.interop.freezing import freeze as frozen
from stablexla.interop.loading import load
from stablexla.targets.signature.signature import main_of

if TYPE_CHECKING:
    from stablexla.executable.executable import Executable
    from stablexla.targets.pipeline.options import CompileOptions

__all__ = ["TensorFlowProgram", "compile"]

_STAGES = ("stablehlo", "hlo_serialized")
"""The forms of a program that TensorFlow is asked for; a version without the first has the second."""
_ALIASES = "mhlo.input_output_alias"
"""The attribute of a module that says which results are the next values of which parameters."""
_LONGEST = 600


class TensorFlowProgram:
    """A compiled function of TensorFlow for certain shapes. Call it like the function; results are numpy arrays.

    A call reads the present values of the variables, unless they were frozen, and assigns those that the function
    changes.

    Attributes:
        executable: the compiled program. Its parameters are the arguments' arrays, then the variables, by their names.
        variables: the variables that the function reads or changes, by their names, dots for slashes.
        changed: the names of those that it changes.
    """

    executable: Executable
    variables: Mapping[str, Any]
    changed: Sequence[str]

    def __init__(self, traced: _Traced, *, freeze: bool, options: CompileOptions | None) -> None:
        module = load(traced.program)
        updates = _updates(module, traced)
        changed = {id(capture) for capture in updates.values()}
        self.variables = {name: each for name, each in traced.captures.items() if _is_variable(each)}
        self.changed = [name for name, each in self.variables.items() if id(each) in changed]
        held = dict(traced.captures)
        if freeze:
            numbers = {name: number for number, name in enumerate(held, len(traced.names))}
            constants = [name for name, each in held.items() if id(each) not in changed]
            module = frozen(module, {numbers[name]: held.pop(name).numpy() for name in constants})
        self.executable = compile_program(module, options=options)
        self._traced, self._held, self._updates = traced, list(held.values()), updates

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it, and return the structure that the function returns, of numpy arrays.

        Raises:
            ShapeError: arguments of another structure, or another value where the argument is no array.
            ExecutionError: arrays of other shapes or types.
        """
        held = [each.value() if _is_variable(each) else each for each in self._held]
        results = self.executable.execute([*self._traced.arrays_of(args, kwargs), *held])
        for number, variable in self._updates.items():
            variable.assign(results[number])
        return self._traced.structured(results)

    def __repr__(self) -> str:
        return f"TensorFlowProgram({self.executable!r})"


class _Traced:
    """A function, traced by TensorFlow for arguments of certain shapes.

    Attributes:
        name: the function's.
        program: in one of the forms that are loaded.
        names: of the arrays among the arguments, the first parameters of the program.
        captures: the variables and tensors behind them, by their names.
        returned: the number of tensors that the function returns; the next values of variables come behind them.
    """

    def __init__(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.name = _name(function)
        self._nest = tensorflow().nest
        self._given = (args, kwargs)
        self._leaves = self._nest.flatten(self._given, expand_composites=True)
        self._fixed = {k: v for k, v in kwargs.items() if not any(map(_is_array, self._nest.flatten(v)))}
        paths = _paths(self._given, _parameters(function), self._nest)
        self._arrays = {n: paths[n] for n, leaf in enumerate(self._leaves) if _is_array(leaf)}
        self.names = _unique(list(self._arrays.values()))
        specs = [_spec(self._leaves[n], path) for n, path in self._arrays.items()]
        self._result: Any = None
        self._function = function  # keeps the variables of what was loaded
        graph = tensorflow().function(self._flat, jit_compile=True, autograph=False)
        concrete = graph.get_concrete_function(*specs)
        self.captures = _captures(concrete, self.names)
        self.program = _program(graph, specs)
        self.returned = len(self._tensors())

    def _flat(self, *arrays: Any) -> list[Any]:
        """Call the function with the arguments of which these are the arrays, and return the tensors of its result."""
        given = dict(zip(self._arrays, arrays, strict=True))
        leaves = [given.get(n, leaf) for n, leaf in enumerate(self._leaves)]
        args, kwargs = self._nest.pack_sequence_as(self._given, leaves, expand_composites=True)
        self._result = self._function(*args, **kwargs)
        return self._tensors()

    def _tensors(self) -> list[Any]:
        return [leaf for leaf in self._nest.flatten(self._result, expand_composites=True) if leaf is not None]

    def arrays_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """Return the arrays of a call's arguments.

        Raises:
            ShapeError: they are not those that the function was traced for.
        """
        kwargs = self._fixed | kwargs
        try:
            self._nest.assert_same_structure(self._given, (args, kwargs), check_types=False, expand_composites=True)
        except (TypeError, ValueError) as error:
            said = str(error).split("\n\n")[0]
            raise ShapeError(f"arguments of another structure than the program was compiled for: {said}") from None
        leaves = self._nest.flatten((args, kwargs), expand_composites=True)
        for n, (leaf, traced) in enumerate(zip(leaves, self._leaves, strict=True)):
            if n not in self._arrays and (_is_array(leaf) or leaf != traced):
                raise ShapeError(
                    f"the program was compiled for an argument {traced!r}, which is no array, and is given {leaf!r}",
                    hint="compile it for an array, or a tf.TensorSpec, in that place",
                )
        return [leaves[n].value() if _is_variable(leaves[n]) else leaves[n] for n in self._arrays]

    def structured(self, results: Sequence[Any]) -> Any:
        """Return results as the function does."""
        left = iter(results)
        leaves = self._nest.flatten(self._result, expand_composites=True)
        made = [None if leaf is None else next(left) for leaf in leaves]
        # Ragged and sparse tensors are made of several arrays; they are TensorFlow's again.
        return self._nest.pack_sequence_as(self._result, made, expand_composites=True)


def compile(
    function: Any, /, *args: Any, options: CompileOptions | None = None, freeze: bool = False, **kwargs: Any
) -> TensorFlowProgram:
    """Trace a function for arguments of certain shapes, and compile it.

    Args:
        function: a `tf.function`, a Keras model, a signature of a SavedModel, or a function of Python that calls
            TensorFlow.
        args, kwargs: an example or a `tf.TensorSpec` for each argument. Without any, those of the function's signature.
            What is no array, such as a number of Python, is constant; a call may leave it out if it is given by name.
        options: as `sx.compile` takes them.
        freeze: whether variables that the function does not change are constants of the program, which packs them once.

    Raises:
        ShapeError: an argument of unknown size.
        UnsupportedError: an operation that TensorFlow cannot write as StableHLO, or that is not supported here.
        StablexlaError: TensorFlow is not installed; the function takes arguments, and none are given.

    >>> import tensorflow as tf
    >>> w = tf.Variable([[1.0], [2.0]], name="w")
    >>> program = compile(lambda x: {"y": x @ w}, tf.TensorSpec((3, 2), tf.float32))
    >>> program.executable
    Executable('_lambda_', (f32[3,2], f32[2,1]) -> (f32[3,1]), target='cpu')
    >>> program(np.ones((3, 2), np.float32))["y"].tolist()
    [[3.0], [3.0], [3.0]]
    """
    if not callable(function):
        raise StablexlaError(f"a {type(function).__name__} is no function", hint="a tf.function, or a signature")
    if not args and not kwargs:
        args, kwargs = _own_signature(function)
    if inspect.isroutine(function):
        function = tensorflow().function(function)  # with its statements converted to TensorFlow's
    return TensorFlowProgram(_Traced(function, args, kwargs), freeze=freeze, options=options)


@cache
def tensorflow() -> Any:
    """Import TensorFlow.

    Raises:
        StablexlaError: it is not installed.
    """
    try:
        import tensorflow
    except ImportError as error:
        raise StablexlaError(
            f"tensorflow cannot be imported: {error}", hint="pip install 'stablexla[tensorflow]'"
        ) from error
    return tensorflow


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "shape") and hasattr(leaf, "dtype")


def _is_variable(value: Any) -> bool:
    return hasattr(value, "assign")


def _name(function: Any) -> str:
    """Return a function's name; that of a traced one without what TensorFlow puts around it."""
    name = getattr(function, "name", None) or getattr(function, "__name__", "main")
    name = name.decode() if isinstance(name, bytes) else str(name)
    return re.sub(r"\W", "_", re.sub(r"^__inference_(signature_wrapper_)?(.*)_\d+$", r"\2", name))


def _own_signature(function: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that a function's own signature has; none when it takes none."""
    structured = getattr(function, "structured_input_signature", None)
    if structured is not None:
        args, kwargs = structured
        return tuple(args), dict(kwargs)
    return tuple(getattr(function, "input_signature", None) or ()), {}


def _spec(leaf: Any, name: str) -> Any:
    """Return the type of an argument's array.

    Raises:
        ShapeError: a size is unknown.
    """
    tf = tensorflow()
    shape = tf.TensorShape(leaf.shape)
    if not shape.is_fully_defined():
        raise ShapeError(
            f"the argument {name} has an unknown size: {shape}",
            hint="a tf.TensorSpec with all sizes, or an example, for each argument",
        )
    return tf.TensorSpec(shape, leaf.dtype)


def _parameters(function: Any) -> list[str]:
    """Return the names of a function's positional parameters, as far as they are known."""
    for each in (getattr(function, "python_function", None), getattr(function, "call", None), function):
        if each is not None:
            try:
                return list(inspect.signature(each).parameters)
            except (TypeError, ValueError):
                continue
    return []


def _paths(given: tuple[tuple[Any, ...], dict[str, Any]], parameters: Sequence[str], nest: Any) -> list[str]:
    """Return a name for each leaf of the arguments, in the order in which TensorFlow flattens them."""
    args, kwargs = given
    names = [parameters[n] if n < len(parameters) else f"arg{n}" for n in range(len(args))]
    named = [*zip(names, args, strict=True), *sorted(kwargs.items())]
    return [path for name, value in named for path in _inner_paths(name, value, nest)]


def _inner_paths(path: str, value: Any, nest: Any) -> Iterator[str]:
    count = len(nest.flatten(value, expand_composites=True))
    inner: list[tuple[str, Any]] = []
    if isinstance(value, Mapping):
        inner = [(f"{path}.{key}", value[key]) for key in sorted(value)]
    elif isinstance(value, (list, tuple)):
        inner = [(f"{path}.{n}", each) for n, each in enumerate(value)]
    if not inner:
        yield from (path if count == 1 else f"{path}.{n}" for n in range(count))
    for name, each in inner:
        yield from _inner_paths(name, each, nest)


def _unique(names: Sequence[str]) -> list[str]:
    """Return names, those that occur again with a number."""
    seen: Counter[str] = Counter()
    made = []
    for name in names:
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name}_{seen[name] - 1}")
    return made


def _captures(concrete: Any, taken: Sequence[str]) -> dict[str, Any]:
    """Return what a traced function takes from outside, by name, in the order of the program's parameters.

    Raises:
        UnsupportedError: that is neither a variable nor a tensor.
    """
    variables = {id(each.handle): each for each in concrete.variables}
    values = [variables.get(id(each), each) for each in concrete.captured_inputs]
    if any(not _is_variable(each) and each.dtype == tensorflow().resource for each in values):
        raise UnsupportedError("the function uses a table, or another resource that is no tf.Variable")
    own = [each.name.rsplit(":", 1)[0].replace("/", ".") if _is_variable(each) else "constant" for each in values]
    return dict(zip(_unique([*taken, *own])[len(taken) :], values, strict=True))


def _program(graph: Any, specs: Sequence[Any]) -> str | bytes:
    """Return a traced function in the first form that TensorFlow has.

    Raises:
        UnsupportedError: TensorFlow cannot compile it.
    """
    tf = tensorflow()
    for stage in _STAGES:
        try:
            made: str | bytes = graph.experimental_get_compiler_ir(*specs)(stage=stage)
        except (ValueError, tf.errors.OpError) as error:
            said = str(error).split("\n\nStack trace")[0].split("\nThe op is created at")[0][:_LONGEST]
            if said.startswith("Invalid stage") and stage != _STAGES[-1]:
                continue
            hint = ""
            if "must be a compile-time constant" in said:
                hint = "a number or tuple of Python for the argument that says a size, in place of an array"
            raise UnsupportedError(f"TensorFlow cannot write this function as StableHLO: {said}", hint=hint) from error
        return made
    raise UnsupportedError(f"TensorFlow {tf.__version__} writes neither StableHLO nor HLO")


def _updates(module: ir.Module, traced: _Traced) -> dict[int, Any]:
    """Name the parameters of a program, and return the variable whose next value each further result is, by number.

    Raises:
        UnsupportedError: parameters or results are not those of the function.
    """
    main = main_of(module)
    arguments = list(main.regions[0].blocks[0].arguments)
    count, names = len(traced.names), [*traced.names, *traced.captures]
    captures, attributes = list(traced.captures.values()), module.operation.attributes
    updates = {}
    for entry in ir.ArrayAttr(attributes[_ALIASES]) if _ALIASES in attributes else []:
        alias = ir.DictAttr(ir.DictAttr(entry)["alias"])
        (number,) = list(ir.DenseI64ArrayAttr(ir.DictAttr(entry)["output_index"])) or [0]
        updates[number] = captures[ir.IntegerAttr(alias["parameter_number"]).value - count]
    results = len(ir.FunctionType(ir.TypeAttr(main.attributes["function_type"]).value).results)
    if len(arguments) != len(names) or results != traced.returned + len(updates):
        raise UnsupportedError(
            f"TensorFlow wrote a program of {len(arguments)} parameters and {results} results for {len(names)} arrays "
            f"({', '.join(names)}), {traced.returned} results and {len(updates)} changed variables"
        )
    attributes["sym_name"] = ir.StringAttr.get(traced.name, module.context)
    for argument, name in zip(arguments, names, strict=True):
        argument.set_location(ir.Location.name(name, context=module.context))
    if _ALIASES in attributes:
        del attributes[_ALIASES]  # of parameters by their numbers, which change when some become constants
    return updates
