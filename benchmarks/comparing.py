"""What changed between two reports: every program's time, corrected by what the machine did to XLA's meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.measuring import OURS, Row
from benchmarks.report import Report, geomean, in_words, ratio_in_words

NOISE = 0.1
"""A change within so much is none: what equal code shows between two runs on a quiet machine."""
YARDSTICK = "xla"


@dataclass(frozen=True)
class Change:
    """A program in two reports: the older time over the newer, ours and the yardstick's."""

    program: str
    old: float
    new: float
    machine: float

    @property
    def ratio(self) -> float:
        """How many times as fast it has become, the machine's own change taken off."""
        return self.old / self.new / self.machine

    @property
    def kind(self) -> str:
        return "faster" if self.ratio > 1 + NOISE else "slower" if self.ratio < 1 / (1 + NOISE) else "same"


def changes(old: Report, new: Report) -> list[Change]:
    """Of the programs that both have, the worst first."""
    before = {row.key: row for row in old.rows}
    found = [_change(before[row.key], row) for row in new.rows if row.key in before]
    return sorted((each for each in found if each), key=lambda each: each.ratio)


def _change(old: Row, new: Row) -> Change | None:
    ours, theirs = (old.seconds(OURS), new.seconds(OURS)), (old.seconds(YARDSTICK), new.seconds(YARDSTICK))
    if ours[0] is None or ours[1] is None:
        return None
    machine = theirs[0] / theirs[1] if theirs[0] and theirs[1] else 1.0
    return Change(new.program, ours[0], ours[1], machine)


def tell_changes(old: Report, new: Report, console: Console) -> int:
    """Prints what changed; 1 when something became slower."""
    found = changes(old, new)
    table = Table(title=f"stablexla before and after, relative to {YARDSTICK}")
    for number, heading in enumerate(("program", "before", "after", "machine", "speed")):
        table.add_column(heading, justify="right" if number else "left")
    colours = {"faster": "green", "slower": "red"}
    for each in found:
        if each.kind in colours:
            ratio = f"[{colours[each.kind]}]{ratio_in_words(each.ratio)}[/]"
            table.add_row(each.program, in_words(each.old), in_words(each.new), ratio_in_words(each.machine), ratio)
    console.print(table)
    missing = {row.program for row in old.rows} - {row.program for row in new.rows}
    for name in sorted(missing):
        console.print(f"{name}: gone")
    mean = ratio_in_words(geomean(each.ratio for each in found))
    same = sum(each.kind == "same" for each in found)
    console.print(f"{len(found)} programs, {same} of them the same; geometric mean {mean or '-'}")
    return 1 if any(each.kind == "slower" for each in found) else 0
