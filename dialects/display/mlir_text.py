"""The tokens of MLIR's text, and their colours on a terminal and in HTML.

No parser: IR that does not verify, HLO and PTX pass through it as well, with less colour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<value>%[\w$.#-]+)
    |(?P<symbol>[@^][\w$.-]+)
    |(?P<type>![\w.]+|(?:(?:\d+|\?)x)+[a-z]\w*|\b(?:tensor|memref|vector|complex|tuple)(?=<)
        |\b(?:[su]?i\d+|b?f\d+\w*|tf32|index|none)\b)
    |(?P<operation>\b[a-z_]\w*(?:\.[a-z_][\w-]*)+|(?<=[=)}]\s)[a-z][\w-]*(?=\())
    |(?P<keyword>\b(?:module|func|return|attributes|private|public|loc|dense|true|false|unit|array|affine_map
        |affine_set|strided|iter_args|ins|outs|to|step|else|do|cond|init|applies|across|dimensions)\b)
    |(?P<number>(?<![\w.])-?\d[\w.]*(?:[+-]\d+)?)""",
    re.VERBOSE,
)
ANSI = {
    "comment": "2",
    "string": "32",
    "value": "36",
    "symbol": "35",
    "type": "33",
    "operation": "1;34",
    "keyword": "1",
    "number": "32",
}
"""Parameters of `ESC [ ... m` for each kind of token: of the terminal's own palette, which fits its background."""
HTML = {
    "comment": "color:#808080",
    "string": "color:#2e8b57",
    "value": "color:#1b86a8",
    "symbol": "color:#a4509c",
    "type": "color:#b0731a",
    "operation": "color:#3f74d1;font-weight:600",
    "keyword": "font-weight:600",
    "number": "color:#2e8b57",
}
"""The style of each kind of token; colours that can be read on white and on black."""
MAX_LINES = 200
"""Lines of a program that a notebook shows."""


def tokens(text: str) -> Iterator[tuple[str, str]]:
    """Yield the text in pieces, each with its kind, "" between tokens.

    >>> [kind for kind, _ in tokens('%0 = stablehlo.add %x : tensor<4xf32> // sum') if kind]
    ['value', 'operation', 'value', 'type', 'type', 'comment']
    """
    at = 0
    for match in _TOKEN.finditer(text):
        if match.start() > at:
            yield "", text[at : match.start()]
        yield match.lastgroup or "", match.group()
        at = match.end()
    if at < len(text):
        yield "", text[at:]


def ansi_text(text: str) -> str:
    """Return the text with escape sequences for a terminal."""
    return "".join(f"\x1b[{ANSI[kind]}m{piece}\x1b[0m" if kind else piece for kind, piece in tokens(text))


def html_tokens(text: str) -> str:
    """Return the text as HTML whose tokens have classes: short, for a page with a style sheet."""
    return "".join(
        f'<i class="{kind[0]}">{escape(piece)}</i>' if kind else escape(piece) for kind, piece in tokens(text)
    )


def html_code(text: str, max_lines: int = MAX_LINES) -> str:
    """Return the text as a block of HTML that needs no style sheet; what is over `max_lines` is counted."""
    lines = text.split("\n")
    shown = "\n".join(lines[:max_lines])
    code = "".join(
        f'<span style="{HTML[kind]}">{escape(piece)}</span>' if kind else escape(piece) for kind, piece in tokens(shown)
    )
    more = f"\n... {len(lines) - max_lines} more lines" if len(lines) > max_lines else ""
    return f'<pre style="font-family:monospace;overflow-x:auto;line-height:1.35;max-height:40em">{code}{more}</pre>'
