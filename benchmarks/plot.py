"""Every program's ratio to each other engine: a row for each family, a dot for each program, a bar for the mean.

`python -m benchmarks.plot docs/performance.md` draws the picture beside a page anew, from the page's own tables.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import Report, families, geomean

COLOURS = {"xla": "#3b6fb6", "iree": "#e08a2e", "numpy": "#6a9f58", "torch": "#b04a5a", "inductor": "#7d5ba6"}
WIDTH, ROW, DPI = 10, 0.62, 160
"""Inches of the picture, and of a family; a page shows it with about 85 pixels an inch."""
TITLE = "How many times as long other engines take as stablexla"
LEFT, RIGHT = "\u2190 slower  ", "  stablexla is faster than the other engine \u2192"
LEGEND = "A dot is a program, a bar the geometric mean of a family; in brackets the number of its programs."
Ratios = dict[str, dict[str, list[float]]]
"""By family and engine, a ratio for each program that both could run."""


def write_plot(report: Report, file: Path) -> None:
    """Real programs first, then models and kernels, by family."""
    groups = families([*report.of("real"), *report.of("models"), *report.of("kernels")])
    found = {
        family: {peer: [ratio for row in rows if (ratio := row.ratio(peer))] for peer in report.peers}
        for family, rows in groups.items()
    }
    draw(found, report.peers, file)


def draw(ratios: Ratios, peers: Sequence[str], file: Path) -> None:
    """A row for each family that has any ratio."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    ratios = {family: own for family, own in ratios.items() if any(own.values())}
    height = 2.2 + ROW * len(ratios)
    figure, axis = plt.subplots(figsize=(WIDTH, height))
    for place, own in enumerate(ratios.values()):
        if place % 2:
            axis.axhspan(place - 0.5, place + 0.5, color="#f3f3f3", linewidth=0, zorder=0)
        for number, peer in enumerate(peers):
            middle = place + (number - (len(peers) - 1) / 2) * 0.8 / len(peers)
            _row(axis, own[peer], middle, COLOURS.get(peer, "grey"), 0.8 / len(peers))
    counts = [max(map(len, own.values())) for own in ratios.values()]
    axis.set_yticks(range(len(ratios)), [f"{f} ({c})" for f, c in zip(ratios, counts, strict=True)], size=12)
    axis.set_ylim(len(ratios) - 0.5, -0.5)
    axis.set_xscale("log")
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axis.axvline(1, color="black", linewidth=1.4)
    axis.grid(axis="x", which="major", linewidth=0.4)
    axis.tick_params(axis="x", labelsize=12, labeltop=True)
    axis.set_xlabel(LEGEND, size=11, loc="right")
    for text, side in ((LEFT, "right"), (RIGHT, "left")):
        at = {"xy": (1, 1), "xycoords": axis.get_xaxis_transform(), "textcoords": "offset points", "xytext": (0, 28)}
        axis.annotate(text, ha=side, size=13, weight="bold", **at)
    handles = [plt.Rectangle((0, 0), 1, 1, color=COLOURS.get(name, "grey")) for name in peers]
    labels = [f"{name} / stablexla" for name in peers]
    figure.suptitle(TITLE, size=16, weight="bold", y=1 - 0.15 / height)
    figure.legend(
        handles,
        labels,
        loc="upper center",
        bbox_to_anchor=(0.5, 1 - 0.45 / height),
        ncol=len(labels),
        frameon=False,
        fontsize=12,
    )
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.8 / height))
    figure.savefig(file, dpi=DPI)
    plt.close(figure)


def _row(axis: Any, ratios: Sequence[float], place: float, colour: str, height: float) -> None:
    """A bar from 1 to the mean, and the programs on it."""
    mean = geomean(ratios)
    if mean is not None:
        axis.barh(place, mean - 1, height * 0.9, left=1, color=colour, alpha=0.45, zorder=2)
        axis.scatter(ratios, [place] * len(ratios), s=13, color=colour, edgecolors="white", linewidths=0.3, zorder=3)


def ratios_of_page(text: str) -> tuple[Ratios, list[str]]:
    """Read the ratios, and the engines' names, from the tables of a page that `benchmarks.page` made."""
    found: Ratios = {}
    peers: list[str] = []
    family, places = "", dict[str, int]()
    for line in text.splitlines():
        cells = [cell.strip(" *") for cell in line.split("|")[1:-1]]
        if line.startswith("## "):
            family, places = line.removeprefix("## "), {}
        elif cells[:2] == ["program", "stablexla"] and "best /" in cells:
            places = {name.removesuffix(" /"): at for at, name in enumerate(cells) if name.endswith(" /")}
            places.pop("best")
            peers += [name for name in places if name not in peers]
        elif places and cells and not cells[0].startswith("--"):
            own = found.setdefault(family, {})
            for name, at in places.items():
                own.setdefault(name, []).extend([float(cells[at])] if cells[at] else [])
    return {family: {name: own.get(name, []) for name in peers} for family, own in found.items()}, peers


if __name__ == "__main__":
    page = Path(sys.argv[1])
    draw(*ratios_of_page(page.read_text()), page.with_suffix(".png"))
