"""Collectives of several devices: stablexla beside XLA:CPU in one process, and beside plain mpi4py over MPI.

The same StableHLO module runs everywhere, and results are compared before any time is taken. In one process, XLA:CPU
runs in a child with --xla_force_host_platform_device_count; its operands lie on its devices, as stablexla's lie in
numpy arrays, and a call of either has ended when all devices have new results. Over MPI, one rank is one device, and
mpi4py's calls of the same processes write into buffers that were made once; the engine `dialect` is the same program
with its reductions in MLIR's `mpi` dialect, which is told while it is measured and in no table. Everybody takes turns,
round after round; a cell is the time of a call in the best round, with the median in brackets. A ratio is the peer's
best time over stablexla's: above 1, stablexla is faster. The array is the larger of a device's operand and result. The
share is the least time in which this machine could read all operands and write all results, over stablexla's time.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.collectives.cases import ELEMENTS, IN_PROCESS, OPERATIONS, OVER_MPI, Case, size_of
from benchmarks.collectives.figures import DIALECT, PEERS, Figures, all_cells, of_training, read_figures, write_page
from benchmarks.measuring import OURS, Effort, Row
from benchmarks.report import as_typed, kept_in
from benchmarks.run import keep_memory
from benchmarks.tables import to_table

WAYS = {"process": IN_PROCESS, "mpi": OVER_MPI}
SIZES = "1KiB,16KiB,256KiB,1MiB,4MiB,16MiB,64MiB"
ENGINES = "stablexla,xla,mpi4py"
PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.collectives",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "--operations", default="all_reduce,all_gather", help=f"of {', '.join(OPERATIONS)} (default: two)"
    )
    made.add_argument("--elements", default="f32", help=f"of {', '.join(ELEMENTS)} (default f32)")
    made.add_argument("--sizes", default=SIZES, help=f"of the arrays (default {SIZES})")
    made.add_argument("--devices", default="2,4", help="numbers of devices (default 2,4)")
    made.add_argument("--over", default="process,mpi", help="process, mpi and training (default process,mpi)")
    made.add_argument("--engines", default=ENGINES, help=f"who takes part, also {DIALECT} (default {ENGINES})")
    made.add_argument("--repeats", type=int, default=15, help="at most so many rounds (default 15)")
    made.add_argument("--seconds", type=float, default=0.02, help="length of a turn (default 0.02)")
    made.add_argument("--budget", type=float, default=0.5, help="seconds for all rounds of a case (default 0.5)")
    made.add_argument("--mpiexec", help="the launcher (default: the one beside this Python, or on the path)")
    made.add_argument("--launches", type=int, default=1, help="of mpiexec, whose rounds are put together (default 1)")
    made.add_argument("--patience", type=float, default=300.0, help="seconds that mpiexec may take (default 300)")
    made.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    made.add_argument("--merge", action="store_true", help="keep what the file of --json has of other cases")
    made.add_argument("--from", type=Path, metavar="FILE", dest="source", help="measure nothing: tell what FILE has")
    made.add_argument("--markdown", type=Path, nargs="?", const=PAGE, metavar="FILE", help=f"write into {PAGE.name}")
    return made


def chosen(text: str, known: list[str], what: str) -> list[str]:
    """The names in a list with commas."""
    found = [name for name in text.split(",") if name]
    for name in found:
        if name not in known:
            raise SystemExit(f"there is no {what} {name!r}; there are {', '.join(known)}")
    return found


def cases_of(arguments: argparse.Namespace) -> list[Case]:
    """All that was asked for, small ones first."""
    operations = chosen(arguments.operations, list(OPERATIONS), "operation")
    elements = chosen(arguments.elements, list(ELEMENTS), "element type")
    sizes = [size_of(each) for each in arguments.sizes.split(",") if each]
    devices = [int(each) for each in arguments.devices.split(",") if each]
    return [Case(o, e, s, d) for o, e, d, s in product(operations, elements, devices, sizes)]


def describe_machine() -> dict[str, str]:
    """The processor and the versions of everybody."""
    information = Path("/proc/cpuinfo").read_text()
    models = [line.partition(":")[2].strip() for line in information.splitlines() if line.startswith("model name")]
    packages = ", ".join(
        f"{name} {found}" for name in ("jaxlib", "mpi4py", "mpich", "openmpi") if (found := _version(name))
    )
    return {
        "processor": models[0] if models else platform.machine(),
        "cores used": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "system": f"{platform.system()}, Python {platform.python_version()}, {packages}",
    }


def _version(package: str) -> str:
    try:
        return version(package)
    except ModuleNotFoundError:
        return ""


# ---- measuring ------------------------------------------------------------------------------------------------------


def rows_in_process(cases: list[Case], engines: list[str], effort: Effort) -> Iterator[tuple[Case, Row]]:
    from benchmarks.collectives.in_process import Ours, Party, measure_case
    from benchmarks.collectives.xla_child import Xla
    from benchmarks.limits import kept_limits

    limits = kept_limits(again=False)
    with ExitStack() as stack:
        parties: list[Party] = [Ours()] if OURS in engines else []
        if PEERS[IN_PROCESS] in engines:
            parties.append(stack.enter_context(Xla(max(case.devices for case in cases))))
        for case in cases:
            row = measure_case(case, parties, effort)
            row.limit = limits.of(case.work())
            yield case, row


def rows_over_mpi(
    cases: list[Case], engines: list[str], effort: Effort, arguments: argparse.Namespace
) -> Iterator[tuple[Case, Row]]:
    from benchmarks.collectives.over_mpi import find_mpiexec, measure_over_mpi

    mpiexec = find_mpiexec(arguments.mpiexec)
    if mpiexec is None or not _version("mpi4py"):
        raise SystemExit("measuring over MPI needs mpi4py and mpiexec: pip install 'stablexla[mpi]'")
    taking_part = [name for name in engines if name in (OURS, PEERS[OVER_MPI], DIALECT)]
    for devices in dict.fromkeys(case.devices for case in cases):
        own = [case for case in cases if case.devices == devices]
        rows = [
            measure_over_mpi(own, taking_part, effort, mpiexec, arguments.patience) for _ in range(arguments.launches)
        ]
        earlier = [list(each) for each in rows[:-1]]
        for case, *found in zip(own, *earlier, rows[-1], strict=True):
            yield case, together(found)


def together(rows: list[Row]) -> Row:
    """The rounds of several launches as one row: where buffers happen to lie differs from process to process."""
    for name, measured in rows[0].engines.items():
        measured.rounds += [seconds for row in rows[1:] for seconds in row.engines[name].rounds]
        measured.difference = max(row.engines[name].difference for row in rows)
    return rows[0]


def measure_all(arguments: argparse.Namespace, console: Console) -> Figures:
    """Everything that was asked for; it is written down after each case."""
    cases, effort = (
        cases_of(arguments),
        Effort(arguments.seconds, arguments.budget, min(3, arguments.repeats), arguments.repeats),
    )
    ways = chosen(arguments.over, [*WAYS, "training"], "way")
    engines = chosen(arguments.engines, [OURS, *PEERS.values(), DIALECT], "engine")
    figures = Figures(describe_machine(), as_typed("benchmarks.collectives"))
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        for way in ways:
            if way == "training":
                from benchmarks.collectives.training import measure_training

                figures.training = measure_training(console)
                continue
            rows = (
                rows_in_process(cases, engines, effort)
                if way == "process"
                else rows_over_mpi(cases, engines, effort, arguments)
            )
            for case, row in progress.track(rows, total=len(cases), description=WAYS[way]):
                figures.rows.append((case, row))
                progress.console.print(_line(case, row), soft_wrap=True)
                kept_in(arguments.json, figures, read_figures, merge=arguments.merge)
    return figures


def _line(case: Case, row: Row) -> str:
    told = [f"{name} {row.engines[name].best * 1e6:.1f} us" for name in row.engines]
    ratios = [f"{name} / {OURS} {ratio:.2f}" for name in row.engines if name != OURS and (ratio := row.ratio(name))]
    return f"{row.group}, {case.family}, {case.name}: {', '.join([*told, *ratios, *_complaints(row)])}"


def _complaints(row: Row) -> list[str]:
    failed = [f"{name} failed: {why}" for name, why in row.failures.items()]
    return failed + [f"{name} differs by {row.engines[name].difference:.1e}" for name in row.differing]


def main() -> int:
    """Exit code 1 when results are wrong, or stablexla failed."""
    arguments = parser().parse_args()
    if not arguments.source:
        keep_memory("benchmarks.collectives")
    console = Console(highlight=False, markup=False, stderr=True)
    figures = read_figures(arguments.source) if arguments.source else measure_all(arguments, console)
    rows = [row for _, row in figures.rows]
    if not arguments.source:
        figures = kept_in(arguments.json, figures, read_figures, merge=arguments.merge)
    output = Console(highlight=False)
    for cells in [*all_cells(figures), of_training(figures)]:
        if cells.lines:
            output.print(to_table(cells))
    if arguments.markdown:
        write_page(figures, arguments.markdown)
    return 1 if any(row.differing or OURS in row.failures for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
