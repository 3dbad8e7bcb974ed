"""What the pages of the reference show: public names by the modules in which they are defined.

A page names modules, or single things, in a block of its own:

    ```{reference}
    stablexla.ops.reduction
    ```

A module of the package shows what `stablexla` exports of it, under `stablexla`; one that exports nothing there shows
its own public names. The site makes a summary and a description of each. For those who read the page as it stands, a
table below the block has each name with the first sentence of its docstring; `python docs/make_reference.py` writes it.
"""

from __future__ import annotations

import inspect
import itertools
import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import stablexla as sx

BEGIN, END = "<!-- names: docs/make_reference.py -->", "<!-- end of names -->"
BLOCK = re.compile(
    rf"^```\{{reference\}}\n(?P<places>.*?)^```$(?P<table>\n\n{BEGIN}\n.*?^{END}$)?", re.MULTILINE | re.DOTALL
)


def names_of(place: str) -> list[str]:
    """The public names at a place: those of a module, or the one thing that is called so."""
    home, _, last = place.rpartition(".")
    try:
        module = import_module(place)
    except ModuleNotFoundError:
        getattr(import_module(home), last)  # there is such a thing
        return [place]
    exported = [f"stablexla.{name}" for name in sx.__all__ if home_of(name) == place]
    return exported or [f"{place}.{name}" for name in _own(module)]


def home_of(name: str) -> str:
    """The module in which something that `stablexla` exports is defined."""
    thing = getattr(sx, name)
    return str(getattr(thing, "__module__", type(thing).__module__))


def real_names() -> dict[str, str]:
    """Names of things where they are defined, with those that they are exported under."""
    found = {}
    for name in sx.__all__:
        thing = getattr(sx, name)
        if hasattr(thing, "__qualname__"):
            found[full_name(thing)] = f"stablexla.{name}"
    return found


def full_name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"


def expanded(text: str) -> str:
    """A page's text with directives of Sphinx in place of its blocks."""
    return BLOCK.sub(lambda block: _directives(block["places"].split()), text)


def with_tables(text: str) -> str:
    """A page's text with tables of the names below its blocks."""
    return BLOCK.sub(lambda block: _with_table(block[0].removesuffix(block["table"] or ""), block["places"]), text)


def _with_table(block: str, places: str) -> str:
    names = [name for place in places.split() for name in names_of(place)]
    short = [name.replace("stablexla.", "sx.") if name.count(".") == 1 else name for name in names]
    rows = [f"| `{own}` | {_sentence(_thing(name))} |" for own, name in zip(short, names, strict=True)]
    return "\n".join([block, "", BEGIN, "| name | |", "|---|---|", *rows, END])


def _sentence(thing: object) -> str:
    """The first sentence of a docstring; of a value, what it is."""
    if not callable(thing):
        return (
            _value(thing).replace("``", "`").rstrip(".")
            if isinstance(thing, sx.ElementType)
            else f"a {type(thing).__name__}"
        )
    paragraph = " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s", paragraph)[0].rstrip(".:").replace("|", "\\|")


def _own(module: object) -> Sequence[str]:
    def is_own(thing: object) -> bool:
        return (inspect.isfunction(thing) or inspect.isclass(thing)) and thing.__module__ == module.__name__

    listed = getattr(module, "__all__", None)
    return listed or [name for name, thing in vars(module).items() if is_own(thing) and not name.startswith("_")]


def _directives(places: Sequence[str]) -> str:
    names = [name for place in places for name in names_of(place)]
    lines = [".. autosummary::", "   :nosignatures:", ""]
    lines += [f"   ~{name}" for name in names if callable(_thing(name))] + [""]
    for name in names:
        lines += _directive(name, _thing(name))
    return "\n".join(["```{eval-rst}", *lines, "```"])


def _thing(name: str) -> object:
    home, _, last = name.rpartition(".")
    return getattr(import_module(home), last)


def _directive(name: str, thing: object) -> list[str]:
    if inspect.isclass(thing):
        options = [":members:", ":special-members: __call__", f":inherited-members: {_shown_elsewhere(thing)}"]
        return [f".. autoclass:: {name}", *(f"   {option}" for option in options), ""]
    if callable(thing):
        return [f".. autofunction:: {name}", ""]
    home, _, last = name.rpartition(".")
    return [f".. py:currentmodule:: {home}", "", f".. py:data:: {last}", "", f"   {_value(thing)}", ""]


def _shown_elsewhere(cls: type) -> str:
    """The bases from the first on that is public, or no class of the package: their members are not repeated."""
    bases = cls.__mro__[1:]
    known = real_names()
    own = itertools.takewhile(lambda b: b.__module__.startswith("stablexla.") and full_name(b) not in known, bases)
    return ", ".join(base.__name__ for base in bases[len(list(own)) :])


def _value(thing: object) -> str:
    if isinstance(thing, sx.ElementType):
        bits = "1 bit" if thing.bits == 1 else f"{thing.bits} bits"
        return f"{bits}; ``{thing.mlir}`` in StableHLO, ``{thing.dtype}`` in arrays of numpy."
    return f"``{thing!r}``"
