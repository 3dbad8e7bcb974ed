"""The page that a report makes: summary, plot, tables by family, what the programs are, where it was measured."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from benchmarks.compile_tables import compile_cells
from benchmarks.measuring import OURS, Row
from benchmarks.plot import write_plot
from benchmarks.report import Report, best_ratio, ratio_in_words, replace_between
from benchmarks.tables import Cells, all_cells, in_words

READING = """\
A cell is the time of a call in the best round, with the median of all rounds in brackets. `xla /` is XLA:CPU's time
over stablexla's, and so on: above 1, stablexla is faster, and what is below 1 is **bold**; `best /` is the fastest of
the others. `limit` is the least time that this machine could need: arithmetic over the peak, or bytes over the
bandwidth of the cache or memory that holds them, both measured in the same run; `share` is the limit over stablexla's
time. Every engine compiles the same StableHLO, results are compared before any time is taken, and engines take turns;
another engine that takes seconds for a call has one round. A call is one from Python with arguments where the engine
wants them, and makes new results: an engine that writes over its arguments has failed. Compiling is the first time in
a process that has compiled a small program before."""
CALLS = "Numpy arrays in and, unless it says otherwise, numpy arrays out."
GROWTH = """\
Each program at two sizes. An engine's factor is its time at the larger over that at the smaller; the algorithm's is
that of its operations. One well above the algorithm's means work done over and over, or caches that overflow."""
THREADS = "Time on one processor to time on all, and how many times as fast that is; by processes of their own."
COMPILE_PAGE, BEGIN, END = "compile_time.md", "<!-- beside others -->", "<!-- end of beside others -->"
INTRODUCTIONS = {"calls": CALLS, "growth": GROWTH, "threads": THREADS}


def write_page(report: Report, file: Path) -> None:
    """Writes the page and the plot beside it; what was found of compiling stands in another page of that folder."""
    compiled = report.of("compile")
    if compiled:
        replace_between(file.with_name(COMPILE_PAGE), BEGIN, END, compile_section(report))
    if not compiled or len(compiled) < len(report.rows):
        picture = file.with_suffix(".png")
        write_plot(report, picture)
        file.write_text(page(report, picture.name))


def compile_section(report: Report) -> str:
    """The tables of compiling."""
    tables = [f"### {_title(cells)}\n\n{_markdown(cells)}" for cells in compile_cells(report.of("compile"))]
    return "\n\n".join([*tables, f"### Where it was measured\n\nMade by {_commands(report)}.", _machine(report)])


def page(report: Report, picture: str) -> str:
    """The page's text."""
    cells, rows = all_cells(report), [row for row in report.rows if row.group != "compile"]
    sections = [
        f"# Performance\n\nMade by {_commands(report)}; don't edit.",
        _section("Where it was measured", _machine(report)),
        _section("Summary", f"{_markdown(cells[0])}\n\n{_lost(report)}"),
        f"![Every program's ratio to each engine]({picture})",
        _section("How to read it", READING),
    ]
    for each in cells[1:]:
        introduction = INTRODUCTIONS.get(each.title, "")
        sections.append(_section(_title(each), f"{introduction}\n\n{_markdown(each)}".strip()))
    failures = [f"- `{row.program}`, {name}: {why}" for row in rows for name, why in row.failures.items()]
    sections += [_section("What failed", "\n".join(failures))] if failures else []
    sections.append(_section("The programs", "\n".join(f"- `{row.program}`: {row.summary}" for row in rows)))
    return "\n\n".join(sections) + "\n"


def _machine(report: Report) -> str:
    return "\n".join(f"- {key}: {value}" for key, value in report.machine.items())


def _commands(report: Report) -> str:
    """Those of the runs that were merged, in their order."""
    return ", and then ".join(f"`{each}`" for each in report.command.split("; "))


def _title(cells: Cells) -> str:
    return cells.title[0].upper() + cells.title[1:]


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{text}"


def _lost(report: Report) -> str:
    """The programs where another engine is clearly faster, the worst first."""
    rows = [(ratio, row) for row in report.rows if (ratio := best_ratio(row)) is not None and ratio < 0.9]
    if not rows:
        return "No program is slower than 0.9 of the fastest other engine."
    lines = [_loss(ratio, row) for ratio, row in sorted(rows, key=lambda pair: pair[0])]
    return "\n".join(["Slower than 0.9 of the fastest other engine:", "", *lines])


def _loss(ratio: float, row: Row) -> str:
    peer = row.best_peer or ""
    ours, theirs = row.seconds(OURS) or 0.0, row.seconds(peer) or 0.0
    return f"- `{row.program}`: {ratio_in_words(ratio)} of {peer} ({in_words(ours)} against {in_words(theirs)})"


def _markdown(cells: Cells) -> str:
    body = [cells.headings, *(_bold(line, cells.ratios) for line in cells.lines)]
    lines = [f"| {' | '.join(line)} |" for line in body]
    lines.insert(1, "|---|" + "---:|" * (len(cells.headings) - 1))
    return "\n".join(lines)


def _bold(line: Sequence[str], ratios: Collection[int]) -> list[str]:
    """Ratios below 1 stand out."""
    return [f"**{text}**" if place in ratios and text and float(text) < 1 else text for place, text in enumerate(line)]
