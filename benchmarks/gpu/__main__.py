"""Programs on a GPU, side by side with XLA, PyTorch and Triton, in one process.

Needs a GPU and its driver; of the others, those that are installed take part. Arguments lie on the device, and each
call makes new results there. Results are compared before any time is taken; then the engines take turns, round after
round, with many calls in a turn, at the end of which is waited for the device. Several copies of the arguments take
turns, so that they come from memory. The share is the least time, by the bandwidth of the driver's own copy and by the
rate of PyTorch's products, over stablexla's time.

--compile needs no GPU: it compiles every program, and has ptxas tell what its kernels take.
"""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

import stablexla as sx
from benchmarks.engines.base import MissingEngineError
from benchmarks.gpu.compiling import compile_all
from benchmarks.gpu.engines import ENGINES, MAKERS
from benchmarks.gpu.limits import GpuLimits, measure_limits
from benchmarks.gpu.page import all_cells, write_page
from benchmarks.gpu.programs import programs
from benchmarks.measuring import OURS, Effort, Row, measure
from benchmarks.programs.registry import Program
from benchmarks.report import Report, as_typed, kept_in, ratio_in_words, read_report
from benchmarks.run import chosen, complaints
from benchmarks.tables import to_table

PAGE = Path(__file__).parents[2] / "docs" / "gpu.md"
WIDTH = 160
"""Of tables that go to no terminal."""
IN_CACHES, MOST_SETS = 512 << 20, 8
"""Bytes that all copies of a program's arguments have together at least, and how many copies there are at most."""


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--programs", default="", help="names, or beginnings of names, with commas; all by default")
    made.add_argument("--engines", default=",".join(ENGINES), help="who takes part (default: all that are installed)")
    made.add_argument("--repeats", type=int, default=15, help="at most so many rounds (default 15)")
    made.add_argument("--seconds", type=float, default=0.05, help="length of an engine's turn (default 0.05)")
    made.add_argument("--budget", type=float, default=2.0, help="seconds for all rounds of a program (default 2)")
    made.add_argument("--small", action="store_true", help="tiny sizes, to try whether everything runs")
    made.add_argument("--compile", metavar="CHIP", nargs="?", const="sm_90a", help="only compile, for a chip (sm_90a)")
    made.add_argument("--json", type=Path, metavar="FILE", help="write everything there")
    made.add_argument("--merge", action="store_true", help="keep what the file of --json has of other programs")
    made.add_argument("--markdown", type=Path, nargs="?", const=PAGE, metavar="FILE", help=f"write into {PAGE.name}")
    made.add_argument("--from", type=Path, metavar="FILE", dest="source", help="measure nothing: tell what FILE has")
    made.add_argument("--list", action="store_true", help="list the programs and stop")
    return made


def find_engines(names: str, console: Console) -> list[Any]:
    """Those that can take part.

    Raises:
        SystemExit: there is no such engine, or stablexla has no GPU.
    """
    found = []
    for name in filter(None, names.split(",")):
        if name not in MAKERS:
            raise SystemExit(f"there is no engine {name!r}; there are {', '.join(ENGINES)}")
        try:
            found.append(MAKERS[name]())
        except MissingEngineError as error:
            if name == OURS:
                raise SystemExit(f"{error}; --compile needs none") from None
            console.print(f"without {name}: {error}")
    return found


def describe(engines: Sequence[Any], limits: GpuLimits) -> dict[str, str]:
    """The device, and the versions of everything."""
    device = sx.gpu.devices()[0]
    return {
        "GPU": f"{device.name}, {device.total_bytes / (1 << 30):.0f} GiB, {device.multiprocessors} multiprocessors",
        "driver": f"of CUDA {device.driver}",
        "system": f"{platform.system()}, Python {platform.python_version()}",
        "engines": ", ".join(f"{e.name} ({e.version})" for e in engines),
        **limits.words(),
    }


def measure_all(taken: dict[str, Program], arguments: argparse.Namespace, console: Console) -> Report:
    """One row after the other; what is measured is kept at once."""
    engines = find_engines(arguments.engines, console)
    limits = measure_limits(arguments.small)
    report = Report(describe(engines, limits), [engine.name for engine in engines], as_typed("benchmarks.gpu"))
    effort = Effort(arguments.seconds, arguments.budget, min(3, arguments.repeats), arguments.repeats)
    for program in taken.values():
        row = measure(program, [_InTurns(engine) for engine in engines], effort, limits)
        report.rows.append(row)
        console.print(_line(row), soft_wrap=True)
        kept_in(arguments.json, report, read_report, merge=arguments.merge)
    return report


class _InTurns:
    """An engine whose arguments are there several times."""

    def __init__(self, engine: Any) -> None:
        self._engine, self.name, self.version = engine, engine.name, engine.version

    def prepare(self, program: Program, text: str) -> Any:
        made = self._engine.prepare(program, text)
        if made is not None:
            made.sets = max(1, min(MOST_SETS, round(IN_CACHES / max(1.0, program.work().read))))
        return made


def _line(row: Row) -> str:
    """Progress: ratios, and what went wrong."""
    ratios = [f"{name} / {OURS} {ratio_in_words(row.ratio(name))}" for name in row.engines if name != OURS]
    failed = [f"{name} failed ({why})" for name, why in row.failures.items()]
    return f"{row.program}: {', '.join([*ratios, *failed]) or 'done'}"


def main() -> int:
    """Exit code 1 when results differ, or a program failed on stablexla."""
    arguments = parser().parse_args()
    known = programs(arguments.small)
    taken = {name: known[name] for name in chosen(arguments.programs, list(known))}
    console, output = Console(stderr=True, highlight=False), Console(highlight=False)
    if not output.is_terminal:
        output.width = WIDTH
    if arguments.list:
        for program in taken.values():
            output.print(f"{program.name:22} {program.summary}", soft_wrap=True)
        return 0
    if arguments.compile:
        return compile_all(taken, arguments.compile, output)
    report = read_report(arguments.source) if arguments.source else measure_all(taken, arguments, console)
    for cells in all_cells(report, known):
        output.print(to_table(cells))
    code = complaints(report.rows, console)
    if not arguments.source:
        report = kept_in(arguments.json, report, read_report, merge=arguments.merge)
    if arguments.markdown:
        write_page(report, known, arguments.markdown)
    return code


if __name__ == "__main__":
    raise SystemExit(main())
