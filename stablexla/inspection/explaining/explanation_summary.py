"""The first lines of an explanation: at most twenty, on the kernels with the most work and the operations in them."""

from __future__ import annotations

from stablexla.inspection.explaining.explanation import Explanation, KernelNote
from stablexla.inspection.explaining.explanation_text import WIDTH, calls_of, memory_of, number, path_of, size
from stablexla.inspection.numbering import SourceOperation

MOST = 5
"""Kernels in a summary."""
OPERATIONS = 3
"""Operations of a kernel in a summary."""
REST = "the rest: text(all=True) or --all; text(kernels=...) or --kernels PATTERN"


def summary_of(explanation: Explanation) -> str:
    """Return the program's line, the kernels with the most bytes and flops, and the memory."""
    kernels = explanation.kernels
    counts = [(len(explanation.operations), "operation"), (len(kernels), "kernel"), (len(explanation.calls), "call")]
    lines = [
        shortened(f"{explanation.name} {explanation.signature} for {explanation.target}"),
        ", ".join(counted(count, noun) for count, noun in counts),
    ]
    if fallback := sum(k.refusal is not None for k in kernels):
        lines[-1] += f"; no emitter took {counted(fallback, 'kernel')}: path fallback"
    for kernel in sorted(kernels, key=_work, reverse=True)[:MOST]:
        cost = kernel.cost
        lines.append(
            f"{kernel.name}  {kernel.kind}, {path_of(kernel)}, calls: {calls_of(explanation, kernel)}; a call reads "
            f"{size(cost.read)}, writes {size(cost.written)}, {number(cost.flops)} flops"
        )
        lines.append(f"  {operations_of(explanation, kernel)}")
        if kernel.refusal is not None:
            lines.append(shortened(f"  {kernel.refusal.why}; try: {kernel.refusal.hint}", 2 * WIDTH))
    return "\n".join([*lines, memory_of(explanation)])


def operations_of(explanation: Explanation, kernel: KernelNote) -> str:
    """Return a kernel's operations with their lines: the first few, and how many more there are."""
    found = [explanation.operations[n] for n in kernel.operations]
    texts = list(dict.fromkeys(map(_operation, found)))
    more = f" (+{len(texts) - OPERATIONS})" if len(texts) > OPERATIONS else ""
    return shortened(", ".join(texts[:OPERATIONS])) + more


def _operation(op: SourceOperation) -> str:
    name = op.name.partition(".")[2] or op.name
    detail = f" {op.detail}" if op.detail else ""
    return f"{name}{detail} {op.place.brief}".rstrip()


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "kernel"), counted(0, "kernel")
    ('1 kernel', '0 kernels')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shortened(text: str, width: int = WIDTH) -> str:
    """Return a text, cut where it is longer than a line.

    >>> shortened("abcdef", 5)
    'ab...'
    """
    return text if len(text) <= width else text[: width - 3] + "..."


def _work(kernel: KernelNote) -> int:
    return (kernel.cost.read + kernel.cost.written + (kernel.cost.flops or 0)) * max(1, len(kernel.calls))
