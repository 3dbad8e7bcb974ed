"""What was measured, as a file that is kept: rows of all groups, the machine and its limits; and sums over rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from math import exp, log
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from benchmarks.measuring import OURS, Row, from_row, to_row

UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


@dataclass
class Report:
    """All that one run found, or several runs of parts.

    Attributes:
        machine: what the programs ran on.
        engines: names, in the order of the columns.
        command: how it was made; of several runs that were merged, all of them with semicolons between.
        rows: programs, of any group.
        dispatch: seconds of a call by kind of call and engine.
        growth: programs at two sizes.
        threads: seconds by program, engine and number of threads.
    """

    machine: dict[str, str] = field(default_factory=dict)
    engines: list[str] = field(default_factory=list)
    command: str = ""
    rows: list[Row] = field(default_factory=list)
    dispatch: dict[str, dict[str, float]] = field(default_factory=dict)
    growth: list[Grown] = field(default_factory=list)
    threads: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)

    @property
    def peers(self) -> list[str]:
        return [name for name in self.engines if name != OURS]

    def of(self, group: str) -> list[Row]:
        return [row for row in self.rows if row.group == group]

    def take(self, newer: Report) -> None:
        """Puts what another run found in the place of what is here."""
        fresh = {row.key: row for row in newer.rows}
        self.rows = [fresh.pop(row.key, row) for row in self.rows] + list(fresh.values())
        grown = {each.name: each for each in newer.growth}
        self.growth = [grown.pop(each.name, each) for each in self.growth] + list(grown.values())
        self.engines += [name for name in newer.engines if name not in self.engines]
        engines = [each for machine in (self.machine, newer.machine) for each in machine.get("engines", "").split(", ")]
        self.machine = newer.machine | {"engines": ", ".join(dict.fromkeys(filter(None, engines)))}
        self.command = "; ".join(dict.fromkeys([*self.command.split("; "), newer.command]))
        self.dispatch |= newer.dispatch
        self.threads |= newer.threads

    def write(self, file: Path) -> None:
        data = {
            **{name: getattr(self, name) for name in ("machine", "engines", "command", "dispatch", "threads")},
            "rows": [from_row(row) for row in self.rows],
            "growth": [asdict(each) for each in self.growth],
        }
        file.write_text(json.dumps(data, indent=1) + "\n")


@dataclass
class Grown:
    """A program at a small and at a large size: by engine the seconds of both."""

    name: str
    summary: str
    sizes: tuple[int, int]
    law: str
    expected: float
    seconds: dict[str, tuple[float, float]]

    def factor(self, engine: str) -> float:
        small, large = self.seconds[engine]
        return large / small


def read_report(file: Path) -> Report:
    """What `Report.write` wrote."""
    data: dict[str, Any] = json.loads(file.read_text())
    rows = [to_row(each) for each in data.pop("rows")]
    growth = [Grown(**each) for each in data.pop("growth")]
    return Report(**data, rows=rows, growth=growth)


def replace_between(file: Path, begin: str, end: str, text: str) -> None:
    """Puts a text into a page, between two marks."""
    before, rest = file.read_text().split(begin)
    file.write_text(f"{before}{begin}\n{text}\n{end}{rest.split(end)[1]}")


class Kept(Protocol):
    """Figures that a file keeps."""

    def take(self, newer: Self, /) -> None: ...

    def write(self, file: Path, /) -> None: ...


Figures = TypeVar("Figures", bound=Kept)


def kept_in(file: Path | None, found: Figures, read: Callable[[Path], Figures], *, merge: bool) -> Figures:
    """What was found, written into the file if there is one; with `merge`, what that has of other programs stays."""
    if not file:
        return found
    if merge and file.exists():
        merged = read(file)
        merged.take(found)
        found = merged
    found.write(file)
    return found


def as_typed(module: str) -> str:
    """This process's command, without what says where files and programs are and what becomes of the figures."""
    words = iter(sys.argv[1:])
    kept = []
    for word in words:
        if word in ("--json", "--mpiexec"):
            next(words)
        elif word != "--merge" and not word.startswith(("--json=", "--mpiexec=")):
            kept.append(word)
    return " ".join([f"python -m {module}", *kept])


def geomean(ratios: Iterable[float | None]) -> float | None:
    """Of those that are there."""
    found = [ratio for ratio in ratios if ratio]
    return exp(sum(map(log, found)) / len(found)) if found else None


def best_ratio(row: Row) -> float | None:
    """The fastest peer's time over ours."""
    return row.ratio(row.best_peer) if row.best_peer else None


def in_words(*seconds: float) -> str:
    """Times with their unit, that of the first; the others follow in brackets: 12.3 (12.8) us."""
    unit, size = next(((u, s) for u, s in UNITS if seconds[0] >= s), UNITS[-1])
    first, *rest = (f"{each / size:.3g}" if each / size < 1000 else f"{each / size:.0f}" for each in seconds)
    return " ".join([first, *(f"({each})" for each in rest), unit])


def ratio_in_words(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.2f}" if ratio < 9.995 else f"{ratio:.1f}" if ratio < 99.95 else f"{ratio:.0f}"


def families(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Rows by family, in the order of their first members."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.family, []).append(row)
    return found
