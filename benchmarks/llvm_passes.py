"""What LLVM's passes cost, and what they bring: python -m benchmarks.llvm_passes [PROGRAM ...].

Each program is compiled with each list of passes in place of those of `opt_level=1` (targets/llvm/llvm_c.py), without
kept kernels. A cell is the milliseconds of processor time of a compilation, the least of some, and the time of a call
over that of the code by `default<O1>`. `--library` compares, instead, compilations with the library of kernels filled
and empty: milliseconds of processor time. `--lists` has those of programs whose `main` is a list of calls, and is code.
`--kept` has those of a program after another one, with kernels kept and without. `--functions` has those of elementary
functions of 16K numbers, in place and called, and the time of a call of the program. `--second` compares the LLVM of
MLIR's package with that of the extra `fast`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from time import perf_counter, process_time, thread_time
from typing import Any
from unittest import mock

import numpy as np

import stablexla as sx
from benchmarks.engines.base import Prepared
from benchmarks.engines.stablexla_engine import engine
from benchmarks.measuring import Effort, measure
from benchmarks.programs import PROGRAMS
from benchmarks.programs.registry import Program
from stablexla.lowering.math import registry
from stablexla.targets.grouping.outline import text_of
from stablexla.targets.llvm import early_code, llvm_c, split_module
from stablexla.targets.llvm.call_list import LEAST_CALLS
from stablexla.targets.llvm.library import Library
from stablexla.targets.pipeline.knobs import knobs

LISTS = {"default<O1>": "default<O1>", "UNROLL": llvm_c.UNROLL, "CLEAN_UP": llvm_c.CLEAN_UP}
DEFAULT = ("resnet-18", "bert-base", "mlp-step", "lstm-128", "triangular-solve-1000x4x4", "sum-axis-1", "conv-3x3-56")
OF_LIBRARY = ("conv-3x3-56", "matmul-1024", "sort-1m", "resnet-18", "resnet-50", "mlp-step", "bert-base")
OF_LISTS = ("bert-base", "gpt2-prefill-128", "gpt2-decode", "resnet-18", "resnet-50", "mlp-step", "unet")
KEPT = ("resnet-18", "resnet-50"), ("mlp-step", "mlp-step-adam"), ("bert-base", "bert-base"), ("resnet-18", "resnet-18")
FUNCTIONS = ("sin", "cos", "tan", "exp", "expm1", "log", "tanh", "logistic", "erf", "cbrt")
NUMBERS, CALLS, ROUNDS = 16384, 50, 15
EDIT = "dense<5.000000e-01>", "dense<2.500000e-01>"
"""The line that is edited in a program that comes after itself: a constant of GELU."""
COMPILATIONS = 3
COMPILATIONS_OF_LISTS = 8  # as the difference is small


class _WithPasses:
    """stablexla with a list of passes of LLVM's."""

    version = ""

    def __init__(self, name: str) -> None:
        self.name, self._passes = name, LISTS[name]
        self.took = float("inf")  # ms

    def prepare(self, program: Program, text: str) -> Prepared:
        passes = self._passes
        lists = mock.patch.multiple(llvm_c, PASSES=("", passes, passes, passes), UNROLL=passes)
        with lists, knobs.scoped(kernel_cache="off"):
            for _ in range(1 + COMPILATIONS):
                begun = process_time()
                made = engine().prepare(program, text)
                self.took = min(self.took, 1e3 * (process_time() - begun))
        return made


def row(name: str) -> list[str]:
    """A line of the table."""
    lists = [_WithPasses(each) for each in LISTS]
    found = measure(PROGRAMS[name], lists, Effort(budget=1.0)).engines
    base = found["default<O1>"].best
    return [name, *(f"{each.took:.0f} ms, {found[each.name].best / base:.2f}" for each in lists)]


def library_row(name: str) -> list[str]:
    """A line of the table of the library."""
    text = PROGRAMS[name].text()

    def least() -> float:
        begun = process_time()
        with knobs.scoped(kernel_cache="off"):
            sx.compile(text)
        return 1e3 * (process_time() - begun)

    least()
    filled = min(least() for _ in range(COMPILATIONS))
    empty = []
    for _ in range(COMPILATIONS):
        with mock.patch.object(early_code, "LIBRARY", Library()):
            empty.append(least())
    return [name, f"{min(empty):.0f}", f"{filled:.0f}", f"{filled / min(empty):.2f}"]


def lists_row(name: str) -> list[str]:
    """A line of the table of lists of calls."""
    text, took = PROGRAMS[name].text(), {}
    for least in (LEAST_CALLS.usual, 1 << 30) * COMPILATIONS_OF_LISTS:
        with mock.patch.object(LEAST_CALLS, "usual", least), knobs.scoped(kernel_cache="off"):
            sx.compile(text)
            begun = process_time()
            sx.compile(text)
            took[least] = min(took.get(least, 1e9), 1e3 * (process_time() - begun))
    listed, code = took.values()
    return [name, f"{code:.0f}", f"{listed:.0f}", f"{listed / code:.2f}"]


