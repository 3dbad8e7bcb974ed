"""One program on several engines: compiled, compared, and timed in turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from benchmarks.engines import Engine, Prepared
    from benchmarks.limits import Limits
    from benchmarks.programs import Program

OURS = "stablexla"
COLD, WARM, NEW, NEW_WARM = "cold", "warm", "new", "new, warm"
BESIDE = {COLD: COLD, WARM: COLD, NEW: NEW, NEW_WARM: NEW}
"""States of compiling, each with the state of a peer that it stands beside: peers have no cache."""
PAUSE = 1e-3
"""Seconds before a turn, in which threads of the engine before stop waiting for more work."""

TOO_LONG = 5
"""A peer whose one call takes so many times the budget has had its only round."""


@dataclass
class Measured:
    """One engine on one program.

    Attributes:
        compile_seconds: from the text to what can be called.
        rounds: seconds of a call, by round; none when only compiling was measured.
        difference: of the results from the first engine's, as a fraction of the largest magnitude.
        stages: seconds of compiling by stage, where an engine tells them.
        states: seconds of compiling by state of the caches and the process.
        peak: bytes that compiling takes; 0 when that was not measured.
    """

    compile_seconds: float
    rounds: list[float] = field(default_factory=list)
    difference: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    states: dict[str, float] = field(default_factory=dict)
    peak: float = 0.0

    @property
    def best(self) -> float:
        return min(self.rounds)

    @property
    def median(self) -> float:
        return median(self.rounds)


@dataclass
class Row:
    """One program on all engines that could take it.

    Attributes:
        limit: the least seconds that this machine could need; 0 when that is not known.
    """

    program: str
    summary: str
    group: str
    family: str
    tolerance: float
    engines: dict[str, Measured] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    limit: float = 0.0

    @property
    def key(self) -> tuple[str, str]:
        """A model has a row in two groups: calls and compiling are measured apart."""
        return self.group, self.program

    def seconds(self, engine: str) -> float | None:
        """An engine's time of a call in the best round."""
        found = self.engines.get(engine)
        return found.best if found and found.rounds else None

    def ratio(self, other: str) -> float | None:
        """How many times as long another engine takes as stablexla; None when one of them has no time."""
        ours, theirs = self.seconds(OURS), self.seconds(other)
        return theirs / ours if ours and theirs else None

    @property
    def best_peer(self) -> str | None:
        """The fastest of the others."""
        times = {name: seconds for name in self.engines if name != OURS and (seconds := self.seconds(name))}
        return min(times, key=lambda name: times[name]) if times else None

    @property
    def share(self) -> float | None:
        """How much of the machine's limit stablexla reaches."""
        ours = self.seconds(OURS)
        return self.limit / ours if ours and self.limit else None

    @property
    def differing(self) -> list[str]:
        """The engines whose results are not those of the first."""
        return [name for name, each in self.engines.items() if not each.difference <= self.tolerance]


def to_row(data: dict[str, Any]) -> Row:
    """A row from what `asdict` made of it."""
    engines = {name: Measured(**each) for name, each in data["engines"].items()}
    return Row(**{**data, "engines": engines})


def from_row(row: Row) -> dict[str, Any]:
    return asdict(row)


@dataclass(frozen=True)
class Effort:
    """How long to measure.

    Attributes:
        seconds: of an engine's turn.
        budget: of all turns together; at least `least` rounds are made, at most `most`; for none, nothing is run.
    """

    seconds: float = 0.02
    budget: float = 0.5
    least: int = 3
    most: int = 15


