"""Tables in HTML for notebooks: everything escaped, no style sheet, no script, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

# Notebooks align all cells to the right, and shade every other row; only a style on the cell itself is stronger.
_TEXT = "text-align:left;vertical-align:top;overflow-wrap:break-word"
_NUMBER = "text-align:right;vertical-align:top;white-space:nowrap;font-variant-numeric:tabular-nums"


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[str] = ()) -> str:
    """Return a table in a box of its own, which scrolls where the page is narrower.

    Args:
        heads, rows: the cells.
        numbers: columns that are aligned to the right and never broken.

    >>> "<b>" in html_table(["kind"], [["<b>"]])
    False
    """
    styles = [_NUMBER if name in numbers else _TEXT for name in heads]
    head = "".join(f'<th style="{style}">{escape(name)}</th>' for name, style in zip(heads, styles, strict=True))
    lines = [
        "".join(f'<td style="{style}">{escape(cell)}</td>' for cell, style in zip(row, styles, strict=True))
        for row in rows
    ]
    table = f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
    return f'<div style="max-width:100%;overflow-x:auto">{table}</div>'


def html_title(name: str, text: str) -> str:
    """Return a line with a name and what is said of it."""
    return f"<div><b>{escape(name)}</b> {escape(text)}</div>"
