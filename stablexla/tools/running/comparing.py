"""`stablexla-run --compare`: options, progress, report and files."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console

from stablexla.executable.executable import Executable
from stablexla.targets.pipeline.options import DEFAULT_TARGET
from stablexla.targets.pipeline.pipelines import Pipeline
from stablexla.tools.common import FAILED
from stablexla.tools.user_code import read_pipeline

if TYPE_CHECKING:
    from stablexla.inspection.comparing.operation_search import Progress

HELP = """
comparing:
  --compare takes what the program is held against:
    interpreter (or reference)   StableHLO's reference interpreter, in a process of its own
    xla                          XLA on the CPU, in a process of its own
    plain                        stablexla with nothing fused, no emitters, no threads, no optimisation
    source, stablehlo, tensor ..  the program as it is after that stage, and from there on as plainly as possible
    FILE.pipeline                another pipeline, as str(pipeline) writes it
  It reports the first operation in the order of the program that is wrong, each judged on the operands that the run \
had: its place in the source, both values, and the step, pass or kernel that did it. --compare-dir gets a small \
program that shows it. The interpreter judges slices of large operations, and XLA those that cannot be sliced. After \
--time-limit seconds, or at Ctrl-C, it reports what is known so far, and the exit code is 1.
"""


def add_compare_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `compare` reads."""
    group = parser.add_argument_group("comparing")
    add = group.add_argument
    add("--compare", metavar="AGAINST", help="find the first operation that is wrong; see below")
    add("--tolerance", type=float, metavar="T", help="how far results may be apart, as a part of the largest value")
    add("--ulp", type=float, metavar="N", help="units in the last place that each operation may be off")
    add("--compare-dir", type=Path, metavar="DIR", help="where the smallest program goes (default: a temporary folder)")
    add("--no-cause", action="store_true", help="do not look for the step, pass or kernel at fault")
    add("--json", action="store_true", help="print what was found as JSON, and nothing else")


def compare(executable: Executable, inputs: Sequence[Any], arguments: argparse.Namespace, console: Console) -> int:
    """Compare, print, and return the exit code."""
    from stablexla.inspection.comparing.compare import CompareOptions
    from stablexla.inspection.comparing.compare import compare as compared
    from stablexla.inspection.comparing.report import json_text, show

    with _progress() as progress:
        options = CompareOptions(
            tolerance=arguments.tolerance,
            ulp=arguments.ulp,
            cause=not arguments.no_cause,
            progress=progress,
            time_limit=arguments.time_limit,
        )
        found = compared(executable, inputs, _against(arguments.compare), options)
    folder = None
    if found.finding is not None and found.finding.program is not None:
        folder = arguments.compare_dir or Path(tempfile.mkdtemp(prefix="stablexla-compare-"))
        found.save(folder, _again(arguments))
    if arguments.json:
        print(json_text(found))
    else:
        show(found, console, folder)
    return 0 if found.equal and not found.stopped else FAILED


def _again(arguments: argparse.Namespace) -> list[str]:
    """Return the options that repeat the comparison, in any folder."""
    words = [f"--load={Path(file).absolute()}" for file in arguments.load]
    words += [f"--rule={rule}" for rule in arguments.rule]
    if arguments.target != DEFAULT_TARGET:
        words.append(f"--target={arguments.target}")
    for name in ("opt_level", "vector_bits", "num_threads", "tolerance", "ulp"):
        if (value := getattr(arguments, name)) is not None:
            words.append(f"--{name.replace('_', '-')}={value}")
    for name in ("flush_denormals", "excess_precision"):
        if getattr(arguments, name):
            words.append(f"--{name.replace('_', '-')}")
    against = Path(arguments.compare).absolute() if _is_file(arguments.compare) else arguments.compare
    return [*words, f"--compare={against}"]


def _against(text: str) -> str | Pipeline:
    """Return the pipeline in a file of that name, otherwise the text."""
    return read_pipeline(Path(text)) if _is_file(text) else text


def _is_file(text: str) -> bool:
    return bool(Path(text).suffix) or "/" in text


@contextmanager
def _progress() -> Iterator[Progress]:
    """Show progress on standard error, if that is a terminal, after a second."""
    from stablexla.inspection.comparing.operation_search import no_progress

    if not sys.stderr.isatty():
        yield no_progress
        return
    start = monotonic()
    with Console(stderr=True).status("") as status:
        status.stop()

        def told(what: str, done: int, of: int) -> None:
            if monotonic() - start > 1:
                status.update(f"{what}: {done} of {of}" if of else what)
                status.start()

        yield told
