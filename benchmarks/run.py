"""Programs side by side on several engines, in one process.

Every engine compiles the same StableHLO text, and the results are compared before any time is taken. Then the engines
take turns, round after round, so that whatever else the machine does meets them all; each runs for some tens of
milliseconds in a round. A cell is the time of a call in the best round, and the median of all rounds. Ratios are the
other engines' best time over stablexla's: above 1, stablexla is faster. The limit is the least time that this machine
could need: arithmetic over the peak, or bytes over the bandwidth, both measured in the same run on all cores; the share
is the limit over stablexla's time. All engines use the same processors. A call is one from Python, with arguments that
lie where the engine wants them, and it makes new results.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from benchmarks.comparing import tell_changes
from benchmarks.compile_tables import compile_cells, states_in_words
from benchmarks.measuring import OURS, Effort, Row, measure, prepare
from benchmarks.report import Report, as_typed, kept_in, read_report
from benchmarks.tables import all_cells, to_table

if TYPE_CHECKING:  # what loads an engine comes after the processors have been chosen
    from benchmarks.engines import Engine
    from benchmarks.limits import Limits
    from benchmarks.programs import Program

GROUPS = ("kernels", "models", "real", "compile", "dispatch", "scale")
# What libraries read once, when they are loaded. glibc gives memory back to the system at once, and clears it anew for
# the next result; an engine without a pool of its own would mostly be measured at that.
KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "MALLOC_TOP_PAD_": str(1 << 28),
    # numpy's threads wait spinning for 2^26 ticks, which is longer than the next engine's turn: 2^18 are 0.1 ms.
    "OPENBLAS_THREAD_TIMEOUT": "18",
}
FIRST = "add-2x2"
PAGE = Path(__file__).parents[1] / "docs" / "performance.md"


def describe_machine(engines: Sequence[Engine], limits: Limits | None) -> dict[str, str]:
    """The processor, how much of it is used, what it could do, and the versions of everything."""
    information = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in information.splitlines() if line.startswith("model name")]
    names = (("AMX", " amx_tile"), ("AVX-512", " avx512f"), ("AVX2", " avx2"))
    vectors = ", ".join(name for name, flag in names if flag in information)
    return {
        "processor": f"{models[0] if models else platform.machine()}; {vectors or 'SSE'}",
        "cores used": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "engines": ", ".join(f"{e.name} ({e.version})" for e in engines),
        **(limits.words() if limits else {}),
    }


# ---- choosing -------------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--engines",
        default="stablexla,xla",
        help="of stablexla, xla, numpy, iree, torch, inductor (default: two of them)",
    )
    made.add_argument("--group", default="kernels,models", help=f"of {', '.join(GROUPS)} (default: the first two)")
    made.add_argument("--programs", default="", help="names, or beginnings of names, with commas; all by default")
    made.add_argument("--repeats", type=int, default=15, help="at most so many rounds (default 15)")
    made.add_argument("--seconds", type=float, default=0.02, help="length of an engine's turn (default 0.02)")
    made.add_argument("--budget", type=float, default=0.5, help="seconds for all rounds of a program (default 0.5)")
    made.add_argument("--threads", type=int, help="processors for all engines; all that there are by default")
    made.add_argument(
        "--patience", type=float, default=60.0, help="seconds that IREE may take to compile a program (default 60)"
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    made.add_argument("--merge", action="store_true", help="keep what the file of --json has of other programs")
    made.add_argument(
        "--markdown", type=Path, nargs="?", const=PAGE, metavar="FILE", help=f"write {PAGE.name} and plot"
    )
    made.add_argument("--from", type=Path, metavar="FILE", dest="source", help="measure nothing: tell what FILE has")
    made.add_argument("--compare", type=Path, nargs=2, metavar=("OLD", "NEW"), help="tell what changed, and stop")
    made.add_argument("--default-malloc", action="store_true", help="let the C library give memory back")
    made.add_argument("--quick", action="store_true", help="one round; of compiling no new processes and no memory")
    made.add_argument("--list", action="store_true", help="list the programs and stop")
    return made


def keep_memory(module: str) -> None:
    """Starts the command of a module anew with the memory settings, which the C library reads once."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    if any(name not in os.environ for name in KEEP_MEMORY):
        os.environ.update(KEEP_MEMORY)
        os.execv(sys.executable, [sys.executable, "-m", module, *sys.argv[1:]])


def chosen(names: str, known: Sequence[str]) -> list[str]:
    """The programs that are meant by names, or else by beginnings of names."""
    wanted = [name for name in names.split(",") if name]
    for name in wanted:
        if not any(each.startswith(name) for each in known):
            raise SystemExit(f"there is no program {name!r}; there are {', '.join(known)}")
    return [
        each
        for each in known
        if not wanted or any(each == name or (name not in known and each.startswith(name)) for name in wanted)
    ]


def groups_of(text: str) -> list[str]:
    found = [name for name in text.split(",") if name]
    for name in found:
        if name not in GROUPS:
            raise SystemExit(f"there is no group {name!r}; there are {', '.join(GROUPS)}")
    return found


def find_engines(names: Sequence[str], console: Console, patience: float) -> list[Engine]:
    from benchmarks.engines import ENGINES, MissingEngineError, find_engine

    found = []
    for name in names:
        if name not in ENGINES:
            raise SystemExit(f"there is no engine {name!r}; there are {', '.join(ENGINES)}")
        try:
            found.append(find_engine(name, patience))
        except MissingEngineError as error:
            console.print(f"left out: {error}")
    return found


