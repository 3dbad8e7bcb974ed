"""Inputs of `stablexla-run`: arrays from files, from the command line, or random."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from stablexla.dialects.attributes.arguments import told
from stablexla.dialects.element_types import BY_DTYPE, BY_NAME, ElementType
from stablexla.dialects.errors import ExecutionError
from stablexla.dialects.value_ranges import converted, keeps_kind, range_of
from stablexla.inspection.composite_kernels import random_array
from stablexla.lowering.support.types import TensorType
from stablexla.targets.runtime.arguments import parameter_place
from stablexla.targets.runtime.available_memory import copied
from stablexla.targets.runtime.bounded import is_within
from stablexla.targets.signature.interface import Signature, argument_names

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
    if spec in ("zeros", "ones", "iota") or word == "random":
        if argument and not argument.isdecimal():
            raise ExecutionError(f"{place}: random:{told(argument)}: the seed is a number")
        size = type_.size * type_.element.bytes
        return copied(lambda: _made_up(word, type_, int(argument) if argument else seed), size, place)
    if spec.endswith(".npy"):
        return from_file(Path(spec), type_, place)
    return _literal(spec, type_, place, dynamic)


def _made_up(word: str, type_: TensorType, seed: int) -> Array:
    dtype = type_.element.dtype
    if word == "random":
        return random_array(type_, seed)
    if word == "iota":
        return (np.arange(type_.size) % _modulus(type_.element)).astype(dtype).reshape(type_.shape)
    return np.full(type_.shape, word == "ones").astype(dtype)


def make_inputs(specs: Sequence[str], signature: Signature, seed: int, *, strict: bool = False) -> list[Array]:
    """Return the arrays for all parameters of a program; without any specification they are random.

    Args:
        specs: one for each parameter, in order, or each as NAME=SPEC.
        signature: of the program.
        seed: of the random numbers of the first parameter; the next ones follow.
        strict: whether an input without a specification is an error where none has one, too.

    Raises:
        ExecutionError: more or fewer specifications than parameters, some with names and some without; and as
            `make_input`.
    """
    ordered = ordered_specs(specs, signature.name, signature.parameter_names or ("",) * len(signature.parameters))
    if len(ordered) > len(signature.parameters):
        raise ExecutionError(
            f"{signature.name}: there are {len(ordered)} inputs for {len(signature.parameters)} parameters: {signature}"
        )
    places = places_of(signature)
    missing = places[len(ordered) :] + [place for place, spec in zip(places, ordered) if spec is None]
    if missing and (specs or strict):
        raise ExecutionError(
            f"{signature.name}: no input is given for {', '.join(missing)}: {signature}",
            hint="--input random, where that is meant",
        )
    given = [spec or "random" for spec in ordered] or ["random"] * len(places)
    rows = zip(given, signature.parameters, places, signature.dynamic_parameters, strict=True)
    return [make_input(spec, t, seed + i, place, dynamic) for i, (spec, t, place, dynamic) in enumerate(rows)]


def random_inputs(arguments: argparse.Namespace, signature: Signature) -> list[tuple[str, str, str]]:
    """Return the place, the type and the specification of each input that the options leave out."""
    if arguments.input or arguments.inputs:
        return []
    rows = zip(places_of(signature), signature.parameters, strict=True)
    return [(place, str(type_), f"random:{arguments.seed + i}") for i, (place, type_) in enumerate(rows)]


def places_of(signature: Signature) -> list[str]:
    """Return the parameters' names in errors."""
    names = signature.parameter_names or ("",) * len(signature.parameters)
    return [parameter_place(i, name) for i, name in enumerate(names)]


def ordered_specs(specs: Sequence[str], program: str, names: Sequence[str]) -> list[str | None]:
    """Return the specifications in the order of the parameters; None for one whose name is not given.

    >>> ordered_specs(["v=zeros", "x=a.npy"], "main", ["x", "v"]), ordered_specs(["a.npy"], "main", ["x", "v"])
    (['a.npy', 'zeros'], ['a.npy'])

    Raises:
        ExecutionError: a name that is no parameter's, or given twice; some with names and some without.
    """
    known = argument_names(names)
    parts = [_named(spec, known) for spec in specs]
    named = {name: spec for name, spec in parts if name}
    if not named:
        return [spec for _, spec in parts]
    if len(named) < len(parts):
        raise ExecutionError(
            f"{program}: inputs are given all by name, each once, or all in order, not {' '.join(specs)}"
        )
    for name in named:
        if name not in known:
            raise ExecutionError(f"{program}: there is no parameter {name!r}; there are {', '.join(known)}")
    return [named.get(name) for name in known]


