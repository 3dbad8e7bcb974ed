"""An explanation as one self-contained page: tables, and the stages side by side with linked lines."""

from __future__ import annotations

import linecache
import re
from collections.abc import Collection, Iterator, Sequence
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from stablexla.dialects.display.mlir_text import html_tokens
from stablexla.inspection.explaining.explanation import Explanation
from stablexla.inspection.explaining.explanation_text import calls_of, memory_of, number, path_of, size, spans
from stablexla.inspection.numbering import numbers_in

if TYPE_CHECKING:
    from stablexla.inspection.profiling.profile import Profile

MAX_LINES = 4000
"""Lines of a stage that are shown; more make a page that no browser scrolls through."""
_TIMES = ("share", "us a run", "us a call")
_KERNELS = ("kernel", "kind", "path", "calls", "items", "threads", "reads", "writes", "flops", "operations")
_NUMBERS = frozenset((*_TIMES, "calls", "items", "threads", "reads", "writes", "flops"))
# A notebook aligns all cells to the right and has no style sheet of ours; the doubled class is stronger than its own.
_STYLE = (
    "<style>.stablexla.stablexla td,.stablexla.stablexla th"
    "{text-align:left;vertical-align:top;overflow-wrap:break-word}"
    ".stablexla.stablexla .wide{max-width:100%;overflow-x:auto}"
    ".stablexla.stablexla .n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}</style>"
)


def page_of(explanation: Explanation, profile: Profile | None = None) -> str:
    """Return the whole page, with times beside the kernels if there is a profile."""
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
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head>
<body>
<p id="bar"><input type="search" id="search" placeholder="search tables and stages"> <span id="count"></span></p>
{tables_of(explanation, profile)}
<h2>Stages</h2>
<p>A click on a line marks what it came from and what became of it, in all stages: lines that are of this operation
alone, and, paler, lines that are of others too. Escape takes the marks away.</p>
<p>{boxes}<label><input type="checkbox" id="wrap"> long lines wrapped</label></p>
<div id="stages">{"".join(columns)}</div>
<script>{script}</script></body></html>
"""


def _is_open(stage: str) -> bool:
    return stage in ("your source", "source", "kernels", "buffers")


def tables_of(explanation: Explanation, profile: Profile | None = None) -> str:
    """Return the tables alone, for a notebook."""
    heads = (_KERNELS[0], *_TIMES, *_KERNELS[1:]) if profile else _KERNELS
    composites = [(n.title, n.way, n.why) for n in explanation.composites]
    parts = [(str(len(p.stretches)), ", ".join(map(spans, p.stretches))) for p in explanation.parts]
    refusals = [(k.operations, (k.name, k.refusal.why, k.refusal.hint)) for k in explanation.kernels if k.refusal]
    tables = f"""<h1>{escape(explanation.name)}</h1>
<p><code>{escape(explanation.signature)}</code> for {escape(explanation.target)}; {memory_of(explanation)}</p>
<details open><summary>{len(explanation.kernels)} kernels, bytes and flops of one call</summary>
{_table(heads, _kernel_rows(explanation, profile), _NUMBERS)}</details>
{_refusals(refusals)}<details><summary>{len(explanation.calls)} calls, in the order of the program</summary>
{_table(("call", "kernel", "reads", "writes"), _call_rows(explanation), {"call"})}</details>
<details><summary>{len(explanation.operations)} operations, and what became of each</summary>
{_table(("#", "operation", "type", "line", "became"), _operation_rows(explanation), {"#"})}</details>
""" + "".join(
        f"<details><summary>{summary}</summary>{_table(names, [((), row) for row in rows], {'times'})}</details>"
        for summary, names, rows in (
            ("equal parts, compiled once", ("times", "operations"), parts),
            ("composites", ("composite", "way", "why"), composites),
        )
        if rows
    )
    return f'<div class="stablexla">{_STYLE}{tables}</div>'


Row = tuple[Sequence[int], Sequence[str]]


def _refusals(rows: Sequence[Row]) -> str:
    table = _table(("kernel", "why", "what to try"), rows, ())
    return f"<details open><summary>fallback: why no emitter took a kernel</summary>{table}</details>\n" if rows else ""


def _table(names: Sequence[str], rows: Sequence[Row], numbers: Collection[str]) -> str:
    kinds = [' class="n"' if name in numbers else "" for name in names]
    head = "".join(f"<th{kind}>{escape(n)}</th>" for n, kind in zip(names, kinds, strict=True))
    body = "".join(
        f"<tr{_ids(ids)}>"
        + "".join(f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(cells, kinds, strict=True))
        + "</tr>"
        for ids, cells in rows
    )
    return f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _times(profile: Profile | None) -> dict[str, tuple[str, ...]]:
    """Return the cells of `_TIMES` for each kernel that was run."""
    from stablexla.inspection.profiling.profile_html import share_of, times_of_kernel

    kernels = profile.kernels if profile else ()
    return {k.name: (share_of(profile, k.seconds), *times_of_kernel(profile, k)) for k in kernels if profile}


def _kernel_rows(explanation: Explanation, profile: Profile | None) -> list[Row]:
    times, none = _times(profile), ("-",) * len(_TIMES) if profile else ()
    return [
        (
            k.operations,
            (
                *(
                    k.name,
                    *times.get(k.name, none),
                    k.kind,
                    path_of(k),
                    calls_of(explanation, k),
                    str(k.items),
                    "many" if k.parallel else "1",
                ),
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
    numbers = _with_openings(lines[:MAX_LINES])
    shown = [(ids, without_locations(line)) for ids, line in zip(numbers, lines, strict=False)]
    left = len(lines) - MAX_LINES
    note = f"\n... {left} more lines" if left > 0 else ""
    return _column(name, shown) + (f"<pre>{note}</pre></section>" if note else "</section>")


def _with_openings(lines: Sequence[str]) -> list[Sequence[int]]:
    """Return the operations of each line.

    The location of an operation with regions stands behind the last of them: its first line, and those between its
    regions, have those numbers too. Lines of one indentation are one operation's if they begin with a brace.
    """
    found: list[Sequence[int]] = [numbers_in(line) for line in lines]
    later: dict[int, Sequence[int]] = {}
    for at in range(len(lines) - 1, -1, -1):
        text = lines[at].lstrip()
        indent = len(lines[at]) - len(text)
        if text.startswith("}"):
            later[indent] = found[at] = found[at] or later.get(indent, ())
        elif text and not text.startswith("^"):  # a block's label stands at the indentation of its operation
            waiting = later.get(indent, ())
            found[at] = (waiting or found[at]) if text.endswith("{") else found[at] or waiting
            if not text.startswith("cond {"):  # of a while, whose first line is the one before
                later.pop(indent, None)
    return found


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
    mark = escape if name == "your source" else html_tokens
    body = "".join(f"<span{_ids(ids)}>{mark(text)}\n</span>" for ids, text in lines)
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
