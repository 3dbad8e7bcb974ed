"""An explanation as one self-contained page: tables, and the stages side by side with linked lines."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from stablexla.inspection.explaining.explanation import Explanation
from stablexla.inspection.explaining.explanation_text import memory_of, number, size, spans
from stablexla.inspection.numbering import numbers_in

MAX_LINES = 4000
"""Lines of a stage that are shown; more make a page that no browser scrolls through."""
_ROWS = ("kernel", "kind", "path", "calls", "items", "threads", "reads", "writes", "flops", "operations")


def page_of(explanation: Explanation) -> str:
    """Return the whole page."""
    parts = files("stablexla.inspection")
    style, script = ((parts / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    columns = [_source(explanation), *(_stage(name, text) for name, text in explanation.stages.items())]
    names = ["your source", *explanation.stages] if columns[0] else list(explanation.stages)
    boxes = "".join(
        f'<label><input type="checkbox" data-stage="{escape(n)}"{" checked" * _is_open(n)}> {escape(n)}</label>'
        for n in names
    )
    title = escape(f"{explanation.name} for {explanation.target}")
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{style}</style></head>
<body>{tables_of(explanation)}
<h2>Stages</h2>
<p>A click on a line marks what it came from and what became of it, in all stages. {boxes}</p>
<div id="stages">{"".join(columns)}</div>
<script>{script}</script></body></html>
"""


def _is_open(stage: str) -> bool:
    return stage in ("your source", "source", "kernels", "buffers")


def tables_of(explanation: Explanation) -> str:
    """Return the tables alone, for a notebook."""
    composites = [(n.title, n.way, n.why) for n in explanation.composites]
    parts = [(str(len(p.stretches)), ", ".join(map(spans, p.stretches))) for p in explanation.parts]
    return f"""<h1>{escape(explanation.name)}</h1>
<p><code>{escape(explanation.signature)}</code> for {escape(explanation.target)}; {memory_of(explanation)}</p>
<details open><summary>{len(explanation.kernels)} kernels, bytes and flops of one call</summary>
{_table(_ROWS, _kernel_rows(explanation))}</details>
<details><summary>{len(explanation.calls)} calls, in the order of the program</summary>
{_table(("call", "kernel", "reads", "writes"), _call_rows(explanation))}</details>
<details><summary>{len(explanation.operations)} operations, and what became of each</summary>
{_table(("#", "operation", "type", "line", "became"), _operation_rows(explanation))}</details>
""" + "".join(
        f"<details><summary>{summary}</summary>{_table(names, [((), row) for row in rows])}</details>"
        for summary, names, rows in (
            ("equal parts, compiled once", ("times", "operations"), parts),
            ("composites", ("composite", "way", "why"), composites),
        )
        if rows
    )


Row = tuple[Sequence[int], Sequence[str]]


def _table(names: Sequence[str], rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{escape(n)}</th>" for n in names)
    body = "".join(
        f"<tr{_ids(ids)}>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>" for ids, cells in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _kernel_rows(explanation: Explanation) -> list[Row]:
    return [
        (
            k.operations,
            (
                *(k.name, k.kind, k.path, str(len(k.calls)), str(k.items), "many" if k.parallel else "1"),
                *(size(k.cost.read), size(k.cost.written), number(k.cost.flops), spans(k.operations)),
            ),
        )
        for k in explanation.kernels
    ]


def _call_rows(explanation: Explanation) -> list[Row]:
    return [
        (
            call.operations,
            (
                str(call.number),
                "\u2003" * call.depth + call.kernel,
                ", ".join(map(str, call.reads)),
                ", ".join(map(str, call.writes)),
            ),
        )
        for call in explanation.calls
    ]


def _operation_rows(explanation: Explanation) -> list[Row]:
    return [
        (
            (op.number,),
            (
                str(op.number),
                "\u2003" * op.depth + op.name + (f" {op.detail}" if op.detail else ""),
                op.type,
                str(op.place) if op.place.is_known else "",
                fate.text,
            ),
        )
        for op, fate in zip(explanation.operations, explanation.fates, strict=True)
    ]


def _ids(numbers: Sequence[int]) -> str:
    return f' data-ops="{" ".join(map(str, numbers))}"' if numbers else ""


# ---- columns ---------------------------------------------------------------------------------------------------------


def _stage(name: str, text: str) -> str:
    lines = text.split("\n")
    shown = [(numbers_in(line), without_locations(line)) for line in lines[:MAX_LINES]]
    left = len(lines) - MAX_LINES
    note = f"\n... {left} more lines" if left > 0 else ""
    return _column(name, shown) + (f"<pre>{note}</pre></section>" if note else "</section>")


def _source(explanation: Explanation) -> str:
    """Return the user's own lines, of the files that can be read."""
    by_file: dict[str, dict[int, list[int]]] = {}
    for op in explanation.operations:
        place = op.place.user_call or op.place
        if place.line and linecache.getline(place.file, place.line):
            by_file.setdefault(place.file, {}).setdefault(place.line, []).append(op.number)
    if not by_file:
        return ""
    parts: list[tuple[Sequence[int], str]] = []
    for file, lines in by_file.items():
        parts.append(((), f"# {file}"))
        first, last = max(1, min(lines) - 3), max(lines) + 3
        for line in range(first, min(last, first + MAX_LINES) + 1):
            text = linecache.getline(file, line).rstrip("\n")
            parts.append((tuple(lines.get(line, ())), f"{line:4}  {text}"))
    return _column("your source", parts) + "</section>"


def _column(name: str, lines: Sequence[tuple[Sequence[int], str]]) -> str:
    hidden = "" if _is_open(name) else " hidden"
    body = "".join(f"<span{_ids(ids)}>{escape(text)}\n</span>" for ids, text in lines)
    return f'<section data-stage="{escape(name)}"{hidden}><h3>{escape(name)}</h3><pre>{body}</pre>'


_LOCATION = re.compile(r"\s*\bloc\(")


def without_locations(line: str) -> str:
    """Return a line of MLIR without its `loc(...)`.

    >>> without_locations('%0 = foo.bar %a : f32 loc("x"("f(1).py":3:4)) {')
    '%0 = foo.bar %a : f32 {'
    """
    return "".join(_outside(line))


def _outside(line: str) -> Iterator[str]:
    at = 0
    while match := _LOCATION.search(line, at):
        yield line[at : match.start()]
        at = _end_of(line, match.end())
    yield line[at:]


def _end_of(line: str, at: int) -> int:
    """Return the position after the parenthesis that closes the one before `at`; quoted text does not count."""
    depth, quoted = 1, False
    while at < len(line) and depth:
        character = line[at]
        if character == '"' and line[at - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += (character == "(") - (character == ")")
        at += 1
    return at
