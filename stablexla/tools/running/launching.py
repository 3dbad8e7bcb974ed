"""`stablexla-run --launcher mpi`: starts the tool in many processes, and collects their output.

The processes write their exit codes and output to a folder: mpiexec's own message for a failed process says less. The
first one prints the results.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import jaxlib.mlir.ir as ir

from stablexla.compiling.device_counts import counts_of
from stablexla.dialects.errors import ExecutionError, UnsupportedError
from stablexla.tools.common import FAILED, run_tool
from stablexla.tools.terminal import print_error, print_errors

LAUNCHED = "--launched"
_ONLY_HERE = ("compare", "profile", "trace", "explain", "isolated")


def launch(module: ir.Module, data: bytes | None, given: Sequence[str], arguments: argparse.Namespace) -> int:
    """Run the tool in many processes; return its exit code.

    Args:
        module: the program.
        data: the contents of standard input, if the program came from there.
        given: the tool's arguments.

    Raises:
        UnsupportedError: an option that looks into one process.
        ExecutionError: processes that cannot have equally many devices.
        StablexlaError: there is no mpiexec.
    """
    for name in _ONLY_HERE:
        if getattr(arguments, name):
            raise UnsupportedError(f"--{name} is for one process, and --launcher starts many", hint="one of the two")
    replicas, partitions = counts_of(module, arguments.replicas, arguments.partitions)
    devices = replicas * partitions
    processes = arguments.processes or devices
    if devices % processes:
        raise ExecutionError(f"{devices} devices cannot be shared equally by {processes} processes")
    from stablexla.distributed import launcher  # it is for this alone

    with tempfile.TemporaryDirectory(prefix="stablexla-") as name:
        folder = Path(name)
        rest = list(given)
        if data is not None:
            (folder / "program").write_bytes(data)
            rest[rest.index("-")] = str(folder / "program")
        command = [*launcher(), "-n", str(processes), sys.executable, "-m", "stablexla.tools.run"]
        with tempfile.TemporaryFile() as log:
            done = subprocess.run([*command, *rest, LAUNCHED, str(folder)], stderr=log, check=False)
            log.seek(0)
            said = log.read().decode(errors="replace")
        return _told(folder, processes, done.returncode, said)


def _told(folder: Path, processes: int, code: int, said: str) -> int:
    """Print the processes' output, once where all agree; return the exit code."""
    codes, words = list[int](), dict[str, list[int]]()
    for rank in range(processes):
        codes.append(int(_read(folder / f"code{rank}") or FAILED))
        words.setdefault(_read(folder / f"said{rank}"), []).append(rank)
    lost = [rank for rank in range(processes) if not (folder / f"code{rank}").exists()]
    if lost or code:
        print_errors(said, end="")
    for text, ranks in words.items():
        if text:
            where = "" if len(ranks) == processes else f"process {', '.join(map(str, ranks))}: "
            print_errors(where + text, end="")
    if lost:
        print_error(f"process {', '.join(map(str, lost))} ended before it was done")
    return max([*codes, FAILED if lost else 0])


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def run_launched(folder: Path, run: Callable[[], int]) -> int:
    """Run the tool as one of many processes. Its exit code is always 0; the folder gets the real one."""
    from stablexla.distributed import initialize

    said = io.StringIO()
    rank = initialize().rank
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stderr(said))
        if rank:
            nothing = stack.enter_context(open(os.devnull, "w"))
            stack.enter_context(contextlib.redirect_stdout(nothing))
        code = run_tool(run)
    sys.stdout.flush()
    (folder / f"said{rank}").write_text(said.getvalue())
    (folder / f"code{rank}").write_text(str(code))
    return 0


def is_quiet() -> bool:
    """Return whether this is one of many processes but not the first, which alone prints and writes files."""
    distributed = sys.modules.get("stablexla.distributed")
    return bool(distributed is not None and distributed.is_initialized() and distributed.initialize().rank)
