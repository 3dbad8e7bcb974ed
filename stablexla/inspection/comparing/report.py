"""Reports of a comparison: text, tables on a terminal, HTML in a notebook, and files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stablexla.dialects.display.control_characters import escaped
from stablexla.dialects.display.tables import show_table
from stablexla.dialects.element_types import BY_DTYPE
from stablexla.dialects.places import Place
from stablexla.inspection.comparing.comparison import Comparison
from stablexla.inspection.comparing.findings import Cause, Difference, Finding, SmallProgram, SuspectKernel

METHODS = {
    "operation": "each operation on the operands that the program's own run had",
    "prefix": "programs that end earlier, as the operations by themselves are right",
    "rounding": "the first value that differs, as every operation is right on its own operands",
}
SHOWN = 6
"""Kernels' operations, places and the like that are listed at most."""
LONGEST = 200
"""Characters of a line of source or of MLIR that are shown."""
Row = tuple[str, str]


def plain_text(comparison: Comparison, folder: Path | None = None) -> str:
    """Return the report without colours and frames, lines not wrapped."""
    lines = lines_of(_headline(comparison), _rows(comparison, folder))
    if comparison.finding is not None:
        lines += _excerpt_lines(comparison.finding.difference, comparison.against)
    return escaped("\n".join(line.rstrip() for line in lines))


def lines_of(headline: str, rows: Sequence[Row]) -> list[str]:
    """Return a headline and, below it, the rows, their labels as wide as the widest."""
    width = max((len(name) for name, _ in rows), default=0)
    return [headline, *(f"  {name:<{width}}  {text}" for name, text in rows)]


def show(comparison: Comparison, console: Console, folder: Path | None = None) -> None:
    """Print the report, with tables and colours on a terminal.

    Args:
        folder: where the smallest program was written to.
    """
    if not console.is_terminal:
        print(plain_text(comparison, folder), file=console.file)
        return
    console.print(Text(escaped(_headline(comparison)), style="bold green" if comparison.equal else "bold red"))
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in _rows(comparison, folder):
        table.add_row(name, Text(escaped(text)))
    console.print(table)
    if comparison.finding is not None and len(comparison.finding.difference.our_excerpt) > 1:
        _show_excerpt(comparison.finding.difference, comparison.against, console)


def _headline(comparison: Comparison) -> str:
    what = f"{comparison.name} against {comparison.against}"
    if comparison.equal:
        verdict = "equal" if comparison.whole else "no difference found"
        verdict += " within rounding" if comparison.results else ""
        return f"{what}: {verdict} ({_judged(comparison)})"
    if not comparison.whole and not comparison.judged:
        return f"{what}: NOTHING COULD BE COMPARED"
    if comparison.finding is None:
        return f"{what}: DIFFERS, and no operation was found that is wrong ({_judged(comparison)})"
    return f"{what}: DIFFERS"


def _judged(comparison: Comparison) -> str:
    of = "" if comparison.judged >= comparison.operations else f" of {comparison.operations}"
    return f"{comparison.judged}{of} operations judged in {comparison.seconds:.1f} s"


def _rows(comparison: Comparison, folder: Path | None) -> list[Row]:
    rows: list[Row] = []
    if comparison.finding is not None:
        rows += _finding_rows(comparison.finding, comparison.against, folder)
    for missed in comparison.not_judged:
        rows.append(("not judged", f"{_times(missed.operation, len(missed.places))}: {missed.reason}"))
    if comparison.finding is None or comparison.result_count > 1:
        rows += [(f"result {number}", _counted(found)) for number, found in comparison.results.items()]
    rows += [("known fault", f"{name}, met {_often(count)}") for name, count in comparison.excused.items()]
    rows += [("note", note) for note in comparison.notes]
    return rows


def _finding_rows(found: Finding, against: str, folder: Path | None) -> list[Row]:
    label = "first wrong operation" if found.method != "rounding" else "first value that differs"
    rows: list[Row] = [(label, first_line(found.text))]
    rows += place_rows(found.place)
    for turn in reversed(found.turns):
        rows.append(("in", f"{turn.what} of {turn.operation} at {turn.place}"))
    if found.after:
        rows.append(("once there is", found.after))
    rows.append(("result", f"{found.result}: {_counted(found.difference)}"))
    rows.append(("worst element", _worst(found.difference, against)))
    rows.append(("found by", METHODS[found.method]))
    if found.cause is not None:
        rows += _cause_rows(found.cause)
    if found.program is not None:
        rows.append(("smallest program", _program_line(found.program, folder)))
    return rows


def place_rows(place: Place) -> list[Row]:
    """Return the rows of an operation's place: its line, and the calls that lead to it."""
    if not place.is_known:
        return [("at", "a place that is not known: the program has no locations")]
    rows = [("at", f"{place}:  {first_line(place.text)}" if place.text else str(place))]
    callers = place.callers if place.user_call is None else place.callers[1:]  # the first is part of the place's text
    rows += [("called from", str(p)) for p in callers[:SHOWN]]
    return [*rows, *(("and", str(p)) for p in place.others[:SHOWN])]


def _worst(difference: Difference, against: str) -> str:
    where = f"at [{','.join(map(str, difference.index))}]: " if difference.index else ""
    text = f"{where}here {difference.ours}, {against} {difference.theirs}"
    if difference.operands:
        text += f"  (from {', '.join(difference.operands)})"
    return text


