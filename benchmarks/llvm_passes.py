"""What LLVM's passes cost, and what they bring: python -m benchmarks.llvm_passes [PROGRAM ...].

Each program is compiled with each list of passes in place of those of `opt_level=1` (targets/cpu/llvm_c.py). A cell is
the seconds of the stage "machine code", the least of some compilations, and the time of a call over that of the code
by `default<O1>`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import perf_counter
from unittest import mock

from benchmarks.engines.stablexla_engine import engine
from benchmarks.programs import PROGRAMS
from stablexla.targets.cpu import llvm_c

LISTS = {"`default<O1>`": "default<O1>", "`UNROLL`": llvm_c.UNROLL, "`CLEAN_UP`": llvm_c.CLEAN_UP, "none": ""}
DEFAULT = ("resnet-18", "bert-base", "mlp-step", "unet-step", "lstm-128", "conv-3x3-56", "softmax-4096")
COMPILATIONS, TURNS = 3, 9


def measure(name: str) -> list[str]:
    """A row of the table."""
    program = PROGRAMS[name]
    text, arguments = program.text(), program.arguments()
    seconds, runs = [], []
    for passes in LISTS.values():
        taken = []
        with mock.patch.multiple(llvm_c, PASSES=("", passes, passes, passes), UNROLL=passes):
            for _ in range(COMPILATIONS):
                made = engine().prepare(program, text)
                taken.append(made.stages["machine code"])
        made.bind(arguments)
        made.run()
        seconds.append(min(taken))
        runs.append(made)
    best = [float("inf")] * len(runs)
    for _ in range(TURNS):
        for number, made in enumerate(runs):
            start = perf_counter()
            made.run()
            best[number] = min(best[number], perf_counter() - start)
    return [name, *(f"{s:.2f} s, {b / best[0]:.2f}" for s, b in zip(seconds, best, strict=True))]


def main(names: Sequence[str]) -> None:
    print("| program |", " | ".join(LISTS), "|\n|---|" + "---:|" * len(LISTS))
    for name in names or DEFAULT:
        print("|", " | ".join(measure(name)), "|", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
