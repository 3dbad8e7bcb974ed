"""What LLVM's passes cost, and what they bring: python -m benchmarks.llvm_passes [PROGRAM ...].

Each program is compiled with each list of passes in place of those of `opt_level=1` (targets/llvm/llvm_c.py). A cell is
the seconds of the stage "machine code", the least of some compilations, and the time of a call over that of the code
by `default<O1>`. `--library` compares, instead, compilations with the library of kernels filled and empty: milliseconds
of processor time.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import process_time
from unittest import mock

import stablexla as sx
from benchmarks.engines.base import Prepared
from benchmarks.engines.stablexla_engine import engine
from benchmarks.measuring import Effort, measure
from benchmarks.programs import PROGRAMS
from benchmarks.programs.registry import Program
from stablexla.targets.llvm import early_code, llvm_c
from stablexla.targets.llvm.library import Library

LISTS = {"default<O1>": "default<O1>", "UNROLL": llvm_c.UNROLL, "CLEAN_UP": llvm_c.CLEAN_UP}
DEFAULT = ("resnet-18", "bert-base", "mlp-step", "lstm-128", "triangular-solve-1000x4x4", "sum-axis-1", "conv-3x3-56")
OF_LIBRARY = ("conv-3x3-56", "matmul-1024", "sort-1m", "resnet-18", "resnet-50", "mlp-step", "bert-base")
COMPILATIONS = 3
STAGE = "machine code"


class _WithPasses:
    """stablexla with a list of passes of LLVM's."""

    version = ""

    def __init__(self, name: str) -> None:
        self.name, self._passes = name, LISTS[name]

    def prepare(self, program: Program, text: str) -> Prepared:
        passes = self._passes
        with mock.patch.multiple(llvm_c, PASSES=("", passes, passes, passes), UNROLL=passes):
            made = [engine().prepare(program, text) for _ in range(COMPILATIONS)]
        return min(made, key=lambda each: each.stages[STAGE])


def row(name: str) -> list[str]:
    """A line of the table."""
    found = measure(PROGRAMS[name], [_WithPasses(each) for each in LISTS], Effort(budget=1.0)).engines
    base = found["default<O1>"].best
    return [name, *(f"{found[each].stages[STAGE]:.2f} s, {found[each].best / base:.2f}" for each in LISTS)]


def library_row(name: str) -> list[str]:
    """A line of the table of the library."""
    text = PROGRAMS[name].text()

    def least() -> float:
        begun = process_time()
        sx.compile(text)
        return 1e3 * (process_time() - begun)

    sx.compile(text)
    filled = min(least() for _ in range(COMPILATIONS))
    empty = []
    for _ in range(COMPILATIONS):
        with mock.patch.object(early_code, "LIBRARY", Library()):
            empty.append(least())
    return [name, f"{min(empty):.0f}", f"{filled:.0f}", f"{filled / min(empty):.2f}"]


def main(names: Sequence[str]) -> None:
    if "--library" in names:
        print("| program | empty | filled | ratio |\n|---|---:|---:|---:|")
        for name in [each for each in names if each != "--library"] or OF_LIBRARY:
            print(f"| {' | '.join(library_row(name))} |", flush=True)
        return
    print(f"| program | {' | '.join(f'`{each}`' for each in LISTS)} |\n|---|{'---:|' * len(LISTS)}")
    for name in names or DEFAULT:
        print(f"| {' | '.join(row(name))} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
