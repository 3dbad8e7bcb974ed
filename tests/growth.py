"""How the time to compile grows with the number of operations: `python -m tests.growth [operations ...]`.

The figures of docs/reliability.md; processor time and the most memory that was in use, each in a process of its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from time import process_time

import stablexla as sx
from stablexla.targets.pipeline.knobs import knobs

VECTOR, MATRIX = "tensor<8xf32>", "tensor<4x4xf32>"
KINDS = ("chain", "products", "mixed")
COUNTS = (1000, 3000, 10_000, 30_000, 100_000)


def program(kind: str, count: int) -> str:
    """Return a program of so many operations, each of which reads the one before it."""
    type_ = VECTOR if kind == "chain" else MATRIX
    lines = [f"%{i} = {_operation(kind, i, type_)}" for i in range(1, count)]
    begin = f"func.func @main(%x: {type_}) -> {type_} {{\n%0 = stablehlo.negate %x : {type_}\n"
    return begin + "\n".join(lines) + f"\nreturn %{count - 1} : {type_}\n}}\n"


def _operation(kind: str, i: int, type_: str) -> str:
    if kind == "products" or (kind == "mixed" and i % 5 == 0):
        return f"stablehlo.dot %{i - 1}, %x : ({type_}, {type_}) -> {type_}"
    if kind == "mixed" and i % 5 == 1:
        return f"stablehlo.tanh %{i - 1} : {type_}"
    other = f"%{max(0, i - 7)}" if kind == "mixed" else "%x"
    return f"stablehlo.{'add' if i % 2 else 'multiply'} %{i - 1}, {other} : {type_}"


def measure(kind: str, count: int) -> None:
    """Compile a program, and print the seconds and MiB."""
    text = program(kind, count)
    start = process_time()
    with knobs.scoped(kernel_cache="off"):
        sx.compile(text)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{kind:<10} {count:>9,}  {process_time() - start:7.1f} s  {memory:6,} MiB", flush=True)


def main(counts: Sequence[str]) -> int:
    """Measure each kind with these numbers of operations."""
    failed = 0
    for kind in KINDS:
        for count in map(int, counts or map(str, COUNTS)):
            script = f"from tests.growth import measure; measure({kind!r}, {count})"
            failed += subprocess.run([sys.executable, "-c", script], check=False).returncode != 0
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
