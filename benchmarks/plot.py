"""Every program's ratio to each other engine, as bars on a logarithmic scale: right of 1, stablexla is faster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.measuring import Row
from benchmarks.report import Report, families

COLOURS = {"xla": "#3b6fb6", "iree": "#e08a2e", "numpy": "#6a9f58"}
COLUMNS = 3
LINE = 0.16
"""Inches for a program."""


def write_plot(report: Report, file: Path) -> None:
    """Models and kernels in columns of about equal length, a title for each family."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    groups = families([*report.of("models"), *report.of("kernels")])
    columns = _columns({name: [r for r in rows if r.ratio("xla") or r.best_peer] for name, rows in groups.items()})
    longest = max((sum(len(rows) + 2 for _, rows in column) for column in columns), default=1)
    figure, axes = plt.subplots(1, COLUMNS, figsize=(17, 1 + LINE * longest), sharex=True, squeeze=False)
    for axis, column in zip(axes[0], columns, strict=True):
        _draw(axis, column, report.peers, longest)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS.get(name, "grey")) for name in report.peers]
    labels = [f"{name} / stablexla" for name in report.peers]
    figure.legend(handles, labels, loc="upper center", ncol=len(labels), frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.4 / (1 + LINE * longest)))
    figure.savefig(file, dpi=80)
    plt.close(figure)


def _columns(groups: dict[str, list[Row]]) -> list[list[tuple[str, list[Row]]]]:
    """Families spread over the columns in their order."""
    total = sum(len(rows) + 2 for rows in groups.values())
    columns: list[list[tuple[str, list[Row]]]] = [[] for _ in range(COLUMNS)]
    before = 0
    for name, rows in groups.items():
        if rows:
            columns[min(COLUMNS - 1, COLUMNS * before // max(1, total))].append((name, rows))
        before += len(rows) + 2
    return columns


def _draw(axis: Any, column: Sequence[tuple[str, list[Row]]], peers: Sequence[str], longest: int) -> None:
    place, ticks, names = 0.0, [], []
    for family, rows in column:
        axis.text(0.02, place + 0.7, family, weight="bold", size=9, transform=axis.get_yaxis_transform())
        place += 2
        for row in rows:
            _bars(axis, row, place, peers)
            ticks.append(place)
            names.append(row.program)
            place += 1
    axis.set_yticks(ticks, names, size=7)
    axis.set_ylim(longest, -0.5)
    axis.set_xscale("log")
    axis.axvline(1, color="black", linewidth=0.8)
    axis.grid(axis="x", which="major", linewidth=0.3)
    axis.tick_params(axis="x", labelsize=7, labeltop=True)


def _bars(axis: Any, row: Row, place: float, peers: Sequence[str]) -> None:
    """One thin bar for each engine, from 1 to its ratio."""
    height = 0.8 / max(1, len(peers))
    for number, name in enumerate(peers):
        ratio = row.ratio(name)
        if ratio:
            middle = place - 0.4 + (number + 0.5) * height
            axis.barh(middle, ratio - 1, height, left=1, color=COLOURS.get(name, "grey"))
