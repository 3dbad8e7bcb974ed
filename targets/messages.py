"""MLIR's diagnostics as lines for a user: what was said, and the user's own line that it was said of."""

from __future__ import annotations

import difflib
import functools
import linecache
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import mlir.ir as ir

from stablexla.dialects.contexts import Diagnostic
from stablexla.targets.passes import PASSES, Side

_PLACE = re.compile(r'"([^"\n]+)":(\d+):(\d+)')
_LONGEST = 600

HLO_PASSES = (
    *("canonicalize", "cse", "inline", "symbol-dce", "strip-debuginfo", "loop-invariant-code-motion", "sccp"),
    *("chlo-legalize-to-stablehlo", "stablehlo-legalize-composite-to-call", "stablehlo-compatibility-expander"),
    *("stablehlo-refine-arguments", "stablehlo-refine-shapes", "stablehlo-canonicalize-dynamism"),
    *("stablehlo-complex-math-expander", "stablehlo-legalize-quant-to-math", "stablehlo-convert-to-signless"),
    *("stablehlo-legalize-qdq-to-quantized-op", "stablehlo-check-shape-assertions", "stablehlo-wrap-in-composite"),
    *("stablehlo-legalize-to-linalg", "stablehlo-legalize-to-vhlo", "stablehlo-legalize-deprecated-ops"),
    *("vhlo-to-version", "vhlo-legalize-to-stablehlo", "shape-legalize-to-stablehlo"),
)
"""Passes of StableHLO's MLIR that a pipeline may want; jaxlib cannot list them."""


def messages_of(error: BaseException, seen: Iterable[Diagnostic] = ()) -> list[str]:
    """Everything that MLIR said: what an exception brought along, and what a handler saw."""
    said = [_line(d.severity, d.message, d.location) for d in seen]
    for found in getattr(error, "error_diagnostics", ()):
        said.append(_line(_severity(found), str(found.message), str(found.location)))
        said += [_line("note", str(n.message), str(n.location)) for n in found.notes]
    return list(dict.fromkeys(said))


def _severity(found: Any) -> str:
    return str(found.severity).rsplit(".", 1)[-1].lower()


def _line(severity: str, message: str, location: str) -> str:
    if len(message) > _LONGEST:
        message = message[:_LONGEST] + " ..."
    place = place_of(location)
    return f"{severity}: {message}" + (f"\n    from {place}" if place else "")


def place_of(location: str) -> str:
    """A location's file and line, with the text of that line when the file can be read; "" when it has none.

    >>> place_of('loc("x"("model.py":3:7))')
    'model.py:3'
    """
    match = _PLACE.search(location)
    if match is None:
        return ""
    text = linecache.getline(match[1], int(match[2])).strip()
    return f"{match[1]}:{match[2]}" + (f":  {text}" if text else "")


def refused_passes(message: str) -> str:
    """What MLIR says of a pipeline that it does not read, in one line.

    >>> refused_passes("MLIR Textual PassPipeline Parser:1:1: error: 'cs' does not refer to a registered pass\\ncs\\n^")
    "'cs' does not refer to a registered pass"
    """
    lines = [line.strip() for line in message.splitlines() if line.strip(" ^")]
    said = [line.split("error: ", 1)[1] for line in lines if "error: " in line]
    return said[0] if said else "; ".join(line.removeprefix("<Pass-Options-Parser>: ") for line in lines)


def close_pass(message: str, side: Side) -> str:
    """The names of passes most like the one that MLIR does not know; "" when the message is about something else."""
    match = re.search(r"'([^']+)' does not refer to a registered pass", message)
    if match is None:
        return ""
    names = [*PASSES, *(HLO_PASSES if side == "stablehlo" else upstream_passes())]
    return " or ".join(difflib.get_close_matches(match[1], names, n=3, cutoff=0.6))


@functools.cache
def upstream_passes() -> tuple[str, ...]:
    """The names of upstream's passes, which only its command line can list; none when it cannot be run."""
    tool = Path(ir.__file__).parent / "bin" / "mlir-opt"
    try:
        listing = subprocess.run([str(tool), "--list-passes"], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return ()
    return tuple(re.findall(r"^  --([a-z][\w-]+)", listing.stdout, flags=re.MULTILINE))
