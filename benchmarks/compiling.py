"""Compile time of one program by state: without caches, from the cache, and in new processes; and the memory it takes.

Engines take turns, and the best round counts. No peer has a cache: ours is beside their compiling. A new process is
measured from before the engine's import (for XLA, that of jaxlib's client alone) with files in the page cache. Memory
is the growth of the largest resident size in a process that has compiled a small program before.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING
from unittest.mock import patch

import stablexla as sx
from benchmarks.measuring import COLD, NEW, NEW_WARM, OURS, WARM, Effort, Measured, Row, prepare_on
from benchmarks.programs import PROGRAMS, Program

if TYPE_CHECKING:
    from benchmarks.engines import Engine

FIRST = "add-2x2"
ROOT = Path(__file__).parents[1]
CACHE = "STABLEXLA_KERNEL_CACHE"
IN_NEW_PROCESSES = (OURS, "xla")
NOT_INHERITED = ("MALLOC_", "PYTHONDONTWRITEBYTECODE")


def measure_compiling(program: Program, engines: Sequence[Engine], effort: Effort) -> Row:
    """Measure every state of a program; those in new processes, which take seconds, unless there is a single round."""
    row = Row(program.name, program.summary, "compile", program.family, program.tolerance)
    with tempfile.TemporaryDirectory() as folder, patch.dict(os.environ, {CACHE: "off"}):
        text = program.text()
        _measure_cold(program, text, _compilers(program, engines), row, effort)
        if OURS in row.engines:
            with patch.dict(os.environ, {CACHE: folder}):
                row.engines[OURS].states[WARM] = _warm(text, effort)
        if effort.most > 1:
            _measure_alone(program, text, row, Path(folder), effort)
    return row


def _compilers(program: Program, engines: Sequence[Engine]) -> list[Engine]:
    """IREE takes seconds for anything: it has models only."""
    return [e for e in engines if e.name != "numpy" and (e.name != "iree" or program.group == "models")]


def _measure_cold(program: Program, text: str, engines: Sequence[Engine], row: Row, effort: Effort) -> None:
    best: dict[str, Measured] = {}
    start = perf_counter()
    for number in range(effort.most):
        if number >= effort.least and perf_counter() - start > effort.budget:
            break
        for engine in engines if number % 2 == 0 else reversed(engines):
            prepare_on(engine, program, text, row)
            if (made := row.engines.pop(engine.name, None)) is not None:
                made.states[COLD] = made.compile_seconds
                best[engine.name] = min(made, best.get(engine.name, made), key=lambda each: each.compile_seconds)
    row.engines |= best


def _warm(text: str, effort: Effort) -> float:
    """Return the seconds of a compilation that finds its program in the cache."""
    sx.compile(text)
    found = []
    for _ in range(effort.least):
        start = perf_counter()
        sx.compile(text)
        found.append(perf_counter() - start)
    return min(found)


# ---- new processes --------------------------------------------------------------------------------------------------


def _measure_alone(program: Program, text: str, row: Row, folder: Path, effort: Effort) -> None:
    """Measure new processes; `folder` is the cache that holds the program."""
    file, small = folder / "program.mlir", folder / "small.mlir"
    file.write_text(text)
    small.write_text(PROGRAMS[FIRST].text())
    for name in filter(row.engines.__contains__, IN_NEW_PROCESSES):
        measured = row.engines[name]
        caches = {NEW: "off", NEW_WARM: str(folder)} if name == OURS else {NEW: "off"}
        try:
            measured.peak = _in_new_process(name, small, file)[1]
            for state, cache in caches.items() if program.group == "models" else ():
                found = (_in_new_process(name, file, cache=cache)[0] for _ in range(effort.least))
                measured.states[state] = min(found)
        except subprocess.CalledProcessError as error:
            row.failures[name] = f"in a new process: {[*error.stderr.strip().splitlines(), ''][-1]}"


def _in_new_process(name: str, *files: Path, cache: str = "off") -> tuple[float, float]:
    """Return the seconds of a process that compiles the files, and the bytes that the last one takes."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(NOT_INHERITED)}
    command = [sys.executable, "-m", "benchmarks.compile_child", name, *map(str, files)]
    done = subprocess.run(command, cwd=ROOT, env={**kept, CACHE: cache}, capture_output=True, text=True, check=True)
    seconds, size = map(float, done.stdout.split())
    return seconds, size
