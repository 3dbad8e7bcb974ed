"""`--explain`, `--profile`, `--trace`, `--all` and `--kernels` of `stablexla-run`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stablexla.executable.executable import Executable
from stablexla.tools.common import count

RUNS = 10
TEXT = "-"
_OTHER_WORK = ("input", "inputs", "print", "output_dir", "time", "check", "compare", "profile", "trace")


def add_explain_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that the functions here read."""
    group = parser.add_argument_group("looking into the program (docs/explain.md)")
    group.add_argument(
        *("--explain",),
        nargs="?",
        const=TEXT,
        metavar="FILE",
        help="print what became of each operation, or write it as a page; alone, the program does not run",
    )
    group.add_argument(
        "--memory", action="store_true", help="print the memory that a call needs; alone, the program does not run"
    )
    group.add_argument(
        *("--profile",),
        nargs="?",
        const=RUNS,
        type=count,
        metavar="RUNS",
        help=f"print the time in each kernel over so many runs (default: {RUNS})",
    )
    group.add_argument(
        "--all", action="store_true", help="with --explain or --profile: all tables behind the summary of twenty lines"
    )
    group.add_argument(
        "--kernels", default="", metavar="PATTERN", help="the same for kernels of these names alone, such as 'loop_*'"
    )
    group.add_argument("--trace", type=Path, metavar="FILE", help="write the profile for https://ui.perfetto.dev")


def explain(executable: Executable, arguments: argparse.Namespace) -> bool:
    """Explain on request; return whether anything else was requested."""
    if arguments.memory:
        print(executable.memory_estimate())
    if arguments.explain is None:
        return not arguments.memory or _is_run(arguments)
    explanation = executable.explain()
    if arguments.explain == TEXT:
        print(explanation.text(all=arguments.all, kernels=arguments.kernels))
    else:
        explanation.save(arguments.explain)
    return _is_run(arguments)


def _is_run(arguments: argparse.Namespace) -> bool:
    return any(getattr(arguments, name) for name in _OTHER_WORK)


def profile(executable: Executable, inputs: Sequence[Any], arguments: argparse.Namespace) -> None:
    """Profile on request, and write the page again if there is one, with the very times that are printed."""
    if arguments.profile or arguments.trace:
        found = executable.profile(inputs, runs=arguments.profile or RUNS)
        print(found.text(all=arguments.all, kernels=arguments.kernels))
        if arguments.trace:
            found.save_trace(arguments.trace)
        if arguments.explain not in (None, TEXT):
            found.explanation.save(arguments.explain, found)
