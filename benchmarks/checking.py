"""Overhead of checks for NaN and infinities at run time: python -m benchmarks.checking [--programs NAMES] [--markdown].

Each program is compiled without checks, with those for the first NaN and for all, and with all checks at once, as
programs with effects have them. The executables take turns on one processor. A figure is the ratio of the best rounds,
in the processor's time, so that other programs change it little. `--markdown` puts the table into docs/check.md.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import thread_time

import stablexla as sx
from benchmarks.programs import PROGRAMS
from benchmarks.programs.registry import Program
from benchmarks.report import as_typed, in_words, ratio_in_words, replace_between
from stablexla.inspection.checking.checked import CheckedExecutable

NAMES = (
    *("softmax-128x768", "softmax-4096", "layer-norm-128x768", "layer-norm-4096", "batch-norm", "gelu-1m"),
    *("sum-rows-4096", "mlp-step-batch-32", "mlp-step", "conv-3x3-28", "layers-1", "lstm-128-batch-1", "lstm-128"),
    *("loop-newton", "loop-heat-256", "scan-rows-1000x512", "scan-60-scalars"),
)
WAYS = {
    "`nan`": ("nan", False),
    "`all`": ("all", False),
    "`nan`, at once": ("nan", True),
    "`all`, at once": ("all", True),
}
PAGE, BEGIN, END = Path("docs/check.md"), "<!-- what checks cost -->", "<!-- end of what checks cost -->"
READING = """\
how many times as long as without checks a run takes, on one
processor. `at once` has all checks in the first run, as programs with effects have."""
ROUND = 0.02
"""Seconds of a measurement."""


def measured(program: Program, rounds: int) -> tuple[float, list[float]]:
    """Return the seconds of a run without checks, and how many times as long each way of checking takes."""
    text, arguments = program.text(), program.arguments()
    ways = [(None, False), *WAYS.values()]
    runs = [_run(_compiled(text, *way), arguments) for way in ways]
    counts = [max(1, round(ROUND / _seconds(run, 1))) for run in runs]
    measured = [[_seconds(*each) for each in zip(runs, counts, strict=True)] for _ in range(rounds)]
    plain, *checked = (min(rounds) for rounds in zip(*measured, strict=True))
    return plain, [each / plain for each in checked]


def _compiled(text: str | bytes, check: str | None, at_once: bool) -> sx.Executable:
    """Compile a program with checks; with all of them at once, whether or not it has effects."""
    made = sx.compile(text, options=sx.CompileOptions(check=check))
    if at_once and isinstance(made, CheckedExecutable):
        made._checker._begins = "exact"
    return made


def _run(executable: sx.Executable, arguments: Sequence[object]) -> Callable[[], object]:
    """Return a call of the executable, after one in which it is not timed."""
    executable.execute(arguments)
    return lambda: executable.execute(arguments)


def _seconds(run: Callable[[], object], count: int) -> float:
    """Return the time of a call."""
    start = thread_time()
    for _ in range(count):
        run()
    return max(thread_time() - start, 1e-9) / count


def lines(names: Sequence[str], rounds: int) -> Iterator[str]:
    """Yield the lines of the table as they are measured."""
    yield f"| program | | without checks | {' | '.join(WAYS)} |"
    yield "|---|---|" + "---:|" * (1 + len(WAYS))
    for name in names:
        seconds, ratios = measured(PROGRAMS[name], rounds)
        yield f"| {name} | {PROGRAMS[name].summary} | {in_words(seconds)} | {' | '.join(map(ratio_in_words, ratios))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", help="names with commas between them")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--markdown", action="store_true", help=f"put the table into {PAGE}")
    options = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # before the runtime counts the processors
    found = []
    for line in lines(options.programs.split(",") if options.programs else NAMES, options.rounds):
        print(line, flush=True)
        found.append(line)
    if options.markdown:
        made = f"Made by `{as_typed('benchmarks.checking')}`: {READING}"
        replace_between(PAGE, BEGIN, END, "\n".join([made, "", *found]))


if __name__ == "__main__":
    main()
