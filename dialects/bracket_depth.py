"""How deep the brackets of a text are nested. MLIR's parser goes down by recursion, and ends the process at the end of
the stack."""

from __future__ import annotations

import re

import numpy as np

DEEPEST = 1000
"""How deep brackets may be nested; some ten times that overflow the stack."""

_STRING_OR_COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*')
_OPENING, _CLOSING = b"([{<", b")]}>"
_OTHERS = bytes(set(range(256)) - {*_OPENING, *_CLOSING})


_LONG = 4096
"""Digits of a constant, of more of which it is large."""


def without_elements(text: str) -> str:
    """Return a text without the digits of large constants, which is searched in less time.

    >>> without_elements('dense<"0x' + "00" * 5000 + '"> : tensor<5000xi8>')
    'dense<"0x"> : tensor<5000xi8>'
    """
    if len(text) < 2 * _LONG:
        return text
    return '"'.join("0x" if len(part) > _LONG and _is_digits(part) else part for part in text.split('"'))


def _is_digits(part: str) -> bool:
    """Return whether what stands between quote marks is digits: not code behind a quote mark in a comment."""
    return part.startswith("0x") and not any(character in part for character in "\n.([{<")


def too_deep(text: str) -> tuple[int, int] | None:
    """Return the line and column, from 1, of the first bracket nested too deep; None without one.

    >>> too_deep("[" * 10 + "]" * 10), too_deep("\\n" + "[" * 2000)
    (None, (2, 1001))
    """
    short = without_elements(text)
    if sum(short.count(bracket) for bracket in "([{<") <= DEEPEST or _bound(short.encode()) <= DEEPEST:
        return None
    return _first_too_deep(text)


def _bound(data: bytes) -> int:
    """Return an upper bound of the depth: brackets in strings count, surplus closing ones do not."""
    brackets = np.frombuffer(data.replace(b"->", b"").translate(None, _OTHERS), np.uint8)
    step = np.zeros(256, np.int8)
    step[list(_OPENING)], step[list(_CLOSING)] = 1, -1
    depths = np.cumsum(step[brackets], dtype=np.int32)
    return int((depths - np.minimum(np.minimum.accumulate(depths), 0)).max(initial=0))


def _first_too_deep(text: str) -> tuple[int, int] | None:
    plain = _STRING_OR_COMMENT.sub(lambda match: " " * len(match[0]), text)
    depth = 0
    for match in re.finditer(r"->|[(\[{<]|[)\]}>]", plain):
        if match[0] in "([{<":
            depth += 1
            if depth > DEEPEST:
                before = text[: match.start()]
                return before.count("\n") + 1, match.start() - before.rfind("\n")
        elif match[0] != "->":
            depth = max(0, depth - 1)
    return None
