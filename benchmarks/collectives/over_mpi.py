"""Starts the ranks of a measurement, reads what they measured, and ends them when that takes too long."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from threading import Timer

from benchmarks.collectives.cases import Case
from benchmarks.measuring import Effort, Row, to_row


def find_mpiexec(given: str | None = None) -> str | None:
    """The launcher that came with the MPI of this environment, or else one on the path."""
    beside = Path(sys.executable).with_name("mpiexec")
    return given or (str(beside) if beside.exists() else shutil.which("mpiexec"))


def measure_over_mpi(
    cases: Sequence[Case], engines: Sequence[str], effort: Effort, mpiexec: str, patience: float
) -> Iterator[Row]:
    """A row for each case, which all have the same number of devices: one rank each."""
    task = {"cases": [vars(each) for each in cases], "engines": list(engines), "effort": asdict(effort)}
    child = [sys.executable, "-m", "benchmarks.collectives.mpi_child", json.dumps(task)]
    process = subprocess.Popen([mpiexec, "-n", str(cases[0].devices), *child], stdout=subprocess.PIPE, text=True)
    guard = Timer(patience, process.terminate)
    guard.start()
    try:
        assert process.stdout
        for line in process.stdout:
            yield to_row(json.loads(line))
        if code := process.wait():
            raise RuntimeError(f"mpiexec ended with {code}")
    finally:
        guard.cancel()
        process.terminate()
        process.wait(10)
