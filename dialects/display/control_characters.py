"""Escapes of control characters: text from a file must not move a terminal's cursor, clear it or turn its order."""

from __future__ import annotations

import re

# C0 without tab and newline, DEL, C1 (which has a CSI of its own), and what changes the direction of text
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def escaped(text: str) -> str:
    r"""Return a text with its control characters as Python writes them; tabs and ends of lines stay.

    >>> escaped("clear\x1b[2J\n")
    'clear\\x1b[2J\n'
    """
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text)