def _named(spec: str, known: Sequence[str]) -> tuple[str, str]:
    """Return a specification's name, if it has one, and the rest of it."""
    for name in known:
        if spec.startswith(f"{name}="):
            return name, spec.removeprefix(f"{name}=")
    name, found, rest = spec.partition("=")
    return (name, rest) if found and name.isidentifier() and not Path(spec).exists() else ("", spec)


def load_inputs(path: Path, signature: Signature) -> list[Array]:
    """Return the arrays of an .npz file, one for each parameter: by the parameters' names, or in order.

    Raises:
        ExecutionError: as `arrays_of`; or an array without a type.
    """
    arrays = arrays_of(path, signature.parameter_names or ("",) * len(signature.parameters))
    rows = zip(arrays, signature.parameters, places_of(signature), strict=True)
    return [_typed(array, type_, f"{path}: {place}") for array, type_, place in rows]


def arrays_of(path: Path, names: Sequence[str]) -> list[Array]:
    """Return the arrays of an .npz file in the order of the parameters with these names.

    Raises:
        ExecutionError: the file cannot be read, lacks an array, or has one that is no parameter's.
    """
    found = read_arrays(path, ".npz")
    known = argument_names(names)
    in_order = [f"arr_{i}" for i in range(len(names))]
    numbered = [name for name in found if re.fullmatch(r"arr_\d+", name) and name not in known]
    wanted = in_order if numbered or not found else list(found) if [*names] == [""] and len(found) == 1 else known
    way_out = "np.savez(file, a, b ...), in the order of the parameters"
    if any(names):
        way_out += f"; or by name: {', '.join(known)}"
    if numbered and len(numbered) < len(found):
        raise ExecutionError(f"{path} has arrays with names and without: {', '.join(found)}", hint=way_out)
    missing, spare = [n for n in wanted if n not in found], [n for n in found if n not in wanted]
    if missing or spare:
        lacks = f"lacks {', '.join(missing)}" if missing else ""
        has = f"has {', '.join(spare)}, which no parameter is called" if spare else ""
        raise ExecutionError(f"{path} {' and '.join(filter(None, (lacks, has)))}", hint=way_out)
    return [found[name] for name in wanted]


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


def _modulus(element: ElementType) -> int:
    """Return where counting restarts, for types that cannot count on."""
    if element.is_integer or element.is_pred:
        return 1 << min(62, element.bits - element.is_signed)
    return 1 << (3 if element.bits <= 8 else 8 if element.bits == 16 else 24)


def from_file(path: Path, type_: TensorType, place: str) -> Array:
    """Return the array of an .npy file, for an array of the program of that type.

    Raises:
        ExecutionError: as `read_arrays`; or an array without a type.
    """
    array = read_arrays(path, ".npy", f"{place}: ")[""]
    return _typed(array, type_, place)


def read_arrays(path: Path, form: str, place: str = "") -> dict[str, Array]:
    """Return the arrays of a file by name, that of an .npy file by the name "".

    Args:
        path: the file.
        form: ".npy" or ".npz", which it must be.
        place: what errors begin with.

    Raises:
        ExecutionError: it cannot be read: there is none, it is damaged, of another form, or needs more memory than
            there is.
    """
    try:
        found = np.load(path, allow_pickle=False)
        if not isinstance(found, np.ndarray):
            with found as file:
                found = {name: file[name] for name in file.files}
    except Exception as error:  # numpy and zipfile raise many kinds for damaged files
        said = f"{error.strerror}" if isinstance(error, OSError) and error.strerror else str(error)
        if "pickle" in said:
            said = f"it is no {form} file of numbers"
        raise ExecutionError(
            f"{place}{path} cannot be read as an {form} file: {said or type(error).__name__}"
        ) from None
    arrays = found if isinstance(found, dict) else {"": found}
    if isinstance(found, dict) != (form == ".npz"):
        other, option = (".npz", "--inputs") if form == ".npy" else (".npy", "--input")
        raise ExecutionError(f"{place}{path} is an {other} file", hint=f"{option} {path}")
    return arrays


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
    if array.shape and not is_within(array.shape, type_.shape, dynamic):
        raise ExecutionError(f"{place} takes {type_}, but {shown} has the shape {list(array.shape)}")
    given = BY_DTYPE.get(array.dtype, BY_NAME["s64"])
    if array.size and not (keeps_kind(given, element) or (element.is_pred and given.is_integer)):
        what = "true or false" if element.is_pred else "of integers" if element.is_integer else "of real numbers"
        raise ExecutionError(f"{place} takes {type_}, and {shown} is not {what}")
    array = converted(array, element, ExecutionError, f"{place}: ")
    whole = np.broadcast_to(array, array.shape or type_.shape)
    return copied(lambda: np.array(whole, order="C"), whole.size * array.itemsize, place)


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
