"""Inputs of `stablexla-run`: arrays from files, from the command line, or random."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.element_types import BY_DTYPE, BY_NAME, ElementType
from stablexla.dialects.errors import ExecutionError
from stablexla.dialects.value_ranges import converted, keeps_kind, range_of
from stablexla.lowering.support.types import TensorType
from stablexla.targets.signature.signature import Signature

Array = npt.NDArray[Any]
FORMS = "FILE.npy, random, random:SEED, zeros, ones, iota, or a value such as 1.5, inf or [[1,2],[3,4]]"


def make_input(spec: str, type_: TensorType, seed: int, place: str, dynamic: Sequence[int] = ()) -> Array:
    """Return the array of a specification.

    Args:
        spec: as FORMS says.
        type_: the parameter's type.
        seed: of random numbers, unless the specification has its own.
        place: the parameter's name in errors.
        dynamic: dimensions in which a value or a file may be smaller; what is made up has the full size.

    Raises:
        ExecutionError: a file that cannot be read, or a value that is none or does not fit.

    >>> from stablexla.dialects.element_types import element_type
    >>> make_input("iota", TensorType(element_type("s32"), (2, 3)), 0, "parameter 0").tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    word, _, argument = spec.partition(":")
    dtype = type_.element.dtype
    if word == "random":
        if argument and not argument.isdecimal():
            raise ExecutionError(f"{place}: random:{argument}: the seed is a number")
        return random_array(type_, int(argument) if argument else seed)
    if word in ("zeros", "ones"):
        return np.full(type_.shape, word == "ones").astype(dtype)
    if word == "iota":
        return (np.arange(type_.size) % _modulus(type_.element)).astype(dtype).reshape(type_.shape)
    if spec.endswith(".npy"):
        return _from_file(Path(spec), type_, place)
    return _literal(spec, type_, place, dynamic)


def make_inputs(specs: Sequence[str], signature: Signature, seed: int) -> list[Array]:
    """Return the arrays for all parameters of a program; those without a specification are random.

    Raises:
        ExecutionError: more specifications than parameters; and as `make_input`.
    """
    if len(specs) > len(signature.parameters):
        raise ExecutionError(
            f"{signature.name}: takes {len(signature.parameters)} inputs, but {len(specs)} are given: {signature}"
        )
    arrays = []
    names = signature.parameter_names or ("",) * len(signature.parameters)
    for i, (type_, name) in enumerate(zip(signature.parameters, names, strict=True)):
        place = f"parameter {i}" + (f" ({name})" if name else "")
        spec = specs[i] if i < len(specs) else "random"
        arrays.append(make_input(spec, type_, seed + i, place, signature.dynamic_parameters[i]))
    return arrays


