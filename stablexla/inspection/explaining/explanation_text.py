"""An explanation as text: tables of operations, kernels, calls and composites."""

from __future__ import annotations

import dataclasses
import io
from collections.abc import Sequence
from fnmatch import fnmatchcase

from rich.console import Console
from rich.table import Table

from stablexla.inspection.explaining.explanation import Explanation, KernelNote

WIDTH = 140
_NAMES = 12


def text_of(explanation: Explanation, width: int = WIDTH, *, kernels: str = "*") -> str:
    """Return the tables; with a pattern of names those of the kernels that match it, and of what they compute."""
    file = io.StringIO()
    console = Console(file=file, width=width, legacy_windows=False)
    shown = explanation if kernels == "*" else _only(explanation, kernels)
    if kernels != "*" and not shown.kernels:
        return no_kernel(kernels, [kernel.name for kernel in explanation.kernels])
    for make in (_operations, _parts, _kernels, _refusals, _schedules, _calls, _composites):
        table = make(shown)
        if table.row_count:
            console.print(table)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines())


def _only(explanation: Explanation, pattern: str) -> Explanation:
    """Leave the kernels whose names match, their calls and their operations."""
    kernels = tuple(k for k in explanation.kernels if fnmatchcase(k.name, pattern))
    names, numbers = {k.name for k in kernels}, {n for k in kernels for n in k.operations}
    rows = [(o, f) for o, f in zip(explanation.operations, explanation.fates, strict=True) if o.number in numbers]
    return dataclasses.replace(
        explanation,
        kernels=kernels,
        calls=tuple(c for c in explanation.calls if c.kernel in names),
        operations=tuple(o for o, _ in rows),
        fates=tuple(f for _, f in rows),
        parts=(),
        composites=(),
    )


def no_kernel(pattern: str, names: Sequence[str]) -> str:
    """Return a line that tells which kernels there are, or the first of them, as none fits a pattern.

    >>> no_kernel("zork*", ["loop_0", "row_0"])
    "no kernel fits 'zork*'; there are loop_0, row_0"
    """
    some = ", ".join(names[:_NAMES]) + ", ..." * (len(names) > _NAMES)
    return f"no kernel fits {pattern!r}; there are {some or 'none'}"


def memory_of(explanation: Explanation) -> str:
    """Return a line on memory."""
    arena, constants = size(explanation.arena_bytes), size(explanation.constant_bytes)
    return f"memory: {arena} for temporaries in a call, {constants} of constants"


def size(count: int) -> str:
    """Format a number of bytes.

    >>> size(1536), size(3), size(5 << 30)
    ('1.5 KiB', '3 B', '5.0 GiB')
    """
    return _scaled(count, 1024, ("B", "KiB", "MiB", "GiB", "TiB"))


def number(count: int | None) -> str:
    """Format a count; a dash where it is not known.

    >>> number(2_500_000), number(12), number(None)
    ('2.5 M', '12', '-')
    """
    return "-" if count is None else _scaled(count, 1000, ("", "k", "M", "G", "T"))


def _scaled(count: int, step: int, units: Sequence[str]) -> str:
    value, place = float(count), 0
    while value >= step and place + 1 < len(units):
        value, place = value / step, place + 1
    return f"{value:.{1 if place else 0}f} {units[place]}".rstrip()


def spans(numbers: Sequence[int]) -> str:
    """Format numbers, runs as ranges.

    >>> spans([0, 1, 2, 5, 7, 8])
    '0-2 5 7-8'
    """
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][1] + 1:
            runs[-1][1] = n
        else:
            runs.append([n, n])
    return " ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def _table(title: str, **columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name, justify in columns.items():
        table.add_column(name, justify="right" if justify == "right" else "left", overflow="fold")
    return table


def _operations(explanation: Explanation) -> Table:
    table = _table(
        "operations", **{"#": "right", "operation": "left", "type": "left", "line": "left", "became": "left"}
    )
    for op, fate in zip(explanation.operations, explanation.fates, strict=True):
        name = "  " * op.depth + op.name + (f" {op.detail}" if op.detail else "")
        table.add_row(str(op.number), name, op.type, str(op.place) if op.place.is_known else "", fate.text)
    return table


def _parts(explanation: Explanation) -> Table:
    table = _table("equal parts, compiled once", times="right", operations="left")
    for part in explanation.parts:
        table.add_row(str(len(part.stretches)), ", ".join(map(spans, part.stretches)))
    return table


def _kernels(explanation: Explanation) -> Table:
    names = ("kernel", "kind", "path", "calls", "items", "threads", "reads", "writes", "flops", "operations")
    table = _table("kernels (bytes and flops of one call)", **{n: _side(n) for n in names})
    for kernel in explanation.kernels:
        table.add_row(
            kernel.name,
            kernel.kind,
            path_of(kernel),
            calls_of(explanation, kernel),
            str(kernel.items),
            "many" if kernel.parallel else "1",
            size(kernel.cost.read),
            size(kernel.cost.written),
            number(kernel.cost.flops),
            spans(kernel.operations),
        )
    return table


def path_of(kernel: KernelNote) -> str:
    """Return a kernel's path in a word that is no kind: "fallback" for the general path."""
    return "fallback" if kernel.path == "general" else kernel.path


def calls_of(explanation: Explanation, kernel: KernelNote) -> str:
    """Return how often main calls a kernel, and how many of the calls are in loops or branches."""
    nested = sum(call.depth > 0 for call in explanation.calls if call.kernel == kernel.name)
    return f"{len(kernel.calls)}, {nested} nested" if nested else str(len(kernel.calls))


def _refusals(explanation: Explanation) -> Table:
    table = _table("fallback: why no emitter took a kernel", kernel="left", why="left", **{"what to try": "left"})
    for kernel in explanation.kernels:
        if kernel.refusal is not None:
            table.add_row(kernel.name, kernel.refusal.why, kernel.refusal.hint)
    return table


def _schedules(explanation: Explanation) -> Table:
    table = _table("schedules: how loops are emitted", kernel="left", steps="left", why="left")
    for kernel in explanation.kernels:
        if kernel.schedule is not None:
            table.add_row(kernel.name, kernel.schedule.steps, kernel.schedule.why)
    return table


def _side(name: str) -> str:
    return "right" if name in ("calls", "items", "reads", "writes", "flops", "threads") else "left"


def _calls(explanation: Explanation) -> Table:
    table = _table("calls", call="right", kernel="left", reads="left", writes="left")
    for call in explanation.calls:
        reads, writes = (", ".join(map(str, buffers)) for buffers in (call.reads, call.writes))
        table.add_row(str(call.number), "  " * call.depth + call.kernel, reads, writes)
    return table


def _composites(explanation: Explanation) -> Table:
    table = _table("composites", composite="left", way="left", why="left")
    for note in explanation.composites:
        table.add_row(note.title, note.way, note.why)
    return table
