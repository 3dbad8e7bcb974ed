"""A program with a large constant, from the builder to a loaded file: `python -m tests.large_constant [MiB]`.

The figures of docs/reliability.md: processor time, and the most memory that was in use after each step.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time

import numpy as np

import stablexla as sx
from stablexla.targets.pipeline.knobs import knobs

ROW = 1 << 18
"""Numbers of a MiB."""


def report(step: str, start: float) -> None:
    """Print a step's seconds, and the most MiB that this process had so far."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{step:<10} {process_time() - start:7.1f} s  {memory:7,} MiB", flush=True)


def make(size: int, path: Path) -> None:
    """Build, compile, run and save a program that adds a constant of so many MiB."""
    number = np.random.default_rng(0).standard_normal((size, ROW), dtype=np.float32)
    report("array", 0.0)
    start = process_time()
    b = sx.XlaBuilder("large")
    program = b.build(b.parameter(0, sx.f32[size, ROW]) + b.constant(number))
    report("build", start)
    start = process_time()
    with knobs.scoped(kernel_cache="off"):
        executable = sx.compile(program)
    report("compile", start)
    start = process_time()
    executable.save(path)
    report("save", start)
    start = process_time()
    x = np.ones_like(number)
    assert np.array_equal(executable(x), number + x)
    report("run", start)


def load(path: Path) -> None:
    """Load the saved program."""
    start = process_time()
    sx.load_executable(path)
    report("load", start)


def main(size: int) -> int:
    """Measure, each of `make` and `load` in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.sxe"
        for call in (f"make({size}, path)", "load(path)"):
            script = f"from pathlib import Path; from tests.large_constant import *; path = Path({str(path)!r}); {call}"
            if subprocess.run([sys.executable, "-c", script], check=False).returncode:
                return 1
        print(f"file       {path.stat().st_size >> 20:17,} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 1024))
