"""MLIR's diagnostics as lines for a user: the message, and the user's own source line that it is about."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any

from stablexla.dialects import source_files
from stablexla.dialects.contexts import Diagnostic
from stablexla.targets.pipeline.passes import PASSES, Side
from stablexla.targets.pipeline.pipelines import LOWER

_LONGEST = 600


def messages_of(error: BaseException, seen: Iterable[Diagnostic] = ()) -> list[str]:
    """Return all of MLIR's diagnostics: those in an exception, and those that a handler saw."""
    said = [line_of(d.severity, d.message, d.location) for d in seen]
    for found in getattr(error, "error_diagnostics", ()):
        said.append(line_of(_severity(found), str(found.message), str(found.location)))
        said += [line_of("note", str(n.message), str(n.location)) for n in found.notes]
    return list(dict.fromkeys(said))


def _severity(found: Any) -> str:
    return str(found.severity).rsplit(".", 1)[-1].lower()


def line_of(severity: str, message: str, location: str) -> str:
    """Format one diagnostic as a line for a user, and below it its source location."""
    if len(message) > _LONGEST:
        message = message[:_LONGEST] + " ..."
    place = place_of(location)
    return f"{severity}: {message}" + (f"\n    from {place}" if place else "")


def place_of(location: str) -> str:
    """Return a location's file and line, with the line's text when the file can be read; "" when it has none.

    Of an operation inside a library's function it is the library's line, followed by the user's call.

    >>> place_of('loc("x"("model.py":3:7))')
    'model.py:3'
    """
    return source_files.line_of(location, functions=False)


def refused_passes(message: str) -> str:
    """Return MLIR's error about a pipeline that does not parse, in one line.

    >>> refused_passes("MLIR Textual PassPipeline Parser:1:1: error: 'cs' does not refer to a registered pass\\ncs\\n^")
    "'cs' does not refer to a registered pass"
    """
    lines = [line.strip() for line in message.splitlines() if line.strip(" ^")]
    said = [line.split("error: ", 1)[1] for line in lines if "error: " in line]
    return said[0] if said else "; ".join(line.removeprefix("<Pass-Options-Parser>: ") for line in lines)


def close_pass(message: str, side: Side) -> str:
    """Suggest the pass names closest to an unknown one; "" when the message is about something else."""
    match = re.search(r"'([^']+)' does not refer to a registered pass", message)
    if match is None:
        return _way_out(message)
    from stablexla.targets.pipeline.pass_list import all_passes  # asks mlir-opt, which takes its time

    known = all_passes()
    name = match[1].strip()
    if name in PASSES:
        return f"{name} beside the nest: a pass written in Python takes the whole module"
    if name in known:
        return f"{name} on the other side of {LOWER}: it is a pass of {known[name].side}'s MLIR"
    names = [n for n, info in known.items() if info.side in (side, "both")]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    return " or ".join(near or difflib.get_close_matches(name, known, n=3, cutoff=0.8))


def _way_out(message: str) -> str:
    """Suggest the spelling for a pass that cannot run at its nesting level."""
    match = re.search(r"'(\S+)' restricted to '(\S+)' on a PassManager intended to run on '\S+'", message)
    return f"{match[2]}(...) around it" if match else ""