def kept_row(before: str, name: str) -> list[str]:
    """A line of the table of kept kernels: how many of a program's were found after another one, by number and text."""
    text, took, found = PROGRAMS[name].text(), {}, ""
    first = text.replace(*EDIT) if before == name else PROGRAMS[before].text()
    link = early_code.EarlyCode.link_kept

    def noted(session: Any, module: Any, kernels: Any, target: Any) -> Any:
        nonlocal found
        linked = link(session, module, kernels, target)
        texts = {kernel: len(text_of(kernel.func)) for kernel in kernels}
        share = sum(texts[kernel] for kernel in linked) / sum(texts.values())
        found = f"{len(linked)} of {len(kernels)}, {share:.0%}"
        return linked

    for is_kept in (False, True) * COMPILATIONS:
        with (
            mock.patch.object(early_code, "LIBRARY", Library()),
            mock.patch.object(early_code.EarlyCode, "link_kept", noted),
            knobs.scoped(kernel_cache="off", kept_kernels=is_kept),
        ):
            sx.compile(first)
            begun = process_time()
            sx.compile(text)
            took[is_kept] = min(took.get(is_kept, 1e9), 1e3 * (process_time() - begun))
    what = "itself, a line edited" if first != text and before == name else "itself" if first == text else before
    return [name, what, found, f"{took[False]:.0f}", f"{took[True]:.0f}", f"{took[True] / took[False]:.2f}"]


def second_row(name: str) -> list[str]:
    """A line of the table of the second LLVM: milliseconds of LLVM's work, and whether the files are the same."""
    text, made, took = PROGRAMS[name].text(), {}, {}
    for which in ("off", None) * COMPILATIONS:
        spent: list[float] = []

        def timed(module: Any, *rest: Any, _spent: list[float] = spent, **more: Any) -> bytes:
            begun = thread_time()
            file = llvm_c.object_file(module, *rest, **more)
            _spent.append(thread_time() - begun)
            return file

        with (
            mock.patch.dict(os.environ, {"STABLEXLA_LLVM": which} if which else {}),
            mock.patch.object(split_module, "object_file", timed),
            mock.patch.object(early_code, "LIBRARY", Library()),
            knobs.scoped(kernel_cache="off"),
        ):
            made[which] = sx.compile(text)._function.keep_alive.object_files()
        took[which] = min(took.get(which, 1e9), 1e3 * sum(spent))
    same = "the same" if made["off"] == made[None] else "others"
    return [name, f"{took['off']:.0f}", f"{took[None]:.0f}", f"{took[None] / took['off']:.2f}", same]


def functions_row(name: str, type_: sx.ElementType) -> list[str]:
    """A line of the table of elementary functions: code in place, and calls of the library's function."""
    b = sx.XlaBuilder(name)
    program = b.build(getattr(sx, name)(b.parameter(0, type_[NUMBERS])))
    x = np.linspace(0.1, 3.0, NUMBERS).astype(type_.dtype)
    took, made = dict[bool, float](), dict[bool, sx.Executable]()
    for is_called in (False, True) * (1 + COMPILATIONS):
        with (
            mock.patch.object(registry.MOST_EVALUATED, "usual", NUMBERS if is_called else 0),
            mock.patch.object(registry, "LONG", frozenset()),
            knobs.scoped(kernel_cache="off"),
        ):
            begun = process_time()
            made[is_called] = sx.compile(program, options=sx.CompileOptions(num_threads=1))
            took[is_called] = min(took.get(is_called, 1e9), 1e3 * (process_time() - begun))
    ran = dict.fromkeys(made, 1e9)
    for is_called in (False, True) * ROUNDS:
        begun = perf_counter()
        for _ in range(CALLS):
            made[is_called](x)
        ran[is_called] = min(ran[is_called], perf_counter() - begun)
    return [name, str(type_), f"{took[False]:.0f}", f"{took[True]:.0f}", f"{ran[True] / ran[False]:.2f}"]


def main(names: Sequence[str]) -> None:
    if "--functions" in names:
        print("| function | type | in place | called | running |\n|---|---|---:|---:|---:|")
        for name in FUNCTIONS:
            for type_ in (sx.f32, sx.f64):
                print(f"| {' | '.join(functions_row(name, type_))} |", flush=True)
        return
    if "--second" in names:
        print("| program | MLIR's LLVM | the second | ratio | files |\n|---|---:|---:|---:|---|")
        for name in [each for each in names if each != "--second"] or OF_LIBRARY:
            print(f"| {' | '.join(second_row(name))} |", flush=True)
        return
    if "--kept" in names:
        print("| program | after | kernels found, of text | without | kept | ratio |\n|---|---|---:|---:|---:|---:|")
        for before, name in KEPT:
            print(f"| {' | '.join(kept_row(before, name))} |", flush=True)
        return
    if "--lists" in names:
        print("| program | code | list | ratio |\n|---|---:|---:|---:|")
        for name in [each for each in names if each != "--lists"] or OF_LISTS:
            print(f"| {' | '.join(lists_row(name))} |", flush=True)
        return
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
