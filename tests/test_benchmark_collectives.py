"""`python -m benchmarks.collectives`: results are compared before they are timed, and figures are kept and merged.

No time is asserted. Oracle of a case's results: XLA:CPU, which runs the same module in the command's own child.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.collectives.__main__ import cases_of, parser
from benchmarks.collectives.cases import OPERATIONS, Case, difference, size_in_words, size_of
from benchmarks.collectives.figures import BEGIN, END, Figures, all_cells, of_training, read_figures, write_page
from benchmarks.collectives.over_mpi import find_mpiexec
from benchmarks.measuring import Measured, Row

ROOT = Path(__file__).parents[1]


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.collectives", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )


def figures(seconds: float, size: int = 1024, group: str = "in one process") -> Figures:
    case = Case("all_reduce", "f32", size, 2)
    peer = "xla" if group == "in one process" else "mpi4py"
    engines = {"stablexla": Measured(0.1, [seconds, 2 * seconds]), peer: Measured(0.1, [1e-3])}
    row = Row(case.name, "", group, case.family, 1e-5, engines, limit=1e-5)
    return Figures({"processor": "one"}, "the command", [(case, row)], {"32": {"1": 0.5, "2": 0.25}})


def test_a_size_is_read_as_it_is_written():
    assert [size_in_words(n) for n in (1024, 16 << 20, 3, 1536)] == ["1 KiB", "16 MiB", "3 bytes", "1536 bytes"]
    assert [size_of(text) for text in ("1KiB", "16 MiB", "4096", "3 bytes")] == [1024, 16 << 20, 4096, 3]


def test_figures_are_kept_and_newer_ones_take_their_place(tmp_path: Path):
    kept = figures(1e-3)
    kept.take(figures(5e-4))
    kept.take(figures(5e-4, size=2048))
    kept.take(figures(2e-3, group="over MPI"))
    kept.write(tmp_path / "figures.json")
    found = read_figures(tmp_path / "figures.json")
    assert found == kept
    assert [row.best_peer for _, row in found.rows] == ["xla", "xla", "mpi4py"]
    tables = {cells.title: cells.lines for cells in [*all_cells(found), of_training(found)]}
    assert tables["all_reduce of f32, in one process"] == [
        ["2", "1 KiB", "500 (750) us", "1 (1) ms", "2.00", "2%"],
        ["2", "2 KiB", "500 (750) us", "1 (1) ms", "2.00", "2%"],
    ]
    assert tables["all_reduce of f32, over MPI"] == [["2", "1 KiB", "2 (3) ms", "1 (1) ms", "0.50"]]
    assert tables["data-parallel training"] == [["32", "1", "500 ms", "1.00"], ["32", "2", "250 ms", "2.00"]]


def test_the_pages_part_is_replaced(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_page(figures(2e-3), page)
    text = page.read_text()
    assert text.startswith(f"before\n{BEGIN}\n### all_reduce of f32, in one process\n")
    assert "| 2 | 1 KiB | 2 (3) ms | 1 (1) ms | **0.50** | 0% |" in text
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text


def test_a_wrong_result_is_far_away():
    case = Case("all_reduce", "f32", 64, 2)
    wanted = case.results(case.arguments())
    assert difference(wanted, wanted) == 0
    assert difference([wanted[0] + 1, wanted[1]], wanted) > 1e-2
    assert difference([wanted[0][:-1], wanted[1]], wanted) == float("inf")
    assert difference(wanted[:1], wanted) == float("inf")


def test_all_operations_beside_xla(tmp_path: Path):
    pytest.importorskip("jax")
    file = tmp_path / "figures.json"
    options = ["--sizes", "1KiB", "--devices", "4", "--repeats", "1", "--seconds", "1e-6", "--json", str(file)]
    done = command("--over", "process", "--operations", ",".join(OPERATIONS), *options)
    assert done.returncode == 0, done.stderr
    rows = [row for _, row in read_figures(file).rows]
    assert len(rows) == len(OPERATIONS)
    assert all(set(row.engines) == {"stablexla", "xla"} and not row.differing for row in rows), done.stderr


@pytest.mark.parametrize(
    ("engines", "operations"),
    [(["stablexla", "mpi4py"], OPERATIONS), (["stablexla", "dialect"], ["all_reduce"])],
    ids=["mpi4py", "dialect"],
)
def test_operations_over_mpi(tmp_path: Path, engines: list[str], operations: Sequence[str]):
    pytest.importorskip("mpi4py")
    if find_mpiexec() is None:
        pytest.skip("mpiexec is not installed")
    file = tmp_path / "figures.json"
    options = ["--sizes", "1KiB", "--devices", "2", "--repeats", "1", "--seconds", "1e-6", "--json", str(file)]
    who = ["--operations", ",".join(operations), "--engines", ",".join(engines)]
    done = command("--over", "mpi", *who, "--patience", "60", *options)
    assert done.returncode == 0, done.stderr
    rows = [row for _, row in read_figures(file).rows]
    assert len(rows) == len(operations)
    assert all(set(row.engines) == set(engines) and not row.differing for row in rows), done.stderr


def test_help_and_wrong_names():
    assert "xla_force_host_platform_device_count" in parser().format_help()
    given = parser().parse_args(["--operations", "all_reduce,nothing"])
    with pytest.raises(SystemExit, match="there is no operation 'nothing'; there are all_reduce, all_gather"):
        cases_of(given)
