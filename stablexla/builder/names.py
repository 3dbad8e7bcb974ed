"""Suggestions for names that are looked up in the wrong place or under another name.

Operations without operands are methods of the builder, as nothing else says in which one they are; most others are
functions of the package. XLA's C++ names are spelled in capitals; `other_names.py` has those of other libraries.
"""

from __future__ import annotations

import difflib
import inspect
import keyword
import re
from collections.abc import Callable, Mapping
from typing import Any

import stablexla as sx
from stablexla.builder.other_names import ATTRIBUTES, OTHER_NAMES

_ALIKE = 0.8
"""The likeness from which on a name is taken for a misspelt one."""


def hint_for_package(name: str) -> str:
    """Suggest what to write in place of `sx.name`: ": try b.iota(...), a method of the builder", or ""."""
    return _hint(name, {**_methods(), **_functions()})


def hint_for_builder(name: str) -> str:
    """Suggest what to write in place of `b.name`."""
    return _hint(name, {**_functions(), **_methods()})


def hint_for_op(name: str, rank: int) -> str:
    """Suggest what to write in place of `x.name`, or of numpy's function, for an op x of this rank."""
    if name in ("T", "mT"):
        order = [*range(rank)][::-1] if name == "T" else [*range(rank - 2), rank - 1, rank - 2]
        return f": try sx.transpose(x, {tuple(order)})" if rank > 1 else ": try x"
    other = ATTRIBUTES.get(name)
    return f": try {other}" if other is not None else _hint(name, _functions())


def _hint(name: str, known: Mapping[str, str]) -> str:
    spelled = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[0-9])(?=[A-Z][a-z])", "_", name).lower()
    spelled = spelled if not keyword.iskeyword(spelled) else f"{spelled}_"
    found = OTHER_NAMES.get(name) or known.get(spelled) or OTHER_NAMES.get(spelled)
    if found is None:
        close = difflib.get_close_matches(spelled, [*known, *OTHER_NAMES], 1, _ALIKE)
        found = {**OTHER_NAMES, **known}[close[0]] if close else None
    return f": try {found}" if found is not None else ""


def _methods() -> dict[str, str]:
    found = inspect.getmembers(sx.XlaBuilder, inspect.isfunction)
    return {name: f"b.{name}({_parameters(f)}) of the builder b" for name, f in found if not name.startswith("_")}


def _functions() -> dict[str, str]:
    found = {name: getattr(sx, name) for name in sx.__all__}
    return {name: f"sx.{name}({_parameters(f)})" for name, f in found.items() if inspect.isfunction(f)}


def _parameters(function: Callable[..., Any]) -> str:
    """Return the parameters without defaults, by name."""
    given = inspect.signature(function).parameters.values()
    names = [p.name for p in given if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    return ", ".join(name for name in names if name != "self")
