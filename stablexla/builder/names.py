"""Suggestions for names that are looked up in the wrong place or under another name.

Operations without operands are methods of the builder, as nothing else says in which one they are; most others are
functions of the package. XLA's C++ names are spelled in capitals; `other_names.py` has those of other libraries.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any

import stablexla as sx
from stablexla.builder.other_names import ATTRIBUTES, OTHER_NAMES
from stablexla.builder.source import user_line
from stablexla.dialects.errors import ShapeError

_ALIKE = 0.8
"""The likeness from which on a name is taken for a misspelt one."""

#: Keywords of other libraries, and a part of the parameter's name here.
_MEANT = {
    ("axis", "axes", "dim", "dims"): "dim",
    ("dtype", "type", "astype"): "type",
    ("initial", "init", "initial_value"): "init",
    ("fun", "func", "function", "f", "body_fun", "reducer"): "computation",
    ("stride", "strides"): "strides",
}


def hint_for_package(name: str) -> str:
    """Suggest what to write in place of `sx.name`, such as "b.iota(shape, dimension) of the builder b", or ""."""
    return _hint(name, {**_methods(), **_functions()})


def hint_for_builder(name: str) -> str:
    """Suggest what to write in place of `b.name`."""
    return "" if name.startswith("_") else _hint(name, {**_functions(), **_methods()})


def hint_for_op(name: str, rank: int) -> str:
    """Suggest what to write in place of `x.name`, or of numpy's function, for an op x of this rank."""
    if name in ("T", "mT"):
        order = [*range(rank)][::-1] if name == "T" else [*range(rank - 2), rank - 1, rank - 2]
        return f"sx.transpose(x, {tuple(order)})" if rank > 1 else "x"
    return "" if name.startswith("_") else ATTRIBUTES.get(name) or _hint(name, _functions())


def no_attribute(what: str, name: str, hint: str) -> AttributeError:
    """Return the error of a name that is not there, with the way out; Python adds no suggestion of its own to it."""
    way_out = f": try {hint}" if hint else ""
    return AttributeError(f"{what} has no attribute {name!r}{way_out}")


def unfit(function: Callable[..., object], error: TypeError) -> ShapeError:
    """Return the error of a call with a keyword that is none, or too few or too many arguments."""
    parameters = [each for each in inspect.signature(function).parameters if each != "self"]
    where, _, short = function.__qualname__.rpartition(".")
    call = f"{'b' if where else 'sx'}.{short}({', '.join(parameters)})"
    found = re.search("unexpected keyword argument '(.*?)'", str(error))
    unknown = found[1] if found is not None else ""
    part = next((part for names, part in _MEANT.items() if unknown in names), "")
    meant = [each for each in parameters if part and part in each] or difflib.get_close_matches(unknown, parameters, 1)
    summary = f"there is no parameter {unknown!r}" if unknown else str(error).partition("() ")[2] or str(error)
    hint = f"{meant[0]}=, in {call}" if meant else call
    if short in ATTRIBUTES and (part == "dim" or "missing" in summary):  # a method of arrays, not the function of two
        hint = ATTRIBUTES[short]
    return ShapeError(summary, operation=short, source=user_line(), hint=hint)


def _hint(name: str, known: Mapping[str, str]) -> str:
    spelled = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[0-9])(?=[A-Z][a-z])", "_", name).lower()
    spelled = spelled if not keyword.iskeyword(spelled) else f"{spelled}_"
    found = OTHER_NAMES.get(name) or known.get(spelled) or OTHER_NAMES.get(spelled)
    if found is None:
        close = difflib.get_close_matches(spelled, [*known, *OTHER_NAMES], 1, _ALIKE)
        found = {**OTHER_NAMES, **known}[close[0]] if close else None
    return found or ""


@functools.cache
def _methods() -> Mapping[str, str]:
    found = inspect.getmembers(sx.XlaBuilder, inspect.isfunction)
    return {name: f"b.{name}({_parameters(f)}) of the builder b" for name, f in found if not name.startswith("_")}


@functools.cache
def _functions() -> Mapping[str, str]:
    found = {name: getattr(sx, name) for name in sx.__all__}
    return {name: f"sx.{name}({_parameters(f)})" for name, f in found.items() if inspect.isfunction(f)}


def _parameters(function: Callable[..., Any]) -> str:
    """Return the parameters without defaults, by name."""
    given = inspect.signature(function).parameters.values()
    names = [p.name for p in given if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return ", ".join(name for name in names if name != "self")
