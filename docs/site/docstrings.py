"""Docstrings as Sphinx reads them: code in single backticks, and sources as links to their sections.

Docstrings here are written as they are read in a terminal: `code` stands in single backticks, as in Markdown, and a
line "Source: `Reduce` of XLA's operation semantics; StableHLO `reduce`." says what an operation follows.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection

import stablexla as sx

SEMANTICS = "https://openxla.org/xla/operation_semantics"
STABLEHLO = "https://openxla.org/stablehlo/spec"
CHLO = "https://openxla.org/stablehlo/generated/chlo"
# Sections of the operation semantics whose titles say more than the operation's name.
TITLES = {"Conv": "conv_convolution", "ConvWithGeneralPadding": "convwithgeneralpadding_convolution"}

_CODE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_SOURCE = re.compile(r"^(\s*)Source: ")
_NAMED = re.compile(
    r"(?P<of>StableHLO |CHLO )?`(?P<name>[^`]+)`(?=(?P<semantics>(?: and `\w+`)? of XLA's operation semantics)?)"
)


def to_rst(lines: list[str], parameters: Collection[str] = ()) -> list[str]:
    """The lines of a docstring as reStructuredText; names of `parameters` lead nowhere."""
    return [made for line in lines for made in _line(line, parameters)]


def parameters_of(obj: object) -> Collection[str]:
    """Names that a docstring of this object means when it has them in backticks."""
    try:
        return inspect.signature(obj).parameters if callable(obj) else ()
    except ValueError:  # nanobind's functions have none
        return ()


def _line(line: str, parameters: Collection[str]) -> list[str]:
    if line.lstrip().startswith((">>>", "...")):
        return [line]
    source = _SOURCE.match(line)
    if source:
        return ["", f"{source[1]}**Source**: {_NAMED.sub(_linked, line[source.end() :])}"]
    parts = re.split(r"(`+[^`]*`+_*)", line)
    parts[::2] = [re.sub(r"[|*]|(?<=\w)_\b", r"\\\g<0>", part) for part in parts[::2]]
    parts[1::2] = [_CODE.sub(lambda found: _code(found[1], parameters), part) for part in parts[1::2]]
    return ["".join(parts)]


def _code(text: str, parameters: Collection[str]) -> str:
    if text in sx.__all__ and text not in parameters:
        return f":py:obj:`{text} <stablexla.{text}>`"
    return f"``{text}``"


def _linked(found: re.Match[str]) -> str:
    """A name in a source as a link to its section."""
    name, of = found["name"], found["of"] or ""
    if found["semantics"]:
        return f"{of}`{name} <{SEMANTICS}#{TITLES.get(name, name.lower())}>`__"
    address = {"StableHLO ": f"{STABLEHLO}#{name}", "CHLO ": CHLO}.get(of)
    return f"{of}`{name} <{address}>`__" if address else f"``{name}``"
