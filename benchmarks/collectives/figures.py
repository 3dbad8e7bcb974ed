"""What was measured, as a file that is kept, as tables for a terminal, and as a part of docs/distributed.md."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.collectives.cases import IN_PROCESS, OVER_MPI, Case, size_in_words
from benchmarks.measuring import OURS, Row, to_row
from benchmarks.report import in_words, ratio_in_words, replace_between
from benchmarks.tables import Cells

BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
PEERS = {IN_PROCESS: "xla", OVER_MPI: "mpi4py"}
DIALECT = "dialect"
"""stablexla with reductions in MLIR's `mpi` dialect: told while it is measured, and in no table."""


@dataclass
class Figures:
    """All rows with their cases, and where they were measured.

    Attributes:
        training: seconds of an epoch by the size of the minibatches and the way of running.
    """

    machine: dict[str, str] = field(default_factory=dict)
    command: str = ""
    rows: list[tuple[Case, Row]] = field(default_factory=list)
    training: dict[str, dict[str, float]] = field(default_factory=dict)

    def take(self, newer: Figures) -> None:
        """Puts what another run found in the place of what is here."""
        rows = {(row.group, case): (case, row) for case, row in [*self.rows, *newer.rows]}
        self.rows = list(rows.values())
        self.machine |= newer.machine
        self.command = "; ".join(filter(None, dict.fromkeys([*self.command.split("; "), newer.command])))
        self.training |= newer.training

    def write(self, file: Path) -> None:
        rows = [{"case": asdict(case), "row": asdict(row)} for case, row in self.rows]
        data = {"machine": self.machine, "command": self.command, "rows": rows, "training": self.training}
        file.write_text(json.dumps(data, indent=1) + "\n")


def read_figures(file: Path) -> Figures:
    """What `Figures.write` wrote."""
    data = json.loads(file.read_text())
    rows = [(Case(**each["case"]), to_row(each["row"])) for each in data.pop("rows")]
    return Figures(**data, rows=rows)


# ---- tables ---------------------------------------------------------------------------------------------------------


def all_cells(figures: Figures) -> list[Cells]:
    """A table for each operation and way of running."""
    made = []
    for group in PEERS:
        rows = [(case, row) for case, row in figures.rows if row.group == group]
        kinds = dict.fromkeys((case.operation, case.element) for case, _ in rows)
        for operation, element in kinds:
            own = [pair for pair in rows if (pair[0].operation, pair[0].element) == (operation, element)]
            title = f"{operation} of {element}, {group}"
            made.append(_of_operation(title, own, PEERS[group], told_limit=group == IN_PROCESS))
    return made


def _of_operation(title: str, rows: Sequence[tuple[Case, Row]], peer: str, told_limit: bool) -> Cells:
    lines = []
    for case, row in sorted(rows, key=lambda pair: (pair[0].devices, pair[0].size)):
        times = [_time(row, name) for name in (OURS, peer)]
        line = [str(case.devices), size_in_words(case.size), *times, ratio_in_words(row.ratio(peer))]
        lines.append([*line, f"{row.share:.0%}" if row.share else ""] if told_limit else line)
    headings = ["devices", "array", OURS, peer, f"{peer} /", *(["share"] if told_limit else [])]
    return Cells(title, headings, lines, range(4, 5))


def _time(row: Row, engine: str) -> str:
    found = row.engines.get(engine)
    if found is None or not found.rounds:
        return "failed" if engine in row.failures else "-"
    return in_words(found.best, found.median)


def of_training(figures: Figures) -> Cells:
    """Epochs by way of running them, each with its speed relative to the first."""
    lines = []
    for batch, ways in figures.training.items():
        first = next(iter(ways.values()))
        lines += [[batch, name, in_words(each), ratio_in_words(first / each)] for name, each in ways.items()]
    return Cells("data-parallel training", ["minibatch", "devices", "an epoch", "speed"], lines, range(3, 4))


# ---- the page -------------------------------------------------------------------------------------------------------


def write_page(figures: Figures, file: Path) -> None:
    """Replaces the part of the page between the marks."""
    replace_between(file, BEGIN, END, section(figures))


def section(figures: Figures) -> str:
    """The page's part: the tables, and where they were measured."""
    parts = [
        f"### {cells.title}\n\n{markdown(cells)}"
        for cells in [*all_cells(figures), of_training(figures)]
        if cells.lines
    ]
    machine = "\n".join(f"- {key}: {value}" for key, value in figures.machine.items())
    commands = ", and then ".join(f"`{each}`" for each in figures.command.split("; "))
    return "\n\n".join([*parts, f"### Where it was measured\n\nMade by {commands}.\n\n{machine}"])


def markdown(cells: Cells) -> str:
    """Ratios below 1 stand out."""
    body = [cells.headings, *([_bold(text, n in cells.ratios) for n, text in enumerate(line)] for line in cells.lines)]
    lines = [f"| {' | '.join(line)} |" for line in body]
    lines.insert(1, "|---|" + "---:|" * (len(cells.headings) - 1))
    return "\n".join(lines)


def _bold(text: str, is_ratio: bool) -> str:
    return f"**{text}**" if is_ratio and text and float(text) < 1 else text
