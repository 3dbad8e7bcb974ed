"""How time grows: with a program's size beside what its algorithm says, and with the processors that it may use."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring import Effort, measure
from benchmarks.report import Grown, in_words, read_report

if TYPE_CHECKING:
    from rich.console import Console

    from benchmarks.engines import Engine

BUDGET = 0.25
"""Seconds for all rounds of a program: two sizes each, of which the larger one is slow enough to be told well."""
THREADED = (
    "matmul-1024",
    "matmul-128",
    "conv-3x3-56",
    "exp-16M",
    "softmax-4096",
    "sum-columns-4096",
    "transpose-4096",
    "cumsum-1m",
    "sort-1m",
    "fft-1048576",
    "three-fry-16m",
    "attention-96x512x64",
)


def measure_growth(engines: Sequence[Engine], effort: Effort, console: Console) -> list[Grown]:
    """Every growing program at its two sizes."""
    from benchmarks.programs.growing import GROWING

    made = []
    for each in GROWING.values():
        short = replace(effort, budget=min(BUDGET, effort.budget))
        rows = [measure(each.at(n), engines, short) for n in each.sizes]
        seconds = {}
        for engine in engines:
            small, large = (row.seconds(engine.name) for row in rows)
            if small and large:
                seconds[engine.name] = (small, large)
        made.append(Grown(each.name, each.summary, each.sizes, each.law, each.expected, seconds))
        console.print(f"{each.name}: {_words(made[-1])}", soft_wrap=True)
    return made


def _words(grown: Grown) -> str:
    factors = (f"{name} {in_words(t[1])} ({grown.factor(name):.1f})" for name, t in grown.seconds.items())
    return f"{', '.join(factors)}; the algorithm's {grown.expected:.1f}"


def measure_threads(engines: Sequence[str], console: Console) -> dict[str, dict[str, dict[str, float]]]:
    """Seconds by program, engine and processors: most engines can't change their mind, so each has its own process."""
    from benchmarks.programs import PROGRAMS

    names = ",".join(name for name in THREADED if name in PROGRAMS)
    found: dict[str, dict[str, dict[str, float]]] = {}
    for count in sorted({1, len(os.sched_getaffinity(0))}):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "report.json"
            command = [sys.executable, "-m", "benchmarks.run", "--threads", str(count), "--programs", names]
            options = ["--engines", ",".join(engines), "--budget", str(BUDGET), "--json", str(file)]
            done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
            if not file.exists():
                console.print(f"threads: {done.stderr.strip().splitlines()[-1:]}")
                continue
            for row in read_report(file).rows:
                for name in row.engines:
                    if (seconds := row.seconds(name)) is not None:
                        found.setdefault(row.program, {}).setdefault(name, {})[str(count)] = seconds
    return found