def load_inputs(path: Path, types: Sequence[TensorType]) -> list[Array]:
    """Return the arrays of an .npz file, one for each parameter, in the order of the file.

    Raises:
        ExecutionError: the file cannot be read, or has other arrays than the program takes.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = [file[name] for name in file.files]
    except (OSError, ValueError, AttributeError) as error:
        raise ExecutionError(f"{path} cannot be read as an .npz file: {error}") from None
    if len(arrays) != len(types):
        raise ExecutionError(f"{path} has {len(arrays)} array(s), and the program takes {len(types)}")
    return [_typed(a, t, f"{path}: array {i}") for i, (a, t) in enumerate(zip(arrays, types, strict=True))]


def _typed(array: Array, type_: TensorType, place: str) -> Array:
    """Restore the types of ml_dtypes, which numpy's files know only by their size.

    Raises:
        ExecutionError: bytes of no type, for an element type that numpy's files have a name for.
    """
    if array.dtype.kind != "V":
        return array
    element = type_.element
    if array.dtype.names is None and element.dtype.isbuiltin != 1 and array.dtype.itemsize == element.bytes:
        return array.view(element.dtype)
    raise ExecutionError(
        f"{place} takes {type_}, but the file has elements of {array.dtype.itemsize} bytes and of no type",
        hint=f"np.save(file, array.view({element.dtype.name!r}))",
    )


def random_array(type_: TensorType, seed: int) -> Array:
    """Return random numbers that suit most programs: normal floats, integers between -10 and 10, either pred."""
    element, rng = type_.element, np.random.default_rng(seed)
    if element.is_pred:
        return rng.integers(0, 2, type_.shape).astype(bool)
    if element.is_integer:
        low = -min(10, 1 << (element.bits - 1)) if element.is_signed else 0
        high = min(10, (1 << (element.bits - element.is_signed)) - 1)
        return rng.integers(low, high, type_.shape, endpoint=True).astype(element.dtype)
    numbers = rng.standard_normal(type_.shape)
    if element.is_complex:
        return (numbers + 1j * rng.standard_normal(type_.shape)).astype(element.dtype)
    return np.asarray(numbers).astype(element.dtype)


def _modulus(element: ElementType) -> int:
    """Return where counting restarts, for types that cannot count on."""
    if element.is_integer or element.is_pred:
        return 1 << min(62, element.bits - element.is_signed)
    return 1 << (3 if element.bits <= 8 else 8 if element.bits == 16 else 24)


def _from_file(path: Path, type_: TensorType, place: str) -> Array:
    try:
        array: Array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ExecutionError(f"{place}: {path} cannot be read: {error}") from None
    return _typed(array, type_, place)


def literal(spec: str) -> Any:
    """Return the number, or the nested lists of numbers, that a text is in Python or in JSON.

    Raises:
        ValueError: it is something else.
        OverflowError: a number beyond f64, which Python would read as an infinity.

    >>> literal("[[1, -inf], [true, 2.5]]")
    [[1, -inf], [True, 2.5]]
    """
    try:
        return ast.literal_eval(_Words().visit(ast.parse(spec.strip(), mode="eval")))
    except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(str(error)) from None


class _Words(ast.NodeTransformer):
    """Replaces JSON's and numpy's words by their values."""

    VALUES: ClassVar = {"true": True, "false": False, "nan": np.nan, "NaN": np.nan, "inf": np.inf, "Infinity": np.inf}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Constant(self.VALUES[node.id]) if node.id in self.VALUES else node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, (float, complex)) and np.isinf(node.value):
            raise OverflowError
        return node


def _literal(spec: str, type_: TensorType, place: str, dynamic: Sequence[int]) -> Array:
    element, shown = type_.element, told(spec).strip("'\"")
    try:
        array = _array(literal(spec), element)
    except ValueError:
        raise ExecutionError(f"{place}: {told(spec)} is no input", hint=FORMS) from None
    except OverflowError:
        raise ExecutionError(f"{place}: {shown} is out of the range of {range_of(element)}") from None
    if array.shape and not _fits(array.shape, type_.shape, dynamic):
        raise ExecutionError(f"{place} takes {type_}, but {shown} has the shape {list(array.shape)}")
    given = BY_DTYPE.get(array.dtype, BY_NAME["s64"])
    if array.size and not (keeps_kind(given, element) or (element.is_pred and given.is_integer)):
        what = "true or false" if element.is_pred else "of integers" if element.is_integer else "of real numbers"
        raise ExecutionError(f"{place} takes {type_}, and {shown} is not {what}")
    array = converted(array, element, ExecutionError, f"{place}: ")
    return np.array(np.broadcast_to(array, array.shape or type_.shape), order="C")


def _array(value: Any, element: ElementType) -> Array:
    """Return an array of numbers; of Python's integers where numpy has no type for all of them."""
    array = np.array(value)
    if array.dtype.kind in "fO":
        objects = np.array(value, object)
        if objects.size and all(type(number) is int for number in objects.flat):
            return objects if element.is_integer or element.is_pred else objects.astype(np.float64)
    if array.dtype.kind not in "biufc":
        raise ValueError
    return array


def _fits(shape: Sequence[int], bounds: Sequence[int], dynamic: Sequence[int]) -> bool:
    """Return whether an array has the required sizes, or smaller ones where they are dynamic."""
    return len(shape) == len(bounds) and all(
        n == bound or (n < bound and place in dynamic) for place, (n, bound) in enumerate(zip(shape, bounds))
    )
