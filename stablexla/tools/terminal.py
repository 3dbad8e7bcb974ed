"""The tools' output on a terminal: errors and IR in colours. Files and pipes get the same text without them."""

from __future__ import annotations

import re
import sys
from typing import Any

from stablexla.dialects.display.mlir_text import ansi_text
from stablexla.dialects.display.tables import is_coloured

_ERROR = re.compile(r"(?m)^(\S+: )?(error:)")
_RED = r"\1" + "\x1b[1;31m" + r"\2" + "\x1b[0m"
MAX_HIGHLIGHTED = 4_000_000
"""Characters of IR that are highlighted; more are printed as they are, since nobody waits for them."""


def print_error(message: str) -> None:
    """Print `error:` and the message on standard error."""
    print_errors(f"error: {message}")


def print_errors(text: str, end: str = "\n") -> None:
    """Print a text on standard error, in which every `error:` at the start of a line, or after a place, is red."""
    print(_ERROR.sub(_RED, text) if is_coloured(sys.stderr) else text, end=end, file=sys.stderr)


def highlighted(data: bytes, stream: Any) -> bytes:
    """Return IR as it goes to a stream: highlighted on a terminal, otherwise unchanged; bytecode always unchanged."""
    if len(data) > MAX_HIGHLIGHTED or b"\0" in data or not is_coloured(stream):
        return data
    return ansi_text(data.decode(errors="replace")).encode()