def measure(program: Program, engines: Sequence[Engine], effort: Effort, limits: Limits | None = None) -> Row:
    """Compiles, compares and times one program."""
    row = Row(program.name, program.summary, program.group, program.family, program.tolerance)
    prepared = prepare(program, engines, row)
    if limits is not None and prepared:
        row.limit = limits.of(program.work())
    if not effort.most or not prepared:
        return row
    arguments = program.arguments()
    for each in prepared.values():
        each.bind(arguments)
    compare(prepared, row)
    counts = {}
    for name, each in prepared.items():
        counts[name], taken = _calls_in(each, effort.seconds)
        if taken > TOO_LONG * max(effort.budget, effort.seconds) and name != OURS:
            row.engines[name].rounds.append(taken)
    turns = [(name, each) for name, each in prepared.items() if not row.engines[name].rounds]
    start = perf_counter()
    for number in range(effort.most):
        if number >= effort.least and perf_counter() - start > effort.budget:
            break
        for name, each in turns if number % 2 == 0 else reversed(turns):
            sleep(PAUSE)
            row.engines[name].rounds.append(_time(each, counts[name]))
    return row


def prepare(program: Program, engines: Sequence[Engine], row: Row) -> dict[str, Prepared]:
    """Compiles a program on each engine, and notes the time or what went wrong."""
    try:
        text = program.text()
    except Exception as error:  # a library of another version, or an operation that its way to StableHLO does not know
        row.failures[OURS] = f"no StableHLO: {type(error).__name__}: {[*str(error).splitlines(), ''][0]}"
        return {}
    prepared = {engine.name: prepare_on(engine, program, text, row) for engine in engines}
    return {name: made for name, made in prepared.items() if made is not None}


def prepare_on(engine: Engine, program: Program, text: str, row: Row) -> Prepared | None:
    """Compiles a program on one engine; None when it can't or went wrong."""
    start = perf_counter()
    try:
        made = engine.prepare(program, text)
    except Exception as error:  # whatever an engine raises, the others go on
        row.failures[engine.name] = f"{type(error).__name__}: {[*str(error).splitlines(), ''][0]}"
        return None
    if made is not None:
        seconds = perf_counter() - start if made.compile_seconds is None else made.compile_seconds
        row.engines[engine.name] = Measured(seconds, stages=dict(getattr(made, "stages", {})))
    return made


def compare(prepared: dict[str, Prepared], row: Row) -> None:
    """Runs each engine, and notes how far its results are from the first engine's; what cannot run is left out."""
    wanted: list[Any] | None = None
    for name, each in list(prepared.items()):
        try:
            found = each.results()
        except Exception as error:
            row.failures[name] = f"{type(error).__name__}: {[*str(error).splitlines(), ''][0]}"
            del prepared[name], row.engines[name]
            continue
        wanted = found if wanted is None else wanted
        row.engines[name].difference = _difference(found, wanted)


def _difference(found: Sequence[Any], wanted: Sequence[Any]) -> float:
    if len(found) != len(wanted) or any(f.shape != w.shape for f, w in zip(found, wanted, strict=True)):
        return float("inf")
    return max((_apart(f, w) for f, w in zip(found, wanted, strict=True) if w.size), default=0.0)


def _apart(found: Any, wanted: Any) -> float:
    """The largest difference as a fraction of the largest magnitude; equal ones, infinities too, are 0 apart."""
    if found is wanted or np.array_equal(found, wanted):
        return 0.0
    wide = np.complex128 if wanted.dtype.kind == "c" else np.float64
    found, wanted = found.astype(wide), wanted.astype(wide)
    return float(np.abs(found - wanted).max() / max(np.abs(wanted).max(), np.finfo(np.float64).tiny))


def _calls_in(prepared: Prepared, seconds: float) -> tuple[int, float]:
    """About how many calls take so long, and the seconds of one; warms the engine up."""
    count = 1
    while True:
        taken = _time(prepared, count) * count
        if taken >= seconds / 4 or count >= 1 << 20:
            return max(1, round(count * seconds / taken)), taken / count
        count *= 4


def _time(prepared: Prepared, count: int) -> float:
    """Seconds of a call."""
    wait = getattr(prepared, "wait", None)  # of an engine whose calls return before they are done
    start = perf_counter()
    for _ in range(count):
        prepared.run()
    if wait is not None:
        wait()
    return (perf_counter() - start) / count
