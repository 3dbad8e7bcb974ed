"""Programs side by side on several engines, in one process.

Every engine compiles the same StableHLO text, and the results are compared before any time is taken. Then the engines
take turns, round after round, so that whatever else the machine does meets them all; each runs for some tens of
milliseconds in a round. A cell is the time of a call in the best round, and the median of all rounds. The last columns
are the other engines' best time over stablexla's: above 1, stablexla is faster. Gflop/s are stablexla's. All engines
use the same processors. A call is one from Python, with arguments that lie where the engine wants them, and it makes
new results. Compiling is measured once, after a first program that is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:  # what loads an engine comes after the processors have been chosen
    from benchmarks.engines import Engine, Prepared
    from benchmarks.programs import Program

OURS = "stablexla"
# glibc gives memory back to the system at once, and clears it anew for the next result; an engine without a pool of its
# own would mostly be measured at that.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 28),
}
# After a product OpenBLAS's threads look for the next one for 2^28 cycles, a tenth of a second in which whoever comes next
# has one processor less. 2^20 are longer than the gap between two calls.
OPENBLAS_SPIN = ("OPENBLAS_THREAD_TIMEOUT", "20")
FIRST = "add-2x2"
UNITS = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))


@dataclass
class Measured:
    """One engine on one program.

    Attributes:
        compile_seconds: from the text to what can be called.
        rounds: seconds of a call, by round.
        difference: of the results from the first engine's, as a fraction of the largest magnitude.
    """

    compile_seconds: float
    rounds: list[float] = field(default_factory=list)
    difference: float = 0.0

    @property
    def best(self) -> float:
        return min(self.rounds)

    @property
    def median(self) -> float:
        return median(self.rounds)


@dataclass
class Row:
    """One program on all engines that could take it."""

    program: str
    summary: str
    operations: float
    tolerance: float
    engines: dict[str, Measured]
    failures: dict[str, str] = field(default_factory=dict)

    def ratio(self, other: str) -> float | None:
        """How many times as long another engine takes as stablexla; None when one of them has no time."""
        if OURS not in self.engines or other not in self.engines:
            return None
        return self.engines[other].best / self.engines[OURS].best

    @property
    def differing(self) -> list[str]:
        """The engines whose results are not those of the first."""
        return [name for name, each in self.engines.items() if not each.difference <= self.tolerance]


# ---- measuring ------------------------------------------------------------------------------------------------------


def measure(program: Program, engines: Sequence[Engine], repeats: int, seconds: float) -> Row:
    """Compiles, compares and times one program."""
    row = Row(program.name, program.summary, program.operations, program.tolerance, {})
    prepared = _prepare(program, engines, row)
    _compare(prepared, row)
    counts = {name: _calls_in(each, seconds) for name, each in prepared.items()}
    turns = list(prepared.items())
    for number in range(repeats):
        for name, each in turns if number % 2 == 0 else reversed(turns):
            row.engines[name].rounds.append(_time(each, counts[name]))
    return row


def _prepare(program: Program, engines: Sequence[Engine], row: Row) -> dict[str, Prepared]:
    text, arguments = program.text(), program.arguments()
    prepared = {}
    for engine in engines:
        start = perf_counter()
        try:
            made = engine.prepare(program, text, arguments)
        except Exception as error:  # whatever an engine raises, the others go on
            row.failures[engine.name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        if made is not None:
            row.engines[engine.name] = Measured(perf_counter() - start)
            prepared[engine.name] = made
    return prepared


def _compare(prepared: dict[str, Prepared], row: Row) -> None:
    """Notes how far each engine's results are from the first engine's."""
    import numpy as np

    wanted: list[Any] = []
    for name, each in prepared.items():
        wide = {True: np.complex128, False: np.float64}
        found = [result.astype(wide[result.dtype.kind == "c"]) for result in each.results()]
        wanted = wanted or found
        if len(found) != len(wanted) or any(f.shape != w.shape for f, w in zip(found, wanted, strict=True)):
            row.engines[name].difference = float("inf")
            continue
        tiny = np.finfo(np.float64).tiny
        apart = [np.abs(f - w).max() / max(np.abs(w).max(), tiny) for f, w in zip(found, wanted, strict=True) if w.size]
        row.engines[name].difference = float(max(apart, default=0.0))


def _calls_in(prepared: Prepared, seconds: float) -> int:
    """About how many calls take so long; warms the engine up."""
    prepared.run()
    count = 1
    while True:
        taken = _time(prepared, count) * count
        if taken >= seconds / 4 or count >= 1 << 20:
            return max(1, round(count * seconds / taken))
        count *= 4


def _time(prepared: Prepared, count: int) -> float:
    """Seconds of a call."""
    start = perf_counter()
    for _ in range(count):
        prepared.run()
    return (perf_counter() - start) / count


# ---- telling --------------------------------------------------------------------------------------------------------


def in_words(*seconds: float) -> str:
    """Times with their unit, that of the first; the others follow in brackets: 12.3 (12.8) us."""
    unit, size = next(((u, s) for u, s in UNITS if seconds[0] >= s), UNITS[-1])
    first, *rest = (f"{each / size:.3g}" if each / size < 1000 else f"{each / size:.0f}" for each in seconds)
    return " ".join([first, *(f"({each})" for each in rest), unit])


def cells(row: Row, names: Sequence[str]) -> list[str]:
    """A row of the table: times, arithmetic done in a second, compile times, ratios."""
    made = [row.program]
    for name in names:
        each = row.engines.get(name)
        absent = "failed" if name in row.failures else ""
        made.append(in_words(each.best, each.median) if each else absent)
    ours = row.engines.get(OURS)
    made.append(f"{row.operations / ours.best / 1e9:.0f}" if ours and row.operations else "")
    for name in _compilers(names):
        made.append(in_words(row.engines[name].compile_seconds) if name in row.engines else "")
    for name in _others(names):
        ratio = row.ratio(name)
        made.append(f"{ratio:.2f}" if ratio else "")
    return made


def headings(names: Sequence[str]) -> list[str]:
    """The table's columns."""
    compiling = [f"{name} compiles" for name in _compilers(names)]
    return ["program", *names, "Gflop/s", *compiling, *(f"{name} / {OURS}" for name in _others(names))]


