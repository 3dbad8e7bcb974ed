"""What benchmarks tell: reports that are kept and compared, tables, the machine's limits, growth and calls."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

import stablexla as sx
from benchmarks.accounting import account, parts_of
from benchmarks.comparing import changes, tell_changes
from benchmarks.dispatch import measure_calls
from benchmarks.engines import find_engine
from benchmarks.engines.iree_child import zeros
from benchmarks.limit_loops import arithmetic_texts
from benchmarks.limits import CACHES, Bandwidth, Limits, measure_limits
from benchmarks.measuring import Effort, Measured, Row
from benchmarks.page import page
from benchmarks.plot import draw, ratios_of_page
from benchmarks.programs import PROGRAMS
from benchmarks.programs.growing import GROWING
from benchmarks.programs.registry import Work
from benchmarks.report import Grown, Report, geomean, ratio_in_words, read_report
from benchmarks.tables import all_cells, of_means
from stablexla.dialects.contexts import upstream_context


def timed(program: str, group: str = "kernels", **seconds: float) -> Row:
    engines = {name: Measured(0.5, [2 * time, time], stages={"llvm": 0.25}) for name, time in seconds.items()}
    return Row(program, "what it does", group, "some", 1e-5, engines, limit=0.25)


def report(*rows: Row) -> Report:
    return Report({"processor": "one"}, ["stablexla", "xla", "iree"], "the command", list(rows))


def full() -> Report:
    made = report(timed("slow", stablexla=4.0, xla=1.0), timed("net", "models", stablexla=1.0, xla=2.0, iree=1.5))
    made.rows[0].failures["iree"] = "FailedError: no"
    made.dispatch = {"two arrays": {"stablexla": 1e-6, "xla": 5e-6}}
    made.growth = [Grown("sort", "numbers", (10, 100), "n log n", 20.0, {"stablexla": (1.0, 19.0)})]
    made.threads = {"slow": {"stablexla": {"1": 2.0, "2": 1.0}}}
    return made


def test_a_report_is_read_as_it_was_written(tmp_path: Path):
    full().write(tmp_path / "report.json")
    found = read_report(tmp_path / "report.json")
    assert found.rows == full().rows
    assert found.dispatch == full().dispatch
    assert found.threads == full().threads
    assert found.growth[0].factor("stablexla") == 19.0


def test_newer_rows_take_the_place_of_older_ones():
    kept = full()
    kept.take(report(timed("slow", stablexla=1.0), timed("another", stablexla=1.0)))
    assert [row.program for row in kept.rows] == ["slow", "net", "another"]
    assert kept.rows[0].seconds("stablexla") == 1.0


def test_a_page_of_several_runs_names_them_all():
    kept, newer = full(), report(timed("another", stablexla=1.0))
    kept.machine["engines"], newer.machine["engines"] = "stablexla (1), iree (2)", "stablexla (1), numpy (3)"
    newer.command = "another command"
    kept.take(newer)
    assert kept.machine["engines"] == "stablexla (1), iree (2), numpy (3)"
    assert "Made by `the command`, and then `another command`;" in page(kept, "plot.png")


def test_a_page_has_every_table_and_marks_what_is_lost():
    text = page(full(), "plot.png")
    assert "| slow | 4 (6) s | 1 (1.5) s | failed | 250 ms | 6% | **0.25** |  | **0.25** |" in text
    assert "| net | 1 (1.5) s | 2 (3) s | 1.5 (2.25) s | 250 ms | 25% | 2.00 | 1.50 | 1.50 |" in text
    assert "- `slow`: 0.25 of xla (4 s against 1 s)" in text
    assert "| net | 500 ms | 500 ms | 500 ms | 1.00 | 1.00 | 250 ms |" in text
    assert "| two arrays | 1 us | 5 us | - | 5.00 |  |" in text
    assert "| sort | 10 to 100 | n log n | 20.0 | 1 s to 19 s (19.0) | - | - |" in text
    assert "| slow | 2 s to 1 s (2.00) | - | - |" in text
    assert "- `slow`, iree: FailedError: no" in text
    assert "](plot.png)" in text


def test_a_page_of_little_is_short():
    assert [cells.title for cells in all_cells(report(timed("p", stablexla=1.0)))] == ["geometric means", "some"]


def test_means_are_geometric():
    assert geomean([2.0, 8.0, None]) == pytest.approx(4.0)
    assert geomean([None]) is None
    rows = [timed("a", stablexla=1.0, xla=2.0), timed("b", stablexla=1.0, xla=0.5, iree=9.0)]
    assert of_means(report(*rows)).lines[0] == ["all kernels", "2", "1.00", "9.00", "1.00", "1"]


@pytest.mark.parametrize(
    ("ratio", "words"), [(None, ""), (0.994, "0.99"), (9.99, "9.99"), (12.34, "12.3"), (456.7, "457")]
)
def test_ratios_in_words(ratio: float | None, words: str):
    assert ratio_in_words(ratio) == words


def test_a_change_is_what_the_machine_does_not_explain():
    """The machine has become half as fast, and so have the yardstick and one of the programs."""
    old = report(timed("same", stablexla=1.0, xla=1.0), timed("better", stablexla=1.0, xla=1.0))
    new = report(timed("same", stablexla=2.0, xla=2.0), timed("better", stablexla=1.0, xla=2.0))
    assert {each.program: each.kind for each in changes(old, new)} == {"same": "same", "better": "faster"}
    out = io.StringIO()
    assert tell_changes(old, new, Console(file=out)) == 0
    assert "better" in out.getvalue()


def test_what_became_slower_is_an_error():
    out = io.StringIO()
    old, new = report(timed("p", stablexla=1.0), timed("q", stablexla=1.0)), report(timed("p", stablexla=1.2))
    assert tell_changes(old, new, Console(file=out)) == 1
    assert "q: gone" in out.getvalue()


def limits() -> Limits:
    places = {name: Bandwidth(100.0 / n, 40.0 / n, 50.0 / n) for n, name in enumerate(CACHES, 1)}
    return Limits({"f32": 1000.0, "int32": 500.0}, places, 2)


def test_the_limit_is_arithmetic_or_bytes():
    assert limits().of(Work(3000, 10, 10)) == 3.0
    assert limits().of(Work(0, 100, 0)) == 1.0
    assert limits().of(Work(0, 100, 50)) == pytest.approx(100 / 40 + 50 / 100)
    assert limits().of(Work(0, 0, 100)) == 2.0
    assert limits().of(Work(1000, 0, 0, "int8")) == 2.0
    assert limits().of(Work(0, 1e9, 0)) == pytest.approx(3e7)


def test_this_machine_has_limits():
    found = measure_limits(rounds=1, seconds=1e-4)
    assert {"f32", "f64", "int32"} <= set(found.peaks)
    assert list(found.bandwidths) == list(CACHES)
    rates = [rate for each in found.bandwidths.values() for rate in (each.read, each.copy, each.fill)]
    assert all(0 < rate < 1e15 for rate in [*found.peaks.values(), *rates])


@pytest.mark.parametrize(
    "flags", [set(), {"avx2"}, {"avx512f", "avx512_vnni"}, {"avx512f", "amx_tile", "amx_bf16", "amx_int8"}]
)
def test_loops_can_be_written_for_any_processor(flags: set[str]):
    from mlir.ir import Module

    texts = arithmetic_texts(flags)
    assert ("int8" in texts) == bool(flags & {"avx512_vnni", "amx_int8", "avx2"})
    with upstream_context():
        for text, work in texts.values():
            assert work > 0
            Module.parse(text).operation.verify()


def test_calls_are_timed():
    engines = [find_engine(name) for name in ("stablexla", "numpy")]
    found = measure_calls(engines, Effort(seconds=1e-5, most=1))
    assert len(found) == 4
    assert all(set(times) == {"stablexla", "numpy"} and min(times.values()) > 0 for times in found.values())


def test_growing_programs_know_their_law():
    assert GROWING["sort"].expected == pytest.approx(12.0, rel=0.01)
    assert GROWING["cholesky"].expected == 64.0


def test_zeros_have_the_parameters_types():
    text = (
        "func.func public @main(%arg0: tensor<2x3xbf16> {a.b}, %arg1: tensor<ui8>, %arg2: tensor<4xcomplex<f32>>) -> ()"
    )
    assert [(z.shape, z.dtype.name) for z in zeros(text)] == [((2, 3), "bfloat16"), ((), "uint8"), ((4,), "complex64")]


def test_the_faster_of_two_measurements_is_the_limit() -> None:
    one = limits()
    other = Limits(
        {"f32": 900.0, "int32": 600.0},
        {n: Bandwidth(b.read / 2, b.copy * 2, b.fill) for n, b in one.bandwidths.items()},
        2,
    )
    best = one.or_better(other)
    assert best.peaks == {"f32": 1000.0, "int32": 600.0}
    assert best.bandwidths["memory"].read == one.bandwidths["memory"].read
    assert best.bandwidths["memory"].copy == 2 * one.bandwidths["memory"].copy


def test_the_plot_is_drawn_from_the_pages_own_tables(tmp_path: Path):
    made = full()
    ratios, peers = ratios_of_page(page(made, "x.png"))
    assert peers == ["xla", "iree"]
    assert ratios == {"Some": {"xla": [0.25, 2.0], "iree": [1.5]}}
    draw(ratios, peers, tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")


def test_an_account_adds_up_to_the_runs():
    program = PROGRAMS["mlp-step-batch-32"]
    profile = sx.compile(program.text()).profile(program.arguments(), runs=2)
    parts = parts_of(profile, limits())
    assert {"contraction", "row"} <= parts.keys()
    assert "dot_general" in parts["contraction"].operations
    assert sum(part.seconds for part in parts.values()) + profile.outside == pytest.approx(profile.seconds)
    flops = sum(k.kernel.cost.flops * k.calls for k in profile.kernels if k.kernel and k.kernel.kind == "contraction")
    assert parts["contraction"].limit >= flops / 1000.0
    *lines, outside, whole = account(profile, limits()).lines
    assert [line[0] for line in lines] == sorted(parts, key=lambda name: -parts[name].seconds)
    assert (outside[0], whole[0], whole[3]) == ("outside", "all", "100%")
