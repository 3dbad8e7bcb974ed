"""How the time of a program grows with its size, beside how its algorithm says that it must.

Each program runs at two sizes. Its factor is the time at the larger over the time at the smaller; the algorithm's
factor is that of its operations: n, n log n, n^3 ... A factor well above the algorithm's means that work is done over
and over; caches that overflow account for up to two or three times. Engines take turns, and the best round counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from benchmarks import run

if TYPE_CHECKING:
    from benchmarks.engines import Engine
    from benchmarks.programs.growing import Growing


def factors(growing: Growing, rows: Sequence[run.Row]) -> dict[str, float]:
    """For each engine, how many times as long the larger program takes."""
    small, large = rows
    return {name: large.engines[name].best / each.best for name, each in small.engines.items() if name in large.engines}


def cells(growing: Growing, rows: Sequence[run.Row], names: Sequence[str]) -> list[str]:
    """A row of the table: name, sizes, the algorithm's factor, and for each engine both times and their factor."""
    found = factors(growing, rows)
    made = [growing.name, f"{growing.sizes[0]:,} to {growing.sizes[1]:,}", growing.law, f"{growing.expected:.1f}"]
    for name in names:
        if name in found:
            times = " to ".join(run.in_words(row.engines[name].best) for row in rows)
            made.append(f"{times} ({found[name]:.1f})")
        else:
            made.append("failed" if any(name in row.failures for row in rows) else "")
    return made


def headings(names: Sequence[str]) -> list[str]:
    """The table's columns."""
    return ["program", "size", "cost", "factor", *names]


def markdown(
    table: Sequence[Sequence[str]], programs: Sequence[Growing], names: Sequence[str], machine: dict[str, str]
) -> str:
    """A page with the table and where it was measured."""
    lines = [f"| {' | '.join(line)} |" for line in [headings(names), *table]]
    lines.insert(1, "|---|---|---|" + "---:|" * (len(names) + 1))
    sections = [
        "# How time grows with size\n\nMade by `python -m benchmarks.growth --markdown docs/growth.md`; don't edit.",
        (__doc__ or "").split("\n\n", 1)[1].strip(),
        "\n".join(lines),
        "\n".join(["## The programs", "", *(f"- `{each.name}`: {each.summary}" for each in programs)]),
        "\n".join(["## Where it was measured", "", *(f"- {key}: {value}" for key, value in machine.items())]),
    ]
    return "\n\n".join(sections) + "\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.growth", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", default="stablexla,xla,numpy", help="of stablexla, xla, numpy, iree")
    parser.add_argument("--programs", default="", help="names, or beginnings of names, with commas; all by default")
    parser.add_argument("--repeats", type=int, default=7, help="rounds (default 7)")
    parser.add_argument("--seconds", type=float, default=0.05, help="length of an engine's turn (default 0.05)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page there")
    return parser


def _measure(growing: Growing, engines: Sequence[Engine], arguments: argparse.Namespace) -> list[run.Row]:
    return [run.measure(growing.at(n), engines, arguments.repeats, arguments.seconds) for n in growing.sizes]


def main() -> int:
    """Exit code 1 when results differ or a program failed on stablexla."""
    arguments = _parser().parse_args()
    run.keep_memory("benchmarks.growth")
    from benchmarks.programs.growing import GROWING

    console = Console(highlight=False, markup=False, stderr=True)
    programs = [GROWING[name] for name in run.chosen(arguments.programs, list(GROWING))]
    engines = run.find_engines(arguments.engines.split(","), console)
    names = [engine.name for engine in engines]
    rows, table, code = [], [], 0
    for growing in programs:
        rows = _measure(growing, engines, arguments)
        table.append(cells(growing, rows, names))
        console.print("  ".join(table[-1]), soft_wrap=True)
        code = max(code, run.complaints(rows, console))
    shown = Table(*headings(names))
    for line in table:
        shown.add_row(*line)
    Console(highlight=False, width=180).print(shown)
    if arguments.markdown:
        arguments.markdown.write_text(markdown(table, programs, names, run.describe_machine(engines)))
    return code


if __name__ == "__main__":
    sys.exit(main())
