"""Runs a StableHLO program from a file; by default `mlp_jax.mlir`, which JAX wrote.

Run as `python examples/stablehlo_file.py [FILE]`. The arguments are random numbers, and for the default file the result
is compared with what numpy makes of them. JAX is not needed: a file of StableHLO is all that is left of it here.
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
MLP = Path(__file__).with_name("mlp_jax.mlir")


def mlp_in_numpy(w1: Array, b1: Array, w2: Array, b2: Array, x: Array) -> Array:
    """What `mlp_jax.mlir` computes, in float64: dense, gelu (its approximation by tanh), dense, softmax."""
    w1, b1, w2, b2, x = (each.astype(np.float64) for each in (w1, b1, w2, b2, x))
    hidden = x @ w1 + b1
    hidden = hidden / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))
    logits = hidden @ w2 + b2
    exponentials = np.exp(logits - logits.max(1, keepdims=True))
    probabilities: Array = exponentials / exponentials.sum(1, keepdims=True)
    return probabilities


def random_arguments(executable: sx.Executable, seed: int) -> list[Array]:
    """Normally distributed numbers of each parameter's type and shape."""
    rng = np.random.default_rng(seed)
    return [np.asarray(rng.standard_normal(p.shape) / 4).astype(p.dtype) for p in executable.parameters]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, default=MLP, help="StableHLO text, bytecode or artifact")
    parser.add_argument("--seed", type=int, default=0, help="of the arguments (default 0)")
    parser.add_argument("--ir", metavar="STAGE", help="print the program after this stage, such as kernels, and stop")
    arguments = parser.parse_args()
    try:
        start = perf_counter()
        executable = sx.compile(arguments.file)
        seconds = perf_counter() - start
        if arguments.ir:
            print(executable.ir(arguments.ir))
            return 0
    except sx.StablexlaError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{arguments.file.name} compiled in {seconds:.2f} s: {executable}")
    values = random_arguments(executable, arguments.seed)
    results = executable.execute(values)
    for number, result in enumerate(results):
        print(f"result {number}: {result.dtype}{list(result.shape)}\n{np.array_str(result, precision=4)}")
    if arguments.file == MLP:
        difference = float(np.abs(results[0] - mlp_in_numpy(*values)).max())
        print(f"largest difference from numpy: {difference:.1e}")
        return int(difference > 1e-5)
    return 0


if __name__ == "__main__":
    sys.exit(main())
