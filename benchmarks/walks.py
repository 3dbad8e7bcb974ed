"""How many files one operation enters on its way from the builder to machine code, and how often the way changes files.

    python -m benchmarks.walks
    python -m benchmarks.walks --lines    instead, lines of Python by folder: all, docstrings, empty, imports, the rest

A hop is a call from one file of the project to a function of another. Programs are compiled once before, so that
imports and caches do not count.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import stablexla as sx
from stablexla.interop.loading import load
from stablexla.targets.pipeline.driver import copy_of, run_pipeline
from stablexla.targets.pipeline.options import CompileOptions
from stablexla.targets.registry import find_target

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("dialects", "lowering", "targets")


def dot_general() -> sx.XlaComputation:
    """A product of matrices of 128 x 128."""
    b = sx.XlaBuilder("dot_general")
    x, y = (b.parameter(i, sx.f32[128, 128]) for i in range(2))
    return b.build(sx.dot_general(x, y, sx.DotDimensionNumbers((1,), (0,))))


def reduce_window() -> sx.XlaComputation:
    """Max pooling with a window of 3 x 3."""
    b = sx.XlaBuilder("reduce_window")
    x = b.parameter(0, sx.f32[8, 57, 57, 16])
    low = b.constant(float("-inf"), "f32")
    return b.build(sx.reduce_window(x, low, sx.max, (1, 3, 3, 1), (1, 2, 2, 1), "VALID"))


def softmax() -> sx.XlaComputation:
    """A softmax of rows."""
    b = sx.XlaBuilder("softmax")
    x = b.parameter(0, sx.f32[256, 1024])
    top = sx.reduce(x, b.constant(float("-inf"), "f32"), sx.max, (1,))
    power = sx.exp(sx.sub(x, sx.broadcast_in_dim(top, (256, 1024), (0,))))
    total = sx.reduce(power, b.constant(0.0, "f32"), sx.add, (1,))
    return b.build(sx.div(power, sx.broadcast_in_dim(total, (256, 1024), (0,))))


WALKS: dict[str, tuple[Callable[[], sx.XlaComputation], str]] = {
    "dot_general, CPU": (dot_general, "cpu"),
    "reduce_window, CPU": (reduce_window, "cpu"),
    "softmax, sm_80": (softmax, "gpu:sm_80"),
}


@dataclass
class Walk:
    """The files that were entered, by the number of calls that came from other files."""

    entered: Counter[str] = field(default_factory=Counter)
    _at: list[str] = field(default_factory=list)

    def follow(self, frame: FrameType, event: str, argument: Any) -> None:
        """What `sys.setprofile` calls for every call and return."""
        if event == "call":
            file = _file_of(frame.f_code.co_filename) or (self._at[-1] if self._at else "")
            if file and (not self._at or file != self._at[-1]):
                self.entered[file] += 1
            self._at.append(file)
        elif event == "return" and self._at:
            self._at.pop()


def _file_of(path: str) -> str:
    """A file of the project, from its root; "" for any other."""
    name = path.removeprefix(f"{ROOT}/").removeprefix("stablexla/") if path.startswith(f"{ROOT}/") else ""
    if name.startswith(LAYERS):
        return name
    return path.removeprefix(f"{ROOT}/") if path.startswith(f"{ROOT}/stablexla/") else ""


def walk(build: Callable[[], sx.XlaComputation], target: str) -> Walk:
    """Builds and compiles a program, up to the last stage before machine code."""

    def compiled() -> None:
        module = load(build())
        run_pipeline(copy_of(module), find_target(target).pipeline(CompileOptions()))

    compiled()
    found = Walk()
    sys.setprofile(found.follow)
    try:
        compiled()
    finally:
        sys.setprofile(None)
    return found


def lines_of(text: str) -> Counter[str]:
    """Lines of a file by what they hold."""
    kinds = ["empty" if not line.strip() else "code" for line in text.splitlines()]
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Expr) else None
        is_doc = isinstance(value, ast.Constant) and isinstance(value.value, str)
        if is_doc or isinstance(node, (ast.Import, ast.ImportFrom)):
            kind = "docstrings" if is_doc else "imports"
            kinds[node.lineno - 1 : node.end_lineno] = [kind] * (node.end_lineno - node.lineno + 1)
    return Counter(all=len(kinds)) + Counter(kinds)


def print_lines() -> None:
    """Prints a line for each folder of the package, and one for all of it."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for root in ("stablexla", *LAYERS):
        for file in sorted((ROOT / root).rglob("*.py")):
            folder = file.parent.relative_to(ROOT).parts[:2]
            counted = lines_of(file.read_text())
            found["/".join(folder)] += counted
            found["all"] += counted
    columns = ("all", "code", "docstrings", "empty", "imports")
    print(f"{'folder':22}{''.join(f'{column:>12}' for column in columns)}")
    for folder, counted in found.items():
        print(f"{folder:22}{''.join(f'{counted[column]:12,}' for column in columns)}")


def main() -> None:
    """Prints a line for each walk, and the folders that it enters."""
    if "--lines" in sys.argv[1:]:
        print_lines()
        return
    print(f"{'walk':22}{'files':>7}{'hops':>7}   folders of targets/")
    for name, (build, target) in WALKS.items():
        found = walk(build, target).entered
        folders = Counter(file.split("/")[1] for file in found if file.startswith("targets/") and file.count("/") > 1)
        listed = ", ".join(f"{folder} {count}" for folder, count in sorted(folders.items()))
        print(f"{name:22}{len(found):7}{found.total():7}   {listed}")


if __name__ == "__main__":
    main()
