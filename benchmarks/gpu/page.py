"""The tables of `python -m benchmarks.gpu`, for a terminal and as a part of docs/gpu.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.collectives.figures import markdown
from benchmarks.measuring import OURS, Row
from benchmarks.programs.registry import Program
from benchmarks.report import Report, best_ratio, families, in_words, ratio_in_words, replace_between
from benchmarks.tables import Cells

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
READING = """\
A cell is the time of a call in the best round, with the median of all rounds in brackets. Ratios are the other engines'
times over stablexla's: above 1, stablexla is faster. `share` is the least time, by the bytes that the driver's own copy
moves and by the rate of PyTorch's product of that type, over stablexla's time."""


def all_cells(report: Report, programs: Mapping[str, Program]) -> list[Cells]:
    """A table for each family."""
    timed = [row for row in report.rows if any(each.rounds for each in row.engines.values())]
    return [_of(family, rows, report, programs) for family, rows in families(timed).items()]


def _of(family: str, rows: Sequence[Row], report: Report, programs: Mapping[str, Program]) -> Cells:
    headings = ["program", *report.engines, "rate", "share", *(f"{name} /" for name in report.peers), "best /"]
    lines = [_line(row, report, programs) for row in rows]
    first = len(report.engines) + 3
    return Cells(family, headings, lines, range(first, first + len(report.peers) + 1))


def _line(row: Row, report: Report, programs: Mapping[str, Program]) -> list[str]:
    made = [row.program]
    for name in report.engines:
        found = row.engines.get(name)
        failed = "failed" if name in row.failures else "-"
        made.append(in_words(found.best, found.median) if found and found.rounds else failed)
    made += [_rate(row, programs.get(row.program)), f"{row.share:.0%}" if row.share else ""]
    return [*made, *(ratio_in_words(row.ratio(name)) for name in report.peers), ratio_in_words(best_ratio(row))]


def _rate(row: Row, program: Program | None) -> str:
    """What stablexla does in a second: operations where a program is about them, else bytes."""
    seconds = row.seconds(OURS)
    if seconds is None or program is None:
        return ""
    work = program.work()
    if work.operations:
        return f"{work.operations / seconds / 1e12:.3g} TFLOP/s"
    return f"{(work.read + work.written) / seconds / 1e12:.3g} TB/s"


def write_page(report: Report, programs: Mapping[str, Program], file: Path) -> None:
    """Replaces the part of the page between the marks."""
    replace_between(file, BEGIN, END, section(report, programs))


def section(report: Report, programs: Mapping[str, Program]) -> str:
    """The page's part."""
    parts = [READING]
    parts += [
        f"### {each.title[0].upper()}{each.title[1:]}\n\n{markdown(each)}" for each in all_cells(report, programs)
    ]
    machine = "\n".join(f"- {key}: {value}" for key, value in report.machine.items())
    parts.append(f"### Where it was measured\n\nMade by `{report.command}`.\n\n{machine}")
    told = "\n".join(f"- `{row.program}`: {row.summary}" for row in report.rows)
    return "\n\n".join([*parts, f"### The programs\n\n{told}"])
