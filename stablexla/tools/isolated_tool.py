"""Running a tool in a process of its own, so that a crash inside of MLIR is an error of the tool."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence

from stablexla.processes.process import last_words, signal_name
from stablexla.tools.common import FAILED, INTERRUPTED
from stablexla.tools.terminal import print_error, print_errors

ISOLATED, TIME_LIMIT, APART = "--isolated", "--time-limit", "--apart"


def run_apart(module: str, arguments: Sequence[str], *, compiling_apart: bool = False) -> int:
    """Run a tool in another process, and return its exit code and output; 1 when the process is ended.

    Args:
        module: the tool's.
        arguments: for it; those that concern the other process are taken out.
        compiling_apart: the arguments stay behind `APART`: compiling has a process and a time limit of its own.
    """
    rest, seconds = ([APART, *arguments], None) if compiling_apart else _own_arguments(arguments)
    with tempfile.TemporaryFile() as log:
        try:
            done = subprocess.run([sys.executable, "-m", module, *rest], stderr=log, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            print_error(f"it took more than {seconds:g} s")
            return FAILED
        except KeyboardInterrupt:  # which it got as well
            print_error("interrupted")
            return INTERRUPTED
        log.seek(0)
        said = log.read().decode(errors="replace")
    if done.returncode >= 0:
        print_errors(said, end="")
        return done.returncode
    name = signal_name(-done.returncode)
    print_error("\n  ".join([f"the process ended ({name})", *last_words(said)]))
    return FAILED


def _own_arguments(arguments: Sequence[str]) -> tuple[list[str], float | None]:
    rest, seconds, waiting = list[str](), None, False
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if waiting or (name == TIME_LIMIT and equals):
            seconds, waiting = float(argument if waiting else value), False
        elif name == TIME_LIMIT:
            waiting = True
        elif argument != ISOLATED:
            rest.append(argument)
    return rest, seconds
