"""A schedule of one's own for a kernel: MLIR's transform dialect, in a file, as a step of the pipeline.

Run as `python examples/custom_schedule.py [--size 256] [--ir]`. A product of two matrices is computed in three ways:
by plain loops, by the loops that `matmul_schedule.mlir` makes of them, and by the kernel that stablexla has for it. The
results are compared with numpy's.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

import stablexla as sx

Array = npt.NDArray[Any]
SCHEDULE = Path(__file__).with_name("matmul_schedule.mlir")
OPTIONS = sx.CompileOptions(num_threads=1)


def product(size: int) -> sx.XlaComputation:
    """Two square matrices, multiplied."""
    b = sx.XlaBuilder("product")
    x, y = (b.parameter(i, sx.f32[size, size]) for i in range(2))
    return b.build(sx.dot(x, y))


def plain_loops() -> sx.Pipeline:
    """The pipeline without stablexla's own kernels: MLIR turns each operation into loops."""
    emit = "stablexla-emit-kernels"
    return sx.pipeline("cpu", OPTIONS).replacing_pass(emit, emit + "{general-only=true}")


def scheduled() -> sx.Pipeline:
    """The same with one more step, between the grouping into kernels and the loops."""
    schedule = f"stablexla-transform{{script='{SCHEDULE}'}}"
    return plain_loops().inserting(sx.Step("schedule", [schedule, "canonicalize", note_vectors]), after="kernels")


def note_vectors(module: Any) -> None:
    """A pass is a function of a module: this one counts what the schedule has made."""
    text = str(module)
    print(f"  the schedule left {text.count('vector.fma')} multiplications and additions of vectors in the loop")


def measure(name: str, pipeline: sx.Pipeline, x: Array, y: Array) -> tuple[sx.Executable, float]:
    """Compiles, runs, and tells the speed; the executable, and the largest difference from numpy."""
    print(name)
    executable = sx.compile(product(len(x)), options=sx.CompileOptions(num_threads=1, pipeline=pipeline))
    seconds = []
    for _ in range(5):
        start = perf_counter()
        result = executable(x, y)
        seconds.append(perf_counter() - start)
    print(f"  {2 * len(x) ** 3 / min(seconds) / 1e9:.1f} GFLOP/s")
    return executable, float(np.abs(result - x @ y).max())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--size", type=int, default=256, help="rows and columns, a multiple of 16 (default 256)")
    parser.add_argument("--ir", action="store_true", help="print the kernel that the schedule makes")
    arguments = parser.parse_args()
    if arguments.size < 16 or arguments.size % 16:
        parser.error(f"the schedule takes multiples of 16, not {arguments.size}")
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((arguments.size, arguments.size)).astype(np.float32) for _ in range(2))
    ways = {
        "plain loops": plain_loops(),
        "the schedule": scheduled(),
        "stablexla's own kernel": sx.pipeline("cpu", OPTIONS),
    }
    made = {name: measure(name, pipeline, x, y) for name, pipeline in ways.items()}
    if arguments.ir:
        print(made["the schedule"][0].ir("schedule"))
    difference = max(found for _, found in made.values())
    print(f"largest difference from numpy: {difference:.1e}")
    return int(difference > 1e-6 * arguments.size)


if __name__ == "__main__":
    sys.exit(main())
