"""How the time to compile grows with the number of operations: `python -m tests.growth [operations ...]`.

The figures of docs/reliability.md; processor time and the most memory that was in use, each in a process of its own.
`--nested` measures the programs of nests.py instead, and writes their table into docs/compile_time.md.
"""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

import stablexla as sx
from benchmarks.report import replace_between
from stablexla.targets.pipeline.knobs import knobs
from tests import nests

VECTOR, MATRIX = "tensor<8xf32>", "tensor<4x4xf32>"
KINDS = ("chain", "additions", "built", "products", "mixed")
COUNTS = (1000, 3000, 10_000, 30_000, 100_000)
TRIPS, DEPTHS = (1, 2, 7, 8, 9, 100), (1, 2, 3, 4, 5)
PAGE, BEGIN, END = Path("docs/compile_time.md"), "<!-- nested regions -->", "<!-- end of nested regions -->"


def program(kind: str, count: int) -> str | sx.Program:
    """Return a program of so many operations, each of which reads the one before it; "built" is the builder's."""
    if kind == "built":
        b = sx.XlaBuilder("additions")
        x = last = b.parameter(0, sx.f32[8])
        for _ in range(count):
            last = last + x
        return b.build(last)
    type_ = VECTOR if kind in ("chain", "additions") else MATRIX
    lines = [f"%{i} = {_operation(kind, i, type_)}" for i in range(1, count)]
    begin = f"func.func @main(%x: {type_}) -> {type_} {{\n%0 = stablehlo.negate %x : {type_}\n"
    return begin + "\n".join(lines) + f"\nreturn %{count - 1} : {type_}\n}}\n"


def _operation(kind: str, i: int, type_: str) -> str:
    if kind == "products" or (kind == "mixed" and i % 5 == 0):
        return f"stablehlo.dot %{i - 1}, %x : ({type_}, {type_}) -> {type_}"
    if kind == "mixed" and i % 5 == 1:
        return f"stablehlo.tanh %{i - 1} : {type_}"
    other = f"%{max(0, i - 7)}" if kind == "mixed" else "%x"
    return f"stablehlo.{'add' if i % 2 or kind == 'additions' else 'multiply'} %{i - 1}, {other} : {type_}"


def measure(kind: str, count: int) -> None:
    """Compile a program, and print the seconds and MiB."""
    start = process_time()
    with knobs.scoped(kernel_cache="off"):
        sx.compile(program(kind, count))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{kind:<10} {count:>9,}  {process_time() - start:7.1f} s  {memory:6,} MiB", flush=True)


class Code(NamedTuple):
    """Code size of a program: operations after the step `llvm`, and bytes of machine code."""

    operations: int
    bytes: int


def code_of(executable: sx.Executable) -> Code:
    """Count the code of a program."""
    code = executable._function.keep_alive
    return Code(executable.ir("llvm").count(" llvm."), sum(map(len, code.object_files())))


def measure_nest(kind: str, depth: int, trips: int) -> str:
    """Compile a nest; return processor seconds, operations and KiB of code, and code for an operation of the source."""
    text = nests.program(kind, depth, trips)
    start = process_time()
    with knobs.scoped(kernel_cache="off"):
        executable = sx.compile(text)
    seconds, code, source = process_time() - start, code_of(executable), nests.source_size(text)
    size, factor = code.bytes / 1024, code.operations / source
    return f"{seconds:.2f} s, {code.operations:,}, {size:.0f} KiB, {factor:.0f}"


def nest_table() -> str:
    """Measure all nests; return a table."""
    sx.compile(program("chain", 10))  # what the first compilation of a process takes does not count
    lines = ["| around sin(x) + 1 | trips | " + " | ".join(f"depth {depth}" for depth in DEPTHS) + " |"]
    lines.append("| --- | ---: |" + " ---: |" * len(DEPTHS))
    for kind, (_, level) in nests.KINDS.items():
        several = "loop" in level or "call" in level
        for trips in TRIPS if several else TRIPS[:1]:
            cells = [measure_nest(kind, depth, trips) for depth in DEPTHS]
            lines.append(f"| {kind} | {trips if several else ''} | " + " | ".join(cells) + " |")
            print(lines[-1], flush=True)
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Measure each kind with these numbers of operations, or nested regions."""
    if list(arguments) == ["--nested"]:
        replace_between(PAGE, BEGIN, END, nest_table())
        return 0
    failed = 0
    for kind in KINDS:
        for count in map(int, arguments or map(str, COUNTS)):
            script = f"from tests.growth import measure; measure({kind!r}, {count})"
            failed += subprocess.run([sys.executable, "-c", script], check=False).returncode != 0
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