def _counted(difference: Difference) -> str:
    of = f"{difference.type}, {difference.count} of {difference.size} elements differ"
    if not np.isfinite(difference.ulp):
        return f"{of}, the worst is NaN on one side only"
    if difference.type.startswith(("s", "u", "p")):
        return f"{of}, the worst by {difference.largest:g}"
    return f"{of}, the worst by {difference.ulp:.0f} ulp, at most by {difference.largest:.6g}"


def _cause_rows(cause: Cause) -> list[Row]:
    rows: list[Row] = []
    if cause.change:
        rows.append(("broken by", f"step '{cause.step}': {cause.change}" if cause.step else cause.change))
    if cause.rule:
        rows.append(("broken by", f"the lowering rule {cause.rule}"))
    if cause.kernel is not None:
        rows += _kernel_rows(cause.kernel)
    if cause.note:
        rows.append(("", f"{cause.note} ({cause.tried} pipelines tried)"))
    return rows


def _kernel_rows(kernel: SuspectKernel) -> list[Row]:
    held = "; ".join(kernel.operations[:SHOWN])
    more = f" and {len(kernel.operations) - SHOWN} more" if len(kernel.operations) > SHOWN else ""
    rows = [("kernel", f"{kernel.name}: kind '{kernel.kind}', {kernel.path}")]
    return [*rows, ("which holds", held + more)] if held else rows


def _program_line(program: SmallProgram, folder: Path | None) -> str:
    size = f"{program.operations} operation" + ("s" if program.operations != 1 else "")
    if folder is None:
        return f"{size}; comparison.save(folder) writes it"
    return f"{size}: {folder}/program.mlir, with inputs.npz; README.txt says how to run it"


def _show_excerpt(difference: Difference, against: str, console: Console) -> None:
    """Print the elements around the worst one, side by side."""
    heads = _heads(difference)
    rows = [("here", *difference.our_excerpt), (against, *difference.their_excerpt)]
    show_table(console, ("", *heads), rows, numbers=heads)


def _excerpt_lines(difference: Difference, against: str) -> list[str]:
    if len(difference.our_excerpt) < 2:
        return []
    rows = [["", *_heads(difference)], ["here", *difference.our_excerpt], [against, *difference.their_excerpt]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["", *("  " + "  ".join(f"{text:>{w}}" for text, w in zip(row, widths, strict=True)) for row in rows)]


def _heads(difference: Difference) -> list[str]:
    *outer, first = difference.start
    places = range(first, first + len(difference.our_excerpt))
    return [f"[{','.join(map(str, (*outer, i)))}]" for i in places]


def _times(name: str, count: int) -> str:
    return name if count == 1 else f"{name} ({count}x)"


def _often(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def first_line(text: str) -> str:
    """Return a text's first line, shortened."""
    first = text.strip().split("\n", 1)[0]
    return first if len(first) <= LONGEST else first[: LONGEST - 3] + "..."


def html(comparison: Comparison) -> str:
    """Return the report as a fragment of HTML."""
    return html_of(_headline(comparison), _rows(comparison, None), is_good=comparison.equal)


def html_of(headline: str, rows: Sequence[Row], *, is_good: bool = False) -> str:
    """Return a headline, green or red, and a table of the rows."""
    colour = "#2a7a2a" if is_good else "#a02020"
    cells = "".join(
        f"<tr><th style='text-align:left;vertical-align:top'>{escape(name)}</th>"
        f"<td style='text-align:left'>{escape(text)}</td></tr>"
        for name, text in rows
    )
    return f"<b style='color:{colour}'>{escape(headline)}</b><table>{cells}</table>"


def json_text(comparison: Comparison) -> str:
    """Return the report as JSON; infinities and NaN are texts."""
    return json.dumps(_finite(comparison.as_dict()), indent=2)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return [_finite(v) for v in value] if isinstance(value, list) else value


# ---- files -----------------------------------------------------------------------------------------------------------


def save(comparison: Comparison, folder: Path, options: Sequence[str]) -> Path | None:
    """Like `Comparison.save`."""
    found = comparison.finding
    if found is None or found.program is None:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "program.mlir"
    program.write_text(found.program.text)
    save_arrays(folder / "inputs.npz", found.program.arguments)
    if found.program.wanted is not None:
        save_arrays(folder / "expected.npz", found.program.wanted)
    if found.program.pipeline:
        (folder / "by.pipeline").write_text(found.program.pipeline + "\n")
    (folder / "README.txt").write_text(_readme(comparison, folder.absolute(), options))
    return program


def save_arrays(path: Path, arrays: tuple[Any, ...]) -> None:
    """Save arrays; types that numpy's files lack are saved as bytes, as numpy itself would write them."""
    known = [a if a.dtype.kind in "biufc" and a.dtype.isbuiltin == 1 else _as_void(a) for a in arrays]
    np.savez(path, *known)  # named arr_0, arr_1 ...


def _as_void(array: Any) -> Any:
    return np.ascontiguousarray(array).view(f"V{BY_DTYPE[array.dtype].bytes}")


def _readme(comparison: Comparison, folder: Path, options: Sequence[str]) -> str:
    against = comparison.against if re.fullmatch(r"\w+", comparison.against) else "interpreter"
    found = comparison.finding
    words = ["stablexla-run", f"{folder}/program.mlir", f"--inputs={folder}/inputs.npz"]
    if found and found.program and found.program.pipeline:
        words.append(f"--pipeline={folder}/by.pipeline")
    words += options or [f"--compare={against}"]
    return (
        "The smallest program found that shows a difference, with the operands that the whole program had there.\n\n"
        f"  {shlex.join(words)}\n\n"
        f"{plain_text(comparison)}\n"
    )
