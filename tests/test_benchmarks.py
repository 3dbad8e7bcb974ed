"""The benchmarks command: engines are compared before they are timed, a wrong one is told of; no time is asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import run
from benchmarks.engines import ENGINES, find_engine
from benchmarks.programs import PROGRAMS

ROOT = Path(__file__).parents[1]


def test_the_command_writes_what_it_measured(tmp_path: Path):
    arguments = ["--programs", "add,matmul-128", "--engines", "stablexla,numpy", "--repeats", "2", "--seconds", "0.001"]
    files = ["--json", str(tmp_path / "out.json"), "--markdown", str(tmp_path / "out.md")]
    command = [sys.executable, "-m", "benchmarks.run", *arguments, *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert {row["program"] for row in rows} == {"add-2x2", "matmul-128"}
    assert all(len(row["engines"]["numpy"]["rounds"]) == 2 for row in rows)
    page = (tmp_path / "out.md").read_text()
    assert "| program | stablexla | numpy | Gflop/s | stablexla compiles | numpy / stablexla |" in page
    assert "numpy / stablexla" in done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_can_be_written_down(name: str):
    program = PROGRAMS[name]
    assert program.computation().parameter_shapes == program.shapes


@pytest.mark.parametrize("name", ["add-2x2", "matmul-128", "mlp-256", "loop-1000"])
def test_engines_agree(name: str):
    """numpy's results are the oracle of the others'."""
    engines = [find_engine(engine) for engine in ("numpy", "stablexla", "xla")]
    row = run.measure(PROGRAMS[name], engines, repeats=1, seconds=1e-6)
    assert set(row.engines) == {"numpy", "stablexla", "xla"}
    assert row.failures == {}
    assert row.differing == []


class Wrong:
    """An engine whose results are zero."""

    name = "wrong"
    version = "0"

    def prepare(self, program: Any, text: str, arguments: Sequence[Any]) -> Wrong:
        return self

    def run(self) -> None:
        pass

    def results(self) -> list[Any]:
        return [np.zeros((2, 2))]


class Broken(Wrong):
    name = "broken"

    def prepare(self, program: Any, text: str, arguments: Sequence[Any]) -> Wrong:
        raise ValueError("out of order\nand more")


def test_a_wrong_engine_is_told_of():
    row = run.measure(PROGRAMS["add-2x2"], [find_engine("numpy"), Wrong(), Broken()], repeats=1, seconds=1e-6)
    assert row.differing == ["wrong"]
    assert row.failures == {"broken": "ValueError: out of order"}
    assert run.cells(row, ["numpy", "wrong", "broken"])[3] == "failed"


def test_the_ratio_is_the_others_time_over_ours():
    ours, others = run.Measured(0.0, [2.0, 1.0]), run.Measured(0.0, [3.0, 9.0])
    row = run.Row("p", "", 0, 1e-5, {"stablexla": ours, "xla": others})
    assert row.ratio("xla") == 3.0
    assert row.ratio("numpy") is None


@pytest.mark.parametrize(
    ("seconds", "words"), [((1.5,), "1.5 s"), ((0.0123, 0.5), "12.3 (500) ms"), ((2e-7,), "0.2 us"), ((0.0,), "0 us")]
)
def test_times_in_words(seconds: tuple[float, ...], words: str):
    assert run.in_words(*seconds) == words


@pytest.mark.parametrize("arguments", [["--programs", "nothing"], ["--engines", "nothing"]])
def test_unknown_names_are_refused(arguments: list[str]):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.run", *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "there is no" in done.stderr


def test_every_engine_has_a_file():
    files = {file.stem.removesuffix("_engine") for file in (ROOT / "benchmarks/engines").glob("*_engine.py")}
    assert files == set(ENGINES)
