"""Running a tool in a process of its own, so that a crash inside of MLIR is an error of the tool."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence

from stablexla.processes.process import last_words, signal_name
from stablexla.tools.common import APART, FAILED, INTERRUPTED
from stablexla.tools.terminal import print_error, print_errors


def is_to_run_apart(given: argparse.Namespace) -> bool:
    """Return whether `run_apart` is asked for; in the process that it started, limit and isolation are behind us."""
    if given.apart:
        given.isolated, given.time_limit = False, None
    return bool(given.isolated)


def run_apart(module: str, arguments: Sequence[str], seconds: float | None = None) -> int:
    """Run a tool in another process, and return its exit code and output; 1 when the process is ended.

    Args:
        module: the tool's.
        arguments: for it; it gets `APART` besides.
        seconds: after which it is ended.
    """
    command = [sys.executable, "-m", module, APART, *arguments]
    with tempfile.TemporaryFile() as log:
        try:
            done = subprocess.run(command, stderr=log, timeout=seconds, check=False)
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
