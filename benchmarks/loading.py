"""What it costs to read a program that may be hostile, and to load a saved one: python -m benchmarks.loading.

Bytes read in another process (docs/decisions/0008) stand beside the same bytes read in place; the last is
a file of machine code (docs/decisions/0011). Least times of many.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

import numpy as np

import stablexla as sx
from stablexla.interop.encodings import reader


def milliseconds(call: Callable[[], object], repeats: int) -> float:
    """The shortest of some calls."""
    best = float("inf")
    for _ in range(repeats):
        start = perf_counter()
        call()
        best = min(best, perf_counter() - start)
    return 1e3 * best


def program(elements: int) -> sx.XlaComputation:
    """x + a constant of so many numbers."""
    b = sx.XlaBuilder("add")
    numbers = np.random.default_rng(1).standard_normal(elements, np.float32)
    return b.build(b.parameter(0, sx.f32[elements]) + b.constant(numbers))


def bytecode(elements: int) -> bytes:
    return program(elements).bytecode()


def fresh_process(data: bytes) -> None:
    """As the first program of a session is read."""
    reader._forget()
    sx.load(data)


def main() -> None:
    small, big = bytecode(4), bytecode(25_000_000)
    rows = [("process started, and a small program read", milliseconds(lambda: fresh_process(small), 5))]
    for name, data, repeats in (("a small program", small, 200), ("100 MB of constants", big, 5)):
        rows.append((f"{name}, in the other process", milliseconds(lambda data=data: sx.load(data), repeats)))
        rows.append((f"{name}, in place", milliseconds(lambda data=data: sx.load(data, trusted=True), repeats)))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "add.sxla"
        sx.compile(program(4)).save(file)
        rows.append(("machine code of one addition, from a file", milliseconds(lambda: sx.load_executable(file), 50)))
    print("| what | ms |\n|---|---:|")
    for name, taken in rows:
        print(f"| {name} | {taken:.3g} |")


if __name__ == "__main__":
    main()
