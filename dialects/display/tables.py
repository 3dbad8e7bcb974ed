"""The one style of tables on terminals and in pipes, and the console that prints them.

A header line without frames; numbers to the right, never broken; texts are folded where the terminal is too narrow.
What is not a terminal gets plain lines of any length. rich is imported where something is shown, as it takes longer
to import than a small program to compile.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import IO, TYPE_CHECKING, Any

from stablexla.dialects.display.control_characters import escaped

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

GAP = "  "


def console(*, stderr: bool = False, file: IO[str] | None = None, width: int | None = None) -> Console:
    """Return the console of the tools: without colours and all other escape sequences where NO_COLOR is set."""
    from rich.console import Console

    def made(**more: Any) -> Console:
        return Console(stderr=stderr, file=file, width=width, highlight=False, markup=False, emoji=False, **more)

    found = made()
    return made(color_system=None) if found.no_color else found


def is_coloured(stream: Any) -> bool:
    """Return whether what is written to a stream may have colours: a terminal that has them, and no NO_COLOR."""
    if stream is None or not stream.isatty():  # nearly always the case in scripts, and known without rich
        return False
    found = console(file=stream)
    return found.is_terminal and found.color_system is not None


def show_table(
    where: Console,
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Collection[str] = (),
    title: str = "",
) -> None:
    """Print a table.

    Args:
        where: a terminal or anything else.
        heads: names of the columns; without any, the table has no header.
        rows: the cells, as text.
        numbers: the columns that hold numbers.
        title: a line above it.
    """
    heads, rows = [*map(escaped, heads)], [[*map(escaped, row)] for row in rows]
    if where.is_terminal:
        where.print(_rich_table(where.width, heads, rows, numbers, title))
    else:
        print("\n".join(plain_table(heads, rows, numbers, title)), file=where.file)


def plain_table(
    heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str] = (), title: str = ""
) -> list[str]:
    """Return the lines of a table, as wide as its cells.

    >>> print("\\n".join(plain_table(["name", "ms"], [["add", "1.25"], ["exp", "10.5"]], ["ms"])))
    name    ms
    add   1.25
    exp   10.5
    """
    lines = [heads, *rows] if any(heads) else rows
    widths = [max((len(line[i]) for line in lines), default=0) for i in range(len(heads))]
    sides = [str.rjust if name in numbers else str.ljust for name in heads]
    cells = [[side(cell, w) for side, cell, w in zip(sides, line, widths, strict=True)] for line in lines]
    return [*([title] if title else []), *(GAP.join(line).rstrip() for line in cells)]


def _rich_table(
    width: int, heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Collection[str], title: str
) -> Table:
    """Return a table that rich fits into `width` columns."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        header_style="bold underline",
        show_header=any(heads),
    )
    fits = max(map(len, plain_table(heads, rows)), default=0) <= width
    for place, name in enumerate(heads):
        if name in numbers:
            # rich narrows no column of fixed width. In a narrow table the words of its head stand below each other.
            widest = max([*(len(row[place]) for row in rows), *map(len, name.split())], default=1)
            table.add_column(Text(name), justify="right", width=None if fits else widest, no_wrap=fits)
        else:
            table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    return table
