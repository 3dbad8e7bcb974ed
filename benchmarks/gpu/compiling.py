"""What needs no GPU: the programs compiled for a chip, and what ptxas says that their kernels take."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from time import perf_counter

from rich.console import Console

import stablexla as sx
from benchmarks.programs.registry import Program
from benchmarks.report import in_words
from benchmarks.tables import Cells, to_table
from stablexla.dialects.errors import StablexlaError
from stablexla.targets.gpu.ptx.cubin import ptxas_report

HEADINGS = ["program", "compiling", "kernels", "ways", "registers", "shared", "spilled"]


def compile_all(taken: Mapping[str, Program], chip: str, output: Console) -> int:
    """Prints a table. Exit code 1 when a program or ptxas failed."""
    lines, code = [], 0
    with suppress(StablexlaError):  # what the first program pays for all
        sx.compile(next(iter(taken.values())).text(), target=f"gpu:{chip}")
    for name, program in taken.items():
        try:
            lines.append(_line(program, chip))
        except StablexlaError as error:
            output.print(f"{name}: {error}")
            code = 1
    if lines:
        output.print(to_table(Cells(f"compiled for {chip}", HEADINGS, lines, range(0))))
    return code


def _line(program: Program, chip: str) -> list[str]:
    """Of several kernels the most that one takes; all are empty where there is no ptxas."""
    text = program.text()
    start = perf_counter()
    executable = sx.compile(text, target=sx.gpu.target(chip=chip))
    seconds = perf_counter() - start
    kernels = executable.kernels
    ways = ", ".join(dict.fromkeys(kernel.path for kernel in kernels))
    return [program.name, in_words(seconds), str(len(kernels)), ways, *_taken(executable.ir("ptx"), chip)]


def _taken(ptx: str, chip: str) -> list[str]:
    said = ptxas_report(ptx, chip)
    if said is None:
        return ["", "", ""]
    numbers = [
        [int(n) for n in re.findall(pattern, said)] for pattern in (r"Used (\d+) registers", r"(\d+) bytes smem")
    ]
    spilled = sum(int(n) for n in re.findall(r"(\d+) bytes spill stores", said))
    return [*(str(max(each, default=0)) for each in numbers), str(spilled)]
