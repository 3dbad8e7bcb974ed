"""List of all passes that a pipeline may name, with summaries and options: both MLIRs' and those written in Python.

Upstream's are parsed from the output of `mlir-opt --list-passes`, once per process.
"""

from __future__ import annotations

import functools
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Literal

import jaxlib.mlir.passmanager as hlo_passmanager
import mlir.ir as ir

from stablexla.dialects.contexts import stablehlo_context
from stablexla.dialects.lazy_dataclass import dataclass
from stablexla.targets.pipeline.passes import PASSES
from stablexla.targets.pipeline.stablehlo_passes import SHARED, STABLEHLO_PASSES, UNLISTED_OPTIONS

Origin = Literal["python", "stablehlo", "upstream", "both"]

_PASS = re.compile(r"  --([a-z][\w-]*)(?:=<[^>]*>)?\s+-\s+(.*)")
_OPTION = re.compile(r"    --?([\w-]+)((?:[ =]<[^>]*>)?)\s+-\s+(.*)")
_VALUE = re.compile(r"    =(\S+)\s+-\s*(.*)")


@dataclass(frozen=True)
class OptionInfo:
    """An option of a pass: its name, its value (a type, a default, or the choices), and its summary."""

    name: str
    value: str = ""
    summary: str = ""


@dataclass(frozen=True)
class PassInfo:
    """A pass.

    Attributes:
        name: as a pipeline spells it.
        summary: what it does.
        origin: "python" for one written in Python, "stablehlo" for one of jaxlib's MLIR, "upstream", or "both" for one
            that both MLIRs have.
        options: in the order in which they are listed.
        side: the MLIR of its modules: "stablehlo", "upstream" or "both".
    """

    name: str
    summary: str
    origin: Origin
    options: tuple[OptionInfo, ...] = ()
    side: str = ""


def all_passes() -> dict[str, PassInfo]:
    """Return every pass by name, sorted."""
    found = {**upstream_passes(), **stablehlo_passes(), **python_passes()}
    return dict(sorted(found.items()))


def python_passes() -> dict[str, PassInfo]:
    """Return the registered passes of this package and of the user."""
    found = {}
    for name, one in PASSES.items():
        options = (OptionInfo(o.name, f"{o.type.__name__}, {o.default!r}") for o in one.options.values())
        found[name] = PassInfo(name, one.summary, "python", tuple(options), one.side or "both")
    return found


@functools.cache
def stablehlo_passes() -> dict[str, PassInfo]:
    """Return the passes of jaxlib's MLIR; those that both MLIRs have bear upstream's summary."""
    upstream = upstream_passes()
    found = {
        name: PassInfo(name, summary, "stablehlo", (*_unlisted(name), *_defaults(name)), "stablehlo")
        for name, summary in STABLEHLO_PASSES.items()
    }
    for name in SHARED:
        known = upstream.get(name, PassInfo(name, "", "both"))
        found[name] = replace(known, origin="both", side="both")
    return found


def _unlisted(name: str) -> list[OptionInfo]:
    return [OptionInfo(option) for option in UNLISTED_OPTIONS.get(name, ())]


def _defaults(name: str) -> list[OptionInfo]:
    """Return a pass's options with their defaults, as the pass manager prints them."""
    if name.endswith("-pipeline"):
        return []
    text = str(hlo_passmanager.PassManager.parse(f"any({name})", stablehlo_context()))
    inside = re.search(r"\{(.*)\}", text)
    words = [word.partition("=") for word in inside[1].split()] if inside else []
    return [OptionInfo(option, default) for option, _, default in words]


@functools.cache
def upstream_passes() -> dict[str, PassInfo]:
    """Return the passes of upstream's MLIR; none when `mlir-opt` cannot be run."""
    tool = Path(ir.__file__).parent / "bin" / "mlir-opt"
    try:
        listing = subprocess.run([str(tool), "--list-passes"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return parse_listing(listing)


def parse_listing(listing: str) -> dict[str, PassInfo]:
    """Parse the output of `mlir-opt --list-passes`.

    >>> found = parse_listing('''Passes:
    ...   --cse                 -   Eliminate common sub-expressions
    ...   --tile                -   Tile loops
    ...     --mode=<value>      - How
    ...     =slow               -   carefully
    ... ''')
    >>> found["cse"].summary, found["tile"].options
    ('Eliminate common sub-expressions', (OptionInfo(name='mode', value='slow', summary='How'),))
    """
    found: dict[str, PassInfo] = {}
    name = ""
    for line in listing.splitlines():
        if match := _PASS.match(line):
            name = match[1]
            found[name] = PassInfo(name, match[2].strip(), "upstream", (), "upstream")
        elif name and (match := _OPTION.match(line)):
            option = OptionInfo(match[1], match[2].strip(" =<>").removesuffix("value") or "", match[3].strip())
            found[name] = replace(found[name], options=(*found[name].options, option))
        elif name and found[name].options and (match := _VALUE.match(line)):
            *others, last = found[name].options
            last = replace(last, value=f"{last.value}|{match[1]}".lstrip("|"))
            found[name] = replace(found[name], options=(*others, last))
    return found