def _others(names: Sequence[str]) -> list[str]:
    return [name for name in names if name != OURS]


def _compilers(names: Sequence[str]) -> list[str]:
    return [name for name in names if name != "numpy"]


def table(rows: Sequence[Row], names: Sequence[str]) -> Table:
    """For a terminal; ratios below a half are red, those below one yellow."""
    made = Table(title="time of a call: best round (median)")
    for number, heading in enumerate(headings(names)):
        made.add_column(heading, justify="right" if number else "left", no_wrap=number <= len(names))
    for row in rows:
        texts = cells(row, names)
        for place in range(len(texts) - len(_others(names)), len(texts)):
            if texts[place]:
                colour = "green" if float(texts[place]) >= 1 else "yellow" if float(texts[place]) >= 0.5 else "red"
                texts[place] = f"[{colour}]{texts[place]}[/]"
        made.add_row(*texts)
    return made


def markdown(rows: Sequence[Row], names: Sequence[str], machine: dict[str, str], command: str) -> str:
    """A page with the table, what the programs are and where they were measured."""
    body = [headings(names), *(cells(row, names) for row in rows)]
    lines = [f"| {' | '.join(line)} |" for line in body]
    lines.insert(1, "|---|" + "---:|" * (len(body[0]) - 1))
    reading = (__doc__ or "").split("\n\n", 1)[1].strip()
    where = [f"- {key}: {value}" for key, value in machine.items()]
    programs = [f"- `{row.program}`: {row.summary}" for row in rows]
    sections = [
        f"# Benchmarks\n\nMade by `{command}`; don't edit.",
        "\n".join(lines),
        "\n".join(["## How to read it", "", reading]),
        "\n".join(["## Where it was measured", "", *where]),
        "\n".join(["## The programs", "", *programs]),
    ]
    return "\n\n".join(sections) + "\n"


def describe_machine(engines: Sequence[Engine]) -> dict[str, str]:
    """The processor, how much of it is used, and the versions of everything."""
    models = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    flags = Path("/proc/cpuinfo").read_text()
    vectors = "AVX-512" if " avx512f" in flags else "AVX2" if " avx2" in flags else "SSE"
    return {
        "processor": f"{models[0] if models else platform.machine()}, {vectors}",
        "cores used": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "engines": ", ".join(f"{e.name} ({e.version})" for e in engines),
    }


