"""How soon a program gives its first result in a new process: compiled, from the cache, from a file, as a C library.

    python -m benchmarks.start_up            # a table
    python -m benchmarks.start_up --write    # and into docs/ahead_of_time.md

Each way runs in new processes, one after another; the least time counts, since all else is the machine's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import stablexla as sx
from benchmarks.report import replace_between
from stablexla.compiling.ahead_of_time import compile_library

PAGE = Path(__file__).parents[1] / "docs" / "ahead_of_time.md"
BEGIN, END = "<!-- times -->", "<!-- end of times -->"


def one_operation() -> sx.XlaComputation:
    b = sx.XlaBuilder("one operation")
    return b.build(b.parameter(0, sx.f32[1000]) * 2)


def perceptron() -> sx.XlaComputation:
    rng = np.random.default_rng(1)
    b = sx.XlaBuilder("perceptron")
    x = b.parameter(0, sx.f32[64, 784])
    for low, high in ((784, 512), (512, 512), (512, 10)):
        x = sx.max(sx.dot(x, b.constant(rng.standard_normal((low, high), np.float32))), b.constant(0.0))
    return b.build(x)


def attention(layers: int = 4) -> sx.XlaComputation:
    """Layers of a transformer, with weights as constants."""
    rng = np.random.default_rng(2)
    b = sx.XlaBuilder("transformer")
    x = b.parameter(0, sx.f32[128, 256])

    def weights(*shape: int) -> sx.XlaOp:
        return b.constant(rng.standard_normal(shape, np.float32) / 16)

    def softmax(s: sx.XlaOp) -> sx.XlaOp:
        top = sx.reduce(s, b.constant(-np.inf, "f32"), sx.max, (1,))
        e = sx.exp(s - sx.broadcast_in_dim(top, s.shape.dimensions, (0,)))
        return e / sx.broadcast_in_dim(sx.reduce(e, b.constant(0.0), sx.add, (1,)), s.shape.dimensions, (0,))

    for _ in range(layers):
        q, k, v = (sx.dot(x, weights(256, 256)) for _ in range(3))
        x = x + sx.dot(softmax(sx.dot(q, sx.transpose(k, (1, 0)))), v)
        x = x + sx.dot(sx.tanh(sx.dot(x, weights(256, 1024))), weights(1024, 256))
    return b.build(x)


PROGRAMS: dict[str, Callable[[], sx.XlaComputation]] = {
    "one operation": one_operation,
    "perceptron of three layers": perceptron,
    "transformer of four layers": attention,
}

BEGINNING = """
import sys, time
start = time.perf_counter()
import stablexla as sx
from pathlib import Path
base = sys.argv[1]
"""
ENDING = """
import numpy as np
executable(*(np.ones(p.shape, p.dtype) for p in executable.parameters))
print(time.perf_counter() - start)
"""
WAYS = {
    "compiled": "executable = sx.compile(Path(base + '.mlirbc'))",
    "from the cache": "executable = sx.compile(Path(base + '.mlirbc'), options=sx.CompileOptions(cache=base + '.c'))",
    "from a file": "executable = sx.load_executable(base + '.sxe')",
}
C_PROGRAM = """
#include <stdlib.h>
#include <string.h>
#include "model.h"
int main(void) { return model(calloc(1, MODEL_X0_BYTES), malloc(MODEL_Y0_BYTES)); }
"""


def prepare(name: str, folder: Path) -> Path:
    """Writes the program in all the forms that are measured."""
    base = folder / name.replace(" ", "_")
    computation = PROGRAMS[name]()
    with open(base.with_suffix(".mlirbc"), "wb") as file:
        computation.module.operation.write_bytecode(file)
    sx.compile(computation).save(base.with_suffix(".sxe"))
    compile_library(computation, folder / "model.so", header_file=folder / "model.h", name="model")
    (folder / "program.c").write_text(C_PROGRAM)
    command = ["cc", "-O1", f"-I{folder}", folder / "program.c", folder / "model.so", "-o", base.with_suffix(".bin")]
    subprocess.run([*map(str, command), f"-Wl,-rpath,{folder}"], check=True)
    return base


def seconds(code: str, base: Path, runs: int) -> float:
    """Of the process's work after Python has started, the least of some runs."""
    command = [sys.executable, "-c", BEGINNING + code + ENDING, str(base)]
    return min(float(_output(command)) for _ in range(runs))


def _output(command: list[str]) -> str:
    own = {**os.environ, "STABLEXLA_KERNEL_CACHE": "off"}
    return subprocess.run(command, capture_output=True, text=True, check=True, env=own).stdout


def seconds_of_c(base: Path, runs: int) -> float:
    found = []
    for _ in range(runs):
        start = time.perf_counter()
        subprocess.run([base.with_suffix(".bin")], check=True)
        found.append(time.perf_counter() - start)
    return min(found)


def table(runs: int) -> str:
    """The measured times as a table."""
    rows = [f"| program | {' | '.join(WAYS)} | C program | file |", "|---|" + "---:|" * (len(WAYS) + 2)]
    for name in PROGRAMS:
        with tempfile.TemporaryDirectory() as temporary:
            base = prepare(name, Path(temporary))
            # the first run with a cache only fills it
            times = [seconds(code, base, runs + (way == "from the cache")) for way, code in WAYS.items()]
            cells = [f"{t:.2f} s" if t >= 0.1 else f"{t:.3f} s" for t in [*times, seconds_of_c(base, runs)]]
            cells.append(f"{base.with_suffix('.sxe').stat().st_size / 1e6:.2f} MB")
            rows.append(f"| {name} | {' | '.join(cells)} |")
    python, cores = sys.version.split()[0], os.cpu_count()
    return "\n".join([*rows, "", f"CPython {python}, {cores} cores, the least of {runs} processes."])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="processes for each way (default: 5)")
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    given = parser.parse_args()
    made = table(given.runs)
    print(made)
    if given.write:
        replace_between(PAGE, BEGIN, END, made)


if __name__ == "__main__":
    main()
