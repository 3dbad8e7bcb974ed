"""Tables of a report: their cells, and how a terminal shows them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.table import Table

from benchmarks.measuring import OURS, Row
from benchmarks.report import Report, best_ratio, families, geomean, in_words, ratio_in_words

# Seconds: a call takes about as long, whatever it computes.
LEAST_LIMIT = 1e-6
TIMED = ("kernels", "models", "real")


@dataclass(frozen=True)
class Cells:
    """A table as texts.

    Attributes:
        ratios: the columns that are ratios, where below 1 something is lost.
    """

    title: str
    headings: list[str]
    lines: list[list[str]]
    ratios: Collection[int]


def of_times(title: str, rows: Sequence[Row], names: Sequence[str]) -> Cells:
    """Times, the machine's limit and ratios of one family."""
    peers = [name for name in names if name != OURS]
    headings = ["program", *names, "limit", "share", *(f"{name} /" for name in peers), "best /"]
    lines = [_times(row, names, peers) for row in rows]
    first = len(names) + 3
    return Cells(title, headings, lines, range(first, first + len(peers) + 1))


def _times(row: Row, names: Sequence[str], peers: Sequence[str]) -> list[str]:
    made = [row.program]
    for name in names:
        found = row.engines.get(name)
        failed = _absent(row, name)
        made.append(in_words(found.best, found.median) if found and found.rounds else failed)
    told = row.limit >= LEAST_LIMIT
    made += [in_words(row.limit) if told else "", f"{row.share:.0%}" if told and row.share else ""]
    made += [ratio_in_words(row.ratio(name)) for name in peers]
    return [*made, ratio_in_words(best_ratio(row))]


def _absent(row: Row, engine: str) -> str:
    """What stands in the place of a time: an engine that could not, or was not asked."""
    return "failed" if engine in row.failures else "-"


def of_compiling(rows: Sequence[Row], names: Sequence[str]) -> Cells:
    """Seconds of compiling, and ours by stage."""
    compilers = [name for name in names if name != "numpy"]
    peers = [name for name in compilers if name != OURS]
    stages = list(dict.fromkeys(s for row in rows if OURS in row.engines for s in row.engines[OURS].stages))
    headings = ["program", *compilers, *(f"{name} /" for name in peers), *stages]
    lines = []
    for row in rows:
        seconds = {name: each.compile_seconds for name, each in row.engines.items()}
        ours = seconds.get(OURS)
        line = [row.program, *(in_words(seconds[n]) if n in seconds else _absent(row, n) for n in compilers)]
        line += [ratio_in_words(seconds[n] / ours) if ours and n in seconds else "" for n in peers]
        told = row.engines[OURS].stages if OURS in row.engines else {}
        lines.append([*line, *(in_words(told[s]) if s in told else "" for s in stages)])
    first = 1 + len(compilers)
    return Cells("compiling", headings, lines, range(first, first + len(peers)))


def of_calls(report: Report) -> Cells:
    """What a call costs."""
    names, peers = report.engines, report.peers
    lines = []
    for call, seconds in report.dispatch.items():
        ours = seconds.get(OURS)
        ratios = [ratio_in_words(seconds[n] / ours) if ours and n in seconds else "" for n in peers]
        lines.append([call, *(in_words(seconds[n]) if n in seconds else "-" for n in names), *ratios])
    first = 1 + len(names)
    return Cells("calls", ["call", *names, *(f"{n} /" for n in peers)], lines, range(first, first + len(peers)))


def of_growth(report: Report) -> Cells:
    """Times at two sizes, and their factor beside the algorithm's."""
    lines = []
    for each in report.growth:
        line = [each.name, f"{each.sizes[0]:,} to {each.sizes[1]:,}", each.law, f"{each.expected:.1f}"]
        for name in report.engines:
            times = each.seconds.get(name)
            line.append(f"{' to '.join(map(in_words, times))} ({each.factor(name):.1f})" if times else "-")
        lines.append(line)
    return Cells("growth", ["program", "size", "cost", "factor", *report.engines], lines, range(0))


def of_threads(report: Report) -> Cells:
    """Times with one thread and with all."""
    lines = []
    for program, engines in report.threads.items():
        line = [program]
        for name in report.engines:
            times = list(engines.get(name, {}).values())
            line.append(f"{' to '.join(map(in_words, times))} ({times[0] / times[-1]:.2f})" if times else "-")
        lines.append(line)
    return Cells("threads", ["program", *report.engines], lines, range(0))


def of_means(report: Report) -> Cells:
    """Geometric means of the ratios, by group and by family."""
    lines = []
    for group in TIMED:
        rows = report.of(group)
        lines += [_mean(f"all {group}", rows, report.peers)] if rows else []
        lines += [_mean(name, members, report.peers) for name, members in families(rows).items()]
    columns = [*(f"{name} /" for name in report.peers), "best /"]
    headings = ["", "programs", *columns, "slower than 0.9 of the best"]
    return Cells("geometric means", headings, lines, range(2, 2 + len(columns)))


def _mean(name: str, rows: Sequence[Row], peers: Sequence[str]) -> list[str]:
    means = [geomean(row.ratio(peer) for row in rows) for peer in peers]
    best = [best_ratio(row) for row in rows]
    lost = sum(1 for ratio in best if ratio and ratio < 0.9)
    return [name, str(len(rows)), *map(ratio_in_words, means), ratio_in_words(geomean(best)), str(lost)]


def all_cells(report: Report) -> list[Cells]:
    """Every table that the report has something for."""
    made = [of_means(report)]
    for group in TIMED:
        timed = [row for row in report.of(group) if any(each.rounds for each in row.engines.values())]
        made += [of_times(family, rows, report.engines) for family, rows in families(timed).items()]
    models = report.of("models")
    made += [of_compiling(models, report.engines)] if models else []
    made += [of_calls(report)] if report.dispatch else []
    made += [of_growth(report)] if report.growth else []
    return made + ([of_threads(report)] if report.threads else [])


def to_table(cells: Cells) -> Table:
    """For a terminal; ratios below 0.9 are red, those below 1 yellow."""
    made = Table(title=cells.title)
    for number, heading in enumerate(cells.headings):
        made.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for line in cells.lines:
        made.add_row(*(_coloured(text) if place in cells.ratios else text for place, text in enumerate(line)))
    return made


def _coloured(text: str) -> str:
    if not text:
        return text
    colour = "green" if float(text) >= 1 else "yellow" if float(text) >= 0.9 else "red"
    return f"[{colour}]{text}[/]"