# ---- the command ----------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", default="stablexla,xla", help="of stablexla, xla, numpy, iree (default: the two)")
    parser.add_argument("--programs", default="", help="names, or beginnings of names, with commas; all by default")
    parser.add_argument("--repeats", type=int, default=15, help="rounds (default 15)")
    parser.add_argument("--seconds", type=float, default=0.05, help="length of an engine's turn (default 0.05)")
    parser.add_argument("--threads", type=int, help="processors for all engines; all that there are by default")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every round's time there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table and more there")
    parser.add_argument("--default-malloc", action="store_true", help="let the C library give memory back")
    parser.add_argument("--list", action="store_true", help="list the programs and stop")
    return parser


def _settle(arguments: argparse.Namespace) -> None:
    """Chooses processors, and how memory and threads are kept."""
    os.environ.setdefault(*OPENBLAS_SPIN)
    if arguments.threads:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    if not arguments.default_malloc:
        keep_memory("benchmarks.run")


def keep_memory(module: str) -> None:
    """Starts the command of a module anew with the memory settings, which the C library reads once."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if any(name not in os.environ for name in KEEP_MEMORY):
        os.environ.update(KEEP_MEMORY)
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])


def chosen(names: str, known: Sequence[str]) -> list[str]:
    """The programs that are meant by names or beginnings of names."""
    wanted = [name for name in names.split(",") if name]
    for name in wanted:
        if not any(each.startswith(name) for each in known):
            raise SystemExit(f"there is no program {name!r}; there are {', '.join(known)}")
    return [each for each in known if not wanted or any(each.startswith(name) for name in wanted)]


def find_engines(names: Sequence[str], console: Console) -> list[Engine]:
    from benchmarks.engines import ENGINES, MissingEngineError, find_engine

    found = []
    for name in names:
        if name not in ENGINES:
            raise SystemExit(f"there is no engine {name!r}; there are {', '.join(ENGINES)}")
        try:
            found.append(find_engine(name))
        except MissingEngineError as error:
            console.print(f"left out: {error}")
    return found


def main() -> int:
    """Exit code 1 when results differ or a program failed on stablexla."""
    arguments = _parser().parse_args()
    _settle(arguments)
    from benchmarks.programs import PROGRAMS

    if arguments.list:
        for program in PROGRAMS.values():
            print(f"{program.name:22} {program.summary}")
        return 0
    console = Console(highlight=False, markup=False, stderr=True)
    programs = [PROGRAMS[name] for name in chosen(arguments.programs, list(PROGRAMS))]
    engines = find_engines(arguments.engines.split(","), console)
    names = [engine.name for engine in engines]
    rows = []
    for engine in engines:
        engine.prepare(PROGRAMS[FIRST], PROGRAMS[FIRST].text(), PROGRAMS[FIRST].arguments())
    for program in programs:
        rows.append(measure(program, engines, arguments.repeats, arguments.seconds))
        ratios = (f"{name} / {OURS} {ratio:.2f}" for name in names if name != OURS and (ratio := rows[-1].ratio(name)))
        console.print(f"{program.name}: {', '.join(ratios)}")
    output = Console(highlight=False)
    output.width = max(output.width, 140)  # wide enough when it is no terminal
    output.print(table(rows, names))
    machine = describe_machine(engines)
    command = " ".join(["python -m benchmarks.run", *sys.argv[1:]])
    if arguments.markdown:
        arguments.markdown.write_text(markdown(rows, names, machine, command))
    if arguments.json:
        arguments.json.write_text(json.dumps({"machine": machine, "rows": [asdict(row) for row in rows]}, indent=1))
    return complaints(rows, console)


def complaints(rows: Sequence[Row], console: Console) -> int:
    """Tells what failed and what differs; 1 when results differ or stablexla failed."""
    code = 0
    for row in rows:
        for name, why in row.failures.items():
            console.print(f"{row.program}: {name} failed: {why}")
            code = 1 if name == OURS else code
        for name in row.differing:
            console.print(f"{row.program}: {name} differs from the first engine by {row.engines[name].difference:.1e}")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
