"""A program with large constants, from the builder to a loaded file: `python -m tests.large_constant [MiB]`.

The figures of docs/reliability.md: processor time, the most memory that was in use after each step, and how much is the
process's own then, which no file backs. First a constant of the builder's, then weights of a file.
"""

from __future__ import annotations

import math
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time

import numpy as np
from safetensors.numpy import save_file

import stablexla as sx
from stablexla.interop.loading import Program
from stablexla.targets.pipeline.knobs import knobs
from stablexla.tools.running.constants import read_constants

ROW = 1 << 18
"""Numbers of a MiB."""
LAYERS = 8
CONSTANT = "make({}, path)", "load(path)"
WEIGHTS = "write_weights({}, path)", "freeze({}, path)", "load_and_run({}, path)"
"""The steps of the two measurements; each has a process of its own."""


def report(step: str, start: float) -> None:
    """Print a step's seconds, and the most MiB that this process had so far."""
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    own = int(lines["RssAnon"].split()[0]) >> 10
    print(f"{step:<10} {process_time() - start:7.1f} s  {memory:7,} MiB at most, {own:7,} MiB of its own", flush=True)


def compile_and_save(program: Program, path: Path) -> sx.Executable:
    """Compile a program without the cache, and save it."""
    start = process_time()
    with knobs.scoped(kernel_cache="off"):
        executable = sx.compile(program)
    report("compile", start)
    start = process_time()
    executable.save(path)
    report("save", start)
    return executable


def make(size: int, path: Path) -> None:
    """Build, compile, run and save a program that adds a constant of so many MiB."""
    number = np.random.default_rng(0).standard_normal((size, ROW), dtype=np.float32)
    report("array", 0.0)
    start = process_time()
    b = sx.XlaBuilder("large")
    program = b.build(b.parameter(0, sx.f32[size, ROW]) + b.constant(number))
    report("build", start)
    executable = compile_and_save(program, path)
    start = process_time()
    x = np.ones_like(number)
    assert np.array_equal(executable(x), number + x)
    report("run", start)


def load(path: Path) -> None:
    """Load the saved program."""
    start = process_time()
    sx.load_executable(path)
    report("load", start)


def write_weights(size: int, path: Path) -> None:
    """Write square weights of so many MiB in all as safetensors."""
    n = side(size)
    drawn = (np.random.default_rng(i).standard_normal((n, n), dtype=np.float32) for i in range(LAYERS))
    weights = {f"w{i}": each / math.sqrt(n) for i, each in enumerate(drawn)}
    save_file(weights, path.with_suffix(".safetensors"))


def freeze(size: int, path: Path) -> None:
    """Compile products with the weights of the file, and save them."""
    n = side(size)
    b = sx.XlaBuilder("layers")
    y = b.parameter(0, sx.f32[16, n], "x")
    for i in range(LAYERS):
        y = sx.tanh(y @ b.parameter(i + 1, sx.f32[n, n], f"w{i}"))
    program = b.build(y)
    report("program", 0.0)
    start = process_time()
    module = sx.freeze(program, read_constants(path.with_suffix(".safetensors")))
    report("freeze", start)
    compile_and_save(module, path)


def load_and_run(size: int, path: Path) -> None:
    """Load the program with weights, and run it."""
    report("start", 0.0)
    start = process_time()
    executable = sx.load_executable(path)
    report("load", start)
    start = process_time()
    executable(np.ones((16, side(size)), np.float32))
    report("run", start)


def side(size: int) -> int:
    """Return the rows of a weight, of so many MiB in all."""
    return math.isqrt(size * ROW // LAYERS)


def main(size: int) -> int:
    """Measure."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.sxe"
        for calls in (CONSTANT, WEIGHTS):
            for call in calls:
                script = "from pathlib import Path; from tests.large_constant import *"
                script = f"{script}; path = Path({str(path)!r}); {call.format(size)}"
                if subprocess.run([sys.executable, "-c", script], check=False).returncode:
                    return 1
            print(f"file       {path.stat().st_size >> 20:17,} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 1024))
