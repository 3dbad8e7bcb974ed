"""Tables of compile time: means by state, models, growth by layers, and small programs by family."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchmarks.measuring import BESIDE, COLD, NEW, NEW_WARM, OURS, WARM, Row
from benchmarks.report import families, geomean, in_words, ratio_in_words
from benchmarks.tables import Cells

XLA = "xla"
LAYERS, SMALL = "layers", "small "
BASE = "layers-4"
WORST = 0.8
"""Programs below this share of XLA's speed are counted."""
MOST_LOST = 12


def seconds(row: Row, engine: str, state: str = COLD) -> float | None:
    found = row.engines.get(engine)
    return found.states.get(state) if found else None


def ratio(row: Row, state: str = COLD, peer: str = XLA) -> float | None:
    """Return a peer's time over ours."""
    ours, theirs = seconds(row, OURS, state), seconds(row, peer, BESIDE[state])
    return theirs / ours if ours and theirs else None


def states_in_words(row: Row) -> list[str]:
    """Return the ratios that there are."""
    return [f"{state} {XLA} / {OURS} {found:.2f}" for state in BESIDE if (found := ratio(row, state))]


def kinds(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows by kind."""
    found: dict[str, list[Row]] = {"models": [], "layers": [], "small programs": []}
    for row in rows:
        kind = "small programs" if row.family.startswith(SMALL) else "layers" if row.family == LAYERS else "models"
        found[kind].append(row)
    return {kind: members for kind, members in found.items() if members}


def compile_cells(rows: Sequence[Row]) -> list[Cells]:
    """Return every table that there are rows for."""
    found = kinds(rows)
    made = {"models": of_models, "layers": of_layers, "small programs": of_families}
    if not found:
        return []
    return [of_states(found), of_worst(rows), *(made[kind](members) for kind, members in found.items())]


# ---- tables ---------------------------------------------------------------------------------------------------------


def of_states(found: dict[str, list[Row]]) -> Cells:
    """Return geometric means of XLA's time over ours, and the worst program of each kind and state."""
    headings = ["", "state", "programs", "xla /", f"below {WORST}", "worst", "its xla /"]
    lines = [_mean(kind, state, rows) for kind, rows in found.items() for state in BESIDE]
    return Cells("compiling by state", headings, [line for line in lines if line[3]], (3, 6))


def _mean(kind: str, state: str, rows: Sequence[Row]) -> list[str]:
    ratios = {row.program: found for row in rows if (found := ratio(row, state))}
    worst = min(ratios, key=lambda name: ratios[name], default="")
    below = sum(each < WORST for each in ratios.values())
    words = (ratio_in_words(geomean(ratios.values())), str(below), worst, ratio_in_words(ratios.get(worst)))
    return [kind, state, str(len(ratios)), *words]


@dataclass(frozen=True)
class Column:
    """A column: the cell of a row."""

    heading: str
    cell: Callable[[Row], str]
    is_ratio: bool = False


def time_of(heading: str, engine: str = OURS, state: str = COLD) -> Column:
    def cell(row: Row) -> str:
        found = seconds(row, engine, state)
        return in_words(found) if found else "failed" if engine in row.failures else "-"

    return Column(heading, cell)


def ratio_to(peer: str, state: str) -> Column:
    return Column(f"{peer} /", lambda row: ratio_in_words(ratio(row, state, peer)), is_ratio=True)


def memory_of(heading: str, engine: str) -> Column:
    return Column(heading, lambda row: _memory([row], engine))


def _memory(rows: Sequence[Row], engine: str) -> str:
    """Return the geometric mean."""
    found = geomean(row.engines[engine].peak for row in rows if engine in row.engines)
    return f"{found / 1e6:.0f} MB" if found else "-"


PROGRAM = Column("program", lambda row: row.program)
MEMORY = [memory_of("memory", OURS), memory_of("memory, xla", XLA)]


def _cells(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> Cells:
    lines = [[column.cell(row) for column in columns] for row in rows]
    ratios = tuple(place for place, column in enumerate(columns) if column.is_ratio)
    return Cells(title, [column.heading for column in columns], lines, ratios)


def of_worst(rows: Sequence[Row]) -> Cells:
    """Return the programs that lose most without a cache."""
    lost = sorted((row for row in rows if (ratio(row) or 1.0) < 1.0), key=lambda row: ratio(row) or 1.0)
    columns = [PROGRAM, time_of(OURS), time_of(XLA, XLA), ratio_to(XLA, COLD), Column("", lambda row: row.summary)]
    return _cells("compiling: where XLA is furthest ahead", columns, lost[:MOST_LOST])


def of_models(rows: Sequence[Row]) -> Cells:
    peers = [peer for peer in (XLA, "iree") if any(peer in (*row.engines, *row.failures) for row in rows)]
    columns = [PROGRAM, *(time_of(name, name) for name in (OURS, *peers)), *(ratio_to(name, COLD) for name in peers)]
    columns += [time_of(WARM, state=WARM), ratio_to(XLA, WARM)]
    columns += [time_of(NEW, state=NEW), time_of(f"{NEW}, xla", XLA, NEW), ratio_to(XLA, NEW)]
    columns += [time_of(NEW_WARM, state=NEW_WARM), ratio_to(XLA, NEW_WARM), *MEMORY]
    return _cells("compiling models", columns, rows)


def of_layers(rows: Sequence[Row]) -> Cells:
    """Return the growth: time over that of four layers."""
    base = next((row for row in rows if row.program == BASE), rows[0])
    columns = [PROGRAM, time_of(OURS), time_of(XLA, XLA), ratio_to(XLA, COLD)]
    columns += [_growth(name, base) for name in (OURS, XLA)]
    columns += [time_of(WARM, state=WARM), ratio_to(XLA, WARM), *MEMORY]
    return _cells("compiling more layers", columns, rows)


def _growth(engine: str, base: Row) -> Column:
    def cell(row: Row) -> str:
        here, there = seconds(row, engine), seconds(base, engine)
        return ratio_in_words(here / there) if here and there else "-"

    return Column(f"{engine} / {base.program}", cell)


def of_families(rows: Sequence[Row]) -> Cells:
    """Return geometric means over the programs of each family."""
    groups = {name.removeprefix(SMALL): members for name, members in families(rows).items()} | {"all": list(rows)}
    headings = ["family", "programs", OURS, XLA, "xla /", "worst", WARM, "xla /", *(each.heading for each in MEMORY)]
    lines = [[name, str(len(members)), *_means(members)] for name, members in groups.items()]
    return Cells("compiling small programs", headings, lines, (4, 5, 7))


def _means(rows: Sequence[Row]) -> list[str]:
    def mean(found: Iterable[float | None]) -> str:
        middle = geomean(found)
        return in_words(middle) if middle else "-"

    ratios = [found for row in rows if (found := ratio(row))]
    times = [mean(seconds(row, name) for row in rows) for name in (OURS, XLA)]
    told = [ratio_in_words(geomean(ratios)), ratio_in_words(min(ratios, default=None))]
    warm = mean(seconds(row, OURS, WARM) for row in rows)
    kept = [warm, ratio_in_words(geomean(ratio(row, WARM) for row in rows))]
    return [*times, *told, *kept, *(_memory(rows, name) for name in (OURS, XLA))]