# ---- measuring ------------------------------------------------------------------------------------------------------


def measure_all(arguments: argparse.Namespace, console: Console) -> Report:
    """All groups that were asked for."""
    from benchmarks.limits import kept_limits
    from benchmarks.programs import PROGRAMS

    groups = groups_of(arguments.group)
    programs = [PROGRAMS[name] for name in chosen(arguments.programs, list(PROGRAMS))]
    engines = find_engines(arguments.engines.split(","), console, arguments.patience)
    effort = effort_of(arguments)
    # A run of a few programs takes less time than measuring the machine.
    limits = kept_limits(again=not arguments.programs) if groups != ["compile"] else None
    report = Report(describe_machine(engines, limits), [engine.name for engine in engines], as_typed("benchmarks.run"))
    warm = Row(FIRST, "", "", "", 0.0)
    prepare(PROGRAMS[FIRST], engines, warm)
    complaints([warm], console)
    for program in found_here(programs, groups, console):
        for row in _rows(program, groups, engines, effort, limits):
            report.rows.append(row)
            console.print(_line(row), soft_wrap=True)
            # Whatever stops the run, what is measured is kept.
            kept_in(arguments.json, report, read_report, merge=arguments.merge)
    _other_groups(report, groups, engines, effort, console)
    if limits is not None and not arguments.programs:
        look_again(report, engines, limits)
    return report


def found_here(programs: Sequence[Program], groups: Sequence[str], console: Console) -> list[Program]:
    """Those whose libraries are installed; of the others that were asked for, it is told."""
    for program in programs:
        if program.missing and program.group in groups:
            console.print(f"left out: {program.name} needs {', '.join(program.missing)}: pip install '.[real]'")
    return [program for program in programs if not program.missing]


def effort_of(arguments: argparse.Namespace) -> Effort:
    if arguments.quick:
        return Effort(arguments.seconds, 0, 1, 1)
    return Effort(arguments.seconds, arguments.budget, min(3, arguments.repeats), arguments.repeats)


def _rows(
    program: Program, groups: Sequence[str], engines: Sequence[Engine], effort: Effort, limits: Limits | None
) -> Iterator[Row]:
    """Measure a program's calls and its compilation, as far as the groups ask for them."""
    if program.group in groups and program.group != "compile":
        yield measure(program, engines, effort, limits)
    if "compile" in groups and program.group in ("models", "compile"):
        from benchmarks.compiling import measure_compiling

        yield measure_compiling(program, engines, effort)


def look_again(report: Report, engines: Sequence[Engine], limits: Limits) -> None:
    """Measures the limits at the end of a run as well: something may have been in the way at its beginning."""
    from benchmarks.limits import keep, measure_limits
    from benchmarks.programs import PROGRAMS

    best = limits.or_better(measure_limits())
    keep(best)
    for row in report.rows:
        if row.group != "compile":
            row.limit = best.of(PROGRAMS[row.program].work())
    report.machine = describe_machine(engines, best)


def _other_groups(
    report: Report, groups: Sequence[str], engines: Sequence[Engine], effort: Effort, console: Console
) -> None:
    if "dispatch" in groups:
        from benchmarks.dispatch import measure_calls

        report.dispatch = measure_calls(engines, effort)
    if "scale" in groups:
        from benchmarks.scale import measure_growth, measure_threads

        report.growth = measure_growth(engines, effort, console)
        report.threads = measure_threads(report.engines, console)


def _line(row: Row) -> str:
    """Progress: ratios, and what went wrong."""
    ratios = [f"{name} / {OURS} {ratio:.2f}" for name in row.engines if name != OURS and (ratio := row.ratio(name))]
    share = [f"{row.share:.0%} of the limit"] if row.share else []
    told = [*ratios, *share, *states_in_words(row), *(f"{name} failed" for name in row.failures)]
    return f"{row.program}: {', '.join(told)}"


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


def main() -> int:
    """Exit code 1 when results differ, a program failed on stablexla, or something became slower."""
    arguments = parser().parse_args()
    if arguments.markdown == PAGE and arguments.programs and not arguments.merge:
        raise SystemExit(f"{PAGE.name} has all programs: --markdown FILE writes another page, --merge keeps the others")
    if arguments.compare:
        return tell_changes(*map(read_report, arguments.compare), Console(highlight=False))
    if arguments.threads:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: arguments.threads])
    if not arguments.default_malloc:
        keep_memory("benchmarks.run")
    if arguments.list:
        from benchmarks.programs import PROGRAMS

        for program in PROGRAMS.values():
            print(f"{program.group:8} {program.name:26} {program.summary}")
        return 0
    console = Console(highlight=False, markup=False, stderr=True)
    report = read_report(arguments.source) if arguments.source else measure_all(arguments, console)
    output = Console(highlight=False)
    output.width = max(output.width, 150)  # wide enough when it is no terminal
    for cells in (*all_cells(report), *compile_cells(report.of("compile"))):
        if cells.lines:
            output.print(to_table(cells))
    code = complaints(report.rows, console)
    report = kept_in(arguments.json, report, read_report, merge=arguments.merge)
    if arguments.markdown:
        from benchmarks.page import write_page

        write_page(report, arguments.markdown)
    return code


if __name__ == "__main__":
    sys.exit(main())
