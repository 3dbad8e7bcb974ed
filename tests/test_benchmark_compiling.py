"""Benchmarks of compile time: programs, cache states, tables and the section of a page; no time is asserted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.compile_tables import compile_cells
from benchmarks.compiling import measure_compiling
from benchmarks.engines import find_engine
from benchmarks.measuring import BESIDE, COLD, NEW, NEW_WARM, WARM, Effort, Measured, Row
from benchmarks.page import BEGIN, COMPILE_PAGE, END, write_page
from benchmarks.programs import PROGRAMS
from benchmarks.programs.small import FAMILIES, MOST_OPERATIONS
from benchmarks.report import Report, read_report

SMALLEST = "small-sort-0"
SMALL = [name for name in PROGRAMS if name.startswith("small-")]


def test_there_are_a_hundred_small_programs_of_every_family():
    assert len(SMALL) == 100
    assert {name.split("-")[1] for name in SMALL} == set(FAMILIES)


@pytest.mark.parametrize("name", SMALL[:20])
def test_small_programs_are_small(name: str):
    program = PROGRAMS[name]
    assert program.text() == program.text()
    assert program.work().read < 1 << 16
    assert program.summary.count(", ") < MOST_OPERATIONS


def test_one_round_measures_this_process_alone():
    engines = [find_engine(name) for name in ("stablexla", "xla", "numpy")]
    row = measure_compiling(PROGRAMS[SMALLEST], engines, Effort(least=1, most=1))
    assert {name: set(found.states) for name, found in row.engines.items()} == {
        "stablexla": {COLD, WARM},
        "xla": {COLD},
    }
    assert all(seconds > 0 for found in row.engines.values() for seconds in found.states.values())
    assert row.engines["xla"].peak == 0


def test_models_are_measured_in_every_state():
    engines = [find_engine(name) for name in ("stablexla", "xla")]
    program = replace(PROGRAMS[SMALLEST], group="models")
    row = measure_compiling(program, engines, Effort(budget=0, least=1, most=2))
    assert row.failures == {}
    assert list(row.engines["stablexla"].states) == list(BESIDE)
    assert set(row.engines["xla"].states) == {COLD, NEW}
    assert min(row.engines["stablexla"].states.values()) > 0


def compiled(program: str, family: str, ours: float, theirs: float) -> Row:
    states = {COLD: ours, WARM: ours / 4, NEW: 2 * ours, NEW_WARM: ours}
    engines = {
        "stablexla": Measured(ours, states=states, peak=2e6),
        "xla": Measured(theirs, states={COLD: theirs, NEW: theirs}, peak=3e6),
    }
    return Row(program, "what it does", "compile", family, 1e-5, engines)


def full() -> Report:
    rows = [
        compiled("net", "transformers", 1.0, 2.0),
        compiled("layers-4", "layers", 1.0, 1.0),
        compiled("layers-8", "layers", 2.0, 1.5),
        compiled("small-dot-0", "small dot", 2.0, 1.0),
        compiled("small-dot-1", "small dot", 1.0, 2.0),
    ]
    return Report({"processor": "one"}, ["stablexla", "xla"], "the command", rows)


def test_tables_have_means_the_worst_growth_and_families():
    cells = {each.title: each for each in compile_cells(full().rows)}
    assert cells["compiling by state"].lines[0] == ["models", COLD, "1", "2.00", "0", "net", "2.00"]
    assert cells["compiling by state"].lines[8] == ["small programs", COLD, "2", "1.00", "1", "small-dot-0", "0.50"]
    assert [line[0] for line in cells["compiling: where XLA is furthest ahead"].lines] == ["small-dot-0", "layers-8"]
    assert cells["compiling more layers"].lines[1][4:6] == ["2.00", "1.50"]
    assert cells["compiling small programs"].lines[-1] == [
        *("all", "2", "1.41 s", "1.41 s", "1.00", "0.50", "354 ms", "4.00", "2 MB", "3 MB")
    ]
    model = dict(zip(cells["compiling models"].headings, cells["compiling models"].lines[0], strict=True))
    assert model["memory, xla"] == "3 MB"
    assert model[NEW] == "2 s"
    assert compile_cells([]) == []


def test_compiling_has_a_part_of_its_own_page(tmp_path: Path):
    page = tmp_path / COMPILE_PAGE
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_page(full(), tmp_path / "performance.md")
    assert page.read_text().startswith(f"before\n{BEGIN}\n### Compiling by state\n\n| ")
    assert page.read_text().endswith(f"- processor: one\n{END}\nafter\n")
    assert [file.name for file in tmp_path.iterdir()] == [COMPILE_PAGE]


def test_a_model_has_a_row_for_its_calls_and_one_for_its_compiling(tmp_path: Path):
    report = full()
    report.take(Report(rows=[replace(report.rows[0], group="models")]))
    assert [row.group for row in report.rows if row.program == "net"] == ["compile", "models"]
    report.write(tmp_path / "report.json")
    assert read_report(tmp_path / "report.json").rows == report.rows
